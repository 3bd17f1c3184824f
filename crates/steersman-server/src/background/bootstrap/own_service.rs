//! The Service `kubernetes`, by which programs in a cluster find the server, with its endpoints and the range of its
//! address. Follows kubernetes' `pkg/controlplane/controller/kubernetesservice`.

use crate::background::bootstrap::{Pass, assign, create};
use crate::shared::operation::{Operation, seconds};
use crate::shared::request::options::Delete;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::service_addresses::allocator::{DEFAULT_RANGES, Family};
use crate::write::registry::{self, Change};
use futures::future;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use steersman_kinds::catalog::Verb;
use steersman_machinery::value::{at, set_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

const NAME: &str = "kubernetes";
const PORT: u16 = 443;

/// Creates the range, the Service and its endpoints, and updates them with the addresses of all servers. `port` is that of
/// this one.
pub(super) async fn reconcile(state: &State, servers: &[SocketAddr], port: u16, when: Pass) -> Result<(), Failure> {
    let port = servers.iter().map(SocketAddr::port).min().unwrap_or(port);
    // The Service needs the range for its address. The others are independent, and so share commits of the store.
    let addressed = async {
        range(state, when).await?;
        service(state, port).await
    };
    // Without an advertised address there are no endpoints; endpoints that others write while the server runs stay.
    if when == Pass::Periodic && servers.is_empty() {
        return addressed.await;
    }
    future::try_join(Box::pin(addressed), Box::pin(point_at(state, servers))).await.map(|_| ())
}

/// Writes the addresses of the servers into the Endpoints and the EndpointSlice of the Service; removes these if there is none.
pub(super) async fn point_at(state: &State, servers: &[SocketAddr]) -> Result<(), Failure> {
    let (endpoints, slice) = (Box::pin(endpoints(state, servers)), Box::pin(slice(state, servers)));
    future::try_join(endpoints, slice).await.map(|_| ())
}

async fn endpoints(state: &State, servers: &[SocketAddr]) -> Result<(), Failure> {
    let key = ObjectKey::namespaced("default", NAME);
    let resource = GroupResource::new("", "endpoints");
    if servers.is_empty() {
        return remove(state, &resource, &key).await;
    }
    let mut by_port: BTreeMap<u16, Vec<Value>> = BTreeMap::new();
    for server in servers {
        by_port.entry(server.port()).or_default().push(json!({"ip": server.ip().to_string()}));
    }
    let subset = |(port, addresses)| json!({"addresses": addresses, "ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
    let subsets = by_port.into_iter().map(subset).collect();
    behind(state, &resource, &key, endpoints_of(&subsets), &["subsets"]).await
}

/// A slice has one family and one port: those of the first server, and all servers that have the same.
async fn slice(state: &State, servers: &[SocketAddr]) -> Result<(), Failure> {
    let key = ObjectKey::namespaced("default", NAME);
    let resource = GroupResource::new("discovery.k8s.io", "endpointslices");
    let Some(first) = servers.iter().min_by_key(|server| server.port()) else {
        return remove(state, &resource, &key).await;
    };
    let is_like_first = |server: &&SocketAddr| server.port() == first.port() && server.is_ipv4() == first.is_ipv4();
    let alike: Vec<IpAddr> = servers.iter().filter(is_like_first).map(SocketAddr::ip).collect();
    behind(state, &resource, &key, slice_of(&alike, first), &["endpoints", "ports"]).await
}

/// Whether other machines can reach an address.
pub(super) fn is_reachable(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

/// Creates the ranges of Service addresses that the server is started with; they are ready at once. Ranges of an
/// earlier start stay, except that a second family may be added, as in upstream's
/// `pkg/controlplane/controller/defaultservicecidr`.
async fn range(state: &State, when: Pass) -> Result<(), Failure> {
    let ranges = GroupResource::new("networking.k8s.io", "servicecidrs");
    let key = ObjectKey::cluster(DEFAULT_RANGES);
    let wanted: Vec<Value> = state.services.ranges().iter().map(|range| Value::from(range.to_string())).collect();
    let range = json!({
        "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": DEFAULT_RANGES},
        "spec": {"cidrs": wanted},
    });
    create(state, &ranges, &key, range).await?;
    let now = seconds(state.now());
    assign(state, &ranges, &key, &|range| {
        let present = at(range, &["spec", "cidrs"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_first_of_two = present.len() == 1 && wanted.len() == 2 && present[0] == wanted[0];
        if !is_first_of_two && present != wanted {
            if when == Pass::Periodic {
                return;
            }
            let shown = |ranges: &[Value]| ranges.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
            tracing::warn!(
                present = shown(present),
                wanted = shown(&wanted),
                "the ServiceCIDR kubernetes has other ranges than this server is started with, and keeps them: addresses are \
                 given out of those"
            );
            return;
        }
        if is_first_of_two {
            set_at(range, &["spec", "cidrs"], Value::from(wanted.clone()));
        }
        let is_going = at(range, &["metadata", "deletionTimestamp"]).is_some();
        if !is_going && at(range, &["status", "conditions"]).is_none() {
            let ready = json!([{
                "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
                "lastTransitionTime": now,
            }]);
            set_at(range, &["status", "conditions"], ready);
        }
    })
    .await
}

async fn service(state: &State, port: u16) -> Result<(), Failure> {
    let services = GroupResource::new("", "services");
    let key = ObjectKey::namespaced("default", NAME);
    // The first address of the range, unless it is taken.
    let first = state.services.server_address();
    let family = first.map_or(Family::V4, Family::of).name();
    let first = first.map(|address| address.to_string()).unwrap_or_default();
    let service = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": NAME, "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": first, "clusterIPs": [first], "sessionAffinity": "None",
            "ipFamilies": [family], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP", "targetPort": port}],
        },
    });
    match create(state, &services, &key, service.clone()).await {
        Err(failure) if failure.code() == 422 => {
            let mut service = service;
            set_at(&mut service, &["spec", "clusterIP"], json!(""));
            set_at(&mut service, &["spec", "clusterIPs"], json!([]));
            create(state, &services, &key, service).await?;
        }
        created => created?,
    }
    assign(state, &services, &key, &|service| {
        if let Some(target) = service.pointer_mut("/spec/ports/0/targetPort") {
            *target = json!(port);
        }
    })
    .await
}

/// Creates the endpoints of the Service, or updates some of their fields.
async fn behind(
    state: &State,
    resource: &GroupResource,
    key: &ObjectKey,
    object: Value,
    fields: &[&str],
) -> Result<(), Failure> {
    create(state, resource, key, object.clone()).await?;
    assign(state, resource, key, &|stored| {
        for field in fields {
            set_at(stored, &[field], object[*field].clone());
        }
    })
    .await
}

fn endpoints_of(subsets: &Value) -> Value {
    json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": {
            "name": NAME, "namespace": "default", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": subsets,
    })
}

fn slice_of(servers: &[IpAddr], first: &SocketAddr) -> Value {
    let endpoint = |ip: &IpAddr| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}});
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": NAME, "namespace": "default", "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": if first.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": servers.iter().map(endpoint).collect::<Vec<Value>>(),
        "ports": [{"name": "https", "port": first.port(), "protocol": "TCP"}],
    })
}

pub(super) async fn remove(state: &State, resource: &GroupResource, key: &ObjectKey) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find(&resource.group, "v1", &resource.resource) else { return Ok(()) };
    if state.get_own(resource, key).await?.is_none() {
        return Ok(());
    }
    let system = Operation::of_system(served, Verb::Delete, state.now());
    let options = Delete::default();
    match registry::write(state, &mut system.on(Verb::Delete, key), &Change::Delete(&options)).await {
        Err(failure) if failure.code() != 404 => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}
