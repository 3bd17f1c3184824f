//! A listening socket with a bound on its connections, and a shutdown that lets them finish.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::shared::chain::Chain;

/// The wait after a connection could not be accepted, usually because no file descriptors are left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A listening socket and the connections that it has accepted. Dropping it ends all of them.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    tasks: JoinSet<()>,
    pub(crate) graceful: GracefulShutdown,
}

/// The permit for one of the connections that are allowed at a time.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Acceptor {
    /// Accepts at most `connections_max` at a time; further ones wait.
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> Self {
        let slots = Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        Self { listener, slots, tasks: JoinSet::new(), graceful: GracefulShutdown::new() }
    }

    /// The next connection.
    ///
    /// # Cancel safety
    /// If the future is dropped, no connection is lost.
    pub(crate) async fn accept(&mut self) -> (TcpStream, Slot) {
        loop {
            let next = async {
                // The semaphore is never closed.
                let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
                (slot, self.listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                Some(_) = self.tasks.join_next() => continue,
                next = next => next,
            };
            match accepted {
                Ok((stream, _)) => return (stream, Slot { _permit: slot }),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Serves a connection in a task of its own. The slot is free once it ends.
    pub(crate) fn serve(&mut self, slot: Slot, connection: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            connection.await;
            drop(slot);
        });
    }

    /// Closes the socket and lets connections under way finish, for no longer than `grace`.
    pub(crate) async fn end(self, grace: Duration) {
        let Self { listener, mut tasks, graceful, .. } = self;
        drop(listener);
        drop(tokio::time::timeout(grace, graceful.shutdown()).await);
        tasks.shutdown().await;
    }
}
