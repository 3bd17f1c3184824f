//! Whether an object is in the scopes of a quota.

use crate::admission::resource_quota::usage::Subject;
use crate::builtin::pod;
use crate::builtin::resource_quota::{Scope, scopes};
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// Whether an object is in all scopes of a quota; one without scopes contains everything.
pub(super) fn contains(subject: &Subject<'_>, object: &Value, quota: &Value) -> bool {
    scopes(quota).iter().all(|scope| match subject {
        Subject::Pod => contains_pod(scope, object),
        Subject::Claim => scope.name == "VolumeAttributesClass" && contains_class(scope, attributes_class(object)),
        Subject::Object { .. } | Subject::Service => false,
    })
}

fn contains_pod(scope: &Scope<'_>, pod: &Value) -> bool {
    let is_terminating =
        || at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0);
    match scope.name {
        "BestEffort" => pod::is_best_effort(pod),
        "CrossNamespacePodAffinity" => reaches_other_namespaces(pod),
        "NotBestEffort" => !pod::is_best_effort(pod),
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

/// Whether a rule of affinity looks at pods of other namespaces.
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
        assert_eq!(contains(&Subject::Pod, &pod, &json!({ "spec": quota })), want, "{pod} in {quota}");
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
        assert!(!contains(&Subject::Service, &json!({}), &quota));
        assert!(contains(&Subject::Service, &json!({}), &json!({})));
    }
}
