//! The backup that the server streams while it works.

use crate::support::{CONFIGS, TestServer, allow_all, config};
use http_body_util::BodyExt as _;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_server::BACKUP_PATH;
use steersman_storage::Disk;
use steersman_storage::backup::{Decoder, Found};
use steersman_storage::kv::{Entry, Kv};

/// The entries of a backup, in key order, and its revision.
fn read(bytes: &[u8]) -> (Vec<Entry>, u64) {
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    decoder.finish();
    let (mut entries, mut revision, mut has_end) = (Vec::new(), 0, false);
    while let Some(found) = decoder.next() {
        match found {
            Found::Header(header) => revision = header.revision.0,
            Found::Entry(entry) => entries.push(entry),
            Found::Lost(lost) => panic!("{lost:?}"),
            Found::End(_) => has_end = true,
            Found::Fault(fault) => panic!("{fault}"),
        }
    }
    assert!(has_end);
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    (entries, revision)
}

#[tokio::test]
async fn a_master_gets_all_that_is_stored_and_nobody_else_does() {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    test.http().post(CONFIGS, &config("a")).await.ok();
    let answer = test.http().get(BACKUP_PATH).await;
    assert_eq!((answer.code, answer.header("content-type")), (200, Some("application/octet-stream")));
    let (entries, revision) = read(&answer.bytes);
    assert!(revision <= test.store.revision().0);
    assert!(entries.iter().any(|entry| entry.key == "/configmaps/default/a"));
    for entry in &entries {
        assert!(entry.revision.0 <= revision);
    }
    let anyone = test.http_as("alice").get(BACKUP_PATH).await;
    assert_eq!(anyone.refusal(), (403, "Forbidden".to_owned()));
    assert!(anyone.body_text().contains("it needs the group system:masters"), "{}", anyone.body_text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_writes_is_a_state_that_existed() {
    let scratch = tempfile::tempdir().unwrap();
    let kv = Arc::new(Disk::open(scratch.path()).unwrap());
    let test = TestServer::on(kv.clone()).await;
    let first = test.http().post(CONFIGS, &config("first")).await.ok();
    assert!(first.is_object());
    let writer = test.http();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let writing = tokio::spawn(async move {
        let mut stopped = std::pin::pin!(stopped);
        for n in 0_u32.. {
            if futures::poll!(&mut stopped).is_ready() {
                return n;
            }
            writer.post(CONFIGS, &config(&format!("c{n}"))).await.ok();
            if n % 3 == 2 {
                writer.delete(&format!("{CONFIGS}/c{}", n - 1)).await.ok();
            }
        }
        unreachable!("the numbers do not end")
    });
    let masters = test.http();
    let mut backups = Vec::new();
    for _ in 0..5 {
        let mut body = masters.unread(BACKUP_PATH).await;
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        backups.push(read(&bytes));
    }
    stop.send(()).unwrap();
    assert!(0 < writing.await.unwrap());
    for (entries, revision) in backups {
        let range = steersman_storage::kv::Range { at: Some(Revision(revision)), ..Default::default() };
        assert_eq!(entries, kv.range(range).await.unwrap().entries, "revision {revision}");
    }
}
