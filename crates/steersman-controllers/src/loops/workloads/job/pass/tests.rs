//! Decisions of a pass, and a property: over any history every Pod is counted exactly once.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn job(spec: Value, status: Value) -> Job {
    let mut whole = json!({"parallelism": 2, "completions": 2, "backoffLimit": 6, "template": {}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    whole.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let metadata = json!({"name": "j", "namespace": "n", "uid": "j"});
    serde_json::from_value(json!({"metadata": metadata, "spec": whole, "status": status})).unwrap()
}

/// A Pod. `phase` may be followed by a completion index, and by `-` if the Pod is being deleted.
fn pod(name: &str, phase: &str) -> Arc<Pod> {
    let (phase, is_deleted) = phase.strip_suffix('-').map_or((phase, false), |phase| (phase, true));
    let (phase, index) = phase.split_once(' ').unwrap_or((phase, ""));
    let mut annotations = json!({});
    if !index.is_empty() {
        annotations = json!({index::COMPLETION_INDEX: index});
    }
    let mut metadata = json!({"name": name, "uid": name, "finalizers": [FINALIZER], "annotations": annotations,
        "creationTimestamp": time(0).to_string()});
    if is_deleted {
        metadata["deletionTimestamp"] = json!(time(0).to_string());
    }
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap())
}

/// The result of a pass in which everything succeeds, long after the last failure.
struct Outcome {
    todo: PodAction,
    status: JobStatus,
    finish: Option<Finish>,
    n_released: usize,
    wait: Option<Duration>,
}

fn run(job: &Job, pods: &[Arc<Pod>], second: i64) -> Outcome {
    let none = HashSet::new();
    let mut pass = Pass::new(job, pods.to_vec(), &none, Backoff::default(), time(second)).unwrap();
    let todo = pass.todo();
    pass.done(match &todo {
        PodAction::Create(orders) => Done { n_created: orders.len(), ..Done::default() },
        PodAction::End(pods) | PodAction::Remove(pods) => Done { n_deleted: pods.len(), ..Done::default() },
        PodAction::Nothing => Done::default(),
    });
    let n_released = pass.account().len();
    let finish = pass.count_and_finish(|_| true);
    Outcome { todo, status: pass.status.clone(), finish, n_released, wait: pass.wait }
}

fn n_to_create(todo: &PodAction) -> usize {
    if let PodAction::Create(orders) = todo { orders.len() } else { 0 }
}

fn indexes(todo: &PodAction) -> Vec<i32> {
    if let PodAction::Create(orders) = todo {
        orders.iter().filter_map(|order| order.index).collect()
    } else {
        Vec::new()
    }
}

fn conditions(status: &JobStatus) -> Vec<String> {
    let all = status.conditions.iter().flatten();
    all.map(|one| format!("{}={} {}", one.type_, one.status, one.reason.as_deref().unwrap_or_default())).collect()
}

#[test]
fn no_more_pods_run_than_completions_are_missing() {
    let counted = json!({"succeeded": 3});
    let n = |spec, status, pods: &[Arc<Pod>]| n_to_create(&run(&job(spec, status), pods, 99).todo);
    assert_eq!(n(json!({"parallelism": 5, "completions": 4}), json!({}), &[]), 4);
    assert_eq!(n(json!({"parallelism": 5, "completions": 4}), counted, &[]), 1);
    assert_eq!(n(json!({"parallelism": 2, "completions": 4}), json!({}), &[pod("a", "Running")]), 1);
    assert_eq!(n(json!({"parallelism": 3, "completions": null}), json!({}), &[]), 3);
    assert_eq!(n(json!({"parallelism": 3, "completions": null}), json!({"succeeded": 1}), &[pod("a", "Running")]), 0);
    assert_eq!(n(json!({"parallelism": i32::MAX, "completions": i32::MAX}), json!({}), &[]), CHANGES_MAX);
    assert_eq!(
        n(json!({"parallelism": i32::MAX, "completions": i32::MAX, "completionMode": "Indexed"}), json!({}), &[]),
        CHANGES_MAX
    );
}

