//! The objects: their content, their number, and the object of each event.
//!
//! Made from a template with placeholders, with the shape and size of a cluster's objects: a third of each is
//! managedFields.

use serde_json::{Map, Value, json};

/// The version of a list before anything has changed.
pub(crate) const VERSION_LISTED: usize = 2_000_000;
/// The version of a list after the watch has expired.
pub(crate) const VERSION_RELISTED: usize = 3_000_000;
/// The version of a list after the watch has expired again.
pub(crate) const VERSION_REPLACED: usize = 4_000_000;
/// While the watch was down, one in this many objects has changed.
pub(crate) const CHANGED_ONE_IN: usize = 100;
/// The number of values of the indexed field.
const INDEX_VALUES: usize = 1_000;
const NAMESPACES: usize = 100;
/// Environment variables of a Pod's container.
const VARIABLES: usize = 14;

/// The objects to serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Custom resources of 1 KB
    Custom,
    /// Pods of 5 KB
    Pods,
}

/// Writes the objects of a workload.
pub(crate) struct Objects {
    workload: Workload,
    /// The text before each placeholder, with the placeholder.
    parts: Vec<(String, Place)>,
    tail: String,
}

/// The parts that differ from object to object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    IndexValue,
    Name,
    Namespace,
    Number,
    Version,
}

const PLACES: [(&str, Place); 5] = [
    ("%index%", Place::IndexValue),
    ("%name%", Place::Name),
    ("%namespace%", Place::Namespace),
    ("%number%", Place::Number),
    ("%version%", Place::Version),
];

// === impl Workload ===

impl Workload {
    pub(crate) fn n_objects(self) -> usize {
        match self {
            Workload::Custom => 100_000,
            Workload::Pods => 20_000,
        }
    }

    pub(crate) fn n_updates(self) -> usize {
        2 * self.n_objects()
    }

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Workload::Custom => "example.com/v1",
            Workload::Pods => "v1",
        }
    }

    pub(crate) fn list_kind(self) -> &'static str {
        match self {
            Workload::Custom => "DatabaseList",
            Workload::Pods => "PodList",
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Workload::Custom => "Database",
            Workload::Pods => "Pod",
        }
    }

    /// Whether items of a list have neither kind nor apiVersion, like those of built-in kinds.
    pub(crate) fn are_items_bare(self) -> bool {
        self == Workload::Pods
    }

    /// The object of the update `number`: all objects in turn, in an order that is not the list's.
    pub(crate) fn updated(self, number: usize) -> usize {
        // Coprime to both numbers of objects, so that every object is updated.
        const STRIDE: usize = 7_919;
        number * STRIDE % self.n_objects()
    }
}

// === impl Objects ===

impl Objects {
    pub(crate) fn new(workload: Workload) -> Objects {
        let template = match workload {
            Workload::Custom => database(),
            Workload::Pods => pod(),
        };
        let template = template.to_string();
        let mut rest = template.as_str();
        let mut parts = Vec::new();
        let next = |text: &str| {
            PLACES
                .iter()
                .filter_map(|(mark, place)| Some((text.find(mark)?, *mark, *place)))
                .min_by_key(|found| found.0)
        };
        while let Some((at, mark, place)) = next(rest) {
            parts.push((rest[..at].to_owned(), place));
            rest = &rest[at + mark.len()..];
        }
        Objects { workload, parts, tail: rest.to_owned() }
    }

