//! The requests and limits of a pod as a whole: the sum over the containers that run at the same time.
//!
//! Follows `k8s.io/component-helpers/resource`. Init containers run one after the other before the containers, so the
//! maximum of them counts; restartable ones run beside everything that starts after them.

use crate::Value;
use crate::formats::quantity::Quantity;
use crate::value::{at, str_at};
use std::collections::BTreeMap;

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// The total requests, which the scheduler uses.
pub fn requests(pod: &Value) -> Amounts {
    let mut total = sum(pod, "requests");
    for (resource, overhead) in amounts(at(pod, &["spec", "overhead"])) {
        add(&mut total, &resource, overhead);
    }
    total
}

/// The total limits.
pub fn limits(pod: &Value) -> Amounts {
    let mut total = sum(pod, "limits");
    for (resource, overhead) in amounts(at(pod, &["spec", "overhead"])) {
        // The overhead is only added to an existing limit.
        if total.get(&resource).is_some_and(|limit| !limit.is_zero()) {
            add(&mut total, &resource, overhead);
        }
    }
    total
}

/// The quantities at a field of an object; invalid ones are left out.
pub fn amounts(value: Option<&Value>) -> Amounts {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    let read =
        |(resource, amount): (&String, &Value)| Some((resource.clone(), Quantity::parse(amount.as_str()?).ok()?));
    entries.filter_map(read).collect()
}

/// Adds to the quantity of a resource.
pub fn add(total: &mut Amounts, resource: &str, amount: Quantity) {
    let before = total.get(resource).copied().unwrap_or(Quantity::ZERO);
    total.insert(resource.to_owned(), before.plus(amount));
}

fn sum(pod: &Value, field: &str) -> Amounts {
    let list = |name: &str| at(pod, &["spec", name]).and_then(Value::as_array).into_iter().flatten();
    let of = |container: &Value| amounts(at(container, &["resources", field]));
    let mut total = Amounts::new();
    for (resource, amount) in list("containers").flat_map(of) {
        add(&mut total, &resource, amount);
    }
    let (mut beside, mut greatest) = (Amounts::new(), Amounts::new());
    for container in list("initContainers") {
        let own = of(container);
        let is_beside = str_at(container, &["restartPolicy"]) == Some("Always");
        let mut at_once = beside.clone();
        for (resource, amount) in own {
            add(&mut at_once, &resource, amount);
            if is_beside {
                add(&mut total, &resource, amount);
            }
        }
        if is_beside {
            beside = at_once.clone();
        }
        raise(&mut greatest, at_once);
    }
    raise(&mut total, greatest);
    for (resource, amount) in amounts(at(pod, &["spec", "resources", field])) {
        total.insert(resource, amount);
    }
    total
}

/// Raises every quantity to at least that of `other`.
fn raise(total: &mut Amounts, other: Amounts) {
    for (resource, amount) in other {
        if total.get(&resource).is_none_or(|before| *before < amount) {
            total.insert(resource, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: Value, want: &str) {
        let pod = json!({ "spec": spec });
        let of = |amounts: Amounts| amounts.get("cpu").map_or("-".to_owned(), ToString::to_string);
        assert_eq!(format!("{} {}", of(requests(&pod)), of(limits(&pod))), want);
    }

    fn cpu(request: &str, limit: &str) -> Value {
        json!({"resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}}})
    }

    #[test]
    fn what_runs_at_once_is_added_up() {
        check(json!({"containers": [cpu("100m", "1"), cpu("200m", "1")]}), "300m 2");
        check(
            json!({"containers": [cpu("100m", "1")], "initContainers": [cpu("400m", "1"), cpu("50m", "3")]}),
            "400m 3",
        );
        let mut sidecar = cpu("100m", "1");
        sidecar["restartPolicy"] = json!("Always");
        let init = json!([sidecar, cpu("500m", "1")]);
        check(json!({"containers": [cpu("100m", "1")], "initContainers": init}), "600m 2");
    }

    #[test]
    fn overhead_is_added_to_limits_that_there_are() {
        check(json!({"containers": [cpu("100m", "1")], "overhead": {"cpu": "10m"}}), "110m 1010m");
        check(json!({"containers": [{}], "overhead": {"cpu": "10m"}}), "10m -");
    }

    #[test]
    fn what_the_pod_asks_for_as_a_whole_counts_instead() {
        let whole = json!({"requests": {"cpu": "4"}, "limits": {"cpu": "4"}});
        check(json!({"containers": [cpu("100m", "1")], "resources": whole}), "4 4");
    }
}
