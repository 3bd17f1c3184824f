//! Which nodes are feasible, and the messages when none is.

use super::{TestCluster, asks, key, merge, node, pod};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use steersman::ObjectKey;

const NOT_HELPFUL: &str =
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
const NO_VICTIMS: &str =
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";

#[track_caller]
fn refuses(node: Node, pod: &Pod, reason: &str, preemption: &str) {
    let expected = format!("0/1 nodes are available: 1 {reason}. {preemption}");
    assert_eq!(TestCluster::with_nodes([node]).refusal_of(pod), expected);
}

#[track_caller]
fn accepts(node: Node, pod: &Pod) {
    assert_eq!(TestCluster::with_nodes([node]).node_of(pod), "n");
}

#[test]
fn a_cordoned_node_takes_only_pods_that_tolerate_it() {
    let cordoned = || node("n", json!({"spec": {"unschedulable": true}}));
    refuses(cordoned(), &pod("p", json!({})), "node(s) were unschedulable", NOT_HELPFUL);
    let toleration = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
    accepts(cordoned(), &pod("p", json!({"spec": {"tolerations": [toleration]}})));
}

#[test]
fn taints_keep_pods_away() {
    let tainted = || node("n", json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}));
    refuses(tainted(), &pod("p", json!({})), "node(s) had untolerated taint(s)", NOT_HELPFUL);
    accepts(tainted(), &pod("p", json!({"spec": {"tolerations": [{"key": "gpu", "value": "yes"}]}})));
}

#[test]
fn node_selectors_and_affinities_have_to_match() {
    let reason = "node(s) didn't match Pod's node affinity/selector";
    let labelled = || node("n", json!({"metadata": {"labels": {"disk": "ssd", "cores": "8"}}}));
    refuses(labelled(), &pod("p", json!({"spec": {"nodeSelector": {"disk": "hdd"}}})), reason, NOT_HELPFUL);
    accepts(labelled(), &pod("p", json!({"spec": {"nodeSelector": {"disk": "ssd"}}})));
    let affinity = |terms: Value| {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        pod("p", json!({"spec": {"affinity": {"nodeAffinity": required}}}))
    };
    accepts(
        labelled(),
        &affinity(json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}])),
    );
    let expression = json!([{"matchExpressions": [{"key": "cores", "operator": "Lt", "values": ["4"]}]}]);
    refuses(labelled(), &affinity(expression), reason, NOT_HELPFUL);
    accepts(
        labelled(),
        &affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}])),
    );
    let other = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]);
    refuses(labelled(), &affinity(other), "node(s) didn't satisfy plugin(s) [NodeAffinity]", NOT_HELPFUL);
}

#[test]
fn ports_of_a_node_are_given_once() {
    let with_port = |name: &str, ip: &str| {
        let port = json!({"containerPort": 80, "hostPort": 80, "hostIP": ip});
        pod(name, json!({"spec": {"containers": [{"name": "c", "ports": [port]}]}}))
    };
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.node_of(&with_port("a", "127.0.0.1"));
    test_cluster.node_of(&with_port("b", "127.0.0.2"));
    assert_eq!(
        test_cluster.refusal_of(&with_port("c", "")),
        format!("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. {NO_VICTIMS}")
    );
}

#[test]
fn everything_that_is_too_little_is_named() {
    let both = pod("p", asks(json!({"cpu": "5", "memory": "9Gi", "example.com/gpu": "1"})));
    let reason = "Insufficient cpu, 1 Insufficient example.com/gpu, 1 Insufficient memory";
    refuses(node("n", json!({})), &both, reason, NOT_HELPFUL);
    let full = node("n", json!({"status": {"allocatable": {"pods": "0"}}}));
    refuses(full, &pod("p", json!({})), "Too many pods", NO_VICTIMS);
    accepts(node("n", json!({})), &pod("p", asks(json!({"cpu": "4", "memory": "8Gi"}))));
}

