//! The contract over etcd, in etcd's revisions.

mod compaction;
pub(crate) mod leases;
mod linearizable;
mod pages;
pub(crate) mod shifted;
mod txn;

use crate::client::failure::{Failure, Refusal};
use crate::client::{Client, Lane, undone};
use crate::connect::ConnectError;
use crate::engine::compaction::Compaction;
use crate::engine::linearizable::Newest;
use crate::engine::pages::Pages;
use crate::engine::txn::Writer;
use crate::feed::{self, End, Feed, Follower, Previous};
use crate::layout::Layout;
use crate::proto::{CompactionRequest, KeyValue, number_of, revision_of};
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::{
    BoxFuture, Change, Changes, Entry, Error, Event, Kv, Limits, Outcome, Part, Past, Range, Scan, Snapshot, Take, Txn,
    Volume, Watch,
};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

/// The most transactions under way at a time. More are refused with [`Error::Busy`].
pub const WRITES_MAX: u32 = 4_096;
/// The most bytes of transactions under way. More are refused with [`Error::Busy`].
const WRITE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most reads of history at a time. Each is a watch; others wait, and are served in the order of their arrival.
const HISTORY_READS_MAX: usize = 4;
/// How long [`Kv::close`] waits for transactions under way, and watches then for what was acknowledged.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Keys and values in etcd, in its revisions.
pub(crate) struct Engine {
    access: Access,
    client: Arc<Client>,
    /// The protocol by which history is removed; `None` where nobody else does it.
    compaction: Option<Compaction>,
    /// Set once the last transaction has ended.
    end: watch::Sender<Option<End>>,
    history_reads: Semaphore,
    is_closed: AtomicBool,
    /// The newest revision of a transaction of this process.
    last: AtomicU64,
    layout: Layout,
    newest: Newest,
    write_bytes: AtomicU64,
    writer: Writer,
    writes: Semaphore,
}

/// The operations that a connection allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// Reads alone: nothing is written below the prefix.
    Read,
    Write,
}

/// The cause when something is to be written over a connection that only reads.
#[derive(Debug, thiserror::Error)]
#[error("the connection to etcd was opened to read")]
struct ReadOnly;

