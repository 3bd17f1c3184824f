//! The layout of kube-apiserver: its keys, beside entries of others.

use crate::support::cluster::Cluster;
use crate::support::{committed, connect, create, events, put, put_op, update, value};
use bytes::Bytes;
use std::sync::Arc;
use steersman_machinery::{GroupResource, Revision};
use steersman_storage::kv::{Entry, Error, Expect, Kv, Past, Range, Txn};
use steersman_storage_etcd::{ConnectError, Etcd, Keys, Options, Restore, RestoreError};
use steersman_storage_kubernetes::RegistryKeys;

fn registry(cluster: &Cluster) -> Options {
    let built_in = [("", "nodes"), ("", "pods"), ("", "services"), ("apps", "deployments")];
    let keys = RegistryKeys::new(built_in.map(|(group, resource)| GroupResource::new(group, resource)));
    cluster.options().prefix("/registry").keys(Keys::Registry(Arc::new(keys)))
}

fn keys(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| std::str::from_utf8(&entry.key).unwrap()).collect()
}

/// Keys of kube-apiserver in the order of etcd: `deployments`, `minions`, `pods`, `services/specs`.
const OBJECTS: [&str; 6] = ["/nodes/n", "/pods/a/x", "/pods/a/y", "/pods/b/x", "/services/a/x", "apps/deployments/a/x"];

#[tokio::test]
async fn objects_are_read_in_the_order_of_the_contract_and_entries_of_others_are_not() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(registry(&cluster)).await;
    // Everything that this engine has is below the prefix, and no object.
    let other = connect(cluster.options().prefix("/registry/peerserverleases")).await;
    let begun = kv.revision().await.unwrap();
    let mut watch = kv.watch(begun);
    for key in OBJECTS {
        committed(other.txn(create(key, "other")).await);
        committed(kv.txn(create(key, key)).await);
    }
    assert_eq!(keys(&kv.read().await.unwrap().entries), OBJECTS);
    let list = async |prefix: &'static str, limit, start_after: Option<&'static str>| {
        let range = Range { prefix: prefix.into(), limit, start_after: start_after.map(Bytes::from), at: None };
        let part = kv.range(range).await.unwrap();
        (keys(&part.entries).join(" "), part.more)
    };
    assert_eq!(list("/pods/", None, None).await, ("/pods/a/x /pods/a/y /pods/b/x".to_owned(), false));
    assert_eq!(list("/pods/", Some(1), Some("/pods/a/x")).await, ("/pods/a/y".to_owned(), true));
    assert_eq!(list("/pods/a/", None, None).await, ("/pods/a/x /pods/a/y".to_owned(), false));
    assert_eq!(list("", Some(2), Some("/nodes/n")).await, ("/pods/a/x /pods/a/y".to_owned(), true));
    assert_eq!(list("apps/", None, None).await, ("apps/deployments/a/x".to_owned(), false));
    let mut seen = Vec::new();
    while seen.len() < OBJECTS.len() {
        seen.extend(events(&mut *watch).await.into_iter().map(|event| event.key));
    }
    assert_eq!(seen, OBJECTS);
    let through = kv.revision().await.unwrap();
    let past = async |prefix: &'static str| {
        let past = Past { after: begun, limit: 100, prefix: prefix.into(), through };
        kv.history(past).await.unwrap().changes.into_iter().map(|change| change.event.key).collect::<Vec<_>>()
    };
    assert_eq!(past("").await, OBJECTS);
    assert_eq!(past("/services/").await, ["/services/a/x"]);
    let mut scan = kv.scan().await.unwrap();
    let mut scanned = Vec::new();
    loop {
        let part = scan.next().await.unwrap();
        if part.is_empty() {
            break;
        }
        scanned.extend(part.into_iter().map(|entry| entry.key));
    }
    scanned.sort();
    assert_eq!(scanned, OBJECTS);
    kv.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn revisions_are_those_of_etcd_and_a_transaction_is_made_once() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (here, there) = (connect(registry(&cluster)).await, connect(registry(&cluster)).await);
    let first = committed(here.txn(create("/pods/a/x", "1")).await);
    let second = committed(there.txn(update("/pods/a/x", first, "2")).await);
    let both = Txn { ops: vec![put_op("/nodes/n", "3"), put_op("apps/deployments/a/x", "3")], ..Txn::default() };
    let third = committed(here.txn(both).await);
    assert!(first < second && second < third);
    let found = there.read().await.unwrap();
    assert_eq!(found.entries.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [third, second, third]);
    assert!(matches!(there.entry("/pods/a/x".into(), second).await, Ok(Some(_))));
    here.close().await.unwrap();
    there.close().await.unwrap();
}

