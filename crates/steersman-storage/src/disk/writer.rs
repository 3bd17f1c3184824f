//! The only thread that writes: drain the queue, assign revisions, write, commit, then publish, then acknowledge.
//!
//! Each commit also removes a bounded number of compacted entries, so that no write waits for a long compaction.

use crate::disk::format::{self, COLLECTED, COMPACTED, ChangeId, EVENTS, HEADS, META, Packed, Position};
use crate::disk::index::Index;
use crate::disk::renewal::Renewing;
use crate::disk::renewal::pace::Pace;
use crate::disk::{BATCH_WRITES_MAX, Current, Shared, TAIL_BYTES_MAX, TAIL_EVENTS_MAX, poisoned};
use crate::kv::tail::RENEWALS_MAX;
use crate::kv::{Cause, Compare, Error, Event, Op, Outcome, Txn, hold};
use bytes::Bytes;
use redb::ReadableTable;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steersman_machinery::Revision;
use tokio::sync::{mpsc, oneshot};

/// The approximate number of changes that one commit examines for removal.
const COLLECTED_MAX: usize = 1_024;

/// The cause when a commit meets damage in each of the files that are written for it.
#[derive(Debug, thiserror::Error)]
#[error(
    "a write met damage again after the file was written anew {RENEWALS_MAX} times for it: replace the disk, then start again"
)]
struct DamagedAgain {
    source: redb::Error,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

pub(super) enum Command {
    Compact(Revision, Reply<()>),
    /// Wakes the writer because the file is damaged and a read waits for another one.
    Renew,
    Write(Write, Reply<Outcome>),
}

/// A transaction, encoded for the file.
pub(super) struct Write {
    changes: Vec<Change>,
    compares: Vec<Compare>,
    weight: usize,
}

struct Change {
    key: Bytes,
    /// The encoded change. Taken when its place is decided, and encoded again if the place is decided again.
    stored: Option<Vec<u8>>,
    value: Option<Bytes>,
}

pub(super) struct Writer {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) current: Current,
    pub(super) index: Index,
    pub(super) pace: Pace,
    pub(super) renewing: Renewing,
    pub(super) shared: Arc<Shared>,
}

/// The changes of one commit, and the replies that wait for it.
#[derive(Default)]
struct Batch {
    compacted: Option<Revision>,
    compactions: Vec<Reply<()>>,
    events: Vec<Event>,
    stored: Vec<(ChangeId, Vec<u8>)>,
    renewals: Vec<Reply<()>>,
    weight: usize,
    writes: Vec<(Write, Reply<Outcome>, Outcome)>,
}

impl Write {
    pub(super) fn new(txn: Txn) -> Write {
        let weight = txn.weight();
        let change = |op| match op {
            Op::Delete { key } => Change { stored: Some(format::encode(&key, None)), key, value: None },
            Op::Put { key, value } => {
                Change { stored: Some(format::encode(&key, Some(&value))), key, value: Some(value) }
            }
        };
        Write { changes: txn.ops.into_iter().map(change).collect(), compares: txn.compares, weight }
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }
}

impl Writer {
    pub(super) fn new(
        commands: mpsc::Receiver<Command>,
        current: Current,
        index: Index,
        shared: Arc<Shared>,
        renewing: Renewing,
    ) -> Writer {
        Writer { commands, current, index, pace: Pace::default(), renewing, shared }
    }

    /// Runs until the queue is closed and drained of writes.
    pub(super) fn run(mut self) {
        let mut drained = Vec::with_capacity(BATCH_WRITES_MAX);
        loop {
            if self.index.has_garbage() && self.shared.poison.get().is_none() {
                // Idle, but old entries are left: remove some without waiting for a write.
                while drained.len() < BATCH_WRITES_MAX {
                    match self.commands.try_recv() {
                        Ok(command) => drained.push(command),
                        Err(mpsc::error::TryRecvError::Disconnected) if drained.is_empty() => {
                            // The rest is found again at the next open.
                            return;
                        }
                        Err(_) => break,
                    }
                }
            } else if self.commands.blocking_recv_many(&mut drained, BATCH_WRITES_MAX) == 0 {
                return;
            }
            // Taken after the commands: a read that found the queue full was added before those left it.
            let waiting = std::mem::take(&mut *self.shared.waiting.lock());
            if self.renew_if_damaged(&drained).is_break() {
                return;
            }
            let batch = self.prepare(&mut drained, waiting);
            self.carry_out(batch);
        }
    }

