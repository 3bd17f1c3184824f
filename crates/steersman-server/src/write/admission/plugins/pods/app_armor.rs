//! AppArmor: copies the profiles in a new pod's annotations to the fields that have replaced these, and warns about it.
//!
//! Upstream does this in the pod's strategy (`applyAppArmorVersionSkew`). Here it is a plugin, because it must see the
//! pod before the field is set to know what to warn about, and before the plugin that checks the security of pods.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, is_about_pod};
use futures::future::{self, BoxFuture};
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{at, set_at, str_at};

const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

#[derive(Debug)]
pub(crate) struct AppArmor;

impl Plugin for AppArmor {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && action == Action::Create && is_about_pod(attributes)
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let deprecated = new.map(set_profiles).unwrap_or_default();
        for key in deprecated {
            let why = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
            review.operation.warn(format!("metadata.annotations[{key}]: {why}"));
        }
        Box::pin(future::ready(Ok(())))
    }
}

/// Sets the fields of containers that have only an annotation, and returns those annotations.
fn set_profiles(pod: &mut Value) -> Vec<String> {
    let annotations = at(pod, &["metadata", "annotations"]).and_then(Value::as_object);
    let is_named = annotations.is_some_and(|annotations| annotations.keys().any(|key| key.starts_with(PREFIX)));
    if !is_named || str_at(pod, &["spec", "os", "name"]) == Some("windows") {
        return Vec::new();
    }
    let annotations = annotations.cloned().unwrap_or_default();
    let of_pod = at(pod, &["spec", "securityContext", "appArmorProfile"]).cloned();
    let mut deprecated = Vec::new();
    for list in ["initContainers", "containers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let key = format!("{PREFIX}{}", str_at(container, &["name"]).unwrap_or_default());
            let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else { continue };
            let has_field =
                at(container, &["securityContext", "appArmorProfile"]).is_some_and(|field| !field.is_null());
            let profile = profile(annotation);
            // A profile that the pod sets for all its containers need not be repeated.
            if has_field || profile.is_some() && profile == of_pod {
                continue;
            }
            if let Some(profile) = profile {
                set_at(container, &["securityContext", "appArmorProfile"], profile);
            }
            deprecated.push(key);
        }
    }
    deprecated
}

/// The profile of an annotation; `None` if it is invalid.
fn profile(annotation: &str) -> Option<Value> {
    match annotation.strip_prefix("localhost/") {
        Some(name) if !name.is_empty() => Some(json!({"type": "Localhost", "localhostProfile": name})),
        Some(_) => None,
        None if annotation == "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        None if annotation == "unconfined" => Some(json!({"type": "Unconfined"})),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(annotation: &str, spec: Value, want: Value, is_deprecated: bool) {
        let mut pod = json!({"metadata": {"annotations": {format!("{PREFIX}a"): annotation}}, "spec": spec});
        assert_eq!(!set_profiles(&mut pod).is_empty(), is_deprecated, "{annotation}");
        let set = at(&pod["spec"]["containers"][0], &["securityContext", "appArmorProfile"]).cloned();
        assert_eq!(set.unwrap_or_default(), want, "{annotation}");
    }

    #[test]
    fn an_annotation_becomes_a_field_where_there_is_none() {
        let plain = || json!({"containers": [{"name": "a"}]});
        check("unconfined", plain(), json!({"type": "Unconfined"}), true);
        check("localhost/x", plain(), json!({"type": "Localhost", "localhostProfile": "x"}), true);
        check("odd", plain(), Value::Null, true);
        let own = json!({"type": "RuntimeDefault"});
        let with_field = json!({"containers": [{"name": "a", "securityContext": {"appArmorProfile": own}}]});
        check("unconfined", with_field, own.clone(), false);
        let by_pod = json!({"securityContext": {"appArmorProfile": own}, "containers": [{"name": "a"}]});
        check("runtime/default", by_pod, Value::Null, false);
    }
}
