//! The requests of Pods and the allocatable resources of nodes, as numbers.
//!
//! Follows component-helpers' `resource.PodRequests`: init containers run before the others, sidecars beside them,
//! pod-level requests replace those of the containers, the overhead is added, and a resize under way counts with the
//! larger value.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// The requests assumed for a container without requests when nodes are scored.
const DEFAULT_CPU_MILLIS: i64 = 100;
const DEFAULT_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

const NANOS: i128 = 1_000_000_000;
const NANOS_OF_MILLI: i128 = 1_000_000;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// A resource of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Resource {
    Cpu,
    EphemeralStorage,
    Memory,
    /// An extended resource, huge pages and the like.
    Scalar(String),
}

/// Amounts by resource: millicores, bytes, and whole units of other resources.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Resources {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) ephemeral_storage: i64,
    /// Extended resources, huge pages and the like.
    pub(crate) scalars: BTreeMap<String, i64>,
}

/// The sum of the requests of a node's Pods. Wider than a single amount, so that no sum overflows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) cpu: i128,
    pub(crate) memory: i128,
    pub(crate) ephemeral_storage: i128,
    pub(crate) scalars: BTreeMap<String, i128>,
}

/// The requests of one Pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Requests {
    pub(crate) exact: Resources,
    /// The CPU request with a minimum for containers without one, used in scoring.
    pub(crate) cpu_at_least: i64,
    pub(crate) memory_at_least: i64,
}

/// Amounts in billionths by resource name, for summing.
type List = BTreeMap<String, i128>;
type Quantities = BTreeMap<String, Quantity>;

// === impl Resource ===

impl Resource {
    pub(crate) fn named(name: String) -> Resource {
        match name.as_str() {
            CPU => Resource::Cpu,
            EPHEMERAL_STORAGE => Resource::EphemeralStorage,
            MEMORY => Resource::Memory,
            _ => Resource::Scalar(name),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Resource::Cpu => CPU,
            Resource::EphemeralStorage => EPHEMERAL_STORAGE,
            Resource::Memory => MEMORY,
            Resource::Scalar(name) => name,
        }
    }
}

// === impl Resources ===

impl Resources {
    pub(crate) fn amount(&self, resource: &Resource) -> i64 {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::EphemeralStorage => self.ephemeral_storage,
            Resource::Memory => self.memory,
            Resource::Scalar(name) => self.scalars.get(name).copied().unwrap_or_default(),
        }
    }

    pub(crate) fn read(quantities: Option<&Quantities>) -> Resources {
        Resources::of(&list(quantities))
    }

    fn of(list: &List) -> Resources {
        let mut resources = Resources::default();
        for (name, nanos) in list {
            match name.as_str() {
                CPU => resources.cpu = millis(*nanos),
                MEMORY => resources.memory = units(*nanos),
                EPHEMERAL_STORAGE => resources.ephemeral_storage = units(*nanos),
                name if is_scalar(name) => {
                    resources.scalars.insert(name.to_owned(), units(*nanos));
                }
                _ => {}
            }
        }
        resources
    }

    /// Whether nothing is requested, so that no resource can be insufficient.
    pub(crate) fn is_empty(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }
}

/// The number of Pods that a node may have.
pub(crate) fn pods_max(quantities: Option<&Quantities>) -> i64 {
    quantities.and_then(|all| all.get("pods")).map_or(0, |quantity| units(nanos(quantity)))
}

/// The storage that a claim requests or a volume has, in bytes.
pub(crate) fn storage(quantities: Option<&Quantities>) -> Option<i64> {
    quantities.and_then(|all| all.get("storage")).map(bytes)
}

