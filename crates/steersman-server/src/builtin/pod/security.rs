//! The rules of what a container, and all of a pod, may do.

use crate::builtin::place::Place;
use crate::builtin::rules;
use steersman_machinery::field::Error;

const ID_MAX: i64 = i32::MAX as i64;

/// What is said for the whole pod.
pub(crate) fn validate_pod(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let context = spec.field("securityContext");
    for field in ["fsGroup", "runAsGroup", "runAsUser"] {
        rules::within(&context.field(field), 0, ID_MAX, faults);
    }
    context.field("supplementalGroups").items().for_each(|group| rules::within(&group, 0, ID_MAX, faults));
    rules::one_of_if_present(&context.field("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], faults);
    rules::one_of_if_present(&context.field("supplementalGroupsPolicy"), &["Merge", "Strict"], faults);
    profile(&context.field("seccompProfile"), faults);
    profile(&context.field("appArmorProfile"), faults);
    for sysctl in context.field("sysctls").items() {
        rules::required(&sysctl.field("name"), faults);
    }
    let (shared, host) = (spec.field("shareProcessNamespace"), spec.field("hostPID"));
    if shared.flag() && host.flag() {
        faults.push(shared.invalid("ShareProcessNamespace and HostPID cannot both be enabled"));
    }
}

/// What is said for one container.
pub(crate) fn validate_container(context: &Place<'_>, faults: &mut Vec<Error>) {
    for field in ["runAsGroup", "runAsUser"] {
        rules::within(&context.field(field), 0, ID_MAX, faults);
    }
    rules::one_of_if_present(&context.field("procMount"), &["Default", "Unmasked"], faults);
    profile(&context.field("seccompProfile"), faults);
    profile(&context.field("appArmorProfile"), faults);
    let escalation = context.field("allowPrivilegeEscalation");
    if escalation.is_absent() || escalation.flag() {
        return;
    }
    if context.field("privileged").flag() {
        faults.push(context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
    }
    let adds_all = context.at(&["capabilities", "add"]).items().any(|one| matches!(one.text(), "CAP_SYS_ADMIN"));
    if adds_all {
        let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        faults.push(context.invalid(why));
    }
}

/// A profile is of a kind, and one of the node's own files says which.
fn profile(profile: &Place<'_>, faults: &mut Vec<Error>) {
    if profile.is_absent() {
        return;
    }
    let (kind, file) = (profile.field("type"), profile.field("localhostProfile"));
    if kind.is_empty() {
        faults.push(kind.required("type is required when a profile is set"));
        return;
    }
    rules::one_of(&kind, &["Localhost", "RuntimeDefault", "Unconfined"], faults);
    if kind.text() == "Localhost" {
        if file.is_empty() {
            faults.push(file.required("must be set when `type` is Localhost"));
        } else {
            rules::local_path(&file, faults);
        }
    } else if file.is_present() {
        faults.push(file.invalid("can only be set when type is set to Localhost"));
    }
}
