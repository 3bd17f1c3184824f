//! One look at one object: what is wanted, what is there, what to do, what to say.

use crate::api::Network;
use crate::deletion::delete;
use crate::desired::Desired;
use crate::event::Event;
use crate::execute::{Work, converge};
use crate::outcome::{DRIFT_INTERVAL, Next, Obstacle, Outcome};
use crate::pending::Pending;
use crate::plan::Identity;
use crate::status::{is_news, status};
use crate::{FINALIZER, NAME};
use kube::{Client, ResourceExt as _};
use std::sync::Arc;
use std::time::Duration;
use steersman::status::Written;
use steersman::{
    Action, EventRecorder, EventType, Lister, LookupError, ObjectKey, ReconcileError, WriteError, finalizers,
};
use steersman_neutron::{Cloud, RequestId};

/// How long a reconcile waits to see its own write. Longer means that the watch is down, and then the next sees it.
const OWN_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a reconcile needs.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) networks: Lister<Network>,
    pub(crate) status: steersman::status::Writer<Network>,
    pub(crate) events: EventRecorder,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) pending: Pending,
}

/// Why a key is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The object is there, but not as a Network.
    #[error("the object cannot be read as a Network")]
    Unreadable,
    /// Neutron is not as it should be; the object's conditions say why.
    #[error("{reason}: {message}")]
    Stuck { reason: &'static str, message: String },
    /// The API server did not take a write.
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
            Error::Unreadable | Error::Stuck { .. } => None,
        }
    }
}

/// Makes Neutron agree with one object.
///
/// # Errors
/// When it is to be tried again after a growing while.
pub(crate) async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let object = match cx.networks.get(&key) {
        Ok(object) => object,
        Err(LookupError::NotFound { .. }) => return Ok(Action::AwaitChange),
        Err(_) => return Err(Error::Unreadable),
    };
    let identity = identity(&object);
    if finalizers::is_deleting(&*object) {
        return remove(cx, &object, &identity).await;
    }
    let object = match finalizers::add(&cx.client, &*object, FINALIZER).await {
        Ok(object) => object,
        Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
        Err(error) => return Err(Error::Write(error)),
    };
    let mut events = Vec::new();
    let outcome = match Desired::parse(&object.spec) {
        Err(invalid) => Outcome::Stuck(invalid.into()),
        Ok(desired) => {
            let uid = object.uid().unwrap_or_default();
            let work = Work {
                cloud: &*cx.cloud,
                request: RequestId::random(),
                uid: &uid,
                identity: &identity,
                desired,
                pending: &cx.pending,
            };
            converge(&work, object.status.as_ref(), &mut events).await
        }
    };
    conclude(cx, &object, &outcome, &events).await
}

/// Writes down how it ended and says when to look again.
async fn conclude(cx: &Context, object: &Network, outcome: &Outcome, events: &[Event]) -> Result<Action, Error> {
    for event in events {
        cx.events.event(object, EventType::Normal, event.reason, &event.message);
    }
    let route = match cx.status.route().await {
        Ok(route) => route,
        Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
        Err(error) => return Err(Error::Write(error)),
    };
    let status = status(object, outcome, cx.cloud.name(), route);
    if is_news(object.status.as_ref(), &status) {
        match outcome {
            Outcome::Ready { .. } => {
                cx.events.event(object, EventType::Normal, "Ready", "the network and its subnet are in Neutron");
            }
            Outcome::Stuck(obstacle) => cx.events.event(object, EventType::Warning, obstacle.reason, &obstacle.message),
        }
    }
    match cx.status.write(object, &status).await {
        Ok(Written::Changed(written)) => own_write_seen(cx, &written).await,
        Ok(Written::Unchanged) => {}
        Err(error) if error.is_not_found() => return Ok(Action::AwaitChange),
        Err(error) => return Err(Error::Write(error)),
    }
    match outcome {
        Outcome::Ready { .. } => Ok(Action::RequeueAfter(DRIFT_INTERVAL)),
        Outcome::Stuck(obstacle) => next(obstacle),
    }
}

/// Waits until the cache has the status that was written: a reconcile that still saw the old one would tell it again.
async fn own_write_seen(cx: &Context, written: &Network) {
    let version = written.resource_version().unwrap_or_default();
    if let Err(error) = cx.networks.wait_for(&ObjectKey::of(written), &version, OWN_WRITE_TIMEOUT).await {
        tracing::debug!(%error, "the cache has not seen the operator's own write");
    }
}

/// Removes the network of an object that is being deleted, then lets the object go.
async fn remove(cx: &Context, object: &Network, identity: &Identity) -> Result<Action, Error> {
    if !finalizers::contains(object, FINALIZER) {
        return Ok(Action::AwaitChange);
    }
    let mut events = Vec::new();
    let uid = object.uid().unwrap_or_default();
    let deleted =
        delete(&*cx.cloud, RequestId::random(), &uid, identity, object.status.as_ref(), &cx.pending, &mut events).await;
    if let Err(obstacle) = deleted {
        return conclude(cx, object, &Outcome::Stuck(obstacle), &events).await;
    }
    for event in &events {
        cx.events.event(object, EventType::Normal, event.reason, &event.message);
    }
    cx.pending.forget(&uid);
    finalizers::remove(&cx.client, object, FINALIZER).await.map_err(Error::Write)?;
    Ok(Action::AwaitChange)
}

fn next(obstacle: &Obstacle) -> Result<Action, Error> {
    match obstacle.next {
        Next::After(after) => Ok(Action::RequeueAfter(after)),
        Next::BackOff => Err(Error::Stuck { reason: obstacle.reason, message: obstacle.message.clone() }),
        Next::Change => Ok(Action::AwaitChange),
    }
}

/// How what belongs to an object is recognised in Neutron. The uid, not the name: objects are made again under a name.
fn identity(object: &Network) -> Identity {
    const NAME_BYTES_MAX: usize = 255;
    let mut name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    name.truncate(NAME_BYTES_MAX);
    Identity { marker: format!("{NAME}/{}", object.uid().unwrap_or_default()), name }
}
