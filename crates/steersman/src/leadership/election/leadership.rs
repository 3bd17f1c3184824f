//! The current leader, and the time since its last renewal: for health checks, metrics and dashboards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::control::fence::{Fence, KeySource, Pass};
use crate::control::queue::WorkQueue;
use crate::leadership::election::ElectionOptions;
use crate::shared::clock::HostClock;
use crate::shared::key::ObjectKey;

/// The current leader as one replica last read it. Written by the election, read by others.
#[derive(Debug)]
pub struct Leadership {
    lease: String,
    identity: String,
    duration: Duration,
    renew_deadline: Duration,
    clock: HostClock,
    leader: watch::Sender<Option<String>>,
    /// While we lead: when the last successful renewal was sent.
    renewed: Mutex<Option<Instant>>,
    n_slow_renewals: AtomicU64,
}

/// A leader's right to work.
struct LeaderPass(Arc<Leadership>);

/// A replica believes that it leads, but its lease ran out long ago.
#[derive(Clone, Debug, thiserror::Error)]
#[error("leading {lease:?}, but the lease was last renewed {since:?} ago")]
pub struct RenewalOverdue {
    lease: String,
    since: Duration,
}

// === impl Leadership ===

impl Leadership {
    pub(crate) fn new(options: &ElectionOptions) -> Self {
        Self::with_clock(options, HostClock::default())
    }

    pub(crate) fn with_clock(options: &ElectionOptions, clock: HostClock) -> Self {
        Self {
            lease: options.name.clone(),
            identity: options.identity.clone(),
            duration: options.lease,
            renew_deadline: options.renew_deadline,
            clock,
            leader: watch::Sender::default(),
            renewed: Mutex::new(None),
            n_slow_renewals: AtomicU64::new(0),
        }
    }

    /// Name of the lease.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// Whether this replica leads and may begin work: it holds the lease, and the renew deadline has not passed. Reads
    /// the clock, so that it is right even where renewals are late or the host was suspended.
    ///
    /// Controllers and tasks of a [`Manager`](crate::Manager) need not call it.
    pub fn is_leading(&self) -> bool {
        self.deadline().is_some_and(|deadline| self.clock.now() < deadline)
    }

    /// Completes when this replica does not lead, or must not act as if it did: work that only a leader may do must
    /// stop then. Race the work against it and drop the work when this wins.
    ///
    /// # Cancel safety
    /// Only waits.
    pub async fn lost(&self) {
        let mut leader = self.leader.subscribe();
        while let Some(deadline) = self.deadline().filter(|deadline| self.clock.now() < *deadline) {
            // Both arms only wait. The deadline moves with every renewal.
            tokio::select! {
                () = self.clock.sleep_until(deadline) => {}
                // This does not fail: `self` has the sender.
                changed = leader.changed() => drop(changed),
            }
        }
    }

    /// The identity of the leader as last read. `None` if no replica leads, or the lease was not read yet.
    pub fn leader(&self) -> Option<String> {
        self.leader.borrow().clone()
    }

    /// The leader as last read, and every change of it.
    pub fn watch(&self) -> watch::Receiver<Option<String>> {
        self.leader.subscribe()
    }

