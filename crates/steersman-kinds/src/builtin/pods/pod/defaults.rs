//! The defaults of a pod and of a pod template.

use crate::builtin::rules::image;
use crate::builtin::rules::quantity::round_up;
use crate::builtin::storage::volume_source;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{Map, at, object_at, unless_set};

/// Sets the defaults of a pod.
pub fn pod(pod: &mut Value) {
    if let Some(pod_spec) = object_at(pod, &["spec"]) {
        unless_set(pod_spec, "enableServiceLinks", true);
        // A template keeps a negative time.
        if let Some(grace) = pod_spec.get_mut("terminationGracePeriodSeconds")
            && grace.as_i64().is_some_and(|seconds| seconds < 0)
        {
            *grace = json!(1);
        }
        let is_on_host_network = pod_spec.get("hostNetwork") == Some(&Value::Bool(true));
        for container in containers(pod_spec) {
            requests_from_limits(container);
            if is_on_host_network {
                host_ports(container);
            }
        }
    }
    spec(pod, &["spec"]);
    addresses(pod);
    if let Some(status) = object_at(pod, &["status"]) {
        round_up(status, &["allocatedResources"]);
        round_up_resources(status);
        for name in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
            for container in list(status, name) {
                round_up(container, &["allocatedResources"]);
                round_up_resources(container);
            }
        }
    }
}

/// Sets the defaults of the pod spec at a path, of a pod or of a template.
pub fn spec(object: &mut Value, path: &[&str]) {
    let Some(spec) = object_at(object, path) else { return };
    unless_set(spec, "dnsPolicy", "ClusterFirst");
    unless_set(spec, "restartPolicy", "Always");
    unless_set(spec, "schedulerName", "default-scheduler");
    unless_set(spec, "securityContext", json!({}));
    unless_set(spec, "terminationGracePeriodSeconds", 30);
    // The field has an older name, which is kept equal to the newer one.
    match (spec.get("serviceAccountName").cloned(), spec.get("serviceAccount").cloned()) {
        (Some(name), _) => spec.insert("serviceAccount".to_owned(), name),
        (None, Some(name)) => spec.insert("serviceAccountName".to_owned(), name),
        (None, None) => None,
    };
    containers(spec).for_each(container);
    list(spec, "volumes").for_each(volume);
    round_up(spec, &["overhead"]);
    round_up_resources(spec);
}

fn container(container: &mut Map) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let pull_policy = if image::tag(image).as_deref() == Some("latest") { "Always" } else { "IfNotPresent" };
    unless_set(container, "imagePullPolicy", pull_policy);
    unless_set(container, "terminationMessagePath", "/dev/termination-log");
    unless_set(container, "terminationMessagePolicy", "File");
    for port in list(container, "ports") {
        unless_set(port, "protocol", "TCP");
    }
    for variable in list(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom") {
            value_source(source);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).and_then(Value::as_object_mut) {
            unless_set(probe, "timeoutSeconds", 1);
            unless_set(probe, "periodSeconds", 10);
            unless_set(probe, "successThreshold", 1);
            unless_set(probe, "failureThreshold", 3);
            handler(probe);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) {
        lifecycle.values_mut().filter_map(Value::as_object_mut).for_each(handler);
    }
    round_up_resources(container);
}

fn handler(handler: &mut Map) {
    if let Some(get) = handler.get_mut("httpGet").and_then(Value::as_object_mut) {
        unless_set(get, "path", "/");
        unless_set(get, "scheme", "HTTP");
    }
    if let Some(grpc) = handler.get_mut("grpc").and_then(Value::as_object_mut) {
        unless_set(grpc, "service", "");
    }
}

fn value_source(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef").and_then(Value::as_object_mut) {
        unless_set(field, "apiVersion", "v1");
    }
    if let Some(file) = source.get_mut("fileKeyRef").and_then(Value::as_object_mut) {
        unless_set(file, "optional", false);
    }
}

/// Sets absent requests to the limits. Only for a pod itself, not for a template.
fn requests_from_limits(container: &mut Map) {
    let Some(resources) = container.get_mut("resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = object_at(resources, &["requests"]) {
        for (resource, limit) in limits {
            requests.entry(resource).or_insert(limit);
        }
        if requests.is_empty() {
            resources.as_object_mut().map(|resources| resources.remove("requests"));
        }
    }
}

