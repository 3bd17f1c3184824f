//! The ports of a Service at a Pod, and upstream's order of ports.

use crate::loops::network::service_pods;
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

const FNV_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A port of a Service and its number at a Pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) port: i32,
    pub(crate) protocol: String,
    pub(crate) app_protocol: Option<String>,
}

/// The ports at which a Service reaches a Pod, in the order of the Service. A named port that the Pod lacks is left
/// out.
pub(crate) fn of(service: &Service, pod: &Pod) -> Vec<Port> {
    let ports = service.spec.iter().flat_map(|spec| &spec.ports).flatten();
    let at_pod = ports.filter_map(|port| {
        number(pod, port).map(|number| Port {
            name: port.name.clone().unwrap_or_default(),
            port: number,
            protocol: protocol(port.protocol.as_ref()).to_owned(),
            app_protocol: port.app_protocol.clone(),
        })
    });
    at_pod.collect()
}

/// Whether a Service includes Pods without any port.
pub(crate) fn is_portless(service: &Service) -> bool {
    let has_ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).is_some_and(|ports| !ports.is_empty());
    !has_ports && service_pods::is_headless(service)
}

pub(crate) fn protocol(protocol: Option<&String>) -> &str {
    protocol.map_or("TCP", String::as_str)
}

fn number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports).flatten();
    let mut named = ports.filter(|found| {
        found.name.as_ref() == Some(name) && protocol(found.protocol.as_ref()) == protocol(port.protocol.as_ref())
    });
    named.next().map(|found| found.container_port)
}

/// The sort key of upstream for the ports of Endpoints: the hash of a port as Go prints it.
pub(crate) fn endpoints_order(one: &Port) -> u128 {
    let Port { name, port, protocol, app_protocol } = one;
    let app_protocol = app_protocol.as_deref().unwrap_or("<nil>");
    fnv128a(&format!(
        "(v1.EndpointPort){{Name:(string){name} Port:(int32){port} Protocol:(v1.Protocol){protocol} AppProtocol:(*string){app_protocol}}}"
    ))
}

/// The sort key of upstream for the ports of EndpointSlices.
pub(crate) fn slices_order(one: &Port) -> u128 {
    let Port { name, port, protocol, app_protocol } = one;
    let app_protocol = app_protocol.as_deref().unwrap_or("<nil>");
    fnv128a(&format!(
        "(v1.EndpointPort){{Name:(*string){name} Protocol:(*v1.Protocol){protocol} Port:(*int32){port} AppProtocol:(*string){app_protocol}}}"
    ))
}

fn fnv128a(text: &str) -> u128 {
    text.bytes().fold(FNV_BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_gos() {
        let text = "(main.EndpointPort){Name:(string)http Port:(int32)80 Protocol:(main.Protocol)TCP AppProtocol:(*string)<nil>}";
        assert_eq!(fnv128a(text), 0xd9f5_c710_231f_1022_d4bd_c244_001b_bf95);
    }

    #[test]
    fn a_named_port_is_looked_up_in_containers_and_sidecars_by_name_and_protocol() {
        let pod = serde_json::json!({"metadata": {}, "spec": {
            "containers": [{"name": "c", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]}],
            "initContainers": [
                {"name": "i", "ports": [{"name": "web", "containerPort": 1}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"name": "web", "containerPort": 8080}]}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let service = serde_json::json!({"metadata": {}, "spec": {"ports": [
            {"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 53, "targetPort": "dns"},
            {"name": "c", "port": 54, "targetPort": "dns", "protocol": "UDP"}, {"name": "d", "port": 81, "targetPort": 99}]}});
        let service: Service = serde_json::from_value(service).unwrap();
        let found: Vec<_> = of(&service, &pod).into_iter().map(|port| (port.name, port.port)).collect();
        assert_eq!(found, [("a".to_owned(), 8080), ("c".to_owned(), 53), ("d".to_owned(), 99)]);
    }
}
