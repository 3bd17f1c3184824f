//! The quota usage of an object, by kind. Follows kubernetes' `pkg/quota/v1/evaluator/core`.

use crate::Value;
use crate::formats::quantity::Quantity;
use crate::kinds::pod::totals;
use crate::names::resource_name;
use crate::value::{at, str_at};
use std::collections::{BTreeMap, BTreeSet};

pub use crate::kinds::pod::totals::Amounts;

/// The middle of the quota resources of a storage class: the class comes before it, the counted resource after it.
const CLASS: &str = ".storageclass.storage.k8s.io/";
/// The resources that every container must specify if a quota limits them.
const MUST_BE_SAID: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// The kinds of objects that are counted in different ways.
#[derive(Clone, Copy, Debug)]
pub enum CountedObject<'a> {
    /// A PersistentVolumeClaim, which is also counted by its storage class.
    Claim,
    /// An object of another kind, of which only the number is counted.
    Object {
        /// The API group; empty for the core group.
        group: &'a str,
        /// The plural.
        resource: &'a str,
    },
    /// A Pod, which is counted with its requests and limits.
    Pod,
    /// A Service, which is also counted by its type.
    Service,
}

impl<'a> CountedObject<'a> {
    /// The way in which objects of a resource are counted; `None` if they are not.
    pub fn of(group: &'a str, resource: &'a str) -> Option<CountedObject<'a>> {
        match (group, resource) {
            // Events are not counted: they would fill any quota.
            ("" | "events.k8s.io", "events") => None,
            ("", "persistentvolumeclaims") => Some(CountedObject::Claim),
            ("", "pods") => Some(CountedObject::Pod),
            ("", "services") => Some(CountedObject::Service),
            (group, resource) => Some(CountedObject::Object { group, resource }),
        }
    }

    /// Whether a resource of a quota counts such objects.
    pub fn is_counted_as(&self, resource: &str) -> bool {
        match self {
            CountedObject::Claim => {
                matches!(resource, "count/persistentvolumeclaims" | "persistentvolumeclaims" | "requests.storage")
                    || resource.contains(CLASS)
            }
            CountedObject::Object { .. } => self.names().iter().any(|name| name == resource),
            CountedObject::Pod => {
                matches!(resource, "count/pods" | "ephemeral-storage" | "limits.ephemeral-storage" | "pods")
                    || resource == "requests.ephemeral-storage"
                    || MUST_BE_SAID.contains(&resource)
                    || resource_name::is_huge_page(resource.strip_prefix("requests.").unwrap_or(resource))
                    || resource.strip_prefix("requests.").is_some_and(resource_name::is_extended)
            }
            CountedObject::Service => {
                matches!(resource, "count/services" | "services" | "services.loadbalancers" | "services.nodeports")
            }
        }
    }

    /// The usage of an object.
    pub fn usage(&self, object: &Value) -> Amounts {
        match self {
            CountedObject::Claim => of_claim(object),
            CountedObject::Object { .. } => self.names().into_iter().map(|name| (name, Quantity::units(1))).collect(),
            CountedObject::Pod => of_pod(object),
            CountedObject::Service => of_service(object),
        }
    }

    /// Checks that an object specifies what it must if a quota limits these resources.
    ///
    /// # Errors
    /// With the missing resources and the containers that lack them.
    pub fn check(&self, object: &Value, held: &[&str]) -> Result<(), String> {
        if !matches!(self, CountedObject::Pod) {
            return Ok(());
        }
        let of = |value: &Value, field: &str| totals::amounts(at(value, &["resources", field]));
        let by_pod = at(object, &["spec"]).map(|spec| computed(&of(spec, "requests"), &of(spec, "limits")));
        let by_pod = by_pod.unwrap_or_default();
        let required = held.iter().filter(|held| MUST_BE_SAID.contains(held) && !by_pod.contains_key(**held));
        let required: Vec<&str> = required.copied().collect();
        let list = |name: &str| at(object, &["spec", name]).and_then(Value::as_array).into_iter().flatten();
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for container in list("containers").chain(list("initContainers")) {
            let said = computed(&of(container, "requests"), &of(container, "limits"));
            for resource in required.iter().filter(|resource| !said.contains_key(**resource)) {
                missing.entry(resource).or_default().insert(str_at(container, &["name"]).unwrap_or_default());
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let line = |(resource, names): (&str, BTreeSet<&str>)| {
            format!("{resource} for: {}", names.into_iter().collect::<Vec<&str>>().join(","))
        };
        Err(format!("must specify {}", missing.into_iter().map(line).collect::<Vec<String>>().join("; ")))
    }

    /// The quota resources that count the objects.
    fn names(&self) -> Vec<String> {
        let CountedObject::Object { group, resource } = self else { return Vec::new() };
        let counted = if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") };
        let has_short_name =
            matches!((*group, *resource), ("", "configmaps" | "replicationcontrollers" | "resourcequotas" | "secrets"));
        std::iter::once(counted).chain(has_short_name.then(|| (*resource).to_owned())).collect()
    }
}

fn of_claim(claim: &Value) -> Amounts {
    let annotated = str_at(claim, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    let class = annotated.or(str_at(claim, &["spec", "storageClassName"])).filter(|class| !class.is_empty());
    let room = at(claim, &["spec", "resources", "requests", "storage"]).and_then(Value::as_str);
    let allocated = at(claim, &["status", "allocatedResources", "storage"]).and_then(Value::as_str);
    let room = [room, allocated].into_iter().flatten().filter_map(|text| Quantity::parse(text).ok()).max();
    let mut usage = Amounts::from([("count/persistentvolumeclaims".to_owned(), Quantity::units(1))]);
    let counted = [("persistentvolumeclaims", Some(Quantity::units(1))), ("requests.storage", room)];
    for (resource, amount) in counted.into_iter().filter_map(|(resource, amount)| Some((resource, amount?))) {
        usage.insert(resource.to_owned(), amount);
        if let Some(class) = class {
            usage.insert(format!("{class}{CLASS}{resource}"), amount);
        }
    }
    usage
}

fn of_pod(pod: &Value) -> Amounts {
    let one = Quantity::units(1);
    let mut usage = Amounts::from([("count/pods".to_owned(), one)]);
    // A pod that has ended is only counted as an object.
    if !matches!(str_at(pod, &["status", "phase"]), Some("Failed" | "Succeeded")) {
        usage.insert("pods".to_owned(), one);
        usage.append(&mut computed(&totals::requests(pod), &totals::limits(pod)));
    }
    usage
}

/// Requests and limits under the names of quotas.
fn computed(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut computed = Amounts::new();
    for resource in ["cpu", "ephemeral-storage", "memory"] {
        if let Some(request) = requests.get(resource) {
            computed.insert(resource.to_owned(), *request);
            computed.insert(format!("requests.{resource}"), *request);
        }
        if let Some(limit) = limits.get(resource) {
            computed.insert(format!("limits.{resource}"), *limit);
        }
    }
    for (resource, request) in requests {
        if resource_name::is_huge_page(resource) {
            computed.insert(resource.clone(), *request);
        }
        if resource_name::is_huge_page(resource) || resource_name::is_extended(resource) {
            computed.insert(format!("requests.{resource}"), *request);
        }
    }
    computed
}

fn of_service(service: &Value) -> Amounts {
    let ports = at(service, &["spec", "ports"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has_port = |port: &&Value| port.get("nodePort").and_then(Value::as_i64).is_some_and(|number| number != 0);
    let gets_ports = at(service, &["spec", "allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false));
    let (node_ports, balancers) = match str_at(service, &["spec", "type"]) {
        Some("LoadBalancer") if gets_ports => (ports.len(), 1),
        Some("LoadBalancer") => (ports.iter().filter(has_port).count(), 1),
        Some("NodePort") => (ports.len(), 0),
        _ => (0, 0),
    };
    let counted = [
        ("count/services", 1),
        ("services", 1),
        ("services.loadbalancers", balancers),
        ("services.nodeports", node_ports),
    ];
    let amount = |number: usize| Quantity::units(i64::try_from(number).unwrap_or(i64::MAX));
    counted.into_iter().map(|(resource, number)| (resource.to_owned(), amount(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(usage: &Amounts) -> String {
        usage.iter().map(|(resource, amount)| format!("{resource}={amount}")).collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn objects_count_by_kind() {
        let secrets = CountedObject::Object { group: "", resource: "secrets" };
        assert_eq!(texts(&secrets.usage(&json!({}))), "count/secrets=1 secrets=1");
        let deployments = CountedObject::Object { group: "apps", resource: "deployments" };
        assert_eq!(texts(&deployments.usage(&json!({}))), "count/deployments.apps=1");
        let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(
            texts(&CountedObject::Claim.usage(&claim)),
            "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi"
        );
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}, {"port": 81}]}});
        assert_eq!(
            texts(&CountedObject::Service.usage(&service)),
            "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"
        );
    }

    #[test]
    fn a_pod_uses_what_it_asks_for_until_it_has_ended() {
        let resources = json!({"requests": {"cpu": "1m", "example.com/gpu": "2"}, "limits": {"memory": "1Gi"}});
        let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        assert_eq!(
            texts(&CountedObject::Pod.usage(&pod)),
            "count/pods=1 cpu=1m limits.memory=1Gi pods=1 requests.cpu=1m requests.example.com/gpu=2"
        );
        pod["status"] = json!({"phase": "Succeeded"});
        assert_eq!(texts(&CountedObject::Pod.usage(&pod)), "count/pods=1");
    }

    #[test]
    fn containers_must_say_what_is_held() {
        let pod = json!({"spec": {
            "containers": [{"name": "d"}, {"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "a"}],
        }});
        let why = "must specify cpu for: a,d; limits.memory for: a,c,d";
        assert_eq!(CountedObject::Pod.check(&pod, &["cpu", "limits.memory", "pods"]), Err(why.to_owned()));
        assert_eq!(CountedObject::Pod.check(&pod, &["pods", "requests.ephemeral-storage"]), Ok(()));
    }
}
