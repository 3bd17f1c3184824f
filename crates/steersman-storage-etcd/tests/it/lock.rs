//! One process at a time works below a prefix.

use crate::support::cluster::Cluster;
use crate::support::proxy::{Loss, Proxy};
use crate::support::{committed, connect, create, hurried, value};
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::kv::{Error, Kv};
use steersman_storage_etcd::{ConnectError, Etcd, Options};
use tokio::time::timeout;

const TAKEOVER: Duration = Duration::from_secs(1);

fn alone(cluster: &Cluster) -> Options {
    cluster.options().takeover(TAKEOVER)
}

#[tokio::test]
async fn a_second_process_waits_until_the_first_has_ended() {
    let Some(cluster) = Cluster::start(1) else { return };
    let first = connect(alone(&cluster)).await;
    let mut second = Box::pin(Etcd::connect(alone(&cluster)));
    assert!(timeout(3 * TAKEOVER, &mut second).await.is_err(), "the first one gives signs of life");
    committed(first.txn(create("a", "1")).await);
    first.close().await.unwrap();
    let second = timeout(TAKEOVER, second).await.expect("the first has left the lock").unwrap();
    assert_eq!(value(&second, "a").await.as_deref(), Some(&b"1"[..]));
    committed(second.txn(create("b", "1")).await);
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_process_that_is_gone_is_replaced() {
    let Some(cluster) = Cluster::start(1) else { return };
    let first = connect(alone(&cluster)).await;
    committed(first.txn(create("a", "1")).await);
    drop(first);
    let second = Etcd::connect(alone(&cluster)).await.unwrap();
    committed(second.txn(create("b", "1")).await);
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_process_that_was_paused_writes_nothing_after_another_has_taken_over() {
    let Some(cluster) = Cluster::start(1) else { return };
    // The first one lives in a runtime of its own, which runs only while this test wants it.
    let (connected, first) = std::sync::mpsc::sync_channel(1);
    let (go_on, paused) = std::sync::mpsc::sync_channel::<()>(1);
    let options = alone(&cluster);
    let process = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kv: Arc<Etcd> = runtime.block_on(connect(options));
        runtime.block_on(async { committed(kv.txn(create("a", "1")).await) });
        connected.send(()).unwrap();
        paused.recv().unwrap();
        runtime.block_on(async { (kv.txn(create("b", "of the first")).await, kv.health()) })
    });
    first.recv().unwrap();
    let second = Etcd::connect(alone(&cluster)).await.unwrap();
    committed(second.txn(create("c", "1")).await);
    go_on.send(()).unwrap();
    let (written, health) = process.join().unwrap();
    assert!(matches!(&written, Err(Error::Replaced { fault }) if fault.contains("another server")), "{written:?}");
    assert!(matches!(health, Err(Error::Replaced { .. })));
    assert_eq!(value(&second, "b").await, None);
    second.close().await.unwrap();
}

#[tokio::test]
async fn an_outage_of_etcd_is_no_reason_to_take_over() {
    let Some(cluster) = Cluster::start(1) else { return };
    let proxy = Proxy::start(&cluster.members[0].url).await;
    let first = connect(hurried(Options::new(vec![proxy.url.clone()]).takeover(TAKEOVER))).await;
    let mut second = Box::pin(Etcd::connect(hurried(alone(&cluster))));
    assert!(timeout(2 * TAKEOVER, &mut second).await.is_err(), "the first one gives signs of life");
    proxy.lose(Loss::Requests);
    cluster.members[0].pause();
    assert!(timeout(2 * TAKEOVER, &mut second).await.is_err());
    // The second one reaches etcd again before the first one does.
    cluster.members[0].go_on();
    assert!(timeout(TAKEOVER / 2, &mut second).await.is_err(), "the first one has the time to give a sign of life");
    proxy.lose(Loss::Nothing);
    assert!(timeout(2 * TAKEOVER, &mut second).await.is_err(), "the first one gives signs of life again");
    committed(first.txn(create("a", "1")).await);
    first.close().await.unwrap();
    second.await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn a_process_without_the_lock_writes_nothing_beside_one_that_has_it() {
    let Some(cluster) = Cluster::start(1) else { return };
    let first = connect(alone(&cluster)).await;
    let error = Etcd::connect(cluster.options()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Kv(Error::Replaced { .. })), "{error:?}");
    committed(first.txn(create("a", "1")).await);
    first.close().await.unwrap();
    committed(connect(cluster.options()).await.txn(create("b", "1")).await);
}
