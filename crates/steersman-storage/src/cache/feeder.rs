//! The only task that writes the cache: it reads the engine's log and applies it in revision order.
//!
//! It also trims the history in memory by age, and has the engine compact history that is too old or too much. It writes entries
//! again that are damaged in the engine and whole in the cache. It ends when the engine is closed, or on a failure that does not
//! pass, which the store then reports. A log that cannot be read is read again; while the engine is unwell, which it reports itself, for as
//! long as that lasts.

use crate::cache::{Cache, Losses};
use crate::kv::{self, Expect, Kv, Op, Outcome, Txn, Volume, Watch};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use steersman_machinery::{Object, Revision};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// The interval at which history is trimmed by age.
const TRIM_EVERY: Duration = Duration::from_secs(15);
/// A long history is compacted in steps of this fraction of its age limit.
const STEPS_OF_TIME: u32 = 1_024;
/// A large history is compacted in steps of this fraction of its size limit.
const STEPS_OF_SIZE: u64 = 64;

/// The size limit of an engine's history, in bytes as stored. Current entries do not count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HistorySize {
    /// The limit is at least this.
    pub at_least: u64,
    /// The limit is at least this many times the size of the current entries.
    pub times_live: u64,
}

pub(crate) struct Feeder {
    pub(crate) cache: Arc<Cache>,
    pub(crate) kv: Arc<dyn Kv>,
    /// The oldest revision of which the engine has all history.
    pub(crate) oldest: Arc<AtomicU64>,
    /// The limits of the engine's history; `None` if another store compacts it.
    pub(crate) retention: Option<Retention>,
    pub(crate) watch: Box<dyn Watch>,
}

/// Decides through which revision history is compacted, from samples of the newest revision and of the size superseded
/// by then.
pub(crate) struct Retention {
    age: Duration,
    /// The size superseded up to the last revision that was returned for compaction.
    compacted: u64,
    /// Ascending. At most one sample per step of time, and one per step of size.
    samples: VecDeque<Sample>,
    size: HistorySize,
}

struct Sample {
    at: Instant,
    revision: Revision,
    superseded: u64,
}

impl HistorySize {
    /// A quarter of a gigabyte, or four times the size of the current entries: enough for five minutes of a busy
    /// server, and in proportion to the size of the store.
    pub const DEFAULT: HistorySize = HistorySize { at_least: 256 * 1024 * 1024, times_live: 4 };

    fn limit(self, live: u64) -> u64 {
        self.at_least.max(self.times_live.saturating_mul(live))
    }
}

impl Feeder {
    /// Runs until the engine is closed. The cache is closed on every exit, even when the task is aborted.
    pub(crate) async fn run(mut self) {
        let cache = Closing(self.cache.clone());
        match self.follow().await {
            kv::Error::Closed => tracing::debug!("the store is closed"),
            error => tracing::error!(cause = %error, "the log cannot be followed: reads and watches end here"),
        }
        drop(cache);
    }

