//! Leader election by a Lease: one of several replicas works.
//!
//! The protocol is client-go's (`tools/leaderelection`), so replicas in different languages can share a lease. A lease
//! held by another replica is expired when its record has not changed for its duration by OUR clock since we first saw
//! it; times written by other hosts are never compared with ours. The leader renews; when it could not for the renew
//! deadline, counted from the sending of the last successful renewal, it must stop before the others may start:
//! [`Election::hold`] returns then, and the caller drops its work.
//!
//! The caller may do so late, if its thread is busy or the process was stopped. So workers ask [`Leadership`]
//! themselves: no worker of a controller begins a key after the deadline, and work that has begun is dropped at its
//! await points. Its clock counts the time in which the host was suspended, and wall clocks have no part in it. Some
//! work cannot be stopped in time: code that does not return to the runtime, a request that was already sent, work that
//! is under way in the second after a process or its host continues, and anything in a virtual machine that was paused
//! without notice to its system. A write that must not happen even then needs a precondition on the server, such as a
//! resource version.

mod leadership;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use crate::shared::chain::Chain;
use crate::shared::clock::LEASE_MAX;

pub use crate::leadership::election::leadership::{Leadership, RenewalOverdue};

/// A wait between attempts to get the lease is stretched at random, by up to this multiple of it.
const JITTER: f64 = 1.2;

/// The durations of an election, and the identity of this replica.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ElectionOptions {
    /// Name of the Lease.
    pub name: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// The identity of this replica; must differ between replicas. Default: the host's name and a random number.
    pub identity: String,
    /// How long others wait for a leader that does not renew. Default 15 s.
    pub lease: Duration,
    /// How long a leader tries to renew before it gives up. Shorter than the lease. Default 10 s.
    pub renew_deadline: Duration,
    /// The time between attempts. Default 2 s.
    pub retry: Duration,
}

/// The options of an election do not allow a safe election.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The times would allow two leaders at once, or requests to the server without pause.
    #[error(
        "election {name:?}: the lease ({lease:?}) must be longer than the renew deadline ({renew_deadline:?}), and that \
         longer than 1.2 times the retry period ({retry:?}), which must not be zero; the lease must be shorter than 68 years"
    )]
    Times {
        /// The name of the Lease.
        name: String,
        /// The lease duration given.
        lease: Duration,
        /// The renew deadline given.
        renew_deadline: Duration,
        /// The retry period given.
        retry: Duration,
    },
    /// The name, the namespace or the identity is empty.
    #[error("an election needs {missing}")]
    Unnamed {
        /// The option that is empty.
        missing: &'static str,
    },
}

/// One replica's candidacy in an election.
///
/// ```no_run
/// # use steersman::election::{Election, ElectionOptions};
/// # async fn lead() {}
/// # async fn run(client: kube::Client) -> Result<(), steersman::election::ElectionError> {
/// let mut election = Election::new(client, ElectionOptions::new("my-operator", "operators"))?;
/// election.acquire().await;
/// tokio::select! {
///     () = election.hold() => {} // Lost. The work was dropped at an await point.
///     () = lead() => election.release().await,
/// }
/// # Ok(()) }
/// ```
pub struct Election {
    api: Api<Lease>,
    options: ElectionOptions,
    /// The record as last read, and when it was first read in this state.
    observed: Option<(Lease, Instant)>,
    leadership: Arc<Leadership>,
    /// We sent a write that gives us the lease if it is done.
    may_hold: bool,
    /// Numbers from 0 to 1, for the waits between attempts.
    random: Box<dyn FnMut() -> f64 + Send + Sync>,
}

/// The outcome of one attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Attempt {
    /// Another replica holds the lease.
    Held { holder: String },
    /// We hold the lease.
    Leading,
    /// We hold the lease, but the answer came after the renew deadline.
    Late,
}

/// The request to make after reading a record.
#[derive(Clone, Debug, PartialEq)]
enum Move {
    Create(Lease),
    Replace(Lease),
    Wait { holder: String },
}

// === impl ElectionOptions ===