#[test]
fn a_job_is_complete_when_enough_pods_have_succeeded() {
    let outcome = run(&job(json!({}), json!({})), &[pod("a", "Succeeded"), pod("b", "Succeeded")], 99);
    assert_eq!(
        conditions(&outcome.status),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
    assert_eq!((outcome.status.succeeded, outcome.status.active, outcome.n_released), (Some(2), None, 2));
    assert!(outcome.status.completion_time.is_some());
    assert_eq!(outcome.finish.map(|finish| finish.stage), Some(Stage::Complete));
}

#[test]
fn a_job_that_ends_while_it_is_suspended_has_begun() {
    let suspended = json!([{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]);
    let job = job(json!({"suspend": true}), json!({"conditions": suspended}));
    let outcome = run(&job, &[pod("a", "Succeeded"), pod("b", "Succeeded")], 99);
    assert_eq!(outcome.finish.map(|finish| finish.stage), Some(Stage::Complete));
    // The server rejects a Job that has ended without a start time.
    assert_eq!(outcome.status.start_time, Some(Time(time(99))));
}

#[test]
fn a_job_ends_whatever_somebody_has_written_into_its_status() {
    let suspended = json!({"type": "Suspended", "status": "True"});
    let fails = json!({"type": "FailureTarget", "status": "True", "reason": "Mine"});
    let outcome = run(&job(json!({"suspend": true}), json!({"conditions": [suspended, fails]})), &[], 99);
    assert_eq!(
        (conditions(&outcome.status)[2].as_str(), outcome.status.start_time),
        ("Failed=True Mine", Some(Time(time(99))))
    );
    // The start time is after the end.
    let done = [pod("a", "Succeeded"), pod("b", "Succeeded")];
    let outcome = run(&job(json!({}), json!({"startTime": time(500).to_string()})), &done, 99);
    assert_eq!(outcome.status.completion_time, Some(Time(time(500))));
    // The list has the condition twice.
    let other = json!({"type": "FailureTarget", "status": "False"});
    let outcome = run(&job(json!({}), json!({"conditions": [other, fails]})), &done, 99);
    assert_eq!(outcome.finish.map(|finish| finish.stage), Some(Stage::Failed));
}

#[test]
fn a_job_that_became_smaller_and_is_no_more_elastic_keeps_its_number() {
    let status = json!({"completedIndexes": "0,3", "succeeded": 2});
    let spec = |parallelism| json!({"completionMode": "Indexed", "completions": 1, "parallelism": parallelism});
    let of = |outcome: Outcome| (outcome.status.succeeded, outcome.status.completed_indexes, outcome.finish.is_some());
    let smaller = Some("0".to_owned());
    assert_eq!(of(run(&job(spec(1), status.clone()), &[], 99)), (Some(1), smaller.clone(), true));
    assert_eq!(of(run(&job(spec(2), status), &[], 99)), (Some(2), smaller, true));
}

#[test]
fn a_pod_that_is_listed_as_failed_and_succeeds_after_that_counts_once() {
    let listed = json!({"succeeded": 1, "uncountedTerminatedPods": {"failed": ["b"]}});
    let outcome = run(&job(json!({}), listed), &[pod("b", "Succeeded-")], 99);
    assert_eq!((outcome.status.succeeded, outcome.status.failed), (Some(1), Some(1)));
    assert_eq!((n_to_create(&outcome.todo), conditions(&outcome.status)), (1, Vec::new()));
}

#[test]
fn more_failures_than_the_limit_end_the_others_and_all_count() {
    let job = job(json!({"backoffLimit": 0}), json!({}));
    let outcome = run(&job, &[pod("a", "Failed"), pod("b", "Running")], 99);
    assert_eq!(outcome.todo, PodAction::End(vec![pod("b", "Running")]));
    // The final condition has to wait for the Pod that is being deleted.
    assert_eq!(conditions(&outcome.status), ["FailureTarget=True BackoffLimitExceeded"]);
    assert_eq!((outcome.status.failed, outcome.finish), (Some(2), None));
    let job = Job { status: Some(outcome.status), ..job };
    let outcome = run(&job, &[], 100);
    assert_eq!(
        conditions(&outcome.status),
        ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]
    );
    assert_eq!((outcome.status.failed, outcome.status.completion_time), (Some(2), None));
}

#[test]
fn failed_pods_are_replaced_after_a_wait() {
    let job = job(json!({}), json!({}));
    let pods = [pod("a", "Failed"), pod("b", "Running")];
    let early = run(&job, &pods, 4);
    assert_eq!((n_to_create(&early.todo), early.wait), (0, Some(Duration::from_secs(6))));
    assert_eq!(n_to_create(&run(&job, &pods, 10).todo), 1);
}

#[test]
fn a_deadline_is_waited_for_and_passes() {
    let status = json!({"startTime": time(0).to_string()});
    let outcome = run(&job(json!({"activeDeadlineSeconds": 10}), status.clone()), &[], 7);
    assert_eq!(outcome.wait, Some(Duration::from_secs(3)));
    let outcome = run(&job(json!({"activeDeadlineSeconds": 10}), status.clone()), &[], 10);
    assert_eq!(conditions(&outcome.status), ["FailureTarget=True DeadlineExceeded", "Failed=True DeadlineExceeded"]);
    let suspended = run(&job(json!({"activeDeadlineSeconds": 10, "suspend": true}), status.clone()), &[], 10);
    assert_eq!(conditions(&suspended.status), ["Suspended=True JobSuspended"]);
    assert_eq!(suspended.status.start_time, None);
    let absurd = run(&job(json!({"activeDeadlineSeconds": i64::MAX}), status), &[], 10);
    assert!(absurd.finish.is_none());
}

#[test]
fn indexes_that_are_missing_are_created_and_repeated_ones_removed() {
    let spec = json!({"completionMode": "Indexed", "completions": 6, "parallelism": 4});
    let job = job(spec, json!({"completedIndexes": "1"}));
    assert_eq!(indexes(&run(&job, &[pod("a", "Running 2"), pod("b", "Succeeded 0")], 99).todo), [3, 4, 5]);
    let outcome =
        run(&job, &[pod("a", "Running 2"), pod("b", "Running 2"), pod("c", "Running 9"), pod("d", "Running")], 99);
    let PodAction::Remove(removed) = outcome.todo else { panic!("{:?}", outcome.todo) };
    let names: BTreeSet<&str> = removed.iter().map(|pod| uid(pod)).collect();
    assert_eq!(names, BTreeSet::from(["a", "c", "d"]));
}

#[test]
fn fewer_completions_forget_the_indexes_beyond_them() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2});
    let outcome = run(&job(spec, json!({"completedIndexes": "0-4", "succeeded": 5})), &[], 99);
    assert_eq!((outcome.status.completed_indexes.as_deref(), outcome.status.succeeded), (Some("0,1"), Some(2)));
    assert_eq!(outcome.finish.map(|finish| finish.stage), Some(Stage::Complete));
}

