//! Snapshots that a real etcd makes.

use crate::support::cluster::Cluster;
use crate::support::{committed, connect, create, delete, put, update};
use bytes::Bytes;
use http::uri::PathAndQuery;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steersman_machinery::{GroupResource, Revision};
use steersman_storage::kv::{Entry, Kv, Op, Range, Txn};
use steersman_storage_etcd::{Etcd, Keys, Restore, Snapshot, SnapshotError, State};
use steersman_storage_kubernetes::RegistryKeys;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct SnapshotRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct SnapshotResponse {
    #[prost(bytes = "bytes", tag = "3")]
    blob: Bytes,
}

/// Saves a snapshot as `etcdctl snapshot save` does.
async fn save(cluster: &Cluster, name: &str) -> PathBuf {
    let channel = Endpoint::from_shared(cluster.members[0].url.clone()).unwrap().connect().await.unwrap();
    let mut client = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Snapshot");
    let codec = ProstCodec::<SnapshotRequest, SnapshotResponse>::default();
    let answer = client.server_streaming(Request::new(SnapshotRequest {}), path, codec).await.unwrap();
    let mut stream = answer.into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        bytes.extend_from_slice(&part.blob);
    }
    let path = cluster.scratch().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// All objects in a snapshot, in key order.
fn read(snapshot: &Snapshot) -> Vec<Entry> {
    let mut entries = snapshot.entries().unwrap();
    let mut all: Vec<Entry> = std::iter::from_fn(|| entries.next().unwrap()).collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

/// An engine with many objects, some of them large, changed and deleted, with history and after a compaction.
async fn filled(kv: Arc<Etcd>) -> Arc<Etcd> {
    for n in 0..400 {
        let at = committed(kv.txn(create(&format!("/configmaps/default/c{n}"), &"v".repeat(n * 20))).await);
        match n % 4 {
            0 => drop(committed(kv.txn(delete(&format!("/configmaps/default/c{n}"), at)).await)),
            1 => drop(committed(kv.txn(update(&format!("/configmaps/default/c{n}"), at, "changed")).await)),
            _ => {}
        }
        if n == 200 {
            kv.compact(kv.revision().await.unwrap()).await.unwrap();
        }
    }
    let at = committed(kv.txn(create("/pods/default/again", "1")).await);
    committed(kv.txn(delete("/pods/default/again", at)).await);
    let large = Op::Put { key: "/pods/default/again".into(), value: vec![b'x'; 1_000_000].into() };
    committed(kv.txn(Txn { compares: Vec::new(), ops: vec![large] }).await);
    kv
}

#[tokio::test]
async fn a_snapshot_has_the_objects_that_etcd_has() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = filled(connect(cluster.options()).await).await;
    let other = connect(cluster.options().prefix("/other")).await;
    committed(other.txn(create("a", "1")).await);
    let want = kv.read().await.unwrap();
    let path = save(&cluster, "snapshot").await;
    let snapshot = Snapshot::open(&path, "/steersman", &Keys::Steersman).unwrap();
    assert_eq!(read(&snapshot), want.entries);
    assert_eq!((snapshot.n_entries(), snapshot.revision()), (want.entries.len(), want.revision));
    assert_eq!(read(&Snapshot::open(&path, "/other", &Keys::Steersman).unwrap()).len(), 1);
    other.close().await.unwrap();
    kv.close().await.unwrap();
}

/// The objects at a revision, in key order.
fn state_at(path: &Path, at: Option<Revision>) -> (Vec<Entry>, State) {
    let mut state = State::read(path, at).unwrap();
    let mut objects = state.objects("/steersman", &Keys::Steersman).entries;
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    (objects, state)
}

#[tokio::test]
async fn a_snapshot_has_every_state_that_was_not_compacted() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = filled(connect(cluster.options()).await).await;
    let want = kv.read().await.unwrap();
    let path = save(&cluster, "snapshot").await;
    let (newest, state) = state_at(&path, None);
    assert_eq!(
        (&newest, state.at, state.newest, state.is_unsigned),
        (&want.entries, want.revision, want.revision, false)
    );
    assert!(state.oldest < state.newest && Revision::ZERO < state.oldest);
    for at in [state.oldest, Revision(state.oldest.0 + 37), Revision(want.revision.0 - 1)] {
        let then = kv.range(Range { at: Some(at), ..Range::default() }).await.unwrap();
        let (found, state) = state_at(&path, Some(at));
        assert_eq!((found, state.at), (then.entries, at));
    }
    for at in [Revision(state.oldest.0 - 1), want.revision.next()] {
        let error = State::read(&path, Some(at)).unwrap_err();
        assert!(error.to_string().ends_with(&format!("and none of {at}: name one of those")), "{error}");
    }
    // A copy of etcd's file has no checksum, and a snapshot that is cut lacks pages.
    let bytes = std::fs::read(&path).unwrap();
    let copy = cluster.scratch().join("copy");
    std::fs::write(&copy, &bytes[..bytes.len() - 32]).unwrap();
    let (found, state) = state_at(&copy, None);
    assert_eq!((found, state.is_unsigned), (want.entries, true));
    std::fs::write(&copy, &bytes[..bytes.len() / 2]).unwrap();
    let error = State::read(&copy, None).unwrap_err();
    assert!(matches!(error, SnapshotError::Bolt { .. } | SnapshotError::Checksum { .. }), "{error}");
    kv.close().await.unwrap();
}

