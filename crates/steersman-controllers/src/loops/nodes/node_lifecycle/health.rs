//! Whether a Node has sent a heartbeat lately, and the status of a Node that has not.
//!
//! Times in Nodes and Leases come from other clocks, so they are only compared with their previous values. A change
//! counts as a heartbeat at the time at which it is observed.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;
use tokio::time::Instant;

/// How long a Node may go without a heartbeat.
const GRACE: Duration = Duration::from_secs(50);
/// How long a Node that has never reported its condition `Ready` may go without a heartbeat.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// The conditions that become unknown when a Node sends no heartbeats.
const UNKNOWN: [&str; 4] = [READY, "MemoryPressure", "DiskPressure", "PIDPressure"];

pub(super) const READY: &str = "Ready";

/// The observed state of a Node.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// The time of the last observed heartbeat.
    heard: Instant,
    /// The heartbeat of its condition `Ready`, if it had that condition.
    heartbeat: Option<Option<Timestamp>>,
    /// The renewal of its Lease, if it had one.
    renewal: Option<Option<Timestamp>>,
    pub(super) uid: Option<String>,
    pub(super) zone: String,
    /// Whether its Pods are still to be marked as not ready.
    pub(super) is_to_mark_pods: bool,
}

/// The time of an observation, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) clock: Timestamp,
    pub(super) instant: Instant,
}

// === impl Health ===

impl Health {
    /// The state of a Node at its first observation.
    pub(super) fn new(node: &Node, lease: Option<&Lease>, now: Now) -> Health {
        let ready = condition(node, READY);
        // A Node that has never reported counts as silent since its creation.
        let age = node.metadata.creation_timestamp.as_ref().map(|created| now.clock.duration_since(created.0));
        let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
        let is_heard = ready.is_some() || lease.is_some();
        let heard = if is_heard { now.instant } else { now.instant.checked_sub(age).unwrap_or(now.instant) };
        Health {
            heard,
            heartbeat: ready.map(heartbeat),
            is_to_mark_pods: false,
            renewal: lease.map(renewal),
            uid: node.metadata.uid.clone(),
            zone: zone(node),
        }
    }

    /// Updates the state from the Node and its Lease.
    pub(super) fn observe(&mut self, node: &Node, lease: Option<&Lease>, now: Now) {
        let seen = condition(node, READY).map(heartbeat);
        if seen != self.heartbeat {
            self.heartbeat = seen;
            self.heard = now.instant;
        }
        if let Some(seen) = lease.map(renewal) {
            let is_renewed = match self.renewal {
                None => true,
                Some(before) => before.zip(seen).is_some_and(|(before, seen)| before < seen),
            };
            if is_renewed {
                self.renewal = Some(seen);
                self.heard = now.instant;
            }
        }
    }

    /// Records a write of unknown conditions by this loop, which is not a heartbeat.
    pub(super) fn wrote(&mut self, node: &Node) {
        self.heartbeat = condition(node, READY).map(heartbeat);
    }

    /// Restarts the grace period, after a time in which no Node sent heartbeats.
    pub(super) fn excuse(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The rest of the grace period; `None` if it has passed.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let grace = if self.heartbeat.is_some() { GRACE } else { STARTUP_GRACE };
        let silence = now.saturating_duration_since(self.heard);
        // Silence of exactly the grace period is still allowed.
        grace.checked_sub(silence).map(|left| left.saturating_add(Duration::from_millis(1)))
    }
}

pub(super) fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn heartbeat(condition: &NodeCondition) -> Option<Timestamp> {
    condition.last_heartbeat_time.as_ref().map(|time| time.0)
}

