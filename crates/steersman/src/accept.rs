//! A listening socket with a bound on its connections, and an end that lets them finish.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::chain::Chain;

/// The wait after a connection could not be accepted: there are no file descriptors left, most often.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A listening socket and the connections that it has accepted. Dropped, all of them end.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    tasks: JoinSet<()>,
    pub(crate) graceful: GracefulShutdown,
}

/// One of the connections that are allowed at a time.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Acceptor {
    /// At most `connections_max` at a time; further ones wait to be accepted.
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> Self {
        let slots = Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        Self { listener, slots, tasks: JoinSet::new(), graceful: GracefulShutdown::new() }
    }

    /// The next connection.
    ///
    /// # Cancel safety
    /// A connection that was not returned is still there.
    pub(crate) async fn accept(&mut self) -> (TcpStream, Slot) {
        loop {
            let next = async {
                // Never closed.
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

    /// Closes the socket and lets what is under way finish, for no longer than `grace`.
    pub(crate) async fn end(self, grace: Duration) {
        let Self { listener, mut tasks, graceful, .. } = self;
        drop(listener);
        drop(tokio::time::timeout(grace, graceful.shutdown()).await);
        tasks.shutdown().await;
    }
}