impl ElectionOptions {
    /// The default times and a generated identity.
    pub fn new(name: &str, namespace: &str) -> Self {
        let host = crate::shared::host::name();
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            identity: format!("{host}_{:016x}", rand::random::<u64>()),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// Sets [`ElectionOptions::identity`].
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Sets [`ElectionOptions::lease`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets [`ElectionOptions::renew_deadline`].
    pub fn renew_deadline(mut self, renew_deadline: Duration) -> Self {
        self.renew_deadline = renew_deadline;
        self
    }

    /// Sets [`ElectionOptions::retry`].
    pub fn retry(mut self, retry: Duration) -> Self {
        self.retry = retry;
        self
    }

    fn check(&self) -> Result<(), ElectionError> {
        let parts = [("a name", &self.name), ("a namespace", &self.namespace), ("an identity", &self.identity)];
        if let Some((missing, _)) = parts.into_iter().find(|(_, part)| part.is_empty()) {
            return Err(ElectionError::Unnamed { missing });
        }
        let Self { lease, renew_deadline, retry, .. } = *self;
        let is_sound = renew_deadline < lease && lease <= LEASE_MAX && retry < renew_deadline && !retry.is_zero();
        if !is_sound || renew_deadline <= retry.mul_f64(JITTER) {
            return Err(ElectionError::Times { name: self.name.clone(), lease, renew_deadline, retry });
        }
        Ok(())
    }
}

// === impl Election ===

impl Election {
    /// A candidate in the election of `options`. It does not lead yet.
    ///
    /// # Errors
    /// [`ElectionError`] when the options do not allow a safe election.
    pub fn new(client: Client, options: ElectionOptions) -> Result<Self, ElectionError> {
        let leadership = Arc::new(Leadership::new(&options));
        Self::with_leadership(client, options, leadership)
    }

    pub(crate) fn with_leadership(
        client: Client,
        options: ElectionOptions,
        leadership: Arc<Leadership>,
    ) -> Result<Self, ElectionError> {
        options.check()?;
        let api = Api::namespaced(client, &options.namespace);
        Ok(Self { api, options, observed: None, leadership, may_hold: false, random: Box::new(rand::random) })
    }

    /// The current leader, for health checks and metrics.
    pub fn leadership(&self) -> &Arc<Leadership> {
        &self.leadership
    }

    /// Waits until we lead.
    pub async fn acquire(&mut self) {
        let mut last = None;
        loop {
            let attempt = tokio::time::timeout(self.options.renew_deadline, self.attempt()).await;
            let news = match attempt {
                // The answer took so long that no time is left to work; the next one renews.
                Ok(Ok(Attempt::Late)) => "the server is slow".to_owned(),
                Ok(Ok(Attempt::Leading)) => {
                    tracing::info!(lease = self.options.name, identity = self.options.identity, "leading");
                    return;
                }
                Ok(Ok(Attempt::Held { holder })) => format!("{holder} leads"),
                Ok(Err(error)) => format!("cannot get the lease: {}", Chain(&error)),
                Err(_) => "cannot get the lease: the server does not answer".to_owned(),
            };
            if last.as_ref() != Some(&news) {
                tracing::info!(lease = self.options.name, news, "waiting to lead");
                last = Some(news);
            }
            tokio::time::sleep(self.options.retry.mul_f64(1.0 + JITTER * (self.random)())).await;
        }
    }

    /// Renews for as long as we lead. When this returns we no longer lead, and work that only a leader may do must have
    /// stopped within the difference of lease and renew deadline.
    ///
    /// # Cancel safety
    /// If the future is dropped, we lead until the deadline at most; call it again or [`Election::release`].
    pub async fn hold(&mut self) {
        while let Some(deadline) = self.leadership.deadline() {
            let clock = self.leadership.clock();
            clock.sleep_until(deadline.min(clock.now() + self.options.retry)).await;
            // Half the time at most, so that a connection that has fallen silent leaves time for another.
            let patience = deadline.saturating_duration_since(clock.now()).min(self.options.renew_deadline / 2);
            match tokio::time::timeout(patience, self.attempt()).await {
                Ok(Ok(Attempt::Leading | Attempt::Late)) => {}
                Ok(Ok(Attempt::Held { holder })) => {
                    tracing::error!(lease = self.options.name, holder, "the lease was taken from us");
                    break;
                }
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.options.name, error = %Chain(&error), "cannot renew the lease");
                }
                Err(_) => {}
            }
            if !self.leadership.is_leading() {
                tracing::error!(lease = self.options.name, "the lease could not be renewed in time");
                break;
            }
        }
        self.leadership.give_up();
    }

