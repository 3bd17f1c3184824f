//! Plans of StatefulSets: single states, and random histories of Pods.

use crate::loops::workloads::statefulset::identity;
use crate::loops::workloads::statefulset::plan::{BURST, Plan, Revision, State, Step, complete_rolling_update};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const NEW: &str = "web-new";
const OLD: &str = "web-old";

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

/// A set with one container; `spec` is merged in.
fn set(spec: Value) -> StatefulSet {
    let mut whole = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "set", "generation": 1},
        "spec": {
            "replicas": 3, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        whole["spec"][key] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

/// A Pod of the set in this state: `ready`, `waiting`, `pending`, `failed`, or one of these with `going`.
fn pod(set: &StatefulSet, ordinal: i64, revision: &str, state: &str) -> Arc<Pod> {
    let mut pod = identity::new_pod(set, &set.spec.template, revision, ordinal);
    pod.metadata.uid = Some(format!("pod-{ordinal}"));
    let phase = match state.split(' ').next().unwrap() {
        "failed" => "Failed",
        "pending" => "Pending",
        _ => "Running",
    };
    let ready = if state.starts_with("ready") { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": "2020-01-01T00:00:00Z"});
    pod.status = Some(serde_json::from_value(json!({"phase": phase, "conditions": [condition]})).unwrap());
    if state.ends_with("going") {
        pod.metadata.deletion_timestamp = Some(Time(now()));
    }
    Arc::new(pod)
}

fn plan_with(set: &StatefulSet, pods: &[Arc<Pod>], claims: &BTreeMap<String, PersistentVolumeClaim>) -> Plan {
    let find = |name: &str| claims.get(name).cloned().map(Arc::new);
    let template = &set.spec.template;
    let (current, update) = (Revision { name: OLD, template }, Revision { name: NEW, template });
    State { set, current, update, n_collisions: 0, pods, claims: &find, now: now() }.plan()
}

/// The actions of a plan, in words.
fn said(plan: &Plan) -> Vec<String> {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    let steps = plan.phases.iter().flatten().map(|step| match step {
        Step::Claims(pod, _) => format!("claims of {}", name(pod)),
        Step::Create(pod, _) => {
            format!("create {} of {}", name(pod), pod.metadata.labels.as_ref().unwrap()["controller-revision-hash"])
        }
        Step::Delete(pod) => format!("delete {}", name(pod)),
        Step::Update(pod, _) => format!("update {}", name(pod)),
    });
    steps.chain(plan.outdated.iter().map(|pod| format!("replace {}", name(pod)))).collect()
}

#[track_caller]
fn check(set: &StatefulSet, pods: &[(i64, &str, &str)], expected: &[&str]) {
    let pods: Vec<_> = pods.iter().map(|(ordinal, revision, state)| pod(set, *ordinal, revision, state)).collect();
    assert_eq!(said(&plan_with(set, &pods, &BTreeMap::new())), expected);
}

#[test]
fn ordered_pods_are_created_one_after_the_other() {
    let set = set(json!({}));
    check(&set, &[], &["create web-0 of web-new"]);
    check(&set, &[(0, NEW, "pending")], &[]);
    check(&set, &[(0, NEW, "waiting")], &[]);
    check(&set, &[(0, NEW, "ready")], &["create web-1 of web-new"]);
    check(&set, &[(1, NEW, "ready"), (2, NEW, "ready")], &["create web-0 of web-new"]);
    check(&set, &[(0, NEW, "ready going"), (1, NEW, "ready")], &[]);
    check(&set, &[(0, NEW, "failed"), (1, NEW, "ready")], &["delete web-0"]);
    check(&set, &[(0, NEW, "failed going")], &[]);
    check(&set, &[(0, NEW, "ready"), (1, NEW, "ready"), (2, NEW, "ready")], &[]);
}

#[test]
fn parallel_pods_do_not_wait() {
    let set = set(json!({"podManagementPolicy": "Parallel"}));
    check(&set, &[], &["create web-0 of web-new", "create web-1 of web-new", "create web-2 of web-new"]);
    check(
        &set,
        &[(1, NEW, "pending"), (2, NEW, "failed"), (7, NEW, "ready"), (8, NEW, "waiting")],
        &["delete web-2", "create web-0 of web-new", "delete web-8", "delete web-7"],
    );
}

#[test]
fn what_is_too_much_goes_from_the_end_when_all_others_are_well() {
    let set = set(json!({"replicas": 1}));
    let well = (0, NEW, "ready");
    check(&set, &[well, (1, NEW, "ready"), (2, NEW, "ready")], &["delete web-2"]);
    check(&set, &[well, (1, NEW, "ready"), (2, NEW, "ready going")], &[]);
    check(&set, &[well, (1, NEW, "waiting"), (2, NEW, "ready")], &["delete web-2"]);
    check(&set, &[well, (1, NEW, "ready"), (2, NEW, "waiting")], &["delete web-2"]);
    check(&set, &[well, (1, NEW, "waiting"), (2, NEW, "waiting")], &[]);
    check(&set, &[(0, NEW, "waiting"), (1, NEW, "ready")], &[]);
}

#[test]
fn the_first_ordinal_may_be_another() {
    let set = set(json!({"replicas": 2, "ordinals": {"start": 5}}));
    check(&set, &[], &["create web-5 of web-new"]);
    check(&set, &[(0, NEW, "ready"), (5, NEW, "ready"), (6, NEW, "ready")], &["delete web-0"]);
    let last = set_of_last_ordinals();
    check(&last, &[], &["create web-2147483647 of web-new"]);
}

fn set_of_last_ordinals() -> StatefulSet {
    set(json!({"replicas": i32::MAX, "ordinals": {"start": i32::MAX}}))
}

#[test]
fn an_absurd_number_of_replicas_costs_nothing() {
    let ordered = set(json!({"replicas": i32::MAX}));
    check(&ordered, &[(0, NEW, "ready"), (2_147_483_000, NEW, "ready")], &["create web-1 of web-new"]);
    let parallel = set(json!({"replicas": i32::MAX, "podManagementPolicy": "Parallel"}));
    let plan = plan_with(&parallel, &[pod(&parallel, 3, OLD, "ready")], &BTreeMap::new());
    assert_eq!(said(&plan).len(), BURST);
    assert!(plan.outdated.is_empty());
}

#[test]
fn an_update_goes_from_the_end_and_waits_for_each() {
    let all = |first, second, third| [(0, OLD, first), (1, OLD, second), (2, NEW, third)];
    let plain = set(json!({}));
    check(&plain, &[(0, OLD, "ready"), (1, OLD, "ready"), (2, OLD, "ready")], &["replace web-2"]);
    check(&plain, &all("ready", "ready", "waiting"), &[]);
    check(&plain, &all("ready", "ready", "ready"), &["replace web-1"]);
    let until = |partition: i32| {
        set(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}}))
    };
    check(&until(2), &all("ready", "ready", "ready"), &[]);
    check(&until(1), &[(0, OLD, "ready"), (2, NEW, "ready")], &["create web-1 of web-new"]);
    check(&until(2), &[(0, OLD, "ready"), (2, NEW, "ready")], &["create web-1 of web-old"]);
    check(&until(i32::MAX), &[(0, OLD, "ready"), (1, OLD, "ready"), (2, OLD, "ready")], &[]);
    let by_hand = set(json!({"updateStrategy": {"type": "OnDelete"}}));
    check(&by_hand, &[(0, OLD, "ready"), (1, OLD, "ready"), (2, OLD, "ready")], &[]);
    check(&by_hand, &[(0, OLD, "ready"), (1, OLD, "ready")], &["create web-2 of web-new"]);
}

