//! Profiles: which plugins decide on which Pods, and with which settings.

use super::{Effect, TestCluster, asks, configuration, key, merge, node, pod};
use crate::scheduler::Configuration;
use crate::scheduler::configuration::Weights;
use crate::scheduler::plugins::filters::Plugin;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use std::time::Duration;

/// A cluster whose only profile is the default one with these fields.
fn with_profile(profile: Value) -> TestCluster {
    TestCluster::with_configuration(configuration(json!({"profiles": [profile]})))
}

/// The same with settings of one plugin.
fn with_args(plugin: &str, args: Value) -> TestCluster {
    with_profile(json!({"pluginConfig": [{"name": plugin, "args": args}]}))
}

fn of_scheduler(name: &str, scheduler: &str, mut over: Value) -> Pod {
    merge(&mut over, json!({"spec": {"schedulerName": scheduler}}));
    pod(name, over)
}

/// Two nodes, of which `used` has a Pod that takes half of it.
fn add_used_and_empty(test_cluster: &mut TestCluster) {
    test_cluster.node(&node("used", json!({})));
    test_cluster.node(&node("empty", json!({})));
    let mut half = asks(json!({"cpu": "2", "memory": "4Gi"}));
    merge(&mut half, json!({"spec": {"nodeName": "used"}}));
    test_cluster.pod(&pod("half", half));
}

fn small(name: &str) -> Pod {
    pod(name, asks(json!({"cpu": "100m", "memory": "200Mi"})))
}

#[test]
fn a_pod_is_scheduled_by_the_profile_that_it_names_and_reported_by_it() {
    let profiles = json!({"profiles": [
        {"schedulerName": "default-scheduler"},
        {"schedulerName": "packing", "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
         "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}}},
    ]});
    let mut test_cluster = TestCluster::with_configuration(configuration(profiles));
    add_used_and_empty(&mut test_cluster);
    for (name, scheduler, wanted) in [("a", "packing", "used"), ("b", "default-scheduler", "empty")] {
        test_cluster.pod(&of_scheduler(name, scheduler, asks(json!({"cpu": "100m", "memory": "200Mi"}))));
        match test_cluster.effects().as_slice() {
            [Effect::Bind { pod, node, scheduler: by, binder: None }] => {
                assert_eq!((&pod.key, &**node, &**by), (&key(name), wanted, scheduler));
            }
            other => panic!("{other:?}"),
        }
    }
    test_cluster.pod(&of_scheduler("c", "another", json!({})));
    assert!(test_cluster.effects().is_empty(), "another scheduler is responsible");
    test_cluster.pod(&of_scheduler("d", "packing", asks(json!({"cpu": "100"}))));
    let effects = test_cluster.effects();
    assert!(matches!(&effects[0], Effect::Report(report) if &*report.scheduler == "packing"), "{effects:?}");
}

#[test]
fn a_filter_that_is_off_keeps_no_pod_away() {
    let refused = |mut test_cluster: TestCluster| {
        test_cluster.node(&node("n", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})));
        test_cluster.pod(&pod("p", json!({})));
        !matches!(test_cluster.effects().as_slice(), [Effect::Bind { .. }])
    };
    assert!(refused(TestCluster::new()));
    assert!(!refused(with_profile(json!({"plugins": {"filter": {"disabled": [{"name": "TaintToleration"}]}}}))));
    assert!(!refused(with_profile(json!({"plugins": {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}}))));
    // `filter` takes precedence over `multiPoint`.
    let both = json!({"plugins": {
        "multiPoint": {"disabled": [{"name": "TaintToleration"}]},
        "filter": {"enabled": [{"name": "TaintToleration"}]},
    }});
    assert!(refused(with_profile(both)));
}

