//! Validation of the security contexts of a container and of a pod.

use crate::builtin::pods::pod::windows;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use steersman_machinery::Value;
use steersman_machinery::field::Error;

pub(super) const ID_MAX: i64 = i32::MAX as i64;

/// The rules of the security context of a pod.
pub(super) const POD: &[Rule] = &[
    Rule::new("fsGroup", Check::Within(0, ID_MAX)),
    Rule::new("runAsGroup", Check::Within(0, ID_MAX)),
    Rule::new("runAsUser", Check::Within(0, ID_MAX)),
    Rule::new("supplementalGroups[]", Check::Within(0, ID_MAX)),
    Rule::new("fsGroupChangePolicy", Check::OneOf(&["Always", "OnRootMismatch"])).if_present(),
    Rule::new("supplementalGroupsPolicy", Check::OneOf(&["Merge", "Strict"])).if_present(),
    // The other policy, `MountOption`, needs a feature that is off by default.
    Rule::new("seLinuxChangePolicy", Check::OneOf(&["Recursive"])).if_present(),
    Rule::new("seccompProfile", Check::Rules(SECCOMP)).if_present(),
    Rule::new("appArmorProfile", Check::By(app_armor)).if_present(),
    Rule::new("sysctls", Check::By(sysctls)),
    Rule::new("windowsOptions", Check::Rules(windows::OPTIONS)).if_present(),
];

/// The rules of the security context of a container.
pub(in crate::builtin) const CONTAINER: &[Rule] = &[
    Rule::new("runAsGroup", Check::Within(0, ID_MAX)),
    Rule::new("runAsUser", Check::Within(0, ID_MAX)),
    Rule::new("procMount", Check::OneOf(&["Default", "Unmasked"])).if_present(),
    Rule::new("seccompProfile", Check::Rules(SECCOMP)).if_present(),
    Rule::new("appArmorProfile", Check::By(app_armor)).if_present(),
    Rule::new("", Check::By(escalation)),
    Rule::new("windowsOptions", Check::Rules(windows::OPTIONS)).if_present(),
];

const SECCOMP: &[Rule] = &[
    Rule::new("type", Check::OneOf(PROFILES)).and_required("type is required when seccompProfile is set"),
    Rule::new("", Check::By(seccomp_file)),
];

/// A pod that has users of its own cannot share the namespaces of the host. A pod with the users of the host cannot unmask the files of
/// processes.
pub(super) fn users(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if spec.field("hostUsers").value == &Value::Bool(false) {
        // Upstream names two of the fields as they are named in Go.
        for (field, blamed) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if spec.field(field).flag() {
                errors.push(Error::forbidden(&spec.path.child(blamed), "when `hostUsers` is false"));
            }
        }
        for container in
            ["initContainers", "containers", "ephemeralContainers"].iter().flat_map(|list| spec.field(list).items())
        {
            let devices = container.field("volumeDevices");
            if !devices.is_empty() {
                errors.push(devices.forbidden("when `hostUsers` is false"));
            }
        }
    } else {
        check_field(MASKED, spec, errors);
    }
}

/// The rules of the containers of a pod with the users of the host.
pub(in crate::builtin) const MASKED: &[Rule] = &[
    Rule::new("containers[].securityContext.procMount", NOT_UNMASKED),
    Rule::new("initContainers[].securityContext.procMount", NOT_UNMASKED),
    Rule::new("ephemeralContainers[].securityContext.procMount", NOT_UNMASKED),
];

const NOT_UNMASKED: Check = Check::Text(|mount| mount != "Unmasked", "`hostUsers` must be false to use `Unmasked`");

/// In the internal form the field is part of the security context, and upstream names that.
pub(super) fn namespaces(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if spec.field("shareProcessNamespace").flag() && spec.field("hostPID").flag() {
        let path = spec.path.child("securityContext").child("shareProcessNamespace");
        errors.push(Error::invalid(&path, true, "ShareProcessNamespace and HostPID cannot both be enabled"));
    }
}

fn escalation(context: &Field<'_>, errors: &mut Vec<Error>) {
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

const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

fn seccomp_file(profile: &Field<'_>, errors: &mut Vec<Error>) {
    let (kind, file) = (profile.field("type"), profile.field("localhostProfile"));
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
        _ => rules::one_of(&kind, PROFILES, errors),
    }
}
