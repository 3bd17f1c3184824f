//! Decisions with extenders on real sockets: what they are asked, and what becomes of their answers.

mod server;

use super::{Effect, TestCluster, asks, configuration, key, merge, node, pod, reference};
use crate::scheduler::Configuration;
use crate::scheduler::cluster::Cluster;
use crate::scheduler::cluster::node::NodeFacts;
use crate::scheduler::cluster::pod::{Pending, Placed};
use crate::scheduler::cycle::{Cycle, Diagnosis, Nominations};
use crate::scheduler::plugins::filters::Plugin;
use crate::scheduler::requests::{Answer, Extenders, Objects, Requests};
use crate::scheduler::state::{Report, State};
use crate::scheduler::tests::extenders::server::{Identity, Reply, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use steersman::metrics::{Metrics, MetricsFormat};

/// A scheduler whose extenders are asked for real, and whose other requests succeed at once.
struct Scene {
    test_cluster: TestCluster,
    requests: Requests,
    metrics: Metrics,
    nodes: Arc<Mutex<BTreeMap<String, Arc<Node>>>>,
    pods: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
    /// The victims of preemptions, and the condition and Event of each Pod that got no node.
    preempted: Vec<(String, Vec<String>)>,
    messages: Vec<String>,
}

impl Scene {
    fn new(extenders: Value) -> Scene {
        let configuration = configuration(json!({"extenders": extenders}));
        let (nodes, pods): (Arc<Mutex<BTreeMap<_, _>>>, Arc<Mutex<BTreeMap<_, _>>>) = Default::default();
        let (of_nodes, of_pods) = (Arc::clone(&nodes), Arc::clone(&pods));
        let objects = Objects {
            node: Box::new(move |name| of_nodes.lock().get(name).cloned()),
            pod: Box::new(move |key| of_pods.lock().get(key.name()).cloned()),
        };
        let metrics = Metrics::new();
        let extenders = Extenders::new(&configuration, objects).observe(&metrics);
        let no_server = tower::service_fn(async |_: http::Request<Body>| {
            Ok::<_, Infallible>(http::Response::builder().status(500).body(Body::empty()).unwrap())
        });
        let requests = Requests::new(Client::new(no_server, "default"), &configuration, extenders, Timestamp::now);
        let test_cluster = TestCluster::with_configuration(configuration);
        Scene { test_cluster, requests, metrics, nodes, pods, preempted: Vec::new(), messages: Vec::new() }
    }

    fn node(&mut self, node: Node) {
        self.test_cluster.node(&node);
        self.nodes.lock().insert(node.metadata.name.clone().unwrap(), Arc::new(node));
    }

    fn pod(&mut self, pod: Pod) {
        self.test_cluster.pod(&pod);
        self.pods.lock().insert(pod.metadata.name.clone().unwrap(), Arc::new(pod));
    }

    fn state(&mut self) -> &mut State {
        &mut self.test_cluster.state
    }

    /// Runs until nothing is left to do, and returns the Pods that got a node.
    async fn run(&mut self) -> Vec<(String, String)> {
        let mut bound = Vec::new();
        while let Some(effect) = self.test_cluster.state.next(self.test_cluster.now) {
            let now = self.test_cluster.now;
            match effect {
                Effect::Bind { ref pod, ref node, ref binder, .. } => {
                    bound.push((pod.key.name().to_owned(), node.to_string()));
                    if binder.is_some() {
                        self.requests.send(effect).await.tell(self.state(), now);
                    }
                }
                Effect::Extend(_) => self.requests.send(effect).await.tell(self.state(), now),
                Effect::Preempt { pod, node, victims, .. } => {
                    let names = victims.iter().map(|victim| victim.key.name().to_owned()).collect();
                    self.preempted.push((node.to_string(), names));
                    self.state().preempted(&pod, &victims, Ok(()), now);
                }
                Effect::Report(Report { pod, message, reason, .. }) => {
                    self.messages.push(format!("{}: {message}", reason.as_str()));
                    self.state().finished(&pod, now);
                }
                Effect::BindVolumes { .. } | Effect::Skip { .. } => {}
            }
        }
        bound
    }

    /// The node of a Pod that must get one.
    async fn node_of(&mut self, pod: Pod) -> String {
        let name = pod.metadata.name.clone().unwrap();
        self.pod(pod);
        let bound = self.run().await;
        let found = bound.into_iter().find(|(bound, _)| *bound == name).map(|(_, node)| node);
        found.unwrap_or_else(|| panic!("{name} got no node: {:?}", self.messages))
    }

    /// The reason and the message about a Pod that must not get a node.
    async fn refusal_of(&mut self, pod: Pod) -> String {
        self.messages.clear();
        self.pod(pod);
        assert_eq!(self.run().await, []);
        self.messages.first().cloned().expect("nothing was said")
    }

    fn counted(&self, verb: &str, outcome: &str) -> String {
        let text = self.metrics.encode(MetricsFormat::OpenMetrics);
        let has = |line: &&str| {
            line.starts_with("steersman_scheduler_extender_calls_total")
                && line.contains(&format!("verb=\"{verb}\""))
                && line.contains(&format!("outcome=\"{outcome}\""))
        };
        text.lines().find(has).and_then(|line| line.rsplit(' ').next()).unwrap_or("none").to_owned()
    }
}

/// An entry of `extenders`.
fn extender(server: &Server, over: Value) -> Value {
    let mut all = json!({"urlPrefix": server.url()});
    merge(&mut all, over);
    all
}

/// Names of the nodes in a request.
fn nodes_in(request: &Value) -> Vec<String> {
    let names = request["NodeNames"].as_array().into_iter().flatten();
    let items = request["Nodes"]["items"].as_array().into_iter().flatten();
    let names = names.chain(items.map(|node| &node["metadata"]["name"]));
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn important(cpu: &str) -> Pod {
    let mut all = asks(json!({"cpu": cpu}));
    merge(&mut all, json!({"spec": {"priority": 100}}));
    pod("important", all)
}

fn placed(name: &str, node: &str, cpu: &str) -> Pod {
    let mut all = asks(json!({"cpu": cpu}));
    merge(&mut all, json!({"spec": {"nodeName": node}}));
    pod(name, all)
}

#[tokio::test]
async fn an_extender_filters_objects_and_its_reasons_are_in_the_message() {
    let server = Server::start(|_, request| {
        let nodes = request["Nodes"]["items"].as_array().unwrap().clone();
        let allowed: Vec<&Value> = nodes.iter().filter(|node| node["metadata"]["name"] == "c").collect();
        let failed = json!({"a": "no free GPU", "b": "no free GPU"});
        Reply::Json(match request["Pod"]["metadata"]["name"].as_str() {
            Some("p") => json!({"nodes": {"items": allowed}, "failedNodes": failed}),
            _ => {
                json!({"Nodes": {"items": []}, "FailedNodes": failed, "FailedAndUnresolvableNodes": {"c": "no GPU", "x": "?"}})
            }
        })
    });
    let server = server.await;
    let mut scene = Scene::new(json!([extender(&server, json!({"filterVerb": "filter"}))]));
    for name in ["a", "b", "c", "full"] {
        let cpu = if name == "full" { "0" } else { "4" };
        scene.node(node(name, json!({"status": {"allocatable": {"cpu": cpu}}})));
    }
    assert_eq!(scene.node_of(pod("p", asks(json!({"cpu": "1"})))).await, "c");
    let [(path, request)] = server.take().try_into().unwrap();
    assert_eq!(path, "/scheduler/filter");
    let mut keys: Vec<&String> = request.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["NodeNames", "Nodes", "Pod"]);
    assert_eq!(request["NodeNames"], Value::Null);
    assert_eq!(request["Nodes"]["items"][0]["status"]["allocatable"]["memory"], "8Gi");
    assert_eq!(request["Pod"]["spec"]["containers"][0]["image"], "nginx");
    assert_eq!(nodes_in(&request), ["a", "b", "c"]);
    assert_eq!(
        scene.refusal_of(pod("q", asks(json!({"cpu": "1"})))).await,
        "Unschedulable: 0/4 nodes are available: 1 Insufficient cpu, 1 no GPU, 2 no free GPU. no new claims to \
         deallocate, preemption: 0/4 nodes are available: 2 No preemption victims found for incoming pod, 2 Preemption \
         is not helpful for scheduling."
    );
    // Any event may help a Pod that an extender has rejected.
    server.take();
    scene.test_cluster.pass(Duration::from_secs(60));
    assert_eq!(scene.run().await, []);
    assert_eq!(server.take_verbs(), [""; 0]);
    scene.node(node("c", json!({"status": {"images": [{"names": ["nginx:1"], "sizeBytes": 1}]}})));
    assert_eq!(scene.run().await, []);
    assert_eq!(server.take_verbs(), ["filter"]);
}

#[tokio::test]
async fn an_extender_that_knows_the_nodes_gets_names_and_a_node_it_leaves_out_is_not_taken() {
    let server = Server::start(|_, request| {
        let names = nodes_in(request);
        Reply::Json(json!({"NodeNames": names.iter().filter(|name| *name != "a").collect::<Vec<_>>()}))
    });
    let server = server.await;
    let settings = json!({"filterVerb": "filter", "nodeCacheCapable": true});
    let mut scene = Scene::new(json!([extender(&server, settings)]));
    scene.node(node("a", json!({})));
    let refusal = scene.refusal_of(pod("p", json!({}))).await;
    assert!(refusal.starts_with("Unschedulable: 0/1 nodes are available: no new claims"), "{refusal}");
    let [(_, request)] = server.take().try_into().unwrap();
    assert_eq!((&request["Nodes"], &request["NodeNames"]), (&Value::Null, &json!(["a"])));
    scene.test_cluster.pass(Duration::from_secs(60));
    scene.node(node("b", json!({})));
    assert_eq!(scene.run().await, [("p".to_owned(), "b".to_owned())]);
    // Objects, where names are expected, are taken; names, where objects are expected, are not.
    let server = Server::start(|path, _| {
        Reply::Json(match path.ends_with("objects") {
            true => json!({"Nodes": {"items": [{"metadata": {"name": "a"}}]}}),
            false => json!({"NodeNames": ["a"]}),
        })
    });
    let server = server.await;
    let mut scene = Scene::new(json!([extender(&server, json!({"filterVerb": "objects", "nodeCacheCapable": true}))]));
    scene.node(node("a", json!({})));
    assert_eq!(scene.node_of(pod("p", json!({}))).await, "a");
    let mut scene = Scene::new(json!([extender(&server, json!({"filterVerb": "names"}))]));
    scene.node(node("a", json!({})));
    scene.refusal_of(pod("p", json!({}))).await;
}

#[tokio::test]
async fn each_extender_gets_the_nodes_that_the_one_before_allows_and_ignorable_ones_come_last() {
    let keep = |name: &'static str| {
        move |_: &str, _: &Value| Reply::Json(json!({"NodeNames": [name, "c"], "FailedNodes": {"b": "not b"}}))
    };
    let (first, second) = (Server::start(keep("a")).await, Server::start(keep("c")).await);
    let ignorable = extender(&first, json!({"filterVerb": "f", "nodeCacheCapable": true, "ignorable": true}));
    let strict = extender(&second, json!({"filterVerb": "f", "nodeCacheCapable": true}));
    let mut scene = Scene::new(json!([ignorable, strict]));
    for name in ["a", "b", "c"] {
        scene.node(node(name, json!({})));
    }
    assert_eq!(scene.node_of(pod("p", json!({}))).await, "c");
    let asked = |server: &Server| nodes_in(&server.take()[0].1);
    assert_eq!((asked(&second), asked(&first)), (vec!["a".into(), "b".into(), "c".into()], vec!["c".into()]));
    // The ignorable extender answered with a node that it was not asked about.
    assert_eq!((scene.counted("f", "ignored"), scene.counted("f", "answered")), ("1".into(), "1".into()));
}

