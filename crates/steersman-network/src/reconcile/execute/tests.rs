//! Converging on the simulated cloud, with lost answers, credentials that see less, and concurrent changes by others.

use super::*;
use crate::api::NetworkStatus;
use crate::read_access::ReadAccess;
use crate::reconcile::observe::Lookup;
use crate::reconcile::pending::SETTLE;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use steersman_neutron::{Fault, Faulty, NetworkFilter, NetworkStatus as Working, Operation, Simulated};

/// One object, and the state of a process for it.
struct OneNetwork {
    cloud: Faulty,
    simulated: Simulated,
    spec: Value,
    pending: Pending,
    read_access: ReadAccess,
    status: NetworkStatus,
    lookup: Lookup,
    is_applied: bool,
    project: Option<&'static str>,
    cluster: &'static str,
}

impl OneNetwork {
    fn new(spec: Value) -> OneNetwork {
        let simulated = Simulated::in_memory();
        OneNetwork {
            cloud: Faulty::new(Arc::new(simulated.clone())),
            simulated,
            spec,
            pending: Pending::default(),
            read_access: ReadAccess::default(),
            status: NetworkStatus::default(),
            lookup: Lookup::Recorded,
            is_applied: false,
            project: None,
            cluster: "c",
        }
    }

    async fn converge(&mut self) -> Outcome {
        let cluster = self.cluster.parse().unwrap();
        let identity = Identity::new(&cluster, "u", "default", "a");
        let desired = Desired::parse(&serde_json::from_value(self.spec.clone()).unwrap()).unwrap();
        let search = Search {
            cloud: &self.cloud,
            request: RequestId::random(),
            identity: &identity,
            status: Some(&self.status),
            project: self.project,
            read_access: &self.read_access,
            lookup: self.lookup,
        };
        let is_applied = self.is_applied;
        let work = Input { search, cluster: &cluster, uid: "u", desired: &desired, pending: &self.pending, is_applied };
        let outcome = converge(&work, &mut Vec::new()).await;
        // The status records the network.
        if let Some(network) = outcome.network {
            self.status.network_id = Some(network.to_string());
        }
        if let Some(subnet) = outcome.subnet {
            self.status.subnet_id = Some(subnet.to_string());
        }
        outcome
    }

    async fn ready(&mut self) -> NetworkId {
        let outcome = self.converge().await;
        assert_eq!(outcome.ready, Ok(()));
        outcome.network.unwrap()
    }

    async fn reason(&mut self) -> &'static str {
        self.converge().await.ready.unwrap_err().reason
    }

    async fn networks(&self) -> Vec<Network> {
        self.simulated.find_networks(RequestId::random(), &NetworkFilter::all()).await.unwrap()
    }

    async fn change(&self, id: NetworkId, change: NetworkUpdate) {
        self.simulated.update_network(RequestId::random(), id, &change, None).await.unwrap();
    }

    /// Another client does this to the cloud just before the next such call.
    fn before<W: Future<Output = ()> + Send + 'static>(&self, operation: Operation, work: impl FnOnce(Simulated) -> W) {
        self.cloud.before(operation, work(self.simulated.clone()));
    }
}

