//! The Pods that a pass creates and deletes, and the effect on its counts.

use crate::loops::workloads::job::pass::{
    CHANGES_MAX, Done, Finish, Order, Pass, PodAction, Stage, Suspension, is_ending, positive, to_i32,
};
use crate::loops::workloads::job::policy::Failure;
use crate::loops::workloads::job::{backoff, index, removal};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
impl Pass<'_> {
    /// The action due for Pods.
    pub(crate) fn todo(&mut self) -> PodAction {
        if self.finish.is_some() {
            return PodAction::End(self.active.clone());
        }
        if self.is_deleting() {
            return PodAction::Nothing;
        }
        if self.is_suspended() {
            return remove(removal::order(&self.active, self.indexed(), self.active.len()));
        }
        let wanted = self.n_wanted();
        let surplus = usize::try_from(self.counts.active.saturating_sub(wanted)).unwrap_or(0);
        let mut surplus = removal::order(&self.active, self.indexed(), surplus);
        surplus.truncate(CHANGES_MAX);
        if !surplus.is_empty() {
            return remove(surplus);
        }
        let still_there = if self.waits_for_the_end() { self.counts.terminating } else { 0 };
        let missing = wanted.saturating_sub(still_there).saturating_sub(self.counts.active);
        match usize::try_from(missing) {
            Ok(missing @ 1..) => self.create(missing.min(CHANGES_MAX)),
            _ => PodAction::Nothing,
        }
    }

    /// The desired number of running Pods.
    fn n_wanted(&self) -> i32 {
        let parallelism = self.spec.parallelism.unwrap_or(1);
        match self.spec.completions {
            // The first success decides; running Pods may go on.
            None if self.counts.succeeded > 0 => self.counts.active,
            None => parallelism,
            Some(completions) => completions.saturating_sub(self.counts.succeeded).min(parallelism).max(0),
        }
    }

    fn create(&mut self, n: usize) -> PodAction {
        let has_limit_per_index = self.spec.backoff_limit_per_index.is_some();
        if !has_limit_per_index {
            let left = self.backoff.left(self.now);
            if !left.is_zero() {
                self.wait_at_most(left);
                return PodAction::Nothing;
            }
        }
        let Some(completions) = self.indexed() else {
            return PodAction::Create(vec![Order { index: None, n_failures: None }; n]);
        };
        let mut indexes = self.pending_indexes(n, completions);
        if has_limit_per_index {
            let left = |at: &i32| backoff::left_of_index(self.kept.get(at).map(|pod| &**pod), self.now);
            let least = indexes.iter().map(left).min().unwrap_or_default();
            if !least.is_zero() {
                self.wait_at_most(least);
                return PodAction::Nothing;
            }
            let next = indexes.iter().map(left).filter(|left| !left.is_zero()).min();
            indexes.retain(|at| left(at).is_zero());
            if let Some(next) = next {
                self.wait_at_most(next);
            }
        }
        let orders = indexes.into_iter().map(|at| Order {
            index: Some(at),
            n_failures: has_limit_per_index.then(|| self.n_failures(self.kept.get(&at))),
        });
        match orders.collect::<Vec<_>>() {
            orders if orders.is_empty() => PodAction::Nothing,
            orders => PodAction::Create(orders),
        }
    }

    fn pending_indexes(&self, n: usize, completions: i32) -> Vec<i32> {
        let active = self.active.iter().filter_map(|pod| index::of(pod));
        let mut taken = self.succeeded_indexes.with(active);
        if self.waits_for_the_end() {
            taken = taken.with(self.pods.iter().filter(|pod| is_ending(pod)).filter_map(|pod| index::of(pod)));
        }
        if let Some(failed) = &self.failed_indexes {
            taken = taken.union(failed);
        }
        taken.first_missing(n, completions)
    }

    /// How often an index has failed, given its last Pod: counted and ignored failures.
    fn n_failures(&self, last: Option<&Arc<Pod>>) -> (i32, i32) {
        let Some(last) = last else { return (0, 0) };
        let (counted, ignored) = (index::n_failures(last), index::n_ignored_failures(last));
        match self.failure(last) {
            Failure::Ignored => (counted, ignored.saturating_add(1)),
            Failure::Counts | Failure::FailsIndex | Failure::FailsJob(_) => (counted.saturating_add(1), ignored),
        }
    }

    /// Takes the outcome of the action. Only then is it known whether the Job is complete.
    pub(crate) fn done(&mut self, done: Done) {
        let n_deleted = to_i32(done.n_deleted);
        self.counts.active = self.counts.active.saturating_sub(n_deleted).saturating_add(to_i32(done.n_created));
        self.counts.ready = self.counts.ready.saturating_sub(to_i32(done.n_ready)).max(0);
        self.counts.terminating = self.counts.terminating.saturating_add(n_deleted);
        if self.finish.is_some() {
            if done.n_deleted != self.active.len() {
                // The other Pods have to be deleted before the Job may finish.
                self.finish = None;
            }
        } else {
            self.complete_or_suspend();
        }
        self.status.active = positive(self.counts.active);
        self.status.ready = Some(self.counts.ready);
        self.status.terminating = Some(self.counts.terminating);
    }

    fn complete_or_suspend(&mut self) {
        let is_complete = match self.spec.completions {
            None => self.counts.succeeded > 0,
            Some(completions) => self.counts.succeeded >= completions,
        };
        if is_complete && self.counts.active == 0 {
            self.finish = Some(Finish {
                stage: Stage::SuccessCriteriaMet,
                reason: "CompletionsReached".to_owned(),
                message: "Reached expected number of succeeded pods".to_owned(),
            });
        } else if !self.is_deleting() && self.is_suspended() {
            if self.set_condition("Suspended", "True", "JobSuspended", "Job suspended") {
                self.suspension = Some(Suspension::Suspended);
                self.status.start_time = None;
            }
        } else if !self.is_deleting() && self.set_condition("Suspended", "False", "JobResumed", "Job resumed") {
            self.suspension = Some(Suspension::Resumed);
            // The deadline does not run while the Job is suspended.
            self.status.start_time = Some(Time(self.now));
        }
    }
}

fn remove(pods: Vec<Arc<Pod>>) -> PodAction {
    if pods.is_empty() { PodAction::Nothing } else { PodAction::Remove(pods) }
}
