//! Ports of a node that Pods ask for: the scheduler looks for a node where they are free, and the node does not take a Pod otherwise.

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};

const ANY_ADDRESS: &str = "0.0.0.0";

/// A port of the node itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// The ports that a Pod has for as long as it runs.
    pub(crate) fn of(spec: &PodSpec) -> Vec<HostPort> {
        let init = spec.init_containers.iter().flatten();
        let sidecars = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
        let host_port = |port: &ContainerPort| {
            let number = port.host_port.filter(|number| 0 < *number)?;
            let ip = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| ANY_ADDRESS.to_owned());
            let protocol = port.protocol.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "TCP".to_owned());
            Some(HostPort { ip, protocol, port: number })
        };
        ports.filter_map(host_port).collect()
    }

    /// Whether only one of them can be had.
    pub(crate) fn conflicts(&self, other: &HostPort) -> bool {
        let is_same_address = self.ip == other.ip || self.ip == ANY_ADDRESS || other.ip == ANY_ADDRESS;
        self.port == other.port && self.protocol == other.protocol && is_same_address
    }
}
