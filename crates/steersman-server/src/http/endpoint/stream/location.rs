//! The destination of a proxied request: `name`, `name:port` or `scheme:name:port` in the path, and the addresses that it may
//! lead to.

use crate::shared::status::Failure;
use std::net::IpAddr;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// The destination in the path of a proxied request.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Location<'a> {
    pub(super) scheme: &'static str,
    pub(super) name: &'a str,
    /// A number or a name; empty for the first port.
    pub(super) port: &'a str,
}

/// An address behind a Service.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Endpoint<'a> {
    pub(super) address: &'a str,
    pub(super) port: i64,
    /// The namespace and the name of the object to which the address belongs.
    pub(super) target: (&'a str, &'a str),
}

impl<'a> Location<'a> {
    /// Parses the destination in the path; `what` is for the error message.
    pub(super) fn parse(what: &str, id: &'a str) -> Result<Location<'a>, Failure> {
        let parts: Vec<&str> = id.split(':').collect();
        let location = match parts.as_slice() {
            [name] => Some(Location { scheme: "http", name, port: "" }),
            [name, port] | ["" | "http", name, port] => Some(Location { scheme: "http", name, port }),
            ["https", name, port] => Some(Location { scheme: "https", name, port }),
            _ => None,
        };
        let location = location.filter(|location| !location.name.is_empty());
        location.ok_or_else(|| Failure::bad_request(format!("invalid {what} request {id:?}")))
    }

    /// The port of the scheme.
    pub(super) fn usual_port(&self) -> u16 {
        if self.scheme == "https" { 443 } else { 80 }
    }
}

/// Whether a proxy may connect to an address: neither this machine nor its local network.
pub(super) fn is_reachable(address: &str) -> bool {
    address.parse().is_ok_and(is_global)
}

/// Whether an address is neither this machine's nor of its local network.
pub(super) fn is_global(address: IpAddr) -> bool {
    // The address of IPv4 that one of IPv6 stands for is what is connected to.
    let address = address.to_canonical();
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

/// The first port of a Pod's containers.
pub(super) fn first_port(pod: &Value) -> Option<i64> {
    let containers = at(pod, &["spec", "containers"]).and_then(Value::as_array).into_iter().flatten();
    let mut ports =
        containers.filter_map(|container| container.get("ports")?.as_array()?.first()?.get("containerPort")?.as_i64());
    ports.next()
}

/// The addresses of a Pod.
pub(super) fn pod_addresses(pod: &Value) -> impl Iterator<Item = &str> {
    let addresses = at(pod, &["status", "podIPs"]).and_then(Value::as_array).into_iter().flatten();
    addresses.filter_map(|address| str_at(address, &["ip"]))
}

/// The ready addresses that have a port of this name, of each subset.
pub(super) fn endpoints<'a>(endpoints: &'a Value, port: &str) -> Vec<Vec<Endpoint<'a>>> {
    let mut found = Vec::new();
    for subset in list(endpoints, "subsets") {
        let mut ports = list(subset, "ports");
        let Some(named) = ports.find(|one| str_at(one, &["name"]).unwrap_or_default() == port) else { continue };
        let port = named.get("port").and_then(Value::as_i64).unwrap_or(0);
        let of_pods = list(subset, "addresses").filter_map(|address| {
            let target = |field| str_at(address, &["targetRef", field]);
            let target = (target("namespace")?, target("name")?);
            Some(Endpoint { address: str_at(address, &["ip"])?, port, target })
        });
        found.push(of_pods.collect());
    }
    found
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_names_scheme_name_and_port() {
        let parse = |id| Location::parse("pod", id).map_err(|failure| failure.status.message);
        assert_eq!(parse("p"), Ok(Location { scheme: "http", name: "p", port: "" }));
        assert_eq!(parse("p:web"), Ok(Location { scheme: "http", name: "p", port: "web" }));
        assert_eq!(parse(":p:80"), Ok(Location { scheme: "http", name: "p", port: "80" }));
        assert_eq!(parse("https:p:443"), Ok(Location { scheme: "https", name: "p", port: "443" }));
        for id in ["", ":80", "ftp:p:21", "a:b:c:d"] {
            assert_eq!(parse(id), Err(format!("invalid pod request {id:?}")));
        }
    }

    #[test]
    fn a_proxy_is_not_led_to_this_machine() {
        for (address, want) in [
            ("10.0.0.1", true),
            ("127.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("0.0.0.0", false),
            ("", false),
            ("fd00::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(is_reachable(address), want, "{address}");
        }
    }

    #[test]
    fn only_addresses_that_belong_to_an_object_are_behind_a_service() {
        let target = json!({"kind": "Pod", "namespace": "a", "name": "p"});
        let object = json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "other", "port": 1}]},
            {"addresses": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.3", "targetRef": target}], "ports": [{"name": "web", "port": 8080}]},
        ]});
        let want = Endpoint { address: "10.0.0.3", port: 8080, target: ("a", "p") };
        assert_eq!(endpoints(&object, "web"), [[want]]);
        assert!(endpoints(&object, "none").is_empty());
    }
}
