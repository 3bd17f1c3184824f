//! A kind with everything that derives can say: columns, subresources, selectable fields, lists, rules, two versions.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub mod v1 {
    //! The version that is stored.

    use super::*;

    /// Some ships that sail together.
    #[allow(clippy::duplicated_attributes, reason = "each column says its type")]
    #[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
    #[kube(
        group = "sea.example.com",
        version = "v1",
        kind = "Fleet",
        plural = "fleets",
        shortname = "fl",
        category = "sea",
        namespaced,
        doc = "Fleet is a number of ships.",
        status = "FleetStatus",
        derive = "PartialEq",
        scale(
            spec_replicas_path = ".spec.replicas",
            status_replicas_path = ".status.replicas",
            label_selector_path = ".status.selector"
        ),
        selectable = ".spec.harbor",
        printcolumn(name = "Harbor", type_ = "string", json_path = ".spec.harbor"),
        printcolumn(name = "Ships", type_ = "integer", json_path = ".spec.replicas"),
        printcolumn(name = "Rate", type_ = "integer", json_path = ".spec.rate", priority = 1),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
    )]
    #[serde(rename_all = "camelCase")]
    #[x_kube(validation = Rule::new("self.replicas <= 3 || has(self.rate)").message("a large fleet has a rate"))]
    pub struct FleetSpec {
        /// Where it is at home.
        #[x_kube(validation = Rule::new("self == oldSelf").message("a fleet keeps its harbor"))]
        pub harbor: String,
        /// The number of ships.
        #[serde(default)]
        pub replicas: i32,
        /// How fast ships leave, in ships a day.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rate: Option<u16>,
        /// Where it calls, each once.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Set)]
        pub ports: Vec<String>,
        /// The ships that have names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
        pub ships: Vec<Ship>,
        /// The steering gear, as a whole.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[x_kube(merge_strategy = MapMerge::Atomic)]
        pub orders: BTreeMap<String, String>,
    }

    /// The fate of the fleet.
    #[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct FleetStatus {
        /// The number of ships there are.
        #[serde(default)]
        pub replicas: i32,
        /// The ships, for those who scale.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub selector: Option<String>,
    }
}

pub mod v1beta1 {
    //! The former version: the same fields.

    use super::*;

    /// Some ships that sail together.
    #[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
    #[kube(
        group = "sea.example.com",
        version = "v1beta1",
        kind = "Fleet",
        plural = "fleets",
        namespaced,
        doc = "Fleet is a number of ships.",
        derive = "PartialEq",
        deprecated = "use sea.example.com/v1"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct FleetSpec {
        /// Where it is at home.
        pub harbor: String,
        /// The number of ships.
        #[serde(default)]
        pub replicas: i32,
    }
}

/// A ship with a name.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ship {
    /// Its name.
    pub name: String,
    /// How many guns it has.
    #[serde(default)]
    pub guns: u8,
    /// The commander.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captain: Option<String>,
}