    /// Passes if we do not lead, or have renewed within the duration of the lease and `tolerance`. As a health check
    /// this restarts a leader that hangs (client-go's `healthzadaptor.go`).
    ///
    /// # Errors
    /// [`RenewalOverdue`].
    pub fn check(&self, tolerance: Duration) -> Result<(), RenewalOverdue> {
        let since = self.renewed().map(|renewed| self.clock.now().saturating_duration_since(renewed));
        match since {
            Some(since) if since > self.duration.saturating_add(tolerance) => {
                Err(RenewalOverdue { lease: self.lease.clone(), since })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn clock(&self) -> &HostClock {
        &self.clock
    }

    /// When the last successful renewal was sent, while we hold the lease as far as we know.
    pub(crate) fn renewed(&self) -> Option<Instant> {
        *self.renewed.lock()
    }

    /// Until when we may work without another renewal.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.renewed().map(|renewed| renewed + self.renew_deadline)
    }

    /// Records a successful renewal that was sent at `sent`. Returns whether this replica leads.
    ///
    /// It does not lead if the previous deadline has passed: its workers may have rejected keys already, which they
    /// would not get again.
    pub(crate) fn renew(&self, sent: Instant) -> bool {
        let is_leading = {
            let mut renewed = self.renewed.lock();
            let now = self.clock.now();
            let is_in_time = |renewed: Instant| now < renewed + self.renew_deadline;
            let is_leading = is_in_time(sent) && renewed.is_none_or(is_in_time);
            *renewed = is_leading.then_some(sent);
            is_leading
        };
        self.tell(is_leading.then_some(self.identity.as_str()));
        is_leading
    }

    /// Counts a renewal that had to read the lease first.
    pub(crate) fn count_slow_renewal(&self) {
        self.n_slow_renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn n_slow_renewals(&self) -> u64 {
        self.n_slow_renewals.load(Ordering::Relaxed)
    }

    /// Records the holder of the lease; an empty text stands for no holder.
    pub(crate) fn observe(&self, holder: &str) {
        if holder != self.identity {
            *self.renewed.lock() = None;
        }
        self.tell(Some(holder).filter(|holder| !holder.is_empty()));
    }

    /// Records that this replica no longer leads, and that the new leader is not yet known.
    pub(crate) fn give_up(&self) {
        let was_leading = self.renewed.lock().take().is_some();
        if was_leading {
            self.tell(None);
        }
    }

    fn tell(&self, leader: Option<&str>) {
        self.leader.send_if_modified(|known| {
            let is_new = known.as_deref() != leader;
            if is_new {
                *known = leader.map(str::to_owned);
            }
            is_new
        });
    }
}

impl Fence for Arc<Leadership> {
    fn begin(&self, _key: &ObjectKey) -> Option<Box<dyn Pass>> {
        self.is_leading().then(|| Box::new(LeaderPass(Self::clone(self))) as Box<dyn Pass>)
    }

    /// A leader has all keys, and other replicas have no workers.
    fn feed(&self, _queue: &WorkQueue<ObjectKey>, _source: KeySource) {}
}

impl Pass for LeaderPass {
    fn revoked(&self) -> BoxFuture<'_, &'static str> {
        self.0.lost().map(|()| "the lease was not renewed in time").boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_that_does_not_renew_is_unwell() {
        let leadership = Leadership::new(&ElectionOptions::new("test", "kube-system"));
        let tolerance = Duration::from_secs(20);
        tokio::time::advance(Duration::from_secs(1_000)).await;
        leadership.check(tolerance).unwrap();
        leadership.renew(Instant::now());
        tokio::time::advance(Duration::from_secs(35)).await;
        leadership.check(tolerance).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let error = leadership.check(tolerance).unwrap_err();
        assert_eq!(error.to_string(), r#"leading "test", but the lease was last renewed 36s ago"#);
        leadership.give_up();
        leadership.check(tolerance).unwrap();
    }

    fn elected() -> (Arc<Leadership>, Arc<Mutex<Duration>>) {
        let suspended = Arc::<Mutex<Duration>>::default();
        let options = ElectionOptions::new("test", "kube-system");
        let leadership = Leadership::with_clock(&options, HostClock::suspended(&suspended));
        assert!(leadership.renew(leadership.clock().now()));
        (Arc::new(leadership), suspended)
    }

    fn key() -> ObjectKey {
        ObjectKey::namespaced("a", "x")
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_deadline_no_key_passes_and_a_late_renewal_changes_nothing() {
        let (leadership, _) = elected();
        let sent = Instant::now() + Duration::from_secs(9);
        assert!(leadership.begin(&key()).is_some());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!leadership.is_leading() && leadership.begin(&key()).is_none());
        assert!(!leadership.renew(sent), "a key was turned away");
        assert_eq!((leadership.is_leading(), leadership.leader()), (false, None));
        assert!(leadership.renew(Instant::now()), "elected anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_leader_does_not_lead_and_its_work_ends_within_a_second() {
        let (leadership, suspended) = elected();
        let pass = leadership.begin(&key()).unwrap();
        let work = tokio::spawn(async move { pass.revoked().await });
        tokio::time::sleep(Duration::from_millis(1_700)).await;
        *suspended.lock() = Duration::from_secs(3_600);
        let resumed = Instant::now();
        assert!(!leadership.is_leading() && leadership.begin(&key()).is_none());
        assert_eq!(work.await.unwrap(), "the lease was not renewed in time");
        assert!(resumed.elapsed() <= Duration::from_secs(1), "{:?}", resumed.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_once_when_the_lease_is_taken() {
        let (leadership, _) = elected();
        let pass = leadership.begin(&key()).unwrap();
        let work = tokio::spawn(async move { pass.revoked().await });
        tokio::task::yield_now().await;
        let start = Instant::now();
        leadership.observe("thief");
        work.await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
