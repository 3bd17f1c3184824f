//! Plans the work on a CronJob from the times of its schedule and its Jobs: which Job to start, what to write into the
//! status, and when to reconcile again.
//!
//! The reconciler calls it with what it has read; nothing here makes requests. Follows upstream's `syncCronJob` and
//! `pkg/controller/cronjob/utils.go`.

use crate::loops::workloads::cron_job::schedule::Schedule;
use crate::loops::workloads::job;
use crate::shared::note::Note;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt as _;
use std::sync::Arc;
use std::time::Duration;

/// The delay of a Job's start after its scheduled time, so that a clock that is slightly behind does not miss it.
const DELTA: Duration = Duration::from_millis(100);
/// The number of missed times beyond which a warning is given.
const MISSED_MAX: i64 = 100;

/// The actions due now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Decision {
    pub(crate) notes: Vec<Note>,
    /// The time for which a Job is to be started now.
    pub(crate) start: Option<Timestamp>,
    /// When to reconcile again; `None` if only a change can be a reason to.
    pub(crate) wait: Option<Duration>,
}

/// The schedule of a CronJob.
#[derive(Clone, Copy)]
pub(crate) struct Times<'a> {
    pub(crate) schedule: &'a Schedule,
    /// When this schedule replaced another, if the change was observed: earlier times are not made up for.
    pub(crate) changed: Option<Timestamp>,
}

/// The scheduled times since the last one that counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Recent {
    since: Timestamp,
    last: Option<Timestamp>,
    missed: Missed,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Missed {
    None,
    Few,
    Many,
}

/// The schedule can be parsed but never occurs, such as the 31st of February.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("time difference between two schedules is less than 1 second")]
pub(crate) struct Unsatisfiable;

// === status ===

/// Whether the status lists a Job as active.
pub(crate) fn is_active(status: &CronJobStatus, uid: Option<&str>) -> bool {
    status.active.iter().flatten().any(|active| active.uid.as_deref() == uid)
}

pub(crate) fn remove_active(status: &mut CronJobStatus, uid: Option<&str>) {
    if let Some(active) = &mut status.active {
        active.retain(|one| one.uid.as_deref() != uid);
    }
    if status.active.as_ref().is_some_and(Vec::is_empty) {
        status.active = None;
    }
}

/// Unfinished Jobs that the status does not list.
pub(crate) fn unexpected<'a>(status: &CronJobStatus, jobs: &'a [Arc<Job>]) -> Vec<&'a Arc<Job>> {
    jobs.iter().filter(|job| job::finished(job).is_none() && !is_active(status, job.metadata.uid.as_deref())).collect()
}

/// Updates the status for finished Jobs: removes them, and sets the time of the last success. Returns the Events for
/// it.
pub(crate) fn note_finished(status: &mut CronJobStatus, jobs: &[Arc<Job>]) -> Vec<Note> {
    let mut notes = Vec::new();
    for job in jobs {
        let Some(condition) = job::finished(job) else { continue };
        let uid = job.metadata.uid.as_deref();
        if is_active(status, uid) {
            remove_active(status, uid);
            let note = format!("Saw completed job: {}, condition: {}", job.name_any(), condition.type_);
            notes.push(Note::normal("SawCompletedJob", note));
        }
        let completed = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
        let is_later = |time| status.last_successful_time.as_ref().is_none_or(|last| last < time);
        if job::is_complete(job)
            && let Some(completed) = completed.filter(|time| is_later(time))
        {
            status.last_successful_time = Some(completed.clone());
        }
    }
    notes
}

/// Jobs that the status lists and that do not exist.
pub(crate) fn missing(status: &CronJobStatus, jobs: &[Arc<Job>]) -> Vec<ObjectReference> {
    let is_there = |active: &ObjectReference| jobs.iter().any(|job| job.metadata.uid == active.uid);
    status.active.iter().flatten().filter(|active| !is_there(active)).cloned().collect()
}

/// Finished Jobs beyond the history limits, the oldest first.
pub(crate) fn surplus(cron_job: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let spec = &cron_job.spec;
    let mut surplus = Vec::new();
    for (type_, limit) in [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)]
    {
        let Some(limit) = limit else { continue };
        let is_of_type = |job: &&Arc<Job>| job::finished(job).is_some_and(|condition| condition.type_ == type_);
        let mut finished: Vec<Arc<Job>> = jobs.iter().filter(is_of_type).cloned().collect();
        let started = |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        finished.sort_by_key(|job| (started(job).is_none(), started(job), job.name_any()));
        let n_surplus = finished.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        surplus.extend(finished.into_iter().take(n_surplus).filter(|job| job.metadata.deletion_timestamp.is_none()));
    }
    surplus
}

