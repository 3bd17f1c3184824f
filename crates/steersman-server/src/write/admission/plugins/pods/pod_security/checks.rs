//! The checks of each level, by version of Kubernetes.

use crate::write::admission::plugins::pods::pod_security::Finding;
use crate::write::admission::plugins::pods::pod_security::pod_or_template::PodOrTemplate;
use crate::write::admission::plugins::pods::pod_security::policy::{Level, LevelVersion, Version};
use crate::write::admission::plugins::pods::pod_security::{baseline, restricted};

/// The finding of a check for a pod; `None`: the pod is allowed.
type Evaluate = fn(&PodOrTemplate<'_>) -> Option<Finding>;

/// One check of one level.
struct Check {
    name: &'static str,
    level: Level,
    /// The implementations of the check, each with the first minor version that uses it.
    versions: &'static [(u32, Evaluate)],
    /// The baseline check that this one makes superfluous.
    replaces: &'static str,
}

const fn of_baseline(name: &'static str, versions: &'static [(u32, Evaluate)]) -> Check {
    Check { name, level: Level::Baseline, versions, replaces: "" }
}

const fn of_restricted(name: &'static str, versions: &'static [(u32, Evaluate)], replaces: &'static str) -> Check {
    Check { name, level: Level::Restricted, versions, replaces }
}

/// In the order in which findings are reported: by level and name.
static CHECKS: [Check; 19] = [
    of_baseline("appArmorProfile", &[(0, baseline::app_armor)]),
    of_baseline("capabilities_baseline", &[(0, baseline::capabilities)]),
    of_baseline("hostNamespaces", &[(0, baseline::host_namespaces)]),
    of_baseline("hostPathVolumes", &[(0, baseline::host_paths)]),
    of_baseline("hostPorts", &[(0, baseline::host_ports)]),
    of_baseline("hostProbesAndHostLifecycle", &[(34, baseline::hosts_of_handlers)]),
    of_baseline("privileged", &[(0, baseline::privileged)]),
    of_baseline("procMount", &[(0, baseline::proc_mount), (35, baseline::proc_mount_for_users_of_the_host)]),
    of_baseline("seLinuxOptions", &[(0, baseline::se_linux_1_0), (31, baseline::se_linux_1_31)]),
    of_baseline("seccompProfile_baseline", &[(0, baseline::seccomp_annotations), (19, baseline::seccomp)]),
    of_baseline(
        "sysctls",
        &[
            (0, |subject| baseline::sysctls(subject, 0)),
            (27, |subject| baseline::sysctls(subject, 27)),
            (29, |subject| baseline::sysctls(subject, 29)),
            (32, |subject| baseline::sysctls(subject, 32)),
        ],
    ),
    of_baseline("windowsHostProcess", &[(0, baseline::host_process)]),
    of_restricted(
        "allowPrivilegeEscalation",
        &[
            (8, restricted::privilege_escalation),
            (25, |subject| unless_of_windows(subject, restricted::privilege_escalation)),
        ],
        "",
    ),
    of_restricted(
        "capabilities_restricted",
        &[(22, restricted::capabilities), (25, |subject| unless_of_windows(subject, restricted::capabilities))],
        "capabilities_baseline",
    ),
    of_restricted("procMount_restricted", &[(35, baseline::proc_mount)], "procMount"),
    of_restricted("restrictedVolumes", &[(0, restricted::volumes)], "hostPathVolumes"),
    of_restricted(
        "runAsNonRoot",
        &[(0, restricted::non_root), (35, |subject| unless_own_users(subject, restricted::non_root))],
        "",
    ),
    of_restricted(
        "runAsUser",
        &[(23, restricted::user), (35, |subject| unless_own_users(subject, restricted::user))],
        "",
    ),
    of_restricted(
        "seccompProfile_restricted",
        &[(19, restricted::seccomp), (25, |subject| unless_of_windows(subject, restricted::seccomp))],
        "seccompProfile_baseline",
    ),
];

/// A pod for Windows need not set fields that apply only to Linux.
fn unless_of_windows(subject: &PodOrTemplate<'_>, evaluate: Evaluate) -> Option<Finding> {
    if subject.is_of_windows() { None } else { evaluate(subject) }
}

/// In a pod with its own user namespace, root is an unprivileged user on the host.
fn unless_own_users(subject: &PodOrTemplate<'_>, evaluate: Evaluate) -> Option<Finding> {
    if subject.has_own_users() { None } else { evaluate(subject) }
}

impl Check {
    fn at(&self, version: Version) -> Option<Evaluate> {
        let begun = self.versions.iter().rev().find(|(from, _)| Version::Minor(*from) <= version);
        begun.map(|(_, evaluate)| *evaluate)
    }
}

/// The findings of a level for a pod.
pub(super) fn evaluate(level: &LevelVersion, subject: &PodOrTemplate<'_>) -> Vec<Finding> {
    let done = |check: &&Check| check.level <= level.level && check.at(level.version).is_some();
    let replaced: Vec<&str> = CHECKS.iter().filter(done).map(|check| check.replaces).collect();
    let checks = CHECKS.iter().filter(done).filter(|check| !replaced.contains(&check.name));
    checks.filter_map(|check| check.at(level.version)?(subject)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::admission::plugins::pods::pod_security::details;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(level: Level, version: Version, pod: Value, want: &str) {
        let subject = PodOrTemplate::of(&pod, &[]).unwrap();
        assert_eq!(details(&evaluate(&LevelVersion { level, version }, &subject)), want);
    }

    fn plain() -> Value {
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}})
    }

    #[test]
    fn the_restricted_level_must_be_asked_for_by_each_container() {
        check(
            Level::Restricted,
            Version::Latest,
            plain(),
            r#"allowPrivilegeEscalation != false (containers "a", "b" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers "a", "b" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or containers "a", "b" must set securityContext.runAsNonRoot=true), seccompProfile (pod or containers "a", "b" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        );
        check(
            Level::Restricted,
            Version::Minor(18),
            plain(),
            r#"allowPrivilegeEscalation != false (containers "a", "b" must set securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or containers "a", "b" must set securityContext.runAsNonRoot=true)"#,
        );
        let good = json!({"spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "a", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            }}],
        }});
        check(Level::Restricted, Version::Latest, good, "");
        check(
            Level::Restricted,
            Version::Latest,
            json!({"spec": {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "a"}]}}),
            "",
        );
    }

    #[test]
    fn the_baseline_names_what_reaches_the_host() {
        check(Level::Baseline, Version::Latest, plain(), "");
        check(
            Level::Baseline,
            Version::Latest,
            json!({"spec": {
                "hostNetwork": true, "hostPID": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
                "containers": [
                    {"name": "a", "securityContext": {"privileged": true, "capabilities": {"add": ["NET_ADMIN", "CHOWN"]}, "procMount": "Unmasked"},
                     "ports": [{"hostPort": 80}], "livenessProbe": {"httpGet": {"host": "example.com"}}},
                    {"name": "b", "securityContext": {"seLinuxOptions": {"type": "my_t", "user": "u"}, "appArmorProfile": {"type": "Unconfined"}}},
                ],
            }}),
            r#"forbidden AppArmor profile (container "b" must not set AppArmor profile type to "Unconfined"), non-default capabilities (container "a" must not include "NET_ADMIN" in securityContext.capabilities.add), host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volume "v"), hostPort (container "a" uses hostPort 80), probe or lifecycle host (container "a" uses probe or lifecycle host "example.com"), privileged (container "a" must not set securityContext.privileged=true), procMount (container "a" must not set securityContext.procMount to "Unmasked"), seLinuxOptions (container "b" set forbidden securityContext.seLinuxOptions: type "my_t"; user may not be set)"#,
        );
    }

    #[test]
    fn a_pod_with_users_of_its_own_may_be_root_since_1_35() {
        let pod = json!({"spec": {"hostUsers": false, "containers": [{"name": "a", "securityContext": {
            "runAsUser": 0, "procMount": "Unmasked", "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "Localhost"},
        }}]}});
        let restricted = r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#;
        check(Level::Restricted, Version::Latest, pod.clone(), restricted);
        check(Level::Baseline, Version::Latest, pod.clone(), "");
        check(Level::Baseline, Version::Minor(34), pod, restricted);
    }

    #[test]
    fn sysctls_are_allowed_one_version_after_another() {
        let pod = json!({"spec": {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}, {"name": "net.ipv4.tcp_syncookies"}]}, "containers": []}});
        check(Level::Baseline, Version::Minor(31), pod.clone(), "forbidden sysctls (net.ipv4.tcp_rmem)");
        check(Level::Baseline, Version::Minor(32), pod, "");
    }
}
