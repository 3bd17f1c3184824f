//! The engine on a disk: an append-only log of changes in a redb file, written by one thread in groups.
//!
//! A commit uses redb's two phases, and is durable before it is acknowledged or published. It also records the state of
//! redb's allocator, so that a file that was not closed opens without a repair. The file has one log, `(revision,
//! number) -> change`. An index in memory, built at open, has the current entry of each key. Each entry refers to the
//! previous one of its key, so that history is read and removed in the order of the log. Superseded entries are removed
//! by compaction, so that no write touches a random page. After a failed write, or a panic of the writer, nothing more
//! is written until the store is reopened.
//!
//! Nothing that is damaged is served. At open every page and every change is compared with its checksum before redb gets the file
//! (`survey`); a damaged file is written anew without what is lost (`rebuild`), and the keys of that are named until somebody
//! writes or deletes them. Later reads compare each change with its checksum, and notice changes that are missing. A block of the file that
//! goes bad while the store is open is noticed before redb has it (`blocks`). Then the writer writes the file anew as at an open, and goes
//! on with that; reads that failed because of the block are done again (`renewal`).

mod check;
mod file;
mod flipped;
pub(crate) mod format;
mod index;
mod newer;
mod newest;
mod open;
mod renewal;
mod sequence;
mod survey;
mod view;
mod writer;

use crate::disk::file::scan::Scanning;
use crate::disk::file::storage::Storage;
use crate::disk::file::{Opened, Unusable};
use crate::disk::format::{EVENTS, HEADS, Malformed};
use crate::disk::index::Stored;
use crate::disk::newer::Acknowledged;
use crate::disk::newest::{Newest, Noted};
use crate::disk::open::{damaged, hold, make_dir, opening, private, refused, sync_dir};
use crate::disk::renewal::Renewing;
use crate::disk::renewal::pace::{Clock, System};
use crate::disk::sequence::Sequence;
use crate::disk::survey::{Lost, Survey};
use crate::disk::view::{View, entry_at};
use crate::disk::writer::{Command, Reply, Write, Writer};
use crate::kv::tail::{self, Attempts, Cursor, Older, PULL_EVENTS_MAX, Reader, Renewals, Tail};
use crate::kv::{
    BoxFuture, Cause, Change, Changes, Damaged, Entry, Error, Event, Kv, Limits, Outcome, Part, Past, Range, Remedy,
    Scan, Snapshot, Take, Txn, Volume, Watch,
};
use bytes::Bytes;
use parking_lot::Mutex;
use redb::{Builder, Database, ReadableDatabase, StorageBackend};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use steersman_machinery::Revision;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use crate::disk::check::{Report, check, read};
pub use crate::disk::file::intercepted::{Intercepted, Operation};
pub use crate::disk::file::restore::{Restore, RestoreError};
pub use crate::disk::format::FORMAT;
#[doc(hidden)]
pub use crate::disk::format::fuzz_change;
pub use crate::disk::open::OpenError;
#[doc(hidden)]
pub use crate::disk::survey::fuzz_file;

/// The most writes that wait for the disk. More are refused with [`Error::Busy`].
pub const WRITES_QUEUED_MAX: usize = 4_096;
/// The most bytes of writes that wait for the disk. More are refused with [`Error::Busy`].
pub const WRITE_BYTES_QUEUED_MAX: usize = 64 * 1024 * 1024;
/// The most writes in one commit.
pub const BATCH_WRITES_MAX: usize = 512;
/// The size of redb's page cache. Small, because reads are rare here (open, and a watch that fell behind).
const PAGE_CACHE_BYTES: usize = 4 * 1024 * 1024;
/// The most committed changes kept in memory for watches; older ones are read from the file.
const TAIL_EVENTS_MAX: usize = 4_096;
const TAIL_BYTES_MAX: usize = 1024 * 1024;

