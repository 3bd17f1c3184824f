//! Clients that go away in the middle of a write: what was begun is carried through.

use crate::services::{SERVICES, check_taken, greedy};
use crate::support::{CONFIGS, World, config};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::Memory;
use steersman_storage::kv::{BoxFuture, Error, Kv, Outcome, Snapshot, Txn, Watch};
use tokio::sync::watch;

/// An engine that says nothing of what it has committed while its gate is closed.
#[derive(Debug)]
struct Gated {
    memory: Memory,
    is_open: watch::Receiver<bool>,
}

impl Kv for Gated {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.memory.revision()
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        self.memory.read()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        let mut is_open = self.is_open.clone();
        Box::pin(async move {
            let outcome = self.memory.txn(txn).await;
            is_open.wait_for(|is_open| *is_open).await.unwrap();
            outcome
        })
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        self.memory.watch(after)
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.compact(through)
    }

    fn health(&self) -> Result<(), Error> {
        self.memory.health()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.close()
    }
}

/// A server on such an engine, and the gate.
async fn gated() -> (World, watch::Sender<bool>) {
    let (gate, is_open) = watch::channel(true);
    (World::on(Arc::new(Gated { memory: Memory::new(), is_open })).await, gate)
}

/// Begins a request, waits until the engine has what it writes, and goes away.
async fn abandon<T>(world: &World, request: impl Future<Output = T>) {
    let before = world.store.revision();
    let written = world.store.wait_for(before.next(), tokio::time::Instant::now() + Duration::from_secs(60));
    // A request that is answered was not interrupted.
    tokio::select! {
        _ = request => panic!("the gate is open"),
        written = written => written.unwrap(),
    }
}

#[tokio::test]
async fn a_service_keeps_what_it_has_though_nobody_heard_of_it() {
    let (world, gate) = gated().await;
    gate.send_replace(false);
    abandon(&world, world.http().post(SERVICES, &greedy("first"))).await;
    gate.send_replace(true);
    check_taken(&world.http().post(SERVICES, &greedy("second")).await);
}

#[tokio::test]
async fn what_a_service_had_is_free_though_nobody_heard_of_its_end() {
    let (world, gate) = gated().await;
    let http = world.http();
    http.post(SERVICES, &greedy("first")).await.ok();
    world.store.sync().await.unwrap();
    gate.send_replace(false);
    abandon(&world, http.delete(&format!("{SERVICES}/first"))).await;
    gate.send_replace(true);
    let second = async {
        while http.post(SERVICES, &greedy("second")).await.code != 201 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), second).await.unwrap();
}

#[tokio::test]
async fn a_server_stops_when_the_last_write_is_done() {
    let (world, gate) = gated().await;
    gate.send_replace(false);
    abandon(&world, world.http().post(CONFIGS, &config("c"))).await;
    let mut stopped = Box::pin(world.server.stop());
    for _ in 0..100 {
        assert!(futures::poll!(stopped.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    gate.send_replace(true);
    stopped.await;
}
