//! Valid objects with very many parts of one sort, equal or all different: code that compares each part with each other takes quadratic time for them.

use rand::Rng as _;

use crate::client::Request;
use crate::requests::Material;

/// The bytes of the parts of a request.
const BYTES: std::ops::Range<usize> = 20_000..2_500_000;
/// Stands for the number of a part.
const NUMBER: &str = "%";
/// Stands for the parts.
const PARTS: &str = "@";

/// A field of a Pod's spec, and one of its items. The spec has one container unless the field is the containers.
const OF_PODS: &[(&str, &str)] = &[
    ("hostAliases", r#"{"ip":"10.0.0.1","hostnames":["h%"]}"#),
    ("imagePullSecrets", r#"{"name":"s%"}"#),
    ("initContainers", r#"{"name":"i%","image":"i"}"#),
    ("readinessGates", r#"{"conditionType":"example.com/c%"}"#),
    ("resourceClaims", r#"{"name":"c%","resourceClaimName":"c"}"#),
    ("schedulingGates", r#"{"name":"example.com/g%"}"#),
    ("tolerations", r#"{"key":"k%","operator":"Exists"}"#),
    (
        "topologySpreadConstraints",
        r#"{"maxSkew":1,"topologyKey":"k%","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{}}"#,
    ),
    ("volumes", r#"{"name":"v%","emptyDir":{}}"#),
    ("volumes", r#"{"name":"v%","persistentVolumeClaim":{"claimName":"c"}}"#),
];

/// A field of a Pod's only container, and one of its items.
const OF_CONTAINERS: &[(&str, &str)] = &[
    ("args", r#""$(E%)""#),
    ("env", r#"{"name":"E%","value":"$(E1)"}"#),
    ("env", r#"{"name":"E%","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}"#),
    ("envFrom", r#"{"prefix":"P%","configMapRef":{"name":"c"}}"#),
    ("ports", r#"{"containerPort":80}"#),
    ("ports", r#"{"containerPort":80,"hostPort":80}"#),
    ("ports", r#"{"name":"p%","containerPort":80}"#),
    ("resizePolicy", r#"{"resourceName":"cpu","restartPolicy":"NotRequired"}"#),
    ("volumeDevices", r#"{"name":"v","devicePath":"/d%"}"#),
    ("volumeMounts", r#"{"name":"v","mountPath":"/m%"}"#),
];

/// A field of a Pod's only projected volume, and one of its items.
const OF_VOLUMES: &[(&str, &str)] = &[
    ("sources", r#"{"configMap":{"name":"c","items":[{"key":"k","path":"p%"}]}}"#),
    ("sources", r#"{"secret":{"name":"s%"}}"#),
    ("sources", r#"{"downwardAPI":{"items":[{"path":"p%","fieldRef":{"fieldPath":"metadata.name"}}]}}"#),
    ("sources", r#"{"serviceAccountToken":{"path":"t%"}}"#),
];

/// A kind of object, and one of its lists.
struct Row {
    group_version: &'static str,
    resource: &'static str,
    kind: &'static str,
    /// The object behind its metadata, with `@` for the items of the list.
    rest: &'static str,
    item: &'static str,
}

const OF_OTHERS: &[Row] = &[
    Row {
        group_version: "v1",
        resource: "services",
        kind: "Service",
        rest: r#""spec":{"ports":[@]}"#,
        item: r#"{"name":"p%","port":80}"#,
    },
    Row {
        group_version: "v1",
        resource: "services",
        kind: "Service",
        rest: r#""spec":{"ports":[{"port":80}],"externalIPs":[@]}"#,
        item: r#""10.0.0.1""#,
    },
    Row {
        group_version: "v1",
        resource: "endpoints",
        kind: "Endpoints",
        rest: r#""subsets":[{"ports":[{"port":80}],"addresses":[@]}]"#,
        item: r#"{"ip":"10.0.0.1"}"#,
    },
    Row {
        group_version: "v1",
        resource: "endpoints",
        kind: "Endpoints",
        rest: r#""subsets":[@]"#,
        item: r#"{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"port":80}]}"#,
    },
    Row {
        group_version: "v1",
        resource: "serviceaccounts",
        kind: "ServiceAccount",
        rest: r#""secrets":[@]"#,
        item: r#"{"name":"s%"}"#,
    },
    Row {
        group_version: "networking.k8s.io/v1",
        resource: "networkpolicies",
        kind: "NetworkPolicy",
        rest: r#""spec":{"podSelector":{},"ingress":[@]}"#,
        item: r#"{"ports":[{"port":80}],"from":[{"podSelector":{}}]}"#,
    },
    Row {
        group_version: "networking.k8s.io/v1",
        resource: "ingresses",
        kind: "Ingress",
        rest: r#""spec":{"rules":[@]}"#,
        item: r#"{"host":"h%.example","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}"#,
    },
    Row {
        group_version: "autoscaling/v2",
        resource: "horizontalpodautoscalers",
        kind: "HorizontalPodAutoscaler",
        rest: r#""spec":{"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"maxReplicas":2,"metrics":[@]}"#,
        item: r#"{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}"#,
    },
    Row {
        group_version: "policy/v1",
        resource: "poddisruptionbudgets",
        kind: "PodDisruptionBudget",
        rest: r#""spec":{"minAvailable":1,"selector":{"matchExpressions":[@]}}"#,
        item: r#"{"key":"k%","operator":"Exists"}"#,
    },
    Row {
        group_version: "batch/v1",
        resource: "jobs",
        kind: "Job",
        rest: r#""spec":{"podFailurePolicy":{"rules":[@]},"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}"#,
        item: r#"{"action":"Ignore","onPodConditions":[{"type":"c%","status":"True"}]}"#,
    },
];

/// The part of a Pod that has the many parts.
#[derive(Clone, Copy)]
enum Place {
    Spec,
    Container,
    Volume,
}

/// A Pod with many parts of one sort, alone or as the template of a Deployment.
pub(crate) fn pod(material: &mut Material<'_>) -> Request {
    let tables = [(Place::Spec, OF_PODS), (Place::Container, OF_CONTAINERS), (Place::Volume, OF_VOLUMES)];
    let (place, table) = tables[material.rng.random_range(0..tables.len())];
    let (field, item) = table[material.rng.random_range(0..table.len())];
    let spec = spec_of_pod(place, field, &any_parts(material, item));
    if material.rng.random() {
        let body = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"hostile"}},"spec":{spec}}}"#);
        return create(material.core("pods"), body);
    }
    let body = format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"hostile"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{spec}}}}}}}"#
    );
    create(material.deployments(), body)
}

/// An object of another kind with many parts of one sort.
pub(crate) fn other(material: &mut Material<'_>) -> Request {
    let row = &OF_OTHERS[material.rng.random_range(0..OF_OTHERS.len())];
    let parts = any_parts(material, row.item);
    let root = if row.group_version.contains('/') { "apis" } else { "api" };
    let path = format!("/{root}/{}/namespaces/{}/{}", row.group_version, material.namespace, row.resource);
    create(path, row.object(&parts))
}

fn spec_of_pod(place: Place, field: &str, parts: &str) -> String {
    match place {
        Place::Spec => format!(r#"{{"containers":[{{"name":"c","image":"i"}}],"{field}":[{parts}]}}"#),
        Place::Container => format!(
            r#"{{"containers":[{{"name":"c","image":"i","{field}":[{parts}]}}],"volumes":[{{"name":"v","emptyDir":{{}}}}]}}"#
        ),
        Place::Volume => format!(
            r#"{{"containers":[{{"name":"c","image":"i"}}],"volumes":[{{"name":"v","projected":{{"{field}":[{parts}]}}}}]}}"#
        ),
    }
}

/// Many of one item, so that most requests are within the limit of a body: all equal, each with its own number, or each number twice.
fn any_parts(material: &mut Material<'_>, item: &str) -> String {
    let number: fn(usize) -> usize = [|_| 1, |index| index, |index| index / 2][material.rng.random_range(0..3)];
    parts(item, number, material.rng.random_range(BYTES))
}

/// Repeats an item until the text has `length` bytes.
fn parts(item: &str, number: fn(usize) -> usize, length: usize) -> String {
    let mut text = String::with_capacity(length + item.len());
    let mut index = 0;
    while text.len() < length {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(&item.replace(NUMBER, &number(index).to_string()));
        index += 1;
    }
    text
}

fn create(path: String, body: String) -> Request {
    Request::new("", "POST", format!("{path}?dryRun=All"), "application/json", body)
}

// === impl Row ===

impl Row {
    fn object(&self, parts: &str) -> String {
        let (version, kind, rest) = (self.group_version, self.kind, self.rest.replace(PARTS, parts));
        format!(r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"hostile"}},{rest}}}"#)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_object_is_json() {
        let items = |item| parts(item, |index| index / 2, 500);
        let places = [(Place::Spec, OF_PODS), (Place::Container, OF_CONTAINERS), (Place::Volume, OF_VOLUMES)];
        for (place, table) in places {
            for (field, item) in table {
                let spec: Value = serde_json::from_str(&spec_of_pod(place, field, &items(item))).unwrap();
                let holder = match place {
                    Place::Spec => &spec,
                    Place::Container => &spec["containers"][0],
                    Place::Volume => &spec["volumes"][0]["projected"],
                };
                assert!(holder[field].as_array().unwrap().len() > 1, "{field}: {spec}");
            }
        }
        for row in OF_OTHERS {
            let object: Value = serde_json::from_str(&row.object(&items(row.item))).unwrap();
            assert_eq!(object["metadata"]["name"], "hostile");
        }
    }
}
