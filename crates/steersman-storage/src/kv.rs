//! The key-value contract under the objects: bytes in, bytes out, and one total order of changes.
//!
//! A transaction compares modification revisions and then changes keys; if it changes anything it takes the next revision,
//! whatever it touches. A watch pulls committed changes in that order, after they are durable. The contract maps one to one
//! onto etcd (compare on `mod_revision`, put, delete, watch from a revision, compact); engines in this crate are
//! [`crate::Memory`] and [`crate::Disk`], and [`crate::conformance`] holds them to it.
//!
//! An engine may be shared: other processes write to it, compact it, and it may be away for a while. So a revision may be
//! taken by changes of other keys, the first revision need not be one, history may be gone earlier than this process wants
//! ([`Error::Compacted`]), an operation may fail without having been tried ([`Error::Unavailable`]), and it may be
//! unknown whether a transaction was made ([`Error::Unknown`]).

pub mod key_map;
pub(crate) mod tail;
pub mod transformed;

use bytes::Bytes;
use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::Arc;
use steersman_machinery::Revision;

/// The longest key in bytes that any engine takes.
pub const KEY_BYTES_MAX: usize = 4 * 1024;
/// The largest value in bytes that any engine takes.
pub const VALUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most compares, and the most operations, in one transaction that any engine takes.
pub const TXN_OPS_MAX: usize = 128;

/// The approximate number of bytes in a part of a [`Scan`].
pub const SCAN_BYTES: usize = 1024 * 1024;

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Receives the entries of [`Kv::load`], a part at a time.
pub type Take = Arc<dyn Fn(Vec<Entry>) + Send + Sync>;

