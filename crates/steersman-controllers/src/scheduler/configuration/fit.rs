//! The settings of NodeResourcesFit.

use crate::scheduler::plugins::resources::Resource;

/// The settings of NodeResourcesFit.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    /// Extended resources that nodes need not have.
    pub(crate) ignored: Vec<String>,
    /// The same by the part of the name before the slash.
    pub(crate) ignored_groups: Vec<String>,
    pub(crate) strategy: Strategy,
    /// The resources that count, with their weights.
    pub(crate) resources: Vec<(Resource, i64)>,
}

/// Which nodes NodeResourcesFit prefers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// A function of the percentage that would be used, by points in increasing order; straight between them.
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

/// A point of a function: a percentage and a score from 0 to 100.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ShapePoint {
    pub(crate) utilization: i64,
    pub(crate) score: i64,
}

// === impl Fit ===

impl Fit {
    /// Whether nodes need not have this resource. That is possible for extended resources only.
    pub(crate) fn ignores(&self, resource: &str) -> bool {
        let Some((group, _)) = resource.split_once('/') else { return false };
        if resource.contains("kubernetes.io/") || resource.starts_with("requests.") {
            return false;
        }
        self.ignored_groups.iter().any(|ignored| ignored == group) || self.ignored.iter().any(|name| name == resource)
    }
}

impl Default for Fit {
    fn default() -> Fit {
        Fit {
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
            strategy: Strategy::LeastAllocated,
            resources: vec![(Resource::Cpu, 1), (Resource::Memory, 1)],
        }
    }
}
