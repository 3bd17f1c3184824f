//! The zones of volumes, according to their labels.

use crate::scheduler::cluster::node::Node;
use crate::scheduler::plugins::volumes::objects::Volume;
use crate::scheduler::plugins::volumes::{ClaimsOfPod, Volumes};
use std::collections::BTreeSet;

const ZONES: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

impl Volumes {
    /// Whether the Pod's volumes are in the zone of a node, as far as both have zone labels.
    pub(crate) fn is_in_zone(claims: &ClaimsOfPod, node: &Node) -> bool {
        let labels = &node.facts().labels;
        if claims.zones.is_empty() || !ZONES.iter().any(|label| labels.contains_key(*label)) {
            return true;
        }
        claims.zones.iter().all(|(label, values)| {
            let value = labels.get(label).or_else(|| labels.get(newer(label)));
            value.is_some_and(|value| values.contains(value))
        })
    }
}

/// The label and the values of each zone and region of a volume.
pub(super) fn of(volume: &Volume) -> Vec<(String, BTreeSet<String>)> {
    let of = |label: &&str| {
        let values = volume.labels.get(*label)?;
        Some(((*label).to_owned(), values.split("__").map(|value| value.trim().to_owned()).collect()))
    };
    ZONES.iter().filter_map(of).collect()
}

fn newer(label: &str) -> &str {
    match label {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        label => label,
    }
}
