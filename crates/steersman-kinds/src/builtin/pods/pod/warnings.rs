//! Warnings for the writer of a valid pod. Follows kubernetes' `pkg/api/pod/warnings.go`.

use crate::builtin::rules::field::Field;
use std::collections::{BTreeMap, HashSet};
use steersman_machinery::Value;
use steersman_machinery::field::Path;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

/// Where the names of objects that make Pods are used.
pub(in crate::builtin) const POD_NAMES: &str = "Pod names and hostnames";

const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Annotations that no longer have an effect, with the text of the warning.
const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];
/// Labels of nodes that have others in their place, with the text of the warning. Follows `pkg/api/node/util.go`.
const NODE_LABELS: [(&str, &str); 8] = [
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
];
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
pub(super) fn of_pod(pod: &Value, old: &Value) -> Vec<String> {
    let mut warnings = of_name(pod, old, "the Pod's hostname");
    warnings.extend(of_template(&Field::root(pod)));
    warnings
}

/// The warning about the name of a new object that is no DNS label, although it is used in `place`.
pub(in crate::builtin) fn of_name(object: &Value, old: &Value, place: &str) -> Vec<String> {
    let field = Field::root(object).at(&["metadata", "name"]);
    let faults = if old.is_null() { name::dns1123_label(field.text()) } else { Vec::new() };
    if faults.is_empty() {
        return Vec::new();
    }
    let why = "which can result in surprising behavior; a DNS label is recommended";
    vec![format!("{}: this is used in {place}, {why}: [{}]", field.path, faults.join(" "))]
}

/// The warnings about a template of a pod.
pub(in crate::builtin) fn of_template(pod: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = pod.field("spec");
    node_labels(&spec, &mut warnings);
    null_selectors(&spec, &mut warnings);
    annotations(pod, &spec, &mut warnings);
    for volume in spec.field("volumes").items() {
        for (kind, why) in VOLUMES.iter().filter(|(kind, _)| volume.field(kind).is_present()) {
            // Upstream spells this one differently than the field.
            let name = if *kind == "storageos" { "storageOS" } else { kind };
            warnings.push(format!("{}: {why}", volume.path.child(name)));
        }
        warnings.extend(of_claim(&volume.at(&["ephemeral", "volumeClaimTemplate", "spec"])));
    }
    spec.field("volumes").items().for_each(|volume| overlaps(&volume, &mut warnings));
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

/// The warnings about the spec of a claim, also in a template: amounts with a fraction of a byte.
pub(in crate::builtin) fn of_claim(spec: &Field<'_>) -> Vec<String> {
    let resources = spec.field("resources");
    let amounts = ["requests", "limits"].map(|list| resources.field(list).key("storage"));
    let is_fraction = |amount: &&Field<'_>| Quantity::parse(amount.text()).is_ok_and(|quantity| !quantity.is_whole());
    let warn = |amount: &Field<'_>| {
        format!("{}: fractional byte value {:?} is invalid, must be an integer", amount.path, amount.text())
    };
    amounts.iter().filter(is_fraction).map(warn).collect()
}

/// Warns about files of a volume that hide each other, and about sources of a projected volume that are none.
fn overlaps(volume: &Field<'_>, warnings: &mut Vec<String>) {
    let name = volume.field("name").text();
    let files = |source: &Field<'_>, of: &str| -> Vec<(String, String)> {
        source.field("items").items().map(|item| (item.field("path").text().to_owned(), of.to_owned())).collect()
    };
    for (kind, named_by, what) in
        [("configMap", "name", "ConfigMap "), ("secret", "secretName", "Secret "), ("downwardAPI", "", "DownwardAPI")]
    {
        let source = volume.field(kind);
        let what =
            if named_by.is_empty() { what.to_owned() } else { format!("{what}{:?}", source.field(named_by).text()) };
        overlaps_of(files(&source, ""), &format!("volume {name:?} ({what}): overlapping paths"), warnings);
    }
    let mut all = Vec::new();
    for source in volume.at(&["projected", "sources"]).items() {
        if source.is_empty() {
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
            continue;
        }
        let at = |kind: &str, field: &str, of: &str| (source.at(&[kind, field]).text().to_owned(), of.to_owned());
        let (map, secret, downward) = (source.field("configMap"), source.field("secret"), source.field("downwardAPI"));
        let trust = source.field("clusterTrustBundle");
        let trusted = [trust.field("name"), trust.field("signerName")].into_iter().find(Field::is_present);
        all.extend(match () {
            () if map.field("items").is_present() => files(&map, &format!("ConfigMap {:?}", map.field("name").text())),
            () if secret.field("items").is_present() => {
                files(&secret, &format!("Secret {:?}", secret.field("name").text()))
            }
            () if downward.field("items").is_present() => files(&downward, "DownwardAPI"),
            () if source.field("serviceAccountToken").is_present() => {
                vec![at("serviceAccountToken", "path", "ServiceAccountToken")]
            }
            () if trust.is_present() => {
                let of = format!("ClusterTrustBundle {:?}", trusted.map_or("", |field| field.text()));
                vec![at("clusterTrustBundle", "path", &of)]
            }
            () => vec![
                at("podCertificate", "certificateChainPath", "PodCertificate chain"),
                at("podCertificate", "keyPath", "PodCertificate key"),
                at("podCertificate", "credentialBundlePath", "PodCertificate credential bundle"),
            ],
        });
    }
    overlaps_of(all, &format!("volume {name:?} (Projected): overlapping paths"), warnings);
}

