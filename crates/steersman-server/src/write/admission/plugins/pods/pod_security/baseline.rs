//! The checks of the baseline level, which prevents known privilege escalations.

use crate::write::admission::plugins::pods::pod_security::Finding;
use crate::write::admission::plugins::pods::pod_security::pod_or_template::{
    PodOrTemplate, containers_text, name, plural, quoted, security,
};
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// The capabilities that containers have by default, which may be added.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// The sysctls that affect only the pod, each with the first version that allows it.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.tcp_wmem", 32),
];
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_ANNOTATION_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";

pub(super) fn app_armor(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let is_allowed = |kind: &str| matches!(kind, "Localhost" | "RuntimeDefault");
    let profile = |of: &Value| security(of, &["appArmorProfile", "type"]).and_then(Value::as_str).map(str::to_owned);
    let mut values = BTreeSet::new();
    let mut is_bad =
        |of: &Value| profile(of).filter(|kind| !is_allowed(kind)).map(|kind| values.insert(kind)).is_some();
    let setters = subject.setters(&mut is_bad);
    let is_bad_value =
        |value: &str| !value.is_empty() && value != "runtime/default" && !value.starts_with("localhost/");
    let annotations = subject.annotations();
    let annotations = annotations.filter(|(key, value)| key.starts_with(APP_ARMOR_ANNOTATION) && is_bad_value(value));
    let annotations: BTreeSet<String> = annotations.map(|(key, value)| format!("{key}={value:?}")).collect();
    let by_annotations = (!annotations.is_empty()).then(|| plural("annotation", annotations.len()));
    let setters: Vec<String> = setters.into_iter().chain(by_annotations).collect();
    if setters.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    Some(Finding {
        reason: plural("forbidden AppArmor profile", values.len()),
        detail: format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&values)),
    })
}

pub(super) fn capabilities(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let mut added = BTreeSet::new();
    let containers = subject.containers_that(|container| {
        let all = security(container, &["capabilities", "add"]).and_then(Value::as_array).into_iter().flatten();
        let bad: Vec<&str> = all.filter_map(Value::as_str).filter(|one| !CAPABILITIES.contains(one)).collect();
        added.extend(bad.iter().copied());
        !bad.is_empty()
    });
    let added: Vec<&str> = added.into_iter().collect();
    found(&containers, "non-default capabilities", |containers| {
        format!("{containers} must not include {} in securityContext.capabilities.add", quoted(&added))
    })
}

pub(super) fn host_namespaces(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"];
    let shared = fields.iter().filter(|field| subject.spec.get(**field) == Some(&Value::Bool(true)));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    let finding = || Finding { reason: "host namespaces".to_owned(), detail: shared.join(", ") };
    (!shared.is_empty()).then(finding)
}

pub(super) fn host_paths(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let volumes = subject.volumes().filter(|volume| volume.get("hostPath").is_some_and(|path| !path.is_null()));
    let volumes: Vec<&str> = volumes.map(name).collect();
    let finding = || Finding {
        reason: "hostPath volumes".to_owned(),
        detail: format!("{} {}", plural("volume", volumes.len()), quoted(&volumes)),
    };
    (!volumes.is_empty()).then(finding)
}

pub(super) fn host_ports(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let mut taken = BTreeSet::new();
    let containers = subject.containers_that(|container| {
        let ports = at(container, &["ports"]).and_then(Value::as_array).into_iter().flatten();
        let ports = ports.filter_map(|port| port.get("hostPort")?.as_i64()).filter(|port| *port != 0);
        let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
        taken.extend(ports.iter().cloned());
        !ports.is_empty()
    });
    let ports: Vec<String> = taken.into_iter().collect();
    found(&containers, "hostPort", |text| {
        let (uses, what) = (uses(&containers), plural("hostPort", ports.len()));
        format!("{text} {uses} {what} {}", ports.join(", "))
    })
}

pub(super) fn hosts_of_handlers(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let mut hosts = BTreeSet::new();
    let containers = subject.containers_that(|container| {
        let handlers = HANDLERS.iter().filter_map(|path| at(container, path));
        let asked = handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|kind| str_at(handler, &[kind, "host"])));
        let asked: Vec<&str> = asked.flatten().filter(|host| !host.is_empty()).collect();
        hosts.extend(asked.iter().copied());
        !asked.is_empty()
    });
    // These are reported in alphabetical order.
    let containers: Vec<&str> = containers.into_iter().collect::<BTreeSet<&str>>().into_iter().collect();
    let hosts: Vec<&str> = hosts.into_iter().collect();
    found(&containers, "probe or lifecycle host", |text| {
        let (uses, what) = (uses(&containers), plural("probe or lifecycle host", hosts.len()));
        format!("{text} {uses} {what} {}", quoted(&hosts))
    })
}

pub(super) fn privileged(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let containers =
        subject.containers_that(|container| security(container, &["privileged"]) == Some(&Value::Bool(true)));
    found(&containers, "privileged", |text| format!("{text} must not set securityContext.privileged=true"))
}

