//! Computes the status of a quota from the existing objects.

use crate::shared::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, ResourceRequirements, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::quota::{self, CountedObject};

/// The kinds that are counted by their short names as well as by `count/`.
const SHORT: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];
const COUNT: &str = "count/";

/// The kind of objects that a resource name of a quota counts.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Held {
    Claim,
    /// Objects of any other kind, which are only counted.
    Object {
        group: String,
        resource: String,
    },
    Pod,
    Service,
    /// The name counts no kind of objects.
    Unknown,
}

/// The usage, by the resource names of a quota.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    used: BTreeMap<String, Quantity>,
}

// === impl Held ===

impl Held {
    /// The kind of objects that a resource name counts.
    pub(crate) fn of(name: &str) -> Held {
        for held in [Held::Claim, Held::Pod, Held::Service] {
            if held.counts(name) {
                return held;
            }
        }
        let (resource, group) = match name.strip_prefix(COUNT) {
            Some(counted) => counted.split_once('.').unwrap_or((counted, "")),
            None if SHORT.contains(&name) => (name, ""),
            None => return Held::Unknown,
        };
        let held = Held::Object { group: group.to_owned(), resource: resource.to_owned() };
        if held.subject().is_some() && !resource.is_empty() { held } else { Held::Unknown }
    }

    /// Whether objects of this kind are counted under a name.
    pub(crate) fn counts(&self, name: &str) -> bool {
        self.subject().is_some_and(|subject| subject.is_counted_as(name))
    }

    fn subject(&self) -> Option<CountedObject<'_>> {
        match self {
            Held::Claim => Some(CountedObject::Claim),
            Held::Object { group, resource } => CountedObject::of(group, resource),
            Held::Pod => Some(CountedObject::Pod),
            Held::Service => Some(CountedObject::Service),
            Held::Unknown => None,
        }
    }
}

// === impl Usage ===

impl Usage {
    pub(crate) fn new() -> Usage {
        Usage::default()
    }

    /// Adds objects, as far as they are in the scopes of the quota, under the given names.
    pub(crate) fn add(&mut self, held: &Held, names: &[&str], quota: &Value, objects: &[Value]) {
        let Some(subject) = held.subject() else { return };
        self.begin(names);
        for object in objects.iter().filter(|object| quota::contains(&subject, object, quota)) {
            for (name, amount) in subject.usage(object) {
                if let Some(used) = self.used.get_mut(&name).filter(|_| names.contains(&&*name)) {
                    *used = used.plus(amount);
                }
            }
        }
    }

    /// Adds the usage that was counted under other names.
    pub(crate) fn extend(&mut self, other: Usage) {
        self.used.extend(other.used);
    }

    /// Like [`Usage::add`], for objects that are only counted.
    pub(crate) fn add_number(&mut self, held: &Held, names: &[&str], quota: &Value, number: usize) {
        self.begin(names);
        let is_within = held.subject().is_some_and(|subject| quota::contains(&subject, &Value::Null, quota));
        let number = Quantity::units(if is_within { i64::try_from(number).unwrap_or(i64::MAX) } else { 0 });
        for name in names {
            self.used.insert((*name).to_owned(), number);
        }
    }

    fn begin(&mut self, names: &[&str]) {
        for name in names {
            self.used.entry((*name).to_owned()).or_insert(Quantity::ZERO);
        }
    }
}

/// The quota with the computed status, or `None` if it has that already. Usage that could not be counted is left
/// unchanged.
pub(crate) fn counted(quota: &ResourceQuota, usage: Usage) -> Option<ResourceQuota> {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let known = quota.status.as_ref();
    let before = known.and_then(|status| status.used.clone()).unwrap_or_default();
    let mut used = before.clone();
    used.extend(usage.used.into_iter().map(|(name, amount)| (name, Text(amount.to_string()))));
    used.retain(|name, _| hard.contains_key(name));
    let amount = |text: &Text| Quantity::parse(&text.0).map(Quantity::nanos).ok();
    let is_same = |a: &BTreeMap<String, Text>, b: &BTreeMap<String, Text>| {
        a.len() == b.len()
            && a.iter().all(|(name, text)| b.get(name).is_some_and(|other| amount(text) == amount(other)))
    };
    let is_written = known.is_some_and(|status| status.hard.is_some() && status.used.is_some());
    let hard_before = known.and_then(|status| status.hard.clone()).unwrap_or_default();
    if is_written && is_same(&hard, &hard_before) && is_same(&used, &before) {
        return None;
    }
    let status = Some(ResourceQuotaStatus { hard: Some(hard), used: Some(used) });
    Some(ResourceQuota { status, ..quota.clone() })
}