    async fn follow(&mut self) -> kv::Error {
        let mut compaction: Option<kv::BoxFuture<'static, ()>> = None;
        let mut repair: Option<kv::BoxFuture<'static, ()>> = None;
        // Damage that was found between the load and the start of the watch did not wake the watch.
        let mut is_damage_news = true;
        let mut n_failed = 0;
        let mut loaded_at: Option<Instant> = None;
        let mut trim = interval(TRIM_EVERY);
        trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Yields from time to time, even if the log always has more.
            tokio::task::coop::consume_budget().await;
            // All arms are cancel-safe: a dropped pull has consumed nothing, and compaction and repair are kept outside of the loop.
            let now = tokio::select! {
                pulled = self.watch.next() => match pulled {
                    Ok(batch) => {
                        let now = Instant::now();
                        n_failed = 0;
                        is_damage_news |= batch.events.is_empty();
                        self.cache.apply(batch, now);
                        now
                    }
                    // The engine wrote its file anew without the changes that come next, or others have compacted it.
                    Err(kv::Error::Compacted { .. }) => {
                        // An engine that has compacted what was just read is not read without a pause.
                        if let Some(loaded_at) = loaded_at {
                            sleep_until(loaded_at + LOAD_AGAIN_AFTER).await;
                        }
                        if let Err(error) = self.catch_up().await {
                            return error;
                        }
                        is_damage_news = true;
                        *loaded_at.insert(Instant::now())
                    }
                    Err(error @ (kv::Error::Read { .. } | kv::Error::Refused { .. })) => {
                        if !self.may_pass(&error, &mut n_failed) {
                            return error;
                        }
                        self.read_again_after(&error).await;
                        // A new watch is not told of damage that was found before it began.
                        is_damage_news = true;
                        Instant::now()
                    }
                    Err(error) => return error,
                },
                () = async { if let Some(repair) = &mut repair { repair.await } }, if repair.is_some() => {
                    repair = None;
                    Instant::now()
                }
                () = async { if let Some(compaction) = &mut compaction { compaction.await } }, if compaction.is_some() => {
                    compaction = None;
                    Instant::now()
                }
                _ = trim.tick() => {
                    let now = Instant::now();
                    self.cache.trim(now);
                    now
                }
            };
            if is_damage_news && repair.is_none() {
                let damaged = self.kv.damaged();
                // A change that is not applied yet is looked at again when it may be.
                let applied = self.cache.applied().revision;
                is_damage_news = damaged.iter().any(|damaged| applied < damaged.revision);
                repair = self.repair(damaged, now);
            }
            if let Some(retention) = &mut self.retention {
                // Compaction removes changes from the log, so only changes that this task has applied may be compacted.
                let applied = self.cache.applied().revision;
                let volume = volume(&*self.kv, applied);
                retention.record(now, volume);
                if compaction.is_none()
                    && let Some(through) = retention.due(now, volume, applied)
                {
                    compaction = Some(compact(self.kv.clone(), self.oldest.clone(), through));
                }
            }
        }
    }
}

impl Feeder {
    /// Takes up what is damaged in the engine. Returns the work of writing again what is whole here.
    fn repair(&self, damaged: Vec<kv::Damaged>, now: Instant) -> Option<kv::BoxFuture<'static, ()>> {
        if damaged.is_empty() {
            return None;
        }
        let Losses { complete_after, whole } = self.cache.lose(damaged, now);
        if let Some(complete_after) = complete_after {
            self.oldest.fetch_max(complete_after.0, Ordering::AcqRel);
        }
        let kv = self.kv.clone();
        (!whole.is_empty()).then(|| Box::pin(write_again(kv, whole)) as kv::BoxFuture<'static, ()>)
    }

    /// Whether a read that failed may succeed later. `n_failed` counts failures in a row that are due to what is stored.
    fn may_pass(&self, error: &kv::Error, n_failed: &mut usize) -> bool {
        match error {
            // Others may compact the engine while it is read.
            kv::Error::Compacted { .. } => true,
            kv::Error::Read { .. } | kv::Error::Refused { .. } => {
                *n_failed += 1;
                *n_failed < READS_MAX || self.kv.health().is_err()
            }
            error => error.is_retryable(),
        }
    }

    /// Waits, and follows the log from where it stopped.
    async fn read_again_after(&mut self, error: &kv::Error) {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::error!(
            cause,
            "the log cannot be read, so reads and watches do not show newer changes: it is read again"
        );
        tokio::time::sleep(LOAD_AGAIN_AFTER).await;
        self.watch = self.kv.watch(self.cache.applied().revision);
    }

