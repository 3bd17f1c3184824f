//! Counts finished Pods in the status, and finishes the Job.

use crate::loops::workloads::job::index;
use crate::loops::workloads::job::intervals::Intervals;
use crate::loops::workloads::job::pass::{Finish, Pass, Stage, UNCOUNTED_MAX, find, positive, to_i32, uid};
use crate::loops::workloads::job::policy::Failure;
use crate::shared::pods;
use k8s_openapi::api::batch::v1::JobCondition;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::HashSet;
use std::sync::Arc;
impl Pass<'_> {
    /// Lists finished Pods in the status, and counts those listed before that have been released since. Returns the
    /// Pods to release after the status is written.
    pub(crate) fn account(&mut self) -> Vec<Arc<Pod>> {
        self.count_released(|pass, pod| pass.is_held(pod));
        let mut uncounted = self.uncounted();
        let listed: HashSet<String> = uncounted.succeeded.iter().chain(&uncounted.failed).flatten().cloned().collect();
        let has_listed_failure: HashSet<String> = uncounted.failed.iter().flatten().cloned().collect();
        let mut n_listed = listed.len();
        let (mut release, mut is_full) = (Vec::new(), false);
        for pod in &self.pods {
            let has_failed = self.has_failed(pod);
            if !self.is_held(pod) || !self.may_release(pod, has_failed) {
                continue;
            }
            release.push(pod.clone());
            let uid = uid(pod);
            if pods::phase(pod) == "Succeeded" && !has_listed_failure.contains(uid) {
                if let Some(completions) = self.indexed() {
                    // The list of indexes is enough to prevent counting it again.
                    let is_new = |at: &i32| !self.succeeded_before.has(*at);
                    n_listed += usize::from(index::within(pod, completions).filter(is_new).is_some());
                } else if !listed.contains(uid) {
                    uncounted.succeeded.get_or_insert_default().push(uid.to_owned());
                    n_listed += 1;
                }
            } else if (has_failed || self.fails())
                && !listed.contains(uid)
                && self.is_wanted(pod)
                && self.failure(pod) != Failure::Ignored
            {
                uncounted.failed.get_or_insert_default().push(uid.to_owned());
                n_listed += 1;
            }
            if n_listed >= UNCOUNTED_MAX {
                // Further Pods follow when these are counted.
                is_full = true;
                break;
            }
        }
        self.is_list_full = is_full;
        self.status.uncounted_terminated_pods = Some(uncounted);
        if self.indexed().is_some() {
            self.status.succeeded = positive(self.n_succeeded_indexes());
            self.status.completed_indexes = Some(self.succeeded_indexes.to_string()).filter(|text| !text.is_empty());
            self.status.failed_indexes = self.failed_indexes.as_ref().map(Intervals::to_string);
        }
        self.announce();
        release
    }

    /// The number of succeeded indexes that may be written: the server lets the number decrease only while parallelism
    /// equals completions. Somebody may change one of the two before a Job that was made smaller is reconciled.
    fn n_succeeded_indexes(&self) -> i32 {
        let total = self.succeeded_indexes.total();
        let is_elastic = self.spec.completions == self.spec.parallelism;
        if is_elastic {
            total
        } else {
            total.max(self.job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0))
        }
    }

    /// Whether a Pod may lose its finalizer.
    fn may_release(&self, pod: &Pod, has_failed: bool) -> bool {
        if self.is_deleting() || self.finish.is_some() || pods::phase(pod) == "Succeeded" {
            return true;
        }
        let is_kept = || {
            let kept = index::of(pod).and_then(|at| self.kept.get(&at));
            kept.is_some_and(|kept| kept.metadata.uid == pod.metadata.uid)
        };
        has_failed && !is_kept()
    }

    /// Whether the Job fails, so that every unfinished Pod counts as failed.
    fn fails(&self) -> bool {
        matches!(self.finish, Some(Finish { stage: Stage::Failed | Stage::FailureTarget, .. }))
    }

    /// Sets the condition that announces how the Job will finish. The Job has finished when all Pods are counted.
    fn announce(&mut self) {
        let Some(finish) = self.finish.clone() else { return };
        let (type_, end) = match finish.stage {
            Stage::Complete | Stage::Failed => return,
            Stage::FailureTarget => ("FailureTarget", Stage::Failed),
            Stage::SuccessCriteriaMet => ("SuccessCriteriaMet", Stage::Complete),
        };
        if find(&self.status, type_).is_none_or(|known| known.status != "True") {
            self.set_condition(type_, "True", &finish.reason, &finish.message);
        }
        self.finish = Some(Finish { stage: end, ..finish });
    }

    /// Counts the Pods that are listed in the status and have been released, in this pass according to `is_released` or
    /// before. Returns how the Job has finished, if it has.
    pub(crate) fn count_and_finish(&mut self, is_released: impl Fn(&Pod) -> bool) -> Option<Finish> {
        self.count_released(|pass, pod| pass.is_held(pod) && !is_released(pod));
        let uncounted = self.uncounted();
        let is_all_counted = uncounted.succeeded.is_none() && uncounted.failed.is_none() && !self.is_list_full;
        let finish = self.finish.clone().filter(|_| is_all_counted && self.counts.terminating == 0)?;
        let type_ = match finish.stage {
            Stage::Complete | Stage::SuccessCriteriaMet => "Complete",
            Stage::Failed | Stage::FailureTarget => "Failed",
        };
        self.set_condition(type_, "True", &finish.reason, &finish.message);
        // A suspended Job has no start time, and a Job may not finish without one.
        let began = self.status.start_time.get_or_insert(Time(self.now)).0;
        if type_ == "Complete" {
            self.status.completion_time = Some(Time(self.now.max(began)));
        }
        Some(finish)
    }

    /// Whether more Pods succeeded than were wanted.
    pub(crate) fn has_too_many_successes(&self) -> bool {
        self.spec.completions.is_some_and(|completions| self.status.succeeded.unwrap_or(0) > completions)
    }

    fn count_released(&mut self, is_held: impl Fn(&Self, &Pod) -> bool) {
        let held: HashSet<&str> = self.pods.iter().filter(|pod| is_held(self, pod)).map(|pod| uid(pod)).collect();
        let mut uncounted = self.status.uncounted_terminated_pods.take().unwrap_or_default();
        let count = |counted: &mut Option<i32>, listed: &mut Option<Vec<String>>| {
            let Some(uids) = listed else { return };
            let n_before = uids.len();
            uids.retain(|uid| held.contains(&**uid));
            *counted = positive(counted.unwrap_or(0).saturating_add(to_i32(n_before - uids.len())));
            if uids.is_empty() {
                *listed = None;
            }
        };
        count(&mut self.status.succeeded, &mut uncounted.succeeded);
        count(&mut self.status.failed, &mut uncounted.failed);
        self.status.uncounted_terminated_pods = Some(uncounted);
    }

    /// Sets a condition, unless it is set already. An absent condition counts as false.
    pub(super) fn set_condition(&mut self, type_: &str, status: &str, reason: &str, message: &str) -> bool {
        let condition = JobCondition {
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
            message: Some(message.to_owned()),
            reason: Some(reason.to_owned()),
            status: status.to_owned(),
            type_: type_.to_owned(),
        };
        let conditions = self.status.conditions.get_or_insert_default();
        match conditions.iter_mut().find(|known| known.type_ == type_) {
            Some(known)
                if known.status == status && known.reason == condition.reason && known.message == condition.message =>
            {
                false
            }
            Some(known) => {
                *known = condition;
                true
            }
            None if status == "False" => {
                if conditions.is_empty() {
                    self.status.conditions = None;
                }
                false
            }
            None => {
                conditions.push(condition);
                true
            }
        }
    }
}