/// The most concurrent reads of the past. Each scans the log on a thread of its own; others wait, and are served in the
/// order of their arrival. After a restart all watches that resume read at the same time.
const PAST_READS_MAX: usize = 4;
/// The most changes that one read of history scans, so that a rare key does not keep others waiting.
const HISTORY_CHANGES_MAX: usize = 16_384;
/// A larger view of the past is not kept for further pages.
const VIEW_BYTES_MAX: usize = 32 * 1024 * 1024;

const FILE: &str = "store.redb";
/// The name of a file that is being made.
const FILE_NEW: &str = "store.redb.new";
/// The name of the damaged file after it was rewritten.
const FILE_DAMAGED: &str = "store.redb.damaged";
const FILE_NEWEST: &str = "store.newest";

/// Keys and values in a directory.
#[derive(Debug)]
pub struct Disk {
    /// The writer thread and the signal of its end. It ends when `queue` is closed and drained.
    done: Mutex<Option<(oneshot::Receiver<()>, JoinHandle<()>)>>,
    /// A permit for each read of the past that may run.
    past_reads: Arc<Semaphore>,
    /// `None` once closed.
    queue: Mutex<Option<mpsc::Sender<Command>>>,
    shared: Arc<Shared>,
}

/// The state shared by the writer and the readers.
#[derive(Debug)]
struct Shared {
    /// Whether the store is being closed. The writer then waits for nothing but the disk.
    closing: AtomicBool,
    /// History up to this revision is compacted. Set before entries are removed.
    compacted: AtomicU64,
    /// The keys whose current changes are damaged, with the faults.
    damaged: Mutex<BTreeMap<Bytes, Malformed>>,
    /// `None` once closed.
    current: Mutex<Option<Current>>,
    /// `None` for a store that is not in a directory.
    newest: Option<Newest>,
    /// The entries found by the scan at open, for the load that follows it; dropped with the first write.
    opened: Mutex<Option<Stored>>,
    /// The failure after which nothing more is written.
    poison: OnceLock<Cause>,
    queued_bytes: AtomicUsize,
    tail: Arc<Tail>,
    /// The result of the last read of the past, for its further pages.
    view: Mutex<Option<Arc<View>>>,
    /// The volume after the last commit.
    volume: Mutex<Volume>,
    /// The replies to reads that wait until the file is written anew, one for each of them. The writer sends them, and drops them when it
    /// unwinds. They are not in the queue: a read that waited for a place in it would keep the writer from its end.
    waiting: Mutex<Vec<Reply<()>>>,
    /// To the writer, while it runs.
    wake: mpsc::WeakSender<Command>,
}

/// The file that is read and written.
#[derive(Clone, Debug)]
struct Current {
    database: Arc<Database>,
    renewals: Renewals,
    storage: Storage,
}

/// The cause of the poison when the writer has panicked.
#[derive(Debug, thiserror::Error)]
#[error("the thread that writes the store panicked")]
struct WriterPanicked;

/// The cause when redb panicked.
#[derive(Debug, thiserror::Error)]
#[error("the library that reads the file panicked: {0}")]
struct Panicked(String);

/// Poisons the store when its thread unwinds.
struct Unwinding(Arc<Shared>);

impl Drop for Unwinding {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison_by_panic();
        }
        self.0.waiting.lock().clear();
    }
}

// === impl Disk: open ===

impl Disk {
    /// Opens the store in a directory, or makes one. Blocks while it scans the file. A damaged file is rewritten
    /// without the lost changes, whose keys [`Kv::damaged`] returns.
    ///
    /// # Errors
    /// See [`OpenError`]. On an error the stored data is unchanged.
    pub fn open(dir: &Path) -> Result<Disk, OpenError> {
        Disk::open_with(dir, Arc::new(System))
    }

