//! Deletes the content of a namespace that is being deleted, and then removes the finalizer of the namespace.
//!
//! Follows kube-controller-manager's namespace controller, with the conditions that it has written since 1.17 and Pods
//! first (OrderedNamespaceDeletion). A namespace that is being deleted keeps the finalizer `kubernetes` in its spec,
//! and nothing new can be created in it. A pass deletes the instances of all kinds and counts what remains. If
//! instances remain, the status reports them, they are watched, and later passes consider only their kinds. When none
//! remain, the finalizer is removed through `/finalize`.
//!
//! In contrast to upstream, a pass does not wait five seconds before it begins. Discovery runs once for each namespace
//! before its finalizer is removed, and kinds that were unknown when the pass began are emptied first.

mod conditions;
mod content;
mod waiting;

use crate::loops::cleanup::namespace::content::{Ending, Outcome};
use crate::loops::cleanup::namespace::waiting::Waiting;
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use crate::shared::served::{Catalog, Served};
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Change;
use steersman::queue::RateLimiter;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};
use tokio::sync::mpsc;

/// The name of the loop in logs.
const NAME: &str = "namespace-controller";

/// The finalizer in the spec of a namespace, which is removed once the namespace is empty.
const FINALIZER: &str = "kubernetes";
const WORKERS: usize = 10;
/// The timeout of a pass: it sends two requests for each kind, of which there may be thousands.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(300);
/// The first and the longest pause before a namespace is reconciled again after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));
/// The most namespaces whose remaining kinds are remembered. For others, all kinds are checked again.
const LEFT_MAX: usize = 1_000;

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    namespaces: Lister<Namespace>,
    /// The result of the last discovery.
    catalog: Mutex<Option<Arc<Catalog>>>,
    /// The kinds with remaining instances, by the uid of the namespace. All other kinds have been emptied.
    left: Mutex<HashMap<String, Vec<Served>>>,
    waiting: Waiting,
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

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let namespaces = manager.informers().informer::<Namespace>(Scope::All).lister();
    let (wake, woken) = mpsc::channel(waiting::KEYS_MAX);
    let context = Context {
        client,
        clock: settings.clock,
        namespaces,
        catalog: Mutex::default(),
        left: Mutex::default(),
        waiting: Waiting::new(wake),
    };
    let controller = Controller::<Namespace>::new(reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .when(matters)
        .keys_from(stream::unfold(woken, |mut woken| async move { Some((woken.recv().await?, woken)) }))
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1))
        .timeout(RECONCILE_TIMEOUT);
    manager.controller(controller)
}

/// Whether a change of a namespace needs a reconcile. A change of its status, which this loop writes at each pass, does
/// not: the remaining objects determine when the next pass is due.
fn matters(change: &Change<'_, Namespace>) -> bool {
    let facts = |namespace: &Namespace| {
        (
            namespace.metadata.uid.clone(),
            namespace.metadata.deletion_timestamp.is_some(),
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()),
        )
    };
    match change {
        Change::Updated { old, new } => change.is_resync() || old.object().is_none_or(|old| facts(old) != facts(new)),
        Change::Added(..) | Change::Deleted(_) => true,
        Change::Undecodable(_) => false,
    }
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    if !cx.namespaces.find(&key)?.is_some_and(|namespace| is_to_end(&namespace)) {
        cx.waiting.end(&key);
        return Ok(Action::AwaitChange);
    }
    // The cache may lag behind: the content that is deleted must be that of the namespace being deleted, not of a new
    // one with the same name. A new one cannot be created while this one still has its finalizer.
    let api = Api::<Namespace>::all(cx.client.clone());
    let found = api.get_opt(key.name()).await.map_err(|source| Error::Request { what: "read", source })?;
    let Some(mut namespace) = found.filter(is_to_end) else { return Ok(Action::AwaitChange) };
    cx.waiting.end(&key);
    let outcome = cx.pass(&namespace).await;
    let status = NamespaceStatus {
        phase: Some("Terminating".to_owned()),
        conditions: Some(conditions::of(&outcome, namespace.status.as_ref(), (cx.clock)())),
    };
    if namespace.status.as_ref() != Some(&status) {
        namespace.status = Some(status);
        let Some(written) = refusal::replace_status(&api, &namespace).await? else { return Ok(Action::Requeue) };
        namespace = written;
    }
    if outcome.is_empty() {
        return finalize(&api, namespace).await;
    }
    let is_failed = outcome.discovery_failure.is_some() || !outcome.failures.is_empty();
    let is_watched = !outcome.left.is_empty() && cx.waiting.begin(&cx.client, &key, &outcome.left);
    Ok(match outcome.pods_end_in {
        _ if is_failed || !is_watched => Action::Requeue,
        Duration::ZERO => Action::AwaitChange,
        // After that, Pods that still exist are a failure, which the status reports.
        end_in => Action::RequeueAfter(end_in.saturating_add(Duration::from_secs(1))),
    })
}

