//! FlowSchemas and PriorityLevelConfigurations in their stored form, and the mandatory ones, which apply even if they
//! are not stored.

use crate::http::flowcontrol::concurrency::Shares;
use crate::http::flowcontrol::queues::{Policy, Queueing};
use serde::Deserialize;
use steersman_machinery::Object;

/// The level and schema that admit everything.
pub(super) const EXEMPT: &str = "exempt";
/// The level and schema of requests that match no other schema.
pub(super) const CATCH_ALL: &str = "catch-all";

/// The item of a list that matches everything.
pub(super) const ANY: &str = "*";

/// The precedence of a schema that names none.
const PRECEDENCE: i64 = 1000;
/// The shares of a level that names none.
const SHARES: u32 = 30;
const CATCH_ALL_PRECEDENCE: i64 = 10_000;
const CATCH_ALL_SHARES: u32 = 5;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) uid: String,
}

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) name: Box<str>,
    pub(super) uid: String,
    pub(super) shares: Shares,
    pub(super) policy: Policy,
}

/// A FlowSchema.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    pub(super) name: Box<str>,
    pub(super) uid: String,
    pub(super) level: Box<str>,
    pub(super) precedence: i64,
    pub(super) distinguisher: Option<Distinguisher>,
    pub(super) rules: Vec<Rule>,
}

/// The property by which the requests of a schema are divided into flows.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub(super) enum Distinguisher {
    ByNamespace,
    ByUser,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rule {
    pub(super) subjects: Vec<Subject>,
    pub(super) resource_rules: Vec<ResourceRule>,
    pub(super) non_resource_rules: Vec<NonResourceRule>,
}

/// Only the field that belongs to the kind is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Subject {
    pub(super) kind: String,
    pub(super) user: Option<Named>,
    pub(super) group: Option<Named>,
    pub(super) service_account: Option<ServiceAccount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceAccount {
    pub(super) namespace: String,
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResourceRule {
    pub(super) verbs: Vec<String>,
    pub(super) api_groups: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) cluster_scope: bool,
    pub(super) namespaces: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NonResourceRule {
    pub(super) verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub(super) urls: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredSchema {
    metadata: Metadata,
    spec: SchemaSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SchemaSpec {
    priority_level_configuration: Named,
    matching_precedence: Option<i64>,
    distinguisher_method: Option<Method>,
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Method {
    #[serde(rename = "type")]
    kind: Distinguisher,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StoredLevel {
    metadata: Metadata,
    spec: LevelSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LevelSpec {
    #[serde(rename = "type")]
    kind: String,
    limited: Option<Limited>,
    exempt: Option<Exempt>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
    borrowing_limit_percent: Option<u32>,
    limit_response: LimitResponse,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Exempt {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LimitResponse {
    #[serde(rename = "type")]
    kind: String,
    queuing: Option<Queuing>,
}

#[derive(Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Queuing {
    queues: u32,
    hand_size: u32,
    queue_length_limit: usize,
}

impl Default for Queuing {
    fn default() -> Queuing {
        Queuing { queues: 64, hand_size: 8, queue_length_limit: 50 }
    }
}

// === impl Level ===

impl Level {
    /// Reads a stored object. Fails with a message if it is no valid configuration.
    pub(super) fn read(object: &Object) -> Result<Level, String> {
        let stored: StoredLevel = serde_json::from_slice(object.json()).map_err(|error| error.to_string())?;
        let StoredLevel { metadata, spec } = stored;
        let name: Box<str> = object.key.name.as_ref().into();
        let (shares, policy) = match spec.kind.as_str() {
            "Exempt" => {
                let Exempt { nominal_concurrency_shares, lendable_percent } = spec.exempt.unwrap_or_default();
                let nominal = nominal_concurrency_shares.unwrap_or(0);
                (shares(nominal, lendable_percent, None), Policy::Exempt)
            }
            "Limited" => {
                let limited = spec.limited.ok_or("spec.limited is missing")?;
                let nominal = limited.nominal_concurrency_shares.unwrap_or(SHARES);
                let policy = match limited.limit_response.kind.as_str() {
                    "Queue" => {
                        let Queuing { queues, hand_size, queue_length_limit } =
                            limited.limit_response.queuing.unwrap_or_default();
                        let length_max = queue_length_limit.max(1);
                        Policy::Queue(Queueing { queues: queues.max(1), hand: hand_size.max(1), length_max })
                    }
                    "Reject" => Policy::Reject,
                    other => return Err(format!("spec.limited.limitResponse.type is {other:?}")),
                };
                (shares(nominal, limited.lendable_percent, limited.borrowing_limit_percent), policy)
            }
            other => return Err(format!("spec.type is {other:?}")),
        };
        Ok(Level { name, uid: metadata.uid, shares, policy })
    }

    /// The levels that exist even if they are not stored.
    pub(super) fn mandatory() -> [Level; 2] {
        let level = |name: &str, nominal, policy| Level {
            name: name.into(),
            uid: String::new(),
            shares: shares(nominal, None, None),
            policy,
        };
        [level(EXEMPT, 0, Policy::Exempt), level(CATCH_ALL, CATCH_ALL_SHARES, Policy::Reject)]
    }
}

fn shares(nominal: u32, lendable_percent: Option<u32>, borrowing_percent: Option<u32>) -> Shares {
    Shares { nominal, lendable_percent: lendable_percent.unwrap_or(0).min(100), borrowing_percent }
}

// === impl Schema ===

impl Schema {
    /// Reads a stored object. Fails with a message if it is no valid schema.
    pub(super) fn read(object: &Object) -> Result<Schema, String> {
        let stored: StoredSchema = serde_json::from_slice(object.json()).map_err(|error| error.to_string())?;
        let StoredSchema { metadata, spec } = stored;
        Ok(Schema {
            name: object.key.name.as_ref().into(),
            uid: metadata.uid,
            level: spec.priority_level_configuration.name.into(),
            precedence: spec.matching_precedence.unwrap_or(PRECEDENCE),
            distinguisher: spec.distinguisher_method.map(|method| method.kind),
            rules: spec.rules,
        })
    }

    /// The schemas that exist even if they are not stored.
    pub(super) fn mandatory() -> [Schema; 2] {
        let any = || vec![ANY.to_owned()];
        let everything = |groups: &[&str]| Rule {
            subjects: groups
                .iter()
                .map(|name| Subject {
                    kind: "Group".to_owned(),
                    group: Some(Named { name: (*name).to_owned() }),
                    ..Subject::default()
                })
                .collect(),
            resource_rules: vec![ResourceRule {
                verbs: any(),
                api_groups: any(),
                resources: any(),
                cluster_scope: true,
                namespaces: any(),
            }],
            non_resource_rules: vec![NonResourceRule { verbs: any(), urls: any() }],
        };
        let schema = |name: &str, precedence, distinguisher, groups: &[&str]| Schema {
            name: name.into(),
            uid: String::new(),
            level: name.into(),
            precedence,
            distinguisher,
            rules: vec![everything(groups)],
        };
        [
            schema(EXEMPT, 1, None, &[steersman_kinds::user::MASTERS]),
            schema(
                CATCH_ALL,
                CATCH_ALL_PRECEDENCE,
                Some(Distinguisher::ByUser),
                &[steersman_kinds::user::AUTHENTICATED, "system:unauthenticated"],
            ),
        ]
    }
}
