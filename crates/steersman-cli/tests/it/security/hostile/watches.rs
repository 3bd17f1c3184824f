//! Watches over WebSocket and over HTTP whose clients never read cost the same: almost nothing.

use steersman_hostile::client::Request;
use steersman_hostile::watches::{self, Over};

use crate::security::hostile::Attacked;

/// Together more than the kernel buffers for a connection, so that all watches wait for their clients.
const OBJECTS: usize = 12;
const WATCHES: usize = 150;
/// A tenth of the memory of a copy of one object for each watch, plus the memory of the kernel and TLS for a
/// connection.
const GROWN_MB: f64 = 45.0;

async fn check(over: Over) {
    let home = tempfile::tempdir().unwrap();
    let attacked = Attacked::start(home.path());
    let mut admin = attacked.admin();
    watches::make_large_objects(&mut admin, OBJECTS).await.unwrap();
    let idle = attacked.server.resident_mb().unwrap();
    attacked.server.reset_peak().unwrap();
    let streams = watches::open(&attacked.target, over, WATCHES).await.unwrap();
    admin.ok(&Request::get("/api/v1/namespaces/default")).await.unwrap();
    let grown = attacked.server.peak_mb().unwrap() - idle;
    assert!(grown < GROWN_MB, "{WATCHES} watches over {over:?} that are not read took {grown:.0} MB");
    drop(streams);
    attacked.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_over_websocket_that_are_not_read_hold_no_objects() {
    check(Over::WebSocket).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_over_http_that_are_not_read_hold_no_objects() {
    check(Over::Http).await;
}
