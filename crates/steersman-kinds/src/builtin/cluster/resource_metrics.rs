//! NodeMetrics and PodMetrics: the usage of nodes and containers. Never stored; served where a source of metrics is set
//! (`crate::resource_metrics`).
//!
//! Names, verbs and columns are those of metrics-server. Its resources have no singular name, so clients accept
//! `podmetrics` and `nodemetrics` as other names.

use crate::builtin::kind::{Column, Kind, Version};
use crate::builtin::rules::cells;
use crate::catalog::{Handling, Verb};
use steersman_machinery::Value;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, str_at};

pub const GROUP: &str = "metrics.k8s.io";
pub const VERSION: &str = "v1beta1";

pub const NODES: Kind = Kind {
    group: GROUP,
    kind: "NodeMetrics",
    plural: "nodes",
    verbs: &[Verb::Get, Verb::List],
    handling: Handling::Computed,
    versions: &[Version {
        name: VERSION,
        definition: "io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetrics",
        columns: &COLUMNS,
        cells: |node, _| cells(node, std::slice::from_ref(node)),
        ..Version::V1
    }],
    ..Kind::CLUSTER
};

pub const PODS: Kind = Kind {
    group: GROUP,
    kind: "PodMetrics",
    plural: "pods",
    verbs: &[Verb::Get, Verb::List],
    handling: Handling::Computed,
    versions: &[Version {
        name: VERSION,
        definition: "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics",
        columns: &COLUMNS,
        cells: |pod, _| {
            let containers = at(pod, &["containers"]).and_then(Value::as_array);
            cells(pod, containers.map(Vec::as_slice).unwrap_or_default())
        },
        ..Version::V1
    }],
    ..Kind::NAMESPACED
};

const COLUMNS: [Column; 4] = [
    Column::NAME,
    Column::text("cpu", "The processor time in use.").formatted("quantity"),
    Column::text("memory", "The memory in use.").formatted("quantity"),
    Column::text("Window", "Over how long it was measured.").formatted("duration"),
];

/// The row of an object, with the total usage of its parts.
fn cells(object: &Value, parts: &[Value]) -> Vec<Value> {
    let sum = |resource: &str| {
        let texts = parts.iter().filter_map(|part| str_at(part, &["usage", resource]));
        let amounts = texts.filter_map(|text| Quantity::parse(text).ok());
        Value::from(amounts.fold(Quantity::ZERO, Quantity::plus).to_string())
    };
    vec![cells::name(object), sum("cpu"), sum("memory"), cells::text(object, &["window"])]
}
