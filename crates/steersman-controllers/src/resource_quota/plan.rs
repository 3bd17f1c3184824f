//! What the status of a quota should be, of the objects that there are.

use crate::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, ResourceRequirements, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::quota::{self, Subject};

/// The kinds that a short name counts, as `count/` does.
const SHORT: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];
const COUNT: &str = "count/";

/// What a quota counts under some names.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Held {
    Claim,
    /// Objects of any other kind, of which only the number counts.
    Object {
        group: String,
        resource: String,
    },
    Pod,
    Service,
    /// Nothing that there is.
    Unknown,
}

/// What is used, by the names of a quota.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    used: BTreeMap<String, Quantity>,
}

// === impl Held ===

impl Held {
    /// What a quota counts under a name.
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

    /// Whether these are counted under a name.
    pub(crate) fn counts(&self, name: &str) -> bool {
        self.subject().is_some_and(|subject| subject.is_counted_as(name))
    }

    fn subject(&self) -> Option<Subject<'_>> {
        match self {
            Held::Claim => Some(Subject::Claim),
            Held::Object { group, resource } => Subject::of(group, resource),
            Held::Pod => Some(Subject::Pod),
            Held::Service => Some(Subject::Service),
            Held::Unknown => None,
        }
    }
}

// === impl Usage ===

impl Usage {
    pub(crate) fn new() -> Usage {
        Usage::default()
    }

    /// Counts objects under the names of a quota, as far as they are in its scopes.
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

    /// Adds what was counted under other names.
    pub(crate) fn extend(&mut self, other: Usage) {
        self.used.extend(other.used);
    }

    /// As [`Usage::add`], of objects of which only the number counts.
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

/// The quota with the status that it should have, unless it has it. What could not be counted stays as it was.
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

/// What counting needs of a Pod. One that should have ended by now, and has not because its node is lost, counts as ended.
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

/// When a Pod that is being deleted counts as ended: its grace period after it should have been gone, as upstream has it.
fn ends_at(pod: &Pod) -> Option<Timestamp> {
    let deleted = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = jiff::SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds?);
    Some(deleted.checked_add(grace).unwrap_or(Timestamp::MAX))
}

/// How long until a Pod counts as ended.
pub(crate) fn time_left(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let left = ends_at(pod)?.duration_since(now);
    // A moment later, because it counts until then.
    Duration::try_from(left).ok().map(|left| left.saturating_add(Duration::from_secs(1)))
}

/// Whether an update of a Pod may leave more to others, or move it from one quota to another.
pub(crate) fn frees_pod(old: &Pod, new: &Pod) -> bool {
    /// What containers ask for, and whether they are init containers.
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

/// Whether an update of a claim may count differently.
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

/// Whether an update of a Service may count differently.
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