#[test]
fn what_is_taken_counts_from_the_decision_on() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.node_of(&pod("a", asks(json!({"cpu": "3"}))));
    assert_eq!(
        test_cluster.refusal_of(&pod("b", asks(json!({"cpu": "2"})))),
        format!("0/1 nodes are available: 1 Insufficient cpu. {NO_VICTIMS}")
    );
}

#[test]
fn reasons_are_counted_over_nodes_and_sorted() {
    let taint = json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}});
    let small = json!({"status": {"allocatable": {"cpu": "1"}}});
    let mut test_cluster = TestCluster::with_nodes([node("a", taint.clone()), node("b", taint), node("c", small)]);
    assert_eq!(
        test_cluster.refusal_of(&pod("p", asks(json!({"cpu": "2"})))),
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). \
         no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
}

#[test]
fn without_nodes_a_pod_waits_for_the_first() {
    let mut test_cluster = TestCluster::new();
    assert_eq!(test_cluster.refusal_of(&pod("p", json!({}))), "no nodes available to schedule pods");
    let waiting = super::PodRef { key: key("p"), uid: "uid-p".into(), generation: 1 };
    test_cluster.done(&waiting);
    test_cluster.node(&node("n", json!({})));
    assert_eq!(test_cluster.bindings(), [("p".to_owned(), "n".to_owned())]);
}

fn labelled(name: &str, app: &str, spec: Value) -> Pod {
    let mut over = json!({"metadata": {"labels": {"app": app}}});
    merge(&mut over, json!({"spec": spec}));
    pod(name, over)
}

fn zones() -> Vec<Node> {
    let in_zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    vec![in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")]
}

#[test]
fn anti_affinity_holds_both_ways() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}]);
    let anti = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    let mut test_cluster = TestCluster::with_nodes(zones());
    let first = test_cluster.node_of(&labelled("one", "db", anti.clone()));
    let second = test_cluster.node_of(&labelled("two", "db", anti.clone()));
    assert_ne!(first[..1], second[..1], "each zone has one");
    let refusal = test_cluster.refusal_of(&labelled("three", "db", anti));
    assert!(
        refusal.starts_with("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."),
        "{refusal}"
    );
    let refusal = test_cluster.refusal_of(&labelled("four", "db", json!({})));
    let expected = "0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert!(refusal.starts_with(expected), "{refusal}");
}

#[test]
fn affinity_follows_the_pods_it_selects_and_the_first_of_them_may_go_anywhere() {
    let term = |app: &str| json!([{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}]);
    let near =
        |app: &str| json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(app)}}});
    let mut test_cluster = TestCluster::with_nodes(zones());
    let refusal = test_cluster.refusal_of(&labelled("client", "client", near("server")));
    assert!(refusal.starts_with("0/3 nodes are available: 3 node(s) didn't match pod affinity rules."), "{refusal}");
    let server = test_cluster.node_of(&labelled("server", "server", near("server")));
    let client = test_cluster.node_of(&labelled("client2", "client", near("server")));
    assert_eq!(server[..1], client[..1]);
}

#[test]
fn namespaces_are_selected_by_their_labels() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone",
        "namespaceSelector": {"matchLabels": {"team": "blue"}}}]);
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    let mut test_cluster = TestCluster::with_nodes(zones());
    let labels = [("team".to_owned(), "blue".to_owned())];
    test_cluster.state.namespace_changed("other", Some(labels.into_iter().collect()));
    let mut db = labelled("db", "db", json!({"nodeName": "b1"}));
    db.metadata.namespace = Some("other".to_owned());
    test_cluster.pod(&db);
    assert_eq!(test_cluster.node_of(&labelled("near", "web", near)), "b1");
}

#[test]
fn required_spread_keeps_the_skew() {
    let rule = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let mut test_cluster = TestCluster::with_nodes(zones());
    let spread = json!({"topologySpreadConstraints": rule});
    let zones: Vec<char> = (0..6)
        .map(|at| test_cluster.node_of(&labelled(&format!("p{at}"), "web", spread.clone())).chars().next().unwrap())
        .collect();
    assert_eq!(zones.iter().filter(|zone| **zone == 'a').count(), 3);
}