    /// [`Disk::open`] with a clock for the waits between renewals.
    fn open_with(dir: &Path, clock: Arc<dyn Clock>) -> Result<Disk, OpenError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        make_dir(dir).map_err(at(dir))?;
        let lock = hold(dir)?;
        let (path, newest_path) = (dir.join(FILE), dir.join(FILE_NEWEST));
        // A process that was killed may have left it half-written.
        let new = dir.join(FILE_NEW);
        remove(&new).map_err(at(&new))?;
        let noted = newest::read(&newest_path).map_err(at(&newest_path))?;
        if !path.try_exists().map_err(at(&path))? {
            if let Some(acknowledged) = noted.revision().filter(|revision| Revision(0) < *revision) {
                return Err(OpenError::Missing { path, acknowledged, newest: newest_path });
            }
            // Made under another name, so that a half-made store is never opened.
            let file = private().create_new(true).read(true).open(&new).map_err(at(&new))?;
            let database = Builder::new().set_cache_size(PAGE_CACHE_BYTES).create_file(file).map_err(opening(&new))?;
            format::initialize(&database).map_err(damaged(&new))?;
            drop(database);
            fs::rename(&new, &path).map_err(at(&path))?;
        }
        let opened = file::open(dir, noted.revision())?;
        let newest = Newest::open(&newest_path).map_err(at(&newest_path))?;
        // The file may have its name since just now, or from a process that ended before this. Without the name on the disk, a loss of power
        // would take back what is acknowledged from now on.
        sync_dir(dir).map_err(at(dir))?;
        if let Noted::Damaged(fault) = noted {
            tracing::error!(
                path = %newest_path.display(),
                revision = opened.survey.index.revision().0,
                "the file is damaged ({fault}), so an older copy of the store would not be noticed: if clients know later revisions than this \
                 one, stop the server and restore a newer copy; the file is written again"
            );
            if let Err(error) = newest.cut() {
                tracing::warn!(path = %newest_path.display(), "the file cannot be written: {error}");
            }
        }
        Disk::start(opened, Some((lock, newest)), Renewing { clock, dir: Some(dir.to_owned()) }, &path)
    }

    /// Opens a store on any storage that redb can use, so that tests can inject faults below it. Errors name it `name`.
    /// A damaged store is refused.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_backend(backend: impl StorageBackend, name: &Path) -> Result<Disk, OpenError> {
        let storage = Storage::new(backend);
        if storage.len().map_err(|source| OpenError::Io { path: name.to_owned(), source })? == 0 {
            let database = storage.database().map_err(opening(name))?;
            format::initialize(&database).map_err(damaged(name))?;
        }
        let survey = survey::survey(&storage, Acknowledged::Unknown).map_err(refused(name))?;
        if let Some(fault) = survey.faults.first() {
            return Err(damaged(name)(redb::Error::Corrupted(fault.clone())));
        }
        match file::use_file(storage, survey, name) {
            Ok(opened) => Disk::start(opened, None, Renewing { clock: Arc::new(System), dir: None }, name),
            Err(Unusable::Never(error) | Unusable::AsItIs(error, _)) => Err(error),
        }
    }

    fn start(opened: Opened, held: Option<(File, Newest)>, renewing: Renewing, path: &Path) -> Result<Disk, OpenError> {
        let Opened { database, storage, survey } = opened;
        let Survey { index, lost, n_unknown, stored, .. } = survey;
        if 0 < n_unknown {
            tracing::error!(n_unknown, "changes were lost, and their keys are unknown");
        }
        let (lock, newest) = held.unzip();
        let current = Current { database: Arc::new(database), renewals: Renewals::default(), storage };
        let (queue, commands) = mpsc::channel(WRITES_QUEUED_MAX);
        let shared = Arc::new(Shared {
            closing: AtomicBool::new(false),
            compacted: AtomicU64::new(index.compacted().0),
            current: Mutex::new(Some(current.clone())),
            damaged: Mutex::new(lost.into_iter().map(Lost::malformed).collect()),
            newest,
            opened: Mutex::new(Some(stored)),
            poison: OnceLock::new(),
            queued_bytes: AtomicUsize::new(0),
            tail: Arc::new(Tail::new(index.revision())),
            view: Mutex::new(None),
            volume: Mutex::new(index.volume()),
            waiting: Mutex::default(),
            wake: queue.downgrade(),
        });
        shared.note_newest(index.revision());
        let (done, is_done) = oneshot::channel();
        let writer = Writer::new(commands, current, index, shared.clone(), renewing);
        let unwinding = Unwinding(shared.clone());
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            let _unwinding = unwinding;
            writer.run();
            drop(lock);
            drop(done);
        });
        let thread = thread.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Disk {
            done: Mutex::new(Some((is_done, thread))),
            past_reads: Arc::new(Semaphore::new(PAST_READS_MAX)),
            queue: Mutex::new(Some(queue)),
            shared,
        })
    }

    /// A read on a thread for blocking work. It is done again if it meets damage and the file is written anew because of that.
    fn blocking<T: Send + 'static>(
        &self,
        read: impl Fn(&Shared) -> Result<T, Error> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, Error>> {
        let read = Arc::new(read);
        Box::pin(async move {
            let mut attempts = Attempts::new(&self.shared);
            loop {
                let (shared, read) = (self.shared.clone(), read.clone());
                let done = tokio::task::spawn_blocking(move || shared.guard(|| read(&shared))).await;
                // The runtime is shutting down.
                let done = done.unwrap_or(Err(Error::Closed));
                if !attempts.is_next(done.as_ref().err()).await {
                    return done;
                }
            }
        })
    }

    /// Runs a read of the past when it is its turn.
    fn past<T: Send + 'static>(
        &self,
        read: impl Fn(&Shared) -> Result<T, Error> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, Error>> {
        Box::pin(async move {
            // Only a semaphore that is closed fails, and this one never is.
            let turn = self.past_reads.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
            // The turn lasts until the read ends, even if its caller no longer waits.
            self.blocking(move |shared| {
                let _turn = &turn;
                read(shared)
            })
            .await
        })
    }

    fn enqueue(&self, txn: Txn) -> Result<oneshot::Receiver<Result<Outcome, Error>>, Error> {
        txn.validate(&Limits::MAX)?;
        self.health()?;
        // Encoded in the caller's task, to relieve the writer thread.
        let write = Write::new(txn);
        let weight = write.weight();
        let queued = self.shared.queued_bytes.fetch_add(weight, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let sent = if WRITE_BYTES_QUEUED_MAX < queued + weight {
            Err(Error::Busy)
        } else {
            self.send(Command::Write(write, reply))
        };
        if let Err(error) = sent {
            self.shared.queued_bytes.fetch_sub(weight, Ordering::Relaxed);
            return Err(error);
        }
        Ok(answer)
    }

    fn send(&self, command: Command) -> Result<(), Error> {
        match self.queue.lock().as_ref().map(|queue| queue.try_send(command)) {
            Some(Ok(())) => Ok(()),
            Some(Err(mpsc::error::TrySendError::Full(_))) => Err(Error::Busy),
            // The writer drops the sender only when it unwinds.
            Some(Err(mpsc::error::TrySendError::Closed(_))) => Err(self.shared.poison_by_panic()),
            None => Err(Error::Closed),
        }
    }

    /// Takes no more commands. The caller unparks the writer, which may wait for its turn to write the file anew.
    fn close_queue(&self) {
        self.queue.lock().take();
        // Set afterwards: no write is queued once the writer has seen it.
        self.shared.closing.store(true, Ordering::Release);
    }

    fn enqueue_compaction(&self, through: Revision) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        self.health()?;
        let (reply, answer) = oneshot::channel();
        self.send(Command::Compact(through, reply))?;
        Ok(answer)
    }
}

