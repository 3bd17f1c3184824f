//! The quality of service class of a pod, which follows from its requests and limits of CPU and memory.

use crate::Value;
use crate::formats::quantity::Quantity;
use crate::value::at;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn class(pod: &Value) -> &'static str {
    // Resources of the pod as a whole take precedence over those of its containers.
    let whole = at(pod, &["spec"]).filter(|spec| spec.get("resources").is_some_and(Value::is_object));
    let parts: Vec<&Value> = match whole {
        Some(spec) => vec![spec],
        None => ["containers", "initContainers"]
            .into_iter()
            .filter_map(|list| at(pod, &["spec", list])?.as_array())
            .flatten()
            .collect(),
    };
    if !parts.iter().any(|part| asks_for_any(part)) {
        return "BestEffort";
    }
    if parts.iter().all(|part| is_guaranteed(part)) { "Guaranteed" } else { "Burstable" }
}

const COUNTED: [&str; 2] = ["cpu", "memory"];

fn asks_for_any(part: &Value) -> bool {
    let asks = |list| COUNTED.iter().any(|resource| amount(part, list, resource).is_some());
    asks("requests") || asks("limits")
}

/// Whether every counted resource has a limit, and a request that is absent or equal to it.
fn is_guaranteed(part: &Value) -> bool {
    COUNTED.iter().all(|resource| {
        let limit = amount(part, "limits", resource);
        limit.is_some() && amount(part, "requests", resource).is_none_or(|request| Some(request) == limit)
    })
}

fn amount(part: &Value, list: &str, resource: &str) -> Option<Quantity> {
    let zero = Quantity::parse("0").ok()?;
    let amount = Quantity::parse(at(part, &["resources", list, resource])?.as_str()?).ok()?;
    (amount > zero).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, want) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {"ephemeral-storage": "1Gi"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": both, "requests": {"cpu": "1000m", "memory": "1024Mi"}}), "Guaranteed"),
            (json!({"limits": both, "requests": {"cpu": "500m", "memory": "1Gi"}}), "Burstable"),
        ] {
            let pod = json!({"spec": {"containers": [{"resources": resources}]}});
            assert_eq!(class(&pod), want, "{resources}");
        }
    }

    #[test]
    fn one_container_without_limits_takes_the_guarantee() {
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let pod = json!({"spec": {"resources": {}, "containers": [{"resources": limits}]}});
        assert_eq!(class(&pod), "BestEffort", "the resources of the pod count, even if there are none");
        let pod = json!({"spec": {"containers": [{"resources": limits}, {}]}});
        assert_eq!(class(&pod), "Burstable");
    }
}
