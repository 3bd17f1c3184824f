//! Scores of nodes: 0 to 100 for each plugin, with the weights of the Pod's profile.

use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::Placed;
use crate::scheduler::configuration::{Fit, ShapePoint, Strategy};
use crate::scheduler::cycle::Cycle;
use crate::scheduler::plugins::affinity::AffinityScores;
use crate::scheduler::plugins::resources::Resource;
use crate::scheduler::plugins::spread::{self, SpreadScores};
use crate::shared::labels::Selector;
use std::sync::Arc;

impl Cycle<'_> {
    /// The total score of each node.
    pub(super) fn score(&self, nodes: &[&Node], default_selector: &Arc<Selector>) -> Vec<i64> {
        let pending = self.pending;
        let mut total = vec![0_i64; nodes.len()];
        let mut add = |weight: i64, scores: Vec<i64>| {
            for (total, score) in total.iter_mut().zip(scores) {
                *total = total.saturating_add(weight.saturating_mul(score));
            }
        };
        let weights = pending.profile.weights;
        if weights.taints != 0 {
            let taints = nodes.iter().map(|node| pending.tolerations.count_avoided(&node.facts().taints)).collect();
            add(weights.taints, reversed(taints));
        }
        let added = &pending.profile.added_nodes.preferred;
        if weights.nodes != 0 && !(pending.preferred_nodes.is_empty() && added.is_empty()) {
            let of = |node: &&Node| {
                let terms = pending.preferred_nodes.iter().chain(added);
                let matching = terms.filter(|(_, term)| term.matches(&node.name, &node.facts().labels));
                matching.map(|(weight, _)| *weight).fold(0, i64::saturating_add)
            };
            add(weights.nodes, relative(nodes.iter().map(of).collect()));
        }
        if weights.fit != 0 {
            add(weights.fit, nodes.iter().map(|node| fit(&pending.profile.fit, &pending.pod, node)).collect());
        }
        if weights.spread != 0
            && let Some(scores) = SpreadScores::of(self.cluster, pending, nodes, default_selector)
        {
            add(weights.spread, scores.score(pending, nodes));
        }
        if weights.affinity != 0
            && let Some(scores) = AffinityScores::of(self.cluster, pending)
        {
            add(weights.affinity, scores.score(nodes));
        }
        let balanced = &pending.profile.balanced;
        let asks = |resource: &Resource| pending.pod.requests.exact.amount(resource) != 0;
        if weights.balanced != 0 && balanced.iter().any(asks) {
            add(weights.balanced, nodes.iter().map(|node| balance(balanced, &pending.pod, node)).collect());
        }
        if weights.images != 0 {
            add(weights.images, nodes.iter().map(|node| self.image_locality(node)).collect());
        }
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

/// The score of the resources that would be taken, by the strategy of a profile.
fn fit(fit: &Fit, pod: &Placed, node: &Node) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for (resource, weight) in &fit.resources {
        let has = node.facts().allocatable.amount(resource);
        let (used, wanted) = match resource {
            Resource::Cpu => (node.cpu_at_least, pod.requests.cpu_at_least),
            Resource::Memory => (node.memory_at_least, pod.requests.memory_at_least),
            Resource::EphemeralStorage | Resource::Scalar(_) => {
                (node.requested.amount(resource), pod.requests.exact.amount(resource))
            }
        };
        // A node is not better or worse for a resource that it does not have, or that the Pod does not take.
        if has == 0 || (wanted == 0 && matches!(resource, Resource::Scalar(_))) {
            continue;
        }
        let score = score(&fit.strategy, used + i128::from(wanted), i128::from(has));
        // kube-scheduler leaves a resource with a score of 0 out of the average of this strategy.
        if matches!(fit.strategy, Strategy::RequestedToCapacityRatio(_)) && score <= 0 {
            continue;
        }
        sum += weight * score;
        weights += weight;
    }
    match (&fit.strategy, weights) {
        (_, 0) => 0,
        (Strategy::RequestedToCapacityRatio(_), weights) => {
            spread::whole((spread::float(sum) / spread::float(weights)).round())
        }
        (Strategy::LeastAllocated | Strategy::MostAllocated, weights) => sum / weights,
    }
}

/// The score of a resource of which `used`, including the Pod's share, is taken of `has`, which is not 0.
fn score(strategy: &Strategy, used: i128, has: i128) -> i64 {
    let score = match strategy {
        Strategy::LeastAllocated if has < used => 0,
        Strategy::LeastAllocated => (has - used) * 100 / has,
        Strategy::MostAllocated => used.min(has) * 100 / has,
        Strategy::RequestedToCapacityRatio(shape) => {
            let percent = if has < used { 100 } else { used * 100 / has };
            return value_at(shape, i64::try_from(percent).unwrap_or_default());
        }
    };
    i64::try_from(score).unwrap_or_default()
}

/// The value of a function that is straight between its points, and constant before the first and after the last.
fn value_at(shape: &[ShapePoint], at: i64) -> i64 {
    let mut before: Option<ShapePoint> = None;
    for &point in shape {
        if at <= point.utilization {
            return before.map_or(point.score, |before| {
                let slope = (point.score - before.score) * (at - before.utilization);
                before.score + slope / (point.utilization - before.utilization)
            });
        }
        before = Some(point);
    }
    before.map_or(0, |last| last.score)
}

/// Higher if the resources are used more evenly.
fn balance(resources: &[Resource], pod: &Placed, node: &Node) -> i64 {
    let (has, used, wanted) = (&node.facts().allocatable, &node.requested, &pod.requests.exact);
    let evenness = |added: fn(i64) -> i64| {
        let shares = resources.iter().filter_map(|resource| {
            let (has, wanted) = (has.amount(resource), wanted.amount(resource));
            if has == 0 || (wanted == 0 && matches!(resource, Resource::Scalar(_))) {
                return None;
            }
            let used = used.amount(resource) + i128::from(added(wanted));
            #[expect(clippy::cast_precision_loss, reason = "a share needs no more than the precision of a double")]
            let share = (used as f64 / has as f64).min(1.0);
            Some(share)
        });
        spread::whole((1.0 - deviation(shares)) * 100.0)
    };
    let (with, without) = (evenness(|wanted| wanted), evenness(|_| 0));
    50 + (50 + with - without) / 2
}

/// The standard deviation.
fn deviation(mut values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n_values = values.clone().count();
    if n_values <= 2 {
        // Exact, where the root of a square is not.
        return match (values.next(), values.next()) {
            (Some(one), Some(other)) => ((one - other) / 2.0).abs(),
            _ => 0.0,
        };
    }
    let n_values = spread::float(i64::try_from(n_values).unwrap_or(i64::MAX));
    let mean = values.clone().sum::<f64>() / n_values;
    (values.map(|value| (value - mean).powi(2)).sum::<f64>() / n_values).sqrt()
}
