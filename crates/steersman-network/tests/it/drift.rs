//! Changes in Neutron that the operator did not make.

use crate::world::{GRACE, INTERVAL, World, id_of, plain};
use kube::ResourceExt as _;
use kube::api::Patch;
use serde_json::json;
use std::time::Duration;
use steersman::ManagerError;
use steersman_network::SHUTDOWN_GRACE;
use steersman_neutron::{
    Cloud as _, Fault, NetworkCreate, NetworkId, NetworkUpdate, Operation, RequestId, SubnetCreate, SubnetFilter,
    SubnetUpdate,
};

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A network with a marker that no operator of the test has created.
async fn marked(world: &World, marker: &str) {
    let create = NetworkCreate { name: text("stray"), description: text(marker), ..NetworkCreate::default() };
    world.cloud.create_network(RequestId::random(), &create).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_edited_in_neutron_is_repaired_and_makes_no_second_network() {
    let world = World::simulated().await;
    let operator = world.operate();
    world.create("a", plain()).await;
    let id = id_of(&world.until_ready("a").await);
    let request = RequestId::random();
    let change = NetworkUpdate {
        name: text("renamed"),
        description: text("edited"),
        admin_state_up: Some(false),
        ..NetworkUpdate::default()
    };
    world.cloud.update_network(request, id, &change, None).await.unwrap();
    let subnet = world.subnets(id).await[0].id;
    let change = SubnetUpdate {
        name: text("renamed"),
        description: text("edited"),
        enable_dhcp: Some(false),
        ..SubnetUpdate::default()
    };
    world.cloud.update_subnet(request, subnet, &change, None).await.unwrap();

    world
        .eventually("all is as it was", async || {
            let (networks, subnets) = (world.networks().await, world.subnets(id).await);
            assert_eq!((networks.len(), networks[0].id, subnets.len(), subnets[0].id), (1, id, 1, subnet));
            networks[0].name == "default/a"
                && networks[0].description.starts_with("network-controller:c:")
                && networks[0].admin_state_up == Some(true)
                && subnets[0].name == "default/a"
                && subnets[0].description == networks[0].description
                && subnets[0].enable_dhcp == Some(true)
        })
        .await;
    operator.stop().await;
    assert!(world.events("a").await.contains(&"NetworkRestored".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_deleted_in_neutron_is_made_anew() {
    let world = World::simulated().await;
    let operator = world.operate();
    world.create("a", plain()).await;
    let id = id_of(&world.until_ready("a").await);
    world.cloud.delete_network(RequestId::random(), id, None).await.unwrap();
    world
        .eventually("another network", async || {
            let networks = world.networks().await;
            networks.len() == 1 && networks[0].id != id && networks[0].subnets.len() == 1
        })
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_only_reported_where_the_spec_says_so() {
    let world = World::simulated().await;
    let operator = world.operate();
    world.create("a", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "driftPolicy": "Report"})).await;
    let id = id_of(&world.until_ready("a").await);
    let down = NetworkUpdate { admin_state_up: Some(false), ..NetworkUpdate::default() };
    world.cloud.update_network(RequestId::random(), id, &down, None).await.unwrap();
    let ready = world.until_reason("a", "Drifted").await;
    assert!(ready.message.contains("set admin_state_up to true of network"), "{ready:?}");
    tokio::time::sleep(5 * INTERVAL).await;
    assert_eq!(world.network(id).await.unwrap().admin_state_up, Some(false));
    world.respec("a", plain()).await;
    world.until_ready("a").await;
    assert_eq!(world.network(id).await.unwrap().admin_state_up, Some(true));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn networks_of_objects_that_are_gone_are_removed_after_the_grace_time() {
    let world = World::simulated().await;
    marked(&world, "network-controller:c:0aa7e6ad-0000-4000-8000-000000000001").await;
    marked(&world, "network-controller:other:0aa7e6ad-0000-4000-8000-000000000001").await;
    marked(&world, "network-controller/0aa7e6ad-0000-4000-8000-000000000001").await;
    marked(&world, "somebody's").await;
    let operator = world.operate();
    world.create("a", plain()).await;
    world.until_ready("a").await;
    tokio::time::sleep(GRACE - 2 * INTERVAL).await;
    assert_eq!(world.networks().await.len(), 5, "before the grace time is over");
    tokio::time::sleep(4 * INTERVAL).await;
    let mut left: Vec<String> = world.networks().await.into_iter().map(|network| network.description).collect();
    left.sort_unstable();
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(left.iter().any(|description| description.starts_with("network-controller:other:")), "{left:?}");
    assert!(
        operator
            .metrics
            .encode(steersman::metrics::MetricsFormat::Prometheus)
            .contains("network_operator_orphaned_networks_removed_total 1")
    );
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_deleted_while_the_operator_is_away_leave_nothing() {
    let world = World::simulated().await;
    let operator = world.operate();
    for name in ["waits", "forced"] {
        world.create(name, plain()).await;
        world.until_ready(name).await;
    }
    operator.kill().await;
    // One object waits for its finalizer; the other's finalizer is removed by somebody.
    world.api().delete("waits", &Default::default()).await.unwrap();
    world.api().delete("forced", &Default::default()).await.unwrap();
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.api().patch("forced", &none).await.unwrap();
    assert_eq!(world.networks().await.len(), 2);

    let operator = world.operate();
    world.eventually("nothing is left", async || world.networks().await.is_empty()).await;
    world
        .eventually("no object is left", async || world.api().list(&Default::default()).await.unwrap().items.is_empty())
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_create_that_comes_about_late_is_taken_back() {
    let world = World::simulated().await;
    let operator = world.operate();
    let uid = world.create("a", plain()).await.uid().unwrap();
    let id = id_of(&world.until_ready("a").await);
    tokio::time::sleep(INTERVAL * 2).await;
    marked(&world, &format!("network-controller:c:{uid}")).await;
    world.eventually("one network", async || world.networks().await.len() == 1).await;
    assert!(world.network(id).await.is_some(), "the one in use is the one that stays");
    operator.stop().await;
    assert!(world.events("a").await.contains(&"DuplicateDeleted".to_owned()));
}

/// A network of somebody else, for another purpose, with a tag.
async fn tagged(world: &World, create: NetworkCreate, tag: &str) -> NetworkId {
    let id = world.cloud.create_network(RequestId::random(), &create).await.unwrap().id;
    world.cloud.add_network_tag(RequestId::random(), id, tag).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn of_objects_that_are_gone_what_was_adopted_or_only_has_the_tag_stays() {
    let world = World::simulated().await;
    let gone = "network-controller:c:0aa7e6ad-0000-4000-8000-000000000001";
    let theirs = NetworkCreate { name: text("theirs"), description: text("d"), ..NetworkCreate::default() };
    let copy = tagged(&world, theirs.clone(), gone).await;
    // Created for an object whose spec sets a description: the marker of its subnet shows that.
    let made = tagged(&world, theirs.clone(), gone).await;
    let subnet = SubnetCreate { description: text(gone), ..SubnetCreate::new(made, "10.0.0.0/24".parse().unwrap()) };
    world.cloud.create_subnet(RequestId::random(), &subnet).await.unwrap();
    let adopted = tagged(&world, theirs, &format!("{gone}:adopted")).await;
    let operator = world.operate();
    world.create("a", plain()).await;
    world.until_ready("a").await;
    tokio::time::sleep(GRACE + 4 * INTERVAL).await;
    assert_eq!(world.network(copy).await.unwrap().tags, [gone]);
    assert_eq!(world.network(adopted).await.unwrap().tags, [""; 0], "another object may adopt it now");
    assert_eq!(world.network(made).await, None);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_adopted_stays_when_the_spec_forgets_it_and_the_object_is_deleted() {
    let world = World::simulated().await;
    let theirs = NetworkCreate { name: text("theirs"), description: text("d"), ..NetworkCreate::default() };
    let id = tagged(&world, theirs, "theirs").await;
    let subnet = SubnetCreate::new(id, "10.0.0.0/24".parse().unwrap());
    world.cloud.create_subnet(RequestId::random(), &subnet).await.unwrap();
    let operator = world.operate();
    let adopt = json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "adopt": {"tag": "theirs"}});
    world.create("a", adopt).await;
    assert_eq!(id_of(&world.until_ready("a").await), id);
    world.respec("a", plain()).await;
    assert_eq!(id_of(&world.until_ready("a").await), id);
    let network = world.network(id).await.unwrap();
    assert_eq!((network.name.as_str(), network.description.as_str()), ("theirs", "d"));
    world.api().delete("a", &Default::default()).await.unwrap();
    world
        .eventually("the object is gone", async || world.api().get("a").await.is_err_and(|error| error.is_not_found()))
        .await;
    tokio::time::sleep(GRACE + 4 * INTERVAL).await;
    assert_eq!(world.network(id).await.unwrap().tags, ["theirs"]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_half_made_at_a_shutdown_is_cut_off_in_time_and_finished_by_the_next() {
    for operation in [Operation::CreateNetwork, Operation::AddNetworkTag, Operation::CreateSubnet] {
        let world = World::simulated().await;
        let operator = world.operate();
        world.cloud.next(operation, Fault::Hang);
        world.create("a", plain()).await;
        world.eventually("the call hangs", async || world.cloud.is_spent()).await;
        let begun = tokio::time::Instant::now();
        let ended = operator.end().await;
        assert!(matches!(ended, Err(ManagerError::Controller(_))), "{operation:?}: {ended:?}");
        let took = begun.elapsed();
        assert!((SHUTDOWN_GRACE..SHUTDOWN_GRACE + Duration::from_secs(10)).contains(&took), "{took:?}");
        let operator = world.operate();
        let id = id_of(&world.until_ready("a").await);
        assert_eq!((world.networks().await.len(), world.subnets(id).await.len()), (1, 1), "{operation:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_retained_is_no_orphan() {
    let world = World::simulated().await;
    let operator = world.operate();
    world.create("a", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "deletionPolicy": "Retain"})).await;
    let id = id_of(&world.until_ready("a").await);
    world.api().delete("a", &Default::default()).await.unwrap();
    world
        .eventually("the object is gone", async || world.api().get("a").await.is_err_and(|error| error.is_not_found()))
        .await;
    tokio::time::sleep(2 * GRACE).await;
    assert!(world.network(id).await.is_some());
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_spoiled_status_is_written_anew() {
    // A definition without a schema, which accepts any status.
    let definition = include_str!("../../../../manifests/crd/network.yaml");
    let world = World::defined(std::sync::Arc::new(steersman_neutron::Simulated::in_memory()), definition).await;
    let operator = world.operate();
    let spoiled = json!({
        "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "a", "namespace": "default"}, "spec": plain(),
        "status": {"networkID": {"x": 1}, "conditions": ["Ready"], "observedGeneration": "one"}
    });
    world.plane.apply(&spoiled.to_string()).await;
    world
        .eventually("the status is a status", async || {
            let object = world.api().get("a").await.unwrap();
            object.status.is_some_and(|status| status.subnet_id.is_some() && status.conditions.len() == 2)
        })
        .await;
    operator.stop().await;
    let made = world.networks().await;
    assert_eq!(made.len(), 1);
    assert_eq!(world.cloud.find_subnets(RequestId::random(), &SubnetFilter::all()).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_with_the_process_leaves_one_network() {
    for operation in [Operation::CreateNetwork, Operation::AddNetworkTag, Operation::CreateSubnet] {
        let world = World::simulated().await;
        let operator = world.operate();
        world.cloud.next(operation, Fault::LoseAnswer);
        world.create("a", plain()).await;
        world.eventually("the fault has happened", async || world.cloud.is_spent()).await;
        operator.kill().await;
        let operator = world.operate();
        world.until_ready("a").await;
        tokio::time::sleep(2 * INTERVAL).await;
        assert_eq!(world.networks().await.len(), 1, "{operation:?}");
        operator.stop().await;
    }
}
