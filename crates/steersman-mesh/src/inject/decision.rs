//! Whether a Pod gets the sidecar. Pure.
//!
//! Some Pods never get it. For all others, the most specific setting decides: the Pod's label, then its annotation, the selectors of
//! the injector, the label of the namespace, and last the injector's default.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::inject::{ASK, INJECT};

/// The namespaces whose Pods are never injected: the cluster depends on them, and so may the injector.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// The labels by which the injector's own Pods are known: those of `manifests/mesh`, and those of the document.
const OWN_LABELS: [(&str, &str); 2] = [("app.kubernetes.io/name", "mesh-injector"), ("app", "envoy-initializer")];
const MIRROR: &str = "kubernetes.io/config.mirror";
const ISTIO_STATUS: &str = "sidecar.istio.io/status";
/// The containers of other meshes.
const OTHERS: [(&str, &str); 2] = [("istio-proxy", "Istio"), ("linkerd-proxy", "Linkerd")];
/// The most characters of a user's value in a warning.
const QUOTED_MAX: usize = 32;

/// Labels that an object must have, with these values.
pub type Labels = BTreeMap<String, String>;

/// The rules of the injector, for Pods without a label or annotation of their own.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// Pods with all labels of one of these are not injected.
    pub never: Vec<Labels>,
    /// Pods with all labels of one of these are, unless `never` says no.
    pub always: Vec<Labels>,
    /// The treatment of Pods that no label, annotation or selector decides about.
    pub otherwise: Otherwise,
}

/// The treatment of Pods that no label, annotation or selector decides about.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Otherwise {
    /// They get the sidecar: the rules of the InitializerConfiguration, or the selectors of the webhook, have chosen
    /// them.
    #[default]
    Inject,
    /// They are left alone.
    Leave,
}

/// Whether a Pod gets the sidecar.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision {
    /// Why the Pod does not get it; `None` if it does.
    pub skip: Option<Skip>,
    /// Sentences for whoever creates the Pod.
    pub warnings: Vec<String>,
}

/// Why a Pod does not get the sidecar.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Skip {
    /// Its annotation says so.
    Annotation,
    /// The injector's default.
    Default,
    /// It uses the network of its node.
    HostNetwork,
    /// It has the sidecar.
    Injected,
    /// Its label says so.
    Label,
    /// It is malformed, and will be refused.
    Malformed,
    /// It stands for a Pod that the kubelet of a node runs.
    Mirror,
    /// The label of its namespace says so.
    Namespace,
    /// Another mesh has injected it.
    OtherMesh(&'static str),
    /// It is a Pod of the injector.
    Own,
    /// It has a container with the name of one of the fragment's.
    Present {
        /// The name.
        container: String,
    },
    /// A selector of the injector says so.
    Selector,
    /// It is in a namespace of the system.
    SystemNamespace,
}

/// Decides by the Pod as it is to be created, and the labels of its namespace.
pub fn decide(pod: &Value, namespace: &str, namespace_labels: &Labels, policy: &Policy) -> Decision {
    let labels = pod.pointer("/metadata/labels");
    let annotations = pod.pointer("/metadata/annotations");
    let mut warnings = Vec::new();
    let label = wish("label", INJECT, text(labels, INJECT), &mut warnings);
    let annotation = wish("annotation", ASK, text(annotations, ASK), &mut warnings);
    if let Some(skip) = never(pod, namespace) {
        warnings.extend(refused_wish(pod, &skip));
        return Decision { skip: Some(skip), warnings };
    }
    let is_chosen = |selectors: &[Labels]| {
        selectors.iter().any(|all| all.iter().all(|(key, value)| text(labels, key) == Some(value.as_str())))
    };
    let skip = if let Some(wanted) = label {
        (!wanted).then_some(Skip::Label)
    } else if let Some(wanted) = annotation {
        (!wanted).then_some(Skip::Annotation)
    } else if is_chosen(&policy.never) {
        Some(Skip::Selector)
    } else if is_chosen(&policy.always) {
        None
    } else {
        let of_namespace = namespace_labels.get(INJECT).map(String::as_str);
        match wish("label of the namespace", INJECT, of_namespace, &mut warnings) {
            Some(wanted) => (!wanted).then_some(Skip::Namespace),
            None => (policy.otherwise == Otherwise::Leave).then_some(Skip::Default),
        }
    };
    Decision { skip, warnings }
}

