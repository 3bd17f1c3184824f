//! Life cycles of simulated Pods on a simulated clock.

use super::*;
use crate::kubelet::pod::references::{Found, Kind};
use crate::kubelet::stage::behavior::{Layer, Layers, Range};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A Pod on a node, and a clock that only moves forward.
struct Simulated {
    pod: Pod,
    state: PodState,
    images: Images,
    begin: Instant,
    now: Now,
    events: Vec<String>,
    wakes: Option<Instant>,
    n_removals: usize,
    found: Found,
}

/// The behavior from the annotations of a Pod and from Stages.
fn behaviors(pod: &Pod, stages: &[&Layers]) -> (Behaviors, Vec<String>) {
    let (annotations, faults) = Layer::of(pod);
    (Behaviors::of(&annotations, stages), faults)
}

const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(172, 18, 0, 2));

impl Simulated {
    fn new(annotations: Value, spec: Value) -> Simulated {
        let annotations: serde_json::Map<String, Value> = annotations
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| (format!("simulate.steersman.dev/{key}"), value.clone()))
            .collect();
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "generation": 1, "annotations": annotations},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "nginx"}]},
        });
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let now = Now { instant: Instant::now(), time: Timestamp::from_second(1_800_000_000).unwrap() };
        let mut state = PodState::new(&pod, behaviors(&pod, &[]), now);
        state.ips = vec!["10.0.0.2".parse().unwrap()];
        let mut simulated = Simulated {
            pod,
            state,
            images: Images::default(),
            begin: now.instant,
            now,
            events: Vec::new(),
            wakes: None,
            n_removals: 0,
            found: Found::new(),
        };
        simulated.step(Input::Wake);
        simulated
    }

    fn step(&mut self, input: Input) {
        let effects = self.state.step(&self.pod, &mut self.images, self.now, input);
        self.events.extend(effects.events.into_iter().map(|event| event.reason));
        self.n_removals += usize::from(effects.removes);
        self.wakes = effects.wakes;
        if effects.asks {
            self.step(Input::References(self.found.clone()));
        }
    }

    /// Advances the clock, and steps at every timer on the way.
    fn pass(&mut self, seconds: u64) {
        let end = self.now.instant + Duration::from_secs(seconds);
        let mut n_steps = 0;
        while let Some(at) = self.wakes.filter(|at| *at <= end) {
            assert!(at > self.now.instant, "it wakes again at the same time");
            n_steps += 1;
            assert!(n_steps < 1_000, "it wakes too often");
            self.move_to(at);
            self.step(Input::Wake);
        }
        self.move_to(end);
    }

    fn move_to(&mut self, at: Instant) {
        let passed = at.duration_since(self.now.instant);
        self.now = Now { instant: at, time: self.now.time + jiff::SignedDuration::try_from(passed).unwrap() };
    }

    fn delete(&mut self, grace: i64) {
        self.pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now.time));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.step(Input::Wake);
    }

    fn status(&mut self) -> core::PodStatus {
        status::of(&mut self.state, &self.pod, HOST, self.now)
    }

    fn condition(&mut self, type_: &str) -> bool {
        self.status().conditions.into_iter().flatten().any(|one| one.type_ == type_ && one.status == "True")
    }

    fn phase(&mut self) -> String {
        self.status().phase.unwrap()
    }

    /// The state of each container: `c running`, `c CrashLoopBackOff`, `c exit 1`.
    fn containers(&mut self) -> String {
        let status = self.status();
        let all = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
        let describe = |one: core::ContainerStatus| {
            let state = one.state.unwrap();
            let is = match (state.waiting, state.terminated) {
                (Some(waiting), _) => waiting.reason.unwrap(),
                (_, Some(ended)) => format!("exit {}", ended.exit_code),
                _ => "running".to_owned(),
            };
            format!("{} {is}", one.name)
        };
        all.map(describe).collect::<Vec<_>>().join(", ")
    }

    fn restarts(&mut self) -> i32 {
        self.status().container_statuses.iter().flatten().map(|one| one.restart_count).sum()
    }

    fn elapsed(&self) -> u64 {
        self.now.instant.duration_since(self.begin).as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_word_everything_is_ready_at_once_and_nothing_is_waited_for() {
    let mut pod = Simulated::new(json!({}), json!({}));
    assert_eq!((pod.phase().as_str(), pod.condition("Ready"), pod.wakes), ("Running", true, None));
    assert_eq!(pod.events, ["Pulling", "Pulled", "Created", "Started"]);
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_five_minutes_and_begin_anew_after_ten_good_ones() {
    let mut pod = Simulated::new(json!({"crash-loop": "true"}), json!({}));
    let mut at = vec![];
    while at.len() < 8 {
        let restarts = pod.restarts();
        let wakes = pod.wakes.unwrap();
        pod.pass(wakes.duration_since(pod.now.instant).as_secs());
        assert_eq!(pod.restarts(), restarts + 1);
        at.push(pod.elapsed());
    }
    let pauses: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!((at[0], &pauses[..]), (10, &[20, 40, 80, 160, 300, 300, 300][..]));
    assert_eq!(pod.containers(), "c CrashLoopBackOff");

    let mut pod = Simulated::new(json!({"fail-after": "11m"}), json!({}));
    for restarts in 1..5 {
        pod.pass(11 * 60);
        assert_eq!((pod.restarts(), pod.containers().as_str()), (restarts, "c running"), "it begins again at once");
    }
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_one_after_the_other_and_sidecars_go_on() {
    let init = json!([
        {"name": "a", "image": "x"},
        {"name": "s", "image": "x", "restartPolicy": "Always", "startupProbe": {"initialDelaySeconds": 5}},
        {"name": "b", "image": "x"},
    ]);
    let mut pod = Simulated::new(json!({}), json!({"initContainers": init}));
    assert_eq!(pod.containers(), "a exit 0, s running, b PodInitializing, c PodInitializing");
    assert_eq!((pod.phase().as_str(), pod.condition("Initialized")), ("Pending", false));
    pod.pass(5);
    assert_eq!(pod.containers(), "a exit 0, s running, b exit 0, c running");
    assert_eq!((pod.phase().as_str(), pod.condition("Initialized"), pod.condition("Ready")), ("Running", true, true));
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_ends_when_the_others_have_and_does_not_fail_the_pod() {
    let init = json!([{"name": "s", "image": "x", "restartPolicy": "Always"}]);
    let mut pod =
        Simulated::new(json!({"succeed-after": "3s"}), json!({"initContainers": init, "restartPolicy": "Never"}));
    assert_eq!(pod.containers(), "s running, c running");
    pod.pass(3);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str()), ("s exit 0, c exit 0", "Succeeded"));
    assert_eq!(pod.wakes, None);
}

#[tokio::test(start_paused = true)]
async fn what_fails_begins_again_or_not_as_the_policy_says() {
    let failing = |policy: &str, code: &str| {
        let mut pod = Simulated::new(json!({"fail-after": "1s", "exit-code": code}), json!({"restartPolicy": policy}));
        pod.pass(1);
        (pod.phase(), pod.containers())
    };
    let check = |policy: &str, code: &str, phase: &str, containers: &str| {
        assert_eq!(failing(policy, code), (phase.to_owned(), containers.to_owned()), "{policy} {code}");
    };
    check("Never", "1", "Failed", "c exit 1");
    check("Never", "0", "Succeeded", "c exit 0");
    check("OnFailure", "1", "Running", "c running");
    check("OnFailure", "0", "Succeeded", "c exit 0");
    check("Always", "0", "Running", "c running");
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let container = json!([{"name": "c", "image": "x", "restartPolicy": "Never", "restartPolicyRules": rules}]);
    for (code, want) in [("42", "c running"), ("41", "c exit 41")] {
        let annotations = json!({"fail-after": "1s", "exit-code": code});
        let mut pod = Simulated::new(annotations, json!({"containers": container, "restartPolicy": "Never"}));
        pod.pass(1);
        assert_eq!(pod.containers(), want);
    }
}

#[tokio::test(start_paused = true)]
async fn an_init_container_of_a_pod_that_never_restarts_fails_the_pod_only_if_it_fails() {
    let init = json!([{"name": "a", "image": "x:missing"}]);
    let mut pod = Simulated::new(json!({}), json!({"initContainers": init, "restartPolicy": "Never"}));
    assert_eq!(pod.containers(), "a ErrImagePull, c PodInitializing");
    pod.pass(2);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str()), ("a ImagePullBackOff, c PodInitializing", "Pending"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_given_a_deadline_while_it_runs_fails_at_it() {
    let mut pod = Simulated::new(json!({}), json!({}));
    pod.pass(10);
    pod.pod.spec.as_mut().unwrap().active_deadline_seconds = Some(15);
    pod.step(Input::Wake);
    pod.pass(4);
    assert_eq!(pod.phase(), "Running");
    pod.pass(1);
    assert_eq!(pod.status().reason.as_deref(), Some("DeadlineExceeded"));
}

#[tokio::test(start_paused = true)]
async fn images_whose_tag_says_that_they_do_not_exist_cannot_be_pulled() {
    for (image, want) in
        [("x:missing", "c ErrImagePull"), ("x:404", "c ErrImagePull"), ("x:non-existent", "c ErrImagePull")]
            .into_iter()
            .chain([("x:4040", "c running"), ("404", "c running")])
    {
        let mut pod = Simulated::new(json!({}), json!({"containers": [{"name": "c", "image": image}]}));
        assert_eq!(pod.containers(), want, "{image}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_waits_until_the_path_in_its_volume_can_be_made() {
    let field = json!({"fieldRef": {"fieldPath": "metadata.annotations['path']"}});
    let mounts = json!([{"name": "v", "mountPath": "/m", "subPathExpr": "$(PATH_OF_LOGS)/logs"}]);
    let container = json!([{
        "name": "c", "image": "x", "env": [{"name": "PATH_OF_LOGS", "valueFrom": field}], "volumeMounts": mounts,
    }]);
    let mut pod =
        Simulated::new(json!({}), json!({"containers": container, "volumes": [{"name": "v", "emptyDir": {}}]}));
    pod.pass(30);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str()), ("c CreateContainerConfigError", "Pending"));
    pod.pod.metadata.annotations.get_or_insert_default().insert("path".to_owned(), "data".to_owned());
    pod.pass(10);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str()), ("c running", "Running"));
}

#[tokio::test(start_paused = true)]
async fn probes_have_the_delays_that_they_are_given() {
    let container = json!([{
        "name": "c", "image": "x",
        "startupProbe": {"initialDelaySeconds": 10},
        "readinessProbe": {"initialDelaySeconds": 5, "periodSeconds": 3, "successThreshold": 2},
    }]);
    let mut pod = Simulated::new(json!({"ready-delay": "1s"}), json!({"containers": container}));
    let mut states = Vec::new();
    for _ in 0..16 {
        states.push((
            pod.elapsed(),
            pod.status().container_statuses.unwrap()[0].started.unwrap(),
            pod.condition("Ready"),
        ));
        pod.pass(1);
    }
    assert_eq!(states.iter().position(|(_, started, _)| *started), Some(10));
    assert_eq!(states.iter().position(|(_, _, ready)| *ready), Some(14));
}

#[tokio::test(start_paused = true)]
async fn a_failing_liveness_probe_begins_the_container_again() {
    let container = json!([{"name": "c", "image": "x", "livenessProbe": {"periodSeconds": 5, "failureThreshold": 3}}]);
    let mut pod = Simulated::new(json!({"liveness-fails-after": "10s"}), json!({"containers": container}));
    pod.pass(19);
    assert_eq!(pod.restarts(), 0);
    pod.pass(1);
    assert_eq!(pod.restarts(), 1);
    assert!(
        pod.events.ends_with(&["Unhealthy", "Killing", "Pulled", "Created", "Started"].map(str::to_owned)),
        "{:?}",
        pod.events
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_never_ready_runs_all_the_same() {
    let mut pod = Simulated::new(json!({"never-ready": "true"}), json!({}));
    pod.pass(3600);
    assert_eq!((pod.phase().as_str(), pod.condition("ContainersReady")), ("Running", false));
    let conditions = pod.status().conditions.unwrap();
    let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [c]"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_active_for_too_long_fails() {
    let mut pod = Simulated::new(json!({}), json!({"activeDeadlineSeconds": 60}));
    pod.pass(59);
    assert_eq!(pod.phase(), "Running");
    pod.pass(1);
    let status = pod.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("DeadlineExceeded")));
    assert_eq!(status.message.as_deref(), Some("Pod was active on the node longer than the specified deadline"));
    assert_eq!((pod.wakes, pod.n_removals), (None, 0));
    pod.delete(30);
    assert_eq!(pod.n_removals, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_lets_containers_end_and_is_over_after_the_grace_period() {
    let mut pod = Simulated::new(json!({"stop-delay": "20s"}), json!({}));
    pod.delete(30);
    assert_eq!((pod.containers().as_str(), pod.n_removals), ("c running", 0));
    pod.pass(20);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str(), pod.n_removals), ("c exit 0", "Succeeded", 1));

    let mut pod = Simulated::new(json!({"stop-delay": "1h"}), json!({}));
    pod.delete(30);
    pod.pass(10);
    pod.delete(5);
    pod.pass(5);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str(), pod.n_removals), ("c exit 137", "Failed", 1));
    pod.delete(0);
    assert_eq!((pod.n_removals, pod.wakes), (1, None));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_before_it_began_has_failed() {
    let mut pod = Simulated::new(json!({"delay": "1h"}), json!({}));
    assert_eq!(pod.containers(), "c ContainerCreating");
    pod.delete(30);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str(), pod.n_removals), ("c exit 137", "Failed", 1));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_was_paused_ends_as_it_ended_before() {
    let mut pod = Simulated::new(json!({"crash-loop": "true", "exit-code": "7"}), json!({}));
    assert_eq!(pod.containers(), "c CrashLoopBackOff");
    pod.delete(30);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str()), ("c exit 7", "Failed"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_its_source_is_waited_for() {
    let volumes = json!([{"name": "v", "configMap": {"name": "m"}}]);
    let mut pod = Simulated::new(json!({}), json!({"volumes": volumes}));
    pod.found.insert((Kind::ConfigMap, "m".to_owned()), None);
    pod.state.lookup = Lookup::Needed;
    pod.state.containers = vec![Container::new()];
    pod.step(Input::Wake);
    assert_eq!(pod.containers(), "c ContainerCreating");
    assert_eq!(pod.events.last().map(String::as_str), Some("FailedMount"));
    pod.found.insert((Kind::ConfigMap, "m".to_owned()), Some(BTreeSet::new()));
    pod.pass(10);
    assert_eq!((pod.containers().as_str(), pod.wakes), ("c running", None));
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_goes_on() {
    let mut before = Simulated::new(json!({"fail-after": "100s"}), json!({"restartPolicy": "Never"}));
    before.pass(40);
    let mut pod = before.pod.clone();
    pod.status = Some(before.status());
    let mut state = PodState::new(&pod, behaviors(&pod, &[]), before.now);
    assert!(!state.is_new());
    assert_eq!(status::of(&mut state, &pod, HOST, before.now), before.status());
    let effects = state.step(&pod, &mut Images::default(), before.now, Input::Wake);
    assert_eq!(effects.events, []);
    assert_eq!(effects.wakes.map(|at| at.duration_since(before.now.instant).as_secs()), Some(60));
}

/// The layers of a Stage that sets one field for all containers.
fn stage(general: Layer) -> Layers {
    Layers { general, containers: BTreeMap::new() }
}

impl Simulated {
    /// Replaces the Stages that select the Pod.
    fn behave(&mut self, stages: &[&Layers]) {
        self.state.behave(behaviors(&self.pod, stages));
        self.step(Input::Wake);
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_runs_follows_when_its_behavior_changes() {
    let mut pod = Simulated::new(json!({}), json!({}));
    pod.pass(3600);
    let never = stage(Layer { never_ready: Some(true), ..Layer::default() });
    pod.behave(&[&never]);
    assert_eq!((pod.containers().as_str(), pod.condition("Ready"), pod.wakes), ("c running", false, None));
    pod.behave(&[]);
    assert_eq!((pod.condition("Ready"), pod.restarts(), pod.wakes), (true, 0, None));

    // The time counts from the start of the container.
    let later = stage(Layer { fail_after: Range::parse("2h"), ..Layer::default() });
    pod.behave(&[&later]);
    pod.pass(3599);
    assert_eq!(pod.restarts(), 0);
    pod.behave(&[]);
    pod.pass(3600);
    assert_eq!((pod.restarts(), pod.wakes), (0, None));
    pod.behave(&[&later]);
    assert_eq!((pod.restarts(), pod.containers().as_str()), (1, "c running"));
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_to_end_keeps_its_time_when_its_behavior_changes() {
    let slow = stage(Layer { stop_delay: Range::parse("20s"), ..Layer::default() });
    let mut pod = Simulated::new(json!({}), json!({}));
    pod.behave(&[&slow]);
    pod.delete(30);
    pod.behave(&[]);
    pod.pass(19);
    assert_eq!(pod.containers(), "c running");
    pod.pass(1);
    assert_eq!((pod.containers().as_str(), pod.n_removals), ("c exit 0", 1));

    let init = json!([{"name": "s", "image": "x", "restartPolicy": "Always"}]);
    let mut pod = Simulated::new(json!({}), json!({"initContainers": init, "restartPolicy": "Never"}));
    pod.behave(&[&slow]);
    pod.pass(1);
    assert_eq!(pod.containers(), "s running, c exit 0", "the sidecar is asked to end and takes its time");
    pod.behave(&[]);
    pod.pass(20);
    assert_eq!((pod.containers().as_str(), pod.phase().as_str()), ("s exit 0, c exit 0", "Succeeded"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_used_is_said_once_and_again_when_it_is_something_else() {
    let mut pod = Simulated::new(json!({"delay": "soon"}), json!({}));
    pod.behave(&[]);
    let n_said = |pod: &Simulated| pod.events.iter().filter(|reason| *reason == "InvalidSimulation").count();
    assert_eq!(n_said(&pod), 1);
    pod.pod.metadata.annotations = Some([("simulate.steersman.dev/delay".to_owned(), "later".to_owned())].into());
    pod.behave(&[]);
    pod.behave(&[]);
    assert_eq!(n_said(&pod), 2);
}

fn some_annotations() -> impl Strategy<Value = Value> {
    let duration = || prop_oneof![Just("0"), Just("1s"), Just("1s..90s"), Just("100000000h"), Just("soon")];
    let flag = || prop_oneof![3 => Just("false"), 1 => Just("true")];
    let key = prop_oneof![
        Just("delay"),
        Just("ready-delay"),
        Just("succeed-after"),
        Just("fail-after"),
        Just("liveness-fails-after"),
        Just("stop-delay"),
    ];
    let durations = proptest::collection::btree_map(key, duration(), 0..4);
    (durations, flag(), flag(), flag()).prop_map(|(durations, crash, never, missing)| {
        let mut all = json!(durations);
        all["crash-loop"] = json!(crash);
        all["never-ready"] = json!(never);
        all["image-missing"] = json!(missing);
        all
    })
}

fn some_spec() -> impl Strategy<Value = Value> {
    let probe = prop_oneof![
        3 => Just(Value::Null),
        1 => (0_i32..20, 0_i32..5, -1_i32..4).prop_map(|(delay, period, n)| {
            json!({"initialDelaySeconds": delay, "periodSeconds": period, "failureThreshold": n, "successThreshold": n})
        }),
        1 => Just(json!({"initialDelaySeconds": i32::MAX, "periodSeconds": i32::MAX, "successThreshold": i32::MAX})),
    ];
    let restart = prop_oneof![Just(Value::Null), Just(json!("Always")), Just(json!("Never"))];
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let deadline =
        prop_oneof![3 => Just(Value::Null), 1 => (1_i64..200).prop_map(|n| json!(n)), 1 => Just(json!(i64::MAX))];
    let container = (probe.clone(), probe.clone(), probe, restart).prop_map(|(startup, readiness, liveness, restart)| {
        json!({
            "image": "x", "restartPolicy": restart, "startupProbe": startup, "readinessProbe": readiness, "livenessProbe": liveness,
        })
    });
    let named = |prefix: &'static str, mut all: Vec<Value>| {
        for (index, one) in all.iter_mut().enumerate() {
            one["name"] = json!(format!("{prefix}{index}"));
        }
        all
    };
    let (init, main) = (proptest::collection::vec(container.clone(), 0..3), proptest::collection::vec(container, 1..3));
    (init, main, policy, deadline).prop_map(move |(init, main, policy, deadline)| {
        json!({
            "initContainers": named("i", init), "containers": named("m", main), "restartPolicy": policy, "activeDeadlineSeconds": deadline,
        })
    })
}

proptest! {
    /// For any spec, a Pod is not woken endlessly, its final state does not change, and a deleted Pod is removed within
    /// its grace period, once.
    #[test]
    fn every_life_is_orderly(
        annotations in some_annotations(),
        spec in some_spec(),
        pauses in proptest::collection::vec(0_u64..400, 0..8),
        grace in 0_i64..60,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().start_paused(true).enable_time().build().unwrap();
        runtime.block_on(async {
            let mut pod = Simulated::new(annotations, spec);
            let (mut over, mut restarts) = (None, 0);
            for pause in pauses {
                pod.pass(pause);
                let status = pod.status();
                let phase = status.phase.clone().unwrap();
                if let Some(over) = &over {
                    assert_eq!(&phase, over, "it was over");
                }
                if matches!(phase.as_str(), "Failed" | "Succeeded") {
                    over = Some(phase.clone());
                    assert_eq!(pod.wakes, None, "nothing is left to wake for");
                    assert!(status.container_statuses.iter().flatten().all(|one| !one.ready && one.state.as_ref().unwrap().running.is_none()));
                }
                if pod.condition("Ready") {
                    assert!(status.container_statuses.iter().flatten().all(|one| one.ready), "{status:?}");
                    assert_eq!(phase, "Running");
                }
                assert!(pod.restarts() >= restarts);
                restarts = pod.restarts();
                assert_eq!(pod.n_removals, 0);
            }
            pod.delete(grace);
            pod.pass(u64::try_from(grace).unwrap());
            let containers = pod.containers();
            assert_eq!(pod.n_removals, 1, "{containers}");
            assert_eq!(pod.wakes, None);
            assert!(matches!(pod.phase().as_str(), "Failed" | "Succeeded"));
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_declared_to_have_failed_winds_down_with_that_phase() {
    let mut pod = Simulated::new(json!({"stop-delay": "5s"}), json!({}));
    let status = json!({"phase": "Failed", "reason": "Evicted", "message": "too big"});
    pod.pod.status = Some(serde_json::from_value(status).unwrap());
    pod.step(Input::Wake);
    assert_eq!(
        (pod.phase().as_str(), pod.containers().as_str(), pod.condition("Ready")),
        ("Failed", "c running", false)
    );
    pod.pass(5);
    assert_eq!((pod.phase().as_str(), pod.containers().as_str(), pod.wakes), ("Failed", "c exit 0", None));
    assert_eq!(pod.status().reason.as_deref(), Some("Evicted"));
    assert_eq!(pod.n_removals, 0);
    pod.delete(30);
    assert_eq!(pod.n_removals, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_declared_over_while_nobody_played_it_winds_down() {
    let mut known = Simulated::new(json!({}), json!({}));
    let mut status = known.status();
    status.phase = Some("Succeeded".to_owned());
    let pod = Pod { status: Some(status), ..known.pod.clone() };
    known.state = PodState::new(&pod, behaviors(&pod, &[]), known.now);
    known.pod = pod;
    known.step(Input::Wake);
    assert_eq!((known.phase().as_str(), known.containers().as_str()), ("Succeeded", "c exit 0"));
}

#[tokio::test(start_paused = true)]
async fn a_container_begins_again_for_other_resources_where_its_policy_says_so() {
    let container = |cpu: &str| {
        json!({"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]})
    };
    let mut pod = Simulated::new(json!({}), json!({"containers": [container("1")]}));
    pod.pod.spec.as_mut().unwrap().containers = vec![serde_json::from_value(container("1000m")).unwrap()];
    assert!(!pod.state.allocation.differs(&pod.pod), "the same amount in other words");
    pod.pod.spec.as_mut().unwrap().containers = vec![serde_json::from_value(container("2")).unwrap()];
    let event = pod.state.allocation.allocate(&pod.pod, pod.now);
    let resources =
        r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"2","memory":"1Mi"}}}],"generation":1}"#;
    assert_eq!((event.reason.as_str(), event.message), ("ResizeStarted", format!("Pod resize started: {resources}")));
    pod.step(Input::Wake);
    assert!(pod.condition("PodResizeInProgress"));
    pod.pass(1);
    assert!(!pod.condition("PodResizeInProgress"));
    assert_eq!((pod.restarts(), pod.containers().as_str(), pod.wakes), (1, "c running", None));
    assert!(pod.events.contains(&"ResizeCompleted".to_owned()) && pod.events.contains(&"Killing".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_was_given_before_a_restart_counts_and_not_what_is_asked_for_since() {
    let asks =
        |cpu: &str| json!({"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}]});
    let mut before = Simulated::new(json!({}), asks("1"));
    let status = before.status();
    let mut pod = Simulated::new(json!({}), asks("2")).pod;
    pod.status = Some(status);
    let state = PodState::new(&pod, behaviors(&pod, &[]), before.now);
    assert!(state.allocation.differs(&pod));
    assert_eq!(crate::kubelet::node::resources::requests(&state.allocation.applied(&pod))["cpu"], 1_000);
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_container_runs_until_its_pod_ends() {
    let debugged = json!({"ephemeralContainers": [{"name": "e", "image": "busybox"}]});
    let mut pod = Simulated::new(json!({}), debugged);
    let state = |pod: &mut Simulated| pod.status().ephemeral_container_statuses.unwrap().remove(0).state.unwrap();
    assert!(state(&mut pod).running.is_some());
    let status = pod.status();
    pod.pod.status = Some(status);
    pod.state = PodState::new(&pod.pod, behaviors(&pod.pod, &[]), pod.now);
    pod.step(Input::Wake);
    assert_eq!(pod.events.iter().filter(|reason| *reason == "Started").count(), 2, "it goes on after a restart");
    pod.delete(30);
    assert!(state(&mut pod).terminated.is_some());
}
