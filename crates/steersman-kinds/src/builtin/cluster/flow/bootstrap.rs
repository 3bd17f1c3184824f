//! The flow schemas and priority levels that every server has. `crate::upkeep::flow` creates and updates them.
//!
//! The figures are upstream's, from `apiserver/pkg/apis/flowcontrol/bootstrap`.

use serde_json::json;
use steersman_machinery::Value;

/// The annotation that says whether the server resets the spec to the one here.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The level and the schema without limits.
pub const EXEMPT: &str = "exempt";
/// The level and the schema of requests that match no other schema.
pub const CATCH_ALL: &str = "catch-all";

const MASTERS: &str = "system:masters";
const NODES: &str = "system:nodes";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
const EVERYBODY: [&str; 2] = ["system:unauthenticated", "system:authenticated"];
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

/// One of the objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    pub name: &'static str,
    /// Whether the object is mandatory: its spec cannot be changed.
    pub is_mandatory: bool,
    pub spec: Value,
}

/// Every priority level.
pub fn levels() -> Vec<Bootstrap> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let reject = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"},
    }});
    // Shares, percentage that may be lent, queues, and queues per flow.
    let queued = [
        ("system", 30, 33, 64, 6),
        ("node-high", 40, 25, 64, 6),
        ("leader-election", 10, 0, 16, 4),
        ("workload-high", 40, 50, 128, 6),
        ("workload-low", 100, 90, 128, 6),
        ("global-default", 20, 50, 128, 6),
    ];
    let queued = queued.map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let spec = json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        }});
        Bootstrap { name, is_mandatory: false, spec }
    });
    let mandatory =
        [(EXEMPT, exempt), (CATCH_ALL, reject)].map(|(name, spec)| Bootstrap { name, is_mandatory: true, spec });
    mandatory.into_iter().chain(queued).collect()
}

/// Every flow schema.
pub fn schemas() -> Vec<Bootstrap> {
    let by_user = Some("ByUser");
    let by_namespace = Some("ByNamespace");
    let probes = json!({
        "subjects": groups(&EVERYBODY),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    });
    let mut electors = users(&[CONTROLLER_MANAGER, SCHEDULER]);
    electors.push(kube_system_accounts());
    let leases = json!({
        "verbs": ["get", "create", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "namespaces": ["*"],
    });
    let elections = json!({"subjects": electors, "resourceRules": [leases]});
    let health = json!({"subjects": groups(&[NODES]), "resourceRules": [
        {
            "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true,
            "namespaces": ["*"],
        },
        {"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]},
    ]});
    vec![
        schema(EXEMPT, EXEMPT, 1, None, everything(groups(&[MASTERS]))),
        schema("probes", EXEMPT, 2, None, probes),
        schema("system-leader-election", "leader-election", 100, by_user, elections),
        schema("system-node-high", "node-high", 400, by_user, health),
        schema("system-nodes", "system", 500, by_user, everything(groups(&[NODES]))),
        schema("kube-controller-manager", "workload-high", 800, by_namespace, everything(users(&[CONTROLLER_MANAGER]))),
        schema("kube-scheduler", "workload-high", 800, by_namespace, everything(users(&[SCHEDULER]))),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            by_namespace,
            everything(vec![kube_system_accounts()]),
        ),
        schema("service-accounts", "workload-low", 9000, by_user, everything(groups(&[SERVICE_ACCOUNTS]))),
        schema("global-default", "global-default", 9900, by_user, everything(groups(&EVERYBODY))),
        schema(CATCH_ALL, CATCH_ALL, 10000, by_user, everything(groups(&EVERYBODY))),
    ]
}

/// The spec of a mandatory object.
pub fn mandatory_spec(all: Vec<Bootstrap>, name: &str) -> Option<Value> {
    all.into_iter().find(|one| one.is_mandatory && one.name == name).map(|one| one.spec)
}

fn schema(name: &'static str, level: &str, precedence: i64, distinguisher: Option<&str>, rule: Value) -> Bootstrap {
    let mut spec = json!({
        "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": [rule],
    });
    if let Some(distinguisher) = distinguisher {
        spec["distinguisherMethod"] = json!({ "type": distinguisher });
    }
    Bootstrap { name, is_mandatory: matches!(name, EXEMPT | CATCH_ALL), spec }
}

/// The rule that matches every request of some subjects.
fn everything(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn kube_system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}
