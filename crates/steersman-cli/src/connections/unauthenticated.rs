//! The connections whose peers are not authenticated yet. Their number is limited; a new one beyond the limit evicts the oldest.
//!
//! If new ones were refused instead, a client that opens many could keep all others out. Well-behaved clients authenticate a
//! fraction of a second after they connect, so the oldest connection most likely belongs to another sort of client.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// The unauthenticated connections of one socket. Clones share the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Unauthenticated {
    connections: Arc<Mutex<Connections>>,
    connections_max: usize,
}

#[derive(Debug, Default)]
struct Connections {
    /// In the order in which they were opened. Dropping a sender evicts its connection.
    open: BTreeMap<u64, oneshot::Sender<()>>,
    next: u64,
}

/// The place of one connection, until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Unauthenticated,
    id: u64,
    evicted: oneshot::Receiver<()>,
}

impl Unauthenticated {
    pub(crate) fn new(connections_max: usize) -> Unauthenticated {
        Unauthenticated { connections: Arc::default(), connections_max }
    }

    /// Adds a new connection, and evicts the oldest one if there are too many.
    pub(crate) fn enter(&self) -> Slot {
        let (sender, evicted) = oneshot::channel();
        let mut connections = self.lock();
        if connections.open.len() >= self.connections_max {
            connections.open.pop_first();
        }
        let id = connections.next;
        connections.next += 1;
        connections.open.insert(id, sender);
        Slot { connections: self.clone(), id, evicted }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // Nothing panics under the lock.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Ready when the connection was evicted. Must not be polled after that.
    pub(crate) fn poll_evicted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The sender never sends: it is dropped.
        Pin::new(&mut self.evicted).poll(cx).map(drop)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn evicted(place: &mut Slot) {
        std::future::poll_fn(|cx| place.poll_evicted(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_gives_way_and_who_left_takes_no_place() {
        let connections = Unauthenticated::new(2);
        let (mut first, second, mut third) = (connections.enter(), connections.enter(), connections.enter());
        evicted(&mut first).await;
        drop(second);
        let _fourth = connections.enter();
        tokio::time::timeout(Duration::from_secs(1), evicted(&mut third)).await.expect_err("there was a place left");
        let _fifth = connections.enter();
        evicted(&mut third).await;
        drop(first);
        assert_eq!(connections.lock().open.len(), 2);
    }
}
