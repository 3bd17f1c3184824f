//! Warnings for the writer of a valid pod. Follows kubernetes' `pkg/api/pod/warnings.go`.

use crate::builtin::rules::field::Field;
use std::collections::{BTreeMap, HashSet};
use steersman_machinery::Value;
use steersman_machinery::field::Path;
use steersman_machinery::quantity::Quantity;

const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Types of volumes that no longer work, with the text of the warning.
const VOLUMES: [(&str, &str); 9] = [
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
];

/// The warnings about a pod.
pub(super) fn of_pod(pod: &Value) -> Vec<String> {
    of_template(&Field::root(pod))
}

/// The warnings about a template of a pod.
pub(in crate::builtin) fn of_template(pod: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = pod.field("spec");
    null_selectors(&spec, &mut warnings);
    annotations(pod, &spec, &mut warnings);
    for volume in spec.field("volumes").items() {
        for (kind, why) in VOLUMES.iter().filter(|(kind, _)| volume.field(kind).is_present()) {
            // Upstream spells this one differently than the field.
            let name = if *kind == "storageos" { "storageOS" } else { kind };
            warnings.push(format!("{}: {why}", volume.path.child(name)));
        }
    }
    for (list, key, word) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let mut known = HashSet::new();
        for item in spec.field(list).items() {
            let field = item.field(key);
            if !known.insert(field.text()) {
                warnings.push(format!("{}: duplicate {word} {:?}", field.path, field.text()));
            }
        }
    }
    for secret in spec.field("imagePullSecrets").items().map(|secret| secret.field("name")) {
        if secret.is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", secret.path));
        }
    }
    fractions(&spec.field("overhead"), &mut warnings);
    let containers = |list: &str| spec.field(list).items().collect::<Vec<Field<'_>>>();
    let all = [containers("initContainers"), containers("containers"), containers("ephemeralContainers")].concat();
    for container in &all {
        fractions(&container.at(&["resources", "limits"]), &mut warnings);
        fractions(&container.at(&["resources", "requests"]), &mut warnings);
        hidden_variables(&container.field("env"), &mut warnings);
    }
    ports(&all, &mut warnings);
    let grace = spec.field("terminationGracePeriodSeconds");
    if grace.number().is_some_and(|seconds| seconds < 0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{}: {why}", grace.path));
    }
    warnings
}

/// Warns about selectors that select nothing because they are not given.
fn null_selectors(spec: &Field<'_>, warnings: &mut Vec<String>) {
    let mut warn = |selector: Field<'_>| {
        if selector.is_absent() {
            warnings.push(format!("{}: a null labelSelector results in matching no pod", selector.path));
        }
    };
    for kind in ["podAffinity", "podAntiAffinity"].map(|kind| spec.at(&["affinity", kind])) {
        for term in kind.field("requiredDuringSchedulingIgnoredDuringExecution").items() {
            warn(term.field("labelSelector"));
        }
        for term in kind.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
            warn(term.at(&["podAffinityTerm", "labelSelector"]));
        }
    }
    for constraint in spec.field("topologySpreadConstraints").items() {
        warn(constraint.field("labelSelector"));
    }
}

/// Warns about annotations that have been replaced by fields; admission handles those of AppArmor.
fn annotations(pod: &Field<'_>, spec: &Field<'_>, warnings: &mut Vec<String>) {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let with_field: HashSet<&str> = lists
        .iter()
        .flat_map(|list| spec.field(list).items())
        .filter(|one| one.at(&["securityContext", "seccompProfile"]).is_present())
        .map(|one| one.field("name").text())
        .collect();
    for (key, value) in pod.at(&["metadata", "annotations"]).entries() {
        let is_of_pod = key == SECCOMP_OF_POD && spec.at(&["securityContext", "seccompProfile"]).is_absent();
        let is_of_container = key.strip_prefix(SECCOMP).is_some_and(|name| !with_field.contains(name));
        if is_of_pod || is_of_container {
            let why = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
            warnings.push(format!("{}: {why}", value.path));
        }
    }
}

