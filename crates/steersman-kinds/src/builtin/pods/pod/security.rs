//! Validation of the security contexts of a container and of a pod.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use steersman_machinery::Value;
use steersman_machinery::field::Error;

const ID_MAX: i64 = i32::MAX as i64;

/// Validates the security context of the pod.
pub(super) fn validate_pod(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let context = spec.field("securityContext");
    for field in ["fsGroup", "runAsGroup", "runAsUser"] {
        rules::within(&context.field(field), 0, ID_MAX, errors);
    }
    context.field("supplementalGroups").items().for_each(|group| rules::within(&group, 0, ID_MAX, errors));
    rules::one_of_if_present(&context.field("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], errors);
    rules::one_of_if_present(&context.field("supplementalGroupsPolicy"), &["Merge", "Strict"], errors);
    // The other policy, `MountOption`, needs a feature that is off by default.
    rules::one_of_if_present(&context.field("seLinuxChangePolicy"), &["Recursive"], errors);
    seccomp(&context.field("seccompProfile"), errors);
    app_armor(&context.field("appArmorProfile"), errors);
    sysctls(&context.field("sysctls"), errors);
    if spec.field("hostUsers").value == &Value::Bool(false) {
        // Upstream names two of the fields as they are named in Go.
        for (field, blamed) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if spec.field(field).flag() {
                errors.push(Error::forbidden(&spec.path.child(blamed), "when `hostUsers` is false"));
            }
        }
    } else {
        for list in ["containers", "initContainers"] {
            spec.field(list).items().for_each(|container| masked(&container, errors));
        }
    }
    if spec.field("shareProcessNamespace").flag() && spec.field("hostPID").flag() {
        // In the internal form the field is part of the security context, and upstream names that.
        let path = context.path.child("shareProcessNamespace");
        errors.push(Error::invalid(&path, true, "ShareProcessNamespace and HostPID cannot both be enabled"));
    }
}

/// The files of processes can be unmasked only for users that are not those of the host.
fn masked(container: &Field<'_>, errors: &mut Vec<Error>) {
    let mount = container.at(&["securityContext", "procMount"]);
    if mount.text() == "Unmasked" {
        errors.push(mount.invalid("`hostUsers` must be false to use `Unmasked`"));
    }
}

/// Validates the security context of a container.
pub(super) fn validate_container(context: &Field<'_>, errors: &mut Vec<Error>) {
    for field in ["runAsGroup", "runAsUser"] {
        rules::within(&context.field(field), 0, ID_MAX, errors);
    }
    rules::one_of_if_present(&context.field("procMount"), &["Default", "Unmasked"], errors);
    seccomp(&context.field("seccompProfile"), errors);
    app_armor(&context.field("appArmorProfile"), errors);
    let escalation = context.field("allowPrivilegeEscalation");
    if escalation.is_absent() || escalation.flag() {
        return;
    }
    if context.field("privileged").flag() {
        errors.push(context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
    }
    let adds_all = context.at(&["capabilities", "add"]).items().any(|one| matches!(one.text(), "CAP_SYS_ADMIN"));
    if adds_all {
        let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.push(context.invalid(why));
    }
}

fn sysctls(sysctls: &Field<'_>, errors: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 253;
    const FORM: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(FORM).expect("invariant: the pattern is a constant"));
    let mut names = BTreeSet::new();
    for sysctl in sysctls.items() {
        let name = sysctl.field("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if name.text().len() > LENGTH_MAX || !NAME.is_match(name.text()) {
            errors.push(name.invalid(format!("must have at most {LENGTH_MAX} characters and match regex {FORM}")));
        } else if names.contains(name.text()) {
            errors.push(name.duplicate());
        }
        names.insert(name.text());
    }
}

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn seccomp(profile: &Field<'_>, errors: &mut Vec<Error>) {
    let (kind, file) = (profile.field("type"), profile.field("localhostProfile"));
    if profile.is_absent() {
        return;
    }
    if kind.is_empty() {
        errors.push(kind.required("type is required when seccompProfile is set"));
    } else {
        rules::one_of(&kind, &PROFILES, errors);
    }
    match (kind.text() == "Localhost", file.is_present()) {
        (true, false) => errors.push(file.required("must be set when seccomp type is Localhost")),
        (true, true) => rules::local_path(&file, errors),
        (false, true) => {
            let why = "can only be set when seccomp type is Localhost";
            errors.push(Error::invalid(&file.path, profile.value.clone(), why));
        }
        (false, false) => {}
    }
}

fn app_armor(profile: &Field<'_>, errors: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 4095;
    let (kind, file) = (profile.field("type"), profile.field("localhostProfile"));
    if profile.is_absent() {
        return;
    }
    match kind.text() {
        "" => errors.push(kind.required("type is required when appArmorProfile is set")),
        "Localhost" => {
            if file.text().trim() != file.text() {
                errors.push(file.invalid("must not be padded with whitespace"));
            } else if file.is_empty() {
                errors.push(file.required("must be set when AppArmor type is Localhost"));
            }
            if file.text().len() > LENGTH_MAX {
                errors.push(Error::too_long(&file.path, LENGTH_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" if file.is_present() => {
            errors.push(file.invalid("can only be set when AppArmor type is Localhost"));
        }
        _ => rules::one_of(&kind, &PROFILES, errors),
    }
}
