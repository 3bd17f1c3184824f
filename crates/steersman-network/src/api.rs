//! The kind `Network` as the operator reads and writes it.
//!
//! Objects are read leniently: where the definition has no schema, a spec may hold anything, and its faults belong in
//! the object's status rather than make the object unreadable. A damaged status is read as far as possible, and written
//! again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The spec of a Network: a network with one subnet.
#[derive(Clone, CustomResource, Debug, Default, PartialEq, Serialize)]
#[kube(
    group = "samplecrd.k8s.io",
    version = "v1",
    kind = "Network",
    namespaced,
    schema = "disabled",
    status = "NetworkStatus"
)]
#[kube(derive = "Default", derive = "PartialEq")]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    /// An existing network, to be used in place of a new one.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub adopt: Lenient<Adopt>,
    /// Whether the network should carry traffic.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub admin_state_up: Lenient<bool>,
    /// The ranges from which ports get their addresses.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub allocation_pools: Lenient<Vec<Pool>>,
    /// The subnet's addresses, such as `192.168.0.0/16`.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub cidr: Lenient<String>,
    /// Whether the network is deleted or kept when the object is deleted.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub deletion_policy: Lenient<DeletionPolicy>,
    /// The network's description in Neutron.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub description: Lenient<String>,
    /// The name servers that DHCP hands out, in the order of preference.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub dns_nameservers: Lenient<Vec<String>>,
    /// Whether a change that somebody made in Neutron is undone or reported.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub drift_policy: Lenient<DriftPolicy>,
    /// Whether DHCP is enabled.
    #[serde(rename = "enableDHCP", skip_serializing_if = "Lenient::is_absent")]
    pub enable_dhcp: Lenient<bool>,
    /// The subnet's gateway, an address within `cidr`.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub gateway: Lenient<String>,
    /// Whether the operator may write to Neutron for this object.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub management_policy: Lenient<ManagementPolicy>,
    /// The MTU, in bytes.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub mtu: Lenient<u32>,
    /// Whether a subnet that cannot be changed in place may be deleted and created again.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub replace_on_change: Lenient<bool>,
    /// Whether every project may use the network.
    #[serde(skip_serializing_if = "Lenient::is_absent")]
    pub shared: Lenient<bool>,
}

/// An existing network: exactly one of the two fields is set.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    /// Its id in Neutron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A tag that no other network has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// A range of addresses, both ends included.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The first address.
    pub start: String,
    /// The last address.
    pub end: String,
}

/// Whether the network is deleted or kept when the object is deleted.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// It is deleted too. The default, except for an adopted network.
    Delete,
    /// It stays, without the operator's marker. The default for an adopted network.
    Retain,
}

/// Whether a change that somebody made in Neutron is undone or reported.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum DriftPolicy {
    /// Undo the change.
    #[default]
    Repair,
    /// Report the change in the conditions, and leave it.
    Report,
}

/// Whether the operator may write to Neutron for an object.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ManagementPolicy {
    /// The operator creates, changes and deletes.
    #[default]
    Managed,
    /// The operator only compares.
    Observed,
}

/// The observed state of the network. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// The network's id in Neutron.
    #[serde(rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<String>,
    /// The subnet's id in Neutron.
    #[serde(rename = "subnetID", skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// The Neutron that has the network; the name of a simulated one says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The project of the credentials with which the network was last seen.
    #[serde(rename = "projectID", skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// Identifies the spec with which Neutron last agreed: while the spec is still that one, differences were made in
    /// Neutron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_spec: Option<String>,
    /// The generation of the spec that the other fields describe. Absent where the definition has no status
    /// subresource: there every status write makes a new generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions `Ready` and `Progressing`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A field that should be a `T`, and may hold anything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Lenient<T> {
    /// The field is absent or null.
    #[default]
    Absent,
    /// The field is something else; the text is its JSON.
    Invalid(String),
    /// The field is a `T`.
    Valid(T),
}

impl<T> Lenient<T> {
    /// Whether the field is absent.
    pub fn is_absent(&self) -> bool {
        matches!(self, Lenient::Absent)
    }
}

/// A spec that is missing, null or not an object is read as one without fields, so that the status can name the
/// required fields.
impl<'de> Deserialize<'de> for NetworkSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NetworkSpec, D::Error> {
        let mut spec = Option::<Value>::deserialize(deserializer)?.unwrap_or_default();
        let mut take = |field: &str| spec.get_mut(field).map(Value::take).unwrap_or_default();
        Ok(NetworkSpec {
            adopt: take("adopt").into(),
            admin_state_up: take("adminStateUp").into(),
            allocation_pools: take("allocationPools").into(),
            cidr: take("cidr").into(),
            deletion_policy: take("deletionPolicy").into(),
            description: take("description").into(),
            dns_nameservers: take("dnsNameservers").into(),
            drift_policy: take("driftPolicy").into(),
            enable_dhcp: take("enableDHCP").into(),
            gateway: take("gateway").into(),
            management_policy: take("managementPolicy").into(),
            mtu: take("mtu").into(),
            replace_on_change: take("replaceOnChange").into(),
            shared: take("shared").into(),
        })
    }
}