#[tokio::test]
async fn scores_are_weighted_and_added_and_an_extender_that_fails_gives_none() {
    let server = Server::start(|path, _| match path.rsplit('/').next() {
        Some("good") => {
            Reply::Json(json!([{"Host": "used", "Score": 3}, {"host": "empty", "score": 0}, {"Host": "x", "Score": 9}]))
        }
        Some("weak") => Reply::Json(json!([{"Host": "empty", "Score": 10}])),
        _ => Reply::Status(503),
    });
    let server = server.await;
    let by = |weight: i64| {
        let good = extender(&server, json!({"prioritizeVerb": "good", "weight": weight}));
        let weak = extender(&server, json!({"prioritizeVerb": "weak", "weight": 1}));
        let broken = extender(&server, json!({"prioritizeVerb": "broken", "weight": 100}));
        Scene::new(json!([good, weak, broken]))
    };
    for (weight, wanted) in [(1, "empty"), (1_000, "used")] {
        let mut scene = by(weight);
        scene.node(node("used", json!({})));
        scene.node(node("empty", json!({})));
        scene.pod(placed("half", "used", "2"));
        assert_eq!(scene.node_of(pod("p", asks(json!({"cpu": "100m"})))).await, wanted);
        let mut verbs = server.take_verbs();
        verbs.sort();
        assert_eq!(verbs, ["broken", "good", "weak"]);
        assert_eq!(scene.counted("broken", "ignored"), "1");
    }
    // There is nothing to compare.
    let mut scene = by(1);
    scene.node(node("used", json!({})));
    assert_eq!(scene.node_of(pod("p", json!({}))).await, "used");
    assert_eq!(server.take_verbs(), [""; 0]);
}

