//! Messages beside those that another implementation has encoded.

use crate::kind::Kind;
use crate::report::Variant;
use crate::resource::Resource;
use crate::resources::cluster::UpstreamHttp;
use crate::resources::endpoints::{ClusterLoadAssignment, HealthStatus};
use crate::resources::route::{Action, ClusterSpecifier, RedirectResponseCode};
use crate::resources::{Cluster, HttpConnectionManager, Listener, RouteConfiguration, TcpProxy};
use crate::subscriber;
use crate::transport::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, HEAD_BYTES, Node, Response,
};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;

const RECORDED: &str = include_str!("../../testdata/recorded.txt");

fn recorded() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (name, digits) = line.split_once(' ').unwrap();
        let byte = |place: usize| u8::from_str_radix(&digits[place..place + 2], 16).unwrap();
        (name, (0..digits.len()).step_by(2).map(byte).collect())
    })
}

fn read<T: Message + Default>(name: &str) -> T {
    let (_, bytes) = recorded().find(|(recorded, _)| recorded.ends_with(name)).unwrap();
    T::decode(&*bytes).unwrap()
}

/// Reads and writes a message. What is not known here would be missing in what is written.
fn written<T: Message + Default>(bytes: &[u8]) -> usize {
    T::decode(bytes).unwrap().encoded_len()
}

/// The number of bytes of a node that are not known here.
fn missing_of(node: Option<Bytes>) -> usize {
    let node = node.unwrap();
    node.len() - written::<Node>(&node)
}

#[test]
fn every_recorded_field_is_known() {
    for (name, bytes) in recorded() {
        let written = match name.rsplit('.').next().unwrap() {
            "Cluster" => written::<Cluster>(&bytes),
            "ClusterLoadAssignment" => written::<ClusterLoadAssignment>(&bytes),
            "DeltaDiscoveryRequest" => {
                let request = DeltaDiscoveryRequest::decode(&*bytes).unwrap();
                request.encoded_len() - missing_of(request.node)
            }
            "DeltaDiscoveryResponse" => written::<DeltaDiscoveryResponse>(&bytes),
            "DiscoveryRequest" => {
                let request = DiscoveryRequest::decode(&*bytes).unwrap();
                request.encoded_len() - missing_of(request.node)
            }
            "DiscoveryResponse" => written::<DiscoveryResponse>(&bytes),
            "HttpConnectionManager" => written::<HttpConnectionManager>(&bytes),
            "HttpProtocolOptions" => written::<UpstreamHttp>(&bytes),
            "Listener" => written::<Listener>(&bytes),
            "RouteConfiguration" => written::<RouteConfiguration>(&bytes),
            "TcpProxy" => written::<TcpProxy>(&bytes),
            other => panic!("{other}"),
        };
        assert_eq!(written, bytes.len(), "{name}");
    }
}

#[test]
fn fields_have_the_meaning_that_they_were_recorded_with() {
    let cluster: Cluster = read("cluster.v3.Cluster");
    assert_eq!((&*cluster.name, cluster.endpoints(), &*cluster.alt_stat_name), ("n", Some("s"), "alt"));
    let limits = cluster.circuit_breakers.unwrap().thresholds[0];
    assert_eq!((limits.max_connections, limits.max_pending_requests), (Some(1), Some(2)));
    assert_eq!((limits.max_requests, limits.max_retries), (Some(3), Some(4)));
    let endpoints: ClusterLoadAssignment = read("ClusterLoadAssignment");
    assert_eq!(endpoints.endpoints[0].lb_endpoints[0].health_status(), HealthStatus::Draining);
    let routes: RouteConfiguration = read("RouteConfiguration");
    assert_eq!(routes.clusters().into_iter().collect::<Vec<_>>(), ["a", "c", "m"]);
    assert_eq!((&*routes.request_headers_to_remove[0], &*routes.response_headers_to_remove[0]), ("l", "j"));
    let host = &routes.virtual_hosts[0];
    assert_eq!((&*host.request_headers_to_remove[0], &*host.response_headers_to_remove[0]), ("h", "g"));
    let route = &host.routes[0];
    assert_eq!((&*route.request_headers_to_remove[0], &*route.response_headers_to_remove[0]), ("d", "c"));
    let Some(Action::Route(action)) = &route.action else { panic!("{route:?}") };
    let Some(ClusterSpecifier::WeightedClusters(weighted)) = &action.cluster else { panic!("{action:?}") };
    let share = &weighted.clusters[0];
    assert_eq!(share.weight, Some(0), "not the same as none");
    assert_eq!((&*share.request_headers_to_remove[0], &*share.response_headers_to_remove[0]), ("qr", "rr"));
    let Some(Action::Redirect(redirect)) = &host.routes[3].action else { panic!("{host:?}") };
    assert_eq!(redirect.response_code(), RedirectResponseCode::PermanentRedirect);
    assert_eq!((redirect.port_redirect, redirect.strip_query), (8443, true));
}

