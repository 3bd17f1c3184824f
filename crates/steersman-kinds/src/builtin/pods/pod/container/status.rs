//! Validation of the statuses of a pod's containers.

use crate::builtin::pods::pod::security::ID_MAX;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use std::collections::{BTreeMap, BTreeSet};
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at};

/// The bound of the message about a resource's health, in bytes.
const MESSAGE_LENGTH_MAX: usize = 1024;

/// The lists of statuses, each with the containers that it is about.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// The rules of the user that a container has on Linux.
pub(in crate::builtin) const LINUX_USER: &[Rule] = &[
    Rule::new("uid", Check::Within(0, ID_MAX)),
    Rule::new("gid", Check::Within(0, ID_MAX)),
    Rule::new("supplementalGroups[]", Check::Within(0, ID_MAX)),
];

/// The rules of one unit of a resource that a container has been given.
pub(in crate::builtin) const HEALTH: &[Rule] = &[
    Rule::new("health", Check::OneOf(&["Healthy", "Unhealthy", "Unknown"])),
    Rule::new("message", Check::LengthMax(MESSAGE_LENGTH_MAX)),
    Rule::new("message", Check::By(not_blank)),
];

/// Checks that a container which has ended for good does not run again.
pub(in crate::builtin::pods::pod) fn transitions(change: &Change<'_>, errors: &mut Vec<Error>) {
    let spec = change.new.field("spec");
    let status = change.field("status");
    let restarts_all = LISTS[..2].iter().flat_map(|(_, containers)| spec.field(containers).items()).any(|container| {
        container.field("restartPolicyRules").items().any(|rule| rule.field("action").text() == "RestartAllContainers")
    });
    for (list, containers) in LISTS {
        // A container that is added for debugging never runs again.
        let is_ephemeral = list == "ephemeralContainerStatuses";
        if restarts_all && !is_ephemeral {
            continue;
        }
        let Change { new, old } = status.field(list);
        let (after, containers) = (by_name(new.value), by_name(spec.field(containers).value));
        for before in old.items() {
            let name = text(before.value, "name");
            let Some(ended) = terminated(before.value) else { continue };
            let Some(after) = after.get(name) else { continue };
            if terminated(after).is_some() {
                continue;
            }
            let exit_code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
            let restarts = containers.get(name).is_some_and(|container| {
                restarts(&spec, &Field { path: spec.path.clone(), value: container }, exit_code)
            });
            if is_ephemeral || !restarts {
                // Upstream blames the place that the status had.
                errors.push(before.field("state").forbidden("may not be transitioned to non-terminated state"));
            }
        }
    }
}

/// The items of a list by name; of several with one name, the first.
fn by_name(list: &Value) -> BTreeMap<&str, &Value> {
    // A map keeps the last of equal keys.
    list.as_array().into_iter().flatten().rev().map(|item| (text(item, "name"), item)).collect()
}

fn terminated(status: &Value) -> Option<&Value> {
    at(status, &["state", "terminated"]).filter(|terminated| !terminated.is_null())
}

fn text<'v>(item: &'v Value, field: &str) -> &'v str {
    str_at(item, &[field]).unwrap_or_default()
}

/// Whether a container that has ended with an exit code runs again: by its own rules, then by its own policy, then by
/// the policy of the pod.
fn restarts(spec: &Field<'_>, container: &Field<'_>, exit_code: i64) -> bool {
    let own = container.field("restartPolicy");
    let is_matched = |rule: &Field<'_>| {
        let codes = rule.field("exitCodes");
        let is_listed = codes.field("values").items().any(|code| code.number() == Some(exit_code));
        match codes.field("operator").text() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        }
    };
    if own.is_present()
        && let Some(rule) = container.field("restartPolicyRules").items().find(is_matched)
        && rule.field("action").text() == "Restart"
    {
        return true;
    }
    let policy = if own.is_present() { own } else { spec.field("restartPolicy") };
    match policy.text() {
        "OnFailure" => exit_code != 0,
        "Never" => false,
        _ => true,
    }
}

/// Checks the user that each container has.
pub(in crate::builtin::pods::pod) fn users(pod: &Field<'_>, errors: &mut Vec<Error>) {
    let os = pod.at(&["spec", "os"]);
    let os = if os.is_absent() { "linux" } else { os.field("name").text() };
    for (list, _) in LISTS {
        for status in pod.at(&["status", list]).items() {
            let linux = status.at(&["user", "linux"]);
            match os {
                _ if linux.is_absent() => {}
                "windows" => errors.push(linux.forbidden("cannot be set for a windows pod")),
                "linux" => check_field(LINUX_USER, &linux, errors),
                _ => {}
            }
        }
    }
}

/// Checks the health of the resources that containers have been given.
pub(in crate::builtin::pods::pod) fn allocated_resources(pod: &Field<'_>, errors: &mut Vec<Error>) {
    for (list, containers) in LISTS {
        let containers = pod.at(&["spec", containers]);
        let containers = by_name(containers.value);
        for status in pod.at(&["status", list]).items() {
            let allocated = status.field("allocatedResourcesStatus");
            if list == "ephemeralContainerStatuses" {
                if !allocated.is_empty() {
                    errors.push(allocated.forbidden("must not be specified in container status"));
                }
                continue;
            }
            let requested = containers.get(text(status.value, "name")).map(|container| Requested::of(container));
            for resource in allocated.items() {
                if let Some(requested) = &requested {
                    requested.check(&resource.field("name"), errors);
                }
                let mut seen = BTreeSet::new();
                for unit in resource.field("resources").items() {
                    check_field(HEALTH, &unit, errors);
                    let id = unit.field("resourceID");
                    if !seen.insert(id.text()) {
                        errors.push(id.duplicate());
                    }
                }
            }
        }
    }
}

/// The resources that a container requests and claims.
struct Requested<'v> {
    requests: &'v Value,
    /// The names of claims, each with the request in it, if the container names one.
    claims: BTreeSet<(&'v str, &'v str)>,
}

impl<'v> Requested<'v> {
    fn of(container: &'v Value) -> Requested<'v> {
        let requests = at(container, &["resources", "requests"]).unwrap_or(&Value::Null);
        let claims = at(container, &["resources", "claims"]).and_then(Value::as_array).into_iter().flatten();
        Requested { requests, claims: claims.map(|claim| (text(claim, "name"), text(claim, "request"))).collect() }
    }

    /// The name of an allocated resource must be one that the container requests, or claims.
    fn check(&self, name: &Field<'_>, errors: &mut Vec<Error>) {
        if let Some(wanted) = name.text().strip_prefix("claim:") {
            if !self.claims.contains(&wanted.split_once('/').unwrap_or((wanted, ""))) {
                errors.push(name.invalid("must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"));
            }
        } else if self.requests.get(name.text()).is_none() {
            errors.push(name.invalid("must match one of the container's resource requests"));
        }
    }
}

fn not_blank(message: &Field<'_>, errors: &mut Vec<Error>) {
    if message.is_present() && message.is_empty() {
        errors.push(message.required("must be non-empty if specified"));
    }
}
