//! The destination of a proxied request: `name`, `name:port` or `scheme:name:port` in the path, and the address that it
//! resolves to.

use crate::shared::status::Failure;
use std::net::IpAddr;
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

/// The destination in the path of a proxied request.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Location<'a> {
    pub(super) name: &'a str,
    /// A number or a name; empty for the first port.
    pub(super) port: &'a str,
}

impl<'a> Location<'a> {
    /// Parses the destination in the path; `what` is for the error message.
    pub(super) fn parse(what: &str, id: &'a str) -> Result<Location<'a>, Failure> {
        let parts: Vec<&str> = id.split(':').collect();
        let location = match parts.as_slice() {
            [name] => Some(Location { name, port: "" }),
            [name, port] => Some(Location { name, port }),
            ["" | "http" | "https", name, port] => Some(Location { name, port }),
            _ => None,
        };
        let location = location.filter(|location| !location.name.is_empty());
        location.ok_or_else(|| Failure::bad_request(format!("invalid {what} request {id:?}")))
    }
}

/// Whether a proxy may connect to an address: neither this machine nor its local network.
pub(super) fn is_reachable(address: &str) -> bool {
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

/// The first ready address that has a port of this name, and the number of the port.
pub(super) fn endpoint(endpoints: &Value, port: &str) -> Option<(String, String)> {
    let list = |value: &'_ Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    for subset in list(endpoints, "subsets") {
        let addresses = list(&subset, "addresses");
        let ports = list(&subset, "ports");
        let named = ports.iter().find(|one| str_at(one, &["name"]).unwrap_or_default() == port);
        if let (Some(address), Some(port)) = (addresses.first(), named) {
            let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
            return Some((str_at(address, &["ip"])?.to_owned(), number.to_string()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_scheme_name_and_port() {
        let parse = |id| Location::parse("pod", id).map_err(|failure| failure.status.message);
        assert_eq!(parse("p"), Ok(Location { name: "p", port: "" }));
        assert_eq!(parse("p:web"), Ok(Location { name: "p", port: "web" }));
        assert_eq!(parse("https:p:443"), Ok(Location { name: "p", port: "443" }));
        for id in ["", ":80", "ftp:p:21", "a:b:c:d"] {
            assert_eq!(parse(id), Err(format!("invalid pod request {id:?}")));
        }
    }

    #[test]
    fn a_proxy_is_not_led_to_this_machine() {
        for (address, want) in [
            ("10.0.0.1", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
            ("", false),
            ("fd00::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(is_reachable(address), want, "{address}");
        }
    }
}