fn plain() -> Value {
    json!({"cidr": "10.0.0.0/24"})
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_cut_off_is_waited_for_from_then_on() {
    for create in [Operation::CreateNetwork, Operation::CreateSubnet] {
        let mut one_network = OneNetwork::new(plain());
        one_network.cloud.next(create, Fault::Hang);
        tokio::time::timeout(Duration::from_secs(180), one_network.converge()).await.unwrap_err();
        assert_eq!(one_network.pending.wait("u"), Some(SETTLE), "{create:?}");
        assert_eq!(one_network.reason().await, "AnswerLost");
        tokio::time::advance(SETTLE).await;
        one_network.ready().await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_that_says_nothing_is_waited_for() {
    for (fault, wait) in [
        (Fault::LoseAnswer, Some(SETTLE)),
        (Fault::Malformed, Some(SETTLE)),
        (Fault::DropRequest, Some(SETTLE)),
        (Fault::Refuse, None),
        (Fault::Unavailable, None),
    ] {
        let mut one_network = OneNetwork::new(plain());
        one_network.cloud.next(Operation::CreateNetwork, fault);
        assert!(one_network.converge().await.ready.is_err(), "{fault:?}");
        assert_eq!(one_network.pending.wait("u"), wait, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_it_is_interrupted_there_is_one_network_in_the_end() {
    let operations = [
        Operation::CreateNetwork,
        Operation::ReadNetwork,
        Operation::AddNetworkTag,
        Operation::UpdateNetwork,
        Operation::CreateSubnet,
        Operation::FindNetworks,
        Operation::FindSubnets,
    ];
    for operation in operations {
        for fault in
            [Fault::LoseAnswer, Fault::DropRequest, Fault::Refuse, Fault::Answer(500, "HTTPInternalServerError")]
        {
            let mut one_network = OneNetwork::new(json!({"cidr": "10.0.0.0/24", "description": "mine"}));
            one_network.cloud.next(operation, fault);
            one_network.converge().await;
            one_network.cloud.clear();
            // Another process, which does not know the requests of the first, and whose status write was lost.
            one_network.pending = Pending::default();
            one_network.read_access = ReadAccess::default();
            one_network.status = NetworkStatus::default();
            let id = one_network.ready().await;
            let networks = one_network.networks().await;
            assert_eq!(networks.len(), 1, "{operation:?} {fault:?}");
            assert_eq!((networks[0].id, networks[0].description.as_str()), (id, "mine"), "{operation:?} {fault:?}");
            assert_eq!(networks[0].subnets.len(), 1, "{operation:?} {fault:?}");
        }
    }
}

#[tokio::test]
async fn an_edited_description_and_name_make_no_second_network() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    one_network
        .change(id, NetworkUpdate { description: text("edited"), name: text("renamed"), ..NetworkUpdate::default() })
        .await;
    assert_eq!(one_network.ready().await, id);
    // The same holds where the status was lost as well, though only a tag is left then, which may be a copy.
    one_network
        .change(id, NetworkUpdate { description: text("edited"), name: text("renamed"), ..NetworkUpdate::default() })
        .await;
    one_network.status = NetworkStatus::default();
    assert_eq!(one_network.reason().await, "MarkerCopied");
    // The remedy that the message names.
    one_network.change(id, NetworkUpdate { name: text("default/a"), ..NetworkUpdate::default() }).await;
    assert_eq!(one_network.ready().await, id);
    let networks = one_network.networks().await;
    assert_eq!(networks.len(), 1);
    assert_eq!((networks[0].name.as_str(), networks[0].description.as_str()), ("default/a", "network-controller:c:u"));
}

#[tokio::test]
async fn a_network_of_version_0_1_is_recognised_and_marked_anew() {
    let mut one_network = OneNetwork::new(plain());
    let create = NetworkCreate {
        name: text("default/a"),
        description: text("network-controller/u"),
        ..NetworkCreate::default()
    };
    let old = one_network.simulated.create_network(RequestId::random(), &create).await.unwrap();
    assert_eq!(one_network.ready().await, old.id);
    let networks = one_network.networks().await;
    assert_eq!((networks.len(), networks[0].description.as_str()), (1, "network-controller:c:u"));
    assert_eq!(networks[0].tags, ["network-controller:c:u"]);
}

#[tokio::test]
async fn a_network_without_marker_and_name_is_not_taken_for_one_that_is_gone() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    one_network.simulated.remove_network_tag(RequestId::random(), id, "network-controller:c:u").await.unwrap();
    one_network.change(id, NetworkUpdate { description: text(""), ..NetworkUpdate::default() }).await;
    assert_eq!(one_network.ready().await, id, "the name is left");
    one_network.simulated.remove_network_tag(RequestId::random(), id, "network-controller:c:u").await.unwrap();
    one_network.change(id, NetworkUpdate { description: text(""), name: text("x"), ..NetworkUpdate::default() }).await;
    assert_eq!(one_network.reason().await, "NotRecognized");
    assert_eq!(one_network.networks().await.len(), 1);
}

#[tokio::test]
async fn a_network_of_another_project_is_not_known_by_its_name() {
    let mut one_network = OneNetwork::new(plain());
    one_network.project = Some("ours");
    let create =
        |project| NetworkCreate { name: text("default/a"), project_id: text(project), ..NetworkCreate::default() };
    let theirs = one_network.simulated.create_network(RequestId::random(), &create("theirs")).await.unwrap();
    one_network.status.network_id = Some(theirs.id.to_string());
    assert_eq!(one_network.reason().await, "NotRecognized");
    assert_eq!(one_network.networks().await, [theirs]);
    let ours = one_network.simulated.create_network(RequestId::random(), &create("ours")).await.unwrap();
    one_network.status.network_id = Some(ours.id.to_string());
    assert_eq!(one_network.ready().await, ours.id);
}

#[tokio::test]
async fn another_cloud_or_project_is_no_reason_to_make_the_network_anew() {
    let mut one_network = OneNetwork::new(plain());
    one_network.ready().await;
    let elsewhere = Simulated::in_memory();
    one_network.cloud = Faulty::new(Arc::new(elsewhere.clone()));
    one_network.status.backend = text("http://other:9696");
    assert_eq!(one_network.reason().await, "BackendChanged");
    one_network.status.backend = None;
    (one_network.status.project_id, one_network.project) = (text("p1"), Some("p2"));
    assert_eq!(one_network.reason().await, "ProjectChanged");
    assert_eq!(elsewhere.find_networks(RequestId::random(), &NetworkFilter::all()).await.unwrap(), []);
    // For the same cloud under another name, the marker is proof enough.
    one_network.cloud = Faulty::new(Arc::new(one_network.simulated.clone()));
    one_network.status.backend = text("http://other:9696");
    one_network.ready().await;
}

#[tokio::test]
async fn another_cluster_id_is_no_reason_to_make_the_network_anew() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    let before = one_network.networks().await;
    one_network.cluster = "d";
    let refused = one_network.converge().await.ready.unwrap_err();
    assert_eq!(refused.reason, "ClusterChanged");
    assert!(refused.message.contains("--cluster-id c,") && refused.message.contains("cluster id d:"), "{refused:?}");
    assert_eq!(one_network.networks().await, before);
    // The two remedies that keep the network.
    one_network.simulated.add_network_tag(RequestId::random(), id, "network-controller:d:u").await.unwrap();
    assert_eq!(one_network.ready().await, id);
    one_network.cluster = "c";
    assert_eq!(one_network.ready().await, id);
    assert_eq!(one_network.networks().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_cannot_read_leave_one_network_at_most() {
    let mut one_network = OneNetwork::new(plain());
    one_network.ready().await;
    tokio::time::advance(Duration::from_secs(300)).await;
    // From now on no network is visible.
    for _ in 0..5 {
        one_network.cloud.clear();
        for _ in 0..20 {
            one_network.cloud.next(Operation::ReadNetwork, Fault::Answer(404, "NetworkNotFound"));
        }
        let before = one_network.networks().await;
        for network in &before {
            one_network
                .simulated
                .remove_network_tag(RequestId::random(), network.id, "network-controller:c:u")
                .await
                .ok();
        }
        let hidden = NetworkUpdate { description: text("hidden"), ..NetworkUpdate::default() };
        for network in before.iter().filter(|network| network.name == "default/a") {
            one_network.change(network.id, hidden.clone()).await;
        }
        assert_eq!(one_network.reason().await, "NeutronForbidden");
        tokio::time::advance(Duration::from_secs(600)).await;
    }
    assert_eq!(one_network.networks().await.len(), 2, "the object's, and one that was made to be read");
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_really_gone_is_made_anew() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    one_network.simulated.delete_network(RequestId::random(), id, None).await.unwrap();
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_ne!(one_network.ready().await, id);
    assert_eq!(one_network.networks().await.len(), 1, "what was made to be read is gone too");
}

#[tokio::test]
async fn what_was_made_twice_is_made_once() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    let late = NetworkCreate {
        name: text("default/a"),
        description: text("network-controller:c:u"),
        ..NetworkCreate::default()
    };
    one_network.simulated.create_network(RequestId::random(), &late).await.unwrap();
    one_network.lookup = Lookup::All;
    assert_eq!(one_network.ready().await, id);
    assert_eq!(one_network.networks().await.len(), 1);
}

#[tokio::test]
async fn of_what_was_made_twice_nothing_goes_that_somebody_took_in_the_meantime() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    let late = NetworkCreate { description: text("network-controller:c:u"), ..NetworkCreate::default() };
    let late = one_network.simulated.create_network(RequestId::random(), &late).await.unwrap().id;
    one_network.lookup = Lookup::All;
    one_network.before(Operation::DeleteNetwork, async move |cloud: Simulated| {
        let kept = NetworkUpdate { description: text("kept"), ..NetworkUpdate::default() };
        cloud.update_network(RequestId::random(), late, &kept, None).await.unwrap();
    });
    assert_eq!(one_network.ready().await, id);
    let networks = one_network.networks().await;
    assert!(networks.iter().any(|network| network.description == "kept"), "{networks:?}");
}

#[tokio::test]
async fn a_network_with_a_copied_tag_is_left_and_named() {
    for lookup in [Lookup::Recorded, Lookup::All] {
        let mut one_network = OneNetwork::new(plain());
        // The copy is older than the object's own network.
        let copy = NetworkCreate { name: text("copy"), ..NetworkCreate::default() };
        let copy = one_network.simulated.create_network(RequestId::random(), &copy).await.unwrap().id;
        let id = one_network.ready().await;
        one_network.simulated.add_network_tag(RequestId::random(), copy, "network-controller:c:u").await.unwrap();
        one_network.lookup = lookup;
        if lookup == Lookup::Recorded {
            // Without the status the object's networks have to be searched for.
            one_network.status = NetworkStatus::default();
        }
        let outcome = one_network.converge().await;
        assert_eq!(outcome.network, Some(id));
        let refused = outcome.ready.unwrap_err();
        assert_eq!(refused.reason, "MarkerCopied");
        assert!(
            refused.message.contains(&copy.to_string()) && refused.message.contains(&id.to_string()),
            "{refused:?}"
        );
        assert_eq!(one_network.networks().await.len(), 2);
        // The remedy.
        one_network.simulated.remove_network_tag(RequestId::random(), copy, "network-controller:c:u").await.unwrap();
        assert_eq!(one_network.ready().await, id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copied_tag_makes_nobodys_network_the_objects_when_its_own_is_gone() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    let copy = NetworkCreate { name: text("theirs"), description: text("kept"), ..NetworkCreate::default() };
    let copy = one_network.simulated.create_network(RequestId::random(), &copy).await.unwrap().id;
    one_network.simulated.add_network_tag(RequestId::random(), copy, "network-controller:c:u").await.unwrap();
    one_network.simulated.delete_network(RequestId::random(), id, None).await.unwrap();
    tokio::time::advance(Duration::from_secs(300)).await;
    let before = one_network.networks().await;
    let refused = one_network.converge().await.ready.unwrap_err();
    assert_eq!(refused.reason, "MarkerCopied");
    assert!(refused.message.contains(&copy.to_string()), "{refused:?}");
    assert_eq!(one_network.networks().await, before);
    // The remedy.
    one_network.simulated.remove_network_tag(RequestId::random(), copy, "network-controller:c:u").await.unwrap();
    assert_ne!(one_network.ready().await, copy);
    assert_eq!(one_network.networks().await.len(), 2);
}

#[tokio::test]
async fn what_was_adopted_stays_as_it_is_when_the_spec_no_longer_names_it() {
    let mut one_network = OneNetwork::new(plain());
    let theirs = NetworkCreate {
        name: text("theirs"),
        description: text("d"),
        admin_state_up: Some(false),
        ..NetworkCreate::default()
    };
    let theirs = one_network.simulated.create_network(RequestId::random(), &theirs).await.unwrap().id;
    let subnet = SubnetCreate { name: text("s"), ..SubnetCreate::new(theirs, "10.0.0.0/24".parse().unwrap()) };
    one_network.simulated.create_subnet(RequestId::random(), &subnet).await.unwrap();
    one_network.spec = json!({"cidr": "10.0.0.0/24", "adopt": {"id": theirs.to_string()}});
    assert_eq!(one_network.ready().await, theirs);
    let before = one_network.networks().await;
    one_network.spec = plain();
    assert_eq!(one_network.ready().await, theirs);
    assert_eq!(one_network.networks().await, before);
    // The same holds where the status is lost: the tag says that it was adopted.
    one_network.status = NetworkStatus::default();
    assert_eq!(one_network.ready().await, theirs);
    assert_eq!(one_network.networks().await, before);
    // Fields that the spec sets are applied.
    one_network.spec = json!({"cidr": "10.0.0.0/24", "adminStateUp": true});
    one_network.ready().await;
    assert_eq!(one_network.networks().await[0].admin_state_up, Some(true));
}

#[tokio::test]
async fn a_network_is_ready_when_it_is_active() {
    let mut one_network = OneNetwork::new(plain());
    let id = one_network.ready().await;
    one_network.simulated.set_network_status(id, Working::Build).await.unwrap();
    assert_eq!(one_network.reason().await, "NetworkBuilding");
    one_network.simulated.set_network_status(id, Working::Error).await.unwrap();
    assert_eq!(one_network.reason().await, "NetworkError");
    one_network.simulated.set_network_status(id, Working::Active).await.unwrap();
    one_network.ready().await;
}

#[tokio::test]
async fn drift_is_reported_and_left_where_the_spec_says_so() {
    let mut one_network = OneNetwork::new(json!({"cidr": "10.0.0.0/24", "driftPolicy": "Report"}));
    let id = one_network.ready().await;
    one_network.is_applied = true;
    one_network.change(id, NetworkUpdate { admin_state_up: Some(false), ..NetworkUpdate::default() }).await;
    assert_eq!(one_network.reason().await, "Drifted");
    assert_eq!(one_network.networks().await[0].admin_state_up, Some(false));
    // A change of the spec is not drift.
    one_network.is_applied = false;
    one_network.ready().await;
    assert_eq!(one_network.networks().await[0].admin_state_up, Some(true));
}

#[tokio::test]
async fn what_is_adopted_is_tagged_and_what_is_observed_is_left() {
    let mut one_network = OneNetwork::new(plain());
    let theirs = NetworkCreate { name: text("theirs"), description: text("d"), ..NetworkCreate::default() };
    let theirs = one_network.simulated.create_network(RequestId::random(), &theirs).await.unwrap();
    let subnet = SubnetCreate { name: text("s"), ..SubnetCreate::new(theirs.id, "10.0.0.0/24".parse().unwrap()) };
    one_network.simulated.create_subnet(RequestId::random(), &subnet).await.unwrap();
    let before = one_network.networks().await;

    let adopt = json!({"id": theirs.id.to_string()});
    one_network.spec = json!({"cidr": "10.0.0.0/24", "adopt": adopt, "managementPolicy": "Observed"});
    assert_eq!(one_network.ready().await, theirs.id);
    one_network.spec["mtu"] = json!(1400);
    let differs = one_network.converge().await.ready.unwrap_err();
    assert_eq!(differs.reason, "Differs");
    assert!(differs.message.contains("set mtu to 1400"), "{differs:?}");
    assert_eq!(one_network.networks().await, before);

    one_network.spec = json!({"cidr": "10.0.0.0/24", "adopt": adopt});
    assert_eq!(one_network.ready().await, theirs.id);
    let after = one_network.networks().await;
    assert_eq!((after[0].name.as_str(), after[0].description.as_str()), ("theirs", "d"));
    assert_eq!(after[0].tags, ["network-controller:c:u:adopted"]);

    // If it is gone, it is not created again.
    one_network.simulated.delete_network(RequestId::random(), theirs.id, None).await.unwrap();
    assert_eq!(one_network.reason().await, "AdoptNotFound");
    assert_eq!(one_network.networks().await, []);
}

#[tokio::test]
async fn a_network_to_adopt_has_to_be_there_alone_and_nobodys() {
    let mut one_network = OneNetwork::new(json!({"cidr": "10.0.0.0/24", "adopt": {"tag": "t"}}));
    assert_eq!(one_network.reason().await, "AdoptNotFound");
    let mut ids = Vec::new();
    for _ in 0..2 {
        let made = one_network.simulated.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap();
        one_network.simulated.add_network_tag(RequestId::random(), made.id, "t").await.unwrap();
        ids.push(made.id);
    }
    assert_eq!(one_network.reason().await, "AdoptAmbiguous");
    one_network.simulated.delete_network(RequestId::random(), ids[0], None).await.unwrap();
    one_network.simulated.add_network_tag(RequestId::random(), ids[1], "network-controller:c:other").await.unwrap();
    assert_eq!(one_network.reason().await, "AdoptTaken");
}

#[tokio::test]
async fn of_two_objects_that_adopt_at_once_one_at_most_has_the_network() {
    let mut one_network = OneNetwork::new(json!({"cidr": "10.0.0.0/24", "adopt": {"tag": "t"}}));
    let request = RequestId::random();
    let theirs = one_network.simulated.create_network(request, &NetworkCreate::default()).await.unwrap().id;
    let subnet = SubnetCreate::new(theirs, "10.0.0.0/24".parse().unwrap());
    one_network.simulated.create_subnet(request, &subnet).await.unwrap();
    one_network.simulated.add_network_tag(request, theirs, "t").await.unwrap();
    // The other object adds its marker after this one has checked, and before this one adds its own.
    let other = "network-controller:c:other";
    one_network.before(Operation::AddNetworkTag, async move |cloud: Simulated| {
        cloud.add_network_tag(request, theirs, other).await.unwrap();
    });
    let outcome = one_network.converge().await;
    assert_eq!((outcome.ready.unwrap_err().reason, outcome.network), ("AdoptTaken", None));
    assert_eq!(one_network.networks().await[0].tags, ["t", other]);

    // The same holds where this one was cut off before it could check again.
    one_network.simulated.remove_network_tag(request, theirs, other).await.unwrap();
    one_network.cloud.next(Operation::AddNetworkTag, Fault::LoseAnswer);
    assert!(one_network.converge().await.ready.is_err());
    one_network.simulated.add_network_tag(request, theirs, other).await.unwrap();
    assert_eq!(one_network.reason().await, "AdoptTaken");
    assert_eq!(one_network.networks().await[0].tags, ["t", other]);

    // Once it has the network, another object's marker does not change that.
    one_network.simulated.remove_network_tag(request, theirs, other).await.unwrap();
    assert_eq!(one_network.ready().await, theirs);
    one_network.simulated.add_network_tag(request, theirs, other).await.unwrap();
    assert_eq!(one_network.ready().await, theirs);
}
