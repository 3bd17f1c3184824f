//! The fields that an update of a Service keeps: allocated addresses and ports stay, unless the new type has none.

use crate::builtin::built_in::carry;
use crate::builtin::network::service::{
    has_addresses, is_balanced, is_external, is_internal, needs_health_port, needs_node_ports,
};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use steersman_machinery::Value;
use steersman_machinery::value::{at, remove_at, set_at, str_at};

/// Completes an update, and drops fields that no longer apply.
pub fn prepare(new: &mut Value, old: &Value) {
    join_addresses(new, old);
    keep(new, old);
    drop_what_the_type_has_not(new, old);
    drop_internal_policy(new);
}

/// `clusterIP` and the first of `clusterIPs` are kept equal; a client that knows only `clusterIP` may change it.
pub fn join_addresses(new: &mut Value, old: &Value) {
    let one = str_at(new, &["spec", "clusterIP"]).unwrap_or_default().to_owned();
    let one_before = str_at(old, &["spec", "clusterIP"]).unwrap_or_default();
    let many = at(new, &["spec", "clusterIPs"]);
    let is_many_untouched = old.is_object() && many == at(old, &["spec", "clusterIPs"]);
    let is_many_empty = many.and_then(Value::as_array).is_none_or(Vec::is_empty);
    if is_many_untouched && one != one_before {
        if one.is_empty() {
            remove_at(new, &["spec", "clusterIPs"]);
        } else {
            set_at(new, &["spec", "clusterIPs"], json!([one]));
        }
    } else if is_many_empty && !one.is_empty() {
        set_at(new, &["spec", "clusterIPs"], json!([one]));
    }
}

/// Keeps allocated values that the client left out and the Service still needs.
fn keep(new: &mut Value, old: &Value) {
    if has_addresses(old) && has_addresses(new) {
        let is_same = |new: &Value| str_at(new, &["spec", "clusterIP"]) == str_at(old, &["spec", "clusterIP"]);
        if str_at(new, &["spec", "clusterIP"]).unwrap_or_default().is_empty() {
            carry(new, old, &["spec", "clusterIP"]);
        }
        if at(new, &["spec", "clusterIPs"]).is_none() && is_same(new) {
            carry(new, old, &["spec", "clusterIPs"]);
        }
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        let used: HashSet<i64> = ports(new).filter_map(node_port).collect();
        let mut free: HashMap<Option<&str>, i64> = HashMap::new();
        for port in ports(old) {
            if let Some(number) = node_port(port).filter(|number| !used.contains(number)) {
                free.entry(str_at(port, &["name"])).or_insert(number);
            }
        }
        let list = new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten();
        for port in list.filter(|port| node_port(port).is_none()).collect::<Vec<_>>() {
            let name = str_at(port, &["name"]);
            if let Some(number) = free.get(&name) {
                let number = json!(number);
                set_at(port, &["nodePort"], number);
            }
        }
    }
    if needs_health_port(old) && needs_health_port(new) && at(new, &["spec", "healthCheckNodePort"]).is_none() {
        carry(new, old, &["spec", "healthCheckNodePort"]);
    }
}

/// A field, and whether a Service uses it.
type Only = (&'static str, fn(&Value) -> bool);

/// Removes fields that only the old type uses, so that a client can change only the type.
fn drop_what_the_type_has_not(new: &mut Value, old: &Value) {
    let same = |new: &Value, field: &str| at(new, &["spec", field]) == at(old, &["spec", field]);
    if has_addresses(old) && !has_addresses(new) && same(new, "clusterIP") && same(new, "clusterIPs") {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            remove_at(new, &["spec", field]);
        }
    }
    let may_have_node_ports =
        |service: &Value| matches!(str_at(service, &["spec", "type"]), Some("NodePort" | "LoadBalancer"));
    if may_have_node_ports(old) && !may_have_node_ports(new) {
        let before: HashSet<i64> = ports(old).filter_map(node_port).collect();
        for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if node_port(port).is_some_and(|number| before.contains(&number)) {
                remove_at(port, &["nodePort"]);
            }
        }
    }
    let only: [Only; 5] = [
        ("allocateLoadBalancerNodePorts", is_balanced),
        ("externalTrafficPolicy", is_external),
        ("healthCheckNodePort", needs_health_port),
        ("internalTrafficPolicy", is_internal),
        ("loadBalancerClass", is_balanced),
    ];
    for (field, has) in only {
        if has(old) && !has(new) && same(new, field) {
            remove_at(new, &["spec", field]);
        }
    }
}

/// A name elsewhere has no traffic of its own. A policy that is invalid stays, to be refused.
pub fn drop_internal_policy(service: &mut Value) {
    let is_valid = matches!(str_at(service, &["spec", "internalTrafficPolicy"]), Some("Cluster" | "Local"));
    if is_valid && str_at(service, &["spec", "type"]) == Some("ExternalName") {
        remove_at(service, &["spec", "internalTrafficPolicy"]);
    }
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    at(service, &["spec", "ports"]).and_then(Value::as_array).into_iter().flatten()
}

fn node_port(port: &Value) -> Option<i64> {
    at(port, &["nodePort"]).and_then(Value::as_i64).filter(|number| *number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_port_service() -> Value {
        json!({"spec": {
            "type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "externalTrafficPolicy": "Cluster",
            "ports": [{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": 30002}],
        }})
    }

    #[test]
    fn what_was_given_out_stays() {
        let old = node_port_service();
        let mut new =
            json!({"spec": {"type": "NodePort", "ports": [{"name": "b", "port": 82}, {"name": "c", "port": 80}]}});
        prepare(&mut new, &old);
        assert_eq!(new["spec"]["clusterIP"], "10.96.0.9");
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.96.0.9"]));
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30002);
        assert_eq!(new["spec"]["ports"][1].get("nodePort"), None);
    }

    #[test]
    fn another_type_lets_go_what_it_has_not() {
        let old = node_port_service();
        let mut new = old.clone();
        new["spec"]["type"] = json!("ClusterIP");
        prepare(&mut new, &old);
        assert_eq!(new["spec"]["ports"][0], json!({"name": "a", "port": 80}));
        assert_eq!(new["spec"].get("externalTrafficPolicy"), None);
        new["spec"]["type"] = json!("ExternalName");
        prepare(&mut new, &old);
        assert_eq!(new["spec"].get("clusterIP"), None);
    }

    #[test]
    fn a_client_that_knows_one_address_is_followed() {
        let mut new = json!({"spec": {"clusterIP": "10.96.0.7"}});
        join_addresses(&mut new, &Value::Null);
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.96.0.7"]));
        let old = node_port_service();
        let mut new = old.clone();
        new["spec"]["clusterIP"] = json!("10.96.0.8");
        join_addresses(&mut new, &old);
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.96.0.8"]));
    }
}
