//! A store whose disk fails: writers get an error, reads still work, and monitoring sees the failure.

use crate::store::engine::Engine;
use crate::support::{CONFIGS, TestServer, config};
use redb::backends::InMemoryBackend;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use steersman_storage::Disk;
use steersman_storage::disk::{Intercepted, Operation};

const WELL: u8 = 0;
const FAILS: u8 = 1;
const FULL: u8 = 2;
const PANICS: u8 = 3;

/// A test on a disk in memory whose syncs can be made to fail or to panic.
async fn test() -> (TestServer, Arc<AtomicU8>) {
    let fault = Arc::new(AtomicU8::new(WELL));
    let shown = fault.clone();
    let disk = Intercepted::new(InMemoryBackend::new(), move |operation| match shown.load(Ordering::SeqCst) {
        FAILS if operation == Operation::Sync => Err(io::Error::other("the disk is gone")),
        FULL if matches!(operation, Operation::Write(_)) => Err(io::ErrorKind::StorageFull.into()),
        PANICS if operation == Operation::Sync => panic!("the writer of the store panics, as this test wants it"),
        _ => Ok(()),
    });
    (TestServer::on(Arc::new(Disk::open_backend(disk, Path::new("failing")).unwrap())).await, fault)
}

async fn check(fault: u8, why: &str) {
    let (test, disk) = test().await;
    let http = test.http();
    http.post(CONFIGS, &config("before")).await.ok();
    assert_eq!((http.get("/readyz").await.code, http.get("/livez").await.code), (200, 200));

    disk.store(fault, Ordering::SeqCst);
    let waiting: Vec<_> = (0..20)
        .map(|n| {
            let http = test.http();
            tokio::spawn(async move { http.post(CONFIGS, &config(&format!("waits-{n}"))).await })
        })
        .collect();
    for answer in waiting {
        let answer = answer.await.unwrap();
        assert_eq!(answer.refusal(), (503, "ServiceUnavailable".to_owned()));
        let answer = answer.json();
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(why) && message.contains("restart"), "{message:?}");
    }
    // The disk works again, but its content is unknown: nothing is written until the store is reopened.
    disk.store(WELL, Ordering::SeqCst);
    assert_eq!(http.post(CONFIGS, &config("after")).await.code, 503);
    assert_eq!(http.delete(&format!("{CONFIGS}/before")).await.code, 503);

    for path in ["/readyz", "/livez", "/healthz", "/readyz/store", "/livez/store"] {
        assert_eq!(http.get(path).await.code, 500, "{path}");
    }
    let metrics = String::from_utf8(http.get("/metrics").await.bytes.to_vec()).unwrap();
    assert!(metrics.contains("steersman_store_healthy 0"));
    assert_eq!(http.get(&format!("{CONFIGS}/before")).await.code, 200);
    assert_eq!(http.get(CONFIGS).await.ok()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_ends_all_writes_and_shows_in_health() {
    check(FAILS, "one failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_all_writes_and_shows_in_health() {
    check(FULL, "make room").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_panics_ends_all_writes_and_shows_in_health() {
    check(PANICS, "one failed").await;
}

#[tokio::test]
async fn while_a_store_is_away_the_server_is_alive_and_not_ready() {
    let engine = Engine::new(|_| Box::pin(async { Ok(()) }));
    let is_away = engine.away();
    let test = TestServer::on(Arc::new(engine)).await;
    let codes = async || {
        let http = test.http();
        (http.get("/readyz").await.code, http.get("/readyz/store").await.code, http.get("/livez").await.code)
    };
    assert_eq!(codes().await, (200, 200, 200));
    is_away.store(true, Ordering::SeqCst);
    assert_eq!(codes().await, (500, 500, 200), "a restart would not bring it back");
    is_away.store(false, Ordering::SeqCst);
    assert_eq!(codes().await, (200, 200, 200));
}
