//! An engine that a test can delay or fail.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::Memory;
use steersman_storage::kv::{
    Batch, BoxFuture, Changes, Error, Kv, Op, Outcome, Part, Past, Range, Snapshot, Txn, Volume, Watch,
};

/// Runs before a transaction.
type Before = dyn Fn(&Txn) -> BoxFuture<'static, Result<(), Error>> + Send + Sync;

/// The memory engine with a function before each transaction, and another one between its commit and its answer.
pub(crate) struct Engine {
    memory: Arc<Memory>,
    /// How long each change takes to the watches, of an engine that several servers share.
    lag: Option<Duration>,
    before: Box<Before>,
    after: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    is_away: Arc<AtomicBool>,
}

impl Engine {
    pub(crate) fn new(
        before: impl Fn(&Txn) -> BoxFuture<'static, Result<(), Error>> + Send + Sync + 'static,
    ) -> Engine {
        Engine {
            memory: Arc::default(),
            lag: None,
            before: Box::new(before),
            after: Box::new(|| Box::pin(async {})),
            is_away: Arc::default(),
        }
    }

    /// An engine over a memory that other servers share. Its watches lag behind by this time.
    pub(crate) fn sharing(memory: Arc<Memory>, lag: Duration) -> Engine {
        Engine { memory, lag: Some(lag), ..Engine::new(|_| Box::pin(async { Ok(()) })) }
    }

    /// The switch that makes the engine say that it cannot be reached.
    pub(crate) fn away(&self) -> Arc<AtomicBool> {
        self.is_away.clone()
    }

    /// The same engine, whose transactions are answered only when this future ends.
    pub(crate) fn answering_after(self, after: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Engine {
        Engine { after: Box::new(after), ..self }
    }
}

/// Whether a transaction puts a key that contains this text.
pub(crate) fn puts(txn: &Txn, part: &str) -> bool {
    txn.ops.iter().any(|op| matches!(op, Op::Put { key, .. } if String::from_utf8_lossy(key).contains(part)))
}

/// Whether a transaction puts a value that contains this text.
pub(crate) fn says(txn: &Txn, part: &str) -> bool {
    txn.ops.iter().any(|op| matches!(op, Op::Put { value, .. } if String::from_utf8_lossy(value).contains(part)))
}

/// A watch whose changes come late. The clock of its tests is paused (`start_paused = true`).
struct Lagging {
    lag: Duration,
    watch: Box<dyn Watch>,
    next: Option<Batch>,
}

impl Watch for Lagging {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        Box::pin(async {
            if self.next.is_none() {
                self.next = Some(self.watch.next().await?);
            }
            tokio::time::sleep(self.lag).await;
            Ok(self.next.take().unwrap())
        })
    }
}

impl Kv for Engine {
    fn is_shared(&self) -> bool {
        self.lag.is_some()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.memory.revision()
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        self.memory.read()
    }

    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        self.memory.range(request)
    }

    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        self.memory.history(request)
    }

    fn volume(&self) -> Option<Volume> {
        self.memory.volume()
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.memory.oldest()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        let before = (self.before)(&txn);
        Box::pin(async move {
            before.await?;
            let outcome = self.memory.txn(txn).await;
            (self.after)().await;
            outcome
        })
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        let watch = self.memory.watch(after);
        match self.lag {
            Some(lag) => Box::new(Lagging { lag, watch, next: None }),
            None => watch,
        }
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.compact(through)
    }

    fn health(&self) -> Result<(), Error> {
        self.memory.health()
    }

    fn reachable(&self) -> Result<(), Error> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(Error::Unavailable { source: Arc::new(io::Error::other("away, as this test wants it")) }),
            false => Ok(()),
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.close()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
