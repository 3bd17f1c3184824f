//! One pass over a Job: how its Pods count, which Pods to create or delete, and the status that results.
//!
//! Pure: the reconciler reads, passes in what it read, carries out the result and reports back, in this order.
//! [`Pass::new`] judges the current state, [`Pass::todo`] says what to do with Pods, [`Pass::done`] takes the outcome,
//! [`Pass::account`] lists in the status the Pods that have finished and says which of them to release, and
//! [`Pass::count_and_finish`] counts the released Pods. The status must be written between the last two: a Pod is counted when
//! its uid leaves the status, and released only while its uid is in there, so nothing is counted twice or lost wherever
//! this stops. Follows upstream's `syncJob` and `trackJobStatusAndRemoveFinalizers`.

mod accounting;
mod changes;

use crate::loops::workloads::job::FINALIZER;
use crate::loops::workloads::job::backoff::{self, Backoff};
use crate::loops::workloads::job::index;
use crate::loops::workloads::job::intervals::Intervals;
use crate::loops::workloads::job::policy::{self, Failure};
use crate::shared::pods;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The most uids that the status lists, which keeps it below some 20 kB.
const UNCOUNTED_MAX: usize = 500;
/// The most Pods that are created or deleted before the Job is reconciled again.
const CHANGES_MAX: usize = 500;

/// The inputs and findings of a pass.
pub(crate) struct Pass<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    pods: Vec<Arc<Pod>>,
    /// Uids of Pods that were released, though the cache may still show them with their finalizer.
    released: &'a HashSet<String>,
    now: Timestamp,
    /// The status to be written.
    pub(crate) status: JobStatus,
    /// The failures of Pods, to be kept once the status is written.
    pub(crate) backoff: Backoff,
    /// When the Job has to be reconciled again though nothing changes.
    pub(crate) wait: Option<Duration>,
    /// The suspension or resumption to report in an Event, once the status is written.
    pub(crate) suspension: Option<Suspension>,
    active: Vec<Arc<Pod>>,
    counts: Counts,
    finish: Option<Finish>,
    succeeded_before: Intervals,
    succeeded_indexes: Intervals,
    failed_indexes: Option<Intervals>,
    /// The last failed Pod of each index that waits for a replacement. It is kept until then, because the replacement
    /// gets the index's number of failures.
    kept: BTreeMap<i32, Arc<Pod>>,
    is_list_full: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    active: i32,
    ready: i32,
    succeeded: i32,
    terminating: i32,
}

/// The action due for Pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodAction {
    Create(Vec<Order>),
    /// Delete these Pods. They keep their finalizers until they are counted.
    End(Vec<Arc<Pod>>),
    Nothing,
    /// Release these Pods and delete them: they never count.
    Remove(Vec<Arc<Pod>>),
}

/// A Pod to create.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Order {
    /// The completion index, in an Indexed Job.
    pub(crate) index: Option<i32>,
    /// The number of failed Pods of the index, where a limit applies: failures that count, and failures that the policy
    /// ignores.
    pub(crate) n_failures: Option<(i32, i32)>,
}

/// The outcome of creations and deletions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) n_created: usize,
    pub(crate) n_deleted: usize,
    /// The number of ready Pods among the deleted ones.
    pub(crate) n_ready: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Suspension {
    Resumed,
    Suspended,
}

/// How the Job ends, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Finish {
    pub(crate) stage: Stage,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The condition type for the end of the Job: `SuccessCriteriaMet` and `FailureTarget` announce it, `Complete` and
/// `Failed` confirm it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    Complete,
    Failed,
    FailureTarget,
    SuccessCriteriaMet,
}

// === impl Pass: the current state ===