#[tokio::test]
async fn a_failure_is_the_reason_of_the_pod_unless_the_extender_is_ignorable() {
    let server = Server::start(|path, _| match path.rsplit('/').next().unwrap() {
        "error" => Reply::Json(json!({"Error": "the cache is not filled"})),
        "status" => Reply::Status(503),
        "redirect" => Reply::Status(307),
        "garbage" => Reply::Text("<html>"),
        "empty" => Reply::Text(""),
        "endless" => Reply::Endless,
        "other" => Reply::Json(json!({"Nodes": {"items": [{"metadata": {"name": "other"}}]}})),
        _ => Reply::Never,
    });
    let server = server.await;
    let (address, url) = (server.address, server.url());
    for (verb, wanted) in [
        ("error", "the cache is not filled".to_owned()),
        ("status", format!("failed status with extender at URL {url}/status, code 503")),
        ("redirect", format!("failed redirect with extender at URL {url}/redirect, code 307")),
        ("garbage", format!("Post \"{url}/garbage\": the answer cannot be read: expected value at line 1 column 1")),
        (
            "empty",
            format!("Post \"{url}/empty\": the answer cannot be read: EOF while parsing a value at line 1 column 0"),
        ),
        ("endless", format!("Post \"{url}/endless\": the answer has more than 4194304 bytes")),
        (
            "other",
            format!("extender \"{url}\" claims a filtered node \"other\" which is not found in the input node list"),
        ),
        ("never", format!("Post \"{url}/never\": context deadline exceeded: no answer within 20ms")),
    ] {
        let timeout = if verb == "never" { "20ms" } else { "30s" };
        let settings = json!({"filterVerb": verb, "httpTimeout": timeout});
        let mut scene = Scene::new(json!([extender(&server, settings.clone())]));
        scene.node(node("n", json!({})));
        assert_eq!(scene.refusal_of(pod("p", json!({}))).await, format!("SchedulerError: {wanted}"));
        assert_eq!(scene.counted(verb, "failed"), "1");
        let mut ignorable = extender(&server, settings);
        ignorable["ignorable"] = json!(true);
        let mut scene = Scene::new(json!([ignorable]));
        scene.node(node("n", json!({})));
        assert_eq!(scene.node_of(pod("p", json!({}))).await, "n");
        assert_eq!(scene.counted(verb, "ignored"), "1");
    }
    // Nothing listens there.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_ne!(free, address);
    let mut scene = Scene::new(json!([{"urlPrefix": format!("http://{free}"), "filterVerb": "filter"}]));
    scene.node(node("n", json!({})));
    let refusal = scene.refusal_of(pod("p", json!({}))).await;
    assert!(refusal.starts_with(&format!("SchedulerError: Post \"http://{free}/filter\": ")), "{refusal}");
    assert!(refusal.contains("Connection refused"), "{refusal}");
    // After the back-off it is tried again.
    scene.test_cluster.pass(Duration::from_secs(1));
    scene.messages.clear();
    scene.run().await;
    assert_eq!(scene.messages, [refusal]);
}

