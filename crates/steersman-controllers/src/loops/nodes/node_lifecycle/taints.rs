//! Computes the taints and labels of a Node from its conditions.

use crate::loops::nodes::node_lifecycle::health::{self, READY};
use crate::loops::nodes::node_lifecycle::zones::Zones;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

const NO_EXECUTE: &str = "NoExecute";
const NO_SCHEDULE: &str = "NoSchedule";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// A condition, its status, and the taint for it.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    (READY, "False", NOT_READY),
    (READY, "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
/// Labels, and their deprecated equivalents.
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The change of a Node's NoExecute taints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NoExecute {
    /// Add this taint. If the Node has none yet, it waits for its turn.
    Add {
        key: &'static str,
    },
    Keep,
    /// Remove both taints.
    Remove,
    /// Replace one of the taints by the other at once.
    Swap {
        to: &'static str,
        from: &'static str,
    },
}

/// The NoExecute taint that a Node should have: none while no zone has a ready Node.
pub(super) fn no_execute(node: &Node, zones: &Zones) -> NoExecute {
    let Some(ready) = health::condition(node, READY) else { return NoExecute::Keep };
    let (key, other) = match ready.status.as_str() {
        "True" => return NoExecute::Remove,
        _ if zones.is_all_disrupted() => return NoExecute::Remove,
        "False" => (NOT_READY, UNREACHABLE),
        "Unknown" => (UNREACHABLE, NOT_READY),
        _ => return NoExecute::Keep,
    };
    if has(taints(node), other, NO_EXECUTE) {
        NoExecute::Swap { to: key, from: other }
    } else if has(taints(node), key, NO_EXECUTE) {
        NoExecute::Keep
    } else {
        NoExecute::Add { key }
    }
}

/// The taints that a Node should have.
pub(super) fn wanted(node: &Node, no_execute: NoExecute, now: Timestamp) -> Vec<Taint> {
    let scheduling = no_schedule(node);
    let is_ours = |key: &str| key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(.., taint)| *taint == key);
    let stays = |taint: &&Taint| match (taint.effect.as_str(), taint.key.as_str()) {
        (NO_SCHEDULE, key) => !is_ours(key) || scheduling.contains(&key),
        (NO_EXECUTE, NOT_READY | UNREACHABLE) => match no_execute {
            NoExecute::Remove => false,
            NoExecute::Swap { from, .. } => taint.key != from,
            NoExecute::Add { .. } | NoExecute::Keep => true,
        },
        _ => true,
    };
    let mut wanted: Vec<Taint> = taints(node).iter().filter(stays).cloned().collect();
    let executing = match no_execute {
        NoExecute::Add { key } | NoExecute::Swap { to: key, .. } => Some(key),
        NoExecute::Keep | NoExecute::Remove => None,
    };
    let new = scheduling.into_iter().map(|key| (key, NO_SCHEDULE)).chain(executing.map(|key| (key, NO_EXECUTE)));
    for (key, effect) in new {
        if !has(&wanted, key, effect) {
            wanted.push(Taint {
                effect: effect.to_owned(),
                key: key.to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    wanted
}

/// The keys of the NoSchedule taints for a Node's conditions.
fn no_schedule(node: &Node) -> Vec<&'static str> {
    let is_said =
        |type_: &str, status: &str| health::condition(node, type_).is_some_and(|condition| condition.status == status);
    let said = BY_CONDITION.iter().filter(|(type_, status, _)| is_said(type_, status)).map(|(.., taint)| *taint);
    let is_unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    said.chain(is_unschedulable.then_some(UNSCHEDULABLE)).collect()
}

/// The labels that a Node lacks.
pub(super) fn missing_labels(node: &Node) -> BTreeMap<&'static str, &str> {
    let Some(labels) = &node.metadata.labels else { return BTreeMap::new() };
    let missing = LABELS.iter().filter_map(|(key, old)| {
        let value = labels.get(*key)?;
        (labels.get(*old) != Some(value)).then_some((*old, value.as_str()))
    });
    missing.collect()
}

pub(super) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn has(taints: &[Taint], key: &str, effect: &str) -> bool {
    taints.iter().any(|taint| taint.key == key && taint.effect == effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::nodes::node_lifecycle::zones::Count;
    use k8s_openapi::api::core::v1::NodeCondition;
    use tokio::time::Instant;

    fn node(conditions: &[(&str, &str)], taints: &[&str]) -> Node {
        let mut node = Node::default();
        let taint = |text: &&str| {
            let (key, effect) = text.split_once(':').unwrap();
            Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
        };
        node.spec.get_or_insert_default().taints = Some(taints.iter().map(taint).collect());
        let condition = |(type_, status): &(&str, &str)| NodeCondition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            ..NodeCondition::default()
        };
        node.status.get_or_insert_default().conditions = Some(conditions.iter().map(condition).collect());
        node
    }

    #[track_caller]
    fn check(node: &Node, no_execute: NoExecute, want: &[&str]) {
        let wanted = wanted(node, no_execute, Timestamp::UNIX_EPOCH);
        let texts: Vec<String> = wanted.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn each_condition_has_its_taint_and_those_of_others_stay() {
        let sick = node(
            &[(READY, "Unknown"), ("MemoryPressure", "True"), ("DiskPressure", "False")],
            &[
                "mine:NoSchedule",
                "node.kubernetes.io/disk-pressure:NoSchedule",
                "node.kubernetes.io/disk-pressure:NoExecute",
            ],
        );
        check(
            &sick,
            NoExecute::Keep,
            &[
                "mine:NoSchedule",
                "node.kubernetes.io/disk-pressure:NoExecute",
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/memory-pressure:NoSchedule",
            ],
        );
        let mut cordoned = node(&[(READY, "True")], &["node.kubernetes.io/not-ready:NoSchedule"]);
        cordoned.spec.get_or_insert_default().unschedulable = Some(true);
        check(&cordoned, NoExecute::Remove, &["node.kubernetes.io/unschedulable:NoSchedule"]);
    }

    #[test]
    fn the_two_taints_with_no_execute_exclude_each_other() {
        let (zones, mut disrupted) = (Zones::default(), Zones::default());
        let count = Count { ready: 0, not_ready: 1 };
        disrupted.update(&BTreeMap::from([(String::new(), count)]), Instant::now());
        let mut lost = node(&[(READY, "Unknown")], &[]);
        assert_eq!(no_execute(&lost, &zones), NoExecute::Add { key: UNREACHABLE });
        assert_eq!(no_execute(&lost, &disrupted), NoExecute::Remove);
        lost = node(&[(READY, "Unknown")], &["node.kubernetes.io/not-ready:NoExecute"]);
        let swap = no_execute(&lost, &zones);
        assert_eq!(swap, NoExecute::Swap { to: UNREACHABLE, from: NOT_READY });
        check(&lost, swap, &["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]);
        let back = node(&[(READY, "True")], &["node.kubernetes.io/unreachable:NoExecute"]);
        check(&back, no_execute(&back, &zones), &[]);
        assert_eq!(no_execute(&node(&[], &["node.kubernetes.io/not-ready:NoExecute"]), &zones), NoExecute::Keep);
    }

    #[test]
    fn labels_of_old_follow_those_of_today() {
        let mut node = node(&[], &[]);
        assert_eq!(missing_labels(&node), BTreeMap::new());
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
        labels.insert("beta.kubernetes.io/os".to_owned(), "plan9".to_owned());
        labels.insert("beta.kubernetes.io/arch".to_owned(), "vax".to_owned());
        assert_eq!(missing_labels(&node), BTreeMap::from([("beta.kubernetes.io/os", "linux")]));
    }
}