#[test]
fn a_node_is_read_without_its_metadata() {
    let request: DeltaDiscoveryRequest = read("DeltaDiscoveryRequest");
    assert_eq!(request.resource_names_subscribe, ["a", "b"]);
    assert_eq!(request.resource_names_unsubscribe, ["c"]);
    assert_eq!(request.initial_resource_versions["b"], "2");
    let node = subscriber::Node::from(Node::decode(request.node.unwrap()).unwrap());
    assert_eq!((&*node.id, &*node.cluster, &*node.user_agent), ("i", "c", "envoy"));
    assert_eq!((&*node.locality.region, &*node.locality.zone, &*node.locality.sub_zone), ("r", "z", "s"));
}

#[test]
fn what_a_proxy_says_of_itself_is_kept_in_short() {
    let node = Node { cluster: "ä".repeat(200), user_agent_name: "x".repeat(300), ..Node::default() };
    let node = subscriber::Node::from(node);
    assert_eq!((node.cluster, node.user_agent), ("ä".repeat(128), "x".repeat(256)));
}

fn response(variant: Variant, resources: Vec<Arc<Resource>>) -> Response {
    let removed = vec!["b".into(), "c".into()];
    Response { kind: Kind::Cluster, variant, version: "v".to_owned(), nonce: "n".to_owned(), resources, removed }
}

fn joined(response: &Response) -> Vec<u8> {
    let bytes = response.encode().concat();
    assert_eq!(
        bytes[..HEAD_BYTES],
        [&[0][..], &u32::try_from(bytes.len() - HEAD_BYTES).unwrap().to_be_bytes()].concat()
    );
    bytes[HEAD_BYTES..].to_vec()
}

#[test]
fn responses_say_what_recorded_ones_say() {
    let cluster = Arc::new(Cluster { name: "a".to_owned(), ..Cluster::default() }.to_resource());
    let delta = DeltaDiscoveryResponse::decode(&*joined(&response(Variant::Delta, vec![cluster.clone()]))).unwrap();
    let mut expected: DeltaDiscoveryResponse = read("DeltaDiscoveryResponse");
    expected.resources[0].version = cluster.version().to_string();
    assert_eq!(delta, expected);
    let whole = joined(&response(Variant::StateOfTheWorld, vec![cluster]));
    let (_, recorded) = recorded().find(|(name, _)| name.ends_with(".DiscoveryResponse")).unwrap();
    assert_eq!(whole, recorded, "byte for byte");
}

#[test]
fn large_resources_are_shared_and_small_ones_are_joined() {
    let resource =
        |name: &str, length| Arc::new(Resource::from_bytes(Kind::Cluster, name, Bytes::from(vec![b'x'; length])));
    let resources: Vec<_> = (0..100).map(|n| resource(&n.to_string(), n * 100)).collect();
    for variant in [Variant::Delta, Variant::StateOfTheWorld] {
        let response = response(variant, resources.clone());
        let pieces = response.encode();
        let n_large = pieces.iter().filter(|piece| piece.len() > 4096 && piece.ends_with(b"x")).count();
        assert!(n_large > 50, "{n_large}");
        for resource in &resources[50..] {
            let start = resource.bytes().as_ptr();
            assert!(pieces.iter().any(|piece| piece.as_ptr_range().contains(&start)), "{} was copied", resource.name());
        }
        let message = joined(&response);
        let names: Vec<Bytes> = match variant {
            Variant::Delta => {
                let response = DeltaDiscoveryResponse::decode(&*message).unwrap();
                response.resources.into_iter().map(|resource| resource.resource.unwrap().value).collect()
            }
            Variant::StateOfTheWorld => {
                let response = DiscoveryResponse::decode(&*message).unwrap();
                response.resources.into_iter().map(|resource| resource.value).collect()
            }
        };
        assert!(names.iter().zip(&resources).all(|(value, resource)| *value == resource.bytes()));
        assert_eq!(names.len(), resources.len());
    }
}
