//! The operator reports permissions that it lacks, and the manifests grant all of them.

use serde_json::{Value, json};
use steersman_network::Options;
use steersman_network::permissions::{missing, rules};
use steersman_testkit::{ControlPlane, User};

/// A control plane, and a client of a user who has the rules.
async fn with_rules(rules: Vec<Value>) -> (ControlPlane, kube::Client) {
    let plane = ControlPlane::start().await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "operator"}, "rules": rules
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator"}]
    });
    plane.apply(&role.to_string()).await;
    plane.apply(&binding.to_string()).await;
    let client = plane.client_as(User::authenticated("operator", []));
    (plane, client)
}

fn needed() -> Vec<steersman_network::permissions::Rule> {
    rules(&Options::default())
}

fn granted() -> Vec<Value> {
    let rule = |rule: &steersman_network::permissions::Rule| {
        let mut granted = json!({"apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs});
        if let Some(name) = rule.name {
            granted["resourceNames"] = json!([name]);
        }
        granted
    };
    needed().iter().map(rule).collect()
}

#[tokio::test]
async fn with_every_rule_nothing_is_missing() {
    let (_plane, client) = with_rules(granted()).await;
    assert_eq!(missing(&client, &needed()).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_missing_is_named_with_verb_resource_and_rule() {
    let mut rules = granted();
    rules[0]["verbs"] = json!(["get", "list", "patch"]);
    rules.remove(2);
    let (_plane, client) = with_rules(rules).await;
    let said: Vec<String> = missing(&client, &needed()).await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "may not watch networks.samplecrd.k8s.io: add to its ClusterRole the rule {apiGroups: [\"samplecrd.k8s.io\"], resources: [\"networks\"], verbs: [\"get\", \"list\", \"watch\", \"patch\"]}",
            "may not create events: add to its ClusterRole the rule {apiGroups: [\"\"], resources: [\"events\"], verbs: [\"create\", \"patch\"]}",
            "may not patch events: add to its ClusterRole the rule {apiGroups: [\"\"], resources: [\"events\"], verbs: [\"create\", \"patch\"]}",
        ]
    );
}