#[test]
fn each_index_has_its_own_limit_of_failures() {
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1, "backoffLimit": i32::MAX});
    let failed = |name, at, n: i32| {
        let mut pod = (*pod(name, &format!("Failed {at}"))).clone();
        pod.metadata.annotations.as_mut().unwrap().insert(index::FAILURE_COUNT.to_owned(), n.to_string());
        Arc::new(pod)
    };
    // Index 0 may fail once more; index 1 has failed twice.
    let outcome =
        run(&job(spec.clone(), json!({})), &[failed("a", 0, 0), failed("b", 1, 1), pod("c", "Running 2")], 99);
    assert_eq!(outcome.todo, PodAction::Create(vec![Order { index: Some(0), n_failures: Some((1, 0)) }]));
    assert_eq!(outcome.status.failed_indexes.as_deref(), Some("1"));
    // The Pod of index 0 is kept until its replacement exists.
    assert_eq!(outcome.n_released, 1);
    let early = run(&job(spec.clone(), json!({})), &[failed("a", 0, 0)], 3);
    assert_eq!((indexes(&early.todo), early.wait), (vec![1, 2], Some(Duration::from_secs(7))));
    let over =
        run(&job(spec.clone(), json!({"completedIndexes": "0,2", "failedIndexes": ""})), &[failed("b", 1, 1)], 99);
    assert_eq!(conditions(&over.status), ["FailureTarget=True FailedIndexes", "Failed=True FailedIndexes"]);
    let mut spec = spec;
    spec["maxFailedIndexes"] = json!(0);
    let over = run(&job(spec, json!({})), &[failed("b", 1, 1)], 99);
    assert_eq!(
        conditions(&over.status),
        ["FailureTarget=True MaxFailedIndexesExceeded", "Failed=True MaxFailedIndexesExceeded"]
    );
}