#[tokio::test]
async fn reasons_are_bounded() {
    let server = Server::start(|_, request| {
        let names = nodes_in(request);
        let reason = |(at, name): (usize, &String)| (name.clone(), Value::from(format!("{at} {}", "é".repeat(4_000))));
        let failed: serde_json::Map<String, Value> = names.iter().enumerate().map(reason).collect();
        Reply::Json(json!({"NodeNames": [], "FailedNodes": failed}))
    });
    let server = server.await;
    let settings = json!({"filterVerb": "filter", "nodeCacheCapable": true});
    let mut scene = Scene::new(json!([extender(&server, settings)]));
    for at in 0..90 {
        scene.node(node(&format!("n{at}"), json!({})));
    }
    let refusal = scene.refusal_of(pod("p", json!({}))).await;
    assert!(refusal.contains(" 26 node(s) were rejected by an extender for other reasons"), "{refusal}");
    assert!(refusal.len() < 70_000, "{}", refusal.len());
}

#[tokio::test]
async fn an_extender_agrees_to_a_preemption_or_chooses_other_victims() {
    let server = Server::start(|path, request| {
        let [victims, meta] = ["NodeNameToVictims", "NodeNameToMetaVictims"].map(|field| request[field].clone());
        match path.rsplit('/').next().unwrap() {
            // Only one node is left.
            "meta" => {
                assert_eq!(victims, Value::Null);
                Reply::Json(json!({"NodeNameToMetaVictims": {"b": meta["b"]}}))
            }
            "objects" => {
                assert_eq!(meta, Value::Null);
                assert_eq!(victims["a"]["Pods"][0]["metadata"]["name"], "a1");
                Reply::Json(
                    json!({"nodeNameToMetaVictims": {"a": {"pods": [{"uid": "uid-a2"}], "numPDBViolations": 1}}}),
                )
            }
            "none" => Reply::Json(json!({"NodeNameToMetaVictims": {}})),
            "stranger" => Reply::Json(json!({"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-b1"}]}}})),
            "nowhere" => Reply::Json(json!({"NodeNameToMetaVictims": {"x": {"Pods": [{"UID": "uid-b1"}]}}})),
            "nobody" => Reply::Json(json!({"NodeNameToMetaVictims": {"b": {"Pods": []}}})),
            _ => Reply::Status(500),
        }
    });
    let server = server.await;
    let scene = |verb: &str, over: Value| {
        let mut all = extender(&server, json!({"preemptVerb": verb}));
        merge(&mut all, over);
        let mut scene = Scene::new(json!([all]));
        for name in ["a", "b"] {
            scene.node(node(name, json!({})));
        }
        for (name, on, cpu, priority) in [("a1", "a", "2", 0), ("a2", "a", "2", 1), ("b1", "b", "4", 1)] {
            let mut pod = placed(name, on, cpu);
            pod.spec.as_mut().unwrap().priority = Some(priority);
            scene.pod(pod);
        }
        scene
    };
    let cached = json!({"nodeCacheCapable": true});
    let mut on_b = scene("meta", cached.clone());
    on_b.refusal_of(important("3")).await;
    assert_eq!(on_b.preempted, [("b".to_owned(), vec!["b1".to_owned()])]);
    let [(path, request)] = server.take().try_into().unwrap();
    assert_eq!((path.as_str(), &request["Pod"]["metadata"]["name"]), ("/scheduler/meta", &json!("important")));
    assert_eq!(request["NodeNameToMetaVictims"]["b"], json!({"Pods": [{"UID": "uid-b1"}], "NumPDBViolations": 0}));
    let mut others = scene("objects", json!({}));
    others.refusal_of(important("2")).await;
    assert_eq!(others.preempted, [("a".to_owned(), vec!["a2".to_owned()])]);
    let url = server.url();
    let stranger = format!(
        "extender: {url} claims to preempt pod (UID: uid-b1) on node: a, but the pod is not found on that node"
    );
    for (verb, wanted) in [
        ("none", "no new claims to deallocate, preemption: no candidate node for preemption".to_owned()),
        ("stranger", format!("preemption: {stranger}")),
        ("nowhere", "preemption: nodeinfo not found for node name \"x\"".to_owned()),
        ("nobody", "preemption: expected at least one victim pod on node \"b\"".to_owned()),
        ("broken", format!("preemption: failed broken with extender at URL {url}/broken, code 500")),
    ] {
        let mut strict = scene(verb, cached.clone());
        let refusal = strict.refusal_of(important("3")).await;
        assert_eq!(refusal, format!("Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. {wanted}"));
        assert_eq!(strict.preempted, []);
        let mut ignorable = scene(verb, json!({"nodeCacheCapable": true, "ignorable": true}));
        ignorable.refusal_of(important("3")).await;
        // It is asked in vain, or it has taken all candidates away.
        let goes_on = !matches!(verb, "none" | "nobody");
        assert_eq!(ignorable.preempted.len(), usize::from(goes_on), "{verb}");
    }
}