#[test]
fn several_are_replaced_at_once_where_the_set_says_so() {
    let at_once = |n: Value| {
        set(
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": n}}}),
        )
    };
    let old = [(0, OLD, "ready"), (1, OLD, "ready"), (2, OLD, "ready")];
    check(&at_once(json!(2)), &old, &["replace web-2", "replace web-1"]);
    check(&at_once(json!("10%")), &old, &["replace web-2"]);
    check(&at_once(json!("70%")), &old, &["replace web-2", "replace web-1"]);
}

#[test]
fn an_update_that_is_complete_is_current() {
    let set = set(json!({"replicas": 1}));
    let status =
        |state| complete_rolling_update(&set, plan_with(&set, &[pod(&set, 0, NEW, state)], &BTreeMap::new()).status);
    let waiting = status("waiting");
    assert_eq!(
        (waiting.current_revision.as_deref(), waiting.updated_replicas, waiting.ready_replicas),
        (Some(OLD), Some(1), None)
    );
    let ready = status("ready");
    assert_eq!(
        (ready.current_revision.as_deref(), ready.current_replicas, ready.available_replicas),
        (Some(NEW), Some(1), Some(1))
    );
}

#[test]
fn a_pod_is_available_when_it_has_been_ready_for_long_enough() {
    let set = set(json!({"minReadySeconds": 30}));
    let mut fresh = (*pod(&set, 0, NEW, "ready")).clone();
    let conditions = fresh.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[0].last_transition_time = Some(Time(now() - jiff::SignedDuration::from_secs(10)));
    let plan = plan_with(&set, &[Arc::new(fresh)], &BTreeMap::new());
    assert_eq!(said(&plan), Vec::<String>::new());
    assert_eq!(plan.again, Some(std::time::Duration::from_secs(20)));
    assert_eq!((plan.status.ready_replicas, plan.status.available_replicas), (Some(1), Some(0)));
}

