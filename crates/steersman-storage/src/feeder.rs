//! The only task that writes the cache: it pulls the engine's log and applies it in revision order.
//!
//! It also trims the history in memory by age, and has the engine compact history that is too old. It ends when the engine is
//! closed, or on a failure, which the store then reports.

use crate::cache::Cache;
use crate::kv::{self, Kv, Watch};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use steersman_machinery::Revision;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often history is trimmed by age.
const TRIM_EVERY: Duration = Duration::from_secs(15);
/// The most pairs of time and revision that are remembered. A long history is compacted in steps of this fraction of it.
const SAMPLES_MAX: u32 = 1_024;

pub(crate) struct Feeder {
    pub(crate) cache: Arc<Cache>,
    /// How long the engine keeps history; `None` if another store compacts it.
    pub(crate) history: Option<Duration>,
    pub(crate) kv: Arc<dyn Kv>,
    /// The oldest revision of which the engine has history.
    pub(crate) oldest: Arc<AtomicU64>,
    pub(crate) watch: Box<dyn Watch>,
}

/// Samples of the newest revision over time, from which follows which revision is older than a duration. Ascending by both.
struct RevisionTimes {
    every: Duration,
    history: Duration,
    samples: VecDeque<(Instant, Revision)>,
}

impl Feeder {
    /// Runs until the engine is closed. The cache is closed on every exit, also when the task is aborted.
    pub(crate) async fn run(mut self) {
        let cache = Closing(self.cache.clone());
        match self.follow().await {
            kv::Error::Closed => tracing::debug!("the store is closed"),
            error => tracing::error!(cause = %error, "the log cannot be followed: reads and watches end here"),
        }
        drop(cache);
    }

    async fn follow(&mut self) -> kv::Error {
        let mut times =
            self.history.map(|history| RevisionTimes::new(history, Instant::now(), self.cache.applied().revision));
        let mut compaction: Option<kv::BoxFuture<'static, ()>> = None;
        let mut trim = interval(TRIM_EVERY);
        trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Yields now and then, even if the log always has more.
            tokio::task::coop::consume_budget().await;
            // All arms are cancel-safe: a dropped pull has consumed nothing, and the compaction is kept outside of the loop.
            tokio::select! {
                pulled = self.watch.next() => match pulled {
                    Ok(batch) => self.cache.apply(batch, Instant::now()),
                    Err(error) => return error,
                },
                () = async { if let Some(compaction) = &mut compaction { compaction.await } }, if compaction.is_some() => {
                    compaction = None;
                }
                _ = trim.tick() => {
                    let now = Instant::now();
                    self.cache.trim(now);
                    let applied = self.cache.applied().revision;
                    let due = times.as_mut().and_then(|times| times.pass(now, applied));
                    if let Some(through) = due && compaction.is_none() {
                        compaction = Some(compact(self.kv.clone(), self.oldest.clone(), through));
                    }
                }
            }
        }
    }
}

impl RevisionTimes {
    fn new(history: Duration, now: Instant, revision: Revision) -> RevisionTimes {
        RevisionTimes { every: history / SAMPLES_MAX, history, samples: VecDeque::from([(now, revision)]) }
    }

    /// Records the newest revision, and returns the newest one that is older than the history to keep.
    fn pass(&mut self, now: Instant, newest: Revision) -> Option<Revision> {
        if self.samples.back().is_none_or(|(at, revision)| *revision < newest && self.every <= now.duration_since(*at))
        {
            self.samples.push_back((now, newest));
        }
        let mut due = None;
        while let Some((_, revision)) = self.samples.pop_front_if(|(at, _)| self.history <= now.duration_since(*at)) {
            due = Some(revision);
        }
        due
    }
}

fn compact(kv: Arc<dyn Kv>, oldest: Arc<AtomicU64>, through: Revision) -> kv::BoxFuture<'static, ()> {
    Box::pin(async move {
        // `oldest` may be behind for a moment. Readers then ask the engine, which answers `Compacted` itself.
        match kv.compact(through).await {
            Ok(()) => drop(oldest.fetch_max(through.0, Ordering::AcqRel)),
            Err(error) => tracing::warn!(%through, "the store was not compacted: {error}"),
        }
    })
}

struct Closing(Arc<Cache>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_newest_longer_ago_than_history_is_compacted() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut times = RevisionTimes::new(Duration::from_secs(60), start, Revision(5));
        assert_eq!(times.pass(at(15), Revision(9)), None);
        assert_eq!(times.pass(at(30), Revision(9)), None);
        assert_eq!(times.pass(at(59), Revision(20)), None);
        assert_eq!(times.pass(at(60), Revision(21)), Some(Revision(5)));
        assert_eq!(times.pass(at(90), Revision(21)), Some(Revision(9)));
        assert_eq!(times.pass(at(91), Revision(21)), None);
        assert_eq!(times.pass(at(500), Revision(21)), Some(Revision(21)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_history_is_remembered_in_few_samples() {
        let start = Instant::now();
        let mut times = RevisionTimes::new(Duration::from_secs(7 * 24 * 3_600), start, Revision(0));
        for n in 0..50_000 {
            times.pass(start + TRIM_EVERY * n, Revision(u64::from(n)));
        }
        assert!(times.samples.len() <= 2 * SAMPLES_MAX as usize, "{}", times.samples.len());
    }
}
