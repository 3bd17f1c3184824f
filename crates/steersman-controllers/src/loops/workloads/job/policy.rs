//! The policies of a Job: whether a Pod's failure counts, and whether the succeeded indexes are enough.
//!
//! Follows upstream's `pod_failure_policy.go` and `success_policy.go`.

use crate::loops::workloads::job::intervals::Intervals;
use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, SuccessPolicy};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;

/// The effect of a Pod's failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    Counts,
    FailsIndex,
    /// The Job fails, with this message of its condition.
    FailsJob(String),
    Ignored,
}

/// The action of the first rule that matches a failed Pod.
pub(crate) fn failure(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Failure {
    for (at, rule) in policy.into_iter().flat_map(|policy| policy.rules.iter().enumerate()) {
        let what = if let Some(requirement) = &rule.on_exit_codes {
            let Some((container, code)) = exit_code(pod, requirement) else { continue };
            format!("Container {} for pod {} failed with exit code {code}", container.name, full_name(pod))
        } else {
            let mut conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
            let found = conditions.find(|condition| {
                rule.on_pod_conditions.iter().flatten().any(|pattern| {
                    pattern.type_ == condition.type_ && pattern.status.as_deref() == Some(&*condition.status)
                })
            });
            let Some(condition) = found else { continue };
            format!("Pod {} has condition {}", full_name(pod), condition.type_)
        };
        return match &*rule.action {
            "Count" => Failure::Counts,
            "FailIndex" => Failure::FailsIndex,
            "FailJob" => Failure::FailsJob(format!("{what} matching {} rule at index {at}", rule.action)),
            "Ignore" => Failure::Ignored,
            // An unknown action, of a newer version: the next rule applies.
            _ => continue,
        };
    }
    Failure::Counts
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), pod.name_any())
}

/// The first container that ended with an exit code that the rule names.
fn exit_code<'a>(
    pod: &'a Pod,
    requirement: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a ContainerStatus, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    containers.filter_map(|container| Some((container, container.state.as_ref()?.terminated.as_ref()?.exit_code))).find(
        |(container, code)| {
            let is_meant = requirement.container_name.as_ref().is_none_or(|name| *name == container.name);
            let is_listed = requirement.values.contains(code);
            is_meant
                && *code != 0
                && match &*requirement.operator {
                    "In" => is_listed,
                    "NotIn" => !is_listed,
                    _ => false,
                }
        },
    )
}

/// The message of the Job's condition if the succeeded indexes are enough.
pub(crate) fn success(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Intervals) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let is_met = |rule: &k8s_openapi::api::batch::v1::SuccessPolicyRule| {
        let has_count = |n: i32| rule.succeeded_count.is_some_and(|count| n >= count);
        match &rule.succeeded_indexes {
            None => has_count(succeeded.total()),
            Some(indexes) => {
                let wanted = Intervals::parse(indexes, completions);
                let n_common = wanted.n_common(succeeded);
                !wanted.is_empty() && (n_common == wanted.total() || has_count(n_common))
            }
        }
    };
    let at = policy?.rules.iter().position(is_met)?;
    Some(format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(rules: Value, status: Value, want: Failure) {
        let policy: PodFailurePolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "status": status})).unwrap();
        assert_eq!(failure(Some(&policy), &pod), want);
    }

    fn exited(name: &str, code: i32) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code}}})
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let on = |action: &str, operator: &str, values: &[i32]| json!({"action": action, "onExitCodes": {"operator": operator, "values": values}});
        let status = json!({"containerStatuses": [exited("good", 0), exited("bad", 42)]});
        let message = "Container bad for pod n/p failed with exit code 42 matching FailJob rule at index 1".to_owned();
        check(
            json!([on("Ignore", "In", &[1, 0]), on("FailJob", "In", &[42])]),
            status.clone(),
            Failure::FailsJob(message),
        );
        check(json!([on("Ignore", "NotIn", &[1]), on("FailJob", "In", &[42])]), status.clone(), Failure::Ignored);
        check(json!([on("FailIndex", "In", &[42])]), status.clone(), Failure::FailsIndex);
        check(json!([on("Nonsense", "In", &[42]), on("Ignore", "In", &[42])]), status.clone(), Failure::Ignored);
        check(json!([on("FailJob", "In", &[0])]), status, Failure::Counts);
        let init = json!({"initContainerStatuses": [exited("init", 7)]});
        check(json!([on("Ignore", "In", &[7])]), init, Failure::Ignored);
    }

    #[test]
    fn a_rule_may_be_about_one_container() {
        let rule = |name: &str| json!([{"action": "Ignore", "onExitCodes": {"containerName": name, "operator": "In", "values": [42]}}]);
        let status = json!({"containerStatuses": [exited("bad", 42)]});
        check(rule("bad"), status.clone(), Failure::Ignored);
        check(rule("other"), status, Failure::Counts);
    }

    #[test]
    fn a_rule_may_be_about_conditions() {
        let rule = |action: &str, status: &str| json!([{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": status}]}]);
        let status = json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "DisruptionTarget", "status": "True"}]});
        check(rule("Ignore", "True"), status.clone(), Failure::Ignored);
        check(rule("Ignore", "False"), status.clone(), Failure::Counts);
        let message = "Pod n/p has condition DisruptionTarget matching FailJob rule at index 0".to_owned();
        check(rule("FailJob", "True"), status, Failure::FailsJob(message));
    }

    #[test]
    fn a_job_has_succeeded_when_a_rule_is_met() {
        let policy = |rules: Value| serde_json::from_value::<SuccessPolicy>(json!({"rules": rules})).unwrap();
        let met = |rules: Value, succeeded: &str| success(Some(&policy(rules)), 10, &Intervals::parse(succeeded, 10));
        let first = Some("Matched rules at index 0".to_owned());
        assert_eq!(met(json!([{"succeededIndexes": "0,2-3"}]), "0-3"), first);
        assert_eq!(met(json!([{"succeededIndexes": "0,2-3"}]), "0-2"), None);
        assert_eq!(met(json!([{"succeededIndexes": "0-9", "succeededCount": 2}]), "3,7"), first);
        assert_eq!(met(json!([{"succeededCount": 3}]), "3,7"), None);
        assert_eq!(
            met(json!([{"succeededCount": 3}, {"succeededCount": 1}]), "3"),
            Some("Matched rules at index 1".to_owned())
        );
        assert_eq!(met(json!([{"succeededIndexes": "x"}, {"succeededCount": 0}]), ""), None);
    }
}