    /// Decides every write in order, each on the state after the previous one. If the commit then fails, that state is
    /// never used again.
    fn prepare(&mut self, drained: &mut Vec<Command>, renewals: Vec<Reply<()>>) -> Batch {
        let mut batch = Batch { renewals, ..Batch::default() };
        for command in drained.drain(..) {
            match command {
                Command::Compact(through, reply) => {
                    self.index.compact(through);
                    batch.compacted = Some(self.index.compacted());
                    batch.compactions.push(reply);
                }
                Command::Renew => {}
                Command::Write(mut write, reply) => {
                    batch.weight += write.weight;
                    let outcome = self.decide(&mut write, &mut batch);
                    batch.writes.push((write, reply, outcome));
                }
            }
        }
        batch
    }

    /// Decides the writes of a batch again, on the state of a file that was written anew. Such a file has no history to be removed.
    fn prepare_again(&mut self, failed: &mut Batch) {
        let mut batch = Batch::default();
        for (mut write, reply, _) in failed.writes.drain(..) {
            let outcome = self.decide(&mut write, &mut batch);
            batch.writes.push((write, reply, outcome));
        }
        failed.compacted = None;
        failed.events = batch.events;
        failed.stored = batch.stored;
        failed.writes = batch.writes;
    }

    fn decide(&mut self, write: &mut Write, batch: &mut Batch) -> Outcome {
        let before = self.index.revision();
        if let Err(found) = hold(&write.compares, |key| self.index.written_at(key)) {
            return Outcome::Failed { revision: before, found };
        }
        let revision = before.next();
        let start = batch.stored.len();
        let mut sealing = Vec::new();
        for Change { key, stored, value } in &mut write.changes {
            let place = (revision.0, (batch.stored.len() - start) as u32);
            let stored = stored.take().unwrap_or_else(|| format::encode(key, value.as_deref()));
            let previous = match value {
                Some(_) => self.index.put(key, place, stored.len()),
                None => match self.index.delete(key, place, stored.len()) {
                    None => continue,
                    previous => previous,
                },
            };
            sealing.push(previous);
            batch.stored.push((place, stored));
            batch.events.push(Event { key: key.clone(), revision, value: value.clone() });
        }
        let n_changes = sealing.len();
        for (n, ((place, stored), previous)) in batch.stored[start..].iter_mut().zip(sealing).enumerate() {
            let position = if n + 1 == n_changes { Position::Last } else { Position::Before };
            format::seal(stored, *place, previous, position);
        }
        Outcome::Committed { revision: self.index.revision() }
    }

    /// Commits a batch, then publishes it, then sends its replies. Failed compares are answered after the commit too: they may have seen a
    /// write of the same batch.
    fn carry_out(&mut self, mut batch: Batch) {
        self.shared.opened.lock().take();
        let done = match self.shared.health() {
            Err(error) => Err(error),
            Ok(()) if batch.is_unwritten() && !self.index.has_garbage() => Ok(()),
            Ok(()) => self.commit_or_renew(&mut batch).map_err(|source| self.poison(source)),
        };
        self.shared.queued_bytes.fetch_sub(batch.weight, Ordering::Relaxed);
        if done.is_ok() {
            // Set before the events are published, so that the figures include every revision that a reader has seen.
            *self.shared.volume.lock() = self.index.volume();
            self.shared.forget_damage(&batch.events);
            self.shared.note_newest(self.index.revision());
            self.shared.tail.shrink(TAIL_EVENTS_MAX, TAIL_BYTES_MAX);
            self.shared.tail.publish(batch.events);
            if let Some(compacted) = batch.compacted {
                self.shared.tail.drop_through(compacted);
            }
        }
        // A reply whose receiver is gone is dropped.
        for (_, reply, outcome) in batch.writes {
            let _unheard = reply.send(done.clone().map(|()| outcome));
        }
        for reply in batch.compactions.into_iter().chain(batch.renewals) {
            let _unheard = reply.send(done.clone());
        }
    }

