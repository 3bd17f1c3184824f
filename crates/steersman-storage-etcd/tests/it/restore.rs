//! A restore into a prefix, and a store that is only read.

use crate::support::cluster::Cluster;
use crate::support::{committed, connect, create, put_op, update, value};
use bytes::Bytes;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::backup::{Backup, Decoder, Found};
use steersman_storage::disk;
use steersman_storage::kv::{Entry, Error, Expect, Kv, Outcome, Past, Range, Txn};
use steersman_storage::{Disk, Memory};
use steersman_storage_etcd::{ConnectError, Etcd, Restore, RestoreError};

const REVISION: Revision = Revision(5_000);

fn entry(n: u64) -> Entry {
    let key = Bytes::from(format!("/configmaps/default/c{n:04}"));
    Entry { key, revision: Revision(n + 1), value: vec![b'v'; 1_000 + n as usize].into() }
}

/// Without the revisions, which etcd gives anew.
fn pairs(entries: &[Entry]) -> Vec<(Bytes, Bytes)> {
    let mut pairs: Vec<_> = entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
    pairs.sort();
    pairs
}

#[tokio::test]
async fn a_restored_store_goes_on_after_its_revision_and_has_no_history() {
    let Some(cluster) = Cluster::start(1) else { return };
    let entries: Vec<Entry> = (0..3_000).map(entry).collect();
    let mut restore = Restore::begin(cluster.options(), REVISION).await.unwrap();
    for part in entries.chunks(700) {
        restore.put(part.to_vec()).await.unwrap();
    }
    restore.finish().await.unwrap();
    let kv = connect(cluster.options()).await;
    let snapshot = kv.read().await.unwrap();
    assert_eq!(pairs(&snapshot.entries), pairs(&entries));
    assert!(snapshot.entries.iter().all(|entry| REVISION < entry.revision && entry.revision <= snapshot.revision));
    let floor = kv.oldest().await.unwrap();
    assert!(REVISION < floor && floor <= snapshot.revision);
    for old in [Revision(1), Revision(3_000), REVISION, Revision(floor.0 - 1)] {
        let gone = |error: Option<Error>| matches!(error, Some(Error::Compacted { requested, oldest }) if requested == old && oldest == floor);
        assert!(gone(kv.watch(old).next().await.err()), "a watch from {old}");
        assert!(gone(kv.range(Range { at: Some(old), ..Range::default() }).await.err()), "a list at {old}");
        let past = Past { after: old, limit: 10, through: snapshot.revision, ..Past::default() };
        assert!(gone(kv.history(past).await.err()), "history after {old}");
    }
    // A client that has an object of the time before the restore does not overwrite one of the time after it.
    let key = "/configmaps/default/c0007";
    for old in [Revision(0), Revision(8), REVISION] {
        let outcome = kv.txn(update(key, old, "old")).await.unwrap();
        assert!(matches!(outcome, Outcome::Failed { .. }), "at {old}: {outcome:?}");
        let outcome = kv.txn(update("/configmaps/default/absent", old, "old")).await.unwrap();
        assert!(matches!(outcome, Outcome::Failed { .. }), "at {old}, where there is nothing: {outcome:?}");
    }
    let held = snapshot.entries.iter().find(|entry| entry.key == key).unwrap().revision;
    let written = committed(kv.txn(update(key, held, "new")).await);
    assert!(snapshot.revision < written);
    kv.close().await.unwrap();
    // It is as it is after a restart too.
    let kv = connect(cluster.options()).await;
    assert_eq!(value(&*kv, key).await, Some("new".into()));
    assert!(written <= kv.revision().await.unwrap());
    assert_eq!(kv.oldest().await.unwrap(), floor);
    kv.close().await.unwrap();
}

#[tokio::test]
async fn an_interrupted_restore_is_not_used_and_can_be_begun_again() {
    let Some(cluster) = Cluster::start(1) else { return };
    let incomplete = async || {
        let refused = Etcd::connect(cluster.options()).await;
        assert!(matches!(refused, Err(ConnectError::Incomplete { .. })), "{refused:?}");
        let refused = Etcd::connect_to_read(cluster.options()).await;
        assert!(matches!(refused, Err(ConnectError::Incomplete { .. })), "{refused:?}");
    };
    let mut first = Restore::begin(cluster.options(), REVISION).await.unwrap();
    incomplete().await;
    first.put((0..300).map(entry).collect()).await.unwrap();
    incomplete().await;
    let mut second = Restore::begin(cluster.options(), REVISION).await.unwrap();
    let overtaken = first.put((300..900).map(entry).collect()).await.unwrap_err();
    assert!(matches!(overtaken, RestoreError::Overtaken { .. }), "{overtaken}");
    assert!(matches!(first.finish().await, Err(RestoreError::Overtaken { .. })));
    incomplete().await;
    second.put((500..600).map(entry).collect()).await.unwrap();
    second.finish().await.unwrap();
    let kv = connect(cluster.options()).await;
    let want: Vec<Entry> = (500..600).map(entry).collect();
    assert_eq!(pairs(&kv.read().await.unwrap().entries), pairs(&want), "nothing is left of the first one");
    kv.close().await.unwrap();
}

