//! Changes in Neutron that the operator did not make.

use crate::environment::{Environment, GRACE, INTERVAL, id_of, plain};
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
async fn marked(environment: &Environment, marker: &str) {
    let create = NetworkCreate { name: text("stray"), description: text(marker), ..NetworkCreate::default() };
    environment.cloud.create_network(RequestId::random(), &create).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_edited_in_neutron_is_repaired_and_makes_no_second_network() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("a", plain()).await;
    let id = id_of(&environment.until_ready("a").await);
    let request = RequestId::random();
    let change = NetworkUpdate {
        name: text("renamed"),
        description: text("edited"),
        admin_state_up: Some(false),
        ..NetworkUpdate::default()
    };
    environment.cloud.update_network(request, id, &change, None).await.unwrap();
    let subnet = environment.subnets(id).await[0].id;
    let change = SubnetUpdate {
        name: text("renamed"),
        description: text("edited"),
        enable_dhcp: Some(false),
        ..SubnetUpdate::default()
    };
    environment.cloud.update_subnet(request, subnet, &change, None).await.unwrap();

    environment
        .eventually("all is as it was", async || {
            let (networks, subnets) = (environment.networks().await, environment.subnets(id).await);
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
    assert!(environment.events("a").await.contains(&"NetworkRestored".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_deleted_in_neutron_is_made_anew() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("a", plain()).await;
    let id = id_of(&environment.until_ready("a").await);
    environment.cloud.delete_network(RequestId::random(), id, None).await.unwrap();
    environment
        .eventually("another network", async || {
            let networks = environment.networks().await;
            networks.len() == 1 && networks[0].id != id && networks[0].subnets.len() == 1
        })
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_only_reported_where_the_spec_says_so() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("a", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "driftPolicy": "Report"})).await;
    let id = id_of(&environment.until_ready("a").await);
    let down = NetworkUpdate { admin_state_up: Some(false), ..NetworkUpdate::default() };
    environment.cloud.update_network(RequestId::random(), id, &down, None).await.unwrap();
    let ready = environment.until_reason("a", "Drifted").await;
    assert!(ready.message.contains("set admin_state_up to true of network"), "{ready:?}");
    tokio::time::sleep(5 * INTERVAL).await;
    assert_eq!(environment.network(id).await.unwrap().admin_state_up, Some(false));
    environment.respec("a", plain()).await;
    environment.until_ready("a").await;
    assert_eq!(environment.network(id).await.unwrap().admin_state_up, Some(true));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn networks_of_objects_that_are_gone_are_removed_after_the_grace_time() {
    let environment = Environment::simulated().await;
    marked(&environment, "network-controller:c:0aa7e6ad-0000-4000-8000-000000000001").await;
    marked(&environment, "network-controller:other:0aa7e6ad-0000-4000-8000-000000000001").await;
    marked(&environment, "network-controller/0aa7e6ad-0000-4000-8000-000000000001").await;
    marked(&environment, "somebody's").await;
    let operator = environment.operate();
    environment.create("a", plain()).await;
    environment.until_ready("a").await;
    tokio::time::sleep(GRACE - 2 * INTERVAL).await;
    assert_eq!(environment.networks().await.len(), 5, "before the grace time is over");
    tokio::time::sleep(4 * INTERVAL).await;
    let mut left: Vec<String> = environment.networks().await.into_iter().map(|network| network.description).collect();
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
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    for name in ["waits", "forced"] {
        environment.create(name, plain()).await;
        environment.until_ready(name).await;
    }
    operator.kill().await;
    // One object waits for its finalizer; the other's finalizer is removed by somebody.
    environment.api().delete("waits", &Default::default()).await.unwrap();
    environment.api().delete("forced", &Default::default()).await.unwrap();
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    environment.api().patch("forced", &none).await.unwrap();
    assert_eq!(environment.networks().await.len(), 2);

    let operator = environment.operate();
    environment.eventually("nothing is left", async || environment.networks().await.is_empty()).await;
    environment
        .eventually("no object is left", async || {
            environment.api().list(&Default::default()).await.unwrap().items.is_empty()
        })
        .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_create_that_comes_about_late_is_taken_back() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    let uid = environment.create("a", plain()).await.uid().unwrap();
    let id = id_of(&environment.until_ready("a").await);
    tokio::time::sleep(INTERVAL * 2).await;
    marked(&environment, &format!("network-controller:c:{uid}")).await;
    environment.eventually("one network", async || environment.networks().await.len() == 1).await;
    assert!(environment.network(id).await.is_some(), "the one in use is the one that stays");
    operator.stop().await;
    assert!(environment.events("a").await.contains(&"DuplicateDeleted".to_owned()));
}

/// A network of somebody else, for another purpose, with a tag.
async fn tagged(environment: &Environment, create: NetworkCreate, tag: &str) -> NetworkId {
    let id = environment.cloud.create_network(RequestId::random(), &create).await.unwrap().id;
    environment.cloud.add_network_tag(RequestId::random(), id, tag).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn of_objects_that_are_gone_what_was_adopted_or_only_has_the_tag_stays() {
    let environment = Environment::simulated().await;
    let gone = "network-controller:c:0aa7e6ad-0000-4000-8000-000000000001";
    let theirs = NetworkCreate { name: text("theirs"), description: text("d"), ..NetworkCreate::default() };
    let copy = tagged(&environment, theirs.clone(), gone).await;
    // Created for an object whose spec sets a description: the marker of its subnet shows that.
    let made = tagged(&environment, theirs.clone(), gone).await;
    let subnet = SubnetCreate { description: text(gone), ..SubnetCreate::new(made, "10.0.0.0/24".parse().unwrap()) };
    environment.cloud.create_subnet(RequestId::random(), &subnet).await.unwrap();
    let adopted = tagged(&environment, theirs, &format!("{gone}:adopted")).await;
    let operator = environment.operate();
    environment.create("a", plain()).await;
    environment.until_ready("a").await;
    tokio::time::sleep(GRACE + 4 * INTERVAL).await;
    assert_eq!(environment.network(copy).await.unwrap().tags, [gone]);
    assert_eq!(environment.network(adopted).await.unwrap().tags, [""; 0], "another object may adopt it now");
    assert_eq!(environment.network(made).await, None);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_adopted_stays_when_the_spec_forgets_it_and_the_object_is_deleted() {
    let environment = Environment::simulated().await;
    let theirs = NetworkCreate { name: text("theirs"), description: text("d"), ..NetworkCreate::default() };
    let id = tagged(&environment, theirs, "theirs").await;
    let subnet = SubnetCreate::new(id, "10.0.0.0/24".parse().unwrap());
    environment.cloud.create_subnet(RequestId::random(), &subnet).await.unwrap();
    let operator = environment.operate();
    let adopt = json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "adopt": {"tag": "theirs"}});
    environment.create("a", adopt).await;
    assert_eq!(id_of(&environment.until_ready("a").await), id);
    environment.respec("a", plain()).await;
    assert_eq!(id_of(&environment.until_ready("a").await), id);
    let network = environment.network(id).await.unwrap();
    assert_eq!((network.name.as_str(), network.description.as_str()), ("theirs", "d"));
    environment.api().delete("a", &Default::default()).await.unwrap();
    environment
        .eventually("the object is gone", async || {
            environment.api().get("a").await.is_err_and(|error| error.is_not_found())
        })
        .await;
    tokio::time::sleep(GRACE + 4 * INTERVAL).await;
    assert_eq!(environment.network(id).await.unwrap().tags, ["theirs"]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_half_made_at_a_shutdown_is_cut_off_in_time_and_finished_by_the_next() {
    for operation in [Operation::CreateNetwork, Operation::AddNetworkTag, Operation::CreateSubnet] {
        let environment = Environment::simulated().await;
        let operator = environment.operate();
        environment.cloud.next(operation, Fault::Hang);
        environment.create("a", plain()).await;
        environment.eventually("the call hangs", async || environment.cloud.is_spent()).await;
        let begun = tokio::time::Instant::now();
        let ended = operator.end().await;
        assert!(matches!(ended, Err(ManagerError::Controller(_))), "{operation:?}: {ended:?}");
        let took = begun.elapsed();
        assert!((SHUTDOWN_GRACE..SHUTDOWN_GRACE + Duration::from_secs(10)).contains(&took), "{took:?}");
        let operator = environment.operate();
        let id = id_of(&environment.until_ready("a").await);
        assert_eq!((environment.networks().await.len(), environment.subnets(id).await.len()), (1, 1), "{operation:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_retained_is_no_orphan() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("a", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "deletionPolicy": "Retain"})).await;
    let id = id_of(&environment.until_ready("a").await);
    environment.api().delete("a", &Default::default()).await.unwrap();
    environment
        .eventually("the object is gone", async || {
            environment.api().get("a").await.is_err_and(|error| error.is_not_found())
        })
        .await;
    tokio::time::sleep(2 * GRACE).await;
    assert!(environment.network(id).await.is_some());
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_spoiled_status_is_written_anew() {
    // A definition without a schema, which accepts any status.
    let definition = include_str!("../../../../manifests/crd/network.yaml");
    let environment =
        Environment::defined(std::sync::Arc::new(steersman_neutron::Simulated::in_memory()), definition).await;
    let operator = environment.operate();
    let spoiled = json!({
        "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "a", "namespace": "default"}, "spec": plain(),
        "status": {"networkID": {"x": 1}, "conditions": ["Ready"], "observedGeneration": "one"}
    });
    environment.plane.apply(&spoiled.to_string()).await;
    environment
        .eventually("the status is a status", async || {
            let object = environment.api().get("a").await.unwrap();
            object.status.is_some_and(|status| status.subnet_id.is_some() && status.conditions.len() == 2)
        })
        .await;
    operator.stop().await;
    let made = environment.networks().await;
    assert_eq!(made.len(), 1);
    assert_eq!(environment.cloud.find_subnets(RequestId::random(), &SubnetFilter::all()).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_with_the_process_leaves_one_network() {
    for operation in [Operation::CreateNetwork, Operation::AddNetworkTag, Operation::CreateSubnet] {
        let environment = Environment::simulated().await;
        let operator = environment.operate();
        environment.cloud.next(operation, Fault::LoseAnswer);
        environment.create("a", plain()).await;
        environment.eventually("the fault has happened", async || environment.cloud.is_spent()).await;
        operator.kill().await;
        let operator = environment.operate();
        environment.until_ready("a").await;
        tokio::time::sleep(2 * INTERVAL).await;
        assert_eq!(environment.networks().await.len(), 1, "{operation:?}");
        operator.stop().await;
    }
}
