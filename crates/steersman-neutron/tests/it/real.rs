//! The client against a real Neutron: identity, paging, quota, ports, and answers lost on the way.

use steersman_neutron::config::Limits;
use steersman_neutron::{
    Class, Client, Cloud, Config, NetworkCreate, NetworkFilter, NetworkUpdate, RequestId, SubnetCreate, SubnetFilter,
};

use crate::neutron::{Server, fresh_project, headers, identity};
use crate::wire::{self, Proxy};

const MEMBER: [&str; 2] = ["member", "reader"];

fn named(name: &str) -> NetworkCreate {
    NetworkCreate { name: Some(name.to_owned()), ..NetworkCreate::default() }
}

/// Sends a request directly to Neutron as an administrator of the project.
async fn admin(server: &Server, project: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let identity = format!("X-User-Id: root\r\nX-Project-Id: {project}\r\nX-Roles: admin,member,reader\r\n");
    let headers = format!("{identity}Content-Type: application/json\r\n");
    let (status, _, body) = wire::send(method, &format!("{}/v2.0/{path}", server.url), &headers, body).await;
    (status, body)
}

#[tokio::test]
async fn searches_walk_every_page() {
    let Some(server) = headers() else { return };
    let limits = Limits { page_size: 2, ..Limits::default() };
    let cloud = server.client_with(identity(&fresh_project(), &MEMBER), limits);
    let request = RequestId::random();
    let mut made = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        made.push(cloud.create_network(request, &named(name)).await.unwrap().id);
    }
    made.sort_unstable();
    let found = cloud.find_networks(request, &NetworkFilter::all()).await.unwrap();
    let mut found: Vec<_> = found.iter().map(|network| network.id).collect();
    found.sort_unstable();
    assert_eq!(found, made);
}

#[tokio::test]
async fn a_search_that_finds_too_much_fails() {
    let Some(server) = headers() else { return };
    let limits = Limits { found_max: 1, ..Limits::default() };
    let cloud = server.client_with(identity(&fresh_project(), &MEMBER), limits);
    let request = RequestId::random();
    cloud.create_network(request, &named("a")).await.unwrap();
    cloud.create_network(request, &named("b")).await.unwrap();
    let error = cloud.find_networks(request, &NetworkFilter::all()).await.unwrap_err();
    assert_eq!(error.to_string(), "find networks: there are more than 1 results");
}

#[tokio::test]
async fn other_projects_networks_look_missing() {
    let Some(server) = headers() else { return };
    let request = RequestId::random();
    let theirs = server.client().create_network(request, &named("theirs")).await.unwrap();
    let cloud = server.client();
    assert!(cloud.read_network(request, theirs.id).await.unwrap_err().is_not_found());
    assert!(cloud.delete_network(request, theirs.id, None).await.unwrap_err().is_not_found());
    assert_eq!(cloud.find_networks(request, &NetworkFilter::id(theirs.id)).await.unwrap(), []);
    assert_eq!(cloud.project_id(request).await.unwrap().map(Some), Some(cloud_project(&cloud).await));
}

/// The project to which Neutron assigns this client's networks.
async fn cloud_project(cloud: &Client) -> Option<String> {
    cloud.create_network(RequestId::random(), &named("mine")).await.unwrap().project_id
}

