//! Validation of a Job's status, as `ValidateJobUpdateStatus` of kubernetes' `pkg/apis/batch/validation`.
//!
//! Most rules apply only where their fields change, so that other fields of an invalid status can still be written.

use crate::builtin::kind::Request;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::workloads::batch::job::INDEXED;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::time as times;

/// The conditions that a Job cannot lose.
const FOR_GOOD: [&str; 3] = ["Failed", "Complete", "FailureTarget"];

/// A Job, for validating its status.
struct Job<'a> {
    spec: Field<'a>,
    status: Field<'a>,
}

/// The fields that a write changes.
struct Changes {
    active: bool,
    complete: bool,
    completed_indexes: bool,
    completion_time: bool,
    failed: bool,
    failed_indexes: bool,
    failure_target: bool,
    finished: bool,
    ready: bool,
    start_time: bool,
    success_criteria_met: bool,
    terminating: bool,
    uncounted: bool,
}

pub(super) fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (job, old) = (Job::of(request.new), Job::of(request.old));
    let changes = Changes::between(&old, &job);
    counters(&job, errors);
    conditions(&job, &changes, errors);
    times(&job, &changes, errors);
    end(&job, &changes, errors);
    indexes(&job, &changes, errors);
    if changes.ready || changes.active {
        let (ready, active) = (job.status.field("ready"), job.number("active"));
        if ready.number().is_some_and(|ready| ready > active) {
            errors.push(ready.invalid("cannot set more ready pods than active"));
        }
    }
    criteria(&job, errors);
    transition(&old, &job, &changes, errors);
}

/// Counters must not be negative, and a Pod must not be counted twice.
fn counters(job: &Job<'_>, errors: &mut Vec<Error>) {
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        rules::not_negative(&job.status.field(field), errors);
    }
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"].map(|list| job.status.at(&["uncountedTerminatedPods", list])) {
        for uid in list.items() {
            if uid.text().is_empty() {
                errors.push(Error::invalid(&uid.path, "", "must not be empty"));
            } else if !seen.insert(uid.text()) {
                errors.push(uid.duplicate());
            }
        }
    }
}

/// A Job cannot be both complete and failed.
fn conditions(job: &Job<'_>, changes: &Changes, errors: &mut Vec<Error>) {
    if !job.holds("Complete") {
        return;
    }
    if (changes.complete || changes.failed) && job.holds("Failed") {
        errors.push(job.condition("cannot set Complete=True and Failed=true conditions"));
    }
    if (changes.complete || changes.failure_target) && job.holds("FailureTarget") {
        errors.push(job.condition("cannot set Complete=True and FailureTarget=true conditions"));
    }
}

/// A Job has a completion time only if it is complete, and not before it has started.
fn times(job: &Job<'_>, changes: &Changes, errors: &mut Vec<Error>) {
    let (start, completion) = (job.status.field("startTime"), job.status.field("completionTime"));
    if changes.complete || changes.completion_time {
        if completion.is_present() && !job.holds("Complete") {
            errors.push(completion.invalid("cannot set completionTime when there is no Complete=True condition"));
        }
        if completion.is_absent() && job.holds("Complete") {
            errors.push(completion.required("completionTime is required for Complete jobs"));
        }
    }
    let time = |field: &Field<'_>| times::parse(field.text());
    if (changes.start_time || changes.completion_time)
        && let (Some(begun), Some(completed)) = (time(&start), time(&completion))
        && completed < begun
    {
        errors.push(completion.invalid("must be equal to or after `startTime`"));
    }
}