#[test]
fn a_label_that_was_taken_away_comes_back() {
    let set = set(json!({"replicas": 1}));
    let mut stripped = (*pod(&set, 0, NEW, "ready")).clone();
    stripped.metadata.labels.as_mut().unwrap().remove("statefulset.kubernetes.io/pod-name");
    assert_eq!(said(&plan_with(&set, &[Arc::new(stripped)], &BTreeMap::new())), ["update web-0"]);
}

// === random lives ===

/// An event in the history of a set. Numbers choose among the existing Pods.
#[derive(Clone, Debug)]
enum Event {
    Fail(usize),
    Gone(usize),
    Ready(usize),
    Run(usize),
    Scale(i64),
    Unready(usize),
    Update,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (0..8_usize).prop_map(Event::Fail),
        4 => (0..8_usize).prop_map(Event::Gone),
        6 => (0..8_usize).prop_map(Event::Ready),
        6 => (0..8_usize).prop_map(Event::Run),
        1 => (0..5_i64).prop_map(Event::Scale),
        1 => (0..8_usize).prop_map(Event::Unready),
        1 => Just(Event::Update),
    ]
}

#[derive(Clone, Debug)]
struct Life {
    revision: usize,
    state: &'static str,
    is_going: bool,
}

struct Model {
    set: StatefulSet,
    is_ordered: bool,
    revision: usize,
    pods: BTreeMap<i64, Life>,
}

impl Model {
    fn revision_name(number: usize) -> String {
        format!("web-{number}x")
    }

    fn replicas(&self) -> i64 {
        identity::replicas(&self.set)
    }

    fn is_well(&self, ordinal: i64) -> bool {
        self.pods.get(&ordinal).is_some_and(|life| life.state == "ready" && !life.is_going)
    }

