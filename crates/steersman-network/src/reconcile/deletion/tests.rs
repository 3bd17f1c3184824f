//! Which networks are deleted with an object, and which stay.

use super::*;
use crate::api::NetworkStatus;
use crate::identity::Identity;
use crate::read_access::ReadAccess;
use crate::reconcile::desired::Desired;
use crate::reconcile::execute::{Work, converge};
use crate::reconcile::observe::Lookup;
use serde_json::json;
use steersman_neutron::{
    Cloud as _, Fault, Faulty, NetworkCreate, NetworkFilter, NetworkId, NetworkUpdate, Operation, RequestId, Simulated,
};

struct World {
    cloud: Simulated,
    cluster: ClusterId,
    pending: Pending,
    read_access: ReadAccess,
}

impl World {
    fn new() -> World {
        let cluster = "c".parse().unwrap();
        World {
            cloud: Simulated::in_memory(),
            cluster,
            pending: Pending::default(),
            read_access: ReadAccess::default(),
        }
    }

    fn search<'a>(&'a self, identity: &'a Identity, status: &'a NetworkStatus, lookup: Lookup) -> Search<'a> {
        Search {
            cloud: &self.cloud,
            request: RequestId::random(),
            identity,
            status: Some(status),
            project: None,
            read_access: &self.read_access,
            lookup,
        }
    }

    fn identity(&self, uid: &str) -> Identity {
        Identity::new(&self.cluster, uid, "default", uid)
    }

    /// The network of an object after a converge.
    async fn converged(&self, uid: &str, status: &NetworkStatus) -> String {
        let spec = serde_json::from_value(json!({"cidr": "10.0.0.0/24"})).unwrap();
        let (desired, identity) = (Desired::parse(&spec).unwrap(), self.identity(uid));
        let work = Work {
            search: self.search(&identity, status, Lookup::Recorded),
            cluster: &self.cluster,
            uid,
            desired: &desired,
            pending: &self.pending,
            is_applied: false,
        };
        let outcome = converge(&work, &mut Vec::new()).await;
        assert_eq!(outcome.ready, Ok(()), "{uid}");
        outcome.network.unwrap().to_string()
    }

    async fn released(&self, uid: &str, status: &NetworkStatus, policy: DeletionPolicy) -> Result<(), NotReady> {
        let identity = self.identity(uid);
        let search = self.search(&identity, status, Lookup::All);
        let release = Release { search, cluster: &self.cluster, uid, pending: &self.pending, policy: Some(policy) };
        release.run(&mut Vec::new()).await
    }

    async fn deleted(&self, uid: &str, status: &NetworkStatus) {
        self.released(uid, status, DeletionPolicy::Delete).await.unwrap();
    }

    async fn networks(&self) -> Vec<Network> {
        self.cloud.find_networks(RequestId::random(), &NetworkFilter::all()).await.unwrap()
    }

    async fn ids(&self) -> Vec<String> {
        self.networks().await.iter().map(|network| network.id.to_string()).collect()
    }

    async fn strip(&self, id: &str, uid: &str) {
        let id: NetworkId = id.parse().unwrap();
        let change = NetworkUpdate { description: Some(String::new()), ..NetworkUpdate::default() };
        self.cloud.update_network(RequestId::random(), id, &change, None).await.unwrap();
        self.cloud.remove_network_tag(RequestId::random(), id, &self.identity(uid).marker).await.unwrap();
    }
}

fn naming(id: &str) -> NetworkStatus {
    NetworkStatus { network_id: Some(id.to_owned()), ..NetworkStatus::default() }
}

fn nothing() -> NetworkStatus {
    NetworkStatus::default()
}

#[tokio::test]
async fn of_two_objects_whose_status_names_one_network_only_its_own_takes_it() {
    let world = World::new();
    let own = world.converged("own", &nothing()).await;
    let forged = naming(&own);
    world.deleted("other", &forged).await;
    assert_eq!(world.ids().await, std::slice::from_ref(&own), "deleted by an object that only names it");
    let others = world.converged("other", &forged).await;
    assert_ne!(others, own, "taken over by an object that only names it");
    world.deleted("other", &forged).await;
    assert_eq!(world.ids().await, std::slice::from_ref(&own));
    world.deleted("own", &forged).await;
    assert_eq!(world.ids().await, [""; 0]);
}

