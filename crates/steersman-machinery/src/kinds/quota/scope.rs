//! Whether an object is in the scopes of a quota.

use crate::Value;
use crate::kinds::pod::qos;
use crate::kinds::quota::usage::CountedObject;
use crate::value::{at, str_at};

/// A scope of a quota, as a requirement.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The name of the scope.
    pub name: &'a str,
    /// The operator: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'a str,
    /// The names of classes.
    pub values: Vec<&'a str>,
}

/// The scopes of a quota: an object counts only if it is in all of them.
pub fn scopes(quota: &Value) -> Vec<Scope<'_>> {
    let list = |path: &[&str]| at(quota, path).and_then(Value::as_array).into_iter().flatten();
    let named = list(&["spec", "scopes"]).filter_map(Value::as_str);
    let named = named.map(|name| Scope { name, operator: "Exists", values: Vec::new() });
    let selected = list(&["spec", "scopeSelector", "matchExpressions"]).map(|one| Scope {
        name: str_at(one, &["scopeName"]).unwrap_or_default(),
        operator: str_at(one, &["operator"]).unwrap_or_default(),
        values: at(one, &["values"])
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
    });
    named.chain(selected).collect()
}

/// Whether an object is in all scopes of a quota; a quota without scopes matches every object.
pub fn contains(subject: &CountedObject<'_>, object: &Value, quota: &Value) -> bool {
    scopes(quota).iter().all(|scope| match subject {
        CountedObject::Pod => contains_pod(scope, object),
        CountedObject::Claim => {
            scope.name == "VolumeAttributesClass" && contains_class(scope, attributes_class(object))
        }
        CountedObject::Object { .. } | CountedObject::Service => false,
    })
}

fn is_best_effort(pod: &Value) -> bool {
    qos::class(pod) == "BestEffort"
}

fn contains_pod(scope: &Scope<'_>, pod: &Value) -> bool {
    let is_terminating =
        || at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0);
    match scope.name {
        "BestEffort" => is_best_effort(pod),
        "CrossNamespacePodAffinity" => reaches_other_namespaces(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "NotTerminating" => !is_terminating(),
        "PriorityClass" => contains_class(scope, str_at(pod, &["spec", "priorityClassName"])),
        "Terminating" => is_terminating(),
        _ => false,
    }
}

fn attributes_class(claim: &Value) -> Option<&str> {
    str_at(claim, &["spec", "volumeAttributesClassName"])
}

/// Whether the name of a class satisfies a requirement.
fn contains_class(scope: &Scope<'_>, class: Option<&str>) -> bool {
    let class = class.filter(|class| !class.is_empty());
    let is_listed = class.is_some_and(|class| scope.values.contains(&class));
    match scope.operator {
        "DoesNotExist" => class.is_none(),
        "Exists" => class.is_some(),
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    }
}

/// Whether an affinity term selects pods of other namespaces.
fn reaches_other_namespaces(pod: &Value) -> bool {
    let terms = |affinity: &str, field: &str| {
        at(pod, &["spec", "affinity", affinity, field]).and_then(Value::as_array).into_iter().flatten()
    };
    let reaches = |term: &Value| {
        let has_names = at(term, &["namespaces"]).and_then(Value::as_array).is_some_and(|names| !names.is_empty());
        has_names || at(term, &["namespaceSelector"]).is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        let required = terms(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = terms(affinity, "preferredDuringSchedulingIgnoredDuringExecution");
        required.chain(preferred.filter_map(|term| term.get("podAffinityTerm"))).any(reaches)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: Value, quota: Value, want: bool) {
        let pod = json!({ "spec": spec });
        assert_eq!(contains(&CountedObject::Pod, &pod, &json!({ "spec": quota })), want, "{pod} in {quota}");
    }

    #[test]
    fn a_pod_is_in_a_scope_or_not() {
        let plain = json!({"containers": [{}]});
        check(plain.clone(), json!({}), true);
        check(plain.clone(), json!({"scopes": ["BestEffort", "NotTerminating"]}), true);
        check(plain.clone(), json!({"scopes": ["BestEffort", "Terminating"]}), false);
        check(json!({"activeDeadlineSeconds": 5}), json!({"scopes": ["Terminating"]}), true);
        check(
            json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}),
            json!({"scopes": ["NotBestEffort"]}),
            true,
        );
        let of_high = |operator: &str, values: Value| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        let high = json!({"priorityClassName": "high"});
        check(high.clone(), of_high("In", json!(["high"])), true);
        check(high.clone(), of_high("NotIn", json!(["high"])), false);
        check(high, of_high("Exists", json!([])), true);
        check(plain.clone(), of_high("In", json!(["high"])), false);
        check(plain, of_high("DoesNotExist", json!([])), true);
        let far = json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"podAffinityTerm": {"namespaces": ["b"]}},
        ]}}});
        check(far, json!({"scopes": ["CrossNamespacePodAffinity"]}), true);
    }

    #[test]
    fn only_pods_and_claims_have_scopes() {
        let quota = json!({"spec": {"scopes": ["NotTerminating"]}});
        assert!(!contains(&CountedObject::Service, &json!({}), &quota));
        assert!(contains(&CountedObject::Service, &json!({}), &json!({})));
    }
}