impl Engine {
    /// Over a connection to a prefix that has a store.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) async fn open(client: Arc<Client>, layout: Layout, access: Access) -> Result<Engine, ConnectError> {
        let writer = Writer::new(&layout, &client.options);
        if access == Access::Write {
            writer.fence.stands_at(&client, client.deadline()).await.map_err(ConnectError::Kv)?;
        }
        let newest = Newest::new(client.clone(), layout.format_key());
        Ok(Engine {
            access,
            client,
            compaction: layout.is_registry().then(Compaction::default),
            end: watch::Sender::new(None),
            history_reads: Semaphore::new(HISTORY_READS_MAX),
            is_closed: AtomicBool::new(false),
            last: AtomicU64::new(0),
            layout,
            newest,
            write_bytes: AtomicU64::new(0),
            writer,
            writes: Semaphore::new(WRITES_MAX as usize),
        })
    }

    fn check_open(&self) -> Result<(), Error> {
        self.client.health().map_err(|failure| undone(&failure))?;
        if self.is_closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    async fn run(&self, txn: Txn) -> Result<Outcome, Error> {
        self.check_open()?;
        if self.access == Access::Read {
            return Err(Error::Unavailable { source: Arc::new(ReadOnly) });
        }
        self.writer.validate(&txn)?;
        let Ok(_permit) = self.writes.try_acquire() else { return Err(Error::Busy) };
        let _weight = Weight::add(&self.write_bytes, txn.weight()).ok_or(Error::Busy)?;
        let outcome = self.writer.run(&self.client, &self.layout, &txn).await?;
        if let Outcome::Committed { revision } = outcome {
            self.last.fetch_max(revision.0, Ordering::AcqRel);
        }
        Ok(outcome)
    }

    fn entry(&self, found: KeyValue) -> Option<Entry> {
        entry(&self.layout, found)
    }

    async fn load_all(&self, take: Take) -> Result<Revision, Error> {
        self.check_open()?;
        let mut pages = Pages::new(&*self.client, self.layout.span(b""), None);
        let mut next = pages.next(usize::MAX).await?;
        while let Some(page) = next {
            let entries = page.into_iter().filter_map(|found| self.entry(found)).collect();
            let take = take.clone();
            // etcd makes the next page meanwhile.
            let taking = tokio::task::spawn_blocking(move || take(entries));
            let (following, taken) = tokio::join!(pages.next(usize::MAX), taking);
            if let Err(panicked) = taken {
                std::panic::resume_unwind(panicked.into_panic());
            }
            next = following?;
        }
        Ok(pages.revision())
    }

    async fn list(&self, request: Range) -> Result<Part, Error> {
        self.check_open()?;
        if let Some(at) = request.at {
            self.check_kept(at)?;
            // To etcd, zero means the newest. Nothing can have been written then.
            if at == Revision::ZERO {
                return Ok(Part { entries: Vec::new(), more: false, revision: at });
            }
        }
        if !self.layout.is_exact(&request.prefix) {
            return self.sorted(request).await;
        }
        let mut span = self.layout.span(&request.prefix);
        if let Some(after) = &request.start_after {
            span = span.after(&self.layout.stored(after));
        }
        let limit = request.limit.unwrap_or(usize::MAX);
        let mut pages = Pages::new(&*self.client, span, request.at);
        let mut entries: Vec<Entry> = Vec::new();
        while entries.len() < limit
            && let Some(page) = pages.next(limit - entries.len()).await?
        {
            entries.extend(page.into_iter().filter_map(|found| self.entry(found)));
        }
        let more =
            if limit == 0 { pages.next(1).await?.is_some_and(|page| !page.is_empty()) } else { pages.has_more() };
        Ok(Part { entries, more, revision: pages.revision() })
    }

    /// A list of several resources, which etcd does not have in the order of the contract.
    async fn sorted(&self, request: Range) -> Result<Part, Error> {
        let Range { at, limit, prefix, start_after } = request;
        let mut pages = Pages::new(&*self.client, self.layout.span(&prefix), at);
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(page) = pages.next(usize::MAX).await? {
            entries.extend(page.into_iter().filter_map(|found| self.entry(found)));
        }
        let is_after = |key: &Bytes| start_after.as_ref().is_none_or(|after| after < key);
        entries.retain(|entry| entry.key.starts_with(&prefix) && is_after(&entry.key));
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let more = limit.is_some_and(|limit| limit < entries.len());
        entries.truncate(limit.unwrap_or(usize::MAX));
        Ok(Part { entries, more, revision: pages.revision() })
    }

    async fn past(&self, request: Past) -> Result<Changes, Error> {
        self.check_open()?;
        self.check_kept(request.after)?;
        // Only a semaphore that is closed fails, and this one never is.
        let _turn = self.history_reads.acquire().await.map_err(|_| Error::Closed)?;
        let give_up = self.client.deadline();
        let through = request.through.min(self.newest.read().await?);
        let Past { after, limit, prefix, .. } = request;
        let span = self.layout.span(&prefix);
        let found = feed::history(&self.client, span, after, through, limit, give_up).await?;
        let change = |Change { event, previous }| {
            let key = self.layout.key(&event.key).filter(|key| key.starts_with(&prefix))?;
            let previous = previous.map(|entry| Entry { key: key.clone(), ..entry });
            Some(Change { event: Event { key, ..event }, previous })
        };
        Ok(Changes { changes: found.changes.into_iter().filter_map(change).collect(), progress: found.progress })
    }

    fn check_kept(&self, requested: Revision) -> Result<(), Error> {
        let oldest = self.client.oldest();
        if requested < oldest { Err(Error::Compacted { requested, oldest }) } else { Ok(()) }
    }

    async fn compact_through(&self, through: Revision) -> Result<(), Error> {
        self.check_open()?;
        let through = through.min(self.newest.read().await?);
        if through <= self.client.oldest() {
            return Ok(());
        }
        if let Some(compaction) = &self.compaction
            && !compaction.claim_turn(&self.client, through).await?
        {
            return Ok(());
        }
        let request = CompactionRequest { revision: number_of(through) };
        // Repeating it does no harm: compacting again is an error that means that it is done.
        match self.client.read(Lane::Bulk, &request, self.client.deadline()).await {
            Ok(_) | Err(Failure::Refused(Refusal::Compacted)) => {
                self.client.note_oldest(through);
                Ok(())
            }
            Err(failure) => Err(undone(&failure)),
        }
    }

    async fn end(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if timeout(CLOSE_TIMEOUT, self.writes.acquire_many(WRITES_MAX)).await.is_err() {
            tracing::warn!("the store is closed while writes are under way");
        }
        let last = Revision(self.last.load(Ordering::Acquire));
        self.client.want(last);
        self.end.send_replace(Some(End { give_up: Instant::now() + CLOSE_TIMEOUT, last }));
        if self.access == Access::Write {
            self.writer.fence.remove(&self.client).await;
        }
    }
}