/// The fields of a Pod that counting needs. A Pod that is overdue because its node is lost counts as terminated.
pub(crate) fn brief(pod: &Pod, now: Timestamp) -> Result<Value, serde_json::Error> {
    let phase = match ends_at(pod) {
        Some(end) if end < now => Some("Failed"),
        _ => pod.status.as_ref().and_then(|status| status.phase.as_deref()),
    };
    let Some(spec) = &pod.spec else { return Ok(json!({"status": {"phase": phase}})) };
    let containers = |list: &[Container]| -> Result<Vec<Value>, serde_json::Error> {
        let brief = list.iter().map(|one| {
            let resources = serde_json::to_value(&one.resources)?;
            Ok(json!({"resources": resources, "restartPolicy": one.restart_policy}))
        });
        brief.collect()
    };
    Ok(json!({
        "spec": {
            "activeDeadlineSeconds": spec.active_deadline_seconds,
            "affinity": serde_json::to_value(&spec.affinity)?,
            "containers": containers(&spec.containers)?,
            "initContainers": containers(spec.init_containers.as_deref().unwrap_or_default())?,
            "overhead": serde_json::to_value(&spec.overhead)?,
            "priorityClassName": spec.priority_class_name,
            "resources": serde_json::to_value(&spec.resources)?,
        },
        "status": {"phase": phase},
    }))
}

/// When a Pod that is being deleted counts as terminated: one more grace period after its deletion timestamp, as
/// upstream.
fn ends_at(pod: &Pod) -> Option<Timestamp> {
    let deleted = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = jiff::SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds?);
    Some(deleted.checked_add(grace).unwrap_or(Timestamp::MAX))
}

/// How long until a Pod counts as terminated.
pub(crate) fn time_left(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let left = ends_at(pod)?.duration_since(now);
    // A second later, because it still counts at the exact time.
    Duration::try_from(left).ok().map(|left| left.saturating_add(Duration::from_secs(1)))
}

/// Whether an update of a Pod may free usage, or move the Pod from one quota to another.
pub(crate) fn frees_pod(old: &Pod, new: &Pod) -> bool {
    /// The resources of containers, and whether each is an init container.
    fn resources(pod: &Pod) -> impl Iterator<Item = (bool, Option<&ResourceRequirements>)> {
        let spec = pod.spec.as_ref();
        let init_containers = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        let containers = spec.into_iter().flat_map(|spec| &spec.containers);
        init_containers
            .map(|one| (true, one.resources.as_ref()))
            .chain(containers.map(|one| (false, one.resources.as_ref())))
    }
    let has_deadline = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
    pods::is_terminal(old) != pods::is_terminal(new)
        || pods::is_terminating(old) != pods::is_terminating(new)
        || has_deadline(old) != has_deadline(new)
        || resources(old).ne(resources(new))
}

/// Whether an update of a claim may change the usage.
pub(crate) fn frees_claim(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    fn facts(claim: &PersistentVolumeClaim) -> impl PartialEq {
        let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
        (
            spec.and_then(|spec| spec.resources.as_ref()),
            spec.and_then(|spec| spec.volume_attributes_class_name.as_ref()),
            status.and_then(|status| status.allocated_resources.as_ref()),
        )
    }
    facts(old) != facts(new)
}

/// Whether an update of a Service may change the usage.
pub(crate) fn frees_service(old: &Service, new: &Service) -> bool {
    fn facts(service: &Service) -> impl PartialEq {
        let spec = service.spec.as_ref();
        let n_ports = spec.and_then(|spec| spec.ports.as_ref()).map_or(0, Vec::len);
        (
            spec.and_then(|spec| spec.type_.as_ref()),
            n_ports,
            spec.and_then(|spec| spec.allocate_load_balancer_node_ports),
        )
    }
    facts(old) != facts(new)
}

#[cfg(test)]
mod tests;