/// Rounds the resources of a container, a Pod or a claim up to thousandths.
fn round_up_resources(holder: &mut Map) {
    for amounts in [&["resources", "limits"], &["resources", "requests"]] {
        round_up(holder, amounts);
    }
}

/// On the host's network a container port is also a host port.
fn host_ports(container: &mut Map) {
    for port in list(container, "ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            unless_set(port, "hostPort", number);
        }
    }
}

fn volume(volume: &mut Map) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    volume_source::default(volume);
    for (source, fields) in volume.iter_mut().filter_map(|(name, value)| Some((name, value.as_object_mut()?))) {
        match source.as_str() {
            "configMap" | "secret" => unless_set(fields, "defaultMode", 0o644),
            "downwardAPI" => {
                unless_set(fields, "defaultMode", 0o644);
                list(fields, "items").for_each(downward_item);
            }
            "ephemeral" => {
                let template = fields.get_mut("volumeClaimTemplate");
                if let Some(spec) = template.and_then(|template| object_at(template, &["spec"])) {
                    unless_set(spec, "volumeMode", "Filesystem");
                    round_up_resources(spec);
                }
            }
            "projected" => {
                unless_set(fields, "defaultMode", 0o644);
                list(fields, "sources").for_each(projected_source);
            }
            _ => {}
        }
    }
}

fn projected_source(source: &mut Map) {
    if let Some(token) = source.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
        unless_set(token, "expirationSeconds", 3600);
    }
    if let Some(downward) = source.get_mut("downwardAPI").and_then(Value::as_object_mut) {
        list(downward, "items").for_each(downward_item);
    }
}

fn downward_item(item: &mut Map) {
    if let Some(field) = item.get_mut("fieldRef").and_then(Value::as_object_mut) {
        unless_set(field, "apiVersion", "v1");
    }
}

/// Makes `podIP` equal to the first of `podIPs`. `hostIP` and `hostIPs` are not completed from each other: `status`
/// refuses those that differ.
fn addresses(pod: &mut Value) {
    let first = at(pod, &["status", "podIPs"]).and_then(|list| list.get(0)?.get("ip")).cloned();
    let single = at(pod, &["status", "podIP"]).cloned();
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else { return };
    match (single, first) {
        (Some(single), first) if first.as_ref() != Some(&single) => {
            status.insert("podIPs".to_owned(), json!([{ "ip": single }]));
        }
        (None, Some(first)) => {
            status.insert("podIP".to_owned(), first);
        }
        _ => {}
    }
}

/// All containers of a pod spec.
fn containers(spec: &mut Map) -> impl Iterator<Item = &mut Map> {
    spec.iter_mut()
        .filter(|(name, _)| matches!(name.as_str(), "containers" | "ephemeralContainers" | "initContainers"))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
        .filter_map(Value::as_object_mut)
}

fn list<'a>(object: &'a mut Map, name: &str) -> impl Iterator<Item = &'a mut Map> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_is_always_pulled() {
        for (image, want) in [
            ("nginx", "Always"),
            ("host:5000/nginx:latest", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            // Upstream finds no tag in a text that is no reference to an image.
            ("Nginx", "IfNotPresent"),
            ("a b", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            let mut object = json!({"spec": {"containers": [{"image": image}]}});
            spec(&mut object, &["spec"]);
            assert_eq!(object["spec"]["containers"][0]["imagePullPolicy"], want, "{image}");
        }
    }

    #[test]
    fn volumes_get_modes_and_an_empty_one_a_directory() {
        let mut object = json!({"spec": {"volumes": [
            {"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "hostPath": {"path": "/x"}},
        ]}});
        spec(&mut object, &["spec"]);
        assert_eq!(
            object["spec"]["volumes"],
            json!([
                {"name": "a", "emptyDir": {}},
                {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
                {"name": "c", "hostPath": {"path": "/x", "type": ""}},
            ])
        );
    }

    #[test]
    fn on_the_network_of_the_host_ports_are_the_hosts() {
        let mut value = json!({"spec": {"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]}});
        pod(&mut value);
        assert_eq!(value["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
    }
}