impl<'a> Pass<'a> {
    /// Judges the current state. `None` for a Job without a spec, which the server does not accept.
    pub(crate) fn new(
        job: &'a Job,
        mut pods: Vec<Arc<Pod>>,
        released: &'a HashSet<String>,
        backoff: Backoff,
        now: Timestamp,
    ) -> Option<Pass<'a>> {
        let spec = job.spec.as_ref()?;
        pods.sort_by(|a, b| (index::of(a), &a.metadata.name).cmp(&(index::of(b), &b.metadata.name)));
        let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let counts = Counts {
            active: to_i32(active.len()),
            ready: to_i32(active.iter().filter(|pod| pods::is_ready(pod)).count()),
            succeeded: 0,
            terminating: to_i32(pods.iter().filter(|pod| is_ending(pod)).count()),
        };
        let mut status = job.status.clone().unwrap_or_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        let mut pass = Pass {
            job,
            spec,
            pods,
            released,
            now,
            status,
            backoff,
            wait: None,
            suspension: None,
            active,
            counts,
            finish: None,
            succeeded_before: Intervals::default(),
            succeeded_indexes: Intervals::default(),
            failed_indexes: None,
            kept: BTreeMap::new(),
            is_list_full: false,
        };
        pass.judge();
        Some(pass)
    }

    fn judge(&mut self) {
        let uncounted = self.uncounted();
        // A Pod that was listed as failed because it was being deleted may still succeed. It counts once.
        let is_listed_as_failed = |pod: &Pod| uncounted.failed.iter().flatten().any(|listed| listed == uid(pod));
        let has_succeeded = |pod: &Pod| pods::phase(pod) == "Succeeded" && !is_listed_as_failed(pod);
        let succeeded = self.new_pods(&uncounted.succeeded, has_succeeded);
        let failed = self.new_pods(&uncounted.failed, |pod| self.has_failed(pod));
        let n_failed = failed.iter().filter(|pod| self.failure(pod) != Failure::Ignored).count();
        let total = |counted: Option<i32>, new: usize, listed: &Option<Vec<String>>| {
            counted.unwrap_or(0).saturating_add(to_i32(new + listed.as_ref().map_or(0, Vec::len)))
        };
        self.counts.succeeded = total(self.status.succeeded, succeeded.len(), &uncounted.succeeded);
        let n_failed = total(self.status.failed, n_failed, &uncounted.failed);
        if self.status.start_time.is_none() && !self.is_suspended() {
            self.status.start_time = Some(Time(self.now));
        }
        self.backoff = self.backoff.after(&succeeded, &failed);

        self.finish = self.decided().or_else(|| self.failed_by_policy()).or_else(|| self.failed_by_limit(n_failed));
        if self.finish.is_none()
            && let Some(left) = self.deadline_left()
        {
            self.wait_at_most(left);
        }
        if let Some(completions) = self.indexed() {
            self.judge_indexes(completions);
        }
    }

    /// The finish that an earlier pass has decided on.
    fn decided(&self) -> Option<Finish> {
        let all = || self.status.conditions.iter().flatten();
        let has = |type_: &str| all().find(|one| one.type_ == type_ && one.status == "True").cloned();
        let finish = |stage, condition: JobCondition| Finish {
            stage,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
        };
        has("SuccessCriteriaMet")
            .map(|condition| finish(Stage::SuccessCriteriaMet, condition))
            .or_else(|| has("FailureTarget").map(|condition| finish(Stage::Failed, condition)))
    }

    fn failed_by_policy(&self) -> Option<Finish> {
        self.spec.pod_failure_policy.as_ref()?;
        let message = self.pods.iter().filter(|pod| self.has_failed(pod)).find_map(|pod| match self.failure(pod) {
            Failure::FailsJob(message) => Some(message),
            Failure::Counts | Failure::FailsIndex | Failure::Ignored => None,
        })?;
        Some(Finish { stage: Stage::FailureTarget, reason: "PodFailurePolicy".to_owned(), message })
    }

    fn failed_by_limit(&self, n_failed: i32) -> Option<Finish> {
        // The default of the API.
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if n_failed > limit || self.has_restarted_too_often(limit) {
            return Some(failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        let is_late = self.deadline_left().is_some_and(|left| left.is_zero());
        is_late.then(|| failure("DeadlineExceeded", "Job was active longer than specified deadline"))
    }

    /// Whether container restarts exceed the limit. With restartPolicy OnFailure, restarts count as failures.
    fn has_restarted_too_often(&self, limit: i32) -> bool {
        let template = self.spec.template.spec.as_ref();
        if template.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
        let statuses = running.filter_map(|pod| pod.status.as_ref());
        let containers = statuses
            .flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses))
            .flatten();
        let n_restarts = containers.fold(0i32, |n, container| n.saturating_add(container.restart_count));
        if limit == 0 { n_restarts > 0 } else { n_restarts >= limit }
    }

    /// How long the Job may still be active; `None` without a deadline or while it is suspended.
    fn deadline_left(&self) -> Option<Duration> {
        let seconds = self.spec.active_deadline_seconds.filter(|_| !self.is_suspended())?;
        let since = self.status.start_time.as_ref()?.0;
        let left = SignedDuration::from_secs(seconds).saturating_sub(self.now.duration_since(since));
        Some(Duration::try_from(left).unwrap_or_default())
    }

    fn judge_indexes(&mut self, completions: i32) {
        let parse = |text: Option<&String>| Intervals::parse(text.map_or("", |text| text), completions);
        let index_of = |pod: &Pod| index::within(pod, completions).filter(|_| has_finalizer(pod));
        self.succeeded_before = parse(self.status.completed_indexes.as_ref());
        // An index that has failed stays failed, and one that has succeeded stays so: the server rejects an index in
        // both lists. A Pod that counted as failed because it was being deleted may still succeed, and an index may
        // have had two Pods.
        let failed_before = parse(self.status.failed_indexes.as_ref());
        let succeeded = self.pods.iter().filter(|pod| pods::phase(pod) == "Succeeded");
        let succeeded = succeeded.filter_map(|pod| index_of(pod)).filter(|at| !failed_before.has(*at));
        self.succeeded_indexes = self.succeeded_before.with(succeeded);
        self.counts.succeeded = self.succeeded_indexes.total();
        if let Some(limit) = self.spec.backoff_limit_per_index {
            let failed = self.pods.iter().filter(|pod| self.has_index_failed(pod, limit));
            let failed = failed.filter_map(|pod| index_of(pod)).filter(|at| !self.succeeded_indexes.has(*at));
            let failed = failed_before.with(failed);
            let (n_failed, n_succeeded) = (failed.total(), self.succeeded_indexes.total());
            if self.finish.is_none() {
                if self.spec.max_failed_indexes.is_some_and(|most| n_failed > most) {
                    let message = "Job has exceeded the specified maximal number of failed indexes";
                    self.finish = Some(failure("MaxFailedIndexesExceeded", message));
                } else if n_failed > 0 && n_failed.saturating_add(n_succeeded) >= completions {
                    self.finish = Some(failure("FailedIndexes", "Job has failed indexes"));
                }
            }
            self.kept = self.keep(completions, &failed);
            self.failed_indexes = Some(failed);
        }
        if self.finish.is_none()
            && let Some(message) =
                policy::success(self.spec.success_policy.as_ref(), completions, &self.succeeded_indexes)
        {
            self.finish =
                Some(Finish { stage: Stage::SuccessCriteriaMet, reason: "SuccessPolicy".to_owned(), message });
        }
    }

    fn has_index_failed(&self, pod: &Pod, limit: i32) -> bool {
        self.has_failed(pod)
            && match self.failure(pod) {
                Failure::Counts | Failure::FailsJob(_) => index::n_failures(pod) >= limit,
                Failure::FailsIndex => true,
                Failure::Ignored => false,
            }
    }

    fn keep(&self, completions: i32, failed_indexes: &Intervals) -> BTreeMap<i32, Arc<Pod>> {
        let active: BTreeSet<i32> = self.active.iter().filter_map(|pod| index::of(pod)).collect();
        let mut kept: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
        for pod in self.new_pods(&None, |pod| self.has_failed(pod)) {
            let Some(at) = index::within(&pod, completions) else { continue };
            if self.succeeded_indexes.has(at) || failed_indexes.has(at) || active.contains(&at) {
                continue;
            }
            let rank = |pod: &Pod| index::n_failures(pod).saturating_add(index::n_ignored_failures(pod));
            let is_later =
                |last: &Arc<Pod>| rank(last) <= rank(&pod) && backoff::finished_at(&pod) >= backoff::finished_at(last);
            if kept.get(&at).is_none_or(is_later) {
                kept.insert(at, pod);
            }
        }
        kept
    }

    /// Pods that count for the Job and have neither been released nor listed in the status.
    fn new_pods(&self, listed: &Option<Vec<String>>, passes: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        let listed: HashSet<&str> = listed.iter().flatten().map(String::as_str).collect();
        let is_new = |pod: &&Arc<Pod>| self.is_held(pod) && !listed.contains(uid(pod)) && self.is_wanted(pod);
        self.pods.iter().filter(is_new).filter(|pod| passes(pod)).cloned().collect()
    }

    /// Whether the completion index of a Pod is one that the Job has.
    fn is_wanted(&self, pod: &Pod) -> bool {
        self.indexed().is_none_or(|completions| index::within(pod, completions).is_some())
    }

    fn is_held(&self, pod: &Pod) -> bool {
        has_finalizer(pod) && !self.released.contains(uid(pod))
    }

    fn has_failed(&self, pod: &Pod) -> bool {
        match pods::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            // A deleted Pod may never report that it has failed.
            _ => pods::is_terminating(pod) && !self.waits_for_the_end(),
        }
    }

    fn failure(&self, pod: &Pod) -> Failure {
        policy::failure(self.spec.pod_failure_policy.as_ref(), pod)
    }

    /// Whether a Pod is replaced only after it has terminated.
    fn waits_for_the_end(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some()
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    fn is_deleting(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    /// The number of completions of an Indexed Job.
    fn indexed(&self) -> Option<i32> {
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        is_indexed.then(|| self.spec.completions.unwrap_or(0))
    }

    fn uncounted(&self) -> UncountedTerminatedPods {
        self.status.uncounted_terminated_pods.clone().unwrap_or_default()
    }

    fn wait_at_most(&mut self, wait: Duration) {
        self.wait = Some(self.wait.map_or(wait, |known| known.min(wait)));
    }
}

fn failure(reason: &str, message: &str) -> Finish {
    Finish { stage: Stage::FailureTarget, reason: reason.to_owned(), message: message.to_owned() }
}

fn find<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

pub(crate) fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// Whether a Pod is being deleted and has not terminated.
fn is_ending(pod: &Pod) -> bool {
    pods::is_terminating(pod) && !pods::is_terminal(pod)
}

pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The count, or `None` for zero, which is not written.
fn positive(count: i32) -> Option<i32> {
    Some(count).filter(|&count| count != 0)
}

fn to_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
