//! etcd that is away, stands still, comes back, or comes back as another.

use crate::support::cluster::Cluster;
use crate::support::{committed, connect, create, events, hurried, seen, update, value};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::{Error, Kv, Outcome};
use steersman_storage_etcd::{ConnectError, Etcd, Options};
use tokio::sync::Semaphore;

/// Deadlines that pass while etcd stands still.
fn impatient(options: Options) -> Options {
    options.timeouts(Duration::from_millis(300), Duration::from_millis(600), Duration::from_millis(1_500))
}

#[tokio::test]
async fn an_etcd_that_stands_still_is_unavailable_until_it_goes_on() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(impatient(cluster.options())).await;
    let first = committed(kv.txn(create("a", "1")).await);
    let mut watch = kv.watch(Revision(first.0 - 1));
    assert_eq!(events(&mut *watch).await[0].revision, first);
    cluster.members[0].pause();
    let error = kv.revision().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.is_retryable(), "{error:?}");
    let error = kv.txn(update("a", first, "2")).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }) && !error.is_retryable(), "{error:?}");
    // The fence is not written yet, so this one was not even sent.
    let error = kv.txn(create("b", "1")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    // One writes the fence, and the others wait for it.
    let names = ["e", "f", "g"];
    for outcome in futures::future::join_all(names.map(|name| kv.txn(create(name, "1")))).await {
        assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
    }
    while kv.reachable().is_ok() {
        assert!(kv.revision().await.is_err());
    }
    assert!(kv.health().is_ok(), "it is not a permanent failure");
    cluster.members[0].go_on();
    let second = retry(&kv, "c").await;
    kv.reachable().unwrap();
    // The outcome that was unknown is decided now.
    let before = value(&*kv, "a").await;
    let third = committed(kv.txn(create("d", "1")).await);
    assert_eq!(value(&*kv, "a").await, before);
    let mut revisions = Vec::new();
    while revisions.last() != Some(&third) {
        revisions.extend(events(&mut *watch).await.iter().map(|event| event.revision));
    }
    assert!(revisions.contains(&second) && revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
}

/// Creates a key once etcd can be reached again.
async fn retry(kv: &Arc<Etcd>, key: &str) -> Revision {
    loop {
        match kv.txn(create(key, "1")).await {
            Err(error) if error.is_retryable() => {}
            Err(Error::Unknown { .. }) => {}
            Ok(Outcome::Failed { found, .. }) => return found[0].unwrap(),
            outcome => return committed(outcome),
        }
    }
}

#[tokio::test]
async fn a_watch_has_every_change_once_over_crashes_of_etcd() {
    const N_CRASHES: usize = 3;
    const N_KEYS: usize = 40;
    let Some(mut cluster) = Cluster::start(1) else { return };
    let kv = connect(hurried(cluster.options())).await;
    let start = kv.revision().await.unwrap();
    let mut watch = kv.watch(start);
    // Each crash comes while there is more to write.
    let allowed = Arc::new(Semaphore::new(0));
    let writing = tokio::spawn({
        let (kv, allowed) = (kv.clone(), allowed.clone());
        async move {
            let mut told = Vec::new();
            for n in 0..N_KEYS * (N_CRASHES + 1) {
                allowed.acquire().await.unwrap().forget();
                told.push(committed(kv.txn(create(&format!("{n:04}"), &n.to_string())).await));
            }
            told
        }
    });
    let mut changes = Vec::new();
    for n_crashes in 0..=N_CRASHES {
        allowed.add_permits(N_KEYS);
        while changes.len() < N_KEYS * n_crashes + N_KEYS / 2 {
            changes.extend(events(&mut *watch).await);
        }
        if n_crashes < N_CRASHES {
            cluster.members[0].kill();
            cluster.members[0].start_again();
        }
    }
    let told = writing.await.unwrap();
    while changes.len() < told.len() {
        changes.extend(events(&mut *watch).await);
    }
    let seen: Vec<Revision> = changes.iter().map(|event| event.revision).collect();
    assert_eq!(seen, told, "each acknowledged change, once and in order");
    let mut history = kv.watch(start);
    let mut again = Vec::new();
    while again.len() < told.len() {
        again.extend(events(&mut *history).await);
    }
    assert_eq!(again, changes);
}

#[tokio::test]
async fn a_watch_that_etcd_takes_again_shows_that_it_is_there() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let kv = connect(hurried(cluster.options())).await;
    let mut watch = kv.watch(kv.revision().await.unwrap());
    let others = connect(hurried(cluster.options())).await;
    retry(&others, "before").await;
    seen(&mut *watch, "before").await;
    cluster.members[0].kill();
    cluster.members[0].start_again();
    retry(&others, "after").await;
    seen(&mut *watch, "after").await;
    // Nothing but the watch asks etcd.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    kv.reachable().unwrap();
}