#[tokio::test]
async fn an_extender_binds_and_its_failure_is_reported() {
    let server = Server::start(|_, request| match request["PodName"].as_str() {
        Some("bad") => Reply::Json(json!({"Error": "the device is taken"})),
        _ => Reply::Json(json!({})),
    });
    let server = server.await;
    let mut scene = Scene::new(json!([extender(&server, json!({"bindVerb": "bind"}))]));
    scene.node(node("n", json!({})));
    assert_eq!(scene.node_of(pod("good", json!({}))).await, "n");
    let wanted = json!({"PodName": "good", "PodNamespace": "default", "PodUID": "uid-good", "Node": "n"});
    assert_eq!(server.take(), [("/scheduler/bind".to_owned(), wanted)]);
    scene.node_of(pod("bad", json!({}))).await;
    assert_eq!(scene.messages, ["SchedulerError: the device is taken"]);
    // An ignorable extender that fails leaves the binding to the scheduler, whose server fails here.
    let mut scene = Scene::new(json!([extender(&server, json!({"bindVerb": "bind", "ignorable": true}))]));
    scene.node(node("n", json!({})));
    scene.node_of(pod("bad", json!({}))).await;
    let [message] = scene.messages.as_slice() else { panic!("{:?}", scene.messages) };
    assert!(message.starts_with("SchedulerError: running Bind plugin \"DefaultBinder\": "), "{message}");
}