#[tokio::test]
async fn who_removes_history_is_agreed_on() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (here, there) = (connect(registry(&cluster)).await, connect(registry(&cluster)).await);
    let mut at = committed(here.txn(create("/pods/a/x", "0")).await);
    let mut written = vec![at];
    for n in 1..6 {
        at = committed(here.txn(update("/pods/a/x", at, &n.to_string())).await);
        written.push(at);
    }
    let is_gone = async |kv: &Etcd, at| match kv.range(Range { at: Some(at), ..Range::default() }).await {
        Ok(_) => false,
        Err(Error::Compacted { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    here.compact(written[2]).await.unwrap();
    assert!(is_gone(&here, written[1]).await && !is_gone(&here, written[2]).await);
    // The other one finds that the key is not as it thought, and that history was removed just now.
    there.compact(written[4]).await.unwrap();
    assert!(!is_gone(&there, written[3]).await);
    assert_eq!(there.oldest().await.unwrap(), written[2]);
    there.compact(written[4]).await.unwrap();
    assert!(is_gone(&there, written[3]).await, "the next turn is its own");
    here.close().await.unwrap();
    there.close().await.unwrap();
}

#[tokio::test]
async fn a_store_in_the_other_layout_is_not_taken_for_an_empty_one() {
    let Some(cluster) = Cluster::start(1) else { return };
    let steersman = connect(cluster.options()).await;
    let refused = Etcd::connect(registry(&cluster)).await;
    assert!(matches!(refused, Err(ConnectError::Elsewhere { .. })), "{refused:?}");
    let refused = Etcd::connect(registry(&cluster).prefix("/steersman")).await;
    assert!(matches!(refused, Err(ConnectError::Layout { .. })), "{refused:?}");
    steersman.close().await.unwrap();
    let other = Cluster::start(1).unwrap();
    let kv = connect(registry(&other)).await;
    committed(kv.txn(create("/pods/a/x", "1")).await);
    let refused = Etcd::connect(other.options().prefix("/registry")).await;
    assert!(matches!(refused, Err(ConnectError::Foreign { .. })), "{refused:?}");
    let refused = Etcd::connect_to_read(registry(&other).prefix("/nothing")).await;
    assert!(matches!(refused, Err(ConnectError::Empty { .. })), "{refused:?}");
    kv.close().await.unwrap();
}

#[tokio::test]
async fn a_restored_store_goes_on_after_its_revision_by_writes() {
    let Some(cluster) = Cluster::start(1) else { return };
    let entry = |key: &'static str| Entry { key: key.into(), revision: Revision(1), value: key.into() };
    let interrupted = Restore::begin(registry(&cluster), Revision(2_000)).await.unwrap();
    drop(interrupted);
    let refused = Etcd::connect(registry(&cluster)).await;
    assert!(matches!(refused, Err(ConnectError::Incomplete { .. })), "{refused:?}");
    let mut restore = Restore::begin(registry(&cluster), Revision(2_000)).await.unwrap();
    restore.put(OBJECTS.map(entry).to_vec()).await.unwrap();
    restore.finish().await.unwrap();
    let kv = connect(registry(&cluster)).await;
    let found = kv.read().await.unwrap();
    assert_eq!(keys(&found.entries), OBJECTS);
    assert!(found.entries.iter().all(|entry| Revision(2_000) <= entry.revision), "none was given before: {found:?}");
    assert!(Revision(2_000) <= found.revision && found.revision < Revision(3_000), "{}", found.revision);
    let oldest = kv.oldest().await.unwrap();
    assert!(Revision(2_000) <= oldest, "{oldest}");
    let gone = kv.watch(Revision(1_999)).next().await;
    assert!(matches!(gone, Err(Error::Compacted { .. })), "{gone:?}");
    assert_eq!(value(&*kv, "/pods/a/x").await, Some("/pods/a/x".into()));
    let refused = Restore::begin(registry(&cluster), Revision(4_000)).await.err();
    assert!(matches!(refused, Some(RestoreError::NotEmpty { .. })), "{refused:?}");
    kv.close().await.unwrap();
    let too_far = Restore::begin(registry(&cluster).prefix("/other"), Revision(1_000_000_000)).await.err();
    assert!(matches!(too_far, Some(RestoreError::Behind { .. })), "{too_far:?}");
}

#[tokio::test]
async fn a_restore_leaves_what_somebody_writes_while_it_begins() {
    let Some(cluster) = Cluster::start(1) else { return };
    for n in 0..40 {
        let prefix = format!("/registry-{n}");
        let key = format!("{prefix}/pods/a/x");
        // Later in each round, until the key comes between the first look and the mark, or behind both.
        let written = async {
            for _ in 0..n / 2 {
                tokio::task::yield_now().await;
            }
            put(&cluster, &key, b"1").await;
        };
        let options = registry(&cluster).prefix(&*prefix);
        let (begun, ()) = tokio::join!(Restore::begin(options.clone(), Revision(1)), written);
        match begun {
            Ok(restore) => restore.discard().await.unwrap(),
            Err(RestoreError::NotEmpty { .. }) => {
                let kv = connect(options).await;
                assert_eq!(value(&*kv, "/pods/a/x").await, Some("1".into()), "in round {n}");
                kv.close().await.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_mark_of_history_that_is_beyond_all_revisions_is_not_believed() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(registry(&cluster)).await;
    let first = committed(kv.txn(create("/pods/a/x", "1")).await);
    let last = committed(kv.txn(update("/pods/a/x", first, "2")).await);
    // As after `etcdctl make-mirror` of a store that was further.
    put(&cluster, "compact_rev_key", b"50000000").await;
    kv.compact(last).await.unwrap();
    assert_eq!(kv.oldest().await.unwrap(), Revision::ZERO, "another server may be about to remove it");
    let mut watch = kv.watch(Revision(first.0 - 1));
    assert_eq!(events(&mut *watch).await[0].revision, first);
    kv.compact(last).await.unwrap();
    assert_eq!(kv.oldest().await.unwrap(), last, "the next turn is its own");
    kv.close().await.unwrap();
}

#[tokio::test]
async fn a_restore_that_is_given_up_leaves_nothing() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut restore = Restore::begin(registry(&cluster), Revision(10)).await.unwrap();
    restore.put(vec![Entry { key: "/pods/a/x".into(), revision: Revision(1), value: "1".into() }]).await.unwrap();
    restore.discard().await.unwrap();
    let kv = connect(registry(&cluster)).await;
    assert!(kv.read().await.unwrap().entries.is_empty());
    committed(kv.txn(Txn::single(Expect::Absent, put_op("/pods/a/x", "2"))).await);
    kv.close().await.unwrap();
}