// === impl Context ===

impl Context {
    /// Deletes the content of a namespace. The namespace counts as empty only after all currently served kinds were
    /// checked.
    async fn pass(&self, namespace: &Namespace) -> Outcome {
        let uid = namespace.metadata.uid.clone().unwrap_or_default();
        let began = namespace.metadata.deletion_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
        let ending = Ending {
            client: &self.client,
            namespace: namespace.metadata.name.as_deref().unwrap_or_default(),
            since: content::elapsed(began, (self.clock)()),
        };
        let remembered = self.left.lock().get(&uid).cloned();
        if let Some(kinds) = remembered {
            let outcome = ending.delete_all(&kinds).await;
            if !outcome.is_empty() {
                return self.remember(uid, outcome);
            }
            self.left.lock().remove(&uid);
        }
        let known = self.catalog.lock().clone();
        let mut looked_at: Option<Vec<Served>> = None;
        if let Some(catalog) = known {
            let kinds = content::kinds_of(&catalog);
            let outcome = ending.delete_all(&kinds).await;
            if !outcome.is_empty() {
                return self.remember(uid, outcome);
            }
            looked_at = Some(kinds);
        }
        let catalog = match Catalog::discover(&self.client).await {
            Ok(catalog) => Arc::new(catalog),
            Err(error) => {
                let discovery_failure = Some(refusal::message(&error));
                return Outcome { discovery_failure, ..Outcome::default() };
            }
        };
        *self.catalog.lock() = Some(Arc::clone(&catalog));
        let kinds = content::kinds_of(&catalog);
        let mut outcome = Outcome::default();
        if looked_at.as_ref() != Some(&kinds) {
            outcome = ending.delete_all(&kinds).await;
        }
        outcome.discovery_failure = stale_groups(&catalog);
        self.remember(uid, outcome)
    }

    /// Remembers the remaining kinds, so that later passes check only them, if nothing else keeps the namespace. While
    /// Pods remain, all other kinds remain too.
    fn remember(&self, uid: String, outcome: Outcome) -> Outcome {
        let mut left = self.left.lock();
        let is_all = outcome.discovery_failure.is_none() && outcome.failures.is_empty();
        let has_looked_at_all = !outcome.remaining.is_empty();
        if is_all && has_looked_at_all && left.len() < LEFT_MAX {
            left.insert(uid, outcome.left.iter().map(|left| left.served.clone()).collect());
        } else {
            left.remove(&uid);
        }
        drop(left);
        outcome
    }
}

/// The failure of groups whose server does not answer, with client-go's text.
fn stale_groups(catalog: &Catalog) -> Option<String> {
    let stale: Vec<String> = catalog
        .stale
        .iter()
        .map(|(group, version)| format!("{group}/{version}: stale GroupVersion discovery: {group}/{version}"))
        .collect();
    (!stale.is_empty()).then(|| {
        let (n_stale, each) = (stale.len(), stale.join(", "));
        format!(
            "Discovery failed for some groups, {n_stale} failing: unable to retrieve the complete list of server APIs: {each}"
        )
    })
}

fn is_to_end(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some() && finalizers(namespace).iter().any(|one| one == FINALIZER)
}

fn finalizers(namespace: &Namespace) -> &[String] {
    namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default()
}

/// Removes the finalizer from exactly the version of the namespace that was read. If it has changed since, another pass
/// follows.
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::NamespaceSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use steersman::cache::Previous;

    fn namespace(ends: bool, finalizer: Option<&str>, phase: &str) -> Arc<Namespace> {
        Arc::new(Namespace {
            metadata: ObjectMeta {
                deletion_timestamp: ends.then_some(Time(Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            },
            spec: Some(NamespaceSpec { finalizers: finalizer.map(|one| vec![one.to_owned()]) }),
            status: Some(NamespaceStatus { phase: Some(phase.to_owned()), ..NamespaceStatus::default() }),
        })
    }

    #[test]
    fn what_the_loop_writes_into_the_status_is_no_reason_for_another_pass() {
        let check =
            |old: &Arc<Namespace>, new: &Arc<Namespace>| matters(&Change::Updated { old: &Previous::from(old), new });
        let active = namespace(false, Some(FINALIZER), "Active");
        let ending = namespace(true, Some(FINALIZER), "Active");
        let said = namespace(true, Some(FINALIZER), "Terminating");
        assert!(check(&active, &ending) && check(&said, &namespace(true, None, "Terminating")));
        assert!(!check(&ending, &said));
        assert!(check(&said, &said), "a resync repeats everything");
    }
}