/// Warns about each pair of paths, with their sources, of which one is the other or a directory of it.
fn overlaps_of(paths: Vec<(String, String)>, lead: &str, warnings: &mut Vec<String>) {
    let shown =
        |(path, of): &(String, String)| if of.is_empty() { format!("{path:?}") } else { format!("{path:?} ({of})") };
    let is_within =
        |one: &str, other: &str| one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut before: Vec<(String, String)> = Vec::new();
    for (path, of) in paths {
        let one = (path.trim_end_matches('/').to_owned(), of);
        let collides = |other: &&(String, String)| {
            !one.0.is_empty() && !other.0.is_empty() && (is_within(&one.0, &other.0) || is_within(&other.0, &one.0))
        };
        let collisions = before.iter().filter(collides);
        warnings.extend(collisions.map(|other| format!("{lead}: {} with {}", shown(&one), shown(other))));
        before.push(one);
    }
}

/// Warns about requirements on labels of nodes that have others in their place.
fn node_labels(spec: &Field<'_>, warnings: &mut Vec<String>) {
    let of = |label: &str| NODE_LABELS.iter().find(|(known, _)| *known == label).map(|(_, why)| *why);
    for (label, value) in spec.field("nodeSelector").entries() {
        warnings.extend(of(label).map(|why| format!("{}: {why}", value.path)));
    }
    let affinity = spec.at(&["affinity", "nodeAffinity"]);
    let required = affinity.at(&["requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"]);
    let preferred = affinity.field("preferredDuringSchedulingIgnoredDuringExecution");
    let terms = required.items().chain(preferred.items().map(|term| term.field("preference")));
    let keys =
        terms.flat_map(|term| term.field("matchExpressions").items().map(|one| one.field("key")).collect::<Vec<_>>());
    let topologies = spec.field("topologySpreadConstraints").items().map(|constraint| constraint.field("topologyKey"));
    for key in keys.chain(topologies) {
        warnings.extend(of(key.text()).map(|why| format!("{}: {} is {why}", key.path, key.text())));
    }
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
        let obsolete = ANNOTATIONS.iter().find(|(known, _)| *known == key);
        warnings.extend(obsolete.map(|(_, why)| format!("{}: {why}", value.path)));
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
        // An update has no warning about the name.
        assert_eq!(of_pod(&pod, &pod), want);
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
    fn a_name_that_is_no_label_is_named_when_the_object_is_new() {
        let pod = json!({"metadata": {"name": "a.b"}, "spec": {}});
        assert_eq!(
            of_pod(&pod, &Value::Null),
            [
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
            ]
        );
        assert_eq!(of_pod(&json!({"metadata": {"name": "a-b"}, "spec": {}}), &Value::Null), [""; 0]);
        assert_eq!(of_name(&pod, &Value::Null, POD_NAMES).len(), 1);
    }

    #[test]
    fn files_that_hide_each_other_are_named() {
        let items = |paths: &[&str]| Value::from(paths.iter().map(|path| json!({"path": path})).collect::<Vec<_>>());
        let sources = json!([
            {},
            {"configMap": {"name": "m", "items": items(&["x/y", "xy"])}},
            {"secret": {"name": "s"}},
            {"serviceAccountToken": {"path": "x"}},
            {"podCertificate": {"keyPath": "xy"}},
        ]);
        check(
            json!({"spec": {"volumes": [
                {"name": "a", "configMap": {"name": "m", "items": items(&["x", "x/y", "xy"])}},
                {"name": "b", "secret": {"secretName": "s", "items": items(&["x/", "x"])}},
                {"name": "c", "projected": {"sources": sources}},
            ]}}),
            &[
                "volume \"a\" (ConfigMap \"m\"): overlapping paths: \"x/y\" with \"x\"",
                "volume \"b\" (Secret \"s\"): overlapping paths: \"x\" with \"x\"",
                "volume \"c\" (Projected) has no sources provided",
                "volume \"c\" (Projected): overlapping paths: \"x\" (ServiceAccountToken) with \"x/y\" (ConfigMap \"m\")",
                "volume \"c\" (Projected): overlapping paths: \"xy\" (PodCertificate key) with \"xy\" (ConfigMap \"m\")",
            ],
        );
    }

    #[test]
    fn labels_and_annotations_that_have_others_in_their_place_are_named() {
        let expression = json!({"key": "beta.kubernetes.io/os", "operator": "Exists"});
        let term = json!({"matchExpressions": [expression]});
        check(
            json!({
                "metadata": {"annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}},
                "spec": {
                    "nodeSelector": {"node-role.kubernetes.io/master": ""},
                    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"preference": term}]}},
                },
            }),
            &[
                "spec.nodeSelector[node-role.kubernetes.io/master]: use \"node-role.kubernetes.io/control-plane\" instead",
                "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the \"priorityClassName\" field instead",
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
