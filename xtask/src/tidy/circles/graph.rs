//! Finds circles in a directed graph, whose nodes are numbers.

use std::collections::{BTreeSet, VecDeque};

/// The successors of each node.
pub(super) type Edges = Vec<BTreeSet<usize>>;

/// The sets of two or more nodes that can all reach each other; each in order.
pub(super) fn circles(edges: &Edges) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..edges.len()).map(|node| reachable(edges, node)).collect();
    let mut circles: Vec<Vec<usize>> = Vec::new();
    for node in 0..edges.len() {
        let is_in_one = circles.iter().any(|circle| circle.contains(&node));
        if is_in_one || !reach[node].contains(&node) {
            continue;
        }
        let circle: Vec<usize> = reach[node].iter().copied().filter(|other| reach[*other].contains(&node)).collect();
        circles.push(circle);
    }
    circles
}

/// The shortest path within `circle` from any of its nodes back to it, which is named at both ends.
pub(super) fn shortest_round(edges: &Edges, circle: &[usize]) -> Vec<usize> {
    circle.iter().filter_map(|start| round_from(edges, *start)).min_by_key(Vec::len).unwrap_or_default()
}

fn round_from(edges: &Edges, start: usize) -> Option<Vec<usize>> {
    let mut from = vec![None; edges.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for next in &edges[node] {
            if *next == start {
                let mut way = vec![start, node];
                while let Some(before) = way.last().and_then(|last| from[*last]) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if from[*next].is_none() {
                from[*next] = Some(node);
                queue.push_back(*next);
            }
        }
    }
    None
}

fn reachable(edges: &Edges, start: usize) -> BTreeSet<usize> {
    let (mut seen, mut stack) = (BTreeSet::new(), vec![start]);
    while let Some(node) = stack.pop() {
        stack.extend(edges[node].iter().copied().filter(|next| seen.insert(*next)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(of: &[&[usize]]) -> Edges {
        of.iter().map(|next| next.iter().copied().collect()).collect()
    }

    #[test]
    fn circles_are_apart_from_what_only_leads_to_them() {
        let edges = edges(&[&[1], &[2], &[1, 3], &[4], &[3, 5], &[]]);
        assert_eq!(circles(&edges), [vec![1, 2], vec![3, 4]]);
    }

    #[test]
    fn shortest_round_begins_and_ends_at_one_node() {
        let edges = edges(&[&[1], &[2], &[3], &[0, 2]]);
        let circle = circles(&edges).remove(0);
        assert_eq!(circle, [0, 1, 2, 3]);
        assert_eq!(shortest_round(&edges, &circle), [2, 3, 2]);
    }
}
