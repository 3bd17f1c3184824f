//! The kind `Network` as the operator reads and writes it.
//!
//! Read leniently: where the definition has no schema, a spec may hold anything, and what is wrong with it is to be told in
//! the object's status rather than to keep the object from being read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// What the user wants: a network with one subnet.
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
pub struct NetworkSpec {
    /// The subnet's addresses, such as `192.168.0.0/16`.
    #[serde(skip_serializing_if = "Given::is_absent")]
    pub cidr: Given,
    /// The subnet's gateway, an address within `cidr`.
    #[serde(skip_serializing_if = "Given::is_absent")]
    pub gateway: Given,
}

/// What is known of the network, written by the operator alone.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkStatus {
    /// The network's id in Neutron.
    #[serde(rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<String>,
    /// The subnet's id in Neutron.
    #[serde(rename = "subnetID", skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// Which Neutron it is in; a simulated one says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The generation of the spec that the rest speaks of. Absent where the definition has no status subresource: there
    /// every status write makes a new generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` and `Progressing`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A field that should be a text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Given {
    /// It is not there, or null.
    #[default]
    Absent,
    /// It is something else: the JSON of it.
    Other(String),
    /// It is one.
    Text(String),
}

impl Given {
    /// Whether it is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Given::Absent)
    }
}

/// A spec that is missing, null or no object is one without fields: what it lacks is then said of it.
impl<'de> Deserialize<'de> for NetworkSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NetworkSpec, D::Error> {
        let mut spec = Option::<Value>::deserialize(deserializer)?.unwrap_or_default();
        let mut take = |field: &str| Given::from(spec.get_mut(field).map(Value::take).unwrap_or_default());
        Ok(NetworkSpec { cidr: take("cidr"), gateway: take("gateway") })
    }
}

impl From<Value> for Given {
    fn from(value: Value) -> Given {
        match value {
            Value::Null => Given::Absent,
            Value::String(text) => Given::Text(text),
            other => Given::Other(other.to_string()),
        }
    }
}

impl Serialize for Given {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Given::Absent => serializer.serialize_none(),
            Given::Text(text) => serializer.serialize_str(text),
            Given::Other(json) => match serde_json::from_str::<Value>(json) {
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
        ] {
            let read: NetworkSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), spec);
        }
    }

    #[test]
    fn a_network_without_a_spec_can_be_read_too() {
        for spec in [json!({"metadata": {}}), json!({"spec": null}), json!({"spec": 7}), json!({"spec": ["cidr"]})] {
            let mut network =
                json!({"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "a"}});
            network["spec"] = spec.get("spec").cloned().unwrap_or_default();
            if spec.get("spec").is_none() {
                network.as_object_mut().unwrap().remove("spec");
            }
            let read: Network = serde_json::from_value(network).unwrap();
            assert_eq!(read.spec, NetworkSpec::default(), "{spec}");
        }
    }

    #[test]
    fn the_status_has_the_names_of_the_definition() {
        let status = NetworkStatus {
            network_id: Some("n".into()),
            subnet_id: Some("s".into()),
            observed_generation: Some(1),
            ..NetworkStatus::default()
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({"networkID": "n", "subnetID": "s", "observedGeneration": 1})
        );
    }
}
