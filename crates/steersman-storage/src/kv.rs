//! The key-value contract under the objects: bytes in, bytes out, and one total order of changes.
//!
//! A transaction compares modification revisions and then changes keys; if it changes anything it takes the next revision,
//! whatever it touches. A watch pulls committed changes in that order, after they are durable. The contract maps one to one
//! onto etcd (compare on `mod_revision`, put, delete, watch from a revision, compact); engines in this crate are
//! [`crate::Memory`] and [`crate::Disk`], and [`crate::conformance`] holds them to it.

use bytes::Bytes;
use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::Arc;
use steersman_machinery::Revision;

/// Longest key, in bytes. A longer one is refused with [`Error::TooLarge`].
pub const KEY_BYTES_MAX: usize = 4 * 1024;
/// Largest value, in bytes. A larger one is refused with [`Error::TooLarge`].
pub const VALUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most compares and most operations in one transaction. More are refused with [`Error::TooLarge`].
pub const TXN_OPS_MAX: usize = 128;

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Receives the parts of a [`Kv::load`].
pub type Take = Arc<dyn Fn(Vec<Entry>) + Send + Sync>;

/// The cause of a failure below an engine. Shared, because one failed commit fails many writes.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// An engine: durable keys and values under one revision counter.
///
/// Guarantees: a transaction is applied whole or not at all; an acknowledged one is durable (as far as the engine is); a
/// [`Kv::revision`] asked for after an acknowledgement is at least that transaction's; watches see every change once, in
/// order, and only after it is durable.
pub trait Kv: Debug + Send + Sync + 'static {
    /// The newest committed revision.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// All entries at the newest revision.
    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>>;

    /// Passes all entries at the newest revision to `take`, in parts of no particular order, perhaps from several threads: as
    /// [`Kv::read`], without holding all of them in memory. Returns the revision.
    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async move {
            let Snapshot { entries, revision } = self.read().await?;
            take(entries);
            Ok(revision)
        })
    }

    /// The entries whose keys begin with a prefix, in the order of their keys, as they are or as they were at a revision of
    /// which history is kept.
    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>>;

    /// The committed changes strictly after a revision up to another one, of keys that begin with a prefix, in order, and what
    /// each key held before: whole transactions, about `limit` of them.
    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>>;

    /// The keys that hold something which is not what was written. They hold nothing that can be read, and are free again when they
    /// are written or deleted at the revision that is given here. Complete after a [`Kv::load`]. Keys that turn out to be damaged later
    /// are added, and wake the watches.
    fn damaged(&self) -> Vec<Damaged> {
        Vec::new()
    }

    /// How much is held, and how much was superseded so far.
    fn volume(&self) -> Volume;

    /// History after this revision is kept.
    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// Runs a transaction. It may begin with this call, before the future is first polled.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what was queued: the transaction may still commit.
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>>;

    /// The committed changes strictly after a revision. A revision of the future is waited for.
    fn watch(&self, after: Revision) -> Box<dyn Watch>;

    /// Removes history up to and including a revision: watches from before it end with [`Error::Compacted`]. The current values
    /// are kept. A revision beyond the newest means the newest.
    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>>;

    /// Whether writes are accepted. Fails with the error that every write would get, if it is a permanent one.
    fn health(&self) -> Result<(), Error>;

    /// Finishes what is queued, releases everything held, ends the watches with [`Error::Closed`] once they have seen all
    /// that was committed. Closing twice is closing once.
    fn close(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// A reader of committed changes: a cursor.
pub trait Watch: Send {
    /// The next changes, whole transactions, in order, and how far they lead. Waits until there are some, or until it is known
    /// that there are none up to a later revision: an engine that holds more than our keys moves on without changes of ours. There
    /// are none either when keys have turned out to be damaged, which [`Kv::damaged`] names.
    ///
    /// # Cancel safety
    /// A dropped future has consumed nothing.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>>;
}

/// What a watch has next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    /// The changes.
    pub events: Vec<Event>,
    /// All changes up to this revision have been handed out.
    pub progress: Revision,
}

/// Which entries are asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Range {
    /// The state at this revision; `None` for the newest.
    pub at: Option<Revision>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Those whose keys begin so.
    pub prefix: Bytes,
    /// Those behind this key.
    pub start_after: Option<Bytes>,
}

/// Entries in the order of their keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether others follow behind the last.
    pub more: bool,
    /// The revision this is the state of.
    pub revision: Revision,
}

/// Which changes of the past are asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Past {
    /// Those after this revision.
    pub after: Revision,
    /// About so many, and at least one transaction.
    pub limit: usize,
    /// Those of keys that begin so.
    pub prefix: Bytes,
    /// Those up to this revision.
    pub through: Revision,
}

/// Changes of the past.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changes {
    /// In order.
    pub changes: Vec<Change>,
    /// All changes up to this revision are in there.
    pub progress: Revision,
}