impl Drop for Disk {
    /// Without a previous [`Kv::close`], blocks until queued writes are on the disk.
    fn drop(&mut self) {
        self.close_queue();
        if let Some((_, thread)) = self.done.get_mut().take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the store's writer thread panicked");
            }
        }
        self.shared.end();
    }
}

// === impl Shared ===

impl Shared {
    fn database(&self) -> Result<Arc<Database>, Error> {
        self.current.lock().as_ref().map(|current| current.database.clone()).ok_or(Error::Closed)
    }

    fn health(&self) -> Result<(), Error> {
        match self.poison.get() {
            Some(source) => Err(poisoned(source)),
            None => Ok(()),
        }
    }

    /// Runs a read. If the library panics, the read fails, and nothing more is written.
    fn guard<T>(&self, read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        guarded(read).unwrap_or_else(|panicked| {
            let source: Cause = Arc::new(panicked);
            tracing::error!("the store takes no more writes: {source}");
            Err(Error::Read { source: self.poison.get_or_init(|| source).clone() })
        })
    }

    /// Removes keys that were written or deleted from the damaged ones.
    fn forget_damage(&self, events: &[Event]) {
        let mut damaged = self.damaged.lock();
        if !damaged.is_empty() {
            for event in events {
                // Damage that was found in this very change stays named.
                if damaged.get(&event.key).is_some_and(|malformed| malformed.revision < event.revision) {
                    damaged.remove(&event.key);
                }
            }
        }
    }

