//! The labels that a node may not set on itself, because they would attract pods that are meant for other nodes.

use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::value::at;

/// The Kubernetes labels that a kubelet sets.
const OF_AGENT: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// The prefixes of further labels that kubelets may set; subdomains are included.
const DOMAINS_OF_AGENT: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const DOMAIN_OF_ADMINISTRATOR: &str = "node-restriction.kubernetes.io";
const DOMAINS: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// The changed labels that the node may not change, in alphabetical order.
pub(super) fn refused<'a>(new: &'a Value, old: Option<&'a Value>) -> Vec<&'a str> {
    let labels = |object: &'a Value| at(object, &["metadata", "labels"]).and_then(Value::as_object);
    let (new, old) = (labels(new), old.and_then(labels));
    let keys = new.into_iter().chain(old).flat_map(|labels| labels.keys());
    let is_changed = |key: &&String| {
        new.and_then(|labels| labels.get(key.as_str())) != old.and_then(|labels| labels.get(key.as_str()))
    };
    let refused: BTreeSet<&str> = keys.filter(is_changed).map(String::as_str).filter(|key| is_refused(key)).collect();
    refused.into_iter().collect()
}

fn is_refused(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_of_kubernetes = DOMAINS.iter().any(|domain| is_below(prefix, domain));
    let is_of_agent = OF_AGENT.contains(&key) || DOMAINS_OF_AGENT.iter().any(|domain| is_below(prefix, domain));
    is_below(prefix, DOMAIN_OF_ADMINISTRATOR) || is_of_kubernetes && !is_of_agent
}

fn is_below(prefix: &str, domain: &str) -> bool {
    prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(new: Value, old: Value, want: &[&str]) {
        let object = |labels| json!({"metadata": {"labels": labels}});
        assert_eq!(refused(&object(new), Some(&object(old))), want);
    }

    #[test]
    fn labels_of_kubernetes_are_not_the_nodes_to_change() {
        let own = json!({"a": "1", "example.com/b": "2", "kubernetes.io/hostname": "n", "x.node.kubernetes.io/c": "3"});
        check(own.clone(), json!({}), &[]);
        check(json!({}), own, &[]);
        let role = json!({"node-role.kubernetes.io/control-plane": "", "foo.k8s.io/a": "", "notk8s.io/a": ""});
        check(role.clone(), json!({}), &["foo.k8s.io/a", "node-role.kubernetes.io/control-plane"]);
        check(json!({}), role.clone(), &["foo.k8s.io/a", "node-role.kubernetes.io/control-plane"]);
        check(role.clone(), role, &[]);
        check(
            json!({"sub.node-restriction.kubernetes.io/a": "1"}),
            json!({"sub.node-restriction.kubernetes.io/a": "2"}),
            &["sub.node-restriction.kubernetes.io/a"],
        );
    }
}