/// A warning where a Pod asks for the sidecar itself and does not get it.
pub(crate) fn refused_wish(pod: &Value, skip: &Skip) -> Option<String> {
    let asks = |key, map| text(pod.pointer(map), key).filter(|value| ["true", "false"].contains(value));
    let asked = asks(INJECT, "/metadata/labels").or_else(|| asks(ASK, "/metadata/annotations"));
    let reason = skip.against_a_wish().filter(|_| asked == Some("true"))?;
    Some(format!("the Pod asks for the sidecar and does not get it: {reason}"))
}

/// Why a Pod never gets the sidecar, whoever asks for it.
fn never(pod: &Value, namespace: &str) -> Option<Skip> {
    let labels = pod.pointer("/metadata/labels");
    let annotations = pod.pointer("/metadata/annotations");
    if !pod.get("spec").is_some_and(Value::is_object) {
        return Some(Skip::Malformed);
    }
    if text(annotations, MIRROR).is_some() {
        return Some(Skip::Mirror);
    }
    if pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true) {
        return Some(Skip::HostNetwork);
    }
    if SYSTEM_NAMESPACES.contains(&namespace) {
        return Some(Skip::SystemNamespace);
    }
    if OWN_LABELS.iter().any(|(key, value)| text(labels, key) == Some(*value)) {
        return Some(Skip::Own);
    }
    if text(annotations, ISTIO_STATUS).is_some() {
        return Some(Skip::OtherMesh("Istio"));
    }
    let containers = ["/spec/containers", "/spec/initContainers"].into_iter().filter_map(|list| pod.pointer(list));
    let mut names = containers.filter_map(Value::as_array).flatten().filter_map(|it| it.get("name")?.as_str());
    names
        .find_map(|name| OTHERS.iter().find(|(container, _)| *container == name).map(|(_, mesh)| Skip::OtherMesh(mesh)))
}

/// Whether a value asks for the sidecar or forbids it. Another value than true and false is reported, and asks for nothing.
fn wish(place: &str, key: &str, value: Option<&str>, warnings: &mut Vec<String>) -> Option<bool> {
    match value? {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            let quoted: String = other.chars().take(QUOTED_MAX).collect();
            warnings.push(format!("the {place} {key} is {quoted:?} and does not count: want \"true\" or \"false\""));
            None
        }
    }
}

fn text<'v>(map: Option<&'v Value>, key: &str) -> Option<&'v str> {
    map?.get(key)?.as_str()
}

// === impl Skip ===

impl Skip {
    /// The value of the label `reason` in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Skip::Annotation => "annotation",
            Skip::Default => "default",
            Skip::HostNetwork => "host_network",
            Skip::Injected => "injected",
            Skip::Label => "label",
            Skip::Malformed => "malformed",
            Skip::Mirror => "mirror",
            Skip::Namespace => "namespace",
            Skip::OtherMesh(_) => "other_mesh",
            Skip::Own => "own",
            Skip::Present { .. } => "present",
            Skip::Selector => "selector",
            Skip::SystemNamespace => "system_namespace",
        }
    }

    /// The reason in words, for the reasons that a Pod's creator has to hear if the Pod asked for the sidecar.
    fn against_a_wish(&self) -> Option<String> {
        match self {
            Skip::HostNetwork | Skip::Malformed | Skip::OtherMesh(_) | Skip::SystemNamespace => Some(self.to_string()),
            _ => None,
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skip::Annotation => write!(f, "its annotation {ASK} is \"false\""),
            Skip::Default => f.write_str("nothing asks for the sidecar"),
            Skip::HostNetwork => f.write_str("it uses the network of its node (hostNetwork)"),
            Skip::Injected => f.write_str("it has the sidecar"),
            Skip::Label => write!(f, "its label {INJECT} is \"false\""),
            Skip::Malformed => f.write_str("it is malformed"),
            Skip::Mirror => f.write_str("it is a mirror of a static Pod"),
            Skip::Namespace => write!(f, "the label {INJECT} of its namespace is \"false\""),
            Skip::OtherMesh(mesh) => write!(f, "{mesh} has injected it"),
            Skip::Own => f.write_str("it is a Pod of the injector"),
            Skip::Present { container } => write!(f, "it has a container {container} of its own"),
            Skip::Selector => f.write_str("the injector is told never to inject Pods with these labels"),
            Skip::SystemNamespace => f.write_str("its namespace is one of the system"),
        }
    }
}

#[cfg(test)]
mod tests;