    /// Goes on with what the engine holds now. Tries until the engine can be read, or is well and still cannot be read.
    async fn catch_up(&mut self) -> Result<(), kv::Error> {
        tracing::warn!("the log is gone before all of it was read: the current state is read instead");
        let mut n_failed = 0;
        loop {
            match self.load_anew().await {
                Err(error) if self.may_pass(&error, &mut n_failed) => {
                    tracing::warn!(cause = %error, "the current state cannot be read yet");
                    tokio::time::sleep(LOAD_AGAIN_AFTER).await;
                }
                loaded => return loaded,
            }
        }
    }

    async fn load_anew(&mut self) -> Result<(), kv::Error> {
        let entries = Arc::new(Mutex::new(Vec::new()));
        let loaded = entries.clone();
        let revision = self.kv.load(Arc::new(move |part| loaded.lock().extend(part))).await?;
        let entries = std::mem::take(&mut *entries.lock());
        self.cache.catch_up(kv::Snapshot { entries, revision }, self.kv.damaged(), Instant::now());
        self.oldest.fetch_max(self.kv.oldest().await?.0, Ordering::AcqRel);
        self.watch = self.kv.watch(revision);
        Ok(())
    }
}

/// The most reads in a row that fail although the engine is well.
const READS_MAX: usize = 10;
/// The pause before the log, or the current state, is read again.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The pause before a write that found the engine busy.
const WRITE_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Writes objects again, each at the revision that is damaged in the engine.
async fn write_again(kv: Arc<dyn Kv>, objects: Vec<(Bytes, Arc<Object>)>) {
    for (key, object) in objects {
        let name = String::from_utf8_lossy(&key).into_owned();
        let outcome = loop {
            let put = Op::Put { key: key.clone(), value: object.stored() };
            match kv.txn(Txn::single(Expect::At(object.revision), put)).await {
                // Writers have waited while the file was written anew.
                Err(kv::Error::Busy) => tokio::time::sleep(WRITE_AGAIN_AFTER).await,
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(Outcome::Committed { revision }) => {
                tracing::warn!(key = %name, %revision, "a damaged entry is written again as it is in memory");
            }
            // Somebody else has written or deleted it.
            Ok(Outcome::Failed { .. }) => {}
            Err(error) => tracing::error!(key = %name, "a damaged entry is not written again: {error}"),
        }
    }
}

impl Retention {
    /// Limits by `age` and, if the engine knows its volume, by `size`.
    pub(crate) fn new(age: Duration, size: HistorySize, now: Instant, volume: Volume) -> Retention {
        let mut retention = Retention { age, compacted: 0, samples: VecDeque::new(), size };
        retention.record(now, volume);
        retention
    }

    /// Records the newest revision, if the last sample is a step of time or of size behind it.
    fn record(&mut self, now: Instant, volume: Volume) {
        let step = (self.size.limit(volume.live) / STEPS_OF_SIZE).max(1);
        let is_due = self.samples.back().is_none_or(|last| {
            let is_later = (self.age / STEPS_OF_TIME).max(TRIM_EVERY) <= now.duration_since(last.at);
            last.revision < volume.revision && (is_later || step <= volume.superseded.saturating_sub(last.superseded))
        });
        if is_due {
            self.samples.push_back(Sample { at: now, revision: volume.revision, superseded: volume.superseded });
        }
    }

    /// The newest sampled revision, not beyond `applied`, through which history exceeds its limits of age or size.
    fn due(&mut self, now: Instant, volume: Volume, applied: Revision) -> Option<Revision> {
        let limit = self.size.limit(volume.live);
        let mut due = None;
        while let Some(oldest) = self.samples.front() {
            let is_old = self.age <= now.duration_since(oldest.at);
            let is_too_much = limit < volume.superseded.saturating_sub(self.compacted);
            if applied < oldest.revision || !(is_old || is_too_much) {
                break;
            }
            due = Some(oldest.revision);
            self.compacted = oldest.superseded;
            self.samples.pop_front();
        }
        due
    }
}

/// The engine's volume. Of an engine that does not know it only the age of history counts.
pub(crate) fn volume(kv: &dyn Kv, applied: Revision) -> Volume {
    kv.volume().unwrap_or(Volume { live: 0, revision: applied, superseded: 0 })
}

fn compact(kv: Arc<dyn Kv>, oldest: Arc<AtomicU64>, through: Revision) -> kv::BoxFuture<'static, ()> {
    Box::pin(async move {
        // `oldest` may lag for a moment. Readers then ask the engine, which itself answers `Compacted`.
        match kv.compact(through).await {
            Ok(()) => drop(oldest.fetch_max(through.0, Ordering::AcqRel)),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%through, cause, "the store was not compacted: {error}");
            }
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

    const UNBOUNDED: HistorySize = HistorySize { at_least: u64::MAX, times_live: 0 };

    /// The volume of an engine whose changes supersede ten bytes each.
    fn volume(revision: u64) -> Volume {
        Volume { live: 100, revision: Revision(revision), superseded: 10 * revision }
    }

    fn pass(retention: &mut Retention, now: Instant, revision: u64) -> Option<u64> {
        retention.record(now, volume(revision));
        retention.due(now, volume(revision), Revision(revision)).map(|revision| revision.0)
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_newest_longer_ago_than_history_is_compacted() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut retention = Retention::new(Duration::from_secs(60), UNBOUNDED, start, volume(5));
        assert_eq!(pass(&mut retention, at(15), 9), None);
        assert_eq!(pass(&mut retention, at(30), 9), None);
        assert_eq!(pass(&mut retention, at(59), 20), None);
        assert_eq!(pass(&mut retention, at(60), 21), Some(5));
        assert_eq!(pass(&mut retention, at(90), 21), Some(9));
        assert_eq!(pass(&mut retention, at(91), 21), None);
        assert_eq!(pass(&mut retention, at(500), 21), Some(21));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_history_is_remembered_in_few_samples() {
        let start = Instant::now();
        let mut retention = Retention::new(Duration::from_secs(7 * 24 * 3_600), UNBOUNDED, start, volume(0));
        for n in 0..50_000 {
            pass(&mut retention, start + TRIM_EVERY * n, u64::from(n));
        }
        assert!(retention.samples.len() <= 2 * STEPS_OF_TIME as usize, "{}", retention.samples.len());
    }

    #[tokio::test(start_paused = true)]
    async fn history_beyond_its_size_is_compacted_however_young() {
        let now = Instant::now();
        let size = HistorySize { at_least: 640, times_live: 0 };
        let mut retention = Retention::new(Duration::from_secs(3_600), size, now, volume(0));
        let mut compacted = 0;
        for revision in 1..=10_000 {
            compacted = pass(&mut retention, now, revision).unwrap_or(compacted);
            let kept = 10 * (revision - compacted);
            assert!(kept <= 640, "{kept} bytes at revision {revision}");
            assert!(revision <= 64 || 620 <= kept, "{kept} bytes at revision {revision}");
        }
        assert!(retention.samples.len() <= STEPS_OF_SIZE as usize + 1, "{}", retention.samples.len());
        // With many current entries the limit grows with them.
        let mut retention = Retention::new(retention.age, HistorySize { at_least: 1, times_live: 7 }, now, volume(0));
        assert_eq!((1..=70).find_map(|revision| pass(&mut retention, now, revision)), None);
        assert_eq!(pass(&mut retention, now, 71), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_applied_yet_is_not_compacted() {
        let now = Instant::now();
        let mut retention = Retention::new(Duration::ZERO, HistorySize { at_least: 0, times_live: 0 }, now, volume(5));
        retention.record(now, volume(9));
        assert_eq!(retention.due(now, volume(9), Revision(8)), Some(Revision(5)));
        assert_eq!(retention.due(now, volume(9), Revision(8)), None);
        assert_eq!(retention.due(now, volume(9), Revision(9)), Some(Revision(9)));
    }
}
