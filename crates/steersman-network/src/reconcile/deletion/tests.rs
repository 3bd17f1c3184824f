//! Which networks are deleted with an object, and which stay.

use super::*;
use crate::api::NetworkStatus;
use crate::identity::Identity;
use crate::read_access::ReadAccess;
use crate::reconcile::desired::Desired;
use crate::reconcile::execute::{Input, converge};
use crate::reconcile::observe::Lookup;
use serde_json::json;
use steersman_neutron::{
    Cloud as _, Fault, Faulty, NetworkCreate, NetworkFilter, NetworkId, NetworkUpdate, Operation, RequestId, Simulated,
};

struct OneNetwork {
    cloud: Simulated,
    cluster: ClusterId,
    pending: Pending,
    read_access: ReadAccess,
}

impl OneNetwork {
    fn new() -> OneNetwork {
        let cluster = "c".parse().unwrap();
        OneNetwork {
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
        let work = Input {
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
    let one_network = OneNetwork::new();
    let own = one_network.converged("own", &nothing()).await;
    let forged = naming(&own);
    one_network.deleted("other", &forged).await;
    assert_eq!(one_network.ids().await, std::slice::from_ref(&own), "deleted by an object that only names it");
    let others = one_network.converged("other", &forged).await;
    assert_ne!(others, own, "taken over by an object that only names it");
    one_network.deleted("other", &forged).await;
    assert_eq!(one_network.ids().await, std::slice::from_ref(&own));
    one_network.deleted("own", &forged).await;
    assert_eq!(one_network.ids().await, [""; 0]);
}

#[tokio::test]
async fn a_network_without_any_marker_needs_the_name_too() {
    let one_network = OneNetwork::new();
    let own = one_network.converged("own", &nothing()).await;
    one_network.strip(&own, "own").await;
    let refused = one_network.released("other", &naming(&own), DeletionPolicy::Delete).await.unwrap_err();
    assert_eq!(refused.reason, "NotRecognized");
    assert_eq!(one_network.ids().await, std::slice::from_ref(&own));
    assert_eq!(one_network.converged("own", &naming(&own)).await, own, "a lost marker is given back");
    one_network.strip(&own, "own").await;
    one_network.deleted("own", &naming(&own)).await;
    assert_eq!(one_network.ids().await, [""; 0]);
}

#[tokio::test]
async fn what_is_retained_keeps_nothing_of_the_operator() {
    let one_network = OneNetwork::new();
    let id = one_network.converged("own", &nothing()).await;
    one_network.released("own", &naming(&id), DeletionPolicy::Retain).await.unwrap();
    let networks = one_network.networks().await;
    assert_eq!(networks.len(), 1);
    assert_eq!((networks[0].description.as_str(), networks[0].tags.len()), ("", 0));
    assert!(one_network.cluster.owners_of(&networks[0]).is_empty(), "no sweep takes it");
}

#[tokio::test]
async fn what_is_elsewhere_is_not_let_go_of() {
    let one_network = OneNetwork::new();
    let id = NetworkId::random().to_string();
    let status = NetworkStatus { backend: Some("http://other:9696".to_owned()), ..naming(&id) };
    // It is refused even where the network is to stay: a sweep would delete it for its marker there.
    for policy in [DeletionPolicy::Delete, DeletionPolicy::Retain] {
        let refused = one_network.released("own", &status, policy).await.unwrap_err();
        assert_eq!(refused.reason, "BackendChanged", "{policy:?}");
        assert!(refused.message.contains("http://other:9696") && refused.message.contains("status.networkID"));
    }
    // The remedy that the message names.
    one_network.released("own", &nothing(), DeletionPolicy::Retain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_network_that_cannot_be_read_is_not_retained_with_its_marker() {
    let one_network = OneNetwork::new();
    let id = one_network.converged("own", &nothing()).await;
    tokio::time::advance(std::time::Duration::from_secs(300)).await;
    let blind = Faulty::new(std::sync::Arc::new(Simulated::in_memory()));
    for _ in 0..3 {
        blind.next(Operation::ReadNetwork, Fault::Answer(404, "NetworkNotFound"));
    }
    let identity = one_network.identity("own");
    let status = naming(&id);
    let search = Search { cloud: &blind, ..one_network.search(&identity, &status, Lookup::All) };
    let (cluster, pending) = (&one_network.cluster, &one_network.pending);
    let release = Release { search, cluster, uid: "own", pending, policy: Some(DeletionPolicy::Retain) };
    assert_eq!(release.run(&mut Vec::new()).await.unwrap_err().reason, "NeutronForbidden");
}

#[tokio::test]
async fn a_network_without_any_marker_is_retained_as_it_is() {
    let one_network = OneNetwork::new();
    let id = one_network.converged("own", &nothing()).await;
    one_network.strip(&id, "own").await;
    let before = one_network.networks().await;
    one_network.released("other", &naming(&id), DeletionPolicy::Retain).await.unwrap();
    assert_eq!(one_network.networks().await, before);
}

#[tokio::test]
async fn what_another_cluster_id_has_marked_is_not_let_go_of() {
    let mut one_network = OneNetwork::new();
    let id = one_network.converged("own", &nothing()).await;
    one_network.cluster = "d".parse().unwrap();
    for policy in [DeletionPolicy::Delete, DeletionPolicy::Retain] {
        assert_eq!(
            one_network.released("own", &naming(&id), policy).await.unwrap_err().reason,
            "ClusterChanged",
            "{policy:?}"
        );
    }
    assert_eq!(one_network.ids().await, [id]);
}

#[tokio::test]
async fn a_network_with_a_copied_tag_is_not_deleted_with_the_object() {
    let one_network = OneNetwork::new();
    let id = one_network.converged("own", &nothing()).await;
    let copy = one_network.cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap().id;
    one_network.cloud.add_network_tag(RequestId::random(), copy, &one_network.identity("own").marker).await.unwrap();
    let refused = one_network.released("own", &naming(&id), DeletionPolicy::Delete).await.unwrap_err();
    assert_eq!((refused.reason, one_network.ids().await.len()), ("MarkerCopied", 2));
    one_network.cloud.remove_network_tag(RequestId::random(), copy, &one_network.identity("own").marker).await.unwrap();
    one_network.deleted("own", &naming(&id)).await;
    assert_eq!(one_network.ids().await, [copy.to_string()]);
}

#[tokio::test]
async fn without_a_policy_what_was_made_is_deleted_and_what_was_adopted_stays() {
    let one_network = OneNetwork::new();
    let made = one_network.converged("own", &nothing()).await;
    let theirs = one_network.cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap().id;
    let tag = one_network.identity("adopter").marker_adopted;
    one_network.cloud.add_network_tag(RequestId::random(), theirs, &tag).await.unwrap();
    // It is found by its status, and where that is lost.
    for status in [naming(&theirs.to_string()), nothing()] {
        let identity = one_network.identity("adopter");
        let search = one_network.search(&identity, &status, Lookup::All);
        let (cluster, pending) = (&one_network.cluster, &one_network.pending);
        let release = Release { search, cluster, uid: "adopter", pending, policy: None };
        release.run(&mut Vec::new()).await.unwrap();
        let networks = one_network.networks().await;
        let left = networks.iter().find(|network| network.id == theirs).unwrap();
        assert_eq!(left.tags, [""; 0]);
        one_network.cloud.add_network_tag(RequestId::random(), theirs, &tag).await.unwrap();
    }
    // It is deleted only where the spec says so.
    one_network.deleted("adopter", &naming(&theirs.to_string())).await;
    assert_eq!(one_network.ids().await, [made]);
}

#[tokio::test]
async fn a_network_that_only_has_the_tag_is_not_deleted_where_no_status_names_it() {
    let one_network = OneNetwork::new();
    let copy = one_network.cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap().id;
    one_network.cloud.add_network_tag(RequestId::random(), copy, &one_network.identity("own").marker).await.unwrap();
    let refused = one_network.released("own", &nothing(), DeletionPolicy::Delete).await.unwrap_err();
    assert_eq!((refused.reason, one_network.ids().await.len()), ("MarkerCopied", 1));
    assert!(refused.message.contains(&copy.to_string()), "{refused:?}");
}

#[tokio::test]
async fn a_network_that_another_object_has_too_is_left_to_it() {
    let one_network = OneNetwork::new();
    let id = one_network.converged("own", &nothing()).await;
    let other = one_network.identity("other").marker;
    one_network.cloud.add_network_tag(RequestId::random(), id.parse().unwrap(), &other).await.unwrap();
    one_network.deleted("own", &naming(&id)).await;
    let networks = one_network.networks().await;
    assert_eq!((networks.len(), networks[0].tags.as_slice()), (1, [other].as_slice()));
}

#[tokio::test]
async fn what_somebody_changes_after_it_was_read_is_looked_at_again() {
    let one_network = OneNetwork::new();
    let id = one_network.converged("own", &nothing()).await;
    let (simulated, network) = (one_network.cloud.clone(), id.parse().unwrap());
    let cloud = Faulty::new(std::sync::Arc::new(simulated.clone()));
    cloud.before(Operation::DeleteNetwork, async move {
        let kept = NetworkUpdate { description: Some("kept".to_owned()), ..NetworkUpdate::default() };
        simulated.update_network(RequestId::random(), network, &kept, None).await.unwrap();
    });
    let (identity, status) = (one_network.identity("own"), naming(&id));
    let search = || Search { cloud: &cloud, ..one_network.search(&identity, &status, Lookup::All) };
    let release = || Release {
        search: search(),
        cluster: &one_network.cluster,
        uid: "own",
        pending: &one_network.pending,
        policy: Some(DeletionPolicy::Delete),
    };
    assert_eq!(release().run(&mut Vec::new()).await.unwrap_err().reason, "NeutronChanged");
    assert_eq!(one_network.ids().await, [id]);
    release().run(&mut Vec::new()).await.unwrap();
    assert_eq!(one_network.ids().await, [""; 0]);
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
