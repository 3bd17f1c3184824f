//! The CPU and memory usage of nodes and containers, in the units of `metrics.k8s.io`.

use std::ops::Add;
use std::time::Duration;

/// An amount of CPU and memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// CPU usage, in billionths of a core.
    pub cpu_nanos: u64,
    /// The memory in use, in bytes.
    pub memory_bytes: u64,
}

/// The usage of a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeUsage {
    /// The time over which it was measured.
    pub window: Duration,
    /// The usage in that time.
    pub usage: Usage,
}

/// The usage of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodUsage {
    /// The time over which it was measured.
    pub window: Duration,
    /// The running containers by name, with their usage.
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
