//! A network as Neutron represents it, and the requests that create, change and find one.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::text;

/// A network, as read from the cloud.
///
/// Only the id is always present. The caller's roles and the cloud's plugins decide which fields are visible, so
/// everything else is optional or empty by default. Serializes to Neutron's own JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Network {
    /// The network's id, chosen by Neutron.
    pub id: NetworkId,
    /// The name, at most 255 characters; not unique.
    #[serde(default, deserialize_with = "text::or_default")]
    pub name: String,
    /// The description, at most 255 characters; the place for a marker, because it is written with the create and can
    /// be searched.
    #[serde(default, deserialize_with = "text::or_default")]
    pub description: String,
    /// The project that owns it.
    #[serde(default)]
    pub project_id: Option<String>,
    /// Whether the network carries traffic yet.
    #[serde(default, deserialize_with = "text::lenient", serialize_with = "text::print_option")]
    pub status: Option<NetworkStatus>,
    /// Whether it should carry traffic.
    #[serde(default)]
    pub admin_state_up: Option<bool>,
    /// The MTU, in bytes.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Whether every project may use it.
    #[serde(default)]
    pub shared: Option<bool>,
    /// Whether the network is external.
    #[serde(default, rename = "router:external")]
    pub external: Option<bool>,
    /// Its subnets, in no particular order.
    #[serde(default, deserialize_with = "text::or_default")]
    pub subnets: Vec<SubnetId>,
    /// Tags, in no particular order.
    #[serde(default, deserialize_with = "text::or_default")]
    pub tags: Vec<String>,
    /// The revision. Rises with changes of the network and with creating, changing and deleting its subnets.
    #[serde(default, rename = "revision_number")]
    pub revision: Option<Revision>,
    /// The time of creation, in whole seconds.
    #[serde(default, deserialize_with = "text::lenient", serialize_with = "text::print_option")]
    pub created_at: Option<Timestamp>,
    /// The time of the last change, in whole seconds.
    #[serde(default, deserialize_with = "text::lenient", serialize_with = "text::print_option")]
    pub updated_at: Option<Timestamp>,
}

/// Neutron's status of a network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NetworkStatus {
    /// The network works.
    Active,
    /// The network is being created; some plugins take a while.
    Build,
    /// The network exists, but carries no traffic.
    Down,
    /// The plugin failed to create the network.
    Error,
    /// A status that this crate does not know.
    Other(String),
}

impl FromStr for NetworkStatus {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "ACTIVE" => Self::Active,
            "BUILD" => Self::Build,
            "DOWN" => Self::Down,
            "ERROR" => Self::Error,
            other => Self::Other(other.to_owned()),
        })
    }
}

impl fmt::Display for NetworkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "ACTIVE",
            Self::Build => "BUILD",
            Self::Down => "DOWN",
            Self::Error => "ERROR",
            Self::Other(word) => word,
        })
    }
}

/// A network to create. A field that is `None` is not sent, and Neutron's default applies.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct NetworkCreate {
    /// The name, at most 255 characters; empty by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The description, at most 255 characters; empty by default. Put a marker here to find the network again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the network should carry traffic; true by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_state_up: Option<bool>,
    /// The MTU, in bytes; by default the largest that the cloud allows. Larger ones are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The project that will own it; by default that of the credentials. Another one takes an administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// Whether every project may use it; false by default. True takes an administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
}

/// Changes to a network. A field that is `None` is not sent and stays unchanged.
///
/// Set only fields that differ: a description sent again unchanged, or `mtu: 0`, may raise the revision each time.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct NetworkUpdate {
    /// The name, at most 255 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The description, at most 255 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the network should carry traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_state_up: Option<bool>,
    /// The MTU, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether every project may use it. True takes an administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
}

impl NetworkUpdate {
    /// Whether nothing is set, so that sending it would change nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The networks to find: every set key must match, and a key matches if one of its values does.
///
/// Comparison is exact, letter case included, whatever the collation of the cloud's database. A key that is set to an
/// empty list matches nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NetworkFilter {
    /// By id.
    pub ids: Option<Vec<NetworkId>>,
    /// By name.
    pub names: Option<Vec<String>>,
    /// By description, which has the markers.
    pub descriptions: Option<Vec<String>>,
    /// By the project that owns it.
    pub project_ids: Option<Vec<String>>,
    /// By tag: the network must have one of these.
    pub tags: Option<Vec<String>>,
}

impl NetworkFilter {
    /// Every network that the credentials may see, including shared ones of other projects.
    pub fn all() -> Self {
        Self::default()
    }

    /// The network with this id.
    pub fn id(id: NetworkId) -> Self {
        Self::ids([id])
    }