#[tokio::test]
async fn who_names_no_user_is_unauthorized() {
    let Some(server) = headers() else { return };
    let nobody = steersman_neutron::config::Identity { user_id: None, ..identity("p", &MEMBER) };
    let cloud = server.client_with(nobody, Limits::default());
    let error = cloud.find_networks(RequestId::random(), &NetworkFilter::all()).await.unwrap_err();
    assert_eq!(error.class(), Some(Class::Unauthorized));
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn who_only_reads_is_forbidden_to_create() {
    let Some(server) = headers() else { return };
    let cloud = server.client_with(identity(&fresh_project(), &["reader"]), Limits::default());
    let error = cloud.create_network(RequestId::random(), &named("n")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"create network "n": Neutron answered 403 PolicyNotAuthorized, rule:create_network is disallowed by policy"#
    );
    assert_eq!(error.class(), Some(Class::Forbidden));
    assert!(error.answer().unwrap().request.as_deref().is_some_and(|id| id.starts_with("req-")));
}

#[tokio::test]
async fn a_used_up_quota_is_told_apart_from_other_conflicts() {
    let Some(server) = headers() else { return };
    let project = fresh_project();
    let quota = r#"{"quota":{"network":1}}"#;
    assert_eq!(admin(server, &project, "PUT", &format!("quotas/{project}"), quota).await.0, 200);
    let cloud = server.client_with(identity(&project, &MEMBER), Limits::default());
    let request = RequestId::random();
    let first = cloud.create_network(request, &named("a")).await.unwrap();
    let error = cloud.create_network(request, &named("b")).await.unwrap_err();
    assert_eq!((error.class(), error.is_retryable(), error.is_uncertain()), (Some(Class::OverQuota), true, false));
    cloud.delete_network(request, first.id, None).await.unwrap();
    cloud.create_network(request, &named("b")).await.unwrap();
}

#[tokio::test]
async fn a_network_with_a_port_is_in_use() {
    let Some(server) = headers() else { return };
    let project = fresh_project();
    let cloud = server.client_with(identity(&project, &MEMBER), Limits::default());
    let request = RequestId::random();
    let network = cloud.create_network(request, &named("n")).await.unwrap();
    let create = SubnetCreate::new(network.id, "10.1.0.0/24".parse().unwrap());
    let subnet = cloud.create_subnet(request, &create).await.unwrap();
    let port = format!(r#"{{"port":{{"network_id":"{}"}}}}"#, network.id);
    let (status, port) = admin(server, &project, "POST", "ports", &port).await;
    assert_eq!(status, 201, "{port}");
    let port_id = port.split(r#""id":""#).nth(1).unwrap().split('"').next().unwrap();

    let error = cloud.delete_network(request, network.id, None).await.unwrap_err();
    assert_eq!((error.class(), error.is_retryable()), (Some(Class::InUse), true));
    assert!(error.to_string().contains(port_id), "{error}");
    let error = cloud.delete_subnet(request, subnet.id, None).await.unwrap_err();
    assert_eq!(error.class(), Some(Class::InUse));
    assert_eq!(admin(server, &project, "DELETE", &format!("ports/{port_id}"), "").await.0, 204);
    cloud.delete_network(request, network.id, None).await.unwrap();
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_is_uncertain_and_found_by_its_marker() {
    let Some(server) = headers() else { return };
    let proxy = Proxy::start(&server.url).await;
    let config = Config::headers(&proxy.url, identity(&fresh_project(), &MEMBER)).unwrap();
    let cloud = Client::new(config).unwrap();
    let request = RequestId::random();
    let marker = format!("steersman:test/{request}");
    let marked = NetworkCreate { description: Some(marker.clone()), ..NetworkCreate::default() };

    proxy.swallow_next("POST");
    let error = cloud.create_network(request, &marked).await.unwrap_err();
    assert!(error.is_uncertain() && error.is_retryable(), "{error:?}");
    assert_eq!(error.call().request, request);
    let found = cloud.find_networks(request, &NetworkFilter::description(marker)).await.unwrap();
    assert_eq!(found.len(), 1);

    proxy.swallow_next("POST");
    let create = SubnetCreate::new(found[0].id, "10.1.0.0/24".parse().unwrap());
    assert!(cloud.create_subnet(request, &create).await.unwrap_err().is_uncertain());
    let again = cloud.create_subnet(request, &create).await.unwrap_err();
    assert_eq!((again.class(), again.is_uncertain()), (Some(Class::Overlap), false));
    let natural_key = SubnetFilter::network_and_cidr(found[0].id, create.cidr);
    assert_eq!(cloud.find_subnets(request, &natural_key).await.unwrap().len(), 1);

    proxy.swallow_next("PUT");
    let rename = NetworkUpdate { name: Some("renamed".to_owned()), ..NetworkUpdate::default() };
    let error = cloud.update_network(request, found[0].id, &rename, None).await.unwrap_err();
    assert!(error.is_uncertain());
    assert_eq!(cloud.read_network(request, found[0].id).await.unwrap().name, "renamed");

    proxy.swallow_next("GET");
    let error = cloud.read_network(request, found[0].id).await.unwrap_err();
    assert!(!error.is_uncertain() && error.is_retryable());

    proxy.swallow_next("DELETE");
    assert!(cloud.delete_network(request, found[0].id, None).await.unwrap_err().is_uncertain());
    assert!(cloud.delete_network(request, found[0].id, None).await.unwrap_err().is_not_found());
}
