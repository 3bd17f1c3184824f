//! Transactions whose answers are lost: each is made at most once, and the caller learns what became of it.

use crate::support::cluster::Cluster;
use crate::support::proxy::{Loss, Proxy};
use crate::support::{committed, connect, create, delete, events, hurried, seen, update, value};
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::kv::{Error, Event, Expect, Kv, Outcome, Txn, Watch};
use steersman_storage_etcd::{Etcd, Options};

/// An engine behind a proxy, and one that reaches etcd directly.
struct Both {
    cluster: Cluster,
    direct: Arc<Etcd>,
    proxied: Arc<Etcd>,
    proxy: Proxy,
}

impl Both {
    async fn start() -> Option<Both> {
        let cluster = Cluster::start(1)?;
        let proxy = Proxy::start(&cluster.members[0].url).await;
        let direct = connect(cluster.options()).await;
        let proxied = connect(hurried(Options::new(vec![proxy.url.clone()]))).await;
        Some(Both { cluster, direct, proxied, proxy })
    }

    /// Runs a transaction whose answer is lost, and something else once it is made.
    async fn lose_answer(&mut self, txn: Txn, meanwhile: impl AsyncFnOnce(&mut Both)) -> Result<Outcome, Error> {
        let mut watch = self.direct.watch(self.direct.revision().await.unwrap());
        let key = String::from_utf8(txn.ops[0].key().to_vec()).unwrap();
        self.proxy.lose(Loss::Answers);
        let proxied = self.proxied.clone();
        let running = tokio::spawn(async move { proxied.txn(txn).await });
        seen(&mut *watch, &key).await;
        meanwhile(self).await;
        self.proxy.lose(Loss::Nothing);
        running.await.unwrap()
    }
}