pub(crate) fn bytes(quantity: &Quantity) -> i64 {
    units(nanos(quantity))
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

fn nanos(quantity: &Quantity) -> i128 {
    steersman_machinery::quantity::Quantity::parse(&quantity.0)
        .map_or(0, steersman_machinery::quantity::Quantity::nanos)
}

fn units(nanos: i128) -> i64 {
    i64::try_from(nanos.div_euclid(NANOS) + i128::from(nanos.rem_euclid(NANOS) != 0)).unwrap_or(i64::MAX)
}

fn millis(nanos: i128) -> i64 {
    let up = i128::from(nanos.rem_euclid(NANOS_OF_MILLI) != 0);
    i64::try_from(nanos.div_euclid(NANOS_OF_MILLI) + up).unwrap_or(i64::MAX)
}

fn list(quantities: Option<&Quantities>) -> List {
    quantities.into_iter().flatten().map(|(name, quantity)| (name.clone(), nanos(quantity))).collect()
}

fn add(list: &mut List, other: &List) {
    for (name, amount) in other {
        let known = list.entry(name.clone()).or_default();
        *known = known.saturating_add(*amount);
    }
}

fn raise(list: &mut List, other: &List) {
    for (name, amount) in other {
        let known = list.entry(name.clone()).or_insert(*amount);
        *known = (*known).max(*amount);
    }
}

// === impl Totals ===

impl Totals {
    pub(crate) fn add(&mut self, resources: &Resources) {
        self.change(resources, 1);
    }

    pub(crate) fn subtract(&mut self, resources: &Resources) {
        self.change(resources, -1);
    }

    fn change(&mut self, resources: &Resources, sign: i128) {
        self.cpu += sign * i128::from(resources.cpu);
        self.memory += sign * i128::from(resources.memory);
        self.ephemeral_storage += sign * i128::from(resources.ephemeral_storage);
        for (name, amount) in &resources.scalars {
            *self.scalars.entry(name.clone()).or_default() += sign * i128::from(*amount);
        }
    }

    pub(crate) fn scalar(&self, name: &str) -> i128 {
        self.scalars.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn amount(&self, resource: &Resource) -> i128 {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::EphemeralStorage => self.ephemeral_storage,
            Resource::Memory => self.memory,
            Resource::Scalar(name) => self.scalar(name),
        }
    }
}

// === impl Requests ===

impl Requests {
    pub(crate) fn read(pod: &Pod) -> Requests {
        let exact = total(pod, &List::new());
        let of_pod = of_pod_as_a_whole(pod);
        // A resource with a pod-level request needs no defaults for its containers.
        let defaults = [
            (CPU, i128::from(DEFAULT_CPU_MILLIS) * NANOS_OF_MILLI),
            (MEMORY, i128::from(DEFAULT_MEMORY_BYTES) * NANOS),
        ];
        let defaults = defaults.into_iter().filter(|(name, _)| of_pod.is_empty() || !exact.contains_key(*name));
        let defaults: List = defaults.map(|(name, amount)| (name.to_owned(), amount)).collect();
        let at_least = total(pod, &defaults);
        Requests {
            exact: Resources::of(&exact),
            cpu_at_least: at_least.get(CPU).map_or(0, |amount| millis(*amount)),
            memory_at_least: at_least.get(MEMORY).map_or(0, |amount| units(*amount)),
        }
    }
}

/// The pod-level requests, reduced to resources that may have them.
fn of_pod_as_a_whole(pod: &Pod) -> List {
    let resources = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let mut all = list(resources.and_then(|resources| resources.requests.as_ref()));
    all.retain(|name, _| name == CPU || name == MEMORY || name.starts_with("hugepages-"));
    all
}

/// The requests of a Pod, with `defaults` for resources that a container does not name.
fn total(pod: &Pod, defaults: &List) -> List {
    let Some(spec) = &pod.spec else { return List::new() };
    let status = pod.status.as_ref();
    let is_infeasible = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible"));
    let of = |container: &Container, statuses: Option<&Vec<ContainerStatus>>| {
        let known = statuses.into_iter().flatten().find(|status| status.name == container.name);
        let mut wanted = effective(container, known, is_infeasible);
        for (name, amount) in defaults {
            wanted.entry(name.clone()).or_insert(*amount);
        }
        wanted
    };
    let mut sum = List::new();
    for container in &spec.containers {
        add(&mut sum, &of(container, status.and_then(|status| status.container_statuses.as_ref())));
    }
    let (mut sidecars, mut while_starting) = (List::new(), List::new());
    for container in spec.init_containers.iter().flatten() {
        if is_sidecar(container) {
            let wanted = of(container, status.and_then(|status| status.init_container_statuses.as_ref()));
            add(&mut sum, &wanted);
            add(&mut sidecars, &wanted);
            raise(&mut while_starting, &sidecars);
        } else {
            let mut wanted = of(container, None);
            add(&mut wanted, &sidecars);
            raise(&mut while_starting, &wanted);
        }
    }
    raise(&mut sum, &while_starting);
    sum.extend(of_pod_as_a_whole(pod));
    add(&mut sum, &list(spec.overhead.as_ref()));
    sum
}

pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The requests of a container while it may be resized.
fn effective(container: &Container, status: Option<&ContainerStatus>, is_infeasible: bool) -> List {
    let wanted = list(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let Some(status) = status else { return wanted };
    let Some(actual) = &status.resources else { return wanted };
    let mut result = if is_infeasible { List::new() } else { wanted };
    raise(&mut result, &list(actual.requests.as_ref()));
    raise(&mut result, &list(status.allocated_resources.as_ref()));
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn requests(spec: Value) -> Requests {
        Requests::read(&serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn containers_add_up_and_the_largest_init_container_counts() {
        let found = requests(json!({
            "containers": [container("100m"), container("200m")],
            "initContainers": [container("250m"), container("1")],
        }));
        assert_eq!(found.exact.cpu, 1_000);
        assert_eq!(found.memory_at_least, 2 * DEFAULT_MEMORY_BYTES);
    }

    #[test]
    fn sidecars_run_beside_later_init_containers_and_the_containers() {
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "300m"}}});
        let found = requests(json!({"containers": [container("1")], "initContainers": [sidecar, container("900m")]}));
        assert_eq!(found.exact.cpu, 1_300);
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "300m"}}});
        let found =
            requests(json!({"containers": [container("100m")], "initContainers": [sidecar, container("900m")]}));
        assert_eq!(found.exact.cpu, 1_200);
    }

    #[test]
    fn the_pod_as_a_whole_replaces_its_containers_and_overhead_comes_on_top() {
        let found = requests(json!({
            "containers": [container("100m")],
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
            "overhead": {"cpu": "50m"},
        }));
        assert_eq!((found.exact.cpu, found.exact.memory), (2_050, 1 << 30));
        assert_eq!((found.cpu_at_least, found.memory_at_least), (2_050, 1 << 30));
    }

    #[test]
    fn extended_resources_count_and_names_that_are_none_do_not() {
        let found = requests(json!({"containers": [
            {"name": "c", "resources": {"requests": {"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "nonsense": "1"}}}]}));
        let names: Vec<&str> = found.exact.scalars.keys().map(String::as_str).collect();
        assert_eq!(names, ["example.com/gpu", "hugepages-2Mi"]);
        assert_eq!((found.cpu_at_least, found.memory_at_least), (DEFAULT_CPU_MILLIS, DEFAULT_MEMORY_BYTES));
    }
}