/// Warns about amounts with a fraction of a byte.
fn fractions(amounts: &Field<'_>, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        let amount = amounts.key(resource);
        if Quantity::parse(amount.text()).is_ok_and(|quantity| !quantity.is_whole()) {
            let text = amount.text();
            warnings.push(format!("{}: fractional byte value {text:?} is invalid, must be an integer", amount.path));
        }
    }
}

/// Warns about variables that are set twice, unless the second value refers to the first.
fn hidden_variables(variables: &Field<'_>, warnings: &mut Vec<String>) {
    let mut known = HashSet::new();
    for variable in variables.items() {
        let (name, value) = (variable.field("name").text(), variable.field("value").text());
        let reference = format!("$({name})");
        let is_made_of_it = value.contains(&reference) && value != reference && variable.field("valueFrom").is_absent();
        let is_new = known.insert(name);
        if !is_new && !is_made_of_it {
            let why = format!("hides previous definition of {name:?}, which may be dropped when using apply");
            warnings.push(format!("{}: {why}", variable.path));
        }
    }
}

fn ports(containers: &[Field<'_>], warnings: &mut Vec<String>) {
    let mut known: BTreeMap<(i64, &str), Vec<Field<'_>>> = BTreeMap::new();
    let mut names: BTreeMap<&str, Path> = BTreeMap::new();
    for port in containers.iter().flat_map(|container| container.field("ports").items()) {
        let (ip, host) = (port.field("hostIP").text(), port.field("hostPort").number().unwrap_or(0));
        let number = port.field("containerPort").number().unwrap_or(0);
        if !ip.is_empty() && host == 0 {
            let (name, protocol) = (port.field("name").text(), port.field("protocol").text());
            let shown = format!("{{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{ip}}}");
            warnings.push(format!("{}: hostIP set without hostPort: {shown}", port.path));
        }
        let others = known.entry((number, port.field("protocol").text())).or_default();
        for other in &*others {
            let (other_ip, other_host) = (other.field("hostIP").text(), other.field("hostPort").number().unwrap_or(0));
            let what = if ip == other_ip && host == other_host {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{}: {what} port definition with {}", port.path, other.path));
        }
        let name = port.field("name").text();
        match names.get(name) {
            Some(other) => warnings.push(format!(
                "{}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}",
                port.path
            )),
            None if name.is_empty() => {}
            None => {
                names.insert(name, port.path.clone());
            }
        }
        others.push(port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(pod: Value, want: &[&str]) {
        assert_eq!(of_pod(&pod), want);
    }

    #[test]
    fn annotations_with_fields_in_their_place_are_named() {
        let annotation = |key: &str| json!({"annotations": {key: "unconfined"}});
        let containers = json!([{"name": "a"}]);
        check(
            json!({"metadata": annotation("container.seccomp.security.alpha.kubernetes.io/a"), "spec": {"containers": containers}}),
            &[
                "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/a]: non-functional in v1.27+; use the \"seccompProfile\" field instead",
            ],
        );
        let with_field = json!([{"name": "a", "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}]);
        let seccomp = annotation("container.seccomp.security.alpha.kubernetes.io/a");
        check(json!({"metadata": seccomp, "spec": {"containers": with_field}}), &[]);
    }

    #[test]
    fn odd_ports_and_variables_are_named() {
        let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}]);
        let port = json!({"containerPort": 80, "protocol": "TCP", "name": "web"});
        check(
            json!({"spec": {"containers": [{"name": "a", "env": env, "ports": [port]}, {"name": "b", "ports": [port]}]}}),
            &[
                "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"web\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
            ],
        );
    }

    #[test]
    fn a_fraction_of_a_byte_is_named() {
        check(
            json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"memory": "128m"}}}], "terminationGracePeriodSeconds": -1}}),
            &[
                "spec.containers[0].resources.limits[memory]: fractional byte value \"128m\" is invalid, must be an integer",
                "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
            ],
        );
    }
}