/// The changes up to that of the key `end`.
async fn through_end(watch: &mut dyn Watch) -> Vec<Event> {
    let mut all = Vec::new();
    while all.last().is_none_or(|event: &Event| event.key != "end") {
        all.extend(events(watch).await);
    }
    all
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_in_a_crash_is_known_to_be_made() {
    let Some(mut both) = Both::start().await else { return };
    let outcome = both
        .lose_answer(create("a", "mine"), async |both| {
            both.cluster.members[0].kill();
            both.cluster.members[0].start_again();
        })
        .await;
    let revision = committed(outcome);
    let entries = both.direct.read().await.unwrap().entries;
    assert_eq!((entries.len(), entries[0].revision, &*entries[0].value), (1, revision, &b"mine"[..]));
}

#[tokio::test]
async fn an_update_whose_answer_is_lost_is_known_to_be_made_though_others_went_on() {
    let Some(mut both) = Both::start().await else { return };
    let first = committed(both.direct.txn(create("a", "1")).await);
    let outcome = both
        .lose_answer(update("a", first, "2"), async |both| {
            let second = both.direct.read().await.unwrap().entries[0].revision;
            committed(both.direct.txn(update("a", second, "3")).await);
        })
        .await;
    assert!(first < committed(outcome), "the update was made");
    assert_eq!(value(&*both.direct, "a").await.unwrap(), "3", "and not again over what came later");
}

#[tokio::test]
async fn a_creation_that_others_have_deleted_meanwhile_is_not_made_again() {
    let Some(mut both) = Both::start().await else { return };
    let mut watch = both.direct.watch(both.direct.revision().await.unwrap());
    let outcome = both
        .lose_answer(create("a", "mine"), async |both| {
            let revision = both.direct.read().await.unwrap().entries[0].revision;
            committed(both.direct.txn(delete("a", revision)).await);
        })
        .await;
    let revision = committed(outcome);
    assert_eq!(value(&*both.direct, "a").await, None);
    committed(both.direct.txn(create("end", "")).await);
    let all = through_end(&mut *watch).await;
    let of_a: Vec<(Revision, bool)> =
        all.iter().filter(|event| event.key == "a").map(|event| (event.revision, event.value.is_some())).collect();
    assert_eq!(of_a.len(), 2, "one creation and one deletion: {of_a:?}");
    assert_eq!(of_a[0], (revision, true));
}

#[tokio::test]
async fn a_deletion_whose_answer_is_lost_stays_unknown() {
    let Some(mut both) = Both::start().await else { return };
    let revision = committed(both.direct.txn(create("a", "1")).await);
    let outcome = both.lose_answer(delete("a", revision), async |_| {}).await;
    assert!(matches!(outcome, Err(Error::Unknown { .. })), "{outcome:?}");
    assert_eq!(value(&*both.direct, "a").await, None);
    committed(both.proxied.txn(create("a", "2")).await);
}

#[tokio::test]
async fn a_creation_that_never_arrived_is_made_once() {
    let Some(both) = Both::start().await else { return };
    let mut watch = both.direct.watch(both.direct.revision().await.unwrap());
    both.proxy.lose(Loss::Requests);
    let proxied = both.proxied.clone();
    let mut running = tokio::spawn(async move { proxied.txn(create("a", "mine")).await });
    // Longer than the deadline of one attempt.
    let early = tokio::time::timeout(std::time::Duration::from_millis(1_500), &mut running).await;
    assert!(early.is_err(), "it has an outcome although nothing arrives: {early:?}");
    both.proxy.lose(Loss::Nothing);
    let revision = committed(running.await.unwrap());
    committed(both.direct.txn(create("end", "")).await);
    let all = through_end(&mut *watch).await;
    let made: Vec<(&[u8], Revision)> = all.iter().map(|event| (&*event.key, event.revision)).collect();
    assert_eq!(made[0], (&b"a"[..], revision));
    assert_eq!(made.len(), 2, "nothing else was made: {made:?}");
}

#[tokio::test]
async fn a_creation_that_others_were_faster_with_fails_rightly() {
    let Some(both) = Both::start().await else { return };
    both.proxy.lose(Loss::Requests);
    let proxied = both.proxied.clone();
    let running = tokio::spawn(async move { proxied.txn(create("a", "mine")).await });
    let theirs = committed(both.direct.txn(create("a", "theirs")).await);
    both.proxy.lose(Loss::Nothing);
    match running.await.unwrap().unwrap() {
        Outcome::Failed { found, .. } => assert_eq!(found, [Some(theirs)]),
        made => panic!("{made:?}"),
    }
}

#[tokio::test]
async fn transactions_beside_one_whose_answer_is_lost_are_made_once_each() {
    const N_WRITERS: usize = 16;
    let Some(both) = Both::start().await else { return };
    let mut watch = both.direct.watch(both.direct.revision().await.unwrap());
    let write = |n: usize| {
        let proxied = both.proxied.clone();
        tokio::spawn(async move { committed(proxied.txn(create(&format!("{n}"), &format!("of {n}"))).await) })
    };
    let mut running: Vec<_> = (0..N_WRITERS / 2).map(write).collect();
    both.proxy.lose(Loss::Answers);
    running.extend((N_WRITERS / 2..N_WRITERS).map(write));
    seen(&mut *watch, &format!("{}", N_WRITERS - 1)).await;
    both.proxy.lose(Loss::Nothing);
    let mut told = Vec::new();
    for task in running {
        told.push(task.await.unwrap());
    }
    let entries = both.direct.read().await.unwrap().entries;
    assert_eq!(entries.len(), N_WRITERS);
    for (n, revision) in told.iter().enumerate() {
        let entry = entries.iter().find(|entry| entry.key == format!("{n}")).unwrap();
        assert_eq!((entry.revision, &*entry.value), (*revision, format!("of {n}").as_bytes()));
    }
    assert_eq!(entries.iter().filter(|entry| told.contains(&entry.revision)).count(), N_WRITERS);
    let again = both.proxied.txn(Txn::single(Expect::Absent, crate::support::put_op("0", "again"))).await.unwrap();
    assert!(matches!(again, Outcome::Failed { .. }));
}
