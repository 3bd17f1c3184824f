//! The verdict on one Pod, which the initializer and the webhook carry out.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::Status;
use serde_json::Value;
use steersman::LookupError;
use steersman::events::{EventRecorder, EventType};
use tokio::time::Instant;

use crate::inject::decision::{Policy, Skip, decide, refused_wish};
use crate::inject::fragment::Fragment;
use crate::inject::merge::{self, Conflict, Plan, Unchanged};
use crate::inject::metrics::Counts;
use crate::inject::namespaces::{NamespaceError, Namespaces};
use crate::inject::source::{Missing, Source};
use crate::inject::way::Way;

/// The longest message of an Event and of a refusal: they quote what users wrote.
const MESSAGE_BYTES_MAX: usize = 1_000;
/// The longest text of a reference that is put into an Event: no object has a longer name. Webhooks see Pods before the
/// server has validated them.
const REFERENCE_BYTES_MAX: usize = 253;

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
    #[error("the ConfigMap has not been read yet")]
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
                Unchanged::Malformed => {
                    warnings.extend(refused_wish(pod, &Skip::Malformed));
                    Skip::Malformed
                }
                Unchanged::Present { container } => Skip::Present { container },
            }),
            Err(conflict) => Verdict::Refuse(Refusal::of(&conflict)),
        })
    }

    /// Counts a verdict that was carried out, and records it in Events, about the owner of the Pod: that is where a user
    /// looks when Pods are missing.
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

/// The object of Events about a Pod: its controller, else the Pod, else, while the Pod has no name, its namespace. The
/// Event is always in that namespace, where the Pod's creator can read it.
fn regarding(pod: &Value, namespace: &str) -> ObjectReference {
    let text = |object: &Value, field: &str| {
        let text = object.get(field)?.as_str()?;
        (1..=REFERENCE_BYTES_MAX).contains(&text.len()).then(|| text.to_owned())
    };
    let owner = controller(pod).and_then(|owner| {
        let (api_version, kind) = (text(owner, "apiVersion")?, text(owner, "kind")?);
        Some((api_version, kind, text(owner, "name")?, Some(text(owner, "uid")?)))
    });
    let of_core = |kind: &str, name, uid| ("v1".to_owned(), kind.to_owned(), name, uid);
    let this = || {
        let metadata = pod.get("metadata")?;
        Some(of_core("Pod", text(metadata, "name")?, text(metadata, "uid")))
    };
    let found = owner.or_else(this);
    let (api_version, kind, name, uid) = found.unwrap_or_else(|| of_core("Namespace", namespace.to_owned(), None));
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind),
        name: Some(name),
        uid,
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    }
}

// === impl Refusal ===

impl Refusal {
    /// Refused by the server, which was asked to carry out a verdict.
    pub(crate) fn by_server(verdict: &Verdict, status: &Status) -> Refusal {
        let failed = match verdict {
            Verdict::Inject { .. } => "the Pod with the sidecar is refused",
            Verdict::Leave(_) | Verdict::Refuse(_) => "the Pod cannot be released",
        };
        let message = cut(format!("{failed}: {}", status.message));
        Refusal { code: status.code, reason: status.reason.clone(), message, label: "server" }
    }

    fn without_fragment(fault: &str) -> Refusal {
        let message = cut(format!("the Pod is to get the sidecar, but there is no usable fragment: {fault}"));
        Refusal { code: 503, reason: "ServiceUnavailable".to_owned(), message, label: "no_fragment" }
    }

    fn of(conflict: &Conflict) -> Refusal {
        let label = match conflict {
            Conflict::Half { .. } => "half",
            Conflict::Merge(_) => "merge",
            Conflict::Port { .. } => "port",
            Conflict::PullSecret { .. } => "pull_secret",
            Conflict::Volume { .. } => "volume",
        };
        Refusal { code: 403, reason: "Forbidden".to_owned(), message: cut(conflict.to_string()), label }
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(pod: &Value) -> (String, String, Option<String>) {
        let reference = regarding(pod, "shop");
        assert_eq!(reference.namespace.as_deref(), Some("shop"));
        (reference.kind.unwrap(), reference.name.unwrap(), reference.uid)
    }

    #[test]
    fn texts_that_no_object_can_have_are_not_in_events() {
        let long = "x".repeat(1 << 20);
        let owner = |field: &str| {
            let mut owner =
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
            if !field.is_empty() {
                owner[field] = long.as_str().into();
            }
            owner
        };
        let pod = |owner: Value| json!({"metadata": {"name": "web-1", "ownerReferences": [owner]}});
        assert_eq!(names(&pod(owner(""))), ("ReplicaSet".to_owned(), "web".to_owned(), Some("u".to_owned())));
        for field in ["apiVersion", "kind", "name", "uid"] {
            assert_eq!(names(&pod(owner(field))), ("Pod".to_owned(), "web-1".to_owned(), None), "{field}");
        }
        let mut unnamed = pod(owner("name"));
        unnamed["metadata"]["name"] = long.as_str().into();
        assert_eq!(names(&unnamed), ("Namespace".to_owned(), "shop".to_owned(), None));
        let odd = json!({"metadata": {"name": "web-1", "uid": long}});
        assert_eq!(names(&odd), ("Pod".to_owned(), "web-1".to_owned(), None));
    }
}
