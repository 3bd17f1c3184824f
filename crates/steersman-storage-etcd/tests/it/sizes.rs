//! Large values, large transactions, and much to catch up with.

use crate::support::cluster::Cluster;
use crate::support::{committed, connect, delete, events, put_op};
use steersman_machinery::Revision;
use steersman_storage::kv::{Error, Expect, Kv, Range, Txn};

#[tokio::test]
async fn a_value_that_etcd_would_refuse_is_refused_with_the_flag_that_helps() {
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    let large = |bytes: usize| Txn::single(Expect::Absent, put_op("a", vec![7; bytes]));
    let error = kv.txn(large(1_600_000)).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { actual: 1_600_000, .. }), "{error:?}");
    assert!(error.to_string().contains("--max-request-bytes"), "{error}");
    // A process that expects more of etcd than etcd takes.
    let hopeful = connect(cluster.options().request_bytes_max(4 * 1024 * 1024)).await;
    for bytes in [1_600_000, 3_000_000] {
        let error = hopeful.txn(large(bytes)).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
        assert!(error.to_string().contains("--max-request-bytes"), "{error}");
    }
    assert!(kv.read().await.unwrap().entries.is_empty());
    committed(hopeful.txn(large(1_500_000)).await);
}

#[tokio::test]
async fn values_as_large_as_etcd_was_told_to_take_come_back() {
    let Some(cluster) = Cluster::start_with(1, "http", &["--max-request-bytes", "8388608"]) else { return };
    let kv = connect(cluster.options().request_bytes_max(8 * 1024 * 1024)).await;
    let value = vec![7; kv.limits().value_bytes];
    let revision = committed(kv.txn(Txn::single(Expect::Absent, put_op("a", value.clone()))).await);
    assert_eq!(kv.read().await.unwrap().entries[0].value, value);
    let mut watch = kv.watch(Revision(revision.0 - 1));
    assert_eq!(events(&mut *watch).await[0].value.as_deref(), Some(&value[..]));
}

#[tokio::test]
async fn a_watch_catches_up_with_more_than_one_message() {
    const N_REVISIONS: u64 = 40;
    const N_KEYS: usize = 100;
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    let start = kv.revision().await.unwrap();
    for n in 0..N_REVISIONS {
        let ops = (0..N_KEYS).map(|key| put_op(&format!("{key:03}"), format!("{n}{}", "x".repeat(10_000)))).collect();
        committed(kv.txn(Txn { compares: Vec::new(), ops }).await);
    }
    let mut watch = kv.watch(start);
    let mut revisions = Vec::new();
    while revisions.len() < N_KEYS * usize::try_from(N_REVISIONS).unwrap() {
        let pulled = events(&mut *watch).await;
        assert_eq!(pulled.len() % N_KEYS, 0, "transactions are whole");
        revisions.extend(pulled.iter().map(|event| event.revision.0 - start.0));
    }
    assert_eq!(revisions, (1..=N_REVISIONS).flat_map(|n| [n; N_KEYS]).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_list_of_many_pages_is_of_one_revision() {
    const N_KEYS: usize = 2_000;
    let Some(cluster) = Cluster::start(1) else { return };
    let kv = connect(cluster.options()).await;
    for start in (0..N_KEYS).step_by(100) {
        let ops = (start..start + 100).map(|n| put_op(&format!("{n:05}"), "x".repeat(4_000))).collect();
        committed(kv.txn(Txn { compares: Vec::new(), ops }).await);
    }
    let then = kv.revision().await.unwrap();
    let ops = vec![put_op("00000", "new"), put_op("01999", "new")];
    committed(kv.txn(Txn { compares: Vec::new(), ops }).await);
    let part = kv.range(Range { at: Some(then), ..Range::default() }).await.unwrap();
    assert_eq!((part.entries.len(), part.more, part.revision), (N_KEYS, false, then));
    assert!(part.entries.iter().all(|entry| entry.value.len() == 4_000 && entry.revision <= then));
    assert!(part.entries.is_sorted_by(|a, b| a.key < b.key));
    let some = kv.range(Range { limit: Some(1_500), ..Range::default() }).await.unwrap();
    assert_eq!((some.entries.len(), some.more), (1_500, true));
}

#[tokio::test]
async fn a_full_etcd_says_what_to_do_and_goes_on_with_reads_and_deletions() {
    let Some(cluster) = Cluster::start_with(1, "http", &["--quota-backend-bytes", "16777216"]) else { return };
    let kv = connect(cluster.options()).await;
    let mut written = Vec::new();
    let error = loop {
        let key = format!("{:03}", written.len());
        match kv.txn(Txn::single(Expect::Absent, put_op(&key, vec![7; 1_000_000]))).await {
            Ok(outcome) => written.push((key, committed(Ok(outcome)))),
            Err(error) => break error,
        }
        assert!(written.len() < 100, "the quota is 16 MiB");
    };
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("--quota-backend-bytes"), "{error}");
    assert!(kv.health().is_ok(), "it is not a permanent failure");
    assert_eq!(kv.read().await.unwrap().entries.len(), written.len());
    let (key, revision) = &written[0];
    committed(kv.txn(delete(key, *revision)).await);
    assert_eq!(kv.read().await.unwrap().entries.len(), written.len() - 1);
}
