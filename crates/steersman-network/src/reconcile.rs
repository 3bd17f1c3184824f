//! One reconcile of one object: from the desired and the observed state to requests, conditions and Events.

pub(crate) mod deletion;
pub mod desired;
pub(crate) mod duplicates;
pub(crate) mod execute;
pub(crate) mod observe;
pub(crate) mod outcome;
pub(crate) mod pending;
pub mod plan;
pub(crate) mod snapshot;
pub(crate) mod survey;

use crate::FINALIZER;
use crate::api::{ManagementPolicy, Network};
use crate::cluster::{Cluster, ClusterError};
use crate::event::Event;
use crate::identity::{ClusterId, Identity};
use crate::read_access::ReadAccess;
use crate::reconcile::deletion::{Release, deletion_policy};
use crate::reconcile::desired::{Desired, fingerprint};
use crate::reconcile::duplicates::PossibleDuplicates;
use crate::reconcile::execute::{Input, converge};
use crate::reconcile::observe::{Lookup, Search};
use crate::reconcile::outcome::{NotReady, Outcome, Retry, jittered};
use crate::reconcile::pending::Pending;
use crate::reconcile::snapshot::Snapshots;
use crate::status::{StatusContext, is_news, status};
use kube::{Client, ResourceExt as _};
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Change;
use steersman::events::{EventRecorder, EventType};
use steersman::status::Written;
use steersman::{Action, Lister, LookupError, ObjectKey, ReconcileError, WriteError, finalizers};
use steersman_neutron::{Cloud, RequestId};

/// How long a reconcile waits to see its own write. After that the watch is probably down, and the next reconcile sees
/// it.
const OWN_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The context of the reconciler.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) networks: Lister<Network>,
    pub(crate) status: steersman::status::Writer<Network>,
    pub(crate) events: EventRecorder,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) pending: Pending,
    pub(crate) read_access: Arc<ReadAccess>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) possible_duplicates: Arc<PossibleDuplicates>,
}

/// Why a key is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The id of the cluster is not known, so nothing can be marked as its own.
    #[error("the cluster cannot be told from others")]
    Cluster(#[source] ClusterError),
    /// The cache cannot say whether the object exists.
    #[error("whether the object is there is not known")]
    Lookup(#[source] LookupError),
    /// The object exists, but cannot be decoded as a Network.
    #[error("the object cannot be read as a Network")]
    Unreadable,
    /// Neutron does not agree with the spec; the object's conditions say why.
    #[error("{reason}: {message}")]
    Stuck { reason: &'static str, message: String },
    /// The API server did not accept a write.
    #[error("the object could not be written")]
    Write(#[source] WriteError),
}

impl ReconcileError for Error {
    fn is_terminal(&self) -> bool {
        matches!(self, Error::Unreadable)
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Write(error) => error.retry_after(),
            Error::Cluster(_) | Error::Lookup(_) | Error::Unreadable | Error::Stuck { .. } => None,
        }
    }
}

/// Whether a change of an object needs a reconcile. The operator's own writes, of the status and its finalizer, do not.
pub(crate) fn is_relevant(change: &Change<'_, Network>) -> bool {
    let Change::Updated { old, new } = change else { return true };
    // The previous state is unknown, so anything may have changed.
    let Some(old) = old.object() else { return true };
    let (before, after) = (&old.metadata, &new.metadata);
    change.is_resync()
        || old.spec != new.spec
        || before.uid != after.uid
        || before.deletion_timestamp != after.deletion_timestamp
        || (finalizers::contains(&**old, FINALIZER) && !finalizers::contains(&***new, FINALIZER))
        || before.annotations != after.annotations
        || before.labels != after.labels
}

/// The reconcile of one object.
struct Reconciliation<'a> {
    cx: &'a Context,
    object: &'a Network,
    uid: String,
    cluster: &'a ClusterId,
    identity: Identity,
    request: RequestId,
}

/// Makes Neutron agree with one object.
///
/// # Errors
/// The error after which the key is retried with a growing wait.
pub(crate) async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let object = match cx.networks.find(&key) {
        Ok(Some(object)) => object,
        Ok(None) => return Ok(Action::AwaitChange),
        Err(LookupError::Undecodable { .. }) => return Err(Error::Unreadable),
        Err(error) => return Err(Error::Lookup(error)),
    };
    let cluster = cx.cluster.id(&cx.client).await.map_err(Error::Cluster)?;
    if finalizers::is_deleting(&*object) {
        return Reconciliation::new(cx, cluster, &object).remove().await;
    }
    let desired = Desired::parse(&object.spec);
    let needs_finalizer =
        !desired.as_ref().is_ok_and(|desired| desired.management_policy == ManagementPolicy::Observed);
    let object = match needs_finalizer {
        true => match finalizers::add(&cx.client, &*object, FINALIZER).await {
            Ok(object) => Arc::new(object),
            Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
            Err(error) => return Err(Error::Write(error)),
        },
        false => object,
    };
    let reconciliation = Reconciliation::new(cx, cluster, &object);
    let mut events = Vec::new();
    let (outcome, project) = match desired {
        Err(invalid) => (Outcome::stuck(invalid), None),
        Ok(desired) => reconciliation.agree(&desired, &mut events).await,
    };
    reconciliation.conclude(&outcome, project.as_deref(), &events).await
}