    /// Records the newest acknowledged revision. If that fails, the only effect is that an older copy of the file goes
    /// unnoticed.
    fn note_newest(&self, revision: Revision) {
        if let Some(newest) = &self.newest
            && let Err(error) = newest.write(revision)
        {
            tracing::warn!("{FILE_NEWEST} cannot be written: {error}");
        }
    }

    /// Closes the file and ends the watches.
    fn end(&self) {
        self.current.lock().take();
        self.tail.close();
    }

    fn load(&self, take: &(dyn Fn(Vec<Entry>) + Send + Sync)) -> Result<Revision, Error> {
        let published = self.tail.revision();
        let database = self.database()?;
        let opened = self.opened.lock().take();
        let stored = match opened {
            Some(stored) => stored,
            None => index::scan(&database, published)?,
        };
        stored.load(take, &|key, malformed| {
            tracing::error!(key = %String::from_utf8_lossy(&key), "{malformed}: it is left out");
            self.damaged.lock().insert(key, malformed);
        })
    }

    fn read(&self) -> Result<Snapshot, Error> {
        let entries = Mutex::new(Vec::new());
        let revision = self.load(&|part| entries.lock().extend(part))?;
        let mut entries = entries.into_inner();
        entries.sort_unstable_by(|a: &Entry, b: &Entry| a.key.cmp(&b.key));
        Ok(Snapshot { entries, revision })
    }

    /// The error if the writer has dropped a transaction unanswered: it panicked.
    fn poison_by_panic(&self) -> Error {
        let source = self.poison.get_or_init(|| {
            tracing::error!("the store takes no more writes: {WriterPanicked}");
            Arc::new(WriterPanicked)
        });
        poisoned(source)
    }

    /// Fails if history does not reach back to a revision. Must be called after the read transaction has begun:
    /// anything missing from it was compacted before.
    fn check_kept(&self, requested: Revision) -> Result<(), Error> {
        let oldest = Revision(self.compacted.load(Ordering::Acquire));
        if requested < oldest { Err(Error::Compacted { requested, oldest }) } else { Ok(()) }
    }

    fn range(&self, request: &Range) -> Result<Part, Error> {
        let newest = self.tail.revision();
        let revision = request.at.map_or(newest, |at| at.min(newest));
        let database = self.database()?;
        let transaction = database.begin_read().map_err(unreadable)?;
        self.check_kept(revision)?;
        let table = transaction.open_table(EVENTS).map_err(unreadable)?;
        let heads = transaction.open_table(HEADS).map_err(unreadable)?;
        let known = self.view.lock().clone();
        let view = match known.filter(|view| view.is_of(revision, &request.prefix)) {
            Some(view) => view,
            None => {
                let view = Arc::new(View::read(&heads, revision, &request.prefix)?);
                // A view is kept only for reads in pages, which need it again.
                *self.view.lock() = request.limit.map(|_| view.clone()).filter(|view| view.weight <= VIEW_BYTES_MAX);
                view
            }
        };
        let mut behind = view.behind(request.start_after.as_ref()).iter();
        let limit = request.limit.unwrap_or(usize::MAX);
        let mut entries = Vec::with_capacity(limit.min(behind.len()));
        while entries.len() < limit
            && let Some((key, place)) = behind.next()
        {
            match entry_at(&table, *place, key)? {
                Ok(entry) => entries.push(entry),
                Err(malformed) => {
                    tracing::error!(key = %String::from_utf8_lossy(key), "{malformed}: it is left out of a list");
                }
            }
        }
        Ok(Part { entries, more: 0 < behind.len(), revision })
    }

