//! When a CronJob starts a Job, and the Events about it.

use super::*;
use crate::loops::workloads::cron_job::schedule;
use serde_json::{Value, json};

const CREATED: &str = "2026-01-01T00:00:00Z";

fn cron_job(schedule: &str, spec: Value) -> CronJob {
    let mut whole = json!({"schedule": schedule, "jobTemplate": {}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({"metadata": {"name": "c", "namespace": "n", "creationTimestamp": CREATED}, "spec": whole});
    serde_json::from_value(object).unwrap()
}

/// Checks the reasons of the Events, the scheduled time of the started Job, and the wait in seconds.
#[track_caller]
fn check(cron_job: &CronJob, status: Value, now: &str, want: (&[&str], Option<&str>, Option<f64>)) {
    let status: CronJobStatus = serde_json::from_value(status).unwrap();
    let times = Schedule::parse(&cron_job.spec.schedule, schedule::zone("").unwrap()).unwrap();
    let decision = decide(cron_job, &status, Times { schedule: &times, changed: None }, now.parse().unwrap());
    let reasons: Vec<&str> = decision.notes.iter().map(|note| note.reason).collect();
    let start = decision.start.map(|time| time.to_string());
    let wait = decision.wait.map(|wait| wait.as_secs_f64());
    assert_eq!((&*reasons, start.as_deref(), wait), want);
}

#[test]
fn a_job_is_started_for_the_last_time_that_has_passed() {
    let hourly = cron_job("0 * * * *", json!({}));
    check(&hourly, json!({}), "2026-01-01T00:59:30Z", (&[], None, Some(30.1)));
    check(&hourly, json!({}), "2026-01-01T01:00:00.1Z", (&[], Some("2026-01-01T01:00:00Z"), Some(3600.0)));
    check(&hourly, json!({}), "2026-01-01T05:30:00Z", (&[], Some("2026-01-01T05:00:00Z"), Some(1800.1)));
    let last = json!({"lastScheduleTime": "2026-01-01T05:00:00Z"});
    check(&hourly, last, "2026-01-01T05:30:00Z", (&[], None, Some(1800.1)));
}

#[test]
fn a_job_that_is_listed_is_not_started_again() {
    let hourly = cron_job("0 * * * *", json!({}));
    let minute = "2026-01-01T01:00:00Z".parse::<Timestamp>().unwrap().as_second() / 60;
    let active = json!({"active": [{"name": format!("c-{minute}"), "namespace": "n", "uid": "u"}]});
    check(&hourly, active, "2026-01-01T01:00:01Z", (&[], None, Some(3599.1)));
}

#[test]
fn more_than_a_hundred_missed_times_are_warned_of_and_the_last_counts() {
    let minutely = cron_job("* * * * *", json!({}));
    let want: (&[&str], _, _) = (&["TooManyMissedTimes"], Some("2026-01-03T12:00:00Z"), Some(60.1));
    check(&minutely, json!({}), "2026-01-03T12:00:00Z", want);
    // With a deadline, only the times within it count.
    let minutely = cron_job("* * * * *", json!({"startingDeadlineSeconds": 300}));
    check(&minutely, json!({}), "2026-01-03T12:00:00Z", (&[], Some("2026-01-03T12:00:00Z"), Some(60.1)));
}

#[test]
fn a_time_before_the_deadline_is_missed() {
    let daily = cron_job("@daily", json!({"startingDeadlineSeconds": 10}));
    // Without a deadline, midnight would count all day.
    check(&daily, json!({}), "2026-01-02T08:00:00Z", (&[], None, Some(57600.1)));
    let absurd = cron_job("@daily", json!({"startingDeadlineSeconds": i64::MAX}));
    check(&absurd, json!({}), "2026-01-02T08:00:00Z", (&[], Some("2026-01-02T00:00:00Z"), Some(57600.1)));
    let negative = cron_job("@daily", json!({"startingDeadlineSeconds": i64::MIN}));
    let _ = decide(
        &negative,
        &CronJobStatus::default(),
        Times { schedule: &Schedule::parse("@daily", jiff::tz::TimeZone::UTC).unwrap(), changed: None },
        Timestamp::MAX,
    );
}

#[test]
fn forbid_waits_for_the_job_that_runs() {
    let forbid = cron_job("0 * * * *", json!({"concurrencyPolicy": "Forbid"}));
    let active = json!({"active": [{"name": "other", "namespace": "n", "uid": "u"}]});
    check(&forbid, active.clone(), "2026-01-01T01:00:00Z", (&["JobAlreadyActive"], None, Some(3600.1)));
    let replace = cron_job("0 * * * *", json!({"concurrencyPolicy": "Replace"}));
    check(&replace, active, "2026-01-01T01:00:00Z", (&[], Some("2026-01-01T01:00:00Z"), Some(3600.1)));
}

#[test]
fn a_schedule_without_times_is_said_to_be_invalid() {
    check(&cron_job("0 0 31 2 *", json!({})), json!({}), "2026-06-01T00:00:00Z", (&["InvalidSchedule"], None, None));
}

#[test]
fn irregular_times_far_in_the_past_are_found_in_few_steps() {
    let dense = cron_job("* * * 1 *", json!({}));
    let last = json!({"lastScheduleTime": "2026-01-31T23:58:00Z"});
    let status: CronJobStatus = serde_json::from_value(last).unwrap();
    let times = Schedule::parse("* * * 1 *", jiff::tz::TimeZone::UTC).unwrap();
    let decision =
        decide(&dense, &status, Times { schedule: &times, changed: None }, "2045-06-01T00:00:00Z".parse().unwrap());
    assert_eq!(decision.start.map(|time| time.to_string()).as_deref(), Some("2045-01-31T23:59:00Z"));
}

fn job(name: &str, type_: Option<&str>, started: Option<&str>) -> Arc<Job> {
    let conditions: Vec<Value> = type_.iter().map(|type_| json!({"type": type_, "status": "True"})).collect();
    let status = json!({"conditions": conditions, "startTime": started, "completionTime": started});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "status": status})).unwrap())
}

