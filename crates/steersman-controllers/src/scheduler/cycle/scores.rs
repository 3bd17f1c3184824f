//! Scores of nodes: 0 to 100 for each plugin, with the weights of the default profile.

use crate::scheduler::cycle::Cycle;
use crate::scheduler::node::Node;
use crate::scheduler::plugins::affinity::AffinityScores;
use crate::scheduler::plugins::spread::{self, SpreadScores};
use crate::scheduler::pod::Placed;
use crate::shared::labels::Selector;
use std::sync::Arc;

impl Cycle<'_> {
    /// The total score of each node.
    pub(super) fn score(&self, nodes: &[&Node], default_selector: &Arc<Selector>) -> Vec<i64> {
        let pending = self.pending;
        let mut total = vec![0_i64; nodes.len()];
        let mut add = |weight: i64, scores: Vec<i64>| {
            for (total, score) in total.iter_mut().zip(scores) {
                *total += weight * score;
            }
        };
        let taints = nodes.iter().map(|node| pending.tolerations.count_avoided(&node.facts().taints)).collect();
        add(3, reversed(taints));
        if !pending.preferred_nodes.is_empty() {
            let of = |node: &&Node| {
                let terms = pending.preferred_nodes.iter();
                let matching = terms.filter(|(_, term)| term.matches(&node.name, &node.facts().labels));
                matching.map(|(weight, _)| weight).sum()
            };
            add(2, relative(nodes.iter().map(of).collect()));
        }
        add(1, nodes.iter().map(|node| least_allocated(&pending.pod, node)).collect());
        if let Some(scores) = SpreadScores::of(self.cluster, pending, nodes, default_selector) {
            add(2, scores.score(pending, nodes));
        }
        if let Some(scores) = AffinityScores::of(self.cluster, pending) {
            add(2, scores.score(nodes));
        }
        if pending.pod.requests.exact.cpu != 0 || pending.pod.requests.exact.memory != 0 {
            add(1, nodes.iter().map(|node| balanced_allocation(&pending.pod, node)).collect());
        }
        add(1, nodes.iter().map(|node| self.image_locality(node)).collect());
        total
    }

    fn image_locality(&self, node: &Node) -> i64 {
        const MEGABYTE: i64 = 1024 * 1024;
        const LEAST: i64 = 23 * MEGABYTE;
        const MOST_OF_CONTAINER: i64 = 1_000 * MEGABYTE;
        let facts = node.facts();
        if facts.images.is_empty() {
            return 0;
        }
        let n_nodes = spread::float(i64::try_from(self.cluster.n_nodes().max(1)).unwrap_or(i64::MAX));
        let of = |image: &String| {
            let size = facts.image_size(image)?;
            let share = spread::float(self.cluster.n_nodes_with(image)) / n_nodes;
            Some(spread::whole(spread::float(size) * share))
        };
        let sum: i64 = self.pending.images.iter().filter_map(of).sum();
        let most = MOST_OF_CONTAINER.saturating_mul(self.pending.n_containers.max(1));
        let sum = i128::from(sum.clamp(LEAST, most));
        i64::try_from(100 * (sum - i128::from(LEAST)) / i128::from(most - LEAST)).unwrap_or_default()
    }
}

fn relative(mut scores: Vec<i64>) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or_default();
    if 0 < most {
        scores.iter_mut().for_each(|score| *score = score.saturating_mul(100) / most);
    }
    scores
}

fn reversed(scores: Vec<i64>) -> Vec<i64> {
    relative(scores).into_iter().map(|score| 100 - score).collect()
}

/// Higher if more resources are left.
fn least_allocated(pod: &Placed, node: &Node) -> i64 {
    let has = &node.facts().allocatable;
    let of = |has: i64, used: i128, wanted: i64| {
        let (has, sum) = (i128::from(has), used + i128::from(wanted));
        (has != 0).then(|| if has < sum { 0 } else { (has - sum) * 100 / has })
    };
    let cpu = of(has.cpu, node.cpu_at_least, pod.requests.cpu_at_least);
    let memory = of(has.memory, node.memory_at_least, pod.requests.memory_at_least);
    let sum = match (cpu, memory) {
        (Some(cpu), Some(memory)) => (cpu + memory) / 2,
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => 0,
    };
    i64::try_from(sum).unwrap_or_default()
}

/// Higher if CPU and memory are used more evenly.
fn balanced_allocation(pod: &Placed, node: &Node) -> i64 {
    let has = &node.facts().allocatable;
    let evenness = |cpu: i128, memory: i128| {
        let share = |used: i128, has: i64| {
            #[expect(clippy::cast_precision_loss, reason = "a share needs no more than the precision of a double")]
            let share = if has == 0 { None } else { Some((used as f64 / has as f64).min(1.0)) };
            share
        };
        let deviation = match (share(cpu, has.cpu), share(memory, has.memory)) {
            (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
            _ => 0.0,
        };
        spread::whole((1.0 - deviation) * 100.0)
    };
    let (used, wanted) = (&node.requested, &pod.requests.exact);
    let with = evenness(used.cpu + i128::from(wanted.cpu), used.memory + i128::from(wanted.memory));
    50 + (50 + with - evenness(used.cpu, used.memory)) / 2
}
