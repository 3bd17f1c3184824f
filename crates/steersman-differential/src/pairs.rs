//! Pairs of servers on one etcd: one changes something, and the other uses the change at once, without waiting for it.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::Pairs;
use crate::server::{Request, Server};

const CONFIGS: &str = "/api/v1/namespaces/pairs/configmaps";
const SERVICES: &str = "/api/v1/namespaces/pairs/services";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/pairs";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// The user whose permissions change, by the name that belongs to the token.
const USER: &str = "alice";
const KINDS: [&str; 7] = ["objects", "definitions", "permissions", "quotas", "policies", "addresses", "ports"];
/// The most misses that are printed.
const PRINTED_MAX: usize = 20;

/// A step that did not end as it must.
struct Miss(String);

impl From<anyhow::Error> for Miss {
    fn from(error: anyhow::Error) -> Miss {
        Miss(format!("{error:#}"))
    }
}

/// Makes the pairs, and returns the number of misses.
pub(crate) async fn pairs(options: &Pairs) -> anyhow::Result<usize> {
    let common = &options.common;
    let servers = [
        Server::wait_for(&common.server, &common.server_ca, &common.token).await?,
        Server::wait_for(&options.other, &options.other_ca, &common.token).await?,
    ];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pairs"}});
    servers[0].send(&Request::write("POST", "/api/v1/namespaces", &namespace)).await?;
    let user = options.user_token.as_str();
    let begun = tokio::time::Instant::now();
    let misses: Vec<(&str, Option<Miss>)> = futures::stream::iter(0..options.pairs)
        .map(|number| {
            let [first, second] = &servers;
            // Neither server has a part of its own.
            let (here, there) =
                if (number / KINDS.len()).is_multiple_of(2) { (first, second) } else { (second, first) };
            async move {
                let made = one(number, here, there, user).await;
                (KINDS[number % KINDS.len()], made.err())
            }
        })
        .buffer_unordered(common.jobs.max(1))
        .collect()
        .await;
    let mut by_kind: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut n_missed = 0;
    for (kind, miss) in &misses {
        let (made, missed) = by_kind.entry(kind).or_default();
        *made += 1;
        if let Some(Miss(why)) = miss {
            *missed += 1;
            n_missed += 1;
            if n_missed <= PRINTED_MAX {
                println!("{kind}: {why}");
            }
        }
    }
    for (kind, (made, missed)) in by_kind {
        println!("{kind:12} {made:6} pairs, {missed} missed");
    }
    let took = begun.elapsed();
    println!("{} pairs in {:.0} s, {n_missed} missed", misses.len(), took.as_secs_f64());
    Ok(n_missed)
}

async fn one(number: usize, here: &Server, there: &Server, user: &str) -> Result<(), Miss> {
    match number % KINDS.len() {
        0 => object(number, here, there).await,
        1 => definition(number, here, there).await,
        2 => permission(number, here, there, user).await,
        3 => quota(number, here, there).await,
        4 => policy(number, here, there).await,
        5 => address(number, here, there).await,
        _ => port(number, here, there).await,
    }
}

/// Sends a request that must be answered with this status.
async fn expect(server: &Server, request: Request, status: u16, what: &str) -> Result<Value, Miss> {
    let reply = server.send(&request).await?;
    if reply.status == status {
        return Ok(reply.body);
    }
    let message = reply.body["message"].as_str().unwrap_or_default();
    Err(Miss(format!("{what}: {} {} is answered with {}: {message}", request.method, request.path, reply.status)))
}

fn post(path: &str, body: &Value) -> Request {
    Request::write("POST", path, body)
}

fn delete(path: String) -> Request {
    Request { method: "DELETE".into(), ..Request::read(path) }
}

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

async fn object(number: usize, here: &Server, there: &Server) -> Result<(), Miss> {
    let name = format!("object-{number}");
    let path = format!("{CONFIGS}/{name}");
    let made = expect(here, post(CONFIGS, &config(&name)), 201, "an object is made").await?;
    let mut read = expect(there, Request::read(&path), 200, "it is read").await?;
    if read != made {
        return Err(Miss(format!("{name} is another one at the other server")));
    }
    read["data"]["a"] = json!("2");
    let written = expect(there, Request::write("PUT", &path, &read), 200, "it is changed at its version").await?;
    expect(here, Request::write("PUT", &path, &read), 409, "the version is an old one").await?;
    if expect(here, Request::read(&path), 200, "it is read again").await? != written {
        return Err(Miss(format!("{name} is not as it was changed at the other server")));
    }
    expect(there, delete(path.clone()), 200, "it is deleted").await?;
    expect(here, Request::read(&path), 404, "it is gone").await.map(|_| ())
}