    /// Commits. If redb meets a damaged block, the file is written anew when it is its turn, and the batch is decided and committed again,
    /// at most [`RENEWALS_MAX`] times.
    fn commit_or_renew(&mut self, batch: &mut Batch) -> Result<(), Cause> {
        let mut n_renewals = 0;
        loop {
            match self.commit(batch) {
                Ok(()) => return Ok(()),
                Err(error) if self.current.storage.damage().is_none() => return Err(Arc::new(error)),
                Err(source) if n_renewals == RENEWALS_MAX => return Err(Arc::new(DamagedAgain { source })),
                Err(error) => tracing::warn!("a commit met a damaged block: {error}"),
            }
            self.wait_for_turn();
            self.renew()?;
            n_renewals += 1;
            let newest = batch.events.last().map(|event| event.revision);
            // The block may have been found after the commit was in the file.
            if newest.is_some_and(|newest| newest <= self.index.revision()) {
                return Ok(());
            }
            self.prepare_again(batch);
            if batch.is_unwritten() {
                return Ok(());
            }
        }
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), redb::Error> {
        let transaction = format::begin(&self.current.database)?;
        {
            let mut events = transaction.open_table(EVENTS)?;
            let mut heads = transaction.open_table(HEADS)?;
            for (place, stored) in &batch.stored {
                events.insert(place, stored.as_slice())?;
                heads.insert(place, format::head_of(stored))?;
            }
            let mut meta = transaction.open_table(META)?;
            if let Some(compacted) = batch.compacted {
                self.shared.compacted.store(compacted.0, Ordering::Release);
                meta.insert(COMPACTED, compacted.0)?;
            }
            if self.index.has_garbage() {
                let collected = collect(&mut events, &mut heads, self.index.collected(), self.index.compacted())?;
                meta.insert(COLLECTED, collected.0)?;
                self.index.set_collected(collected);
            }
        }
        Ok(transaction.commit()?)
    }

    pub(super) fn poison(&self, source: Cause) -> Error {
        tracing::error!("the store takes no more writes: {source}");
        poisoned(self.shared.poison.get_or_init(|| source))
    }
}

impl Batch {
    fn is_unwritten(&self) -> bool {
        self.stored.is_empty() && self.compacted.is_none()
    }
}

/// Removes changes superseded after one revision and up to another, a bounded number of them; returns the revision that
/// it reached. A deletion is removed together with the value that it deletes, and both after all earlier values of the
/// key, so that a power failure in between leaves the same current state.
fn collect(
    events: &mut redb::Table<'_, ChangeId, &[u8]>,
    heads: &mut redb::Table<'_, ChangeId, &[u8]>,
    collected: Revision,
    compacted: Revision,
) -> Result<Revision, redb::Error> {
    let mut removals = Vec::new();
    let (mut reached, mut n_looked_at) = (compacted, 0);
    for entry in heads.range((collected.0 + 1, 0)..=(compacted.0, u32::MAX))? {
        let (place, head) = entry?;
        let place = place.value();
        if COLLECTED_MAX <= n_looked_at && Revision(place.0) != reached {
            break;
        }
        reached = Revision(place.0);
        n_looked_at += 1;
        let head = format::split_head(place, head.value());
        let (head, _) = head.map_err(|error| redb::Error::Corrupted(error.to_string()))?;
        removals.extend(head.previous.map(Packed::place));
        removals.extend(head.is_deletion().then_some(place));
    }
    if n_looked_at < COLLECTED_MAX {
        reached = compacted;
    }
    for place in removals {
        events.remove(place)?;
        heads.remove(place)?;
    }
    Ok(reached)
}