    fn happen(&mut self, event: &Event) {
        let chosen = |model: &Model, at: usize| model.pods.keys().nth(at % model.pods.len().max(1)).copied();
        let become_ = |model: &mut Model, at: usize, state: &'static str, from: &[&str]| {
            let Some(ordinal) = chosen(model, at) else { return };
            let life = model.pods.get_mut(&ordinal).unwrap();
            if from.contains(&life.state) {
                life.state = state;
            }
        };
        match *event {
            Event::Fail(at) => become_(self, at, "failed", &["pending", "waiting", "ready"]),
            Event::Ready(at) => become_(self, at, "ready", &["waiting"]),
            Event::Run(at) => become_(self, at, "waiting", &["pending"]),
            Event::Unready(at) => become_(self, at, "waiting", &["ready"]),
            Event::Gone(at) => {
                let going: Vec<i64> =
                    self.pods.iter().filter(|(_, life)| life.is_going).map(|(ordinal, _)| *ordinal).collect();
                if let Some(ordinal) = going.get(at % going.len().max(1)) {
                    self.pods.remove(ordinal);
                }
            }
            Event::Scale(replicas) => self.set.spec.replicas = Some(i32::try_from(replicas).unwrap()),
            Event::Update => self.revision += 1,
        }
    }

    /// Runs a pass, and checks its steps against the state for which it was planned.
    fn reconcile(&mut self) -> usize {
        let pods: Vec<_> = self
            .pods
            .iter()
            .map(|(ordinal, life)| {
                let state = format!("{}{}", life.state, if life.is_going { " going" } else { "" });
                pod(&self.set, *ordinal, &Self::revision_name(life.revision), &state)
            })
            .collect();
        let find = |_: &str| None;
        let (current, update) = (Self::revision_name(0), Self::revision_name(self.revision));
        let template = &self.set.spec.template;
        let state = State {
            set: &self.set,
            current: Revision { name: &current, template },
            update: Revision { name: &update, template },
            n_collisions: 0,
            pods: &pods,
            claims: &find,
            now: now(),
        };
        let plan = state.plan();
        let counted = plan.status.replicas;
        assert_eq!(usize::try_from(counted).unwrap(), self.pods.len());
        let (mut n, mut n_ordered) = (0, 0);
        let before = Model {
            set: self.set.clone(),
            is_ordered: self.is_ordered,
            revision: self.revision,
            pods: self.pods.clone(),
        };
        let ordinal_of = |pod: &Pod| identity::ordinal(pod).unwrap();
        for step in plan.phases.iter().flatten() {
            n += 1;
            match step {
                Step::Create(pod, _) => {
                    n_ordered += 1;
                    let ordinal = ordinal_of(pod);
                    assert!(ordinal < before.replicas(), "none is created beyond the replicas");
                    assert!(
                        !before.is_ordered || (0..ordinal).all(|lower| before.is_well(lower)),
                        "all before {ordinal} are well"
                    );
                    let life = Life { revision: self.revision, state: "pending", is_going: false };
                    assert!(self.pods.insert(ordinal, life).is_none(), "{ordinal} is not there yet");
                }
                Step::Delete(pod) => {
                    n_ordered += 1;
                    let ordinal = ordinal_of(pod);
                    let failed = before.pods[&ordinal].state == "failed";
                    assert!(failed || ordinal >= before.replicas(), "{ordinal} is to stay");
                    if before.is_ordered && ordinal >= before.replicas() {
                        assert!((0..before.replicas()).all(|lower| before.is_well(lower)), "the others are well");
                        assert!(before.pods.keys().all(|other| *other <= ordinal), "{ordinal} is the last one");
                    }
                    self.pods.get_mut(&ordinal).unwrap().is_going = true;
                }
                Step::Claims(..) | Step::Update(..) => unreachable!("{step:?}"),
            }
        }
        for pod in &plan.outdated {
            n += 1;
            n_ordered += 1;
            let ordinal = ordinal_of(pod);
            let after = ordinal + 1..before.replicas();
            assert!(after.clone().all(|higher| before.is_well(higher)), "all after {ordinal} are well");
            assert!(
                after.clone().all(|higher| before.pods[&higher].revision == before.revision),
                "all after {ordinal} are updated"
            );
            self.pods.get_mut(&ordinal).unwrap().is_going = true;
        }
        assert!(!self.is_ordered || n_ordered <= 1, "one thing at a time: {:?}", said(&plan));
        n
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_happens_the_order_is_kept_and_the_set_gets_there(
        is_ordered in any::<bool>(),
        replicas in 0..5_i32,
        events in proptest::collection::vec(event(), 0..80),
    ) {
        let policy = if is_ordered { "OrderedReady" } else { "Parallel" };
        let set = set(json!({"replicas": replicas, "podManagementPolicy": policy}));
        let mut model = Model { set, is_ordered, revision: 1, pods: BTreeMap::new() };
        for event in &events {
            model.happen(event);
            model.reconcile();
        }
        // From now on, Pods only start and terminate.
        for _ in 0..200 {
            model.reconcile();
            model.pods.retain(|_, life| !life.is_going);
            for life in model.pods.values_mut() {
                life.state = match life.state { "pending" => "waiting", "waiting" => "ready", state => state };
            }
        }
        prop_assert_eq!(model.reconcile(), 0, "nothing is left to do");
        let wanted: Vec<i64> = (0..model.replicas()).collect();
        prop_assert_eq!(model.pods.keys().copied().collect::<Vec<_>>(), wanted);
        prop_assert!(model.pods.values().all(|life| life.state == "ready" && life.revision == model.revision));
    }
}
