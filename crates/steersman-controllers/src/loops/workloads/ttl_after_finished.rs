//! Deletes Jobs when `spec.ttlSecondsAfterFinished` has passed since they finished.
//!
//! Follows upstream's `pkg/controller/ttlafterfinished`: the Job is read from the server once more before it is
//! deleted, because its time to live may have changed. It is deleted in the foreground, so that its Pods are gone
//! before it is.

use crate::loops::workloads::job;
use crate::settings::Parts;
use crate::shared::refusal::{self, Error, Refused};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use std::time::Duration;
use steersman::cache::Change;
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};

/// The name of the loop in logs.
const NAME: &str = "ttl-after-finished-controller";

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    jobs: Lister<Job>,
}

/// When a Job may be deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expiry {
    In(Duration),
    Never,
    Now,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let jobs = manager.informers().informer::<Job>(Scope::All).lister();
    let context = Context { client, clock: settings.clock, jobs };
    let controller = Controller::<Job>::new(reconcile, context).name(NAME).when(|change| match change {
        Change::Added(job, _) | Change::Updated { new: job, .. } => is_wanted(job),
        Change::Deleted(_) | Change::Undecodable(_) => false,
    });
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(job) = cx.jobs.find(&key)? else { return Ok(Action::AwaitChange) };
    if let Some(action) = wait(expiry(&job, (cx.clock)())) {
        return Ok(action);
    }
    let api = Api::<Job>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    let job = api.get_opt(key.name()).await.map_err(Refused::to("read the job"))?;
    let Some(job) = job else { return Ok(Action::AwaitChange) };
    if let Some(action) = wait(expiry(&job, (cx.clock)())) {
        return Ok(action);
    }
    let preconditions = Preconditions { uid: job.uid(), resource_version: None };
    match api.delete(key.name(), &DeleteParams::foreground().preconditions(preconditions)).await {
        Ok(_) => tracing::info!(job = %key, "the job finished long enough ago and is deleted"),
        // Another Job of the same name has its own events.
        Err(error) if refusal::is_outdated(&error) => {}
        Err(error) => return Err(Refused::to("delete the job")(error).into()),
    }
    Ok(Action::AwaitChange)
}

fn wait(expiry: Expiry) -> Option<Action> {
    match expiry {
        Expiry::In(left) => Some(Action::RequeueAfter(left)),
        Expiry::Never => Some(Action::AwaitChange),
        Expiry::Now => None,
    }
}

/// Whether the Job has finished, has a time to live, and is not being deleted yet.
fn is_wanted(job: &Job) -> bool {
    let has_ttl = job.spec.as_ref().is_some_and(|spec| spec.ttl_seconds_after_finished.is_some());
    has_ttl && job.metadata.deletion_timestamp.is_none() && job::finished(job).is_some()
}

fn expiry(job: &Job, now: Timestamp) -> Expiry {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let finished = job::finished(job).and_then(|condition| condition.last_transition_time.as_ref());
    let (Some(ttl), Some(finished), true) = (ttl, finished, is_wanted(job)) else { return Expiry::Never };
    let end = SignedDuration::from_secs(finished.0.as_second().saturating_add(i64::from(ttl)));
    match Duration::try_from(end.saturating_sub(now.as_duration())) {
        Ok(Duration::ZERO) | Err(_) => Expiry::Now,
        Ok(left) => Expiry::In(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(ttl: Option<i32>, type_: &str, at: &str) -> Job {
        let condition = json!({"type": type_, "status": "True", "lastTransitionTime": at});
        let mut job: Job =
            serde_json::from_value(json!({"metadata": {"name": "j"}, "status": {"conditions": [condition]}})).unwrap();
        job.spec = Some(k8s_openapi::api::batch::v1::JobSpec { ttl_seconds_after_finished: ttl, ..Default::default() });
        job
    }

    #[track_caller]
    fn check(job: &Job, now: &str, want: Expiry) {
        assert_eq!(expiry(job, now.parse().unwrap()), want);
    }

    #[test]
    fn a_job_expires_when_its_time_has_passed_since_it_finished() {
        let done = |ttl| job(ttl, "Complete", "2026-01-01T00:00:00Z");
        check(&done(Some(10)), "2026-01-01T00:00:04.5Z", Expiry::In(Duration::from_millis(5500)));
        check(&done(Some(10)), "2026-01-01T00:00:10Z", Expiry::Now);
        check(&done(Some(0)), "2026-01-01T00:00:00Z", Expiry::Now);
        check(&done(Some(i32::MAX)), "2026-01-01T00:00:00Z", Expiry::In(Duration::from_secs(i32::MAX as u64)));
        check(&done(None), "2030-01-01T00:00:00Z", Expiry::Never);
        check(&job(Some(1), "Failed", "2026-01-01T00:00:00Z"), "2026-01-01T00:00:01Z", Expiry::Now);
        check(&job(Some(1), "FailureTarget", "2026-01-01T00:00:00Z"), "2026-01-01T00:00:09Z", Expiry::Never);
    }
}
