//! Cases about networks.

use crate::answer::Class;
use crate::cloud::Cloud;
use crate::conformance::{Case, accepted, assert_refused};
use crate::types::id::{NetworkId, Revision};
use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkStatus, NetworkUpdate};
use crate::types::subnet::SubnetFilter;

/// Names are not unique, and a repeated create makes another network.
pub async fn a_second_create_makes_a_second_network(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let (first, second) = (case.network("twice").await, case.network("twice").await);
    assert_ne!(first.id, second.id);
    let found = accepted(cloud.find_networks(case.request, &NetworkFilter::name("twice")).await);
    assert_eq!(found.len(), 2);
    assert!(found.is_sorted_by_key(|network| (network.created_at, network.id)));
    assert_eq!(first.status, Some(NetworkStatus::Active));
    assert_eq!((first.revision, first.admin_state_up, first.mtu), (Some(Revision(1)), Some(true), Some(1450)));
}

/// The marker is written with the create and found exactly, whatever it contains.
pub async fn a_marker_in_the_description_finds_its_network(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let marker = "steersman:c 1/ü&b=%2F#?+".to_owned();
    let marked = NetworkCreate { description: Some(marker.clone()), ..NetworkCreate::default() };
    let made = accepted(cloud.create_network(case.request, &marked).await);
    case.network("unmarked").await;
    let find =
        async |marker: &str| accepted(cloud.find_networks(case.request, &NetworkFilter::description(marker)).await);
    assert_eq!(find(&marker).await, [case.reread(&made).await]);
    assert_eq!(find("steersman:c").await, []);
    assert_eq!(find(&marker.to_uppercase()).await, []);
}

/// Several keys of a filter narrow the result, several values of a key widen it, an empty list of values finds nothing.
pub async fn filters_are_exact_and_combine(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let (a, b) = (case.network("a").await, case.network("b").await);
    let find = async |filter: NetworkFilter| {
        let found = accepted(cloud.find_networks(case.request, &filter).await);
        found.into_iter().map(|network| network.id).collect::<Vec<_>>()
    };
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let mut both = vec![a.id, b.id];
    both.sort_unstable();
    let mut found = find(NetworkFilter { names: names(&["a", "b"]), ..NetworkFilter::all() }).await;
    found.sort_unstable();
    assert_eq!(found, both);
    assert_eq!(find(NetworkFilter { names: names(&["b", "A"]), ..NetworkFilter::all() }).await, [b.id]);
    assert_eq!(find(NetworkFilter { names: names(&["a"]), ..NetworkFilter::id(b.id) }).await, []);
    assert_eq!(find(NetworkFilter { names: names(&[]), ..NetworkFilter::all() }).await, []);
    assert_eq!(find(NetworkFilter::ids([NetworkId::random(), a.id])).await, [a.id]);
    let project_ids = accepted(cloud.project_id(case.request).await).map(|project| vec![project]);
    assert_eq!(find(NetworkFilter { project_ids, ..NetworkFilter::all() }).await.len(), 2);
}

/// More ids than one URL can carry.
pub async fn many_ids_are_found_in_one_call(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let (first, last) = (case.network("first").await, case.network("last").await);
    let absent = (0..400).map(|_| NetworkId::random());
    let filter = NetworkFilter::ids([first.id].into_iter().chain(absent).chain([last.id]));
    let found = accepted(cloud.find_networks(case.request, &filter).await);
    let mut names: Vec<&str> = found.iter().map(|network| network.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["first", "last"]);
}

/// Reading, changing and deleting a missing network.
pub async fn missing_networks_are_not_found(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let (absent, rename) = (NetworkId::random(), NetworkUpdate { name: Some("n".into()), ..NetworkUpdate::default() });
    let expected = Some(Revision(7));
    assert_refused(cloud.read_network(case.request, absent).await, Class::NotFound, "NetworkNotFound");
    assert_refused(
        cloud.update_network(case.request, absent, &rename, expected).await,
        Class::NotFound,
        "NetworkNotFound",
    );
    assert_refused(cloud.delete_network(case.request, absent, expected).await, Class::NotFound, "NetworkNotFound");
    let made = case.network("short-lived").await;
    accepted(cloud.delete_network(case.request, made.id, None).await);
    assert_refused(cloud.delete_network(case.request, made.id, None).await, Class::NotFound, "NetworkNotFound");
}

/// Sending the current values is not a change, except for a description, which some releases count as one.
pub async fn a_change_raises_the_revision_and_no_change_does_not(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let made = case.network("before").await;
    let change = NetworkUpdate {
        name: Some("after".into()),
        description: Some("d".into()),
        admin_state_up: Some(false),
        mtu: Some(1400),
        ..NetworkUpdate::default()
    };
    let changed = accepted(cloud.update_network(case.request, made.id, &change, made.revision).await);
    assert_eq!((changed.name.as_str(), changed.description.as_str()), ("after", "d"));
    assert_eq!((changed.admin_state_up, changed.mtu), (Some(false), Some(1400)));
    assert!(made.revision < changed.revision);
    let same = NetworkUpdate { description: None, ..change };
    let same = accepted(cloud.update_network(case.request, made.id, &same, None).await);
    assert_eq!(same.revision, changed.revision);
    let nothing = NetworkUpdate::default();
    let same = accepted(cloud.update_network(case.request, made.id, &nothing, changed.revision).await);
    assert_eq!(same.revision, changed.revision);
    assert_eq!(case.reread(&made).await.name, "after");
}

