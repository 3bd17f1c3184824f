//! The operator's reactions to changes by people and clouds, on a real Neutron.

use crate::environment::{Environment, Ready, id_of, plain};
use crate::neutron::{self, Role};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::ObjectKey;
use steersman_network::{Network, Options};
use steersman_neutron::{Cloud, Fault, NetworkCreate, NetworkId, Operation, RequestId, SubnetCreate};

/// No test depends on the interval of surveys, and these tests run in real time.
fn options() -> Options {
    Options { drift_interval: Duration::from_secs(2), ..Environment::options() }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A network of somebody else, with a subnet and a tag.
async fn somebodys(cloud: &dyn Cloud, tag: &str) -> NetworkId {
    let request = RequestId::random();
    let create = NetworkCreate { name: text("theirs"), description: text("kept"), ..NetworkCreate::default() };
    let id = cloud.create_network(request, &create).await.unwrap().id;
    cloud.add_network_tag(request, id, tag).await.unwrap();
    let create = SubnetCreate::new(id, "10.0.0.0/24".parse().unwrap());
    cloud.create_subnet(request, &create).await.unwrap();
    id
}

async fn delete(environment: &Environment, name: &str) {
    environment.api().delete(name, &Default::default()).await.unwrap();
    gone(environment, name).await;
}

async fn gone(environment: &Environment, name: &str) {
    environment.plane.until_gone::<Network>(&ObjectKey::namespaced("default", name)).await;
}

fn adopting() -> Value {
    json!({"cidr": "10.0.0.0/24", "adopt": {"tag": "theirs"}})
}

#[tokio::test]
async fn of_two_objects_that_adopt_one_network_one_at_most_has_it_and_the_other_can_have_it_after() {
    let Some(server) = neutron::one() else { return };
    let environment = Environment::with(neutron::cloud_in(server, Role::Member)).await;
    let id = somebodys(&environment.cloud, "theirs").await;
    let operator = environment.operate_with(options());
    let names = ["a", "b"];
    tokio::join!(environment.create("a", adopting()), environment.create("b", adopting()));
    let is_decided = |ready: &Ready| ready.status == "True" || ready.reason == "AdoptTaken";
    let mut winners = Vec::new();
    for name in names {
        let (_, ready) = environment.until(name, is_decided).await;
        winners.extend((ready.status == "True").then_some(name));
    }
    assert!(winners.len() < 2, "{winners:?}");
    let network = environment.network(id).await.unwrap();
    assert_eq!((network.tags.len(), network.name.as_str()), (1 + winners.len(), "theirs"), "{network:?}");
    // The object that has the network releases it, and it is somebody else's network again.
    let loser = if winners == ["a"] { "b" } else { "a" };
    for winner in winners {
        delete(&environment, winner).await;
        assert_eq!(environment.network(id).await.unwrap().tags, ["theirs"]);
    }
    if loser == "a" && !environment.api().get("b").await.is_err_and(|error| error.is_not_found()) {
        delete(&environment, "b").await;
    }
    let mut changed = adopting();
    changed["adminStateUp"] = json!(true);
    environment.respec(loser, changed).await;
    assert_eq!(id_of(&environment.until_ready(loser).await), id);
    operator.stop().await;
    assert_eq!(environment.networks().await.len(), 1);
}

#[tokio::test]
async fn credentials_of_another_project_make_nothing_anew_and_let_go_of_nothing() {
    let Some(server) = neutron::one() else { return };
    let mut environment = Environment::with(neutron::cloud_in(server, Role::Member)).await;
    let operator = environment.operate_with(options());
    environment.create("a", plain()).await;
    environment.create("goes", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"})).await;
    let id = id_of(&environment.until_ready("a").await);
    environment.until_ready("goes").await;
    operator.kill().await;

    let first = environment.replace_cloud(neutron::cloud_in(server, Role::Member));
    let operator = environment.operate_with(options());
    environment.api().delete("goes", &Default::default()).await.unwrap();
    assert!(environment.until_reason("goes", "ProjectChanged").await.message.contains("status.networkID"));
    environment.until_reason("a", "ProjectChanged").await;
    assert_eq!(environment.networks().await, []);
    operator.kill().await;

    environment.replace_cloud(first);
    let operator = environment.operate_with(options());
    gone(&environment, "goes").await;
    assert_eq!(id_of(&environment.until_ready("a").await), id);
    assert_eq!(environment.networks().await.len(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_copied_tag_gives_nobodys_network_to_an_object() {
    let Some(server) = neutron::one() else { return };
    let environment = Environment::with(neutron::cloud_in(server, Role::Member)).await;
    let operator = environment.operate_with(options());
    environment.create("a", plain()).await;
    let id = id_of(&environment.until_ready("a").await);
    let tag = environment.network(id).await.unwrap().tags.pop().unwrap();
    let copy = somebodys(&environment.cloud, &tag).await;
    assert!(environment.until_reason("a", "MarkerCopied").await.message.contains(&copy.to_string()));
    // The same holds when its own network is gone, and then the object itself.
    environment.cloud.delete_network(RequestId::random(), id, None).await.unwrap();
    environment.api().delete("a", &Default::default()).await.unwrap();
    assert!(environment.until_reason("a", "MarkerCopied").await.message.contains(&copy.to_string()));
    let network = environment.network(copy).await.unwrap();
    assert_eq!((network.name.as_str(), network.description.as_str()), ("theirs", "kept"));
    operator.kill().await;
    environment.cloud.remove_network_tag(RequestId::random(), copy, &tag).await.unwrap();
    let operator = environment.operate_with(options());
    gone(&environment, "a").await;
    assert_eq!(environment.networks().await.iter().map(|network| network.id).collect::<Vec<_>>(), [copy]);
    operator.stop().await;
}

#[tokio::test]
async fn what_is_deleted_while_neutron_fails_goes_when_it_is_back_though_the_operator_was_killed() {
    let Some(server) = neutron::one() else { return };
    let environment = Environment::with(neutron::cloud_in(server, Role::Member)).await;
    let operator = environment.operate_with(options());
    environment.create("a", plain()).await;
    environment.until_ready("a").await;
    // The answer to a delete that is carried out is lost too.
    environment.cloud.next(Operation::DeleteNetwork, Fault::LoseAnswer);
    environment.cloud.set_outage(Some(Fault::Answer(500, "HTTPInternalServerError")));
    environment.api().delete("a", &Default::default()).await.unwrap();
    environment.until_reason("a", "NeutronUnavailable").await;
    operator.kill().await;
    let operator = environment.operate_with(options());
    environment.cloud.set_outage(None);
    gone(&environment, "a").await;
    assert!(environment.cloud.is_spent());
    assert_eq!(environment.networks().await, []);
    operator.stop().await;
}

#[tokio::test]
async fn a_quota_of_nothing_is_said_and_a_half_made_pair_is_finished_or_let_go_of() {
    let Some(server) = neutron::one() else { return };
    let cloud = neutron::cloud_in(server, Role::Member);
    let project = cloud.project_id(RequestId::random()).await.unwrap().unwrap();
    let environment = Environment::with(cloud).await;
    neutron::set_quota(server, &project, &json!({"network": 0}));
    let operator = environment.operate_with(options());
    environment.create("a", plain()).await;
    assert!(environment.until_reason("a", "QuotaExceeded").await.message.contains("network"));
    assert_eq!(environment.networks().await, []);
    operator.kill().await;

    neutron::set_quota(server, &project, &json!({"network": 5, "subnet": 0}));
    let operator = environment.operate_with(options());
    environment.create("b", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"})).await;
    let (half, ready) = environment.until("b", |ready| ready.reason == "QuotaExceeded").await;
    assert!(ready.message.contains("subnet"), "{ready:?}");
    let half = id_of(&half);
    // Neither a new operator nor a deletion leaves the unfinished network behind.
    operator.kill().await;
    environment.api().delete("a", &Default::default()).await.unwrap();
    let operator = environment.operate_with(options());
    gone(&environment, "a").await;
    neutron::set_quota(server, &project, &json!({"network": 5, "subnet": 5}));
    environment.respec("b", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1", "description": "d"})).await;
    assert_eq!(id_of(&environment.until_ready("b").await), half);
    assert_eq!((environment.networks().await.len(), environment.subnets(half).await.len()), (1, 1));
    operator.stop().await;
}