#[test]
fn an_index_that_has_failed_or_succeeded_stays_that() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0, "backoffLimit": i32::MAX});
    let written = |status: &JobStatus| (status.completed_indexes.clone(), status.failed_indexes.clone());
    // The Pod was being deleted when the index was given up, and still had its finalizer.
    let listed = json!({"failedIndexes": "0", "uncountedTerminatedPods": {"failed": ["a"]}});
    let outcome = run(&job(spec.clone(), listed), &[pod("a", "Succeeded 0-"), pod("b", "Running 1")], 99);
    assert_eq!(written(&outcome.status), (None, Some("0".to_owned())));
    assert_eq!((outcome.status.failed, outcome.n_released), (Some(1), 1));
    let outcome = run(&job(spec, json!({})), &[pod("a", "Succeeded 0"), pod("b", "Failed 0")], 99);
    assert_eq!(written(&outcome.status), (Some("0".to_owned()), Some(String::new())));
}

#[test]
fn enough_indexes_by_the_success_policy_end_the_others_without_counting_them() {
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}});
    let job = job(spec, json!({}));
    let outcome = run(&job, &[pod("a", "Succeeded 0"), pod("b", "Running 1")], 99);
    assert_eq!(outcome.todo, PodAction::End(vec![pod("b", "Running 1")]));
    assert_eq!(conditions(&outcome.status), ["SuccessCriteriaMet=True SuccessPolicy"]);
    assert_eq!((outcome.status.succeeded, outcome.status.failed, outcome.n_released), (Some(1), None, 2));
}

#[test]
fn with_the_replacement_policy_failed_a_pod_that_is_being_deleted_is_not_replaced_yet() {
    let pods = [pod("a", "Running-"), pod("b", "Running")];
    let soon = run(&job(json!({}), json!({})), &pods, 99);
    assert_eq!((n_to_create(&soon.todo), soon.status.failed), (1, Some(1)));
    let later = run(&job(json!({"podReplacementPolicy": "Failed"}), json!({})), &pods, 99);
    assert_eq!((n_to_create(&later.todo), later.status.failed, later.status.terminating), (0, None, Some(1)));
}

#[test]
fn a_failure_that_the_policy_ignores_does_not_count() {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let job = job(json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [rule]}}), json!({}));
    let mut failed = (*pod("a", "Failed")).clone();
    failed.status.as_mut().unwrap().conditions =
        serde_json::from_value(json!([{"type": "DisruptionTarget", "status": "True"}])).unwrap();
    let outcome = run(&job, &[Arc::new(failed)], 99);
    assert_eq!((outcome.status.failed, outcome.n_released, n_to_create(&outcome.todo)), (None, 1, 2));
}

#[test]
fn at_most_500_pods_are_listed_at_a_time() {
    let pods: Vec<Arc<Pod>> = (0..700).map(|number| pod(&format!("p{number}"), "Succeeded")).collect();
    let job = job(json!({"completions": 700, "parallelism": 700}), json!({}));
    let outcome = run(&job, &pods, 99);
    assert_eq!((outcome.status.succeeded, outcome.n_released, outcome.finish), (Some(500), 500, None));
}

// === any history ===

