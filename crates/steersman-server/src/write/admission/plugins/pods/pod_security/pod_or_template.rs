//! The subject of the checks: a pod, or a pod template.

use crate::shared::operation::ResourceAttributes;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// Metadata and spec of a pod or of a template.
pub(super) struct PodOrTemplate<'a> {
    metadata: &'a Value,
    pub(super) spec: &'a Value,
}

/// The path of the pod template in kinds that create pods.
pub(super) fn template_path(attributes: &ResourceAttributes<'_>) -> Option<&'static [&'static str]> {
    match (attributes.group, attributes.resource) {
        ("", "podtemplates") => Some(&["template"]),
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => Some(&["spec", "template"]),
        ("batch", "cronjobs") => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

impl<'a> PodOrTemplate<'a> {
    /// The pod or template at a path of an object, if it has a spec.
    pub(super) fn of(object: &'a Value, path: &[&str]) -> Option<PodOrTemplate<'a>> {
        let template = at(object, path)?;
        Some(PodOrTemplate { metadata: template.get("metadata").unwrap_or(&Value::Null), spec: template.get("spec")? })
    }

    /// Every container: init containers, containers, ephemeral containers.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().filter_map(|list| spec.get(list)?.as_array()).flatten()
    }

    /// The names of the containers for which the predicate is true.
    pub(super) fn containers_that(&self, mut is_so: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| is_so(container)).map(name).collect()
    }

    /// The list of those for which the predicate is true: `pod and containers "a", "b"`; `None` if it is true for none.
    pub(super) fn setters(&self, mut is_set: impl FnMut(&'a Value) -> bool) -> Option<String> {
        let pod = is_set(self.spec).then(|| "pod".to_owned());
        let containers = self.containers_that(is_set);
        let containers = (!containers.is_empty()).then(|| containers_text(&containers));
        let all: Vec<String> = pod.into_iter().chain(containers).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }

    pub(super) fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let annotations = at(self.metadata, &["annotations"]).and_then(Value::as_object).into_iter().flatten();
        annotations.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// The volumes of the pod.
    pub(super) fn volumes(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.spec.get("volumes").and_then(Value::as_array).into_iter().flatten()
    }

    /// A field of the pod's security context.
    pub(super) fn security(&self, path: &[&str]) -> Option<&'a Value> {
        security(self.spec, path)
    }

    /// Whether the pod has its own user namespace.
    pub(super) fn has_own_users(&self) -> bool {
        self.spec.get("hostUsers") == Some(&Value::Bool(false))
    }

    pub(super) fn is_of_windows(&self) -> bool {
        str_at(self.spec, &["os", "name"]) == Some("windows")
    }
}

/// A field of the security context of a pod spec or a container.
pub(super) fn security<'a>(of: &'a Value, path: &[&str]) -> Option<&'a Value> {
    at(at(of, &["securityContext"])?, path).filter(|value| !value.is_null())
}

pub(super) fn name(named: &Value) -> &str {
    str_at(named, &["name"]).unwrap_or_default()
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn containers_text(names: &[&str]) -> String {
    format!("{} {}", plural("container", names.len()), quoted(names))
}

/// A noun, in the plural unless `number` is one.
pub(super) fn plural(noun: &str, number: usize) -> String {
    if number == 1 { noun.to_owned() } else { format!("{noun}s") }
}

pub(super) fn quoted<T: std::borrow::Borrow<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("\"{}\"", text.borrow())).collect();
    quoted.join(", ")
}
