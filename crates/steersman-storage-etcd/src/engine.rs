//! The contract over etcd.

use crate::client::failure::{Failure, Refusal};
use crate::client::{Client, Lane, undone};
use crate::connect::{ConnectError, check_versions, claim};
use crate::feed::{self, End, Feed, Follower, Previous};
use crate::layout::Layout;
use crate::linearizable::Newest;
use crate::lock::{Heartbeats, Lock};
use crate::options::Options;
use crate::pages::Pages;
use crate::proto::{CompactionRequest, KeyValue};
use crate::txn::Writer;
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::{
    BoxFuture, Change, Changes, Entry, Error, Event, Kv, Limits, Outcome, Part, Past, Range, Snapshot, Take, Txn,
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

/// Keys and values in etcd. Other processes may use the same prefix.
pub struct Etcd {
    client: Arc<Client>,
    /// Set once the last transaction has ended.
    end: watch::Sender<Option<End>>,
    heartbeats: Mutex<Option<Heartbeats>>,
    history_reads: Semaphore,
    is_closed: AtomicBool,
    /// The newest revision of a transaction of this process.
    last: AtomicU64,
    layout: Layout,
    /// Held while this process works, where only one may.
    lock: Option<Arc<Lock>>,
    newest: Newest,
    write_bytes: AtomicU64,
    writer: Writer,
    writes: Semaphore,
}

impl Etcd {
    /// Connects, checks the versions of all members that answer, and makes sure that the prefix is free or ours. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(options: Options) -> Result<Etcd, ConnectError> {
        let n_members = options.endpoints.len();
        if n_members == 0 {
            return Err(ConnectError::NoEndpoint);
        }
        let layout = Layout::new(&options.prefix);
        let (request_bytes_max, takeover) = (options.request_bytes_max, options.takeover);
        let client = Client::new(options)
            .map_err(|(endpoint, source)| ConnectError::Endpoint { endpoint, source: Arc::new(source) })?;
        let client = Arc::new(client);
        check_versions(&client, n_members).await?;
        claim(&client, &layout).await?;
        let lock = match takeover {
            Some(takeover) => Some((Arc::new(Lock::acquire(&client, &layout, takeover).await?), takeover)),
            None => None,
        };
        let heartbeats = lock.as_ref().map(|(lock, takeover)| lock.beat(&client, *takeover));
        let lock = lock.map(|(lock, _)| lock);
        let writer = Writer::new(&layout, lock.clone(), request_bytes_max);
        writer.fence.stands_at(&client, client.deadline()).await.map_err(ConnectError::Kv)?;
        let newest = Newest::new(client.clone(), layout.format_key());
        Ok(Etcd {
            client,
            end: watch::Sender::new(None),
            history_reads: Semaphore::new(HISTORY_READS_MAX),
            is_closed: AtomicBool::new(false),
            heartbeats: Mutex::new(heartbeats),
            last: AtomicU64::new(0),
            lock,
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
        self.writer.validate(&txn)?;
        let Ok(_permit) = self.writes.try_acquire() else { return Err(Error::Busy) };
        let _weight = Weight::add(&self.write_bytes, txn.weight()).ok_or(Error::Busy)?;
        let outcome = self.writer.run(&self.client, &self.layout, &txn).await?;
        if let Outcome::Committed { revision } = outcome {
            self.last.fetch_max(revision.0, Ordering::AcqRel);
        }
        Ok(outcome)
    }

    fn entry(&self, found: KeyValue) -> Entry {
        let KeyValue { key, mod_revision, value } = found;
        Entry { key: self.layout.key(&key), revision: Revision(u64::try_from(mod_revision).unwrap_or(0)), value }
    }

    async fn load_all(&self, take: Take) -> Result<Revision, Error> {
        self.check_open()?;
        let mut pages = Pages::new(&self.client, self.layout.span(b""), None);
        while let Some(page) = pages.next(usize::MAX).await? {
            take(page.into_iter().map(|found| self.entry(found)).collect());
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
        let mut span = self.layout.span(&request.prefix);
        if let Some(after) = &request.start_after {
            span = span.after(&self.layout.stored(after));
        }
        let limit = request.limit.unwrap_or(usize::MAX);
        let mut pages = Pages::new(&self.client, span, request.at);
        let mut entries: Vec<Entry> = Vec::new();
        while entries.len() < limit
            && let Some(page) = pages.next(limit - entries.len()).await?
        {
            entries.extend(page.into_iter().map(|found| self.entry(found)));
        }
        let more =
            if limit == 0 { pages.next(1).await?.is_some_and(|page| !page.is_empty()) } else { pages.has_more() };
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
        let change = |Change { event, previous }| Change {
            event: Event { key: self.layout.key(&event.key), ..event },
            previous: previous.map(|entry| Entry { key: self.layout.key(&entry.key), ..entry }),
        };
        Ok(Changes { changes: found.changes.into_iter().map(change).collect(), progress: found.progress })
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
        let request = CompactionRequest { revision: i64::try_from(through.0).unwrap_or(i64::MAX) };
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
        self.writer.fence.remove(&self.client).await;
        self.heartbeats.lock().take();
        if let Some(lock) = &self.lock {
            lock.release(&self.client).await;
        }
    }
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

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("options", &self.client.options).finish_non_exhaustive()
    }
}

impl Kv for Etcd {
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
            // Pages come in key order.
            let entries = std::mem::take(&mut *entries.lock());
            Ok(Snapshot { entries, revision })
        })
    }

    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(self.load_all(take))
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