    /// Finds an entry among the changes of its revision, where a search by its key would read all heads.
    fn entry(&self, key: &Bytes, at: Revision) -> Result<Option<Entry>, Error> {
        let transaction = self.database()?.begin_read().map_err(unreadable)?;
        let table = transaction.open_table(EVENTS).map_err(unreadable)?;
        for found in table.range((at.0, 0)..=(at.0, u32::MAX)).map_err(unreadable)? {
            let (place, stored) = found.map_err(unreadable)?;
            let Ok(parts) = format::split(place.value(), stored.value()) else { continue };
            if *parts.head.key != **key {
                continue;
            }
            let value = parts.value(at).ok().flatten();
            return Ok(value.map(|value| Entry { key: key.clone(), revision: at, value }));
        }
        Ok(None)
    }

    fn history(&self, request: &Past) -> Result<Changes, Error> {
        let through = request.through.min(self.tail.revision());
        let database = self.database()?;
        let transaction = database.begin_read().map_err(unreadable)?;
        self.check_kept(request.after)?;
        let table = transaction.open_table(EVENTS).map_err(unreadable)?;
        let mut changes: Vec<Change> = Vec::new();
        let mut reached = request.after;
        let mut sequence = Sequence::after(request.after);
        let entries = table.range((request.after.0 + 1, 0)..=(through.0, u32::MAX)).map_err(unreadable)?;
        for (n_seen, entry) in entries.enumerate() {
            let (at, stored) = entry.map_err(unreadable)?;
            let revision = Revision(at.value().0);
            let is_enough = request.limit.max(1) <= changes.len() || HISTORY_CHANGES_MAX <= n_seen;
            if is_enough && reached != revision {
                return Ok(Changes { changes, progress: reached });
            }
            reached = revision;
            let head = format::split(at.value(), stored.value())?.head;
            sequence.next(at.value(), head.position)?;
            if head.key.starts_with(&request.prefix) {
                let event = format::decode(at.value(), stored.value())?;
                let previous = match head.previous {
                    Some(place) => Some(entry_at(&table, place, head.key)??),
                    None => None,
                };
                changes.push(Change { event, previous });
            }
        }
        sequence.end(through)?;
        Ok(Changes { changes, progress: through.max(request.after) })
    }

    /// Changes from the file: whole transactions after a revision.
    fn log(&self, after: Revision) -> Result<Vec<Event>, Error> {
        let newest = self.tail.revision();
        let database = self.database()?;
        let transaction = database.begin_read().map_err(unreadable)?;
        self.check_kept(after)?;
        let table = transaction.open_table(EVENTS).map_err(unreadable)?;
        let mut events: Vec<Event> = Vec::new();
        let mut sequence = Sequence::after(after);
        for entry in table.range((after.0 + 1, 0)..).map_err(unreadable)? {
            let (at, stored) = entry.map_err(unreadable)?;
            let revision = Revision(at.value().0);
            if PULL_EVENTS_MAX <= events.len() && events.last().is_some_and(|last| last.revision != revision) {
                return Ok(events);
            }
            sequence.next(at.value(), format::split(at.value(), stored.value())?.head.position)?;
            events.push(format::decode(at.value(), stored.value())?);
        }
        sequence.end(newest)?;
        Ok(events)
    }
}

impl Older for Arc<Shared> {
    fn older(&self, after: Revision, _floor: Revision) -> Result<Vec<Event>, Error> {
        self.guard(|| self.log(after))
    }
}

