//! What nodes and the containers of pods use of processors and memory, in the units of `metrics.k8s.io`.

use std::ops::Add;
use std::time::Duration;

/// What something uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// In billionths of a processor.
    pub cpu_nanos: u64,
    /// The memory that is in use, in bytes.
    pub memory_bytes: u64,
}

/// What a node uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeUsage {
    /// Over how long it was measured.
    pub window: Duration,
    /// The amounts.
    pub usage: Usage,
}

/// What a pod uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodUsage {
    /// Over how long it was measured.
    pub window: Duration,
    /// The names of its containers that run, and the amounts.
    pub containers: Vec<(String, Usage)>,
}

/// Sums saturate.
impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            cpu_nanos: self.cpu_nanos.saturating_add(other.cpu_nanos),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stay_within_what_they_can_be() {
        let most = Usage { cpu_nanos: u64::MAX, memory_bytes: u64::MAX };
        assert_eq!(most + Usage { cpu_nanos: 1, memory_bytes: 1 }, most);
        let three = Usage { cpu_nanos: 1, memory_bytes: 2 } + Usage { cpu_nanos: 2, memory_bytes: 1 };
        assert_eq!(three, Usage { cpu_nanos: 3, memory_bytes: 3 });
    }
}
