//! A store whose disk fails: who writes is told, who reads goes on, and those who watch over the server see it.

use crate::support::{CONFIGS, World, config};
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use steersman_storage::Disk;

const WELL: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;

/// A disk in memory whose syncs can be made to fail or to panic.
#[derive(Clone, Debug)]
struct Failing {
    disk: Arc<InMemoryBackend>,
    fault: Arc<AtomicU8>,
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.fault.load(Ordering::SeqCst) {
            WELL => self.disk.sync_data(),
            FAILS => Err(io::Error::other("the disk is gone")),
            _ => panic!("the writer of the store panics, as this test wants it"),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(offset, data)
    }
}

async fn check(fault: u8) {
    let disk = Failing { disk: Arc::new(InMemoryBackend::new()), fault: Arc::default() };
    let world = World::on(Arc::new(Disk::open_backend(disk.clone(), Path::new("failing")).unwrap())).await;
    let http = world.http();
    http.post(CONFIGS, &config("before")).await.ok();
    assert_eq!((http.get("/readyz").await.code, http.get("/livez").await.code), (200, 200));

    disk.fault.store(fault, Ordering::SeqCst);
    let waiting: Vec<_> = (0..20)
        .map(|n| {
            let http = world.http();
            tokio::spawn(async move { http.post(CONFIGS, &config(&format!("waits-{n}"))).await })
        })
        .collect();
    for answer in waiting {
        let answer = answer.await.unwrap();
        assert_eq!(answer.refusal(), (503, "ServiceUnavailable".to_owned()));
        assert!(answer.json()["message"].as_str().unwrap().contains("restart"), "{:?}", answer.json()["message"]);
    }
    // The disk is well again, but what is on it is not known: nothing is written until the store is reopened.
    disk.fault.store(WELL, Ordering::SeqCst);
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
    check(FAILS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_panics_ends_all_writes_and_shows_in_health() {
    check(PANICS).await;
}
