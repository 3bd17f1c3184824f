//! Which of several feasible nodes is chosen.

use super::{TestCluster, asks, merge, node, pod};
use serde_json::json;

/// Binds to each of these nodes a Pod that takes half of it.
fn fill(test_cluster: &mut TestCluster, nodes: &[&str]) {
    for name in nodes {
        let mut half = asks(json!({"cpu": "2", "memory": "4Gi"}));
        merge(&mut half, json!({"spec": {"nodeName": name}}));
        test_cluster.pod(&pod(&format!("half-of-{name}"), half));
    }
}

#[test]
fn the_emptier_node_is_better() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({})), node("b", json!({}))]);
    let first = test_cluster.node_of(&pod("one", asks(json!({"cpu": "1", "memory": "2Gi"}))));
    let second = test_cluster.node_of(&pod("two", asks(json!({"cpu": "1", "memory": "2Gi"}))));
    assert_ne!(first, second);
}

#[test]
fn a_node_that_has_the_image_is_better() {
    let images = json!({"status": {"images": [{"names": ["big:1"], "sizeBytes": 900_000_000}]}});
    let nodes = (0..8).map(|at| node(&format!("n{at}"), if at == 5 { images.clone() } else { json!({}) }));
    let mut test_cluster = TestCluster::with_nodes(nodes.chain([node("full", images.clone())]));
    let full = asks(json!({"cpu": "3900m", "memory": "7Gi"}));
    let mut there = full;
    merge(&mut there, json!({"spec": {"nodeName": "full"}}));
    test_cluster.pod(&pod("there", there));
    assert_eq!(
        test_cluster.node_of(&pod("p", json!({"spec": {"containers": [{"name": "c", "image": "big:1"}]}}))),
        "n5"
    );
}

#[test]
fn preferences_for_nodes_and_against_taints_count() {
    let avoid = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    let mut test_cluster = TestCluster::with_nodes([node("a", avoid), node("b", json!({}))]);
    for at in 0..3 {
        assert_eq!(test_cluster.node_of(&pod(&format!("p{at}"), json!({}))), "b");
    }
    let term = json!({"weight": 100, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["c"]}]}});
    let prefers = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
    test_cluster.node(&node("c", json!({})));
    test_cluster.node(&node("d", json!({})));
    assert_eq!(test_cluster.node_of(&pod("q", json!({"spec": {"affinity": prefers}}))), "c");
}

#[test]
fn pods_of_a_service_are_spread_over_nodes() {
    // By free resources alone, all of them would go to the large node.
    let large = json!({"status": {"allocatable": {"cpu": "64", "memory": "128Gi"}}});
    let mut test_cluster = TestCluster::with_nodes((0..4).map(|at| node(&format!("n{at}"), json!({}))));
    test_cluster.node(&node("n0", large));
    fill(&mut test_cluster, &["n1", "n2", "n3"]);
    let selector = [("app".to_owned(), "web".to_owned())];
    test_cluster.state.service_changed(&super::key("web"), Some(selector.into_iter().collect()));
    let mut nodes: Vec<String> = (0..4)
        .map(|at| test_cluster.node_of(&pod(&format!("p{at}"), json!({"metadata": {"labels": {"app": "web"}}}))))
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["n0", "n1", "n2", "n3"]);
}

#[test]
fn preferred_affinity_draws_pods_together_and_anti_affinity_apart() {
    let term = |weight: i32| {
        json!([{"weight": weight, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "db"}}}}])
    };
    let mut test_cluster = TestCluster::with_nodes((0..4).map(|at| node(&format!("n{at}"), json!({}))));
    test_cluster.pod(&pod("db", json!({"metadata": {"labels": {"app": "db"}}, "spec": {"nodeName": "n2"}})));
    let near =
        json!({"spec": {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": term(100)}}}});
    assert_eq!(test_cluster.node_of(&pod("near", near)), "n2");
    // By free resources alone, a further Pod would join the others.
    fill(&mut test_cluster, &["n0", "n1", "n3"]);
    assert_eq!(test_cluster.node_of(&pod("nearby", json!({}))), "n2");
    let apart = json!({"spec": {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": term(100)}}}});
    assert_ne!(test_cluster.node_of(&pod("apart", apart)), "n2");
}