#[tokio::test]
async fn a_network_without_any_marker_needs_the_name_too() {
    let world = World::new();
    let own = world.converged("own", &nothing()).await;
    world.strip(&own, "own").await;
    let refused = world.released("other", &naming(&own), DeletionPolicy::Delete).await.unwrap_err();
    assert_eq!(refused.reason, "NotRecognized");
    assert_eq!(world.ids().await, std::slice::from_ref(&own));
    assert_eq!(world.converged("own", &naming(&own)).await, own, "a lost marker is given back");
    world.strip(&own, "own").await;
    world.deleted("own", &naming(&own)).await;
    assert_eq!(world.ids().await, [""; 0]);
}

#[tokio::test]
async fn what_is_retained_keeps_nothing_of_the_operator() {
    let world = World::new();
    let id = world.converged("own", &nothing()).await;
    world.released("own", &naming(&id), DeletionPolicy::Retain).await.unwrap();
    let networks = world.networks().await;
    assert_eq!(networks.len(), 1);
    assert_eq!((networks[0].description.as_str(), networks[0].tags.len()), ("", 0));
    assert!(world.cluster.owners_of(&networks[0]).is_empty(), "no sweep takes it");
}

#[tokio::test]
async fn what_is_elsewhere_is_not_let_go_of() {
    let world = World::new();
    let id = NetworkId::random().to_string();
    let status = NetworkStatus { backend: Some("http://other:9696".to_owned()), ..naming(&id) };
    // It is refused even where the network is to stay: a sweep would delete it for its marker there.
    for policy in [DeletionPolicy::Delete, DeletionPolicy::Retain] {
        let refused = world.released("own", &status, policy).await.unwrap_err();
        assert_eq!(refused.reason, "BackendChanged", "{policy:?}");
        assert!(refused.message.contains("http://other:9696") && refused.message.contains("status.networkID"));
    }
    // The remedy that the message names.
    world.released("own", &nothing(), DeletionPolicy::Retain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_network_that_cannot_be_read_is_not_retained_with_its_marker() {
    let world = World::new();
    let id = world.converged("own", &nothing()).await;
    tokio::time::advance(std::time::Duration::from_secs(300)).await;
    let blind = Faulty::new(std::sync::Arc::new(Simulated::in_memory()));
    for _ in 0..3 {
        blind.next(Operation::ReadNetwork, Fault::Answer(404, "NetworkNotFound"));
    }
    let identity = world.identity("own");
    let status = naming(&id);
    let search = Search { cloud: &blind, ..world.search(&identity, &status, Lookup::All) };
    let (cluster, pending) = (&world.cluster, &world.pending);
    let release = Release { search, cluster, uid: "own", pending, policy: Some(DeletionPolicy::Retain) };
    assert_eq!(release.run(&mut Vec::new()).await.unwrap_err().reason, "NeutronForbidden");
}

#[tokio::test]
async fn a_network_without_any_marker_is_retained_as_it_is() {
    let world = World::new();
    let id = world.converged("own", &nothing()).await;
    world.strip(&id, "own").await;
    let before = world.networks().await;
    world.released("other", &naming(&id), DeletionPolicy::Retain).await.unwrap();
    assert_eq!(world.networks().await, before);
}

#[tokio::test]
async fn what_another_cluster_id_has_marked_is_not_let_go_of() {
    let mut world = World::new();
    let id = world.converged("own", &nothing()).await;
    world.cluster = "d".parse().unwrap();
    for policy in [DeletionPolicy::Delete, DeletionPolicy::Retain] {
        assert_eq!(
            world.released("own", &naming(&id), policy).await.unwrap_err().reason,
            "ClusterChanged",
            "{policy:?}"
        );
    }
    assert_eq!(world.ids().await, [id]);
}

#[tokio::test]
async fn a_network_with_a_copied_tag_is_not_deleted_with_the_object() {
    let world = World::new();
    let id = world.converged("own", &nothing()).await;
    let copy = world.cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap().id;
    world.cloud.add_network_tag(RequestId::random(), copy, &world.identity("own").marker).await.unwrap();
    let refused = world.released("own", &naming(&id), DeletionPolicy::Delete).await.unwrap_err();
    assert_eq!((refused.reason, world.ids().await.len()), ("MarkerCopied", 2));
    world.cloud.remove_network_tag(RequestId::random(), copy, &world.identity("own").marker).await.unwrap();
    world.deleted("own", &naming(&id)).await;
    assert_eq!(world.ids().await, [copy.to_string()]);
}

#[tokio::test]
async fn without_a_policy_what_was_made_is_deleted_and_what_was_adopted_stays() {
    let world = World::new();
    let made = world.converged("own", &nothing()).await;
    let theirs = world.cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap().id;
    let tag = world.identity("adopter").marker_adopted;
    world.cloud.add_network_tag(RequestId::random(), theirs, &tag).await.unwrap();
    // It is found by its status, and where that is lost.
    for status in [naming(&theirs.to_string()), nothing()] {
        let identity = world.identity("adopter");
        let search = world.search(&identity, &status, Lookup::All);
        let (cluster, pending) = (&world.cluster, &world.pending);
        let release = Release { search, cluster, uid: "adopter", pending, policy: None };
        release.run(&mut Vec::new()).await.unwrap();
        let networks = world.networks().await;
        let left = networks.iter().find(|network| network.id == theirs).unwrap();
        assert_eq!(left.tags, [""; 0]);
        world.cloud.add_network_tag(RequestId::random(), theirs, &tag).await.unwrap();
    }
    // It is deleted only where the spec says so.
    world.deleted("adopter", &naming(&theirs.to_string())).await;
    assert_eq!(world.ids().await, [made]);
}

#[tokio::test]
async fn a_network_that_only_has_the_tag_is_not_deleted_where_no_status_names_it() {
    let world = World::new();
    let copy = world.cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap().id;
    world.cloud.add_network_tag(RequestId::random(), copy, &world.identity("own").marker).await.unwrap();
    let refused = world.released("own", &nothing(), DeletionPolicy::Delete).await.unwrap_err();
    assert_eq!((refused.reason, world.ids().await.len()), ("MarkerCopied", 1));
    assert!(refused.message.contains(&copy.to_string()), "{refused:?}");
}

#[tokio::test]
async fn a_network_that_another_object_has_too_is_left_to_it() {
    let world = World::new();
    let id = world.converged("own", &nothing()).await;
    let other = world.identity("other").marker;
    world.cloud.add_network_tag(RequestId::random(), id.parse().unwrap(), &other).await.unwrap();
    world.deleted("own", &naming(&id)).await;
    let networks = world.networks().await;
    assert_eq!((networks.len(), networks[0].tags.as_slice()), (1, [other].as_slice()));
}

#[tokio::test]
async fn what_somebody_changes_after_it_was_read_is_looked_at_again() {
    let world = World::new();
    let id = world.converged("own", &nothing()).await;
    let (simulated, network) = (world.cloud.clone(), id.parse().unwrap());
    let cloud = Faulty::new(std::sync::Arc::new(simulated.clone()));
    cloud.before(Operation::DeleteNetwork, async move {
        let kept = NetworkUpdate { description: Some("kept".to_owned()), ..NetworkUpdate::default() };
        simulated.update_network(RequestId::random(), network, &kept, None).await.unwrap();
    });
    let (identity, status) = (world.identity("own"), naming(&id));
    let search = || Search { cloud: &cloud, ..world.search(&identity, &status, Lookup::All) };
    let release = || Release {
        search: search(),
        cluster: &world.cluster,
        uid: "own",
        pending: &world.pending,
        policy: Some(DeletionPolicy::Delete),
    };
    assert_eq!(release().run(&mut Vec::new()).await.unwrap_err().reason, "NeutronChanged");
    assert_eq!(world.ids().await, [id]);
    release().run(&mut Vec::new()).await.unwrap();
    assert_eq!(world.ids().await, [""; 0]);
}

#[test]
fn what_is_to_become_of_a_network_is_read_from_a_spec_that_is_otherwise_bad() {
    let policy = |spec: serde_json::Value| deletion_policy(&serde_json::from_value(spec).unwrap());
    assert_eq!(policy(json!({"cidr": 7})), Ok(None));
    assert_eq!(policy(json!({"deletionPolicy": "Delete"})), Ok(Some(DeletionPolicy::Delete)));
    assert_eq!(policy(json!({"deletionPolicy": "Retain"})), Ok(Some(DeletionPolicy::Retain)));
    assert_eq!(policy(json!({"adopt": {"tag": "t"}})), Ok(Some(DeletionPolicy::Retain)));
    let adopted = json!({"adopt": {"tag": "t"}, "deletionPolicy": "Delete"});
    assert_eq!(policy(adopted), Ok(Some(DeletionPolicy::Delete)));
    // The object may have been managed before, so the operator's markers are removed.
    let observed = json!({"managementPolicy": "Observed", "deletionPolicy": "Delete"});
    assert_eq!(policy(observed), Ok(Some(DeletionPolicy::Retain)));
    assert!(policy(json!({"deletionPolicy": "retain"})).is_err());
}