async fn definition(number: usize, here: &Server, there: &Server) -> Result<(), Miss> {
    let (kind, plural) = (format!("Kite{number}"), format!("kite{number}s"));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.pairs.example.com")},
        "spec": {
            "group": "pairs.example.com", "scope": "Cluster", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"length": {"type": "integer"}}}}}],
        },
    });
    let collection = format!("/apis/pairs.example.com/v1/{plural}");
    let kite = |length: Value| {
        let head =
            json!({"apiVersion": "pairs.example.com/v1", "kind": kind, "metadata": {"name": "a"}, "length": length});
        post(&collection, &head)
    };
    expect(here, post(DEFINITIONS, &definition), 201, "a definition is made").await?;
    expect(there, kite(json!("long")), 422, "its schema is in force").await?;
    expect(there, kite(json!(1)), 201, "an object of it is made").await?;
    expect(here, Request::read(format!("{collection}/a")), 200, "the object is read").await?;
    expect(there, delete(format!("{DEFINITIONS}/{plural}.pairs.example.com")), 200, "the definition is deleted")
        .await?;
    Ok(())
}

async fn permission(number: usize, here: &Server, there: &Server, user: &str) -> Result<(), Miss> {
    let name = format!("role-{number}");
    let there = there.with_token(user);
    let path = format!("{CONFIGS}/{name}");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [name]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "subjects": [{"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
    });
    expect(&there, Request::read(&path), 403, "nothing is allowed").await?;
    expect(here, post(&format!("{RBAC}/roles"), &role), 201, "a role is made").await?;
    expect(here, post(&format!("{RBAC}/rolebindings"), &binding), 201, "it is bound").await?;
    expect(&there, Request::read(&path), 404, "it is allowed").await?;
    expect(here, delete(format!("{RBAC}/rolebindings/{name}")), 200, "the binding is deleted").await?;
    expect(&there, Request::read(&path), 403, "it is no longer allowed").await?;
    expect(here, delete(format!("{RBAC}/roles/{name}")), 200, "the role is deleted").await.map(|_| ())
}

async fn quota(number: usize, here: &Server, there: &Server) -> Result<(), Miss> {
    let name = format!("pairs-{number}");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let path = format!("/api/v1/namespaces/{name}");
    let secrets = format!("{path}/secrets");
    let secret =
        |name: &str| post(&secrets, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}));
    let hard = json!({"secrets": "1"});
    let mut quota =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    expect(here, post("/api/v1/namespaces", &namespace), 201, "a namespace is made").await?;
    expect(here, post(&format!("{path}/resourcequotas"), &quota), 201, "a quota is made").await?;
    quota["status"] = json!({"hard": hard, "used": {"secrets": "0"}});
    let status = Request::write("PUT", format!("{path}/resourcequotas/q/status"), &quota);
    expect(here, status, 200, "it is counted").await?;
    expect(there, secret("a"), 201, "it has room for one").await?;
    expect(here, secret("b"), 403, "it has no more room").await?;
    expect(here, delete(path), 200, "the namespace is deleted").await.map(|_| ())
}

async fn policy(number: usize, here: &Server, there: &Server) -> Result<(), Miss> {
    let name = format!("policy-{number}");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
                "resourceNames": [name]}]},
            "validations": [{"expression": "false"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let [policies, bindings] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]
        .map(|plural| format!("{ADMISSION}/{plural}"));
    expect(here, post(&policies, &policy), 201, "a policy is made").await?;
    expect(here, post(&bindings, &binding), 201, "it is bound").await?;
    expect(there, post(CONFIGS, &config(&name)), 422, "it is in force").await?;
    expect(here, delete(format!("{bindings}/{name}")), 200, "the binding is deleted").await?;
    expect(there, post(CONFIGS, &config(&name)), 201, "it is no longer in force").await?;
    expect(here, delete(format!("{policies}/{name}")), 200, "the policy is deleted").await?;
    expect(there, delete(format!("{CONFIGS}/{name}")), 200, "the object is deleted").await.map(|_| ())
}

fn service(name: &str, spec: &Value) -> Request {
    post(SERVICES, &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}))
}

/// Makes a Service, and another one that wants the same at the other server, before and after the first is deleted.
async fn taken(number: usize, here: &Server, there: &Server, spec: &Value) -> Result<(), Miss> {
    let (first, second) = (format!("first-{number}"), format!("second-{number}"));
    expect(here, service(&first, spec), 201, "a Service is made").await?;
    expect(there, service(&second, spec), 422, "it has what the other one wants").await?;
    expect(here, delete(format!("{SERVICES}/{first}")), 200, "the Service is deleted").await?;
    expect(there, service(&second, spec), 201, "what it had is free").await?;
    expect(there, delete(format!("{SERVICES}/{second}")), 200, "the other one is deleted").await.map(|_| ())
}

async fn address(number: usize, here: &Server, there: &Server) -> Result<(), Miss> {
    taken(number, here, there, &json!({"clusterIP": own_address(number), "ports": [{"port": 80}]})).await
}

async fn port(number: usize, here: &Server, there: &Server) -> Result<(), Miss> {
    taken(number, here, there, &json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": own_port(number)}]}))
        .await
}

/// An address in the part of the default range, 10.96.0.0/16, from which servers choose none of themselves.
fn own_address(number: usize) -> String {
    format!("10.96.0.{}", 11 + number % 240)
}

/// A port within the default range, 30000 to 32767.
fn own_port(number: usize) -> usize {
    30_000 + number % 2_700
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_run_at_once_want_different_addresses_and_ports() {
        for number in 0..3_000 {
            for later in number + 1..number + 64 {
                assert!(own_address(number) != own_address(later) && own_port(number) != own_port(later));
            }
        }
    }
}
