//! Entries that etcd deletes some time after their last write.

use crate::support::cluster::Cluster;
use crate::support::{committed, connect, create, events, update};
use futures::FutureExt as _;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::Kv;
use steersman_storage_etcd::{Expiry, Options};

/// etcd takes two seconds for less.
fn expiring(options: Options) -> Options {
    options.expiring(vec![Expiry { prefix: "/events/".into(), after: Duration::from_secs(2) }])
}

#[tokio::test]
async fn entries_that_are_not_written_again_go_away_together_and_others_stay() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(expiring(cluster.options())).await;
    let mut watch = kv.watch(kv.revision().await.unwrap());
    for key in ["/pods/a/x", "/events/a/x", "/events/a/y"] {
        committed(kv.txn(create(key, "1")).await);
    }
    let mut gone: Vec<(String, Revision)> = Vec::new();
    while gone.len() < 2 {
        let deleted = events(&mut *watch).await.into_iter().filter(|event| event.value.is_none());
        gone.extend(deleted.map(|event| (String::from_utf8(event.key.to_vec()).unwrap(), event.revision)));
    }
    gone.sort();
    assert_eq!((&*gone[0].0, &*gone[1].0), ("/events/a/x", "/events/a/y"));
    assert_eq!(gone[0].1, gone[1].1, "they were on one lease");
    let left = kv.read().await.unwrap().entries;
    assert_eq!(left.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), [b"/pods/a/x"]);
    kv.close().await.unwrap();
}

#[tokio::test]
async fn an_entry_lasts_from_its_last_write_on() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(expiring(cluster.options())).await;
    let mut watch = kv.watch(kv.revision().await.unwrap());
    let kept = committed(kv.txn(create("/events/a/kept", "1")).await);
    committed(kv.txn(create("/events/a/first", "1")).await);
    let mut at = kept;
    let deleted = async |watch: &mut dyn steersman_storage::kv::Watch| {
        loop {
            let batch = events(watch).await;
            if let Some(event) = batch.into_iter().find(|event| event.value.is_none()) {
                break event.key;
            }
        }
    };
    // Written again and again, and on later leases, until the other one is gone.
    let gone = {
        let mut first = Box::pin(deleted(&mut *watch));
        loop {
            if let Some(gone) = (&mut first).now_or_never() {
                break gone;
            }
            at = committed(kv.txn(update("/events/a/kept", at, "2")).await);
        }
    };
    assert_eq!(gone, "/events/a/first");
    assert_eq!(deleted(&mut *watch).await, "/events/a/kept", "it goes too, once it is not written any more");
    assert!(kept < at);
    kv.close().await.unwrap();
}
