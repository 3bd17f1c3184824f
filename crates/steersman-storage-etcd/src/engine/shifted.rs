//! The contract over etcd, in the revisions of a store.
//!
//! A store that was restored must go on after every revision that clients know, and etcd counts only the writes that it was sent. So the
//! revisions of such a store are etcd's and a number, which is kept below the prefix. Revisions before the restore are reported as compacted.

use crate::client::Client;
use crate::connect::{self, ConnectError, Found, claim};
use crate::engine::{Access, Engine};
use crate::layout::Layout;
use crate::options::Options;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::kv::{
    Batch, BoxFuture, Change, Changes, Compare, Entry, Error, Event, Expect, Kv, Limits, Outcome, Part, Past, Range,
    Scan, Snapshot, Take, Txn, Volume, Watch,
};

/// A revision at which no key was ever written.
const NEVER: Revision = Revision(u64::MAX);

/// Keys and values in etcd. Other processes may use the same prefix.
pub struct Etcd {
    engine: Engine,
    shift: Shift,
}

/// How revisions of a store and of etcd belong together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Shift {
    /// The revisions of the store are etcd's and this number.
    by: u64,
    /// The store has no history before this revision of it.
    floor: Revision,
}

impl Etcd {
    /// Connects, checks the versions of all members that answer, and makes sure that the prefix is free or ours. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(options: Options) -> Result<Etcd, ConnectError> {
        let (client, layout) = reach(options).await?;
        let found = claim(&client, &layout).await?;
        Etcd::open(client, layout, found, Access::Write).await
    }

    /// Connects to read: nothing is written below the prefix, so that servers are not disturbed. Every transaction fails. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// See [`ConnectError`]; when there is no store below the prefix.
    pub async fn connect_to_read(options: Options) -> Result<Etcd, ConnectError> {
        let (client, layout) = reach(options).await?;
        let found = connect::find(&client, &layout).await?;
        Etcd::open(client, layout, found, Access::Read).await
    }

    async fn open(client: Arc<Client>, layout: Layout, found: Found, access: Access) -> Result<Etcd, ConnectError> {
        let Found { shift, since } = found;
        let engine = Engine::open(client.clone(), layout.clone(), access).await?;
        if layout.is_registry() {
            // A restore that began meanwhile sees the fence of this process, or is seen here.
            if let Err(error) = connect::find_registry(&client, &layout).await {
                let _closed = engine.close().await;
                return Err(error);
            }
        }
        Ok(Etcd { engine, shift: Shift { by: shift, floor: Revision(since + shift) } })
    }
}

async fn reach(options: Options) -> Result<(Arc<Client>, Layout), ConnectError> {
    let layout = Layout::of(&options);
    Ok((connect::reach(options).await?, layout))
}

// === impl Shift ===

impl Shift {
    /// The revision of the store for one of etcd.
    fn up(self, revision: Revision) -> Revision {
        Revision(revision.0.saturating_add(self.by))
    }

    /// The revision of etcd for one of the store.
    fn down(self, revision: Revision) -> Revision {
        Revision(revision.0.saturating_sub(self.by))
    }

    /// Fails for a revision before the store.
    fn check_kept(self, requested: Revision) -> Result<(), Error> {
        if requested < self.floor { Err(Error::Compacted { requested, oldest: self.floor }) } else { Ok(()) }
    }

    fn entry(self, entry: Entry) -> Entry {
        Entry { revision: self.up(entry.revision), ..entry }
    }

    fn entries(self, entries: Vec<Entry>) -> Vec<Entry> {
        match self.by {
            0 => entries,
            _ => entries.into_iter().map(|entry| self.entry(entry)).collect(),
        }
    }

    fn event(self, event: Event) -> Event {
        Event { revision: self.up(event.revision), ..event }
    }

    fn change(self, Change { event, previous }: Change) -> Change {
        Change { event: self.event(event), previous: previous.map(|entry| self.entry(entry)) }
    }

    fn error(self, error: Error) -> Error {
        match error {
            Error::Compacted { requested, oldest } => {
                Error::Compacted { requested: self.up(requested), oldest: self.up(oldest).max(self.floor) }
            }
            error => error,
        }
    }

    fn compare(self, compare: Compare) -> Compare {
        let expect = match compare.expect {
            Expect::Absent => Expect::Absent,
            // Nothing has a revision from before etcd's first one, and zero would mean that the key is absent.
            Expect::At(revision) if revision.0 <= self.by => Expect::At(if self.by == 0 { revision } else { NEVER }),
            Expect::At(revision) => Expect::At(self.down(revision)),
        };
        Compare { expect, ..compare }
    }