pub(super) fn proc_mount(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let mut kinds = BTreeSet::new();
    let containers = subject.containers_that(|container| {
        let kind = security(container, &["procMount"]).and_then(Value::as_str).filter(|kind| *kind != "Default");
        kinds.extend(kind);
        kind.is_some()
    });
    let kinds: Vec<&str> = kinds.into_iter().collect();
    found(&containers, "procMount", |text| {
        format!("{text} must not set securityContext.procMount to {}", quoted(&kinds))
    })
}

pub(super) fn proc_mount_for_users_of_the_host(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    if subject.has_own_users() { None } else { proc_mount(subject) }
}

pub(super) fn se_linux_1_0(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    se_linux(subject, &["", "container_init_t", "container_kvm_t", "container_t"])
}

pub(super) fn se_linux_1_31(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    se_linux(subject, &["", "container_engine_t", "container_init_t", "container_kvm_t", "container_t"])
}

fn se_linux(subject: &PodOrTemplate<'_>, allowed: &[&str]) -> Option<Finding> {
    let (mut types, mut has_user, mut has_role) = (BTreeSet::new(), false, false);
    let mut is_bad = |of: &Value| {
        let Some(options) = security(of, &["seLinuxOptions"]) else { return false };
        let text = |field| str_at(options, &[field]).unwrap_or_default();
        let is_bad_type = !allowed.contains(&text("type"));
        if is_bad_type {
            types.insert(text("type").to_owned());
        }
        has_user |= !text("user").is_empty();
        has_role |= !text("role").is_empty();
        is_bad_type || !text("user").is_empty() || !text("role").is_empty()
    };
    let setters = subject.setters(&mut is_bad)?;
    let types: Vec<String> = types.into_iter().collect();
    let types = (!types.is_empty()).then(|| format!("{} {}", plural("type", types.len()), quoted(&types)));
    let user = has_user.then(|| "user may not be set".to_owned());
    let role = has_role.then(|| "role may not be set".to_owned());
    let what: Vec<String> = types.into_iter().chain(user).chain(role).collect();
    Some(Finding {
        reason: "seLinuxOptions".to_owned(),
        detail: format!("{setters} set forbidden securityContext.seLinuxOptions: {}", what.join("; ")),
    })
}

pub(super) fn seccomp(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let mut values = BTreeSet::new();
    let mut is_bad = |of: &Value| {
        let kind = security(of, &["seccompProfile", "type"]).and_then(Value::as_str);
        let bad = kind.filter(|kind| !is_seccomp_allowed(kind)).map(str::to_owned);
        let is_bad = bad.is_some();
        values.extend(bad);
        is_bad
    };
    let setters = subject.setters(&mut is_bad)?;
    let values: Vec<String> = values.into_iter().collect();
    let detail = format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(&values));
    Some(Finding { reason: "seccompProfile".to_owned(), detail })
}

/// The check of annotations, for versions without the field.
pub(super) fn seccomp_annotations(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let names: BTreeSet<&str> = subject.containers().map(name).collect();
    let is_own = |key: &str| {
        key == SECCOMP_ANNOTATION_OF_POD
            || key.strip_prefix(SECCOMP_ANNOTATION).is_some_and(|container| names.contains(container))
    };
    let is_allowed =
        |value: &str| matches!(value, "docker/default" | "runtime/default") || value.starts_with("localhost/");
    let forbidden = subject.annotations().filter(|(key, value)| is_own(key) && !is_allowed(value));
    let forbidden: BTreeSet<String> = forbidden.map(|(key, value)| format!("{key}={value:?}")).collect();
    let finding = || Finding {
        reason: "seccompProfile".to_owned(),
        detail: format!(
            "forbidden {} {}",
            plural("annotation", forbidden.len()),
            forbidden.iter().map(String::as_str).collect::<Vec<&str>>().join(", ")
        ),
    };
    (!forbidden.is_empty()).then(finding)
}

pub(super) fn is_seccomp_allowed(kind: &str) -> bool {
    matches!(kind, "Localhost" | "RuntimeDefault")
}

pub(super) fn sysctls(subject: &PodOrTemplate<'_>, version: u32) -> Option<Finding> {
    let is_allowed = |name: &str| SYSCTLS.iter().any(|(allowed, from)| *allowed == name && *from <= version);
    let all = subject.security(&["sysctls"]).and_then(Value::as_array).into_iter().flatten();
    let forbidden: Vec<&str> = all.map(name).filter(|name| !is_allowed(name)).collect();
    let finding = || Finding { reason: "forbidden sysctls".to_owned(), detail: forbidden.join(", ") };
    (!forbidden.is_empty()).then(finding)
}

pub(super) fn host_process(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let is_bad = |of: &Value| security(of, &["windowsOptions", "hostProcess"]) == Some(&Value::Bool(true));
    let setters = subject.setters(is_bad)?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Finding { reason: "hostProcess".to_owned(), detail })
}

/// The finding about some containers, if there are any.
pub(super) fn found(containers: &[&str], reason: &str, detail: impl FnOnce(String) -> String) -> Option<Finding> {
    let finding = || Finding { reason: reason.to_owned(), detail: detail(containers_text(containers)) };
    (!containers.is_empty()).then(finding)
}

/// The verb for this number of containers.
fn uses(containers: &[&str]) -> &'static str {
    if containers.len() == 1 { "uses" } else { "use" }
}
