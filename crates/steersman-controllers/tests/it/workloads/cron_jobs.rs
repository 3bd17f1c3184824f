//! CronJobs at their scheduled times, on a whole control plane with paused time.

use crate::support::moved;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops};

async fn create(plane: &ControlPlane, name: &str, spec: Value) {
    let template =
        json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let mut whole = json!({"jobTemplate": {"metadata": {"labels": {"of": name}}, "spec": template}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({"kind": "CronJob", "apiVersion": "batch/v1", "metadata": {"name": name, "namespace": "default"}, "spec": whole});
    plane.apply(&object.to_string()).await;
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// The name of the Job for a scheduled time.
fn name_at(cron_job: &str, time: &str) -> String {
    format!("{cron_job}-{}", time.parse::<jiff::Timestamp>().unwrap().as_second() / 60)
}

async fn names(plane: &ControlPlane) -> Vec<String> {
    let jobs = Api::<Job>::namespaced(plane.client(), "default").list(&ListParams::default()).await.unwrap();
    jobs.items.iter().map(|job| job.name_any()).collect()
}

async fn merge(plane: &ControlPlane, name: &str, change: Value) {
    let api = Api::<CronJob>::namespaced(plane.client(), "default");
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn until_event(plane: &ControlPlane, of: &str, reason: &str) -> String {
    crate::support::events::until(plane, of, reason).await.message.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_job_is_started_at_each_minute_and_named_after_it() {
    let plane = moved::plane(Loops::only(["cronjob"])).await;
    create(&plane, "c", json!({"schedule": "* * * * *", "timeZone": "Asia/Tokyo"})).await;
    let first = name_at("c", "2026-03-01T00:01:00Z");
    let job: Job = plane.until(&key(&first), |_| true).await;
    assert_eq!(job.annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"], "2026-03-01T09:01:00+09:00");
    assert_eq!(job.labels()["of"], "c");
    let owner = &job.owner_references()[0];
    assert_eq!(
        (&*owner.kind, &*owner.name, owner.controller, owner.block_owner_deletion),
        ("CronJob", "c", Some(true), Some(true))
    );
    let second = name_at("c", "2026-03-01T00:02:00Z");
    plane.until(&key(&second), |_: &Job| true).await;
    let cron_job: CronJob = plane
        .until(&key("c"), |one: &CronJob| {
            one.status.as_ref().is_some_and(|status| status.active.as_ref().is_some_and(|active| active.len() == 2))
        })
        .await;
    let status = cron_job.status.unwrap();
    assert_eq!(status.last_schedule_time.unwrap().0.to_string(), "2026-03-01T00:02:00Z");
    let active: Vec<String> = status.active.unwrap().into_iter().map(|one| one.name.unwrap()).collect();
    assert_eq!(active, [first, second]);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_schedule_does_not_make_up_for_times_that_have_passed() {
    let plane = moved::plane(Loops::only(["cronjob"])).await;
    create(&plane, "c", json!({"schedule": "0 6 * * *"})).await;
    create(&plane, "clock", json!({"schedule": "0 4 * * *"})).await;
    plane.until(&key(&name_at("clock", "2026-03-01T04:00:00Z")), |_: &Job| true).await;
    // Three in the morning has passed since the CronJob was created, so that time must not count.
    merge(&plane, "c", json!({"spec": {"schedule": "0 3,5 * * *"}})).await;
    // Neither must it count after another change of the CronJob.
    merge(&plane, "c", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    plane.until(&key(&name_at("c", "2026-03-01T05:00:00Z")), |_: &Job| true).await;
    assert!(!names(&plane).await.contains(&name_at("c", "2026-03-01T03:00:00Z")));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_suspended_or_has_no_schedule_starts_nothing() {
    let plane = moved::plane(Loops::only(["cronjob"])).await;
    create(&plane, "susp", json!({"schedule": "* * * * *", "suspend": true})).await;
    create(&plane, "never", json!({"schedule": "0 0 31 2 *"})).await;
    create(&plane, "clock", json!({"schedule": "0 1 * * *"})).await;
    let clock = name_at("clock", "2026-03-01T01:00:00Z");
    plane.until(&key(&clock), |_: &Job| true).await;
    assert_eq!(names(&plane).await, [clock]);
    let note = until_event(&plane, "never", "InvalidSchedule").await;
    assert_eq!(note, "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second");
    // After resuming, the last time that has passed counts.
    merge(&plane, "susp", json!({"spec": {"suspend": false}})).await;
    plane.until(&key(&name_at("susp", "2026-03-01T01:00:00Z")), |_: &Job| true).await;
    assert!(until_event(&plane, "susp", "SuccessfulCreate").await.starts_with("Created job susp-"));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replace_deletes_the_job_that_runs_and_forbid_waits_for_it() {
    let plane = moved::plane(Loops::only(["cronjob"])).await;
    create(&plane, "forbid", json!({"schedule": "* * * * *", "concurrencyPolicy": "Forbid"})).await;
    create(&plane, "repl", json!({"schedule": "* * * * *", "concurrencyPolicy": "Replace"})).await;
    let (first, second) = (name_at("repl", "2026-03-01T00:01:00Z"), name_at("repl", "2026-03-01T00:02:00Z"));
    plane.until(&key(&first), |_: &Job| true).await;
    plane.until(&key(&second), |_: &Job| true).await;
    plane.until_gone::<Job>(&key(&first)).await;
    let note = until_event(&plane, "forbid", "JobAlreadyActive").await;
    assert_eq!(note, "Not starting job because prior execution is running and concurrency policy is Forbid");
    let of_forbid: Vec<String> = names(&plane).await.into_iter().filter(|name| name.starts_with("forbid")).collect();
    assert_eq!(of_forbid, [name_at("forbid", "2026-03-01T00:01:00Z")]);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_succeeds_is_noted_and_the_history_is_kept_short() {
    let plane = moved::plane(Loops::only(["cronjob", "job"])).await;
    create(&plane, "c", json!({"schedule": "* * * * *", "successfulJobsHistoryLimit": 1})).await;
    let jobs = Api::<Job>::namespaced(plane.client(), "default");
    let (first, second) = (name_at("c", "2026-03-01T00:01:00Z"), name_at("c", "2026-03-01T00:02:00Z"));
    for name in [&first, &second] {
        plane.until(&key(name), |job: &Job| job.status.as_ref().is_some_and(|status| status.active == Some(1))).await;
        crate::workloads::jobs::end(&plane, name, 1, "Succeeded").await;
    }
    plane.until_gone::<Job>(&key(&first)).await;
    let is_noted = |one: &CronJob| one.status.as_ref().is_some_and(|status| status.last_successful_time.is_some());
    plane.until(&key("c"), is_noted).await;
    assert!(jobs.get_opt(&second).await.unwrap().is_some());
    let note = until_event(&plane, "c", "SawCompletedJob").await;
    assert_eq!(note, format!("Saw completed job: {first}, condition: Complete"));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_deletion_is_denied_as_a_conflict_is_deleted_later() {
    let plane = moved::plane(Loops::only(["cronjob"])).await;
    plane.fail_next_where(1, Fault::Refused(409), |method, path| {
        *method == http::Method::DELETE && path.contains("/jobs/")
    });
    create(&plane, "repl", json!({"schedule": "* * * * *", "concurrencyPolicy": "Replace"})).await;
    let (first, third) = (name_at("repl", "2026-03-01T00:01:00Z"), name_at("repl", "2026-03-01T00:03:00Z"));
    plane.until(&key(&first), |_: &Job| true).await;
    plane.until_gone::<Job>(&key(&first)).await;
    plane.until(&key(&third), |_: &Job| true).await;
    assert_eq!(plane.n_faults_left(), 0);
    plane.stop().await;
}