/// A change and what was there before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// What happened.
    pub event: Event,
    /// What the key held before.
    pub previous: Option<Entry>,
}

/// A key that holds something which is not what was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damaged {
    /// The key.
    pub key: Bytes,
    /// The revision that wrote it.
    pub revision: Revision,
    /// The fault.
    pub fault: String,
}

/// How much an engine holds, about, in bytes as they are stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Volume {
    /// What the keys hold now.
    pub live: u64,
    /// The revision these figures are of.
    pub revision: Revision,
    /// What changes up to that revision have superseded. Only grows while the engine is open. The history that is kept is the
    /// difference between now and the revision through which it is compacted; at open, everything that is kept.
    pub superseded: u64,
}

/// All keys at one revision.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// In the order of the keys' bytes.
    pub entries: Vec<Entry>,
    /// The revision this is the state of.
    pub revision: Revision,
}

/// A key and what it holds.
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
    /// What the key holds from here on; `None` when it is gone.
    pub value: Option<Bytes>,
}

/// Compares, then changes: all of the changes if every compare holds, none otherwise.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Txn {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is done then. No key twice. Deleting what is not there is no change.
    pub ops: Vec<Op>,
}

/// A condition on one key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compare {
    /// The key.
    pub key: Bytes,
    /// What must be true of it.
    pub expect: Expect,
}

/// What a [`Compare`] asks of its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expect {
    /// It holds nothing.
    Absent,
    /// What it holds was written at this revision.
    At(Revision),
}

/// A change of one key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Op {
    /// The key shall hold nothing.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// The key shall hold the value.
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
    /// Its changes are made and durable.
    Committed {
        /// Its revision; the newest one if it changed nothing.
        revision: Revision,
    },
    /// A compare did not hold; nothing was changed.
    Failed {
        /// The revision at which the compares were looked at.
        revision: Revision,
        /// For each compare, the revision its key was last written at; `None` when the key holds nothing.
        found: Vec<Option<Revision>>,
    },
}

/// What helps after a failed write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// The disk was full.
    MakeRoom,
    /// The file has reached the largest size that the process may write.
    RaiseLimit,
    /// The cause says what else is to be done.
    Restart,
}

/// Why an engine failed.
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
        /// What was asked for.
        requested: Revision,
        /// The oldest revision a watch can start after.
        oldest: Revision,
    },
    /// A transaction changes one key twice.
    #[error("the transaction changes key {key:?} twice")]
    Duplicate {
        /// The key.
        key: Bytes,
    },
    /// A write failed, so what is on disk is unknown and nothing more is written. Whether writes that got this error happened
    /// is known after a reopen.
    #[error("the store takes no writes after one failed: {remedy}")]
    Poisoned {
        /// What helps.
        remedy: Remedy,
        /// The failure.
        #[source]
        source: Cause,
    },
    /// What is stored cannot be read.
    #[error("the store cannot be read")]
    Read {
        /// Why.
        #[source]
        source: Cause,
    },
    /// A part of the transaction is larger than the store takes.
    #[error("{what} of {actual} exceeds the maximum of {max}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The largest size taken.
        max: usize,
    },
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
    /// One put or delete under one condition, the shape of every object write.
    pub fn single(expect: Expect, op: Op) -> Txn {
        Txn { compares: vec![Compare { key: op.key().clone(), expect }], ops: vec![op] }
    }

    /// Checks what needs no state: sizes, and that no key is changed twice.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        bound("a transaction's number of compares", self.compares.len(), TXN_OPS_MAX)?;
        bound("a transaction's number of operations", self.ops.len(), TXN_OPS_MAX)?;
        for compare in &self.compares {
            bound("a key's number of bytes", compare.key.len(), KEY_BYTES_MAX)?;
        }
        for (at, op) in self.ops.iter().enumerate() {
            bound("a key's number of bytes", op.key().len(), KEY_BYTES_MAX)?;
            if let Op::Put { value, .. } = op {
                bound("a value's number of bytes", value.len(), VALUE_BYTES_MAX)?;
            }
            if self.ops[..at].iter().any(|other| other.key() == op.key()) {
                return Err(Error::Duplicate { key: op.key().clone() });
            }
        }
        Ok(())
    }

    /// What it occupies while it waits.
    pub(crate) fn weight(&self) -> usize {
        let compares: usize = self.compares.iter().map(|compare| compare.key.len()).sum();
        let ops: usize = self.ops.iter().map(Op::weight).sum();
        compares + ops
    }
}

/// Whether all compares hold, given where each key was last written; the revisions found where one does not.
pub(crate) fn hold(
    compares: &[Compare],
    written_at: impl Fn(&[u8]) -> Option<Revision>,
) -> Result<(), Vec<Option<Revision>>> {
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
    /// The key it changes.
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
    /// Bytes it keeps alive.
    pub(crate) fn weight(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}