    /// Appends the object `number` at `version`, which begins with kind and apiVersion unless it is `bare`.
    pub(crate) fn write(&self, number: usize, version: usize, bare: bool, out: &mut Vec<u8>) {
        out.push(b'{');
        if !bare {
            let (kind, api_version) = (self.workload.kind(), self.workload.api_version());
            out.extend_from_slice(format!(r#""kind":"{kind}","apiVersion":"{api_version}","#).as_bytes());
        }
        // The opening brace of the template is already written.
        let mut skip = 1;
        for (text, place) in &self.parts {
            out.extend_from_slice(&text.as_bytes()[skip..]);
            skip = 0;
            let value = match place {
                Place::IndexValue => format!("{:04}", number % INDEX_VALUES),
                Place::Name => match self.workload {
                    Workload::Custom => format!("orders-{number:06}"),
                    Workload::Pods => format!("web-7d4b8c6f9-{number:06}"),
                },
                Place::Namespace => format!("team-{:02}", number / INDEX_VALUES % NAMESPACES),
                Place::Number => format!("{number:06}"),
                Place::Version => version.to_string(),
            };
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(self.tail.as_bytes());
    }
}

/// The fields that one manager has set.
fn managed_fields(manager: &str, api_version: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": "Update", "apiVersion": api_version, "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

/// The set of fields with these names.
fn fields(names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| (format!("f:{name}"), json!({}))).collect()
}

fn database() -> Value {
    let api_version = Workload::Custom.api_version();
    let spec = fields(&["cluster", "engine", "replicas"]);
    let mut status = managed_fields("operator", api_version, &json!({"f:status": {"f:conditions": {}, "f:phase": {}}}));
    status["subresource"] = json!("status");
    json!({
        "metadata": {
            "name": "%name%", "namespace": "%namespace%", "uid": "0b1f6bd6-5c3a-4d3e-9a53-3c1d51%number%",
            "resourceVersion": "%version%", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "orders"},
            "managedFields": [managed_fields("kubectl", api_version, &json!({"f:spec": spec})), status],
        },
        "spec": {
            "cluster": "cluster-%index%", "engine": "postgres", "engineVersion": "17.2",
            "parameters": {"max_connections": "200"},
            "replicas": 3, "storageClass": "fast", "storageGigabytes": 100,
        },
        "status": {
            "conditions": [{
                "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "3 of 3 are up", "observedGeneration": 3,
                "reason": "Up", "status": "True", "type": "Ready",
            }],
            "endpoint": "orders-%number%:5432", "phase": "Running",
        },
    })
}

fn pod() -> Value {
    let env: Vec<Value> = (0..VARIABLES)
        .map(|i| json!({"name": format!("VARIABLE_{i}"), "value": format!("value of variable {i}")}))
        .collect();
    let conditions: Vec<Value> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .collect();
    let variables: Map<String, Value> = (0..VARIABLES)
        .map(|i| (format!(r#"k:{{"name":"VARIABLE_{i}"}}"#), json!({".": {}, "f:name": {}, "f:value": {}})))
        .collect();
    let mut container = fields(&["image", "imagePullPolicy", "name", "readinessProbe", "resources", "volumeMounts"]);
    container.insert("f:env".to_owned(), Value::Object(variables));
    let mut spec = fields(&["dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext"]);
    spec.insert("f:containers".to_owned(), json!({r#"k:{"name":"web"}"#: container}));
    let made = managed_fields("kube-controller-manager", "v1", &json!({"f:spec": spec}));
    let status = fields(&["conditions", "containerStatuses", "hostIP", "phase", "podIP", "startTime"]);
    let mut ran = managed_fields("kubelet", "v1", &json!({"f:status": status}));
    ran["subresource"] = json!("status");
    json!({
        "metadata": {
            "name": "%name%", "generateName": "web-7d4b8c6f9-", "namespace": "%namespace%",
            "uid": "6c3bba6e-77a1-4c5e-8f6e-9d2a41%number%", "resourceVersion": "%version%", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "tier": "front", "pod-template-hash": "7d4b8c6f9"},
            "annotations": {"example.com/checksum": "0123456789abcdef0123456789abcdef"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b8c6f9",
                "uid": "f0a7bb5c-1c4e-4f43-9b38-4f7a0c3a4b11", "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [made, ran],
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "registry.example.com/team/web:1.2.3", "imagePullPolicy": "IfNotPresent", "env": env,
                "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                "readinessProbe": {
                    "httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"},
                    "failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1,
                },
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [
                    {"name": "config", "mountPath": "/etc/config"},
                    {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
                ],
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": "node-%index%", "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0, "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
            "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": "web", "defaultMode": 420}},
                {"name": "token", "emptyDir": {}},
            ],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "192.168.0.1", "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z", "conditions": conditions,
            "containerStatuses": [{
                "name": "web", "ready": true, "restartCount": 0, "started": true, "image": "registry.example.com/team/web:1.2.3",
                "containerID": "containerd://9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f0%number%",
                "imageID": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "lastState": {}, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(workload: Workload, number: usize, bare: bool) -> Vec<u8> {
        let mut out = Vec::new();
        Objects::new(workload).write(number, VERSION_LISTED, bare, &mut out);
        out
    }

    #[track_caller]
    fn check_size(workload: Workload, size: usize) {
        let bytes = object(workload, 7, false);
        let mut value: Value = serde_json::from_slice(&bytes).unwrap();
        let fields = value["metadata"]["managedFields"].take().to_string().len();
        assert!(bytes.len().abs_diff(size) * 10 < size, "{} bytes are not about {size}", bytes.len());
        assert!((fields * 3).abs_diff(bytes.len()) * 5 < bytes.len(), "{fields} of {} are no third", bytes.len());
    }

    #[test]
    fn objects_have_the_size_that_is_promised_and_a_third_of_it_is_managed_fields() {
        check_size(Workload::Custom, 1_024);
        check_size(Workload::Pods, 5_120);
    }

    #[test]
    fn every_place_is_filled_in() {
        for workload in [Workload::Custom, Workload::Pods] {
            let text = String::from_utf8(object(workload, 12_345, true)).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(!text.contains('%') && value.get("kind").is_none(), "{text}");
            assert_eq!(value["metadata"]["namespace"], "team-12");
            assert_eq!(value["metadata"]["resourceVersion"], VERSION_LISTED.to_string());
        }
    }

    #[test]
    fn updates_are_about_every_object_in_turn() {
        for workload in [Workload::Custom, Workload::Pods] {
            let mut times = vec![0; workload.n_objects()];
            for number in 0..workload.n_updates() {
                times[workload.updated(number)] += 1;
            }
            assert!(times.iter().all(|n| *n == 2));
        }
    }
}