#[tokio::test]
async fn only_pods_with_managed_resources_are_asked_about_and_nodes_need_not_have_ignored_ones() {
    let server = Server::start(|_, request| Reply::Json(json!({"NodeNames": nodes_in(request)})));
    let server = server.await;
    let managed = json!([{"name": "example.com/gpu", "ignoredByScheduler": true}, {"name": "example.com/fpga"}]);
    let all =
        json!({"filterVerb": "filter", "bindVerb": "bind", "nodeCacheCapable": true, "managedResources": managed});
    let mut scene = Scene::new(json!([extender(&server, all)]));
    scene.node(node("n", json!({})));
    assert_eq!(scene.node_of(pod("plain", asks(json!({"cpu": "1"})))).await, "n");
    assert_eq!(server.take_verbs(), [""; 0]);
    assert_eq!(scene.node_of(pod("gpu", asks(json!({"example.com/gpu": "1"})))).await, "n");
    assert_eq!(server.take_verbs(), ["filter", "bind"]);
    let init = json!({"spec": {"initContainers": [{"name": "i", "resources": {"limits": {"example.com/gpu": "1"}}}]}});
    assert_eq!(scene.node_of(pod("init", init)).await, "n");
    assert_eq!(server.take_verbs(), ["filter", "bind"]);
    let refusal = scene.refusal_of(pod("fpga", asks(json!({"example.com/fpga": "1"})))).await;
    assert!(refusal.contains("1 Insufficient example.com/fpga"), "{refusal}");
}

#[tokio::test]
async fn the_nominated_node_is_asked_about_alone_and_then_all_others() {
    let server = Server::start(|_, request| {
        let names = nodes_in(request);
        Reply::Json(json!({"NodeNames": names.iter().filter(|name| *name != "a").collect::<Vec<_>>(),
            "FailedNodes": {"a": "not a"}}))
    });
    let server = server.await;
    let settings = json!({"filterVerb": "filter", "nodeCacheCapable": true});
    let mut scene = Scene::new(json!([extender(&server, settings)]));
    for name in ["a", "b"] {
        scene.node(node(name, json!({})));
    }
    let nominated = |node: &str| json!({"status": {"nominatedNodeName": node}});
    assert_eq!(scene.node_of(pod("p", nominated("b"))).await, "b");
    assert_eq!(server.take().iter().map(|(_, request)| nodes_in(request)).collect::<Vec<_>>(), [["b"]]);
    assert_eq!(scene.node_of(pod("q", nominated("a"))).await, "b");
    let asked: Vec<Vec<String>> = server.take().iter().map(|(_, request)| nodes_in(request)).collect();
    assert_eq!(asked[0], ["a"]);
    let mut all = asked[1].clone();
    all.sort();
    assert_eq!((all, asked.len()), (vec!["a".to_owned(), "b".to_owned()], 2));
}

/// The only request, which is one to extenders.
#[track_caller]
fn question(scene: &mut Scene) -> Effect {
    let mut effects = scene.test_cluster.effects();
    assert!(matches!(effects.as_slice(), [Effect::Extend(_)]), "{effects:?}");
    effects.remove(0)
}

#[tokio::test]
async fn while_an_extender_is_asked_nothing_else_is_decided_and_what_has_changed_meanwhile_counts() {
    let server = Server::start(|_, request| Reply::Json(json!({"NodeNames": nodes_in(request)})));
    let server = server.await;
    let settings = json!({"filterVerb": "filter", "nodeCacheCapable": true});
    let mut scene = Scene::new(json!([extender(&server, settings)]));
    scene.node(node("n", json!({})));
    scene.pod(pod("p", asks(json!({"cpu": "3"}))));
    let asked = question(&mut scene);
    // Another Pod waits, although it goes first.
    scene.pod(important("1"));
    let now = scene.test_cluster.now;
    assert!(!scene.state().is_ready(now) && scene.state().next_wake().is_none());
    // The room is taken by another scheduler.
    scene.pod(placed("other", "n", "2"));
    let answer = scene.requests.send(asked).await;
    assert!(matches!(answer, Answer::Extended(_, Ok(_))), "{answer:?}");
    answer.tell(scene.state(), now);
    assert_eq!(scene.run().await, [("important".to_owned(), "n".to_owned())]);
    // The Pod is tried once more because of the events that came meanwhile.
    assert_eq!(scene.messages.len(), 2);
    let wanted = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.";
    assert!(scene.messages.iter().all(|message| message.starts_with(wanted)), "{:?}", scene.messages);
    // A Pod that is gone when the answer comes is forgotten.
    scene.state().pod_gone(&key("other"), now);
    scene.test_cluster.pass(Duration::from_secs(10));
    let asked = question(&mut scene);
    let now = scene.test_cluster.now;
    scene.state().pod_gone(&key("p"), now);
    scene.requests.send(asked).await.tell(scene.state(), now);
    assert_eq!(scene.run().await, []);
    scene.pod(pod("q", asks(json!({"cpu": "3"}))));
    assert_eq!(scene.run().await, [("q".to_owned(), "n".to_owned())]);
}