#[tokio::test]
async fn a_prefix_with_keys_is_not_restored_into() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    committed(kv.txn(create("a", "1")).await);
    kv.close().await.unwrap();
    let error = Restore::begin(cluster.options(), REVISION).await.unwrap_err();
    assert!(matches!(error, RestoreError::NotEmpty { .. }), "{error}");
    let other = connect(cluster.options().prefix("/registry/a")).await;
    other.close().await.unwrap();
    let error = Restore::begin(cluster.options().prefix("/registry"), REVISION).await.unwrap_err();
    assert!(error.to_string().contains("etcd has keys below \"/registry\""), "{error}");
    let discarded = Restore::begin(cluster.options().prefix("/other"), REVISION).await.unwrap();
    discarded.discard().await.unwrap();
    let nothing = Etcd::connect_to_read(cluster.options().prefix("/other")).await;
    assert!(matches!(nothing, Err(ConnectError::Empty { .. })), "{nothing:?}");
    let kv = connect(cluster.options()).await;
    assert_eq!(value(&*kv, "a").await, Some("1".into()));
    kv.close().await.unwrap();
}

#[tokio::test]
async fn a_store_is_read_while_a_server_works_on_it_and_nothing_is_written() {
    let Some(cluster) = Cluster::start(1) else { return };
    let server = connect(cluster.options()).await;
    committed(server.txn(create("a", "1")).await);
    let before = server.revision().await.unwrap();
    let reader = Etcd::connect_to_read(cluster.options()).await.unwrap();
    let mut scan = reader.scan().await.unwrap();
    assert_eq!(pairs(&scan.next().await.unwrap()), [("a".into(), "1".into())]);
    let txn = Txn::single(Expect::Absent, put_op("b", "1"));
    assert!(matches!(reader.txn(txn).await, Err(Error::Unavailable { .. })));
    reader.close().await.unwrap();
    assert_eq!(server.revision().await.unwrap(), before, "the reader wrote nothing");
    let nothing = Etcd::connect_to_read(cluster.options().prefix("/nothing")).await;
    assert!(matches!(nothing, Err(ConnectError::Empty { .. })), "{nothing:?}");
    assert_eq!(server.revision().await.unwrap(), before, "a prefix is not claimed by a look at it");
    server.close().await.unwrap();
}

/// The entries and the revision in a backup of an engine.
async fn backup(kv: &dyn Kv) -> (Vec<Entry>, Revision) {
    let mut backup = Backup::begin(kv, None).await.unwrap();
    let mut decoder = Decoder::new();
    let mut entries = Vec::new();
    while let Some(bytes) = backup.next().await.unwrap() {
        decoder.push(&bytes);
        while let Some(found) = decoder.next() {
            match found {
                Found::Entry(entry) => entries.push(entry),
                Found::Header(_) | Found::End(_) => {}
                found => panic!("{found:?}"),
            }
        }
    }
    (entries, backup.revision())
}

#[tokio::test]
async fn objects_are_the_same_after_the_way_through_every_engine() {
    let Some(cluster) = Cluster::start(1) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let first: Arc<dyn Kv> = Arc::new(Disk::open(&scratch.path().join("first")).unwrap());
    for n in 0..500 {
        let Entry { key, value, .. } = entry(n);
        committed(first.txn(create(std::str::from_utf8(&key).unwrap(), std::str::from_utf8(&value).unwrap())).await);
    }
    let (entries, at_first) = backup(&*first).await;
    assert_eq!(entries.len(), 500);

    let mut restore = Restore::begin(cluster.options(), Revision(at_first.0 + 1_000)).await.unwrap();
    restore.put(entries.clone()).await.unwrap();
    restore.finish().await.unwrap();
    let in_etcd = connect(cluster.options()).await;
    let (through_etcd, at_etcd) = backup(&*in_etcd).await;
    assert!(at_first.0 + 1_000 < at_etcd.0);
    in_etcd.close().await.unwrap();

    let dir = scratch.path().join("last");
    let mut restore = disk::Restore::begin(&dir, Revision(at_etcd.0 + 1_000)).unwrap();
    restore.put(through_etcd).unwrap();
    restore.finish().unwrap();
    let last = Disk::open(&dir).unwrap();
    let snapshot = last.read().await.unwrap();
    assert_eq!(pairs(&snapshot.entries), pairs(&first.read().await.unwrap().entries));
    assert_eq!(snapshot.revision, Revision(at_etcd.0 + 1_000));
    let of_memory = backup(&Memory::new()).await;
    assert_eq!(of_memory, (Vec::new(), Revision::ZERO));
}
