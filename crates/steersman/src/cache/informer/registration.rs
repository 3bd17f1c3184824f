//! The handle of a handler that was added to an informer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::informer::NotSynced;
use crate::cache::informer::mailbox::Mailbox;
use crate::cache::informer::task::{Shared, until};
use crate::shared::selection::CachedResource;

/// A handler that has been added. Dropping this keeps the handler.
pub struct Registration<K> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) mailbox: Arc<Mailbox<K>>,
    pub(super) number: u64,
}

/// Whether a handler has a task.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Served {
    No,
    Yes,
}

impl<K: CachedResource> Registration<K> {
    /// Whether the handler has received every object that existed when it was added (or when the first list came).
    pub fn has_synced(&self) -> bool {
        *self.mailbox.synced().borrow()
    }

    /// Waits until [`Registration::has_synced`].
    ///
    /// # Errors
    /// [`NotSynced`] when `deadline` has passed.
    pub async fn wait_synced(&self, deadline: Duration) -> Result<(), NotSynced> {
        tokio::time::timeout(deadline, self.synced()).await.map_err(|_| NotSynced {
            what: vec![self.shared.describe_unsynced(self.number, &self.mailbox)],
            waited: deadline,
        })
    }

    /// As [`Registration::wait_synced`], for ever.
    pub async fn synced(&self) {
        until(self.mailbox.synced()).await;
    }

    /// The part that is missing until [`Registration::has_synced`]; `None` then.
    pub(crate) fn unsynced(&self) -> Option<String> {
        (!self.has_synced()).then(|| self.shared.describe_unsynced(self.number, &self.mailbox))
    }

    /// The number of events that wait for the handler.
    pub fn pending(&self) -> usize {
        self.mailbox.n_waiting()
    }

    /// Removes the handler and waits until it has returned from its last call. Events that still wait are dropped.
    pub async fn remove(self) {
        if self.detach() == Served::Yes {
            until(self.mailbox.ended()).await;
        }
    }

    /// Removes the handler, whose last call may go on. Returns whether it has a task that will end.
    pub(crate) fn detach(&self) -> Served {
        let was_waiting = {
            let mut handlers = self.shared.handlers.lock();
            handlers.present.retain(|registered| registered.number != self.number);
            self.shared.decoder().set_handlers(handlers.present.len());
            let before = handlers.waiting.len();
            handlers.waiting.retain(|(_, mailbox)| !Arc::ptr_eq(mailbox, &self.mailbox));
            handlers.waiting.len() < before
        };
        self.mailbox.discard();
        if was_waiting { Served::No } else { Served::Yes }
    }
}

impl<K> fmt::Debug for Registration<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("pending", &self.mailbox.n_waiting()).finish_non_exhaustive()
    }
}