#[test]
fn each_filter_can_be_turned_off() {
    let large = asks(json!({"cpu": "100"}));
    let port = json!({"spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"hostPort": 80, "containerPort": 80}]}]}});
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}});
    let spread =
        json!([{"topologyKey": "absent", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]);
    let claims = json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}});
    let disk = json!({"spec": {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "shared"}}]}});
    for (plugin, over) in [
        ("NodeUnschedulable", json!({})),
        ("NodeAffinity", json!({"spec": {"nodeSelector": {"no": "node"}}})),
        ("NodePorts", port),
        ("NodeResourcesFit", large),
        ("PodTopologySpread", json!({"spec": {"topologySpreadConstraints": spread}})),
        ("InterPodAffinity", json!({"spec": {"affinity": anti}})),
        ("DynamicResources", claims),
        ("VolumeRestrictions", disk.clone()),
    ] {
        let binds = |profile: Value| {
            let mut test_cluster = with_profile(profile);
            let cordoned = plugin == "NodeUnschedulable";
            test_cluster.node(&node("n", json!({"spec": {"unschedulable": cordoned}})));
            let mut there = json!({"spec": {"nodeName": "n", "containers": [
                {"name": "c", "image": "nginx", "ports": [{"hostPort": 80, "containerPort": 80}]}]}});
            merge(&mut there, disk.clone());
            test_cluster.pod(&pod("there", there));
            test_cluster.pod(&pod("p", over.clone()));
            matches!(test_cluster.effects().as_slice(), [Effect::Bind { .. }])
        };
        assert!(!binds(json!({})), "{plugin} keeps the pod away by default");
        assert!(binds(json!({"plugins": {"multiPoint": {"disabled": [{"name": plugin}]}}})), "{plugin} is off");
    }
}

#[test]
fn weights_are_those_of_the_profile() {
    // The taint of `empty` weighs 3 by default, and the free resources of `empty` 1.
    let chosen = |profile: Value| {
        let mut test_cluster = with_profile(profile);
        add_used_and_empty(&mut test_cluster);
        test_cluster.node(&node("empty", json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}})));
        test_cluster.node_of(&small("p"))
    };
    assert_eq!(chosen(json!({})), "used");
    assert_eq!(
        chosen(json!({"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 100}]}}})),
        "empty"
    );
    assert_eq!(
        chosen(json!({"plugins": {"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 100}]}}})),
        "empty"
    );
    assert_eq!(chosen(json!({"plugins": {"score": {"disabled": [{"name": "TaintToleration"}]}}})), "empty");
}

#[test]
fn a_shape_says_how_full_a_node_should_be() {
    let shape =
        json!([{"utilization": 0, "score": 0}, {"utilization": 60, "score": 10}, {"utilization": 100, "score": 0}]);
    let mut test_cluster = with_profile(json!({
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {
            "type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape},
            "resources": [{"name": "cpu", "weight": 3}, {"name": "memory"}]}}}],
    }));
    add_used_and_empty(&mut test_cluster);
    // 50 % and a little are used of one node afterwards, and a little of the other.
    assert_eq!(test_cluster.node_of(&small("p")), "used");
    // The score of `used` is that of 96 % of its cores, that of `empty` of 46 %.
    assert_eq!(test_cluster.node_of(&pod("q", asks(json!({"cpu": "1750m", "memory": "200Mi"})))), "empty");
}

#[test]
fn extended_resources_count_where_the_profile_says_so() {
    let gpus = |n: &str| json!({"status": {"allocatable": {"example.com/gpu": n}}});
    let mut test_cluster = with_args(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "example.com/gpu", "weight": 100}]}}),
    );
    test_cluster.node(&node("many", gpus("8")));
    test_cluster.node(&node("few", gpus("2")));
    assert_eq!(test_cluster.node_of(&pod("p", asks(json!({"example.com/gpu": "1"})))), "few");
}

#[test]
fn resources_that_an_extender_would_manage_can_be_ignored() {
    let wants = || pod("p", asks(json!({"example.com/gpu": "1"})));
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    assert!(test_cluster.refusal_of(&wants()).contains("Insufficient example.com/gpu"));
    for args in [json!({"ignoredResources": ["example.com/gpu"]}), json!({"ignoredResourceGroups": ["example.com"]})] {
        let mut test_cluster = with_args("NodeResourcesFit", args);
        test_cluster.node(&node("n", json!({})));
        assert_eq!(test_cluster.node_of(&wants()), "n");
    }
}

#[test]
fn all_pods_of_a_profile_have_its_affinity_to_nodes() {
    let term = |value: &str| json!({"matchExpressions": [{"key": "pool", "operator": "In", "values": [value]}]});
    let added = json!({"addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term("a"), term("b")]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term("b")}],
    }});
    let mut test_cluster = with_args("NodeAffinity", added);
    let of_pool = |pool: &str| node(pool, json!({"metadata": {"labels": {"pool": pool}}}));
    test_cluster.node(&of_pool("c"));
    let said = test_cluster.refusal_of(&pod("early", json!({})));
    assert!(said.contains("1 node(s) didn't match scheduler-enforced node affinity"), "{said}");
    for pool in ["a", "b"] {
        test_cluster.node(&of_pool(pool));
    }
    assert_eq!(test_cluster.node_of(&pod("p", json!({}))), "b");
}