/// A scan of all keys.
struct Scanning {
    layout: Layout,
    pages: Pages<Arc<Client>>,
    revision: Revision,
}

impl Scan for Scanning {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        Box::pin(async {
            while let Some(page) = self.pages.next(usize::MAX).await? {
                let entries: Vec<Entry> = page.into_iter().filter_map(|found| entry(&self.layout, found)).collect();
                if !entries.is_empty() {
                    return Ok(entries);
                }
            }
            Ok(Vec::new())
        })
    }
}

/// The entry of a key of etcd; `None` if that is not one for a key of the contract.
fn entry(layout: &Layout, found: KeyValue) -> Option<Entry> {
    let KeyValue { key, mod_revision, value, .. } = found;
    Some(Entry { key: layout.key(&key)?, revision: revision_of(mod_revision), value })
}

/// Bytes of a transaction that is under way.
struct Weight<'a> {
    bytes: u64,
    total: &'a AtomicU64,
}

impl<'a> Weight<'a> {
    /// `None` if there are too many already.
    fn add(total: &'a AtomicU64, bytes: usize) -> Option<Weight<'a>> {
        let weight = Weight { bytes: bytes as u64, total };
        let before = total.fetch_add(weight.bytes, Ordering::Relaxed);
        (before + weight.bytes <= WRITE_BYTES_MAX as u64).then_some(weight)
    }
}

impl Drop for Weight<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("options", &self.client.options).finish_non_exhaustive()
    }
}

impl Kv for Engine {
    fn engine(&self) -> &'static str {
        "etcd"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn limits(&self) -> Limits {
        self.writer.limits()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async {
            self.check_open()?;
            self.newest.read().await
        })
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        Box::pin(async {
            let entries = Arc::new(Mutex::new(Vec::new()));
            let taken = entries.clone();
            let revision = self.load_all(Arc::new(move |part| taken.lock().extend(part))).await?;
            let mut entries = std::mem::take(&mut *entries.lock());
            // Pages come in the order of etcd's keys.
            if self.layout.is_registry() {
                entries.sort_unstable_by(|a: &Entry, b| a.key.cmp(&b.key));
            }
            Ok(Snapshot { entries, revision })
        })
    }

    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(self.load_all(take))
    }

    fn scan(&self) -> BoxFuture<'_, Result<Box<dyn Scan>, Error>> {
        Box::pin(async {
            self.check_open()?;
            let revision = self.newest.read().await?;
            let pages = Pages::even(self.client.clone(), self.layout.span(b""), revision);
            Ok(Box::new(Scanning { layout: self.layout.clone(), pages, revision }) as Box<dyn Scan>)
        })
    }

    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        Box::pin(self.list(request))
    }

    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(self.past(request))
    }

    fn volume(&self) -> Option<Volume> {
        None
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async {
            self.check_open()?;
            self.newest.read().await?;
            let key: Bytes = self.writer.fence.key().clone();
            feed::oldest(&self.client, key, self.client.deadline()).await
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        Box::pin(self.run(txn))
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        let feed = Feed::new(self.client.clone(), self.layout.span(b""), after, Previous::Left);
        Box::new(Follower::new(feed, self.layout.clone(), self.end.subscribe()))
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.compact_through(through))
    }

    fn health(&self) -> Result<(), Error> {
        self.check_open()
    }

    fn reachable(&self) -> Result<(), Error> {
        self.client.reachable().map_err(|failure| undone(&failure))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            self.end().await;
            Ok(())
        })
    }
}
