//! The one task that writes the cache: it pulls the engine's log and applies it, in revision order.
//!
//! Also keeps house: trims history by age, and lets the engine compact what the log no longer needs. Ends when the engine is
//! closed, or on a failure, which it leaves for the store to report.

use crate::cache::{Cache, Unreadable};
use crate::kv::{self, Kv, Watch};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often history is trimmed by age.
const TRIM_EVERY: Duration = Duration::from_secs(15);

/// Why the cache stopped following the log.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("the log cannot be followed")]
    Kv(#[source] kv::Error),
    #[error("the log holds what is no object")]
    Unreadable(#[source] Unreadable),
}

pub(crate) struct Feeder {
    pub(crate) cache: Arc<Cache>,
    /// Compact once so many revisions have come since the last time, or as many as there are objects if that is more.
    pub(crate) compact_after: u64,
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) watch: Box<dyn Watch>,
}

impl Feeder {
    /// Runs until the engine is closed. The cache is closed on every way out, a cancelled one too.
    pub(crate) async fn run(mut self) {
        let cache = Closing(self.cache.clone());
        match self.follow().await {
            Stop::Kv(kv::Error::Closed) => tracing::debug!("the store is closed"),
            stop => {
                let cause = std::error::Error::source(&stop).map(ToString::to_string).unwrap_or_default();
                tracing::error!(cause, "{stop}: reads and watches end here");
            }
        }
        drop(cache);
    }

    async fn follow(&mut self) -> Stop {
        let mut compacted = self.cache.applied().revision;
        let mut compaction: Option<kv::BoxFuture<'static, ()>> = None;
        let mut trim = interval(TRIM_EVERY);
        trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // A log that never runs dry must not keep the thread.
            tokio::task::coop::consume_budget().await;
            // All arms are cancel-safe: a pull that is dropped has consumed nothing, the compaction is kept.
            tokio::select! {
                pulled = self.watch.next() => {
                    let events = match pulled {
                        Ok(events) => events,
                        Err(error) => return Stop::Kv(error),
                    };
                    if let Err(error) = self.cache.apply(events, Instant::now()) {
                        return Stop::Unreadable(error);
                    }
                    let applied = self.cache.applied().revision;
                    if compaction.is_none() && self.is_due(compacted, applied) {
                        compacted = applied;
                        compaction = Some(compact(self.kv.clone(), applied));
                    }
                }
                () = async { if let Some(compaction) = &mut compaction { compaction.await } }, if compaction.is_some() => {
                    compaction = None;
                }
                _ = trim.tick() => self.cache.trim(Instant::now()),
            }
        }
    }

    fn is_due(&self, compacted: Revision, applied: Revision) -> bool {
        let since = applied.0 - compacted.0;
        since >= self.compact_after && since >= self.cache.count() as u64
    }
}

/// History that the cache has applied is in its rings; the engine need not keep it.
fn compact(kv: Arc<dyn Kv>, through: Revision) -> kv::BoxFuture<'static, ()> {
    Box::pin(async move {
        if let Err(error) = kv.compact(through).await {
            tracing::warn!(%through, "the store was not compacted: {error}");
        }
    })
}

struct Closing(Arc<Cache>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
