//! How the networks of an object are recognized in Neutron, where names are not unique.
//!
//! A marker names the cluster and the object's uid. It is written as the description in the create request, because
//! nothing else is both atomic with a create and searchable; and then as a tag, which leaves the description to the
//! user and survives an edit of it.

use std::collections::BTreeSet;
use std::fmt;
use steersman_neutron::{Cloud, Error, Network, RequestId, Subnet};

/// The prefix of markers. Tags cannot contain a slash.
const PREFIX: &str = "network-controller:";
/// The prefix of the markers of version 0.1.0, which named no cluster and were descriptions only.
const PREFIX_0_1: &str = "network-controller/";
/// The suffix of the tag of an adopted network, which existed before the object. It is kept in Neutron because the spec
/// may change and the status may be lost, and the operator must not delete a network that was adopted.
const ADOPTED: &str = ":adopted";
/// The longest name, in bytes, that Neutron accepts.
const NAME_BYTES_MAX: usize = 255;

/// The cluster that an operator works for: networks with markers of other clusters are never touched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterId(String);

/// A text that is not a legal identity of a cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is no cluster id: want 1 to 63 lower-case letters, digits and hyphens")]
pub struct InvalidClusterId(String);

/// The markers by which the network and subnet of one object are recognized.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// The tag of the network, and the description of the subnet, and of the network unless the spec sets one.
    pub marker: String,
    /// The tag of a network that was adopted, in place of the marker.
    pub marker_adopted: String,
    /// The marker of version 0.1.0.
    pub marker_0_1: String,
    /// The name of network and subnet, for people.
    pub name: String,
}

/// The owner of a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ownership {
    /// This object: the network has its marker.
    Own,
    /// Another object: the network has the marker of one.
    Others,
    /// It has no marker.
    Unmarked,
}

impl std::str::FromStr for ClusterId {
    type Err = InvalidClusterId;

    fn from_str(text: &str) -> Result<ClusterId, InvalidClusterId> {
        let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if text.is_empty() || 63 < text.len() || !text.chars().all(is_plain) {
            return Err(InvalidClusterId(text.to_owned()));
        }
        Ok(ClusterId(text.to_owned()))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ClusterId {
    /// The uids in the markers of this cluster on a network: more than one where two objects adopt it at once.
    pub fn owners_of<'a>(&self, network: &'a Network) -> BTreeSet<&'a str> {
        let texts = network.tags.iter().chain([&network.description]);
        texts.filter_map(|text| parse(text)).filter(|(cluster, _)| *cluster == self.0).map(|(_, uid)| uid).collect()
    }

    /// Whether a network was adopted by an object.
    pub(crate) fn is_adopted(&self, network: &Network, uid: &str) -> bool {
        network.tags.contains(&format!("{}{ADOPTED}", self.marker(uid)))
    }

    /// The marker of an object, or of another thing with an id.
    pub(crate) fn marker(&self, uid: &str) -> String {
        format!("{PREFIX}{}:{uid}", self.0)
    }
}

impl Identity {
    /// The identity of an object of a cluster. The uid, not the name, tells objects apart, since an object may be
    /// created again with the same name.
    pub fn new(cluster: &ClusterId, uid: &str, namespace: &str, name: &str) -> Identity {
        let mut name = format!("{namespace}/{name}");
        name.truncate(NAME_BYTES_MAX);
        let marker = cluster.marker(uid);
        let marker_adopted = format!("{marker}{ADOPTED}");
        Identity { marker, marker_adopted, marker_0_1: format!("{PREFIX_0_1}{uid}"), name }
    }

    /// The owner of a network.
    pub fn ownership(&self, network: &Network) -> Ownership {
        let texts = || network.tags.iter().chain([&network.description]);
        if texts().any(|text| [&self.marker, &self.marker_adopted, &self.marker_0_1].contains(&text)) {
            return Ownership::Own;
        }
        if texts().any(|text| is_marker(text)) { Ownership::Others } else { Ownership::Unmarked }
    }

