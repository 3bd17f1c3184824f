//! Deletes the content of a namespace that is being deleted, and then removes the finalizer of the namespace.
//!
//! Follows kube-controller-manager's namespace controller, with the conditions that it has written since 1.17. A namespace that
//! is being deleted keeps the finalizer `kubernetes` in its spec, and nothing new can be created in it. Each pass discovers the
//! kinds, deletes the instances of each, and counts what remains. If something does, the status says what, and another pass
//! follows later; otherwise the finalizer is removed through `/finalize`.

mod conditions;
mod content;

use crate::control_loop::Parts;
use crate::refusal::{self, Refused};
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use std::time::Duration;
use steersman::queue::RateLimiter;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};

/// The name under which the loop appears in logs.
const NAME: &str = "namespace-controller";

/// The finalizer in the spec of a namespace that stands for its content.
const FINALIZER: &str = "kubernetes";
const WORKERS: usize = 4;
/// How long one pass may take: two requests for each kind, of which there may be thousands.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(300);
/// How soon a namespace is looked at again while something remains, and how late at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));

struct Context {
    client: Client,
    namespaces: Lister<Namespace>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the namespace")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("cannot {what} the namespace")]
    Request { what: &'static str, source: kube::Error },
}

impl ReconcileError for Error {}

/// Puts the loop into a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let namespaces = manager.informers().informer::<Namespace>(Scope::All).lister();
    let context = Context { namespaces, client };
    let controller = Controller::<Namespace>::new(reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1))
        .timeout(RECONCILE_TIMEOUT);
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    match cx.namespaces.get(&key) {
        Ok(namespace) if is_to_end(&namespace) => {}
        Ok(_) | Err(LookupError::NotFound { .. }) => return Ok(Action::AwaitChange),
        Err(error) => return Err(error.into()),
    }
    // The cache may be behind: what is deleted here must be the content of the namespace that ends, not of one that was
    // made again under its name. That one cannot be made while this one still has its finalizer.
    let api = Api::<Namespace>::all(cx.client.clone());
    let found = api.get_opt(key.name()).await.map_err(|source| Error::Request { what: "read", source })?;
    let Some(namespace) = found.filter(is_to_end) else { return Ok(Action::AwaitChange) };
    let outcome = content::delete_all(&cx.client, key.name()).await;
    if outcome.is_empty() {
        return finalize(&api, namespace).await;
    }
    let status = NamespaceStatus {
        phase: Some("Terminating".to_owned()),
        conditions: Some(conditions::of(&outcome, namespace.status.as_ref())),
    };
    if namespace.status.as_ref() != Some(&status) {
        let namespace = Namespace { status: Some(status), ..namespace };
        refusal::replace_status(&api, &namespace).await?;
    }
    Ok(Action::Requeue)
}

fn is_to_end(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some() && finalizers(namespace).iter().any(|one| one == FINALIZER)
}

fn finalizers(namespace: &Namespace) -> &[String] {
    namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default()
}

/// Removes the finalizer from the namespace as it was read. If it has changed since, another pass follows.
async fn finalize(api: &Api<Namespace>, mut namespace: Namespace) -> Result<Action, Error> {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|one| one != FINALIZER);
    }
    match api.replace_subresource("finalize", &name, &PostParams::default(), &namespace).await {
        Ok(_) => {
            tracing::info!(namespace = %name, "nothing is left in the namespace: it goes");
            Ok(Action::AwaitChange)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::AwaitChange),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Action::Requeue),
        Err(source) => Err(Error::Request { what: "finalize", source }),
    }
}