/// A field that cannot be read counts as absent: the operator writes the status, and will write it again.
impl<'de> Deserialize<'de> for NetworkStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NetworkStatus, D::Error> {
        let mut status = Option::<Value>::deserialize(deserializer)?.unwrap_or_default();
        let mut take = |field: &str| status.get_mut(field).map(Value::take).unwrap_or_default();
        let mut text = |field: &str| match take(field) {
            Value::String(text) => Some(text),
            _ => None,
        };
        let (network_id, subnet_id, backend) = (text("networkID"), text("subnetID"), text("backend"));
        let (project_id, applied_spec) = (text("projectID"), text("appliedSpec"));
        let conditions = match take("conditions") {
            Value::Array(conditions) => conditions,
            _ => Vec::new(),
        };
        Ok(NetworkStatus {
            network_id,
            subnet_id,
            backend,
            project_id,
            applied_spec,
            observed_generation: take("observedGeneration").as_i64(),
            conditions: conditions.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect(),
        })
    }
}

impl<T: DeserializeOwned> From<Value> for Lenient<T> {
    fn from(value: Value) -> Lenient<T> {
        match value {
            Value::Null => Lenient::Absent,
            value => match T::deserialize(&value) {
                Ok(is) => Lenient::Valid(is),
                Err(_) => Lenient::Invalid(value.to_string()),
            },
        }
    }
}

impl<T: Serialize> Serialize for Lenient<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Lenient::Absent => serializer.serialize_none(),
            Lenient::Valid(is) => is.serialize(serializer),
            Lenient::Invalid(json) => match serde_json::from_str::<Value>(json) {
                Ok(value) => value.serialize(serializer),
                Err(_) => serializer.serialize_str(json),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn anything_can_be_read_and_is_written_as_it_was() {
        for spec in [
            json!({"cidr": "10.0.0.0/8", "gateway": "10.0.0.1"}),
            json!({"cidr": 16}),
            json!({"gateway": {"a": [1]}}),
            json!({}),
            json!({"adopt": {"id": "i"}, "allocationPools": [{"start": "a", "end": "b"}], "enableDHCP": false, "mtu": 1400}),
            json!({"adopt": {"ID": "i"}, "allocationPools": ["a-b"], "enableDHCP": "no", "mtu": -1}),
            json!({"deletionPolicy": "Retain", "driftPolicy": "Report", "managementPolicy": "Observed"}),
            json!({"deletionPolicy": "retain", "dnsNameservers": "1.1.1.1", "replaceOnChange": 1}),
        ] {
            let read: NetworkSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), spec);
        }
    }

    fn network(field: &str, value: Value) -> Value {
        json!({"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "a"}, field: value})
    }

    #[test]
    fn a_network_without_a_spec_can_be_read_too() {
        for spec in [Value::Null, json!(7), json!(["cidr"])] {
            let read: Network = serde_json::from_value(network("spec", spec.clone())).unwrap();
            assert_eq!(read.spec, NetworkSpec::default(), "{spec}");
        }
        let read: Network = serde_json::from_value(network("other", Value::Null)).unwrap();
        assert_eq!(read.spec, NetworkSpec::default());
    }

    #[test]
    fn a_spoiled_status_is_read_as_far_as_it_can_be() {
        let good = json!({
            "type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-11-21T00:00:00Z"
        });
        for (status, conditions) in [
            (json!(7), 0),
            (json!("ready"), 0),
            (
                json!({"networkID": {"a": 1}, "subnetID": 7, "backend": [], "observedGeneration": "x", "conditions": {}}),
                0,
            ),
            (json!({"conditions": [7, {"type": "Ready"}, good, {"type": 1}]}), 1),
        ] {
            let read: Network = serde_json::from_value(network("status", status.clone())).unwrap();
            let read = read.status.unwrap();
            assert_eq!(read.conditions.len(), conditions, "{status}");
            assert_eq!(NetworkStatus { conditions: Vec::new(), ..read }, NetworkStatus::default(), "{status}");
        }
    }

    #[test]
    fn the_status_has_the_names_of_the_definition() {
        let status = NetworkStatus {
            network_id: Some("n".into()),
            subnet_id: Some("s".into()),
            project_id: Some("p".into()),
            applied_spec: Some("a".into()),
            observed_generation: Some(1),
            ..NetworkStatus::default()
        };
        let written =
            json!({"networkID": "n", "subnetID": "s", "projectID": "p", "appliedSpec": "a", "observedGeneration": 1});
        assert_eq!(serde_json::to_value(&status).unwrap(), written);
        assert_eq!(serde_json::from_value::<NetworkStatus>(written).unwrap(), status);
    }
}
