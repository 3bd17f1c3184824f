//! The shell around a member's state machine: requests, Leases, the clock. All times are those of the gate's clock.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{FusedFuture, OptionFuture};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::leadership::shard::feed::Feed;
use crate::leadership::shard::member::{Effect, Input, Member, Permission, Record, Times};
use crate::leadership::shard::membership::Membership;
use crate::leadership::shard::options::ShardOptions;
use crate::leadership::shard::shards::Shards;
use crate::leadership::shard::slots::Slots;
use crate::shared::chain::Chain;
use crate::shared::clock::HostClock;
use crate::writing::write::is_refusal;

/// The label of a member's Lease: its group.
const GROUP_LABEL: &str = "steersman.dev/shard-group";
/// The annotation of a member's Lease: the slots that it claims.
const CLAIMS_ANNOTATION: &str = "steersman.dev/shard-claims";

/// The annotation of a member's Lease: the run of the member that wrote it.
const RUN_ANNOTATION: &str = "steersman.dev/shard-run";

/// Members of a group should not all write at once: each stretches its period by up to this fraction.
const SPREAD: f64 = 0.1;

pub(crate) struct Agent {
    api: Api<Lease>,
    options: ShardOptions,
    times: Times,
    /// The name of our Lease. It belongs to this run and no other.
    id: String,
    /// The value of the run annotation in our Lease. A Lease of our name without it belongs to another run.
    run: String,
    shards: Shards,
    /// Our Lease as last read, for its fields that we must keep.
    known: Option<Lease>,
    /// The last problem, so that it is logged once.
    trouble: Option<String>,
    /// Whether stale Leases that cannot be deleted were logged.
    told_of_leftovers: bool,
}

/// Ends all work when the agent ends, for whatever reason.
struct Closing<'a>(&'a Shards);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.gate().close();
        self.0.publish(Membership::default());
    }
}

/// Why a member no longer takes part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Left,
    /// Another run has the name, so a new one is needed.
    NameTaken,
}

/// The outcome of a request, before it is passed to the state machine.
struct Outcome {
    /// Another run has a Lease of our name.
    is_taken: bool,
    input: Input,
    own: Option<Lease>,
    trouble: Option<String>,
    /// Why a stale Lease may not be deleted.
    leftover: Option<String>,
}

impl Agent {
    pub(crate) fn new(client: Client, options: ShardOptions, times: Times, shards: Shards) -> Self {
        let id = fresh_id(&options.group);
        let run = format!("{:032x}", rand::random::<u128>());
        let period = times.period.mul_f64(1.0 + SPREAD * rand::random::<f64>());
        let api = Api::namespaced(client, &options.namespace);
        Self {
            api,
            options,
            times: Times { period, ..times },
            id,
            run,
            shards,
            known: None,
            trouble: None,
            told_of_leftovers: false,
        }
    }