    /// The id of another cluster that marks a network with this object's uid, and the id of the object's own cluster.
    pub(crate) fn renamed_cluster<'a>(&'a self, network: &'a Network) -> Option<(&'a str, &'a str)> {
        let (own, uid) = parse(&self.marker)?;
        let texts = network.tags.iter().chain([&network.description]);
        let (other, _) = texts.filter_map(|text| parse(text)).find(|(cluster, its)| *its == uid && *cluster != own)?;
        Some((other, own))
    }

    /// Whether a network has the marker of another object beside the object's own.
    pub(crate) fn is_shared(&self, network: &Network) -> bool {
        let uid = uid_in(&self.marker);
        let is_anothers = |text: &String| uid_in(text).is_some_and(|its| Some(its) != uid);
        self.ownership(network) == Ownership::Own && network.tags.iter().chain([&network.description]).any(is_anothers)
    }

    /// The tags that mark a network as the object's.
    pub(crate) fn tags_of<'a>(&'a self, network: &Network) -> impl Iterator<Item = &'a str> {
        let own = [&self.marker, &self.marker_adopted].map(|tag| network.tags.contains(tag).then_some(tag.as_str()));
        own.into_iter().flatten()
    }

    /// Removes the tags that mark a network as the object's. A tag that is gone already is no error.
    pub(crate) async fn untag(&self, cloud: &dyn Cloud, request: RequestId, network: &Network) -> Result<(), Error> {
        for tag in self.tags_of(network) {
            match cloud.remove_network_tag(request, network.id, tag).await {
                Err(error) if !error.is_not_found() => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a network has the marker as a tag.
    pub(crate) fn has_tagged(&self, network: &Network) -> bool {
        self.tags_of(network).next().is_some()
    }

    /// Whether the object adopted a network that existed before it.
    pub(crate) fn has_adopted(&self, network: &Network) -> bool {
        network.tags.contains(&self.marker_adopted)
    }

    /// Whether more than a tag, which may have been copied, marks a network as the object's.
    pub(crate) fn is_certain_of(&self, network: &Network) -> bool {
        self.has_described(network) || network.name == self.name || self.has_adopted(network)
    }

    /// Whether a network was created for this object: a tag is copied easily, a description is not.
    pub(crate) fn has_described(&self, network: &Network) -> bool {
        [&self.marker, &self.marker_0_1].contains(&&network.description)
    }

    /// Whether a subnet of the object's network was created for the object.
    pub(crate) fn has_made(&self, subnet: &Subnet) -> bool {
        [&self.marker, &self.marker_0_1].contains(&&subnet.description) || subnet.name == self.name
    }
}

/// Whether a text is the marker of any object.
pub(crate) fn is_marker(text: &str) -> bool {
    text.starts_with(PREFIX) || text.starts_with(PREFIX_0_1)
}

/// The cluster and the uid in a marker.
fn parse(text: &str) -> Option<(&str, &str)> {
    let (cluster, uid) = text.strip_prefix(PREFIX)?.split_once(':')?;
    Some((cluster, uid.strip_suffix(ADOPTED).unwrap_or(uid)))
}

/// The uid in a marker of any version.
fn uid_in(text: &str) -> Option<&str> {
    parse(text).map(|(_, uid)| uid).or_else(|| text.strip_prefix(PREFIX_0_1))
}

/// The uids in all markers of a network, of any cluster.
pub(crate) fn uids(network: &Network) -> impl Iterator<Item = &str> {
    network.tags.iter().chain([&network.description]).filter_map(|text| uid_in(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn network(description: &str, tags: &[&str]) -> Network {
        let id = "00000000-0000-4000-8000-000000000001";
        serde_json::from_value(json!({"id": id, "description": description, "tags": tags})).unwrap()
    }

    #[test]
    fn markers_tell_clusters_and_objects_apart() {
        let cluster: ClusterId = "c1".parse().unwrap();
        let identity = Identity::new(&cluster, "u1", "default", "a");
        let own = "network-controller:c1:u1";
        assert_eq!(identity.marker, own);
        assert_eq!(identity.ownership(&network(own, &[])), Ownership::Own);
        assert_eq!(identity.ownership(&network("edited", &["x", own])), Ownership::Own);
        assert_eq!(identity.ownership(&network("network-controller/u1", &[])), Ownership::Own);
        for others in ["network-controller:c1:u2", "network-controller:c2:u1", "network-controller/u2"] {
            assert_eq!(identity.ownership(&network(others, &[])), Ownership::Others);
            assert_eq!(identity.ownership(&network("", &[others])), Ownership::Others);
        }
        assert_eq!(identity.ownership(&network("edited", &["x"])), Ownership::Unmarked);
        let adopted = "network-controller:c1:u1:adopted";
        assert_eq!(identity.ownership(&network("theirs", &[adopted])), Ownership::Own);
        assert_eq!(cluster.owners_of(&network("theirs", &[adopted])), BTreeSet::from(["u1"]));
        assert!(!identity.is_shared(&network("theirs", &[adopted, own])));
        assert!(cluster.is_adopted(&network("theirs", &[adopted]), "u1"));
        assert!(!cluster.is_adopted(&network(own, &[own]), "u1"));
        assert_eq!(identity.renamed_cluster(&network("network-controller:c2:u1", &[])), Some(("c2", "c1")));
        assert_eq!(identity.renamed_cluster(&network("", &["x", "network-controller:c2:u1"])), Some(("c2", "c1")));
        for other in [own, "network-controller:c2:u2", "network-controller/u1"] {
            assert_eq!(identity.renamed_cluster(&network(other, &[])), None, "{other}");
        }
        assert_eq!(cluster.owners_of(&network(own, &["x", own])), BTreeSet::from(["u1"]));
        let both = network("edited", &["network-controller:c1:u2", own]);
        assert_eq!(cluster.owners_of(&both), BTreeSet::from(["u1", "u2"]));
        assert_eq!(uids(&network("network-controller/u0", &["network-controller:c2:u2", own])).count(), 3);
        for others in ["network-controller:c1:u2", "network-controller:c2:u2", "network-controller/u2"] {
            assert!(identity.is_shared(&network(others, &[own])), "{others}");
            assert!(!identity.is_shared(&network(others, &["x"])), "{others}");
        }
        for plain in ["network-controller:c2:u1", "network-controller/u1", own, "edited"] {
            assert!(!identity.is_shared(&network(plain, &[own])), "{plain}");
        }
        for others in ["network-controller:c2:u1", "network-controller:c11:u1", "network-controller/u1", ""] {
            assert!(cluster.owners_of(&network(others, &[])).is_empty(), "{others}");
        }
    }

    #[test]
    fn an_id_of_a_cluster_can_be_part_of_a_tag() {
        for bad in ["", "A", "a:b", "a/b", &"a".repeat(64)] {
            assert!(bad.parse::<ClusterId>().is_err(), "{bad}");
        }
        assert!("7f9a2c1e-0000-4000-8000-000000000001".parse::<ClusterId>().is_ok());
    }
}
