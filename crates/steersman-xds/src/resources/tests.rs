//! The references between messages.

use crate::kind::Kind;
use crate::resources::Cluster;
use crate::resources::core::Address;
use crate::resources::filters::{HttpConnectionManager, TcpProxy};
use crate::resources::listener::{Filter, Listener};
use crate::resources::route::{
    Action, ClusterSpecifier, ClusterWeight, PathSpecifier, RequestMirrorPolicy, Route, RouteAction,
    RouteConfiguration, RouteMatch, VirtualHost, WeightedCluster,
};
use std::net::Ipv4Addr;

fn needs(resource: &crate::Resource, kind: Kind) -> Vec<String> {
    resource.needed(kind).map(ToString::to_string).collect()
}

#[test]
fn a_cluster_refers_to_its_endpoints() {
    let mut cluster = Cluster::eds("web");
    assert_eq!(needs(&cluster.to_resource(), Kind::Endpoints), ["web"]);
    cluster.eds_cluster_config.as_mut().unwrap().service_name = "other".to_owned();
    assert_eq!(needs(&cluster.to_resource(), Kind::Endpoints), ["other"]);
    cluster.discovery = None;
    assert_eq!(needs(&cluster.to_resource(), Kind::Endpoints), [""; 0]);
}

#[test]
fn a_route_refers_to_clusters_with_weights_and_of_copies() {
    let weighted = WeightedCluster { clusters: vec![ClusterWeight::new("a", 1), ClusterWeight::new("b", 0)] };
    let action = RouteAction {
        cluster: Some(ClusterSpecifier::WeightedClusters(weighted)),
        request_mirror_policies: vec![RequestMirrorPolicy { cluster: "c".to_owned(), ..Default::default() }],
        ..Default::default()
    };
    let route = Route {
        r#match: Some(RouteMatch::new(PathSpecifier::Prefix("/".to_owned()))),
        action: Some(Action::Route(Box::new(action))),
        ..Default::default()
    };
    let host = VirtualHost { routes: vec![route], ..Default::default() };
    let routes = RouteConfiguration { name: "r".to_owned(), virtual_hosts: vec![host], ..Default::default() };
    assert_eq!(needs(&routes.to_resource(), Kind::Cluster), ["a", "b", "c"]);
}

#[test]
fn a_listener_refers_to_routes_and_to_clusters_of_connections() {
    let filters = vec![
        Filter::http(&HttpConnectionManager::routed_by("r", "in")),
        Filter::tcp(&TcpProxy::to_cluster("db", "db")),
    ];
    let listener = Listener::new("l", Address::tcp(Ipv4Addr::LOCALHOST.into(), 80), filters).to_resource();
    assert_eq!(needs(&listener, Kind::Route), ["r"]);
    assert_eq!(needs(&listener, Kind::Cluster), ["db"]);
}
