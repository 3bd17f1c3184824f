//! Prepares a server for an attack: two users with few rights, a definition, and objects that patches work on.

use serde_json::{Value, json};

use crate::client::{Connection, Request};

pub const ADMIN: &str = "token-of-the-admin";
/// The users, each with the ClusterRole `edit` in the namespace of its name, and their tokens.
pub const USERS: [(&str, &str); 2] = [("mallory", "token-of-mallory"), ("trudy", "token-of-trudy")];
/// The client whose requests must not suffer.
pub const BYSTANDER: &str = "token-of-the-bystander";
/// Number of keys of the ConfigMap that is patched.
pub const KEYS: usize = 50_000;
/// Number of variables of the Deployment that is patched.
pub const VARIABLES: usize = 10_000;
/// Length of the list in the custom object whose items are moved.
pub const NUMBERS: usize = 300_000;
/// Number of values of the definition's enum.
pub const WORDS: usize = 20_000;

/// The file for `--token-auth-file`.
pub fn tokens() -> String {
    let mut text = format!("{ADMIN},admin,1,\"system:masters\"\n{BYSTANDER},bystander,2,\"system:masters\"\n");
    for (index, (name, token)) in USERS.iter().enumerate() {
        text.push_str(&format!("{token},{name},{}\n", index + 10));
    }
    text
}

/// A definition whose kinds are costly: defaults, an enum, patterns, rules, and lists of all of them.
pub fn definition() -> Value {
    let defaults: serde_json::Map<String, Value> = (0..20)
        .map(|n| (format!("default{n}"), json!({"type": "string", "default": format!("the default of field {n}")})))
        .collect();
    let words: Vec<String> = (0..WORDS).map(|n| format!("word-{n}")).collect();
    let list = |items: Value| json!({"type": "array", "items": items});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "defaults": list(json!({"type": "object", "properties": defaults})),
        "words": list(json!({"type": "string", "enum": words})),
        "patterns": list(json!({"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"})),
        "rules": {"type": "array", "maxItems": 2000, "items": {
            "type": "object", "properties": {"name": {"type": "string", "maxLength": 100}},
            "x-kubernetes-validations": [{"rule": "!has(self.name) || self.name.matches('^[a-z]+$')"}],
        }},
        "numbers": list(json!({"type": "integer"})),
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
            "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
        }},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    }}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "targets.hostile.example.com"},
        "spec": {
            "group": "hostile.example.com", "scope": "Namespaced",
            "names": {"plural": "targets", "singular": "target", "kind": "Target", "listKind": "TargetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Makes the users, what they may do, the definition and the objects.
///
/// # Errors
/// When the server does not take them.
pub async fn set(admin: &mut Connection) -> anyhow::Result<()> {
    set_users(admin).await?;
    set_objects(admin).await
}

fn create(path: &str, object: &Value) -> Request {
    Request::json("stage", "POST", path, object)
}

/// Makes the definition and the namespaces, and lets the users write in them.
///
/// # Errors
/// When the server does not take them.
pub async fn set_users(admin: &mut Connection) -> anyhow::Result<()> {
    admin.ok(&create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition())).await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "of-targets"},
        "rules": [{"apiGroups": ["hostile.example.com"], "resources": ["*"], "verbs": ["*"]}],
    });
    admin.ok(&create(&format!("{rbac}/clusterroles"), &role)).await?;
    for (user, _) in USERS {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": user}});
        admin.ok(&create("/api/v1/namespaces", &namespace)).await?;
        for role in ["edit", "of-targets"] {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            });
            admin.ok(&create(&format!("{rbac}/namespaces/{user}/rolebindings"), &binding)).await?;
        }
    }
    Ok(())
}

/// Makes what patches work on. What a server does not take because of its limits is left out: patches of it find nothing then.
async fn set_objects(admin: &mut Connection) -> anyhow::Result<()> {
    for (user, _) in USERS {
        let data: serde_json::Map<String, Value> = (0..KEYS).map(|n| (format!("k{n}"), json!(""))).collect();
        let keys = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "keys"}, "data": data});
        let variables: Vec<Value> = (0..VARIABLES).map(|n| json!({"name": format!("V{n}")})).collect();
        let variables = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "variables"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": variables}]},
            }},
        });
        let numbers = json!({
            "apiVersion": "hostile.example.com/v1", "kind": "Target", "metadata": {"name": "numbers"},
            "spec": {"numbers": vec![0; NUMBERS]},
        });
        let targets = format!("/apis/hostile.example.com/v1/namespaces/{user}/targets");
        for (path, object) in [
            (format!("/api/v1/namespaces/{user}/configmaps"), &keys),
            (format!("/apis/apps/v1/namespaces/{user}/deployments"), &variables),
            (targets, &numbers),
        ] {
            let outcome = admin.send(&create(&path, object)).await;
            let answer = outcome.answer.map_err(anyhow::Error::msg)?;
            anyhow::ensure!(
                answer.status < 300 || matches!(answer.status, 409 | 413 | 422),
                "{path}: {}",
                answer.said()
            );
        }
    }
    Ok(())
}