#[derive(Clone, Debug)]
enum Step {
    /// The caches catch up completely.
    Deliver,
    /// Somebody deletes a Pod.
    Delete(usize),
    /// A Pod finishes.
    End(usize, &'static str),
    Parallelism(i32),
    /// Sets completions and parallelism to this number.
    Size(i32),
    Sync(Cut),
    Suspend(bool),
}

/// Where a pass is interrupted, and whether the process crashes there.
#[derive(Clone, Copy, Debug)]
struct Cut {
    n_done: usize,
    stage: u8,
    n_released: usize,
    is_crash: bool,
}

const WHOLE: Cut = Cut { n_done: usize::MAX, stage: 9, n_released: usize::MAX, is_crash: false };

/// The server, and the reconciler's memory.
struct Model {
    job: Job,
    pods: Vec<Pod>,
    n_created: usize,
    now: i64,
    released: HashSet<String>,
    backoff: Backoff,
    /// Pods in an older state that the cache still shows.
    shown: Vec<Pod>,
    listed: BTreeSet<String>,
    /// Whether somebody else has written the status too, so that its counts cannot be checked.
    is_written_by_users: bool,
}

impl Model {
    fn new(spec: Value) -> Model {
        Model { is_written_by_users: false, ..Model::with_status(spec, json!({})) }
    }

    fn with_status(spec: Value, status: Value) -> Model {
        Model {
            job: job(spec, status),
            pods: Vec::new(),
            n_created: 0,
            now: 0,
            released: HashSet::new(),
            backoff: Backoff::default(),
            shown: Vec::new(),
            listed: BTreeSet::new(),
            is_written_by_users: true,
        }
    }

    fn step(&mut self, step: &Step) {
        self.now += 7;
        match *step {
            Step::Deliver => self.shown.clear(),
            Step::Delete(number) => {
                if let Some(at) = number.checked_rem(self.pods.len()) {
                    self.delete(at);
                }
            }
            Step::End(number, phase) => {
                let running: Vec<usize> =
                    (0..self.pods.len()).filter(|&at| !pods::is_terminal(&self.pods[at])).collect();
                if let Some(at) = number.checked_rem(running.len()) {
                    self.pods[running[at]].status.get_or_insert_default().phase = Some(phase.to_owned());
                }
            }
            Step::Parallelism(parallelism) => self.job.spec.as_mut().unwrap().parallelism = Some(parallelism),
            Step::Size(completions) => {
                // The two change together, as the server requires, and only for an Indexed Job. After the decision that
                // the successes suffice, the desired number no longer matters.
                let is_decided =
                    self.job.status.as_ref().is_some_and(|status| find(status, "SuccessCriteriaMet").is_some());
                let spec = self.job.spec.as_mut().unwrap();
                if !is_decided && spec.completion_mode.is_some() && spec.success_policy.is_none() {
                    (spec.completions, spec.parallelism) = (Some(completions), Some(completions));
                }
            }
            Step::Suspend(suspend) => self.job.spec.as_mut().unwrap().suspend = Some(suspend),
            Step::Sync(cut) => self.sync(cut),
        }
    }

    fn delete(&mut self, at: usize) {
        self.pods[at].metadata.deletion_timestamp.get_or_insert(Time(time(self.now)));
        self.collect();
    }

    fn collect(&mut self) {
        self.pods.retain(|pod| !pods::is_terminating(pod) || has_finalizer(pod));
    }

    fn release(&mut self, uid: &str) {
        let Some(pod) = self.pods.iter_mut().find(|pod| super::uid(pod) == uid) else { return };
        self.shown.push(pod.clone());
        pod.metadata.finalizers = None;
        self.collect();
    }

    /// The Pods in the cache, which may show an older state of released ones.
    fn cached(&self) -> Vec<Arc<Pod>> {
        let is_shown = |pod: &&Pod| self.shown.iter().any(|shown| uid(shown) == uid(pod));
        let current = self.pods.iter().filter(|pod| !is_shown(pod));
        current.chain(&self.shown).cloned().map(Arc::new).collect()
    }