    /// The networks with these ids; ids without a network are ignored.
    pub fn ids(ids: impl IntoIterator<Item = NetworkId>) -> Self {
        Self { ids: Some(ids.into_iter().collect()), ..Self::default() }
    }

    /// The networks whose whole description is this marker.
    pub fn description(marker: impl Into<String>) -> Self {
        Self { descriptions: Some(vec![marker.into()]), ..Self::default() }
    }

    /// The networks with this name, of which there may be many.
    pub fn name(name: impl Into<String>) -> Self {
        Self { names: Some(vec![name.into()]), ..Self::default() }
    }

    /// The networks that have this tag.
    pub fn tag(tag: impl Into<String>) -> Self {
        Self::tags([tag.into()])
    }

    /// The networks that have one of these tags.
    pub fn tags(tags: impl IntoIterator<Item = String>) -> Self {
        Self { tags: Some(tags.into_iter().collect()), ..Self::default() }
    }

    /// Whether a network matches the filter.
    pub fn matches(&self, network: &Network) -> bool {
        contains(&self.ids, &network.id)
            && contains(&self.names, &network.name)
            && contains(&self.descriptions, &network.description)
            && owned_by(&self.project_ids, &network.project_id)
            && self.tags.as_ref().is_none_or(|tags| tags.iter().any(|tag| network.tags.contains(tag)))
    }

    /// The keys and values of the query; a key that is set but empty has an empty list.
    pub(crate) fn query(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut query = Vec::new();
        // The tags are one value, as Neutron requires. It splits a tag at a comma; `matches` drops the networks that
        // this finds too many.
        let tags = self.tags.as_ref().map(|tags| if tags.is_empty() { Vec::new() } else { vec![tags.join(",")] });
        push(&mut query, "tags-any", &tags);
        push(&mut query, "id", &self.ids);
        push(&mut query, "name", &self.names);
        push(&mut query, "description", &self.descriptions);
        push(&mut query, "project_id", &self.project_ids);
        query
    }
}

/// Whether one filter key lets a value pass.
pub(crate) fn contains<T: PartialEq>(wanted: &Option<Vec<T>>, value: &T) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted.contains(value))
}

/// Whether a filter by project matches an object; one without a visible owner was selected by the server.
pub(crate) fn owned_by(wanted: &Option<Vec<String>>, owner: &Option<String>) -> bool {
    owner.as_ref().is_none_or(|owner| contains(wanted, owner))
}

/// Adds a filter key to a query.
pub(crate) fn push<T: ToString>(
    query: &mut Vec<(&'static str, Vec<String>)>,
    key: &'static str,
    values: &Option<Vec<T>>,
) {
    if let Some(values) = values {
        query.push((key, values.iter().map(ToString::to_string).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Network, NetworkCreate, NetworkFilter, NetworkStatus};

    const ID: &str = "82d23501-0d4b-4b2a-9a3e-0a4d3a4c9a10";

    fn network(json: &str) -> Network {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_key_but_the_id_may_be_missing_or_null() {
        let bare = network(&format!(r#"{{"id":"{ID}"}}"#));
        let nulls = network(&format!(
            r#"{{"id":"{ID}","name":null,"description":null,"project_id":null,"status":null,"admin_state_up":null,
                "mtu":null,"shared":null,"router:external":null,"subnets":null,"tags":null,"revision_number":null,
                "created_at":null,"updated_at":null}}"#
        ));
        assert_eq!(bare, nulls);
    }

    #[test]
    fn unknown_words_and_times_do_not_hide_the_network() {
        let odd = network(&format!(r#"{{"id":"{ID}","status":"PENDING","created_at":"yesterday","updated_at":7}}"#));
        assert_eq!(odd.status, Some(NetworkStatus::Other("PENDING".to_owned())));
        assert_eq!((odd.created_at, odd.updated_at), (None, None));
    }

    #[test]
    fn unset_fields_are_not_sent() {
        let json = serde_json::to_string(&NetworkCreate { mtu: Some(1400), ..NetworkCreate::default() }).unwrap();
        assert_eq!(json, r#"{"mtu":1400}"#);
    }

    #[test]
    fn filter_keys_are_and_values_are_or() {
        let named = network(&format!(r#"{{"id":"{ID}","name":"a","description":"m"}}"#));
        let either =
            NetworkFilter { names: Some(vec!["b".to_owned(), "a".to_owned()]), ..NetworkFilter::description("m") };
        assert!(either.matches(&named));
        assert!(!NetworkFilter { names: Some(vec!["A".to_owned()]), ..NetworkFilter::all() }.matches(&named));
        assert!(!NetworkFilter::ids([]).matches(&named));
        assert!(NetworkFilter::all().matches(&named));
    }
}