/// The cause of a failure below an engine. Shared, because one failed commit fails many writes.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// An engine: durable keys and values under one revision counter.
///
/// Guarantees: a transaction is applied whole or not at all; an acknowledged one is durable (as far as the engine is); a
/// call of [`Kv::revision`] that begins after an acknowledgement returns at least the transaction's revision; watches
/// return every change once, in order, and only after it is durable.
pub trait Kv: Debug + Send + Sync + 'static {
    /// Its name for a person, such as `etcd`.
    fn engine(&self) -> &'static str {
        "another engine"
    }

    /// The sizes that the engine takes.
    fn limits(&self) -> Limits {
        Limits::MAX
    }

    /// Whether other processes may write to it while this one does.
    fn is_shared(&self) -> bool;

    /// The newest committed revision.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// All entries at the newest revision.
    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>>;

    /// Passes all entries at the newest revision to `take`, in parts of no particular order and possibly from several
    /// threads, so that they need not all be in memory as with [`Kv::read`]. Returns the revision.
    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async move {
            let Snapshot { entries, revision } = self.read().await?;
            take(entries);
            Ok(revision)
        })
    }

    /// Begins to read all entries at the newest revision, a part at a time, while writes go on. Unlike [`Kv::load`] it holds no more
    /// than some parts in memory, so that a backup may take as long as its reader needs.
    ///
    /// The values are as they are stored, also where reads have them in another form ([`transformed`]).
    ///
    /// This default reads them all at once.
    fn scan(&self) -> BoxFuture<'_, Result<Box<dyn Scan>, Error>> {
        Box::pin(async move {
            let Snapshot { entries, revision } = self.read().await?;
            Ok(Box::new(Held { entries: entries.into_iter(), revision }) as Box<dyn Scan>)
        })
    }

    /// The entries whose keys begin with a prefix, in key order, at the newest revision or at an older one whose
    /// history is kept.
    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>>;

    /// The committed changes after one revision and up to another, of keys that begin with a prefix, in order and each
    /// with the previous entry of its key. Whole transactions, about `limit` changes.
    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>>;

    /// The keys that hold something which is not what was written. They hold nothing that can be read, and are free again when they
    /// are written or deleted at the revision that is given here. Complete after a [`Kv::load`]. Keys that turn out to be damaged later
    /// are added, and wake the watches.
    fn damaged(&self) -> Vec<Damaged> {
        Vec::new()
    }

    /// The bytes held now, and the bytes superseded so far; `None` if the engine does not know.
    fn volume(&self) -> Option<Volume>;

    /// The oldest revision after which history is kept.
    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// Runs a transaction. It may begin with this call, before the future is first polled.
    ///
    /// An engine that loses the answer first tries to find out what became of the transaction, and fails with
    /// [`Error::Unknown`] only if it cannot. It never makes a transaction twice.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what was queued: the transaction may still commit.
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>>;

    /// The entry of a key that was written at this revision. `None` if there is none, and `None` or that entry if another one has
    /// taken its place.
    fn entry(&self, key: Bytes, at: Revision) -> BoxFuture<'_, Result<Option<Entry>, Error>> {
        Box::pin(async move {
            let first = Range { limit: Some(1), prefix: key.clone(), ..Range::default() };
            let found = self.range(first).await?.entries.into_iter().next();
            Ok(found.filter(|entry| entry.key == key && entry.revision == at))
        })
    }

    /// Whether a write of the same value would change how it is stored: it may be encrypted with a key that is no longer the one
    /// for writes. False if there is no entry of this revision, and for a value that cannot be read.
    fn is_stale(&self, _key: Bytes, _at: Revision) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// The committed changes strictly after a revision. A revision that does not exist yet is waited for.
    fn watch(&self, after: Revision) -> Box<dyn Watch>;

    /// Removes history up to and including a revision: watches from before it end with [`Error::Compacted`]. Current
    /// values are kept. A revision beyond the newest means the newest.
    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>>;

    /// Whether writes are accepted. Fails with the error that every write would get, if it is a permanent one.
    fn health(&self) -> Result<(), Error>;

    /// Whether the engine has answered lately. Fails with [`Error::Unavailable`] while one that is elsewhere is away; one in this
    /// process never is.
    fn reachable(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Finishes what is queued, releases everything held, and ends each watch with [`Error::Closed`] once it has
    /// returned all that was committed. A second call does nothing.
    fn close(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// A reader of all entries at one revision: a cursor.
pub trait Scan: Send {
    /// The revision whose state is read.
    fn revision(&self) -> Revision;

    /// The next entries, in no particular order and about [`SCAN_BYTES`] at a time; none after the last.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the engine no longer has the state of the revision: begin anew. After that and any
    /// other error there is no next part, except where the embedded engine finds damaged entries: its [`Error::Read`] names them,
    /// and the next part goes on after them.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Entry>, Error>>;
}

/// A reader of committed changes: a cursor.
pub trait Watch: Send {
    /// The next changes, whole transactions, in order, and how far they lead. Waits until there are some, or until it is known
    /// that there are none up to a later revision: an engine that holds more than our keys moves on without changes of ours. There
    /// are none either when keys have turned out to be damaged, which [`Kv::damaged`] names. While an engine cannot be
    /// reached this waits, and then goes on without a gap.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the changes that come next are gone: load the current state and watch from there.
    ///
    /// # Cancel safety
    /// A dropped future has consumed nothing.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>>;
}

/// The next changes of a watch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    /// The changes.
    pub events: Vec<Event>,
    /// All changes up to this revision have been returned.
    pub progress: Revision,
}

/// Selects the entries that [`Kv::range`] returns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Range {
    /// The state at this revision; `None` for the newest.
    pub at: Option<Revision>,
    /// The most entries to return; `None` for all.
    pub limit: Option<usize>,
    /// Only keys with this prefix.
    pub prefix: Bytes,
    /// Only keys after this one.
    pub start_after: Option<Bytes>,
}

/// Entries in the order of their keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether more entries follow the last.
    pub more: bool,
    /// The revision whose state this is.
    pub revision: Revision,
}

/// Selects the changes that [`Kv::history`] returns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Past {
    /// Only changes after this revision.
    pub after: Revision,
    /// About how many changes to return; one transaction at least.
    pub limit: usize,
    /// Only changes of keys with this prefix.
    pub prefix: Bytes,
    /// Only changes up to this revision.
    pub through: Revision,
}

/// Past changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changes {
    /// The changes in order.
    pub changes: Vec<Change>,
    /// All changes up to this revision are included.
    pub progress: Revision,
}

/// A change, and the entry that it replaced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The change.
    pub event: Event,
    /// The previous entry of the key.
    pub previous: Option<Entry>,
}

/// A key whose stored value is damaged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damaged {
    /// The key.
    pub key: Bytes,
    /// The revision that wrote it.
    pub revision: Revision,
    /// The fault.
    pub fault: String,
}