/// A finished Job has no Pods left to account for.
fn end(job: &Job<'_>, changes: &Changes, errors: &mut Vec<Error>) {
    if (changes.failed || changes.failed_indexes) && job.holds("Failed") && !job.holds("FailureTarget") {
        errors.push(job.condition("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if (changes.complete || changes.success_criteria_met) && job.holds("Complete") && !job.holds("SuccessCriteriaMet") {
        errors.push(job.condition("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"));
    }
    if !job.is_finished() {
        return;
    }
    if (changes.finished || changes.active) && job.number("active") > 0 {
        errors.push(job.status.field("active").invalid("active>0 is invalid for finished job"));
    }
    let start = job.status.field("startTime");
    let never_begins = job.spec.field("suspend").flag() && job.spec.field("completions").number() == Some(0);
    if (changes.finished || changes.start_time) && !never_begins && start.is_absent() {
        errors.push(start.required("startTime is required for finished job"));
    }
    let uncounted = job.status.field("uncountedTerminatedPods");
    let lists = ["succeeded", "failed"].map(|list| uncounted.field(list));
    if (changes.finished || changes.uncounted) && lists.iter().any(|list| !list.is_empty()) {
        // Upstream prints the internal form.
        let value = json!({"Succeeded": lists[0].value, "Failed": lists[1].value});
        errors.push(Error::invalid(&uncounted.path, value, "must be empty for finished job"));
    }
}

/// The finished indexes must be in range and sorted, and none may be both complete and failed.
fn indexes(job: &Job<'_>, changes: &Changes, errors: &mut Vec<Error>) {
    let (completed, failed) = (job.status.field("completedIndexes"), job.status.field("failedIndexes"));
    let completions = job.spec.field("completions").number();
    let has_limit = job.spec.field("backoffLimitPerIndex").is_present();
    if changes.completed_indexes
        && let Some(Err(why)) = completions.map(|completions| check(completed.text(), completions))
    {
        let why = format!("error parsing completedIndexes: {why}");
        errors.push(Error::invalid(&completed.path, completed.text(), why));
    }
    if changes.failed_indexes
        && failed.is_present()
        && has_limit
        && let Some(Err(why)) = completions.map(|completions| check(failed.text(), completions))
    {
        errors.push(failed.invalid(format!("error parsing failedIndexes: {why}")));
    }
    if changes.completed_indexes && !completed.text().is_empty() && job.spec.field("completionMode").text() != INDEXED {
        errors.push(completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode"));
    }
    if changes.failed_indexes && failed.is_present() && !has_limit {
        errors.push(failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null"));
    }
    if (changes.failed_indexes || changes.completed_indexes)
        && failed.is_present()
        && let Some(index) = completions.and_then(|most| overlap(completed.text(), failed.text(), most))
    {
        errors.push(failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}")));
    }
    if (changes.finished || changes.terminating) && job.number("terminating") > 0 && job.is_finished() {
        errors.push(job.status.field("terminating").invalid("terminating>0 is invalid for finished job"));
    }
}

/// The success policy, where there is one, decides whether a Job has succeeded; such a Job cannot fail.
fn criteria(job: &Job<'_>, errors: &mut Vec<Error>) {
    let is_met = job.holds("SuccessCriteriaMet");
    if is_met && job.holds("Failed") {
        errors.push(job.condition("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if is_met && job.holds("FailureTarget") {
        errors.push(job.condition("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
    }
    if job.spec.field("successPolicy").is_present() && !is_met && job.holds("Complete") {
        let why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.push(job.condition(why));
    }
}

/// Final conditions and counters must not be reverted.
fn transition(old: &Job<'_>, job: &Job<'_>, changes: &Changes, errors: &mut Vec<Error>) {
    for condition in FOR_GOOD {
        if old.holds(condition) && !job.holds(condition) {
            errors.push(job.condition(&format!("cannot disable the terminal {condition}=True condition")));
        }
    }
    let amount = |field: &str| {
        Error::invalid(&job.status.field(field).path, job.number(field), format!("cannot decrease the {field} counter"))
    };
    if job.number("failed") < old.number("failed") {
        errors.push(amount("failed"));
    }
    // A Job whose completions equal its parallelism may be scaled down.
    let is_elastic = job.spec.field("completionMode").text() == INDEXED
        && job.spec.field("completions").value == job.spec.field("parallelism").value;
    if !is_elastic && job.number("succeeded") < old.number("succeeded") {
        errors.push(amount("succeeded"));
    }
    let (completion, completion_before) = (job.status.field("completionTime"), old.status.field("completionTime"));
    if completion.is_present() && completion_before.is_present() && changes.completion_time {
        errors.push(completion.invalid(rules::IMMUTABLE));
    }
    let is_resumed = old.holds("Suspended") && job.says("Suspended", "False");
    let is_suspended = job.spec.field("suspend").flag();
    if changes.start_time && !is_resumed && !is_suspended && old.status.field("startTime").is_present() {
        errors.push(job.status.field("startTime").invalid("field is immutable for unsuspended job once set"));
    }
    let (was_met, is_met) = (old.holds("SuccessCriteriaMet"), job.holds("SuccessCriteriaMet"));
    if was_met && !is_met {
        errors.push(job.condition("cannot disable the SuccessCriteriaMet=True condition"));
    }
    if old.holds("Complete") && !was_met && is_met {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(job.condition(why));
    }
}

// === impl Job ===

impl<'a> Job<'a> {
    fn of(job: &'a Value) -> Job<'a> {
        let root = Field::root(job);
        Job { spec: root.field("spec"), status: root.field("status") }
    }

    fn says(&self, condition: &str, status: &str) -> bool {
        let mut conditions = self.status.field("conditions").items();
        conditions.any(|one| one.field("type").text() == condition && one.field("status").text() == status)
    }

    fn holds(&self, condition: &str) -> bool {
        self.says(condition, "True")
    }

    fn is_finished(&self) -> bool {
        self.holds("Complete") || self.holds("Failed")
    }

    fn number(&self, field: &str) -> i64 {
        self.status.field(field).number().unwrap_or(0)
    }

    fn condition(&self, why: &str) -> Error {
        Error::invalid_without_value(&self.status.field("conditions").path, why)
    }
}

// === impl Changes ===

impl Changes {
    fn between(old: &Job<'_>, new: &Job<'_>) -> Changes {
        let differs = |field: &str| old.status.field(field).value != new.status.field(field).value;
        let turns = |condition: &str| old.holds(condition) != new.holds(condition);
        let time = |field: &str| {
            let read = |job: &Job<'_>| times::parse(job.status.field(field).text());
            read(old) != read(new)
        };
        Changes {
            active: old.number("active") != new.number("active"),
            complete: turns("Complete"),
            completed_indexes: old.status.field("completedIndexes").text()
                != new.status.field("completedIndexes").text(),
            completion_time: time("completionTime"),
            failed: turns("Failed"),
            failed_indexes: differs("failedIndexes"),
            failure_target: turns("FailureTarget"),
            finished: old.is_finished() != new.is_finished(),
            ready: differs("ready"),
            start_time: time("startTime"),
            success_criteria_met: turns("SuccessCriteriaMet"),
            terminating: differs("terminating"),
            uncounted: differs("uncountedTerminatedPods"),
        }
    }
}

/// Checks that a text such as `0,2-4` names indexes in order that are below a number.
fn check(text: &str, completions: i64) -> Result<(), String> {
    let mut last = None::<i64>;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, until) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        last = Some(until);
    }
    Ok(())
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 2 {
        return Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let index = |text: &str| {
        let number: i64 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let first = index(parts[0])?;
    let Some(until) = parts.get(1) else { return Ok((first, first)) };
    let until = index(until)?;
    if first >= until {
        return Err(format!("non-increasing order, previous: {first}, current: {until}"));
    }
    Ok((first, until))
}

/// The first index that is in both texts. Invalid parts are skipped: they are reported elsewhere.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let (mut at, mut of) = (0, 0);
    while let (Some(one), Some(other)) = (completed.get(at), failed.get(of)) {
        if one.0 <= other.1 && other.0 <= one.1 {
            return Some(one.0.max(other.0));
        }
        if one.0 <= other.0 { at += 1 } else { of += 1 }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,\\-+ a]{0,24}", other in "[0-9,\\-]{0,24}", completions in -1_i64..40) {
            let _ = check(&text, completions);
            let _ = overlap(&text, &other, completions);
        }

        #[test]
        fn indexes_overlap_where_both_name_one(ours in prop::collection::btree_set(0_i64..20, 0..8), theirs in prop::collection::btree_set(0_i64..20, 0..8)) {
            let print = |set: &BTreeSet<i64>| set.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(check(&print(&ours), 20), Ok(()));
            prop_assert_eq!(overlap(&print(&ours), &print(&theirs), 20), ours.intersection(&theirs).next().copied());
        }
    }
}