/// The name of the Job for a scheduled time. It is always the same, so that a Job is created once.
pub(crate) fn job_name(cron_job: &CronJob, time: Timestamp) -> String {
    format!("{}-{}", cron_job.name_any(), time.as_second().div_euclid(60))
}

// === times ===

/// The actions due according to the schedule.
pub(crate) fn decide(cron_job: &CronJob, status: &CronJobStatus, times: Times<'_>, now: Timestamp) -> Decision {
    let mut decision = Decision { notes: Vec::new(), start: None, wait: None };
    let spec = &cron_job.spec;
    let deadline = spec.starting_deadline_seconds;
    let since = since(cron_job, status, times, now);
    let earliest = deadline.map(|seconds| {
        let span = SignedDuration::from_secs(seconds);
        now.checked_sub(span).unwrap_or(Timestamp::MIN)
    });
    let counted = earliest.map_or(since, |earliest| earliest.max(since));
    let time = match recent(counted, times.schedule, now) {
        Ok(recent) => recent.last.inspect(|_| {
            if recent.missed == Missed::Many {
                let note =
                    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                decision.notes.push(Note::warning("TooManyMissedTimes", note));
            }
        }),
        Err(error) => {
            let note = format!("invalid schedule: {} : {error}", spec.schedule);
            decision.notes.push(Note::warning("InvalidSchedule", note));
            return decision;
        }
    };
    decision.wait = next_wait(since, times.schedule, now);
    let Some(time) = time else { return decision };
    let latest = deadline.map(|seconds| SignedDuration::from_secs(time.as_second().saturating_add(seconds)));
    if latest.is_some_and(|latest| latest < now.as_duration()) {
        let time = time.strftime("%a, %d %b %Y %H:%M:%S +0000");
        decision.notes.push(Note::warning("MissSchedule", format!("Missed scheduled time to start a job: {time}")));
        return decision;
    }
    let name = job_name(cron_job, time);
    let is_listed = status.active.iter().flatten().any(|active| active.name.as_deref() == Some(&name));
    let is_last = status.last_schedule_time.as_ref().is_some_and(|last| last.0 == time);
    if is_listed || is_last {
        return decision;
    }
    let is_running = status.active.as_ref().is_some_and(|active| !active.is_empty());
    if spec.concurrency_policy.as_deref() == Some("Forbid") && is_running {
        let note = "Not starting job because prior execution is running and concurrency policy is Forbid";
        decision.notes.push(Note::normal("JobAlreadyActive", note));
        return decision;
    }
    decision.start = Some(time);
    decision
}

/// How long until the next time of the schedule.
fn next_wait(since: Timestamp, schedule: &Schedule, now: Timestamp) -> Option<Duration> {
    let from = match recent(since, schedule, now) {
        Ok(Recent { last: Some(last), .. }) => last,
        Ok(Recent { since, missed: Missed::None, .. }) => since,
        Ok(_) | Err(Unsatisfiable) => now,
    };
    let next = schedule.next(from)?;
    let left = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    Some(left.saturating_add(DELTA))
}

/// The start of the times that count: the last scheduled time, the creation, or the change of the schedule.
fn since(cron_job: &CronJob, status: &CronJobStatus, times: Times<'_>, now: Timestamp) -> Timestamp {
    let created = cron_job.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let since = status.last_schedule_time.as_ref().map_or(created, |time| time.0);
    times.changed.map_or(since, |changed| changed.max(since))
}

/// The last scheduled time up to `now`. The number of missed times is estimated from the first two.
fn recent(since: Timestamp, schedule: &Schedule, now: Timestamp) -> Result<Recent, Unsatisfiable> {
    let none = Recent { since, last: None, missed: Missed::None };
    let first = schedule.next(since).ok_or(Unsatisfiable)?;
    if now < first {
        return Ok(none);
    }
    let second = schedule.next(first).ok_or(Unsatisfiable)?;
    if now < second {
        return Ok(Recent { last: Some(first), ..none });
    }
    let interval = second.duration_since(first).as_secs();
    if interval < 1 {
        return Err(Unsatisfiable);
    }
    let n_missed = now.duration_since(first).as_secs() / interval + 1;
    let missed = match n_missed {
        ..=0 => Missed::None,
        1..=MISSED_MAX => Missed::Few,
        _ => Missed::Many,
    };
    // Times need not be equally spaced, so the search begins one interval early.
    let from = first.as_second().saturating_add((n_missed - 2).saturating_mul(interval));
    let from = Timestamp::from_second(from).map_err(|_| Unsatisfiable)?;
    let last =
        std::iter::successors(schedule.next(from), |time| schedule.next(*time)).take_while(|time| *time <= now).last();
    Ok(Recent { since, last, missed })
}

#[cfg(test)]
mod tests;