#[test]
fn too_few_domains_count_as_empty_ones() {
    let rule = json!([{"maxSkew": 1, "minDomains": 3, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let spread = json!({"topologySpreadConstraints": rule});
    let mut test_cluster = TestCluster::with_nodes(zones());
    test_cluster.node_of(&labelled("one", "web", spread.clone()));
    test_cluster.node_of(&labelled("two", "web", spread.clone()));
    let refusal = test_cluster.refusal_of(&labelled("three", "web", spread));
    let expected = "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.";
    assert!(refusal.starts_with(expected), "{refusal}");
    let rule = json!([{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    let refusal = test_cluster.refusal_of(&labelled("four", "web", json!({"topologySpreadConstraints": rule})));
    let expected =
        "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints (missing required label).";
    assert!(refusal.starts_with(expected), "{refusal}");
}

fn with_claim(name: &str, claim: &str) -> Pod {
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
    pod(name, json!({"spec": {"volumes": [volume]}}))
}

#[test]
fn claims_have_to_be_there_and_bound() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    assert_eq!(
        test_cluster.refusal_of(&with_claim("p", "data")),
        format!("0/1 nodes are available: persistentvolumeclaim \"data\" not found. {NOT_HELPFUL}")
    );
    let claim = |value: Value| serde_json::from_value(value).unwrap();
    let unbound = claim(json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {}}));
    test_cluster.state.claim_changed(&key("data"), Some(&unbound), test_cluster.now);
    assert_eq!(
        test_cluster.refusal_of(&with_claim("q", "data")),
        format!("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. {NOT_HELPFUL}")
    );
    let bound = claim(json!({
        "metadata": {"name": "data", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk"},
    }));
    test_cluster.state.claim_changed(&key("data"), Some(&bound), test_cluster.now);
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]);
    let volume = serde_json::from_value(json!({
        "metadata": {"name": "disk"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }))
    .unwrap();
    test_cluster.state.volume_changed("disk", Some(&volume), test_cluster.now);
    let refusal = test_cluster.refusal_of(&with_claim("r", "data"));
    let expected = "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.";
    assert!(refusal.starts_with(expected), "{refusal}");
    test_cluster.node(&node("b", json!({"metadata": {"labels": {"zone": "b"}}})));
    assert_eq!(test_cluster.node_of(&with_claim("s", "data")), "b");
}

#[test]
fn a_claim_that_waits_for_its_first_consumer_gets_a_node_before_the_pod_does() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    let class = serde_json::from_value(
        json!({"provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    let class = class.unwrap();
    let event = crate::scheduler::hints::Event::Class;
    test_cluster.state.storage_changed(&event, test_cluster.now, |volumes| volumes.set_class("fast", Some(&class)));
    let claim = |over: Value| {
        let mut base = json!({"metadata": {"name": "data", "namespace": "default", "uid": "u"}, "spec": {"storageClassName": "fast"}});
        merge(&mut base, over);
        serde_json::from_value(base).unwrap()
    };
    test_cluster.state.claim_changed(&key("data"), Some(&claim(json!({}))), test_cluster.now);
    test_cluster.pod(&with_claim("p", "data"));
    let effects = test_cluster.effects();
    let [super::Effect::BindVolumes { pod, node, plan }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((&**node, &plan.provision[0].claim.key), ("n", &ObjectKey::namespaced("default", "data")));
    assert_eq!((plan.bind.len(), plan.provision.len()), (0, 1));
    let pod = pod.clone();
    let selected =
        json!({"metadata": {"resourceVersion": "2", "annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    test_cluster.state.claim_changed(&key("data"), Some(&claim(selected.clone())), test_cluster.now);
    test_cluster.state.volumes_written(&pod, Ok(()), test_cluster.now);
    assert!(test_cluster.effects().is_empty(), "the volume is not made yet");
    let mut bound = selected;
    merge(
        &mut bound,
        json!({"metadata": {"resourceVersion": "3", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}}),
    );
    test_cluster.state.claim_changed(&key("data"), Some(&claim(bound)), test_cluster.now);
    assert_eq!(test_cluster.bindings(), [("p".to_owned(), "n".to_owned())]);
}
