//! Warnings for the writer of a valid pod. Follows kubernetes' `pkg/api/pod/warnings.go`.

use crate::builtin::rules::field::Field;
use std::collections::{BTreeMap, HashSet};
use steersman_machinery::Value;
use steersman_machinery::field::Path;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

/// Where the names of objects that make Pods are used.
pub(in crate::builtin) const POD_NAMES: &str = "Pod names and hostnames";

/// The most pairs of files, and of ports, that are told about: the headers of an answer have room for far fewer, and the
/// pairs of a Pod with very many files or ports would fill the memory.
const PAIRS_MAX: usize = 1_000;
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
    let mut pairs_left = PAIRS_MAX;
    spec.field("volumes").items().for_each(|volume| overlaps(&volume, &mut pairs_left, &mut warnings));
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
    ["requests", "limits"].iter().filter_map(|list| fraction(&resources.field(list).key("storage"))).collect()
}

/// Warns about files of a volume that hide each other, and about sources of a projected volume that are none.
fn overlaps(volume: &Field<'_>, pairs_left: &mut usize, warnings: &mut Vec<String>) {
    let name = volume.field("name").text();
    for (field, what) in [
        ("configMap", format!("ConfigMap {:?}", volume.at(&["configMap", "name"]).text())),
        ("secret", format!("Secret {:?}", volume.at(&["secret", "secretName"]).text())),
        ("downwardAPI", "DownwardAPI".to_owned()),
    ] {
        let files = Files { paths: paths(&volume.field(field), 0), sources: vec![String::new()] };
        files.overlaps(&format!("volume {name:?} ({what}): overlapping paths"), pairs_left, warnings);
    }
    let mut files = Files::default();
    for source in volume.at(&["projected", "sources"]).items() {
        match source.is_empty() {
            true => warnings.push(format!("volume {name:?} (Projected) has no sources provided")),
            false => files.add(&source),
        }
    }
    files.overlaps(&format!("volume {name:?} (Projected): overlapping paths"), pairs_left, warnings);
}

/// The paths of the items of a source, with its index.
fn paths<'a>(source: &Field<'a>, index: usize) -> Vec<(&'a str, usize)> {
    source.field("items").items().map(|item| (item.field("path").text(), index)).collect()
}

/// The files of a volume.
#[derive(Default)]
struct Files<'a> {
    /// Each with the index of its source.
    paths: Vec<(&'a str, usize)>,
    /// The texts that name the sources; empty for the only one.
    sources: Vec<String>,
}

