//! The verdict on one Pod, which the initializer and the webhook carry out.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;
use steersman::LookupError;
use steersman::events::{EventRecorder, EventType};
use tokio::time::Instant;

use crate::inject::decision::{Policy, Skip, decide};
use crate::inject::fragment::Fragment;
use crate::inject::merge::{self, Conflict, Plan, Unchanged};
use crate::inject::metrics::{Counts, Way};
use crate::inject::namespaces::{NamespaceError, Namespaces};
use crate::inject::source::{Missing, Source};

/// The longest message of an Event and of a refusal: they quote what users wrote.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// Decides on Pods, and reports what it decided.
pub(crate) struct Injector {
    pub(crate) source: Source,
    pub(crate) namespaces: Namespaces,
    pub(crate) policy: Policy,
    pub(crate) events: EventRecorder,
    pub(crate) counts: Counts,
}

/// A verdict.
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// Sentences for whoever creates the Pod.
    pub(crate) warnings: Vec<String>,
}

pub(crate) enum Verdict {
    /// The strategic merge patch that adds the sidecar, and the Pod after it.
    Inject {
        patch: Value,
        pod: Value,
    },
    Leave(Skip),
    Refuse(Refusal),
}

/// Why a Pod is not created.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    /// The HTTP status of the answer.
    pub(crate) code: u16,
    /// The reason of the answer.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The value of the label `reason` in metrics.
    pub(crate) label: &'static str,
}

/// Why there is no verdict: try again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoVerdict {
    #[error("the sidecar is not known yet")]
    Fragment(#[source] LookupError),
    #[error("the labels of the namespace are not known")]
    Namespace(#[source] NamespaceError),
}

impl steersman::ReconcileError for NoVerdict {}

// === impl Injector ===

impl Injector {
    /// Judges a Pod as it is to be created.
    pub(crate) async fn judge(&self, way: Way, pod: &Value, namespace: &str) -> Result<Judged, NoVerdict> {
        let labels = self.namespaces.labels(namespace).await.map_err(NoVerdict::Namespace)?;
        let started = Instant::now();
        let decision = decide(pod, namespace, &labels, &self.policy);
        let mut warnings = decision.warnings;
        let verdict = match decision.skip {
            Some(skip) => Verdict::Leave(skip),
            None => self.add(pod, &mut warnings)?,
        };
        self.counts.decided(way, started.elapsed());
        Ok(Judged { verdict, warnings })
    }

    fn add(&self, pod: &Value, warnings: &mut Vec<String>) -> Result<Verdict, NoVerdict> {
        let fragment = match self.source.current() {
            Ok(fragment) => fragment,
            // Nothing is to be added.
            Err(_) if merge::is_injected(pod) => return Ok(Verdict::Leave(Skip::Injected)),
            Err(Missing::Bad(fault)) => return Ok(Verdict::Refuse(Refusal::without_fragment(&fault))),
            Err(Missing::NotRead(error)) => return Err(NoVerdict::Fragment(error)),
        };
        Ok(match merge::plan(pod, &fragment) {
            Ok(Plan::Patch(patch)) => {
                warnings.extend(keeps_running(pod, &fragment));
                match merge::apply(pod.clone(), patch.clone()) {
                    Ok(pod) => Verdict::Inject { patch, pod },
                    Err(conflict) => Verdict::Refuse(Refusal::of(&conflict)),
                }
            }
            Ok(Plan::Leave(unchanged)) => Verdict::Leave(match unchanged {
                Unchanged::Injected => Skip::Injected,
                Unchanged::Malformed => Skip::Malformed,
                Unchanged::Present { container } => Skip::Present { container },
            }),
            Err(conflict) => Verdict::Refuse(Refusal::of(&conflict)),
        })
    }

    /// Counts a verdict that was carried out, and records it in Events, about the owner of the Pod: whoever looks for
    /// Pods that do not come about looks there.
    pub(crate) fn report(&self, way: Way, pod: &Value, namespace: &str, judged: &Judged) {
        match &judged.verdict {
            Verdict::Inject { .. } => self.counts.injected(way),
            Verdict::Leave(skip) => self.counts.skipped(way, skip),
            Verdict::Refuse(refusal) => {
                self.counts.refused(way, refusal.label);
                self.event(pod, namespace, "SidecarRefused", &refusal.message);
            }
        }
        for warning in &judged.warnings {
            self.event(pod, namespace, "SidecarWarning", warning);
        }
    }

    fn event(&self, pod: &Value, namespace: &str, reason: &str, message: &str) {
        self.events.event_about(regarding(pod, namespace), EventType::Warning, reason, message);
    }
}

/// A warning where a container keeps a Pod running that is to end.
fn keeps_running(pod: &Value, fragment: &Arc<Fragment>) -> Option<String> {
    let container = fragment.containers.first().and_then(merge::name)?;
    let policy = pod.pointer("/spec/restartPolicy").and_then(Value::as_str)?;
    let whose = match controller(pod).filter(|owner| owner.get("kind").is_some_and(|kind| kind == "Job")) {
        Some(_) => "the Job does not end while the container",
        None if policy != "Always" => "the Pod does not end while the container",
        None => return None,
    };
    Some(format!(
        "{whose} {container} runs: make it a native sidecar, an init container with restartPolicy Always, in the fragment"
    ))
}

/// The owner reference of the controller.
fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}

/// The object of Events about a Pod: its controller, else the Pod, else, while the Pod has no name, its namespace.
fn regarding(pod: &Value, namespace: &str) -> ObjectReference {
    let text = |object: &Value, field: &str| object.get(field).and_then(Value::as_str).map(str::to_owned);
    if let Some(owner) = controller(pod) {
        return ObjectReference {
            api_version: text(owner, "apiVersion"),
            kind: text(owner, "kind"),
            name: text(owner, "name"),
            uid: text(owner, "uid"),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
    }
    let metadata = pod.get("metadata").unwrap_or(&Value::Null);
    let (kind, name, uid) = match text(metadata, "name").filter(|name| !name.is_empty()) {
        Some(name) => ("Pod", name, text(metadata, "uid")),
        None => ("Namespace", namespace.to_owned(), None),
    };
    let namespace = (kind == "Pod").then(|| namespace.to_owned());
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name),
        uid,
        namespace,
        ..ObjectReference::default()
    }
}

// === impl Refusal ===

impl Refusal {
    /// Refused by the server, which was asked to store the Pod with the sidecar.
    pub(crate) fn by_server(code: u16, reason: &str, message: &str) -> Refusal {
        let message = cut(format!("the Pod with the sidecar is refused: {message}"));
        Refusal { code, reason: reason.to_owned(), message, label: "server" }
    }

    fn without_fragment(fault: &str) -> Refusal {
        let message = cut(format!("the Pod wants the sidecar, and none is known: {fault}"));
        Refusal { code: 503, reason: "ServiceUnavailable".to_owned(), message, label: "no_fragment" }
    }

    fn of(conflict: &Conflict) -> Refusal {
        let label = match conflict {
            Conflict::Half { .. } => "half",
            Conflict::Merge(_) => "merge",
            Conflict::Port { .. } => "port",
            Conflict::Volume { .. } => "volume",
        };
        Refusal { code: 403, reason: "Forbidden".to_owned(), message: cut(conflict.to_string()), label }
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
    text
}