/// The approximate size of an engine's data, in bytes as stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Volume {
    /// The size of the current entries.
    pub live: u64,
    /// The revision of these figures.
    pub revision: Revision,
    /// The size of the entries that changes up to that revision have superseded. Only grows while the engine is open.
    /// The size of the history kept is this value less its value at the revision of the last compaction; at open, all
    /// of it is kept.
    pub superseded: u64,
}

/// The sizes that an engine takes. What is larger is refused with [`Error::TooLarge`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The longest key in bytes.
    pub key_bytes: usize,
    /// The most compares, and the most operations, in one transaction.
    pub txn_ops: usize,
    /// The largest value in bytes.
    pub value_bytes: usize,
}

/// All keys at one revision.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// Sorted by the bytes of their keys.
    pub entries: Vec<Entry>,
    /// The revision whose state this is.
    pub revision: Revision,
}

/// A key and its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The revision that wrote the value.
    pub revision: Revision,
    /// The value.
    pub value: Bytes,
}

/// A committed change of one key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// The key.
    pub key: Bytes,
    /// The revision of the transaction.
    pub revision: Revision,
    /// The new value of the key; `None` if it was deleted.
    pub value: Option<Bytes>,
}

/// A set of changes that are made together if every compare holds, and not at all otherwise.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Txn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The changes to make if all conditions hold. No key appears twice. Deleting an absent key is no change.
    pub ops: Vec<Op>,
}

/// A condition on one key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compare {
    /// The key.
    pub key: Bytes,
    /// The condition that the key must meet.
    pub expect: Expect,
}

/// The state that a [`Compare`] requires of its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expect {
    /// The key has no value.
    Absent,
    /// The value was written at this revision.
    At(Revision),
}

/// A change of one key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Op {
    /// Removes the key's value.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Sets the key's value.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
}

/// The outcome of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The changes are made and durable.
    Committed {
        /// Its revision; the newest one if it changed nothing.
        revision: Revision,
    },
    /// A compare did not hold; nothing was changed.
    Failed {
        /// The revision at which the compares were evaluated.
        revision: Revision,
        /// For each compare, the revision at which its key was last written; `None` if the key has no value.
        found: Vec<Option<Revision>>,
    },
}

/// The remedy for a failed write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// The disk was full.
    MakeRoom,
    /// The file has reached the largest size that the process may write.
    RaiseLimit,
    /// The cause says what else to do.
    Restart,
}

/// The error of an engine.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Too many writes wait already. Try again shortly; nothing was done.
    #[error("the store's write queue is full: try again shortly")]
    Busy,
    /// The engine was closed.
    #[error("the store is closed")]
    Closed,
    /// The revision is older than the history that is kept. Start over from the current state; retrying cannot help.
    #[error("revision {requested} is compacted (oldest is {oldest})")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest revision after which a watch can start.
        oldest: Revision,
    },
    /// A transaction changes one key twice.
    #[error("the transaction changes key {key:?} twice")]
    Duplicate {
        /// The key.
        key: Bytes,
    },
    /// The engine has no room for the write. Nothing was done. Reads and deletions go on.
    #[error("the store has no room for the write: {remedy}")]
    Full {
        /// The remedy, for an operator.
        remedy: &'static str,
    },
    /// An earlier write failed, so the content of the disk is unknown and nothing more is written. A reopen shows
    /// whether writes that got this error happened.
    #[error("the store takes no writes after one failed: {remedy}")]
    Poisoned {
        /// The remedy.
        remedy: Remedy,
        /// The earlier failure.
        #[source]
        source: Cause,
    },
    /// The stored data cannot be read.
    #[error("the store cannot be read")]
    Read {
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The engine does not allow the request, which another try does not change. Nothing was done.
    #[error("the store refuses the request")]
    Refused {
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The store is no longer the one that this process has followed: its revision went back, or it is another store. Nothing
    /// more is read or written, since clients that know later revisions would miss changes.
    #[error("the store was replaced while it was open ({fault}): restart to go on with what is stored now")]
    Replaced {
        /// The fault.
        fault: String,
    },
    /// A part of the transaction exceeds a limit.
    #[error("{what} of {actual} exceeds the maximum of {max}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The limit.
        max: usize,
    },
    /// The engine cannot be reached, or cannot do this now. Nothing was done: try again later.
    #[error("the store cannot be reached at present")]
    Unavailable {
        /// The cause.
        #[source]
        source: Cause,
    },
    /// A value cannot be encrypted. Nothing was done: try again later.
    #[error("the value cannot be encrypted at present: see kms-providers in /readyz, and the log")]
    Unsealed {
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The transaction was sent, and neither its answer nor what became of it could be found out. It may have been made, and
    /// may still be made: read before deciding anything.
    #[error("it is unknown whether the store took the write")]
    Unknown {
        /// The cause.
        #[source]
        source: Cause,
    },
}

impl Error {
    /// Whether nothing was done and the same call may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Busy | Error::Unavailable { .. } | Error::Unsealed { .. })
    }
}

