//! Service: one address for many pods. The registry of the server allocates addresses and node ports, between the preparation of an
//! object and its being stored.

use crate::builtin::kind::{Column, Kind, RULES, SelectableField, Subresource, Version};
use crate::builtin::rules::field::Field;
use crate::strategy::Rules;
use serde_json::json;
use steersman_machinery::value::{Map, object_at, str_at, unless_set};
use steersman_machinery::{Value, name};

pub mod cells;
pub mod update;
pub mod validate;

pub const KIND: Kind = Kind {
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.Service",
        has_status: true,
        subresources: &[Subresource::proxy("ServiceProxyOptions")],
        columns: &[
            Column::NAME,
            Column::text("Type", "How it is reached."),
            Column::text("Cluster-IP", "Its address inside the cluster."),
            Column::text("External-IP", "Its addresses outside the cluster."),
            Column::text("Port(s)", "Its ports, each with the port of the nodes it is reached by."),
            Column::AGE,
            Column::text("Selector", "Which pods it leads to.").wide(),
        ],
        cells: cells::of_service,
        fields: &[
            SelectableField::new("spec.clusterIP", ".spec.clusterIP"),
            SelectableField::new("spec.type", ".spec.type"),
        ],
        default,
        ..Version::V1
    }],
    rules: Rules { creates_on_update: true, returns_deleted: true, validates_generate_name_on_update: false, ..RULES },
    name_faults: name::dns1123_label,
    adopt: join_fields,
    prepare_create: join_fields,
    prepare_update: update::prepare,
    validate: validate::SERVICE,
    validate_status: validate::STATUS,
    warnings: |service, _| warnings(service),
    ..Kind::NAMESPACED
};

/// Makes fields that depend on each other agree in a Service that was not here before.
fn join_fields(service: &mut Value) {
    update::join_addresses(service, &Value::Null);
    update::drop_internal_policy(service);
}

fn warnings(service: &Value) -> Vec<String> {
    let service = Field::root(service);
    let spec = service.field("spec");
    let kind = spec.field("type").text();
    let is_headless = kind == "ClusterIP" && spec.field("clusterIP").text() == "None";
    let (is_external, has_addresses) = (kind == "ExternalName", !spec.field("externalIPs").is_empty());
    let mut warnings = Vec::new();
    let mut warn = |is_so: bool, why: &str| warnings.extend(is_so.then(|| why.to_owned()));
    warn(
        service.at(&["metadata", "annotations"]).key("service.kubernetes.io/topology-aware-hints").is_present(),
        "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
    );
    warn(
        is_headless && !spec.field("loadBalancerIP").is_empty(),
        "spec.loadBalancerIP is ignored for headless services",
    );
    warn(is_headless && has_addresses, "spec.externalIPs is ignored for headless services");
    warn(
        is_headless && spec.field("sessionAffinity").text() != "None",
        "spec.SessionAffinity is ignored for headless services",
    );
    warn(
        has_addresses && !is_headless && !is_external,
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    );
    warn(is_external && has_addresses, "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    warn(
        !is_external && !spec.field("externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    warn(
        spec.field("trafficDistribution").text() == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
    warnings
}

fn default(service: &mut Value) {
    let Some(spec) = object_at(service, &["spec"]) else { return };
    unless_set(spec, "sessionAffinity", "None");
    if text(spec, "sessionAffinity") == "ClientIP" {
        let config = spec.entry("sessionAffinityConfig").or_insert_with(|| json!({}));
        if let Some(client) = object_at(config, &["clientIP"]) {
            unless_set(client, "timeoutSeconds", 10_800);
        }
    } else if text(spec, "sessionAffinity") == "None" {
        spec.remove("sessionAffinityConfig");
    }
    unless_set(spec, "type", "ClusterIP");
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        unless_set(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or(json!(0));
        if matches!(port.get("targetPort"), Some(target) if *target == json!(0) || *target == json!("")) {
            port.remove("targetPort");
        }
        unless_set(port, "targetPort", number);
    }
    let (is_external, is_internal) = (is_external(service), is_internal(service));
    let is_balanced = is_balanced(service);
    let Some(spec) = object_at(service, &["spec"]) else { return };
    if is_external {
        unless_set(spec, "externalTrafficPolicy", "Cluster");
    }
    if is_internal {
        unless_set(spec, "internalTrafficPolicy", "Cluster");
    }
    if is_balanced {
        unless_set(spec, "allocateLoadBalancerNodePorts", true);
        address_modes(service);
    }
}

/// Sets the default `ipMode` of a load balancer's address, `VIP`.
fn address_modes(service: &mut Value) {
    let ingress = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
    for address in ingress.into_iter().flatten().filter_map(Value::as_object_mut) {
        if address.contains_key("ip") {
            unless_set(address, "ipMode", "VIP");
        }
    }
}

/// Whether the Service can be reached from outside the cluster.
fn is_external(service: &Value) -> bool {
    match kind(service) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => service["spec"]["externalIPs"].as_array().is_some_and(|list| !list.is_empty()),
        _ => false,
    }
}

/// Whether the Service has its own address inside the cluster.
fn is_internal(service: &Value) -> bool {
    matches!(kind(service), "ClusterIP" | "LoadBalancer" | "NodePort")
}

/// Whether the Service gets a load balancer.
fn is_balanced(service: &Value) -> bool {
    kind(service) == "LoadBalancer"
}

/// Whether the Service has the fields of addresses, in which a headless one has `None`.
pub fn has_addresses(service: &Value) -> bool {
    kind(service) != "ExternalName"
}

/// Whether the Service needs a cluster IP.
pub fn needs_address(service: &Value) -> bool {
    kind(service) != "ExternalName" && str_at(service, &["spec", "clusterIP"]) != Some("None")
}

/// Whether the Service needs node ports.
pub fn needs_node_ports(service: &Value) -> bool {
    match kind(service) {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != json!(false),
        _ => false,
    }
}

/// Whether the Service needs a health check node port: the load balancer asks each node if it has a pod of the Service.
pub fn needs_health_port(service: &Value) -> bool {
    is_balanced(service) && str_at(service, &["spec", "externalTrafficPolicy"]) == Some("Local")
}

/// The type of the Service.
pub fn kind(service: &Value) -> &str {
    str_at(service, &["spec", "type"]).unwrap_or_default()
}

fn text<'a>(spec: &'a Map, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}