    fn sync(&mut self, cut: Cut) {
        let job = self.job.clone();
        if crate::loops::workloads::job::finished(&job).is_some() {
            return;
        }
        let cached = self.cached();
        self.released.retain(|uid| cached.iter().any(|pod| has_finalizer(pod) && super::uid(pod) == uid));
        let released = self.released.clone();
        let mut pass = Pass::new(&job, cached, &released, self.backoff, time(self.now)).unwrap();
        let done = self.carry_out(pass.todo(), cut.n_done);
        pass.done(done);
        let release = pass.account();
        let is_whole = cut.stage > 1 && self.write(&pass, cut.stage > 0) && {
            self.backoff = pass.backoff;
            let now: Vec<String> = release.iter().take(cut.n_released).map(|pod| uid(pod).to_owned()).collect();
            now.iter().for_each(|uid| self.release(uid));
            self.released.extend(now.iter().cloned());
            let is_all = now.len() == release.len();
            pass.count_and_finish(|pod| now.iter().any(|uid| uid == super::uid(pod)));
            cut.stage > 2 && is_all && self.write(&pass, true)
        };
        if !is_whole && cut.is_crash {
            self.released.clear();
            self.backoff = Backoff::default();
            self.shown.clear();
        }
    }

    fn carry_out(&mut self, todo: PodAction, n_max: usize) -> Done {
        match todo {
            PodAction::Create(orders) => {
                let n_created = orders.len().min(n_max);
                for order in orders.into_iter().take(n_max) {
                    self.n_created += 1;
                    let phase = order.index.map_or("Pending".to_owned(), |index| format!("Pending {index}"));
                    let mut pod = (*pod(&format!("p{}", self.n_created), &phase)).clone();
                    if let Some((n_failures, _)) = order.n_failures {
                        let annotations = pod.metadata.annotations.get_or_insert_default();
                        annotations.insert(index::FAILURE_COUNT.to_owned(), n_failures.to_string());
                    }
                    self.pods.push(pod);
                }
                Done { n_created, ..Done::default() }
            }
            PodAction::End(pods) => {
                let n_deleted = pods.len().min(n_max);
                for pod in pods.iter().take(n_max) {
                    if let Some(at) = self.pods.iter().position(|one| uid(one) == uid(pod)) {
                        self.delete(at);
                    }
                }
                Done { n_deleted, ..Done::default() }
            }
            PodAction::Nothing => Done::default(),
            PodAction::Remove(pods) => {
                let n_deleted = pods.len().min(n_max);
                // The reconciler waits for the cache before the next pass.
                for pod in pods.iter().take(n_max) {
                    self.pods.retain(|one| uid(one) != uid(pod));
                }
                Done { n_deleted, ..Done::default() }
            }
        }
    }

    /// Writes the status, and checks that no Pod is listed twice or lost from the count.
    fn write(&mut self, pass: &Pass<'_>, is_written: bool) -> bool {
        if !is_written {
            return false;
        }
        let uids = |status: &JobStatus| -> BTreeSet<String> {
            let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
            let all: Vec<String> = uncounted.succeeded.into_iter().chain(uncounted.failed).flatten().collect();
            let set: BTreeSet<String> = all.iter().cloned().collect();
            assert_eq!(set.len(), all.len(), "a pod is listed twice: {all:?}");
            set
        };
        let (before, after) = (uids(&self.job.status.clone().unwrap_or_default()), uids(&pass.status));
        let is_written_by_users = self.is_written_by_users;
        for uid in after.difference(&before) {
            let is_new = self.listed.insert(uid.clone());
            assert!(is_new || is_written_by_users, "{uid} is counted for the second time");
        }
        let n_counted = |status: &JobStatus| {
            let succeeded = if pass.indexed().is_some() { 0 } else { status.succeeded.unwrap_or(0) };
            usize::try_from(succeeded.saturating_add(status.failed.unwrap_or(0))).unwrap()
        };
        let n_all = n_counted(&pass.status) + after.len();
        assert!(is_written_by_users || n_all == self.listed.len(), "the sum is {n_all}, not {}", self.listed.len());
        let (old, new) = (self.job.status.clone().unwrap_or_default(), pass.status.clone());
        let refused = refusals(&self.job, &new);
        assert_eq!(refused, [""; 0], "{old:?} -> {new:?}");
        self.job.status = Some(new);
        true
    }