#[tokio::test]
async fn a_member_that_stands_still_keeps_nobody_waiting_for_long() {
    let Some(cluster) = Cluster::start(3) else { return };
    let kv = connect(cluster.options().timeouts(
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_secs(30),
    ))
    .await;
    let mut watch = kv.watch(kv.revision().await.unwrap());
    for paused in 0..3 {
        cluster.members[paused].pause();
        let key = paused.to_string();
        let revision = committed(kv.txn(create(&key, "1")).await);
        assert!(revision <= kv.revision().await.unwrap());
        assert_eq!(seen(&mut *watch, &key).await, revision);
        cluster.members[paused].go_on();
    }
    assert_eq!(kv.read().await.unwrap().entries.len(), 3);
}

/// etcd keeps writes that went to a leader which stands still until it goes on, or for seven seconds; this one never goes on, and a write
/// may be waited for for ten minutes.
#[tokio::test]
async fn writes_do_not_wait_for_a_leader_that_stands_still() {
    let Some(cluster) = Cluster::start(3) else { return };
    let patient = |seconds| Duration::from_secs(seconds);
    let kv = connect(cluster.options().timeouts(Duration::from_millis(500), patient(600), patient(1_200))).await;
    // One of them is the leader.
    for (number, member) in cluster.members.iter().enumerate() {
        member.pause();
        let writes = (0..8).map(|n| {
            let kv = kv.clone();
            async move { committed(kv.txn(create(&format!("{number}-{n}"), "1")).await) }
        });
        let made = tokio::time::timeout(patient(120), futures::future::join_all(writes)).await;
        assert_eq!(made.expect("writes wait for the member that stands still").len(), 8);
        member.go_on();
    }
}

#[tokio::test]
async fn a_store_that_went_back_is_refused_with_the_reason() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let kv = connect(hurried(cluster.options())).await;
    committed(kv.txn(create("a", "1")).await);
    let copy = cluster.scratch().join("copy");
    cluster.members[0].kill();
    cluster.members[0].copy_data(&copy);
    cluster.members[0].start_again();
    for n in 0..20 {
        committed(kv.txn(create(&format!("later-{n}"), "1")).await);
    }
    let seen = kv.revision().await.unwrap();
    cluster.members[0].kill();
    cluster.members[0].replace_data(&copy);
    cluster.members[0].start_again();
    let error = kv.revision().await.unwrap_err();
    assert!(matches!(&error, Error::Replaced { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("was at {seen}")) && text.contains("restart"), "{text}");
    assert!(matches!(kv.txn(create("b", "1")).await, Err(Error::Replaced { .. })));
    assert!(matches!(kv.health(), Err(Error::Replaced { .. })));
}

#[tokio::test]
async fn another_member_answers_when_the_first_is_away() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    cluster.members[0].kill();
    let kv = connect(hurried(cluster.options())).await;
    committed(kv.txn(create("a", "1")).await);
    assert_eq!(value(&*kv, "a").await.unwrap(), "1");
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_named() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    cluster.members[0].kill();
    let error = Etcd::connect(cluster.options()).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&cluster.members[0].url), "{error}");
}