    /// Releases the lease, so that another replica need not wait for it to expire. Call it when all work has stopped.
    ///
    /// A lease that another replica or nobody holds is left alone, and so is one that we never tried to get. If another
    /// client writes to the lease in between, this tries again, for the renew deadline at most; then the lease expires.
    /// After an attempt that was cancelled, this releases the lease that it may have won.
    pub async fn release(&mut self) {
        if !self.may_hold {
            return;
        }
        match tokio::time::timeout(self.options.renew_deadline, self.try_release()).await {
            Ok(Ok(was_ours)) => {
                self.may_hold = false;
                if was_ours {
                    tracing::info!(lease = self.options.name, "released the lease");
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(lease = self.options.name, error = %Chain(&error), "cannot release the lease");
            }
            Err(_) => tracing::warn!(lease = self.options.name, "cannot release the lease: the server does not answer"),
        }
        self.observed = None;
        self.leadership.give_up();
    }

    /// Releases the lease. Returns false if we do not hold it.
    async fn try_release(&self) -> Result<bool, kube::Error> {
        loop {
            let Some(mut lease) = self.api.get_opt(&self.options.name).await? else { return Ok(false) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_ref() != Some(&self.options.identity) {
                return Ok(false);
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            let now = Some(MicroTime(Timestamp::now()));
            spec.acquire_time.clone_from(&now);
            spec.renew_time = now;
            match self.api.replace(&self.options.name, &PostParams::default(), &lease).await {
                Ok(_) => return Ok(true),
                // Another write came in between, perhaps a request of ours that was given up. The caller's timeout ends
                // this loop.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    tokio::time::sleep(self.options.retry / 10).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Tries once to get or to renew the lease.
    async fn attempt(&mut self) -> Result<Attempt, kube::Error> {
        let now = self.leadership.clock().now();
        // While the record is ours and unexpired, no other replica may change it: no need to read it first.
        let is_ours = self
            .observed
            .as_ref()
            .is_some_and(|(lease, seen)| holder(lease) == self.options.identity && now < *seen + self.options.lease);
        if !is_ours {
            self.look().await?;
        }
        let sent = self.leadership.clock().now();
        match self.plan(sent) {
            Move::Create(lease) => {
                self.may_hold = true;
                let lease = self.api.create(&PostParams::default(), &lease).await?;
                Ok(self.lead(lease, sent))
            }
            Move::Replace(lease) => match self.replace(&lease).await {
                Ok(lease) => Ok(self.lead(lease, sent)),
                Err(error) => {
                    if is_ours {
                        self.leadership.count_slow_renewal();
                    }
                    // The record is not in the state that we know: read it before the next attempt.
                    if is_ours && matches!(&error, kube::Error::Api(status) if status.code < 500) {
                        self.look().await?;
                        if let Move::Wait { holder } = self.plan(self.leadership.clock().now()) {
                            return Ok(Attempt::Held { holder });
                        }
                    }
                    Err(error)
                }
            },
            Move::Wait { holder } => Ok(Attempt::Held { holder }),
        }
    }

    async fn replace(&mut self, lease: &Lease) -> Result<Lease, kube::Error> {
        self.may_hold = true;
        self.api.replace(&self.options.name, &PostParams::default(), lease).await
    }

    fn lead(&mut self, lease: Lease, sent: Instant) -> Attempt {
        self.observed = Some((lease, self.leadership.clock().now()));
        if self.leadership.renew(sent) { Attempt::Leading } else { Attempt::Late }
    }

    /// Reads the record.
    async fn look(&mut self) -> Result<(), kube::Error> {
        let current = self.api.get_opt(&self.options.name).await?;
        self.observe(current, self.leadership.clock().now());
        Ok(())
    }

    /// Notes the record; its age counts from the moment at which we saw its last change.
    fn observe(&mut self, current: Option<Lease>, now: Instant) {
        self.observed = match (current, self.observed.take()) {
            (None, _) => None,
            (Some(current), Some((known, seen))) if known.spec == current.spec => Some((current, seen)),
            (Some(current), _) => Some((current, now)),
        };
        let holder = self.observed.as_ref().map(|(lease, _)| holder(lease));
        // A lease that was deleted is not held by another replica: its leader leads until the deadline, and may create
        // it again before.
        if holder.is_some() || !self.leadership.is_leading() {
            self.leadership.observe(holder.unwrap_or_default());
        }
    }

    /// The request that the last read record calls for.
    fn plan(&self, now: Instant) -> Move {
        let time = Some(MicroTime(Timestamp::now()));
        // Rounded up: others must not take the lease for expired before we do.
        let seconds = self.options.lease.as_millis().div_ceil(1_000);
        let mut spec = LeaseSpec {
            acquire_time: time.clone(),
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            lease_transitions: Some(0),
            renew_time: time,
            ..LeaseSpec::default()
        };
        let Some((current, seen)) = &self.observed else {
            let metadata = ObjectMeta {
                name: Some(self.options.name.clone()),
                namespace: Some(self.options.namespace.clone()),
                ..ObjectMeta::default()
            };
            return Move::Create(Lease { metadata, spec: Some(spec) });
        };
        let known = current.spec.clone().unwrap_or_default();
        let is_ours = holder(current) == self.options.identity;
        let seconds = known.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.options.lease, Duration::from_secs);
        let is_free = holder(current).is_empty() || now >= *seen + duration;
        if !is_ours && !is_free {
            return Move::Wait { holder: holder(current).to_owned() };
        }
        let n_transitions = known.lease_transitions.unwrap_or(0);
        spec.lease_transitions = Some(if is_ours { n_transitions } else { n_transitions.saturating_add(1) });
        if is_ours {
            spec.acquire_time = known.acquire_time;
        }
        Move::Replace(Lease { metadata: current.metadata.clone(), spec: Some(spec) })
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("options", &self.options).finish_non_exhaustive()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod simulation;