#[tokio::test]
async fn a_pod_is_tried_again_after_an_event_that_came_while_the_extender_was_asked() {
    let server = Server::start(|_, request| Reply::Json(json!({"NodeNames": nodes_in(request)})));
    let server = server.await;
    let settings = json!({"preemptVerb": "preempt", "nodeCacheCapable": true, "ignorable": true});
    let mut scene = Scene::new(json!([extender(&server, settings)]));
    scene.node(node("n", json!({})));
    scene.pod(placed("low", "n", "4"));
    scene.pod(important("2"));
    let asked = question(&mut scene);
    let now = scene.test_cluster.now;
    scene.state().pod_gone(&key("low"), now);
    scene.requests.send(asked).await.tell(scene.state(), now);
    // There is nobody left to preempt, and the Pod fits.
    assert_eq!(scene.run().await, [("important".to_owned(), "n".to_owned())]);
    assert_eq!(scene.preempted, []);
    // One that is being deleted by then is not bound.
    let server = Server::start(|_, request| Reply::Json(json!({"NodeNames": nodes_in(request)}))).await;
    let mut scene = Scene::new(json!([extender(&server, json!({"filterVerb": "filter", "nodeCacheCapable": true}))]));
    scene.node(node("n", json!({})));
    scene.pod(pod("p", json!({})));
    let asked = question(&mut scene);
    scene.test_cluster.pod(&pod("p", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    let now = scene.test_cluster.now;
    scene.requests.send(asked).await.tell(scene.state(), now);
    let effects = scene.test_cluster.effects();
    assert!(matches!(effects.as_slice(), [Effect::Skip { pod, .. }] if *pod == reference("p")), "{effects:?}");
}

#[tokio::test]
async fn a_changed_annotation_or_spec_of_a_refused_pod_lets_the_extender_decide_again() {
    let server = Server::start(|_, request| {
        let is_asked_for = request["Pod"]["metadata"]["annotations"]["example.com/pool"] == "large";
        let nodes = if is_asked_for { nodes_in(request) } else { Vec::new() };
        Reply::Json(json!({"NodeNames": nodes}))
    });
    let server = server.await;
    let mut scene = Scene::new(json!([extender(&server, json!({"filterVerb": "filter", "nodeCacheCapable": true}))]));
    scene.node(node("n", json!({})));
    scene.refusal_of(pod("p", json!({}))).await;
    server.take();
    scene.test_cluster.pass(Duration::from_secs(60));
    // The status is written by the scheduler itself.
    let said = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "?"});
    scene.pod(pod("p", json!({"status": {"conditions": [said]}})));
    assert_eq!(scene.run().await, []);
    assert_eq!(server.take_verbs(), [""; 0]);
    scene.pod(pod("p", json!({"spec": {"activeDeadlineSeconds": 60}})));
    assert_eq!(scene.run().await, []);
    assert_eq!(server.take_verbs(), ["filter"]);
    scene.test_cluster.pass(Duration::from_secs(60));
    let large =
        json!({"metadata": {"annotations": {"example.com/pool": "large"}}, "spec": {"activeDeadlineSeconds": 60}});
    assert_eq!(scene.node_of(pod("p", large)).await, "n");
}

