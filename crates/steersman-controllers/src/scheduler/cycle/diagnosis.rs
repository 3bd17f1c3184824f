//! The reasons why a Pod does not fit nodes, and the message that states them.

use crate::scheduler::cluster::node::Node;
use crate::scheduler::plugins::filters::{Plugin, PluginSet};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Whether preempting Pods could make the node feasible.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Remedy {
    None,
    Preemption,
}

/// Why a Pod does not fit a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Rejection {
    pub(crate) plugin: Plugin,
    pub(crate) remedy: Remedy,
    pub(crate) reasons: Vec<Cow<'static, str>>,
}

/// The failure of a filter on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// The filter itself failed.
    Failed(String),
    Rejected(Rejection),
}

/// Why no node was found for a Pod.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    pub(crate) n_nodes: usize,
    /// The rejections of the nodes that were checked.
    pub(crate) rejections: BTreeMap<Arc<str>, Rejection>,
    /// The reason for the other nodes.
    pub(super) rest: Option<Cow<'static, str>>,
    /// The reason why no node was checked.
    pub(super) before: Option<String>,
    pub(crate) plugins: PluginSet,
}

impl Refusal {
    pub(super) fn unresolvable(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Rejected(Rejection { plugin, remedy: Remedy::None, reasons: vec![reason.into()] })
    }

    pub(super) fn resolvable(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Rejected(Rejection { plugin, remedy: Remedy::Preemption, reasons: vec![reason.into()] })
    }
}

// === impl Diagnosis ===

impl Diagnosis {
    pub(crate) fn before(n_nodes: usize, plugin: Plugin, why: String) -> Diagnosis {
        Diagnosis { n_nodes, before: Some(why), plugins: plugin.into(), ..Diagnosis::default() }
    }

    /// A diagnosis that is used for its message only.
    pub(crate) fn of(n_nodes: usize, rejections: BTreeMap<Arc<str>, Rejection>, rest: &'static str) -> Diagnosis {
        Diagnosis { n_nodes, rejections, rest: Some(rest.into()), ..Diagnosis::default() }
    }

    pub(super) fn add(&mut self, node: &Node, rejection: Rejection) {
        self.plugins.insert(rejection.plugin);
        self.rejections.insert(Arc::clone(&node.name), rejection);
    }

    /// Records what an extender says about a node.
    pub(crate) fn add_of_extender(&mut self, node: &Arc<str>, remedy: Remedy, reason: String) {
        let rejection = Rejection { plugin: Plugin::Extender, remedy, reasons: vec![reason.into()] };
        self.rejections.insert(Arc::clone(node), rejection);
    }

    /// The message of the condition and the Event: the number of nodes for each reason.
    pub(crate) fn message(&self) -> String {
        let mut message = format!("0/{} nodes are available:", self.n_nodes);
        if let Some(before) = &self.before {
            // Writing to a string does not fail.
            _ = write!(message, " {before}.");
            return message;
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.rejections.values().flat_map(|rejection| &rejection.reasons) {
            *reasons.entry(reason).or_default() += 1;
        }
        let n_rest = self.n_nodes.saturating_sub(self.rejections.len());
        if let Some(rest) = &self.rest
            && 0 < n_rest
        {
            *reasons.entry(rest).or_default() += n_rest;
        }
        // Sorted by the text, including the number.
        let mut texts: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        texts.sort();
        if !texts.is_empty() {
            _ = write!(message, " {}.", texts.join(", "));
        }
        message
    }
}
