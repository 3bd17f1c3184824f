//! A block of the file goes bad while the store is open: the writer writes the file anew, and everybody goes on with that.
//!
//! Whoever comes by the block, the writer included, gets an error of redb, which then gives the file up. A reader asks the writer and reads
//! again. The writer does it before whatever comes next, and decides the writes again that it could not commit. What of the file is lost
//! is named as after an open, and history is left behind.

use crate::disk::file::{self, Opened};
use crate::disk::survey::{Lost, Survey};
use crate::disk::writer::{Command, Writer};
use crate::disk::{Current, Shared};
use crate::kv::Cause;
use crate::tail::Renewals;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// The cause when a store that is in no directory of its own is damaged while it is open.
#[derive(Debug, thiserror::Error)]
#[error("a block of the file is damaged, and there is no directory in which it could be written anew")]
struct NoDirectory;

impl Shared {
    pub(super) fn renewals(&self) -> Renewals {
        self.current.lock().as_ref().map(|current| current.renewals).unwrap_or_default()
    }

    /// Whether the file is another one than that of a read which failed, after it was written anew if that was necessary.
    pub(super) async fn is_renewed(&self, seen: Renewals) -> bool {
        let is_damaged = match &*self.current.lock() {
            None => return false,
            Some(current) if current.renewals != seen => return true,
            Some(current) => current.storage.damage().is_some(),
        };
        let Some(queue) = self.wake.upgrade().filter(|_| is_damaged) else { return false };
        let (reply, answer) = oneshot::channel();
        let sent = queue.send(Command::Renew(reply)).await;
        // While somebody has a sender, the writer does not end.
        drop(queue);
        sent.is_ok() && matches!(answer.await, Ok(Ok(())))
    }
}

impl Writer {
    /// Writes the file anew if it is damaged. After a failure nothing more is written.
    pub(super) fn renew_if_damaged(&mut self) {
        if self.current.storage.damage().is_some()
            && self.shared.poison.get().is_none()
            && let Err(source) = self.renew()
        {
            self.poison(source);
        }
    }

    /// Writes the file anew and takes up what is in it.
    pub(super) fn renew(&mut self) -> Result<(), Cause> {
        let Some(dir) = &self.dir else { return Err(Arc::new(NoDirectory)) };
        let published = self.shared.tail.revision();
        let opened = file::renew(dir, &self.current.storage, published);
        let Opened { database, storage, survey } = opened.map_err(|error| Arc::new(error) as Cause)?;
        let Survey { mut index, lost, .. } = survey;
        index.keep_count(&self.index);
        self.index = index;
        let renewals = Renewals(self.current.renewals.0 + 1);
        self.current = Current { database: Arc::new(database), renewals, storage };
        self.shared.compacted.store(self.index.compacted().0, Ordering::Release);
        *self.shared.damaged.lock() = lost.into_iter().map(Lost::malformed).collect();
        self.shared.opened.lock().take();
        self.shared.view.lock().take();
        *self.shared.volume.lock() = self.index.volume();
        *self.shared.current.lock() = Some(self.current.clone());
        self.shared.tail.renew(renewals);
        Ok(())
    }
}