    fn outcome(self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Committed { revision } => Outcome::Committed { revision: self.up(revision) },
            Outcome::Failed { revision, found } => Outcome::Failed {
                revision: self.up(revision),
                found: found.into_iter().map(|found| found.map(|found| self.up(found))).collect(),
            },
        }
    }
}

// === impl Kv ===

impl Kv for Etcd {
    fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }

    fn engine(&self) -> &'static str {
        self.engine.engine()
    }

    fn limits(&self) -> Limits {
        self.engine.limits()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async { Ok(self.shift.up(self.engine.revision().await?)) })
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        Box::pin(async {
            let Snapshot { entries, revision } = self.engine.read().await.map_err(|error| self.shift.error(error))?;
            Ok(Snapshot { entries: self.shift.entries(entries), revision: self.shift.up(revision) })
        })
    }

    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        let shift = self.shift;
        let take: Take = match shift.by {
            0 => take,
            _ => Arc::new(move |part| take(shift.entries(part))),
        };
        Box::pin(async move { Ok(shift.up(self.engine.load(take).await.map_err(|error| shift.error(error))?)) })
    }

    fn scan(&self) -> BoxFuture<'_, Result<Box<dyn Scan>, Error>> {
        Box::pin(async {
            let scan = self.engine.scan().await?;
            Ok(Box::new(ShiftedScan { scan, shift: self.shift }) as Box<dyn Scan>)
        })
    }

    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        Box::pin(async move {
            request.at.map_or(Ok(()), |at| self.shift.check_kept(at))?;
            let request = Range { at: request.at.map(|at| self.shift.down(at)), ..request };
            let part = self.engine.range(request).await.map_err(|error| self.shift.error(error))?;
            let (entries, revision) = (self.shift.entries(part.entries), self.shift.up(part.revision));
            Ok(Part { entries, revision, ..part })
        })
    }

    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(async move {
            self.shift.check_kept(request.after)?;
            let (after, through) = (self.shift.down(request.after), self.shift.down(request.through));
            let found = self.engine.history(Past { after, through, ..request }).await;
            let Changes { changes, progress } = found.map_err(|error| self.shift.error(error))?;
            let changes = changes.into_iter().map(|change| self.shift.change(change)).collect();
            Ok(Changes { changes, progress: self.shift.up(progress) })
        })
    }

    fn volume(&self) -> Option<Volume> {
        self.engine.volume()
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async { Ok(self.shift.up(self.engine.oldest().await?).max(self.shift.floor)) })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        let compares = txn.compares.into_iter().map(|compare| self.shift.compare(compare)).collect();
        let running = self.engine.txn(Txn { compares, ..txn });
        Box::pin(async { Ok(self.shift.outcome(running.await?)) })
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        match self.shift.check_kept(after) {
            Ok(()) => Box::new(ShiftedWatch { shift: self.shift, watch: self.engine.watch(self.shift.down(after)) }),
            Err(error) => Box::new(Gone(error)),
        }
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.engine.compact(self.shift.down(through))
    }

    fn health(&self) -> Result<(), Error> {
        self.engine.health()
    }

    fn reachable(&self) -> Result<(), Error> {
        self.engine.reachable()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.engine.close()
    }
}

struct ShiftedScan {
    scan: Box<dyn Scan>,
    shift: Shift,
}

impl Scan for ShiftedScan {
    fn revision(&self) -> Revision {
        self.shift.up(self.scan.revision())
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        Box::pin(async {
            let part = self.scan.next().await.map_err(|error| self.shift.error(error))?;
            Ok(self.shift.entries(part))
        })
    }
}

struct ShiftedWatch {
    shift: Shift,
    watch: Box<dyn Watch>,
}

impl Watch for ShiftedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        let shift = self.shift;
        let next = self.watch.next();
        Box::pin(async move {
            let Batch { events, progress } = next.await.map_err(|error| shift.error(error))?;
            let events = events.into_iter().map(|event| shift.event(event)).collect();
            Ok(Batch { events, progress: shift.up(progress) })
        })
    }
}

/// A watch from before the store.
struct Gone(Error);

impl Watch for Gone {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        Box::pin(ready(Err(self.0.clone())))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("engine", &self.engine).field("shift", &self.shift).finish()
    }
}
