//! The kubelet of a node: where it is called (kubernetes' `pkg/kubelet/client/kubelet_client.go`).

use crate::http::endpoint::context::Context;
use crate::http::endpoint::stream;
use crate::http::endpoint::stream::backend::Backend;
use crate::shared::nodes::connections::Peer;
use crate::shared::status::Failure;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{ObjectKey, Value};

/// The address of a kubelet.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Kubelet {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Kubelet {
    /// The kubelet of a node.
    ///
    /// # Errors
    /// When there is no such Node, or it has no address of a type that is wanted.
    pub(super) async fn find(cx: &Context<'_>, node: &str) -> Result<Kubelet, Failure> {
        let node = stream::stored(cx, "nodes", &ObjectKey::cluster(node)).await?;
        let options = &cx.state.connections.options;
        Kubelet::of(&node, &options.address_types, options.port)
    }

    fn of(node: &Value, address_types: &[String], default_port: u16) -> Result<Kubelet, Failure> {
        let addresses = at(node, &["status", "addresses"]).and_then(Value::as_array);
        let addresses = addresses.map(Vec::as_slice).unwrap_or_default();
        let of_type = |kind: &String| addresses.iter().find(|address| str_at(address, &["type"]) == Some(kind));
        let Some(address) = address_types.iter().find_map(of_type) else {
            let field = |address, name| str_at(address, &[name]).unwrap_or_default();
            let known = addresses.iter().map(|one| format!("{{{} {}}}", field(one, "type"), field(one, "address")));
            let known = known.collect::<Vec<_>>().join(" ");
            return Err(Failure::unclassified(format!("no preferred addresses found; known addresses: [{known}]")));
        };
        let port = at(node, &["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).and_then(Value::as_i64);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let host = str_at(address, &["address"]).unwrap_or_default().to_owned();
        Ok(Kubelet { host, port: port.unwrap_or(default_port) })
    }

    /// The kubelet as the other side of a connection.
    pub(super) fn backend(&self, peer: Peer) -> Backend {
        Backend::new(peer, "https", &self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(status: Value, types: &[&str], want: Result<(&str, u16), &str>) {
        let types: Vec<String> = types.iter().map(|kind| (*kind).to_owned()).collect();
        let found = Kubelet::of(&json!({"status": status}), &types, 10_250);
        let found = found.map(|kubelet| (kubelet.host, kubelet.port)).map_err(|failure| failure.status.message);
        assert_eq!(found, want.map(|(host, port)| (host.to_owned(), port)).map_err(str::to_owned));
    }

    #[test]
    fn the_most_preferred_address_is_taken_and_the_port_that_the_node_names() {
        let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}]);
        let named = json!({"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_350}}});
        check(named.clone(), &["Hostname", "InternalIP"], Ok(("n", 10_350)));
        check(json!({"addresses": addresses}), &["ExternalIP", "InternalIP"], Ok(("10.0.0.1", 10_250)));
        let none = "no preferred addresses found; known addresses: [{InternalIP 10.0.0.1} {Hostname n}]";
        check(named, &["ExternalIP"], Err(none));
        check(json!({}), &["Hostname"], Err("no preferred addresses found; known addresses: []"));
    }
}