impl<'a> Reconciliation<'a> {
    fn new(cx: &'a Context, cluster: &'a ClusterId, object: &'a Network) -> Reconciliation<'a> {
        let uid = object.uid().unwrap_or_default();
        let identity = Identity::new(cluster, &uid, &object.namespace().unwrap_or_default(), &object.name_any());
        Reconciliation { cx, object, uid, cluster, identity, request: RequestId::random() }
    }

    /// Takes steps until Neutron agrees with the spec. Also returns the project of the credentials.
    async fn agree(&self, desired: &Desired, events: &mut Vec<Event>) -> (Outcome, Option<String>) {
        let recorded = self.object.status.as_ref().and_then(|status| status.project_id.clone());
        if let Some(outcome) = self.agreed(desired).await {
            return (outcome, recorded);
        }
        let project = match self.cx.cloud.project_id(self.request).await {
            Ok(project) => project,
            Err(error) => return (Outcome::stuck(error), recorded),
        };
        // From now on a listing that was begun before is out of date for this object, however this ends.
        self.cx.snapshots.touch(&self.uid);
        let status = self.object.status.as_ref();
        let work = Input {
            search: self.search(project.as_deref(), self.cx.possible_duplicates.lookup(&self.uid)),
            cluster: self.cluster,
            uid: &self.uid,
            desired,
            pending: &self.cx.pending,
            is_applied: status.and_then(|status| status.applied_spec.as_ref()) == Some(&fingerprint(&self.object.spec)),
        };
        let outcome = converge(&work, events).await;
        if !events.is_empty() {
            self.cx.snapshots.touch(&self.uid);
        }
        if outcome.ready.is_ok() {
            self.cx.possible_duplicates.clear(&self.uid);
        }
        (outcome, project)
    }

    /// The outcome without a request, where the latest listing shows that nothing is left to do.
    async fn agreed(&self, desired: &Desired) -> Option<Outcome> {
        self.cx.snapshots.first().await;
        if self.cx.possible_duplicates.lookup(&self.uid) == Lookup::All {
            return None;
        }
        let snapshot = self.cx.snapshots.of(&self.uid)?;
        let (network, subnet) = snapshot.agreed(&self.uid, &self.identity, self.object.status.as_ref(), desired)?;
        Some(Outcome { ready: Ok(()), network: Some(network), subnet: Some(subnet) })
    }

    fn search<'b>(&'b self, project: Option<&'b str>, lookup: Lookup) -> Search<'b> {
        Search {
            cloud: &*self.cx.cloud,
            request: self.request,
            identity: &self.identity,
            status: self.object.status.as_ref(),
            project,
            read_access: &self.cx.read_access,
            lookup,
        }
    }

    /// Writes the outcome into the status and returns the time of the next try.
    async fn conclude(&self, outcome: &Outcome, project: Option<&str>, events: &[Event]) -> Result<Action, Error> {
        let (cx, object) = (self.cx, self.object);
        self.record(events);
        let route = match cx.status.route().await {
            Ok(route) => route,
            Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
            Err(error) => return Err(Error::Write(error)),
        };
        let fingerprint = fingerprint(&object.spec);
        let status_context = StatusContext { backend: cx.cloud.name(), project, fingerprint: &fingerprint, route };
        let status = status(object, outcome, &status_context);
        if is_news(object.status.as_ref(), &status) {
            match &outcome.ready {
                Ok(()) => {
                    cx.events.event(object, EventType::Normal, "Ready", "the network and its subnet are in Neutron");
                }
                Err(not_ready) => cx.events.event(object, EventType::Warning, not_ready.reason, &not_ready.message),
            }
        }
        match cx.status.write(object, &status).await {
            Ok(Written::Changed(written)) => own_write_seen(cx, &written).await,
            Ok(Written::Unchanged) => {}
            Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
            Err(error) => return Err(Error::Write(error)),
        }
        match &outcome.ready {
            // The survey finds changes in Neutron.
            Ok(()) => Ok(Action::AwaitChange),
            Err(not_ready) => action(not_ready),
        }
    }

    /// Releases the network of an object that is being deleted, then the object.
    async fn remove(&self) -> Result<Action, Error> {
        let (cx, object) = (self.cx, self.object);
        if !finalizers::contains(object, FINALIZER) {
            return Ok(Action::AwaitChange);
        }
        let mut events = Vec::new();
        if let Err(not_ready) = self.release(&mut events).await {
            return self.conclude(&Outcome::stuck(not_ready), None, &events).await;
        }
        self.record(&events);
        cx.pending.forget(&self.uid);
        cx.possible_duplicates.clear(&self.uid);
        finalizers::remove(&cx.client, object, FINALIZER).await.map_err(Error::Write)?;
        Ok(Action::AwaitChange)
    }

    async fn release(&self, events: &mut Vec<Event>) -> Result<(), NotReady> {
        let policy = deletion_policy(&self.object.spec)?;
        let project = self.cx.cloud.project_id(self.request).await?;
        self.cx.snapshots.touch(&self.uid);
        let release = Release {
            search: self.search(project.as_deref(), Lookup::All),
            cluster: self.cluster,
            uid: &self.uid,
            pending: &self.cx.pending,
            policy,
        };
        release.run(events).await
    }

    fn record(&self, events: &[Event]) {
        for event in events {
            self.cx.events.event(self.object, EventType::Normal, event.reason, &event.message);
        }
    }
}

/// Waits until the cache has the status that was written: otherwise a reconcile with the old one would send its Events
/// again.
async fn own_write_seen(cx: &Context, written: &Network) {
    let version = written.resource_version().unwrap_or_default();
    if let Err(error) = cx.networks.wait_for(&ObjectKey::of(written), &version, OWN_WRITE_TIMEOUT).await {
        tracing::debug!(%error, "the cache has not seen the operator's own write");
    }
}

fn action(not_ready: &NotReady) -> Result<Action, Error> {
    match not_ready.retry {
        Retry::After(after) => Ok(Action::RequeueAfter(jittered(after))),
        Retry::BackOff => Err(Error::Stuck { reason: not_ready.reason, message: not_ready.message.clone() }),
        Retry::OnChange => Ok(Action::AwaitChange),
    }
}