#[test]
fn pods_without_spread_constraints_get_those_of_their_profile() {
    let constraint = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"});
    let mut test_cluster =
        with_args("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": [constraint]}));
    let in_zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    test_cluster.node(&in_zone("a", "a"));
    let full = json!({"metadata": {"labels": {"zone": "b"}}, "status": {"allocatable": {"pods": "0"}}});
    test_cluster.node(&node("b", full));
    let selector = [("app".to_owned(), "web".to_owned())];
    test_cluster.state.service_changed(&key("web"), Some(selector.into_iter().collect()));
    let web = |name: &str| pod(name, json!({"metadata": {"labels": {"app": "web"}}}));
    assert_eq!(test_cluster.node_of(&web("one")), "a");
    let said = test_cluster.refusal_of(&web("two"));
    assert!(said.contains("didn't match pod topology spread constraints"), "{said}");
    test_cluster.done(&super::reference("two"));
    // Pods that no Service or owner selects have none.
    assert_eq!(test_cluster.node_of(&pod("alone", json!({}))), "a");
    // The deletion of `one` wakes `two`.
    test_cluster.state.pod_gone(&key("one"), test_cluster.now);
    test_cluster.pass(Duration::from_secs(2));
    assert_eq!(test_cluster.bindings(), [("two".to_owned(), "a".to_owned())]);
}

#[test]
fn a_list_without_constraints_spreads_nothing() {
    let mut test_cluster = with_profile(json!({
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "PodTopologySpread"}, {"name": "ImageLocality"}]}},
        "pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}],
    }));
    let images = json!({"status": {"images": [{"names": ["nginx:latest"], "sizeBytes": 900_000_000}]}});
    test_cluster.node(&node("with-image", images));
    (0..4).for_each(|at| test_cluster.node(&node(&format!("n{at}"), json!({}))));
    let selector = [("app".to_owned(), "web".to_owned())];
    test_cluster.state.service_changed(&key("web"), Some(selector.into_iter().collect()));
    for at in 0..3 {
        let web = pod(&format!("p{at}"), json!({"metadata": {"labels": {"app": "web"}}}));
        assert_eq!(test_cluster.node_of(&web), "with-image");
    }
}

#[test]
fn required_terms_of_other_pods_weigh_what_the_profile_says() {
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    let chosen = |weight: i64| {
        let mut test_cluster = with_args("InterPodAffinity", json!({"hardPodAffinityWeight": weight}));
        test_cluster.node(&node("a", json!({})));
        test_cluster.node(&node("b", json!({})));
        let there = json!({"spec": {"nodeName": "b", "affinity": near.clone()}});
        test_cluster.pod(&pod("there", there));
        let web = json!({"metadata": {"labels": {"app": "web"}}});
        test_cluster.node_of(&pod("p", web))
    };
    assert_eq!(chosen(1), "b");
    assert_eq!(chosen(0), "a", "the emptier node");
}