    /// Runs passes until nothing changes any more.
    fn come_to_an_end(&mut self) {
        let spec = self.job.spec.as_mut().unwrap();
        spec.suspend = Some(false);
        spec.parallelism = Some(spec.parallelism.unwrap_or(1).max(1));
        for _ in 0..100 {
            if crate::loops::workloads::job::finished(&self.job).is_some() {
                break;
            }
            self.now += 100_000;
            self.shown.clear();
            self.sync(WHOLE);
            for pod in &mut self.pods {
                let phase = if pods::is_terminating(pod) { "Failed" } else { "Succeeded" };
                if !pods::is_terminal(pod) {
                    pod.status.get_or_insert_default().phase = Some(phase.to_owned());
                }
            }
        }
    }
}

/// Why the server would reject a status: upstream's rules of `getStatusValidationOptions` for the fields that a pass
/// writes.
fn refusals(job: &Job, new: &JobStatus) -> Vec<&'static str> {
    let old = job.status.clone().unwrap_or_default();
    let has = |status: &JobStatus, type_| find(status, type_).is_some_and(|condition| condition.status == "True");
    let (is_complete, has_failed) = (has(new, "Complete"), has(new, "Failed"));
    let is_finished = is_complete || has_failed;
    let (meets, fails) = (has(new, "SuccessCriteriaMet"), has(new, "FailureTarget"));
    let indexes = |text: &Option<String>| Intervals::parse(text.as_deref().unwrap_or_default(), i32::MAX);
    let uncounted = new.uncounted_terminated_pods.clone().unwrap_or_default();
    let spec = job.spec.as_ref().unwrap();
    let is_elastic = spec.completion_mode.as_deref() == Some("Indexed") && spec.completions == spec.parallelism;
    let is_resumed = has(&old, "Suspended") && !has(new, "Suspended");
    let is_suspended = spec.suspend == Some(true) || is_resumed;
    [
        (is_complete && has_failed, "complete and failed"),
        (meets && fails, "to be complete and to fail"),
        (is_complete && !meets, "complete out of nothing"),
        (has_failed && !fails, "failed out of nothing"),
        (new.completion_time.is_some() != is_complete, "a time of completion that is not one"),
        (is_finished && new.active.unwrap_or(0) > 0, "finished with active pods"),
        (is_finished && new.terminating.unwrap_or(0) > 0, "finished with terminating pods"),
        (is_finished && new.start_time.is_none(), "finished and not begun"),
        (is_finished && (uncounted.succeeded.is_some() || uncounted.failed.is_some()), "finished and not counted"),
        (indexes(&new.failed_indexes).n_common(&indexes(&new.completed_indexes)) > 0, "an index failed and completed"),
        (new.ready.unwrap_or(0) > new.active.unwrap_or(0), "more ready than active"),
        (!is_elastic && new.succeeded.unwrap_or(0) < old.succeeded.unwrap_or(0), "fewer succeeded than before"),
        (new.failed.unwrap_or(0) < old.failed.unwrap_or(0), "fewer failed than before"),
        (old.start_time.is_some() && old.start_time != new.start_time && !is_suspended, "begun twice"),
    ]
    .into_iter()
    .filter_map(|(is_refused, why)| is_refused.then_some(why))
    .collect()
}

fn any_step() -> impl Strategy<Value = Step> {
    let cut = (0usize..4, 0u8..6, 0usize..4, any::<bool>()).prop_map(|(n_done, stage, n_released, is_crash)| Cut {
        n_done,
        stage,
        n_released,
        is_crash,
    });
    prop_oneof![
        4 => Just(Step::Sync(WHOLE)),
        4 => cut.prop_map(Step::Sync),
        5 => (any::<usize>(), prop::sample::select(vec!["Failed", "Succeeded", "Succeeded"])).prop_map(|(number, phase)| Step::End(number, phase)),
        2 => any::<usize>().prop_map(Step::Delete),
        1 => Just(Step::Deliver),
        1 => (0..4i32).prop_map(Step::Parallelism),
        1 => (1..6i32).prop_map(Step::Size),
        1 => any::<bool>().prop_map(Step::Suspend),
    ]
}