/// Conditional changes and deletes with an outdated revision.
pub async fn a_stale_revision_changes_nothing(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let made = case.network("contested").await;
    let rename = |name: &str| NetworkUpdate { name: Some(name.to_owned()), ..NetworkUpdate::default() };
    let theirs = accepted(cloud.update_network(case.request, made.id, &rename("theirs"), made.revision).await);
    let mine = cloud.update_network(case.request, made.id, &rename("mine"), made.revision).await;
    assert_refused(mine, Class::PreconditionFailed, "RevisionNumberConstraintFailed");
    let delete = cloud.delete_network(case.request, made.id, made.revision).await;
    assert_refused(delete, Class::PreconditionFailed, "RevisionNumberConstraintFailed");
    assert_eq!(case.reread(&made).await.name, "theirs");
    accepted(cloud.delete_network(case.request, made.id, theirs.revision).await);
}

/// Neutron's columns are 255 characters wide, and characters are counted, not bytes.
pub async fn a_text_of_256_characters_is_refused(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let create = |name: &str, description: &str| NetworkCreate {
        name: Some(name.to_owned()),
        description: Some(description.to_owned()),
        ..NetworkCreate::default()
    };
    let (fits, exceeds) = ("ü".repeat(255), "ü".repeat(256));
    accepted(cloud.create_network(case.request, &create(&fits, &fits)).await);
    let name = cloud.create_network(case.request, &create(&exceeds, "")).await;
    assert_refused(name, Class::InvalidInput, "HTTPBadRequest");
    let description = cloud.create_network(case.request, &create("", &exceeds)).await;
    assert_refused(description, Class::InvalidInput, "HTTPBadRequest");
    assert_eq!(accepted(cloud.find_networks(case.request, &NetworkFilter::all()).await).len(), 1);
}

/// The cloud sets the bound; 0 asks for the largest MTU.
pub async fn packets_larger_than_the_cloud_carries_are_refused(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let create = |mtu| NetworkCreate { mtu: Some(mtu), ..NetworkCreate::default() };
    assert_refused(cloud.create_network(case.request, &create(1451)).await, Class::InvalidInput, "InvalidInput");
    let made = accepted(cloud.create_network(case.request, &create(0)).await);
    assert_eq!(made.mtu, Some(1450));
    let change = NetworkUpdate { mtu: Some(9000), ..NetworkUpdate::default() };
    let refused = cloud.update_network(case.request, made.id, &change, None).await;
    assert_refused(refused, Class::InvalidInput, "InvalidInput");
}

/// They are deleted without a warning: check a network's subnets before deleting it.
pub async fn deleting_a_network_deletes_its_subnets(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("whole").await;
    let subnet = case.subnet(&network, "10.1.0.0/24").await;
    let other = case.network("other").await;
    let kept = case.subnet(&other, "10.1.0.0/24").await;
    assert_eq!(case.reread(&network).await.subnets, [subnet.id]);
    accepted(cloud.delete_network(case.request, network.id, None).await);
    assert_refused(cloud.read_subnet(case.request, subnet.id).await, Class::NotFound, "SubnetNotFound");
    let left = accepted(cloud.find_subnets(case.request, &SubnetFilter::all()).await);
    assert_eq!(left.iter().map(|subnet| subnet.id).collect::<Vec<_>>(), [kept.id]);
}

/// A tag is found, may be added twice, raises the revision, and can be removed once.
pub async fn a_tag_finds_its_network_until_it_is_taken_away(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let (made, other) = (case.network("tagged").await, case.network("other").await);
    let (tag, ids) =
        ("steersman-test:c1:u1", |networks: Vec<Network>| networks.iter().map(|n| n.id).collect::<Vec<_>>());
    for _ in 0..2 {
        accepted(cloud.add_network_tag(case.request, made.id, tag).await);
    }
    accepted(cloud.add_network_tag(case.request, other.id, "steersman-test:c1:u2").await);
    let tagged = case.reread(&made).await;
    assert_eq!(tagged.tags, [tag]);
    assert!(made.revision < tagged.revision);
    let found = accepted(cloud.find_networks(case.request, &NetworkFilter::tag(tag)).await);
    assert_eq!(ids(found), [made.id]);
    assert_eq!(accepted(cloud.find_networks(case.request, &NetworkFilter::tag("steersman-test:c1")).await), []);
    let either = NetworkFilter::tags([tag, "steersman-test:c1:u2", "steersman-test:c1:u3"].map(str::to_owned));
    let mut found = ids(accepted(cloud.find_networks(case.request, &either).await));
    found.sort_unstable();
    let mut both = [made.id, other.id];
    both.sort_unstable();
    assert_eq!(found, both);
    assert_eq!(accepted(cloud.find_networks(case.request, &NetworkFilter::tags([])).await), []);
    accepted(cloud.remove_network_tag(case.request, made.id, tag).await);
    assert_eq!(accepted(cloud.find_networks(case.request, &NetworkFilter::tag(tag)).await), []);
    assert!(cloud.remove_network_tag(case.request, made.id, tag).await.is_err_and(|error| error.is_not_found()));
}

/// A tag that would change the path is never sent.
pub async fn a_tag_that_is_no_part_of_a_path_is_refused(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let made = case.network("untagged").await;
    for tag in ["", "..", "a/b", "a%2Fb", "a b", "a?b"] {
        assert!(cloud.add_network_tag(case.request, made.id, tag).await.is_err(), "{tag:?}");
    }
    assert_eq!(case.reread(&made).await.tags, [""; 0]);
}

/// Neutron 29 does not answer "not found" for a missing network, so a caller that adds a tag must check that the
/// network exists.
pub async fn tagging_a_missing_network_fails(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let outcome = cloud.add_network_tag(case.request, NetworkId::random(), "t").await;
    let class = outcome.err().and_then(|error| error.class());
    assert_eq!(class, Some(Class::ServerError));
}