// === impl Held ===

/// A scan of entries that are in memory.
struct Held {
    entries: std::vec::IntoIter<Entry>,
    revision: Revision,
}

impl Scan for Held {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        let (mut part, mut n_bytes) = (Vec::new(), 0);
        while n_bytes < SCAN_BYTES
            && let Some(entry) = self.entries.next()
        {
            n_bytes += entry.key.len() + entry.value.len();
            part.push(entry);
        }
        Box::pin(std::future::ready(Ok(part)))
    }
}

// === impl Limits ===

impl Limits {
    /// The most that any engine takes, and what the engines of this crate take.
    pub const MAX: Limits = Limits { key_bytes: KEY_BYTES_MAX, txn_ops: TXN_OPS_MAX, value_bytes: VALUE_BYTES_MAX };
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::MakeRoom => "its disk is full, so make room and restart to recover",
            Remedy::RaiseLimit => {
                "its file has reached the process's limit of file sizes, so raise that (ulimit -f) and restart to recover"
            }
            Remedy::Restart => "restart to recover",
        })
    }
}

// === impl Txn ===

impl Txn {
    /// A put or a delete under one condition: the form of every object write.
    pub fn single(expect: Expect, op: Op) -> Txn {
        Txn { compares: vec![Compare { key: op.key().clone(), expect }], ops: vec![op] }
    }

    /// Checks the sizes, and that no key is changed twice. Needs no state.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::Duplicate`].
    pub fn validate(&self, limits: &Limits) -> Result<(), Error> {
        bound("a transaction's number of compares", self.compares.len(), limits.txn_ops)?;
        bound("a transaction's number of operations", self.ops.len(), limits.txn_ops)?;
        for compare in &self.compares {
            bound("a key's number of bytes", compare.key.len(), limits.key_bytes)?;
        }
        for (at, op) in self.ops.iter().enumerate() {
            bound("a key's number of bytes", op.key().len(), limits.key_bytes)?;
            if let Op::Put { value, .. } = op {
                bound("a value's number of bytes", value.len(), limits.value_bytes)?;
            }
            if self.ops[..at].iter().any(|other| other.key() == op.key()) {
                return Err(Error::Duplicate { key: op.key().clone() });
            }
        }
        Ok(())
    }

    /// The bytes that it occupies while it is queued.
    pub fn weight(&self) -> usize {
        let compares: usize = self.compares.iter().map(|compare| compare.key.len()).sum();
        let ops: usize = self.ops.iter().map(Op::weight).sum();
        compares + ops
    }
}

/// Checks all compares against the revisions at which their keys were last written. Fails with the revisions found.
pub fn hold(compares: &[Compare], written_at: impl Fn(&[u8]) -> Option<Revision>) -> Result<(), Vec<Option<Revision>>> {
    let met = |compare: &Compare| match compare.expect {
        Expect::Absent => written_at(&compare.key).is_none(),
        Expect::At(revision) => written_at(&compare.key) == Some(revision),
    };
    if compares.iter().all(met) {
        return Ok(());
    }
    Err(compares.iter().map(|compare| written_at(&compare.key)).collect())
}

fn bound(what: &'static str, actual: usize, max: usize) -> Result<(), Error> {
    if actual <= max { Ok(()) } else { Err(Error::TooLarge { what, actual, max }) }
}

// === impl Op, Event ===

impl Op {
    /// The changed key.
    pub fn key(&self) -> &Bytes {
        match self {
            Op::Delete { key } | Op::Put { key, .. } => key,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Op::Delete { key } => key.len(),
            Op::Put { key, value } => key.len() + value.len(),
        }
    }
}

impl Event {
    /// The bytes that it keeps alive.
    pub(crate) fn weight(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}