#[test]
fn the_oldest_finished_jobs_are_more_than_the_history_holds() {
    let cron_job = cron_job("@daily", json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}));
    let jobs = [
        job("new", Some("Complete"), Some("2026-01-03T00:00:00Z")),
        job("old", Some("Complete"), Some("2026-01-01T00:00:00Z")),
        job("unstarted", Some("Complete"), None),
        job("bad", Some("Failed"), Some("2026-01-04T00:00:00Z")),
        job("runs", None, Some("2026-01-01T00:00:00Z")),
    ];
    let names: Vec<String> = surplus(&cron_job, &jobs).iter().map(|job| job.name_any()).collect();
    assert_eq!(names, ["old", "new", "bad"]);
}

#[test]
fn a_finished_job_leaves_the_list_and_the_last_success_is_kept() {
    let list = json!({"active": [{"name": "a", "uid": "a"}, {"name": "gone", "uid": "gone"}], "lastSuccessfulTime": "2026-01-02T00:00:00Z"});
    let mut status: CronJobStatus = serde_json::from_value(list).unwrap();
    let jobs = [
        job("a", Some("Failed"), Some("2026-01-05T00:00:00Z")),
        job("b", Some("Complete"), Some("2026-01-03T00:00:00Z")),
        job("c", None, None),
    ];
    assert_eq!(unexpected(&status, &jobs).iter().map(|job| job.name_any()).collect::<Vec<_>>(), ["c"]);
    let notes = note_finished(&mut status, &jobs);
    assert_eq!(notes, [Note::normal("SawCompletedJob", "Saw completed job: a, condition: Failed")]);
    assert_eq!(status.last_successful_time.as_ref().unwrap().0.to_string(), "2026-01-03T00:00:00Z");
    assert_eq!(missing(&status, &jobs).iter().map(|active| active.name.clone().unwrap()).collect::<Vec<_>>(), ["gone"]);
    remove_active(&mut status, Some("gone"));
    assert_eq!(status.active, None);
}

#[test]
fn times_before_a_change_of_the_schedule_do_not_count() {
    let hourly = cron_job("0 * * * *", json!({}));
    let schedule = Schedule::parse("0 * * * *", jiff::tz::TimeZone::UTC).unwrap();
    let start = |changed: &str| {
        let times = Times { schedule: &schedule, changed: changed.parse().ok() };
        let decision = decide(&hourly, &CronJobStatus::default(), times, "2026-01-01T05:30:00Z".parse().unwrap());
        (decision.start.map(|time| time.to_string()), decision.wait.map(|wait| wait.as_secs()))
    };
    assert_eq!(start("2026-01-01T05:30:00Z"), (None, Some(1800)));
    assert_eq!(start("2026-01-01T05:00:00Z"), (None, Some(1800)));
    assert_eq!(start("2026-01-01T04:59:00Z"), (Some("2026-01-01T05:00:00Z".to_owned()), Some(1800)));
}
