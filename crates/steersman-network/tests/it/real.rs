//! The operator's reactions to changes by people and clouds, on a real Neutron.

use crate::neutron::{self, Role};
use crate::world::{Ready, World, id_of, plain};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::ObjectKey;
use steersman_network::{Network, Options};
use steersman_neutron::{Cloud, Fault, NetworkCreate, NetworkId, Operation, RequestId, SubnetCreate};

/// No test depends on the interval of surveys, and these tests run in real time.
fn options() -> Options {
    Options { drift_interval: Duration::from_secs(2), ..World::options() }
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

async fn delete(world: &World, name: &str) {
    world.api().delete(name, &Default::default()).await.unwrap();
    gone(world, name).await;
}

async fn gone(world: &World, name: &str) {
    world.plane.until_gone::<Network>(&ObjectKey::namespaced("default", name)).await;
}

fn adopting() -> Value {
    json!({"cidr": "10.0.0.0/24", "adopt": {"tag": "theirs"}})
}

#[tokio::test]
async fn of_two_objects_that_adopt_one_network_one_at_most_has_it_and_the_other_can_have_it_after() {
    let Some(server) = neutron::one() else { return };
    let world = World::with(neutron::cloud_in(server, Role::Member)).await;
    let id = somebodys(&world.cloud, "theirs").await;
    let operator = world.operate_with(options());
    let names = ["a", "b"];
    tokio::join!(world.create("a", adopting()), world.create("b", adopting()));
    let is_decided = |ready: &Ready| ready.status == "True" || ready.reason == "AdoptTaken";
    let mut winners = Vec::new();
    for name in names {
        let (_, ready) = world.until(name, is_decided).await;
        winners.extend((ready.status == "True").then_some(name));
    }
    assert!(winners.len() < 2, "{winners:?}");
    let network = world.network(id).await.unwrap();
    assert_eq!((network.tags.len(), network.name.as_str()), (1 + winners.len(), "theirs"), "{network:?}");
    // The object that has the network releases it, and it is somebody else's network again.
    let loser = if winners == ["a"] { "b" } else { "a" };
    for winner in winners {
        delete(&world, winner).await;
        assert_eq!(world.network(id).await.unwrap().tags, ["theirs"]);
    }
    if loser == "a" && !world.api().get("b").await.is_err_and(|error| error.is_not_found()) {
        delete(&world, "b").await;
    }
    let mut changed = adopting();
    changed["adminStateUp"] = json!(true);
    world.respec(loser, changed).await;
    assert_eq!(id_of(&world.until_ready(loser).await), id);
    operator.stop().await;
    assert_eq!(world.networks().await.len(), 1);
}

#[tokio::test]
async fn credentials_of_another_project_make_nothing_anew_and_let_go_of_nothing() {
    let Some(server) = neutron::one() else { return };
    let mut world = World::with(neutron::cloud_in(server, Role::Member)).await;
    let operator = world.operate_with(options());
    world.create("a", plain()).await;
    world.create("goes", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"})).await;
    let id = id_of(&world.until_ready("a").await);
    world.until_ready("goes").await;
    operator.kill().await;

    let first = world.replace_cloud(neutron::cloud_in(server, Role::Member));
    let operator = world.operate_with(options());
    world.api().delete("goes", &Default::default()).await.unwrap();
    assert!(world.until_reason("goes", "ProjectChanged").await.message.contains("status.networkID"));
    world.until_reason("a", "ProjectChanged").await;
    assert_eq!(world.networks().await, []);
    operator.kill().await;

    world.replace_cloud(first);
    let operator = world.operate_with(options());
    gone(&world, "goes").await;
    assert_eq!(id_of(&world.until_ready("a").await), id);
    assert_eq!(world.networks().await.len(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_copied_tag_gives_nobodys_network_to_an_object() {
    let Some(server) = neutron::one() else { return };
    let world = World::with(neutron::cloud_in(server, Role::Member)).await;
    let operator = world.operate_with(options());
    world.create("a", plain()).await;
    let id = id_of(&world.until_ready("a").await);
    let tag = world.network(id).await.unwrap().tags.pop().unwrap();
    let copy = somebodys(&world.cloud, &tag).await;
    assert!(world.until_reason("a", "MarkerCopied").await.message.contains(&copy.to_string()));
    // The same holds when its own network is gone, and then the object itself.
    world.cloud.delete_network(RequestId::random(), id, None).await.unwrap();
    world.api().delete("a", &Default::default()).await.unwrap();
    assert!(world.until_reason("a", "MarkerCopied").await.message.contains(&copy.to_string()));
    let network = world.network(copy).await.unwrap();
    assert_eq!((network.name.as_str(), network.description.as_str()), ("theirs", "kept"));
    operator.kill().await;
    world.cloud.remove_network_tag(RequestId::random(), copy, &tag).await.unwrap();
    let operator = world.operate_with(options());
    gone(&world, "a").await;
    assert_eq!(world.networks().await.iter().map(|network| network.id).collect::<Vec<_>>(), [copy]);
    operator.stop().await;
}

#[tokio::test]
async fn what_is_deleted_while_neutron_fails_goes_when_it_is_back_though_the_operator_was_killed() {
    let Some(server) = neutron::one() else { return };
    let world = World::with(neutron::cloud_in(server, Role::Member)).await;
    let operator = world.operate_with(options());
    world.create("a", plain()).await;
    world.until_ready("a").await;
    // The answer to a delete that is carried out is lost too.
    world.cloud.next(Operation::DeleteNetwork, Fault::LoseAnswer);
    world.cloud.set_outage(Some(Fault::Answer(500, "HTTPInternalServerError")));
    world.api().delete("a", &Default::default()).await.unwrap();
    world.until_reason("a", "NeutronUnavailable").await;
    operator.kill().await;
    let operator = world.operate_with(options());
    world.cloud.set_outage(None);
    gone(&world, "a").await;
    assert!(world.cloud.is_spent());
    assert_eq!(world.networks().await, []);
    operator.stop().await;
}

#[tokio::test]
async fn a_quota_of_nothing_is_said_and_a_half_made_pair_is_finished_or_let_go_of() {
    let Some(server) = neutron::one() else { return };
    let cloud = neutron::cloud_in(server, Role::Member);
    let project = cloud.project_id(RequestId::random()).await.unwrap().unwrap();
    let world = World::with(cloud).await;
    neutron::set_quota(server, &project, &json!({"network": 0}));
    let operator = world.operate_with(options());
    world.create("a", plain()).await;
    assert!(world.until_reason("a", "QuotaExceeded").await.message.contains("network"));
    assert_eq!(world.networks().await, []);
    operator.kill().await;

    neutron::set_quota(server, &project, &json!({"network": 5, "subnet": 0}));
    let operator = world.operate_with(options());
    world.create("b", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"})).await;
    let (half, ready) = world.until("b", |ready| ready.reason == "QuotaExceeded").await;
    assert!(ready.message.contains("subnet"), "{ready:?}");
    let half = id_of(&half);
    // Neither a new operator nor a deletion leaves the unfinished network behind.
    operator.kill().await;
    world.api().delete("a", &Default::default()).await.unwrap();
    let operator = world.operate_with(options());
    gone(&world, "a").await;
    neutron::set_quota(server, &project, &json!({"network": 5, "subnet": 5}));
    world.respec("b", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1", "description": "d"})).await;
    assert_eq!(id_of(&world.until_ready("b").await), half);
    assert_eq!((world.networks().await.len(), world.subnets(half).await.len()), (1, 1));
    operator.stop().await;
}
