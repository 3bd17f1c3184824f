//! The document's initializer: a controller of Pods that wait for it.
//!
//! It adds the sidecar and removes its name from `pending` in one request, and removes its name at once from what it does
//! not want. A Pod that is to be refused gets a result, with which the server answers the creation. All requests are
//! for the version that was judged; on a conflict the Pod is judged anew.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::{Request, Resource, Status};
use serde_json::{Value, json};
use steersman::cache::Change;
use steersman::cache::Selection;
use steersman::write::is_about_another_object;
use steersman::{Action, Controller, InformerFactory, Lister, LookupError, ObjectKey, ReconcileError, Scope};

use crate::inject::injector::{Injector, Judged, NoVerdict, Refusal, Verdict};
use crate::inject::waiting::WaitingPod;
use crate::inject::way::Way;
use crate::inject::{INITIALIZER, NAME};

/// Pods that are worked on at a time: each is a request, for which its creator waits.
const WORKERS: usize = 8;
/// How long one Pod may take, a third of the time that it waits unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests may go on after the shutdown began.
const GRACE: Duration = Duration::from_secs(10);

struct Context {
    client: Client,
    pods: Lister<WaitingPod>,
    injector: Arc<Injector>,
}

/// Why a Pod goes on waiting.
#[derive(Debug, thiserror::Error)]
enum InitializerError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("no verdict on the Pod")]
    NoVerdict(#[from] NoVerdict),
    #[error("the Pod cannot be patched")]
    Patch(#[source] kube::Error),
    #[error("{0}")]
    Refused(String),
}

impl ReconcileError for InitializerError {}

/// The controller, with an informer of `factory`.
pub(crate) fn controller(factory: &InformerFactory, injector: Arc<Injector>) -> Controller<WaitingPod> {
    let selection = Selection::new(Scope::All).include_uninitialized();
    // The cache keeps next to nothing of most Pods, so encoding them would save no memory.
    let pods = factory.clone().typed().informer::<WaitingPod>(selection);
    let context = Context { client: factory.client().clone(), pods: pods.lister(), injector };
    Controller::of(&pods, reconcile, context).name(NAME).workers(WORKERS).timeout(TIMEOUT).grace(GRACE).when(
        |change: &Change<'_, WaitingPod>| match change {
            Change::Added(pod, _) | Change::Updated { new: pod, .. } => pod.pod.is_some(),
            _ => false,
        },
    )
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, InitializerError> {
    let Some(waiting) = cx.pods.find(&key)? else { return Ok(Action::AwaitChange) };
    let Some(pod) = &waiting.pod else { return Ok(Action::AwaitChange) };
    let namespace = key.namespace().unwrap_or_default();
    let mut judged = cx.injector.judge(Way::Initializer, pod, namespace).await?;
    let patch = match &judged.verdict {
        Verdict::Inject { patch, .. } => released(patch.clone()),
        Verdict::Leave(_) => released(json!({})),
        Verdict::Refuse(refusal) => refused(refusal),
    };
    let sent = match cx.send(&key, pod, patch).await? {
        Sent::Refused(status) if !matches!(judged.verdict, Verdict::Refuse(_)) => {
            // Waiting would end with a timeout, which says less.
            let refusal = Refusal::by_server(&judged.verdict, &status);
            let patch = refused(&refusal);
            // The warnings are about a Pod that does not come into being.
            judged = Judged { verdict: Verdict::Refuse(refusal), warnings: Vec::new() };
            cx.send(&key, pod, patch).await?
        }
        sent => sent,
    };
    match sent {
        Sent::Done => cx.injector.report(Way::Initializer, pod, namespace, &judged),
        Sent::Gone => {}
        // Most often the injector lacks a permission, which may be granted before the Pod's time is over.
        Sent::Refused(status) => return Err(InitializerError::Refused(status.message)),
    }
    Ok(Action::AwaitChange)
}

/// The outcome of a request that will not be repeated.
enum Sent {
    Done,
    Gone,
    Refused(Box<Status>),
}

impl Context {
    async fn send(&self, key: &ObjectKey, pod: &Value, mut patch: Value) -> Result<Sent, InitializerError> {
        for field in ["uid", "resourceVersion"] {
            patch["metadata"][field] = pod["metadata"][field].clone();
        }
        let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
        let request = Request::new(WaitingPod::url_path(&(), key.namespace()));
        let request = request.patch(key.name(), &params, &Patch::Strategic(patch));
        let request = request.map_err(|error| InitializerError::Patch(kube::Error::BuildRequest(error)))?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(Sent::Done),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Sent::Gone),
            Err(error) if is_about_another_object(&error) => Ok(Sent::Gone),
            Err(kube::Error::Api(status)) if is_final(status.code) => Ok(Sent::Refused(status)),
            Err(error) => Err(InitializerError::Patch(error)),
        }
    }
}

/// Whether the server refuses the Pod, and would refuse it again.
fn is_final(code: u16) -> bool {
    matches!(code, 400 | 403 | 413 | 422)
}

/// The patch, with the initializer's name removed.
pub(crate) fn released(mut patch: Value) -> Value {
    patch["metadata"]["initializers"] = json!({"pending": [{"$patch": "delete", "name": INITIALIZER}]});
    patch
}

fn refused(refusal: &Refusal) -> Value {
    let result =
        json!({"status": "Failure", "code": refusal.code, "reason": refusal.reason, "message": refusal.message});
    json!({"metadata": {"initializers": {"result": result}}})
}
