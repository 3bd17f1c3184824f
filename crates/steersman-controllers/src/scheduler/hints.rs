//! Queueing hints: which events may help a Pod that found no node, so that it is tried again.
//!
//! Follows the queueing hints of kube-scheduler's plugins. If an exact answer would be expensive, the hint is that the
//! event may help.

use crate::scheduler::cluster::Cluster;
use crate::scheduler::cluster::node::{Node, NodeFacts};
use crate::scheduler::cluster::pod::{Pending, Placed};
use crate::scheduler::configuration::SpreadDefaults;
use crate::scheduler::cycle;
use crate::scheduler::plugins::filters::{Plugin, PluginSet};
use std::sync::Arc;
use steersman::ObjectKey;

/// An event about other objects than the waiting Pod.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    Capacity,
    Claim(&'a ObjectKey),
    Class,
    CsiNode,
    Driver,
    NodeAdded {
        name: &'a str,
        facts: &'a Arc<NodeFacts>,
    },
    NodeChanged {
        name: &'a str,
        old: &'a NodeFacts,
        facts: &'a Arc<NodeFacts>,
    },
    NodeDeleted {
        facts: &'a NodeFacts,
    },
    /// A Pod is bound to a node or assumed there.
    PodAdded(&'a Placed),
    PodChanged {
        old: &'a Placed,
        new: &'a Placed,
    },
    PodDeleted(&'a Placed),
    Volume,
}

impl Event<'_> {
    /// Whether this event can help Pods that these plugins rejected: a quick check before [`Event::helps`].
    pub(crate) fn concerns(&self, plugins: PluginSet) -> bool {
        let any = |of: &[Plugin]| of.iter().any(|plugin| plugins.contains(*plugin));
        // An extender's answer may depend on anything, so every event counts.
        if plugins.contains(Plugin::Extender) {
            return true;
        }
        match self {
            Event::Capacity
            | Event::Claim(_)
            | Event::Class
            | Event::CsiNode
            | Event::Driver
            | Event::NodeAdded { .. }
            | Event::NodeChanged { .. }
            | Event::Volume => true,
            Event::NodeDeleted { .. } => any(&[Plugin::PodTopologySpread]),
            Event::PodAdded(_) => any(&[Plugin::PodTopologySpread, Plugin::InterPodAffinity]),
            Event::PodChanged { old, new } => {
                let is_other = !Arc::ptr_eq(&old.identity, &new.identity);
                (is_other && any(&[Plugin::PodTopologySpread, Plugin::InterPodAffinity]))
                    || (any(&[Plugin::NodeResourcesFit]) && is_scaled_down(old, new))
            }
            Event::PodDeleted(_) => true,
        }
    }

    /// Whether a Pod that these plugins rejected may find a node now.
    pub(crate) fn helps(&self, cluster: &Cluster, pending: &Pending, plugins: PluginSet) -> bool {
        let any = |of: &[Plugin]| of.iter().any(|plugin| plugins.contains(*plugin));
        if plugins.contains(Plugin::Extender) {
            return true;
        }
        match self {
            Event::Capacity | Event::Driver => any(&[Plugin::VolumeBinding]),
            Event::Claim(key) => {
                let volumes = [Plugin::VolumeBinding, Plugin::VolumeRestrictions, Plugin::VolumeZone];
                (any(&volumes) || plugins.contains(Plugin::NodeVolumeLimits)) && uses(pending, key)
            }
            Event::Class | Event::Volume => any(&[Plugin::VolumeBinding, Plugin::VolumeZone]),
            Event::CsiNode => any(&[Plugin::NodeVolumeLimits, Plugin::VolumeBinding]),
            Event::NodeAdded { name, facts } => {
                let added = any(&[Plugin::NoNodes, Plugin::NodePorts, Plugin::NodeVolumeLimits, Plugin::VolumeBinding]);
                added
                    || any(&[Plugin::VolumeZone, Plugin::InterPodAffinity])
                    || node_helps(pending, plugins, name, None, facts)
            }
            Event::NodeChanged { name, old, facts } => {
                let has_other_labels = old.labels != facts.labels;
                has_other_labels && any(&[Plugin::VolumeBinding, Plugin::VolumeZone, Plugin::InterPodAffinity])
                    || node_helps(pending, plugins, name, Some(old), facts)
            }
            Event::NodeDeleted { facts } => {
                plugins.contains(Plugin::PodTopologySpread) && has_topologies(pending, facts)
            }
            Event::PodAdded(pod) => pod_added_helps(cluster, pending, plugins, pod),
            Event::PodChanged { old, new } => {
                let is_smaller = is_scaled_down(old, new);
                (is_smaller && plugins.contains(Plugin::NodeResourcesFit))
                    || (!Arc::ptr_eq(&old.identity, &new.identity)
                        && (pod_added_helps(cluster, pending, plugins, new)
                            || pod_deleted_helps(cluster, pending, plugins, old)))
            }
            Event::PodDeleted(pod) => {
                any(&[Plugin::NodeResourcesFit, Plugin::NodeVolumeLimits])
                    || (plugins.contains(Plugin::NodePorts)
                        && pod.ports.iter().any(|port| pending.pod.ports.iter().any(|own| own.conflicts(port))))
                    || (plugins.contains(Plugin::VolumeRestrictions) && shares_volumes(pending, pod))
                    || pod_deleted_helps(cluster, pending, plugins, pod)
            }
        }
    }
}

/// Whether a Pod that found no node may find one because of its own change.
pub(crate) fn helps_itself(old: &Pending, new: &Pending, plugins: PluginSet) -> bool {
    let has_other_labels = !Arc::ptr_eq(&old.pod.identity, &new.pod.identity);
    let has_tolerations = old.tolerations.len() != new.tolerations.len();
    if plugins.contains(Plugin::Extender) {
        // A resize ends in the status, which is not part of the content.
        return has_other_labels || old.content != new.content || is_scaled_down(&old.pod, &new.pod);
    }
    (has_other_labels && (plugins.contains(Plugin::PodTopologySpread) || plugins.contains(Plugin::InterPodAffinity)))
        || (has_tolerations
            && (plugins.contains(Plugin::TaintToleration)
                || plugins.contains(Plugin::NodeUnschedulable) && new.tolerations.allow_unschedulable()))
        || (is_scaled_down(&old.pod, &new.pod) && plugins.contains(Plugin::NodeResourcesFit))
}

fn is_scaled_down(old: &Placed, new: &Placed) -> bool {
    let (old, new) = (&old.requests.exact, &new.requests.exact);
    let is_less = |(name, amount): (&String, &i64)| new.scalars.get(name).is_none_or(|new| new < amount);
    new.cpu < old.cpu
        || new.memory < old.memory
        || new.ephemeral_storage < old.ephemeral_storage
        || old.scalars.iter().any(is_less)
}

fn node_helps(
    pending: &Pending,
    plugins: PluginSet,
    name: &str,
    old: Option<&NodeFacts>,
    facts: &Arc<NodeFacts>,
) -> bool {
    let was_unschedulable = old.is_none_or(|old| old.is_unschedulable);
    if plugins.contains(Plugin::NodeUnschedulable) && was_unschedulable && !facts.is_unschedulable {
        return true;
    }
    if plugins.contains(Plugin::TaintToleration)
        && old.is_none_or(|old| !pending.tolerations.allow(&old.taints))
        && pending.tolerations.allow(&facts.taints)
    {
        return true;
    }
    if plugins.contains(Plugin::NodeAffinity)
        && old.is_none_or(|old| !pending.matches_nodes(name, &old.labels))
        && pending.matches_nodes(name, &facts.labels)
    {
        return true;
    }
    if plugins.contains(Plugin::NodeResourcesFit) && old.is_none_or(|old| has_more(pending, old, facts)) {
        let mut empty = Node::new(&Arc::from(name));
        empty.facts = Some(Arc::clone(facts));
        if cycle::fits(&pending.pod, &pending.profile.fit, &empty).is_ok() {
            return true;
        }
    }
    plugins.contains(Plugin::PodTopologySpread)
        && old.is_none_or(|old| old.labels != facts.labels || old.taints != facts.taints)
        && (has_topologies(pending, facts) || old.is_some_and(|old| has_topologies(pending, old)))
}

fn has_more(pending: &Pending, old: &NodeFacts, facts: &NodeFacts) -> bool {
    let (wanted, old_has, has) = (&pending.pod.requests.exact, &old.allocatable, &facts.allocatable);
    let scalar = |has: &NodeFacts, name: &String| has.allocatable.scalars.get(name).copied().unwrap_or_default();
    old.pods_max < facts.pods_max
        || (!wanted.is_empty()
            && (old_has.cpu < has.cpu
                || old_has.memory < has.memory
                || old_has.ephemeral_storage < has.ephemeral_storage
                || wanted.scalars.keys().any(|name| scalar(old, name) < scalar(facts, name))))
}

fn has_topologies(pending: &Pending, facts: &NodeFacts) -> bool {
    pending.required_spread().all(|rule| facts.labels.contains_key(&rule.topology_key))
}

fn uses(pending: &Pending, claim: &ObjectKey) -> bool {
    claim.namespace() == Some(pending.pod.identity.namespace.as_str())
        && pending.volumes.iter().any(|used| &*used.name == claim.name())
}

fn shares_volumes(pending: &Pending, pod: &Placed) -> bool {
    pod.disks.iter().any(|disk| pending.pod.disks.iter().any(|own| own.conflicts(disk)))
        || (pod.identity.namespace == pending.pod.identity.namespace
            && pod.claims.iter().any(|claim| pending.pod.claims.contains(claim)))
}

/// Whether a topology spread constraint of the Pod selects another.
fn is_spread_with(pending: &Pending, pod: &Placed) -> bool {
    pod.identity.namespace == pending.pod.identity.namespace
        && (has_spread_of_profile(pending)
            || pending.required_spread().any(|rule| rule.selector.matches(&pod.identity.labels)))
}

/// Whether the Pod's constraints are those of its profile, whose selector depends on Services and owners.
fn has_spread_of_profile(pending: &Pending) -> bool {
    pending.spread.is_empty() && matches!(pending.profile.spread, SpreadDefaults::List(_))
}

fn pod_added_helps(cluster: &Cluster, pending: &Pending, plugins: PluginSet, pod: &Placed) -> bool {
    if plugins.contains(Plugin::PodTopologySpread) && is_spread_with(pending, pod) {
        return true;
    }
    let Some(affinity) = pending.pod.affinity.as_deref() else { return false };
    let namespace = cluster.namespace(&pod.identity.namespace);
    plugins.contains(Plugin::InterPodAffinity)
        && !affinity.required.is_empty()
        && affinity.required.iter().all(|term| term.matches(&pod.identity, namespace))
}

fn pod_deleted_helps(cluster: &Cluster, pending: &Pending, plugins: PluginSet, pod: &Placed) -> bool {
    if plugins.contains(Plugin::PodTopologySpread) && is_spread_with(pending, pod) {
        return true;
    }
    if !plugins.contains(Plugin::InterPodAffinity) {
        return false;
    }
    let own = &pending.pod;
    let namespace = cluster.namespace(&pod.identity.namespace);
    let own_namespace = cluster.namespace(&own.identity.namespace);
    own.required_anti().iter().any(|term| term.matches(&pod.identity, namespace))
        || pod.required_anti().iter().any(|term| term.matches(&own.identity, own_namespace))
}
