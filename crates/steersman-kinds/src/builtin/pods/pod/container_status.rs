//! Validation of the statuses of a pod's containers.

use crate::builtin::pods::pod::security::ID_MAX;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use std::collections::BTreeSet;
use steersman_machinery::field::Error;

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
pub(super) fn transitions(change: &Change<'_>, errors: &mut Vec<Error>) {
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
        for before in old.items() {
            let terminated = before.at(&["state", "terminated"]);
            let name = before.field("name").text();
            let Some(after) = new.items().find(|after| after.field("name").text() == name) else { continue };
            if terminated.is_absent() || after.at(&["state", "terminated"]).is_present() {
                continue;
            }
            let exit_code = terminated.field("exitCode").number().unwrap_or(0);
            let container = spec.field(containers).items().find(|container| container.field("name").text() == name);
            let restarts = container.is_some_and(|container| restarts(&spec, &container, exit_code));
            if is_ephemeral || !restarts {
                // Upstream blames the place that the status had.
                errors.push(before.field("state").forbidden("may not be transitioned to non-terminated state"));
            }
        }
    }
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
pub(super) fn users(pod: &Field<'_>, errors: &mut Vec<Error>) {
    let os = pod.at(&["spec", "os"]);
    for (list, _) in LISTS {
        for status in pod.at(&["status", list]).items() {
            let linux = status.at(&["user", "linux"]);
            match os.field("name").text() {
                _ if linux.is_absent() => {}
                "windows" => errors.push(linux.forbidden("cannot be set for a windows pod")),
                "linux" => check_field(LINUX_USER, &linux, errors),
                _ if os.is_absent() => check_field(LINUX_USER, &linux, errors),
                _ => {}
            }
        }
    }
}

/// Checks the health of the resources that containers have been given.
pub(super) fn allocated_resources(pod: &Field<'_>, errors: &mut Vec<Error>) {
    for (list, containers) in LISTS {
        for status in pod.at(&["status", list]).items() {
            let allocated = status.field("allocatedResourcesStatus");
            if list == "ephemeralContainerStatuses" {
                if !allocated.is_empty() {
                    errors.push(allocated.forbidden("must not be specified in container status"));
                }
                continue;
            }
            let name = status.field("name").text();
            let container = pod.at(&["spec", containers]).items().find(|each| each.field("name").text() == name);
            for resource in allocated.items() {
                if let Some(container) = &container {
                    requested(container, &resource.field("name"), errors);
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

/// The name of an allocated resource must be one that the container requests, or claims.
fn requested(container: &Field<'_>, name: &Field<'_>, errors: &mut Vec<Error>) {
    let resources = container.field("resources");
    if let Some(wanted) = name.text().strip_prefix("claim:") {
        let is_claimed = resources.field("claims").items().any(|claim| {
            let (name, request) = (claim.field("name").text(), claim.field("request").text());
            match request {
                "" => wanted == name,
                request => wanted.split_once('/') == Some((name, request)),
            }
        });
        if !is_claimed {
            errors.push(name.invalid("must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"));
        }
    } else if resources.field("requests").key(name.text()).is_absent() {
        errors.push(name.invalid("must match one of the container's resource requests"));
    }
}

fn not_blank(message: &Field<'_>, errors: &mut Vec<Error>) {
    if message.is_present() && message.is_empty() {
        errors.push(message.required("must be non-empty if specified"));
    }
}