#[tokio::test]
async fn a_later_pod_of_the_name_is_not_reported_for_the_one_that_was_asked_about() {
    let server = Server::start(|_, request| Reply::Json(json!({"NodeNames": nodes_in(request)}))).await;
    let mut scene = Scene::new(json!([extender(&server, json!({"filterVerb": "filter", "nodeCacheCapable": true}))]));
    scene.node(node("n", json!({})));
    scene.pod(pod("p", json!({})));
    let asked = question(&mut scene);
    let answer = scene.requests.send(asked).await;
    let now = scene.test_cluster.now;
    scene.state().pod_gone(&key("p"), now);
    let later = json!({"metadata": {"uid": "later", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    scene.test_cluster.pod(&pod("p", later));
    answer.tell(scene.state(), now);
    let effects = scene.test_cluster.effects();
    assert!(matches!(effects.as_slice(), [Effect::Skip { pod, .. }] if &*pod.uid == "later"), "{effects:?}");
}

#[tokio::test]
async fn an_extender_is_not_asked_about_victims_that_are_gone() {
    for is_cached in [false, true] {
        let server = Server::start(|_, request| {
            let victims = [&request["NodeNameToVictims"], &request["NodeNameToMetaVictims"]];
            let nodes: Vec<&String> =
                victims.iter().filter_map(|all| all.as_object()).flat_map(|all| all.keys()).collect();
            assert_eq!(nodes, ["b"]);
            Reply::Json(json!({"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "uid-b1"}]}}}))
        });
        let server = server.await;
        let settings = json!({"preemptVerb": "preempt", "nodeCacheCapable": is_cached});
        let mut scene = Scene::new(json!([extender(&server, settings)]));
        for (node_name, names) in [("a", ["a1", "a2"]), ("b", ["b1", "b2"])] {
            scene.node(node(node_name, json!({})));
            names.iter().for_each(|name| scene.pod(placed(name, node_name, "2")));
        }
        // One is gone, and the other one a later Pod of the name.
        scene.pods.lock().remove("a1");
        let later = pod("a2", json!({"metadata": {"uid": "later"}}));
        scene.pods.lock().insert("a2".to_owned(), Arc::new(later));
        scene.refusal_of(important("1")).await;
        assert_eq!(scene.preempted, [("b".to_owned(), vec!["b1".to_owned()])], "{is_cached}");
        assert_eq!(server.take_verbs(), ["preempt"]);
        // Nothing is left to ask about.
        scene.pods.lock().retain(|name, _| !name.starts_with('b'));
        let mut other = important("1");
        other.metadata.name = Some("other".to_owned());
        other.metadata.uid = Some("uid-other".into());
        scene.preempted.clear();
        scene.refusal_of(other).await;
        assert_eq!((scene.preempted.len(), server.take_verbs().len()), (0, 0));
    }
}

#[tokio::test]
async fn only_with_an_extender_that_binds_many_requests_are_in_flight() {
    let in_flight = |verb: &str| {
        let extender = json!({"urlPrefix": "http://127.0.0.1:1", verb: "verb"});
        Scene::new(json!([extender])).requests.in_flight_max()
    };
    assert_eq!((in_flight("filterVerb"), in_flight("bindVerb")), (64, 1_024));
}

#[test]
fn a_node_that_is_gone_by_the_time_of_the_answer_leaves_a_plugin_that_wakes_the_pod() {
    let configuration = Configuration::default();
    let mut cluster = Cluster::new(Box::new(|_, _| None));
    cluster.set_node("kept", Arc::new(NodeFacts::read(&node("kept", json!({})))));
    let waiting = pod("p", json!({}));
    let placed = Arc::new(Placed::read(&waiting, cluster.identity("default", None)));
    let pending = Pending::read(&waiting, placed, configuration.profile("default-scheduler").unwrap());
    let nominations = Nominations::new();
    let (cycle, around) = Cycle::new(&cluster, &nominations, &pending).unwrap();
    let mut diagnosis = Diagnosis::default();
    let found = cycle.still_feasible(&around, &["gone".into(), "kept".into()], &mut diagnosis).unwrap();
    assert_eq!(found.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["kept"]);
    assert!(diagnosis.plugins.contains(Plugin::Extender));
    let mut diagnosis = Diagnosis::default();
    cycle.still_feasible(&around, &["kept".into()], &mut diagnosis).unwrap();
    assert!(!diagnosis.plugins.contains(Plugin::Extender));
}

#[tokio::test]
async fn certificates_are_checked_by_the_configured_authority_and_name() {
    let identity = Identity::new();
    let server = Server::start_tls(&identity, |_, request| Reply::Json(json!({"NodeNames": nodes_in(request)}))).await;
    let said = async |over: Value| {
        let mut all = json!({"urlPrefix": format!("https://{}", server.address), "filterVerb": "filter",
            "nodeCacheCapable": true});
        merge(&mut all, over);
        let mut scene = Scene::new(json!([all]));
        scene.node(node("n", json!({})));
        scene.pod(pod("p", json!({})));
        let bound = scene.run().await;
        if bound.is_empty() { scene.messages.remove(0) } else { "bound".to_owned() }
    };
    let authority = STANDARD.encode(&identity.authority);
    assert_eq!(said(json!({"tlsConfig": {"caData": authority, "serverName": "extender"}})).await, "bound");
    // Without an authority, certificates are checked only where nothing says otherwise.
    assert_eq!(said(json!({"enableHTTPS": true})).await, "bound");
    assert_eq!(said(json!({"tlsConfig": {"insecure": true}})).await, "bound");
    let other = STANDARD.encode(Identity::new().authority);
    for refused in [
        json!({"tlsConfig": {"caData": authority, "serverName": "other"}}),
        json!({"tlsConfig": {"caData": authority}}),
        json!({"enableHTTPS": true, "tlsConfig": {"caData": other, "serverName": "extender"}}),
    ] {
        let message = said(refused).await;
        assert!(message.contains("certificate"), "{message}");
    }
}