    pub(crate) fn shards(&self) -> Shards {
        self.shards.clone()
    }

    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) {
        let shards = self.shards.clone();
        let _closing = Closing(&shards);
        // Dropping the set aborts the feeds when this returns: they only wait, for moved slots or for a thread.
        let _feeds: JoinSet<()> = shards.feeds().into_iter().map(Feed::run).collect();
        let mut stop = pin!(stop.fuse());
        while self.take_part(stop.as_mut()).await == Ended::NameTaken {
            let taken = std::mem::replace(&mut self.id, fresh_id(&self.options.group));
            tracing::warn!(group = self.options.group, taken, lease = self.id, "a Lease of our name is not ours");
            self.known = None;
            shards.apply(Permission { term: shards.gate().term() + 1, ..Permission::default() });
        }
    }

    /// Takes part under one name, until `stop` or until another run has that name.
    async fn take_part(&mut self, mut stop: Pin<&mut impl FusedFuture<Output = ()>>) -> Ended {
        let shards = self.shards.clone();
        let clock = shards.gate().clock();
        let mut member = Member::new(self.id.clone(), self.times, shards.gate().term() + 1, clock.now());
        let mut request = pin!(OptionFuture::from(None));
        let (mut input, mut renewed) = (Input::Wake, None);
        let mut leave_deadline = None;
        loop {
            let now = clock.now();
            let effect = member.step(now, shards.gate().in_use(), input);
            // The permission is put in force before anything else, so that no work goes on longer than the state
            // machine allows.
            shards.apply(member.permission());
            let before = std::mem::replace(&mut renewed, member.renewed());
            match (before, renewed) {
                (Some(_), None) => shards.stats().count_stop(),
                (Some(before), Some(renewed)) if renewed - before > self.times.period * 2 => {
                    shards.stats().count_late();
                }
                _ => {}
            }
            self.publish(&member);
            if let Some(effect) = effect {
                request.set(Some(self.perform(effect)).into());
            }
            if member.is_gone() {
                tracing::info!(lease = self.id, "left the group");
                return Ended::Left;
            }
            // All arms only wait; an answer is taken whole. The clock comes first: a deadline that has passed counts
            // even if an answer has come.
            input = tokio::select! {
                biased;
                () = clock.sleep_until(member.next_wake(now)) => Input::Wake,
                () = sleep_until(clock, leave_deadline) => {
                    tracing::warn!(lease = self.id, "cannot leave the group in time, others wait for the lease to expire");
                    return Ended::Left;
                }
                Some(outcome) = &mut request => {
                    request.set(None.into());
                    let outcome = outcome.unwrap_or_else(|_| Outcome {
                        is_taken: false,
                        input: member.unanswered(),
                        own: None,
                        trouble: Some("the server does not answer".to_owned()),
                        leftover: None,
                    });
                    if outcome.is_taken {
                        return if leave_deadline.is_some() { Ended::Left } else { Ended::NameTaken };
                    }
                    self.note(outcome)
                }
                () = shards.gate().drained() => Input::Wake,
                () = &mut stop, if leave_deadline.is_none() => {
                    leave_deadline = Some(clock.now() + self.times.handover + self.times.renew_deadline);
                    Input::Leave
                }
            };
        }
    }

    /// Sends a request. It ends within the timeout, or its answer does not count.
    fn perform(&self, effect: Effect) -> impl Future<Output = Result<Outcome, tokio::time::error::Elapsed>> + 'static {
        let timeout = self.times.renew_deadline.saturating_sub(self.times.period) / 2;
        let (api, id, run) = (self.api.clone(), self.id.clone(), self.run.clone());
        let selector = format!("{GROUP_LABEL}={}", self.options.group);
        let lease = match &effect {
            Effect::Write { version, claims, is_released } => Some(self.lease(version.clone(), claims, *is_released)),
            Effect::Forget { .. } | Effect::List => None,
        };
        let default_lease = self.times.lease;
        tokio::time::timeout(timeout, async move {
            match (effect, lease) {
                (Effect::Forget { id, version }, _) => {
                    let preconditions = Preconditions { resource_version: Some(version), uid: None };
                    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                    // Somebody else may have deleted it first, or the member is back.
                    let leftover = match api.delete(&id, &params).await {
                        Err(kube::Error::Api(status)) if status.is_forbidden() => Some(status.message),
                        _ => None,
                    };
                    Outcome { is_taken: false, input: Input::Forgot, own: None, trouble: None, leftover }
                }
                (Effect::Write { version, .. }, Some(lease)) => {
                    let written = match version {
                        None => api.create(&PostParams::default(), &lease).await,
                        Some(_) => api.replace(&id, &PostParams::default(), &lease).await,
                    };
                    wrote(written)
                }
                // Without a resource version to start from, a list is no older than the request.
                (Effect::List | Effect::Write { .. }, _) => {
                    let listed = api.list(&ListParams::default().labels(&selector)).await;
                    looked(listed.map(|list| list.items), &id, &run, default_lease)
                }
            }
        })
    }

    /// The Lease to write.
    fn lease(&self, version: Option<String>, claims: &Slots, is_released: bool) -> Lease {
        let known = self.known.clone().filter(|_| version.is_some()).unwrap_or_default();
        let mut metadata = ObjectMeta {
            name: Some(self.id.clone()),
            namespace: Some(self.options.namespace.clone()),
            resource_version: version,
            managed_fields: None,
            ..known.metadata
        };
        metadata.labels.get_or_insert_default().insert(GROUP_LABEL.to_owned(), self.options.group.clone());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(CLAIMS_ANNOTATION.to_owned(), claims.encode());
        annotations.insert(RUN_ANNOTATION.to_owned(), self.run.clone());
        let now = MicroTime(Timestamp::now());
        let acquired = known.spec.and_then(|spec| spec.acquire_time).unwrap_or_else(|| now.clone());
        // Rounded up: counting as alive a little longer does no harm.
        let seconds = self.times.lease.as_millis().div_ceil(1_000);
        let spec = LeaseSpec {
            acquire_time: Some(acquired),
            holder_identity: Some(if is_released { String::new() } else { self.options.identity.clone() }),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    fn note(&mut self, outcome: Outcome) -> Input {
        if outcome.own.is_some() {
            self.known = outcome.own;
        }
        match (&outcome.trouble, &self.trouble) {
            (Some(trouble), known) if known.as_ref() != Some(trouble) => {
                tracing::warn!(group = self.options.group, lease = self.id, trouble, "cannot keep up with the group");
            }
            (None, Some(_)) => {
                tracing::info!(group = self.options.group, lease = self.id, "can keep up with the group again");
            }
            _ => {}
        }
        self.trouble = outcome.trouble;
        if let Some(error) = outcome.leftover
            && !std::mem::replace(&mut self.told_of_leftovers, true)
        {
            let ShardOptions { group, namespace, .. } = &self.options;
            tracing::warn!(
                group,
                error,
                "Leases of replicas that are gone stay: allow the verb delete on leases in the namespace {namespace}",
            );
        }
        outcome.input
    }

    /// Publishes the membership to subscribers.
    fn publish(&self, member: &Member) {
        let membership = Membership {
            member: self.id.clone(),
            members: member.members().into_iter().map(str::to_owned).collect(),
            slots: member.permission().held.len(),
        };
        if self.shards.publish(membership.clone()) {
            let Membership { members, slots, .. } = &membership;
            tracing::info!(group = self.options.group, lease = self.id, ?members, slots, "the group has changed");
        }
    }
}

async fn sleep_until(clock: &HostClock, deadline: Option<Instant>) {
    match deadline {
        None => std::future::pending().await,
        Some(deadline) => clock.sleep_until(deadline).await,
    }
}

fn wrote(written: Result<Lease, kube::Error>) -> Outcome {
    match written {
        Ok(lease) => {
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            Outcome {
                is_taken: false,
                input: Input::Written { version },
                own: Some(lease),
                trouble: None,
                leftover: None,
            }
        }
        Err(error) => {
            let input = if is_refusal(&error) { Input::Refused } else { Input::Unanswered };
            Outcome { is_taken: false, input, own: None, trouble: Some(Chain(&error).to_string()), leftover: None }
        }
    }
}

fn looked(listed: Result<Vec<Lease>, kube::Error>, id: &str, run: &str, default_lease: Duration) -> Outcome {
    match listed {
        Ok(leases) => {
            let records = leases.iter().map(|lease| record(lease, default_lease)).collect();
            let own = leases.into_iter().find(|lease| lease.metadata.name.as_deref() == Some(id));
            let is_taken = own.as_ref().is_some_and(|lease| annotation(lease, RUN_ANNOTATION) != Some(run));
            Outcome { is_taken, input: Input::Listed(records), own, trouble: None, leftover: None }
        }
        Err(error) => {
            let trouble = Some(Chain(&error).to_string());
            Outcome { is_taken: false, input: Input::ListFailed, own: None, trouble, leftover: None }
        }
    }
}

/// A name for a Lease that no other Lease has: it has 128 random bits.
fn fresh_id(group: &str) -> String {
    format!("{group}-{:032x}", rand::random::<u128>())
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn record(lease: &Lease, default_lease: Duration) -> Record {
    let metadata = &lease.metadata;
    // A record whose claims cannot be read may claim anything, so it counts as claiming all.
    let claims = annotation(lease, CLAIMS_ANNOTATION).and_then(Slots::parse).unwrap_or(Slots::ALL);
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    Record {
        id: metadata.name.clone().unwrap_or_default(),
        version: metadata.resource_version.clone().unwrap_or_default(),
        claims,
        is_released: holder.is_empty() && claims.is_empty(),
        lease: seconds.map_or(default_lease, Duration::from_secs),
    }
}