impl<'a> Files<'a> {
    /// Adds the files of a source of a projected volume.
    fn add(&mut self, source: &Field<'a>) {
        for (kind, what) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
            let of_kind = source.field(kind);
            if of_kind.field("items").is_present() {
                let what = format!("{what} {:?}", of_kind.field("name").text());
                return self.add_all(|index| paths(&of_kind, index), what);
            }
        }
        let downward = source.field("downwardAPI");
        if downward.field("items").is_present() {
            return self.add_all(|index| paths(&downward, index), "DownwardAPI".to_owned());
        }
        let trust = source.field("clusterTrustBundle");
        let trusted = [trust.field("name"), trust.field("signerName")].into_iter().find(Field::is_present);
        let trust = format!("ClusterTrustBundle {:?}", trusted.map_or("", |field| field.text()));
        for (kind, field, what) in [
            ("serviceAccountToken", "path", "ServiceAccountToken"),
            ("clusterTrustBundle", "path", &trust),
            ("podCertificate", "certificateChainPath", "PodCertificate chain"),
            ("podCertificate", "keyPath", "PodCertificate key"),
            ("podCertificate", "credentialBundlePath", "PodCertificate credential bundle"),
        ] {
            let path = source.at(&[kind, field]);
            if path.is_present() {
                self.add_all(|index| vec![(path.text(), index)], what.to_owned());
            }
        }
    }

    fn add_all(&mut self, paths: impl FnOnce(usize) -> Vec<(&'a str, usize)>, source: String) {
        self.paths.extend(paths(self.sources.len()));
        self.sources.push(source);
    }

    /// Warns about pairs of files of which one is the other or a directory of it.
    fn overlaps(&self, lead: &str, pairs_left: &mut usize, warnings: &mut Vec<String>) {
        let path = |at: usize| self.paths[at].0.trim_end_matches('/');
        let is_within = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // With the slash as the least byte, a directory comes right before all that is in it.
        let key = |at: usize| path(at).bytes().map(|byte| if byte == b'/' { 0 } else { u16::from(byte) + 1 });
        let mut sorted: Vec<usize> = (0..self.paths.len()).filter(|at| !path(*at).is_empty()).collect();
        sorted.sort_by(|one, other| key(*one).cmp(key(*other)));
        let (mut around, mut pairs): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
        for at in sorted {
            while around.last().is_some_and(|last| !is_within(path(at), path(*last))) {
                around.pop();
            }
            let room = *pairs_left - pairs.len();
            pairs.extend(around.iter().take(room).map(|other| (at.max(*other), at.min(*other))));
            around.push(at);
        }
        *pairs_left -= pairs.len();
        pairs.sort_unstable();
        let shown = |at: usize| match self.sources[self.paths[at].1].as_str() {
            "" => format!("{:?}", path(at)),
            source => format!("{:?} ({source})", path(at)),
        };
        warnings.extend(pairs.into_iter().map(|(one, other)| format!("{lead}: {} with {}", shown(one), shown(other))));
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
    warnings.extend(["memory", "ephemeral-storage"].iter().filter_map(|resource| fraction(&amounts.key(resource))));
}

/// The warning about an amount with a fraction of a byte.
fn fraction(amount: &Field<'_>) -> Option<String> {
    let text = amount.text();
    let is_fraction = Quantity::parse(text).is_ok_and(|quantity| !quantity.is_whole());
    is_fraction.then(|| format!("{}: fractional byte value {text:?} is invalid, must be an integer", amount.path))
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

/// Ports of one number and protocol, each with its place among all, by host port and address.
type SamePorts<'a> = BTreeMap<(i64, &'a str), Vec<(usize, Field<'a>)>>;

fn ports(containers: &[Field<'_>], warnings: &mut Vec<String>) {
    let mut known: BTreeMap<(i64, &str), SamePorts<'_>> = BTreeMap::new();
    let mut names: BTreeMap<&str, Path> = BTreeMap::new();
    let mut pairs_left = PAIRS_MAX;
    for (at, port) in containers.iter().flat_map(|container| container.field("ports").items()).enumerate() {
        let (ip, host) = (port.field("hostIP").text(), port.field("hostPort").number().unwrap_or(0));
        let number = port.field("containerPort").number().unwrap_or(0);
        if !ip.is_empty() && host == 0 {
            let (name, protocol) = (port.field("name").text(), port.field("protocol").text());
            let shown = format!("{{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{ip}}}");
            warnings.push(format!("{}: hostIP set without hostPort: {shown}", port.path));
        }
        let others = known.entry((number, port.field("protocol").text())).or_default();
        let mut collisions: Vec<_> = colliding(others, host, ip).take(pairs_left).collect();
        pairs_left -= collisions.len();
        collisions.sort_by_key(|(at, ..)| *at);
        for (_, other_host, other_ip, other) in collisions {
            let what = if ip == other_ip && host == other_host {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else {
                "dangerously ambiguous"
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
        others.entry((host, ip)).or_default().push((at, port));
    }
}

/// The ports that one with this host port and address collides with: those without a host port, and those with the same one
/// of which either address is the other or absent. They are looked up, because comparing each port with each takes long.
fn colliding<'p, 'a>(
    others: &'p SamePorts<'a>,
    host: i64,
    ip: &'a str,
) -> impl Iterator<Item = (usize, i64, &'a str, &'p Field<'a>)> {
    // A port without a host port collides with all, and so does one without an address with all of its host port.
    let (first, last) = if host == 0 { (i64::MIN, i64::MAX) } else { (host, host) };
    let hosts = others.range((first, "")..).take_while(move |((other, _), _)| *other <= last);
    let is_all = host == 0 || ip.is_empty();
    let without_host = (host != 0).then(|| others.range((0, "")..(1, ""))).into_iter().flatten();
    let exact = if is_all { None } else { others.get_key_value(&(host, ip)) };
    let without_ip = if is_all { None } else { others.get_key_value(&(host, "")) };
    let of_host = hosts.filter(move |_| is_all).chain(exact).chain(without_ip);
    let found = without_host.chain(of_host);
    found.flat_map(|((host, ip), ports)| ports.iter().map(move |(at, port)| (*at, *host, *ip, port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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

    /// The pairs of ports with the word for each, found by comparing each port with each.
    fn pairs_of_ports(ports: &[(i64, &str)]) -> Vec<String> {
        let mut found = Vec::new();
        for (at, (host, ip)) in ports.iter().enumerate() {
            for (before, (other_host, other_ip)) in ports[..at].iter().enumerate() {
                let what = if (host, ip) == (other_host, other_ip) {
                    "duplicate"
                } else if *host == 0 || *other_host == 0 {
                    "overlapping"
                } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                let path = |at| format!("spec.containers[0].ports[{at}]");
                found.push(format!("{}: {what} port definition with {}", path(at), path(before)));
            }
        }
        found
    }

    /// The pairs of files, found by comparing each with each.
    fn pairs_of_files(files: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let within = |one: &str, other: &str| format!("{one}/").starts_with(&format!("{other}/"));
        for (at, one) in files.iter().enumerate() {
            for other in files[..at].iter().filter(|other| within(one, other) || within(other, one)) {
                found.push(format!("volume \"v\" (ConfigMap \"m\"): overlapping paths: {one:?} with {other:?}"));
            }
        }
        found
    }

    fn with_ports(ports: impl Iterator<Item = Value>) -> Value {
        json!({"spec": {"containers": [{"name": "c", "ports": ports.collect::<Vec<_>>()}]}})
    }

    fn with_files(paths: impl Iterator<Item = String>) -> Value {
        let items: Vec<Value> = paths.map(|path| json!({"path": path})).collect();
        json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}]}})
    }

    proptest! {
        #[test]
        fn pairs_of_ports_are_found_as_by_comparing_each_with_each(
            ports in prop::collection::vec((0_i64..3, prop_oneof![Just(""), Just("::1"), Just("10.0.0.1")]), 0..12)
        ) {
            let port = |(host, ip): &(i64, &str)| json!({"containerPort": 80, "hostPort": host, "hostIP": ip});
            let mut found = of_template(&Field::root(&with_ports(ports.iter().map(port))));
            found.retain(|warning| !warning.contains("without hostPort"));
            prop_assert_eq!(found, pairs_of_ports(&ports));
        }

        #[test]
        fn pairs_of_files_are_found_as_by_comparing_each_with_each(
            files in prop::collection::vec("[ab!0](/[ab!0]){0,3}", 0..12)
        ) {
            let found = of_template(&Field::root(&with_files(files.iter().cloned())));
            prop_assert_eq!(found, pairs_of_files(&files.iter().map(String::as_str).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn a_pod_with_very_many_ports_and_files_gets_a_bounded_number_of_warnings() {
        const MANY: usize = 50_000;
        let count = |pod: &Value| of_template(&Field::root(pod)).len();
        assert_eq!(count(&with_ports((0..MANY).map(|_| json!({"containerPort": 80})))), PAIRS_MAX);
        assert_eq!(count(&with_ports((0..MANY).map(|host| json!({"containerPort": 80, "hostPort": host + 1})))), 0);
        assert_eq!(count(&with_files((0..MANY).map(|_| "a".to_owned()))), PAIRS_MAX);
        assert_eq!(count(&with_files((0..MANY).map(|at| format!("a{at}")))), 0);
        assert_eq!(count(&with_files((0..MANY).map(|at| format!("{}b{at}", "a/".repeat(at % 100))))), 0);
    }
}