impl tail::Renewing for Arc<Shared> {
    fn renewals(&self) -> Renewals {
        Shared::renewals(self)
    }

    fn is_renewed(&self, seen: Renewals) -> BoxFuture<'_, bool> {
        Box::pin(Shared::is_renewed(self, seen))
    }
}

/// Turns a panic of `work` into an error.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Panicked(text.unwrap_or("the panic has no message").to_owned())
    })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The error of every write after one has failed.
fn poisoned(source: &Cause) -> Error {
    let of_write = source.downcast_ref::<redb::Error>().and_then(|error| match error {
        redb::Error::Io(error) => Some(error),
        _ => None,
    });
    let of_renewal = source.downcast_ref::<OpenError>().and_then(|error| match error {
        OpenError::Rebuild { source, .. } | OpenError::Unsynced { source, .. } => Some(source),
        _ => None,
    });
    let remedy = match of_write.or(of_renewal).map(io::Error::kind) {
        Some(io::ErrorKind::FileTooLarge) => Remedy::RaiseLimit,
        Some(io::ErrorKind::QuotaExceeded | io::ErrorKind::StorageFull) => Remedy::MakeRoom,
        _ => Remedy::Restart,
    };
    Error::Poisoned { remedy, source: source.clone() }
}

/// The error of a read that redb cannot do.
fn unreadable(error: impl Into<redb::Error>) -> Error {
    let error: redb::Error = error.into();
    Error::Read { source: Arc::new(error) }
}

// === impl Kv ===

impl Kv for Disk {
    fn is_shared(&self) -> bool {
        false
    }

    fn engine(&self) -> &'static str {
        "embedded"
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(std::future::ready(Ok(self.shared.tail.revision())))
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        self.blocking(Shared::read)
    }

    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        self.blocking(move |shared| shared.load(&*take))
    }

    fn scan(&self) -> BoxFuture<'_, Result<Box<dyn Scan>, Error>> {
        Box::pin(async {
            let scan = self.blocking(Scanning::begin).await?;
            Ok(Box::new(scan) as Box<dyn Scan>)
        })
    }

    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        self.past(move |shared| shared.range(&request))
    }

    fn entry(&self, key: Bytes, at: Revision) -> BoxFuture<'_, Result<Option<Entry>, Error>> {
        Box::pin(self.blocking(move |shared| shared.entry(&key, at)))
    }

    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        self.past(move |shared| shared.history(&request))
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(std::future::ready(Ok(Revision(self.shared.compacted.load(Ordering::Acquire)))))
    }

    fn damaged(&self) -> Vec<Damaged> {
        let damaged = self.shared.damaged.lock();
        let all = damaged.iter().map(|(key, malformed)| Damaged {
            key: key.clone(),
            revision: malformed.revision,
            fault: malformed.fault.to_owned(),
        });
        all.collect()
    }

    fn volume(&self) -> Option<Volume> {
        Some(*self.shared.volume.lock())
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        let queued = self.enqueue(txn);
        Box::pin(async { queued?.await.unwrap_or_else(|_| Err(self.shared.poison_by_panic())) })
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        Box::new(Reader::new(Cursor::new(self.shared.tail.clone(), after), self.shared.clone()))
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        let queued = self.enqueue_compaction(through);
        Box::pin(async { queued?.await.unwrap_or_else(|_| Err(self.shared.poison_by_panic())) })
    }

    fn health(&self) -> Result<(), Error> {
        self.shared.health()?;
        if self.queue.lock().is_some() { Ok(()) } else { Err(Error::Closed) }
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.close_queue();
        Box::pin(async {
            let done = self.done.lock().take();
            if let Some((done, thread)) = done {
                thread.thread().unpark();
                // The thread drops its end of the channel as its last action.
                let _ended = done.await;
                if thread.join().is_err() {
                    tracing::error!("the store's writer thread panicked");
                }
                self.shared.end();
            }
            self.shared.health()
        })
    }
}