#[tokio::test]
async fn a_snapshot_of_a_restored_store_has_its_revisions() {
    let Some(cluster) = Cluster::start(1) else { return };
    Restore::begin(cluster.options(), Revision(7_000_000)).await.unwrap().finish().await.unwrap();
    let kv = filled(connect(cluster.options()).await).await;
    let want = kv.read().await.unwrap();
    assert!(Revision(7_000_000) < want.revision);
    let path = save(&cluster, "snapshot").await;
    let snapshot = Snapshot::open(&path, "/steersman", &Keys::Steersman).unwrap();
    assert_eq!((read(&snapshot), snapshot.revision()), (want.entries, want.revision));
    kv.close().await.unwrap();
}

#[tokio::test]
async fn the_revision_of_a_deletion_that_was_compacted_is_known() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    let at = committed(kv.txn(create("a", "1")).await);
    let last = committed(kv.txn(delete("a", at)).await);
    kv.compact(last).await.unwrap();
    let snapshot = Snapshot::open(&save(&cluster, "snapshot").await, "/steersman", &Keys::Steersman).unwrap();
    assert_eq!((snapshot.revision(), snapshot.n_entries()), (last, 0));
    kv.close().await.unwrap();
}

#[track_caller]
fn refused(path: &Path, prefix: &str, sentence: &str) {
    let error = Snapshot::open(path, prefix, &Keys::Steersman).unwrap_err().to_string();
    assert!(error.contains(sentence), "{error}");
}

#[tokio::test]
async fn a_snapshot_without_objects_of_a_server_says_what_it_has() {
    let Some(cluster) = Cluster::start(1) else { return };
    let empty = save(&cluster, "empty").await;
    refused(&empty, "/steersman", "has nothing below \"/steersman\"");
    put(&cluster, "/registry/configmaps/default/a", b"k8s\0...").await;
    put(&cluster, "/custom/example.com/things/a", b"{\"apiVersion\":\"example.com/v1\"}").await;
    put(&cluster, "/app/settings", b"1").await;
    let path = save(&cluster, "snapshot").await;
    refused(
        &path,
        "/registry",
        "has the objects of a kube-apiserver below \"/registry\", such as \"/registry/configmaps/default/a\"",
    );
    refused(&path, "/custom", "has the objects of a kube-apiserver below \"/custom\"");
    refused(&path, "/app", "has keys below \"/app\" that are not Steersman's, such as \"/app/settings\"");
    refused(&path, "/steersman", "has nothing below \"/steersman\", but for example \"/");
    let restoring = Restore::begin(cluster.options(), Revision(9)).await.unwrap();
    refused(&save(&cluster, "restoring").await, "/steersman", "had not ended");
    restoring.discard().await.unwrap();
}

#[tokio::test]
async fn keys_of_kinds_that_are_not_served_are_named() {
    let Some(cluster) = Cluster::start(1) else { return };
    let keys = Keys::Registry(Arc::new(RegistryKeys::new([GroupResource::new("", "pods")])));
    let kv = connect(cluster.options().prefix("/registry").keys(keys.clone())).await;
    // The engine has written a fence too.
    committed(kv.txn(create("/pods/a/x", "1")).await);
    for key in ["/registry/podgroups/a/g", "/registry/things/t", "/other/podgroups/a/g"] {
        put(&cluster, key, b"1").await;
    }
    let snapshot = Snapshot::open(&save(&cluster, "snapshot").await, "/registry", &keys).unwrap();
    let foreign: Vec<_> = snapshot.foreign_keys().collect();
    assert_eq!(foreign, ["/registry/podgroups/a/g", "/registry/things/t"]);
    assert_eq!(snapshot.n_entries(), 1);
    kv.close().await.unwrap();
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = filled(connect(cluster.options()).await).await;
    kv.close().await.unwrap();
    let path = save(&cluster, "snapshot").await;
    let bytes = std::fs::read(&path).unwrap();
    for place in [0, 5_000, bytes.len() / 2, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[place] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        assert!(
            matches!(Snapshot::open(&path, "/steersman", &Keys::Steersman), Err(SnapshotError::Checksum { .. })),
            "{place}"
        );
    }
    std::fs::write(&path, &bytes[..bytes.len() - 32]).unwrap();
    refused(&path, "/steersman", "has no SHA-256 at its end");
    std::fs::write(&path, b"").unwrap();
    refused(&path, "/steersman", "has no SHA-256 at its end");
}