fn renewal(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// The failure zone of a Node; empty if it is in none.
pub(super) fn zone(node: &Node) -> String {
    let label = |keys: [&str; 2]| {
        let labels = node.metadata.labels.as_ref()?;
        keys.into_iter().find_map(|key| labels.get(key)).cloned()
    };
    let zone = label(["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"]).unwrap_or_default();
    let region =
        label(["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"]).unwrap_or_default();
    if zone.is_empty() && region.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

/// The status of a Node that has been silent for too long. `None` if its condition `Ready` stays the same: then nothing
/// is written.
pub(super) fn silenced(node: &Node, now: Timestamp) -> Option<NodeStatus> {
    let mut status = node.status.clone().unwrap_or_default();
    let is_known = condition(node, READY).is_none_or(|ready| ready.status != "Unknown");
    if !is_known {
        return None;
    }
    let conditions = status.conditions.get_or_insert_default();
    for type_ in UNKNOWN {
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
            }
            None => conditions.push(NodeCondition {
                type_: type_.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    const CREATED: i64 = 1_000;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    /// A Node with these conditions and this heartbeat time.
    fn node(conditions: &[(&str, &str)], heartbeat: i64) -> Node {
        let mut node = Node::default();
        node.metadata.creation_timestamp = Some(Time(at(CREATED)));
        let conditions = conditions.iter().map(|(type_, status)| NodeCondition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            last_heartbeat_time: Some(Time(at(heartbeat))),
            ..NodeCondition::default()
        });
        node.status.get_or_insert_default().conditions = Some(conditions.collect());
        node
    }

    fn lease(renewal: i64) -> Lease {
        let spec = LeaseSpec { renew_time: Some(MicroTime(at(renewal))), ..LeaseSpec::default() };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    /// Returns times counted in seconds from a common start.
    fn clock(clock: i64) -> impl Fn(u64) -> Now {
        let instant = Instant::now() + Duration::from_secs(1_000_000);
        move |secs| Now { clock: at(clock), instant: instant + Duration::from_secs(secs) }
    }

    #[tokio::test]
    async fn a_heartbeat_counts_when_it_is_seen_whatever_time_it_names() {
        let now = clock(CREATED);
        let mut health = Health::new(&node(&[(READY, "True")], 5), None, now(0));
        assert!(health.left(now(50).instant).is_some());
        assert!(health.left(now(51).instant).is_none());
        health.observe(&node(&[(READY, "True")], 5), None, now(40));
        assert!(health.left(now(51).instant).is_none(), "the same heartbeat");
        health.observe(&node(&[(READY, "True")], 1), None, now(40));
        assert!(health.left(now(90).instant).is_some());
        health.observe(&node(&[], 1), None, now(80));
        assert!(health.left(now(140).instant).is_some(), "a condition that is taken away is a sign of life too");
    }

    #[tokio::test]
    async fn a_renewal_of_the_lease_is_a_sign_of_life_and_an_older_one_is_none() {
        let now = clock(CREATED);
        let ready = node(&[(READY, "True")], 5);
        let mut health = Health::new(&ready, Some(&lease(10)), now(0));
        health.observe(&ready, Some(&lease(11)), now(40));
        assert!(health.left(now(90).instant).is_some());
        health.observe(&ready, Some(&lease(9)), now(80));
        health.observe(&ready, None, now(80));
        assert!(health.left(now(91).instant).is_none());
    }

    #[tokio::test]
    async fn a_node_that_never_said_anything_has_a_minute_from_its_creation() {
        let now = clock(CREATED + 20);
        let health = Health::new(&node(&[], 0), None, now(0));
        assert!(health.left(now(40).instant).is_some());
        assert!(health.left(now(41).instant).is_none());
        let future = clock(CREATED - 1_000_000);
        assert!(Health::new(&node(&[], 0), None, future(0)).left(future(60).instant).is_some());
        let old = clock(9_000_000_000);
        let _ = Health::new(&node(&[], 0), None, old(0)).left(old(0).instant);
    }

    #[test]
    fn what_a_silent_node_said_becomes_unknown_and_what_it_never_said_too() {
        let status = silenced(&node(&[("DiskPressure", "False"), (READY, "True")], 5), at(9)).unwrap();
        let texts: Vec<String> = status
            .conditions
            .unwrap()
            .iter()
            .map(|condition| {
                format!("{}={} {}", condition.type_, condition.status, condition.reason.as_deref().unwrap())
            })
            .collect();
        assert_eq!(
            texts,
            [
                "DiskPressure=Unknown NodeStatusUnknown",
                "Ready=Unknown NodeStatusUnknown",
                "MemoryPressure=Unknown NodeStatusNeverUpdated",
                "PIDPressure=Unknown NodeStatusNeverUpdated",
            ]
        );
        assert!(silenced(&node(&[], 5), at(9)).is_some());
        assert!(silenced(&node(&[(READY, "Unknown"), ("DiskPressure", "True")], 5), at(9)).is_none());
    }

    #[test]
    fn a_zone_is_named_by_region_and_zone() {
        let mut node = node(&[], 0);
        assert_eq!(zone(&node), "");
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("topology.kubernetes.io/zone".to_owned(), "b".to_owned());
        assert_eq!(zone(&node), ":\0:b");
    }
}