#[test]
fn without_preemption_a_pod_waits_and_says_so_once() {
    let mut test_cluster =
        with_profile(json!({"plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}}));
    test_cluster.node(&node("n", json!({})));
    let mut there = asks(json!({"cpu": "4"}));
    merge(&mut there, json!({"spec": {"nodeName": "n"}}));
    test_cluster.pod(&pod("there", there));
    let mut urgent = asks(json!({"cpu": "1"}));
    merge(&mut urgent, json!({"spec": {"priority": 1000}}));
    assert_eq!(
        test_cluster.refusal_of(&pod("urgent", urgent)),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate"
    );
}

#[test]
fn gates_of_pods_are_left_to_others_where_the_profile_says_so() {
    let gated = || pod("p", json!({"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}));
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.pod(&gated());
    assert!(test_cluster.effects().is_empty());
    let mut test_cluster =
        with_profile(json!({"plugins": {"preEnqueue": {"disabled": [{"name": "SchedulingGates"}]}}}));
    test_cluster.node(&node("n", json!({})));
    assert_eq!(test_cluster.node_of(&gated()), "n");
}

#[test]
fn a_percentage_of_nodes_ends_the_search() {
    // The best node is the last one in the order in which nodes are looked at.
    let tried = |percent: i32| {
        let mut test_cluster =
            TestCluster::with_configuration(configuration(json!({"percentageOfNodesToScore": percent})));
        let large = json!({"status": {"allocatable": {"cpu": "64", "memory": "128Gi"}}});
        (0..1_000).for_each(|at| {
            let over = if at == 999 { large.clone() } else { json!({}) };
            test_cluster.node(&node(&format!("n{at:03}"), over));
        });
        test_cluster.node_of(&small("p")) == "n999"
    };
    assert!(tried(100));
    assert!(!tried(10));
}

#[test]
fn pods_wait_as_long_as_the_configuration_says() {
    let document = json!({"podInitialBackoffSeconds": 4, "podMaxBackoffSeconds": 8});
    let backoff = configuration(document).backoff();
    let waits = (0..=4).map(|n_attempts| backoff.after(n_attempts).as_secs()).collect::<Vec<_>>();
    assert_eq!(waits, [0, 4, 8, 8, 8]);
}

#[test]
fn each_volume_plugin_can_be_turned_off_and_leaves_the_others() {
    let claim = |name: &str, spec: Value| {
        let annotations = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
        serde_json::from_value::<PersistentVolumeClaim>(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let said = |off: &[&str], claim_name: &str| {
        let off: Vec<Value> = off.iter().map(|name| json!({"name": name})).collect();
        let mut test_cluster = with_profile(json!({"plugins": {"multiPoint": {"disabled": off}}}));
        test_cluster.node(&node("n", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}})));
        let now = test_cluster.now;
        test_cluster.state.claim_changed(&key("unbound"), Some(&claim("unbound", json!({}))), now);
        test_cluster.state.claim_changed(&key("lost"), Some(&claim("lost", json!({"volumeName": "absent"}))), now);
        test_cluster.state.claim_changed(&key("away"), Some(&claim("away", json!({"volumeName": "disk"}))), now);
        let labels = json!({"topology.kubernetes.io/zone": "a"});
        let disk = json!({"metadata": {"name": "disk", "labels": labels}, "spec": {}});
        test_cluster.state.volume_changed("disk", Some(&serde_json::from_value(disk).unwrap()), now);
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": claim_name}});
        test_cluster.pod(&pod("p", json!({"spec": {"volumes": [volume]}})));
        match test_cluster.effects().as_slice() {
            [Effect::Bind { .. }] => "bound".to_owned(),
            [Effect::Report(report)] => report.message.split(". ").next().unwrap_or_default().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    let missing = "0/1 nodes are available: persistentvolumeclaim \"missing\" not found";
    assert_eq!(said(&[], "missing"), missing);
    assert_eq!(said(&["VolumeRestrictions"], "missing"), missing);
    assert_eq!(said(&["VolumeRestrictions", "VolumeBinding"], "missing"), missing);
    assert_eq!(said(&["VolumeRestrictions", "VolumeBinding", "VolumeZone"], "missing"), "bound");
    assert_eq!(
        said(&["VolumeZone", "VolumeRestrictions"], "unbound"),
        "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims"
    );
    assert_eq!(said(&["VolumeBinding"], "unbound"), "bound");
    assert_eq!(said(&["VolumeBinding"], "lost"), "0/1 nodes are available: persistentvolume \"absent\" not found");
    assert_eq!(
        said(&["VolumeZone"], "lost"),
        "0/1 nodes are available: 1 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    );
    assert_eq!(said(&[], "away"), "0/1 nodes are available: 1 node(s) had no available volume zone");
    assert_eq!(said(&["VolumeZone"], "away"), "bound");
}

#[test]
fn a_node_that_gets_the_label_of_the_profile_wakes_its_pods() {
    let term = json!({"matchExpressions": [{"key": "pool", "operator": "Exists"}]});
    let required = json!({"nodeSelectorTerms": [term]});
    let added = json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    let mut test_cluster = with_args("NodeAffinity", added);
    test_cluster.node(&node("n", json!({})));
    test_cluster.refusal_of(&pod("p", json!({})));
    test_cluster.done(&super::reference("p"));
    test_cluster.pass(Duration::from_secs(2));
    assert!(test_cluster.bindings().is_empty());
    test_cluster.node(&node("n", json!({"metadata": {"labels": {"pool": "a"}}})));
    assert_eq!(test_cluster.bindings(), [("p".to_owned(), "n".to_owned())]);
}

#[test]
fn without_scores_nodes_are_taken_in_turn() {
    let mut test_cluster = with_profile(json!({"plugins": {
        "preScore": {"disabled": [{"name": "*"}]}, "score": {"disabled": [{"name": "*"}]}}}));
    ["a", "b", "c"].iter().for_each(|name| test_cluster.node(&node(name, json!({}))));
    let nodes: Vec<String> = (0..4).map(|at| test_cluster.node_of(&small(&format!("p{at}")))).collect();
    assert_eq!(nodes, ["a", "b", "c", "a"]);
}

#[test]
fn pods_without_preferences_ignore_those_of_others_where_the_profile_says_so() {
    let near = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm":
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}}]}});
    let chosen = |ignores: bool| {
        let mut test_cluster = with_args("InterPodAffinity", json!({"ignorePreferredTermsOfExistingPods": ignores}));
        test_cluster.node(&node("a", json!({})));
        test_cluster.node(&node("b", json!({})));
        test_cluster.pod(&pod("there", json!({"spec": {"nodeName": "b", "affinity": near.clone()}})));
        test_cluster.node_of(&pod("p", json!({"metadata": {"labels": {"app": "web"}}})))
    };
    assert_eq!((chosen(false).as_str(), chosen(true).as_str()), ("b", "a"));
}

#[test]
fn the_resources_to_balance_are_those_of_the_profile() {
    // The Pod takes a quarter of the cores and half of the GPUs. A quarter of the memory of `a` is in use, and of the cores of `b`.
    let chosen = |names: &[&str]| {
        let resources: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let mut test_cluster = with_profile(json!({
            "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
            "pluginConfig": [{"name": "NodeResourcesBalancedAllocation", "args": {"resources": resources}}],
        }));
        for (name, used) in [("a", json!({"memory": "2Gi"})), ("b", json!({"cpu": "1"}))] {
            test_cluster.node(&node(name, json!({"status": {"allocatable": {"example.com/gpu": "4"}}})));
            let mut there = asks(used);
            merge(&mut there, json!({"spec": {"nodeName": name}}));
            test_cluster.pod(&pod(&format!("on-{name}"), there));
        }
        test_cluster.node_of(&pod("p", asks(json!({"cpu": "1", "example.com/gpu": "2"}))))
    };
    assert_eq!(chosen(&["cpu", "memory"]), "a");
    assert_eq!(chosen(&["cpu", "example.com/gpu"]), "b");
    assert_eq!(chosen(&["cpu", "memory", "example.com/gpu"]), "a");
}

#[test]
fn the_default_weights_and_filters_are_those_of_kube_scheduler() {
    let configuration = Configuration::default();
    let profile = configuration.profile("default-scheduler").unwrap();
    let Weights { affinity, balanced, fit, images, nodes, spread, taints } = profile.weights;
    assert_eq!((affinity, balanced, fit, images, nodes, spread, taints), (2, 1, 1, 1, 2, 2, 3));
    for plugin in Plugin::FILTERS {
        assert!(profile.filters.contains(plugin), "{plugin:?}");
        let off = json!({"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": plugin.name()}]}}}]});
        let configuration = self::configuration(off);
        assert!(!configuration.profile("default-scheduler").unwrap().filters.contains(plugin), "{plugin:?}");
    }
}

#[test]
fn the_greatest_numbers_of_a_file_do_not_overflow() {
    let term = |value: &str| json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [value]}]});
    let preferred = |value: &str| json!({"weight": i32::MAX, "preference": term(value)});
    let added = json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [preferred("a"), preferred("a"), preferred("b")]}});
    let greatest = ["NodeAffinity", "NodeResourcesFit", "TaintToleration"];
    let greatest: Vec<Value> = greatest.iter().map(|name| json!({"name": name, "weight": i32::MAX})).collect();
    let mut test_cluster = with_profile(json!({
        "plugins": {"multiPoint": {"enabled": greatest}},
        "pluginConfig": [
            {"name": "NodeAffinity", "args": added},
            {"name": "DefaultPreemption", "args": {"minCandidateNodesAbsolute": i64::MAX}},
            {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": i64::MAX}},
        ],
    }));
    ["a", "b"].iter().for_each(|name| test_cluster.node(&node(name, json!({}))));
    assert_eq!(test_cluster.node_of(&pod("p", json!({}))), "a");
}