fn any_spec() -> impl Strategy<Value = Value> {
    (1..4i32, 1..6i32, 0..7i32, 0..5u8, any::<bool>()).prop_map(
        |(parallelism, completions, limit, mode, replaces_failed)| {
            let mut spec = json!({"parallelism": parallelism, "completions": completions, "backoffLimit": limit});
            match mode {
                0 => {}
                1 => spec["completions"] = Value::Null,
                2 => spec["completionMode"] = json!("Indexed"),
                3 => {
                    spec["completionMode"] = json!("Indexed");
                    spec["successPolicy"] = json!({"rules": [{"succeededCount": 1 + limit % completions}]});
                }
                _ => {
                    spec["completionMode"] = json!("Indexed");
                    spec["backoffLimit"] = json!(i32::MAX);
                    spec["backoffLimitPerIndex"] = json!(limit % 3);
                }
            }
            if replaces_failed {
                spec["podReplacementPolicy"] = json!("Failed");
            }
            spec
        },
    )
}

/// Counts that a user may write into the status: too high, and lists of Pods that do not exist or have not finished.
fn any_counts() -> impl Strategy<Value = Value> {
    let count = || prop::sample::select(vec![0, 1, 7, i32::MAX]);
    let listed = || prop::collection::vec(prop::sample::select(vec!["p1", "p2", "nobody"]), 0..3);
    (count(), count(), listed(), listed()).prop_map(|(succeeded, failed, listed, failures)| {
        // The server rejects a Pod that is listed twice.
        let listed: BTreeSet<&str> = listed.into_iter().collect();
        let failures: BTreeSet<&str> = failures.into_iter().filter(|uid| !listed.contains(uid)).collect();
        json!({
            "succeeded": succeeded, "failed": failed,
            "uncountedTerminatedPods": {"succeeded": listed, "failed": failures},
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_job_ends_whatever_counts_a_user_has_written(
        spec in any_spec(),
        status in any_counts(),
        steps in prop::collection::vec(any_step(), 0..30),
    ) {
        let mut model = Model::with_status(spec, status);
        for step in &steps {
            model.step(step);
        }
        model.come_to_an_end();
        let status = model.job.status.clone().unwrap_or_default();
        prop_assert!(crate::loops::workloads::job::finished(&model.job).is_some(), "{:?}", conditions(&status));
        prop_assert!(!model.pods.iter().any(has_finalizer), "a pod is held by a job that has finished");
    }

    #[test]
    fn over_any_history_every_pod_counts_once_and_the_job_ends(spec in any_spec(), steps in prop::collection::vec(any_step(), 0..60)) {
        let mut model = Model::new(spec);
        for step in &steps {
            model.step(step);
        }
        model.come_to_an_end();
        let status = model.job.status.clone().unwrap_or_default();
        prop_assert!(crate::loops::workloads::job::finished(&model.job).is_some(), "{:?}", conditions(&status));
        prop_assert_eq!(status.uncounted_terminated_pods.clone(), Some(UncountedTerminatedPods::default()));
        prop_assert!(!model.pods.iter().any(has_finalizer), "a pod is held by a job that has finished");
        prop_assert_eq!(status.active, None);
        let is_complete = crate::loops::workloads::job::is_complete(&model.job);
        if is_complete {
            let spec = model.job.spec.as_ref().unwrap();
            let policy = spec.success_policy.as_ref().and_then(|policy| policy.rules.first()?.succeeded_count);
            prop_assert!(status.succeeded.unwrap_or(0) >= policy.or(spec.completions).unwrap_or(1));
        }
        let all = conditions(&status);
        let order: Vec<&str> = all.iter().map(|one| one.split('=').next().unwrap()).filter(|type_| *type_ != "Suspended").collect();
        prop_assert_eq!(order, if is_complete { ["SuccessCriteriaMet", "Complete"] } else { ["FailureTarget", "Failed"] });
    }
}
