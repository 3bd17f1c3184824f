//! Several engines, and others, on one etcd.

use crate::support::cluster::Cluster;
use crate::support::proxy::{Loss, Proxy};
use crate::support::{committed, connect, create, hurried, seen};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::kv::{Error, Kv, Past};
use steersman_storage::{Compactor, Options as StoreOptions, Scope, Store, WatchError};
use steersman_storage_etcd::{ConnectError, Etcd, Options};
use tokio::task::JoinSet;
use tokio::time::timeout;

fn json(name: &str, text: &str) -> bytes::Bytes {
    format!(r#"{{"metadata":{{"name":"{name}","uid":"u-{name}"}},"data":{{"text":"{text}"}}}}"#).into()
}

fn configs() -> GroupResource {
    GroupResource::new("", "configmaps")
}

async fn store(kv: Arc<Etcd>) -> Store {
    Store::open(kv, StoreOptions { compactor: Compactor::Another, ..StoreOptions::default() }).await.unwrap()
}

#[tokio::test]
async fn what_one_server_wrote_the_other_reads_at_once() {
    let Some(cluster) = Cluster::start(3) else { return };
    let (here, there) = (store(connect(cluster.options()).await).await, store(connect(cluster.options()).await).await);
    for n in 0..100 {
        let key = ObjectKey::namespaced("default", format!("c-{n}"));
        let written = here.create(&configs(), &key, json(&key.name, "1")).await.unwrap();
        let read = there.get(&configs(), &key).await.unwrap().unwrap();
        assert_eq!((read.revision, read.json()), (written.revision, written.json()));
        let updated = there.update(&configs(), &key, read.revision, json(&key.name, "2")).await.unwrap();
        assert_eq!(here.get(&configs(), &key).await.unwrap().unwrap().revision, updated.revision);
    }
    here.close().await.unwrap();
    there.close().await.unwrap();
}

#[tokio::test]
async fn changes_of_other_keys_keep_no_reader_waiting() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    let others = connect(cluster.options().prefix("/others")).await;
    let store = store(kv.clone()).await;
    let key = ObjectKey::cluster("a");
    store.create(&configs(), &key, json("a", "1")).await.unwrap();
    for n in 0..20 {
        let revision = committed(others.txn(create(&n.to_string(), "1")).await);
        assert!(store.get(&configs(), &key).await.unwrap().is_some());
        assert!(revision <= store.revision(), "the progress of others is known");
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_reader_is_woken_for_the_answer_only() {
    const READERS: usize = 32;
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    let n_polls = Arc::new(AtomicUsize::new(0));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let (kv, n_polls) = (kv.clone(), n_polls.clone());
        readers.spawn(async move {
            let mut read = kv.revision();
            poll_fn(|context| {
                n_polls.fetch_add(1, Ordering::Relaxed);
                read.as_mut().poll(context)
            })
            .await
        });
    }
    for revision in readers.join_all().await {
        revision.unwrap();
    }
    assert_eq!(n_polls.load(Ordering::Relaxed), 2 * READERS, "once to ask, and once for the answer");
}

#[tokio::test]
async fn a_reader_that_is_not_polled_keeps_no_other_waiting() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    let mut suspended = kv.revision();
    let first = poll_fn(|context| Poll::Ready(suspended.as_mut().poll(context))).await;
    assert!(first.is_pending());
    // In its turn, and behind it.
    for _ in 0..2 {
        timeout(Duration::from_secs(15), kv.revision()).await.expect("an answer").unwrap();
    }
    suspended.await.unwrap();
}

#[tokio::test]
async fn a_store_goes_on_after_others_compacted_what_it_had_not_read() {
    let Some(cluster) = Cluster::start(1) else { return };
    let proxy = Proxy::start(&cluster.members[0].url).await;
    let direct = connect(cluster.options()).await;
    let store = store(connect(hurried(Options::new(vec![proxy.url.clone()]))).await).await;
    let (kept, gone) = (ObjectKey::cluster("kept"), ObjectKey::cluster("gone"));
    store.create(&configs(), &kept, json("kept", "1")).await.unwrap();
    store.create(&configs(), &gone, json("gone", "1")).await.unwrap();
    store.sync().await.unwrap();
    let mut watcher = store.watch(&configs(), Scope::All, store.revision()).unwrap();
    proxy.lose(Loss::Answers);
    let other = self::store(direct.clone()).await;
    let read = other.get(&configs(), &kept).await.unwrap().unwrap();
    let updated = other.update(&configs(), &kept, read.revision, json("kept", "2")).await.unwrap();
    let read = other.get(&configs(), &gone).await.unwrap().unwrap();
    other.delete(&configs(), &gone, read.revision).await.unwrap();
    let newest = direct.revision().await.unwrap();
    direct.compact(newest).await.unwrap();
    proxy.lose(Loss::Nothing);
    assert_eq!(store.get(&configs(), &kept).await.unwrap().unwrap().revision, updated.revision);
    assert!(store.get(&configs(), &gone).await.unwrap().is_none());
    let ended = loop {
        match watcher.next_batch(16).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, WatchError::Lagged { .. }), "{ended:?}");
    store.create(&configs(), &gone, json("gone", "3")).await.unwrap();
    assert!(!store.is_closed());
}

#[tokio::test]
async fn history_that_others_compacted_is_said_to_be_compacted() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (here, there) = (connect(cluster.options()).await, connect(cluster.options()).await);
    let first = committed(here.txn(create("a", "1")).await);
    for n in 0..5 {
        committed(here.txn(create(&n.to_string(), "1")).await);
    }
    let newest = there.revision().await.unwrap();
    there.compact(newest).await.unwrap();
    let past = Past { after: first, limit: 10, through: newest, ..Past::default() };
    let error = here.history(past).await.unwrap_err();
    assert!(matches!(error, Error::Compacted { oldest, .. } if oldest == newest), "{error:?}");
    let at = steersman_storage::kv::Range { at: Some(first), ..Default::default() };
    let error = here.range(at).await.unwrap_err();
    assert!(matches!(error, Error::Compacted { .. }), "{error:?}");
    assert_eq!(here.oldest().await.unwrap(), newest);
    let third = connect(cluster.options()).await;
    assert_eq!(third.oldest().await.unwrap(), newest);
}

#[tokio::test]
async fn a_prefix_with_foreign_keys_is_refused() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options().prefix("/registry/ours")).await;
    committed(kv.txn(create("a", "1")).await);
    let error = Etcd::connect(cluster.options().prefix("/registry")).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Foreign { prefix } if prefix == "/registry"), "{error:?}");
    let mut watch = kv.watch(Revision(1));
    assert!(Revision(1) < seen(&mut *watch, "a").await, "the rightful one goes on");
}
