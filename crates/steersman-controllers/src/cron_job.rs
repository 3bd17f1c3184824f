//! Starts the Jobs of CronJobs at their times, follows them in the status, and deletes those that the history may not hold.
//!
//! Follows upstream's `pkg/controller/cronjob`. Between two times nothing runs: the key comes back when the next one is due. What
//! to do is decided in `plan`, and `schedule` knows the times; here are the requests. Jobs count by the uid of their controller,
//! not by its name as upstream.

mod plan;
mod schedule;

use crate::cron_job::plan::Say;
use crate::cron_job::schedule::Schedule;
use crate::dependents::{self, Dependents};
use crate::refusal::{self, Error, Refused};
use crate::settings::Parts;
use crate::stale;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Resource as _;
use kube::{Api, Client, ResourceExt as _};
use std::time::Duration;
use steersman::cache::Change;
use steersman::consistency::ConsistencyStore;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};

/// What the Events come from, and the name under which the loop appears in logs.
const NAME: &str = "cronjob-controller";
const WORKERS: usize = 5;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    cron_jobs: Lister<CronJob>,
    events: EventRecorder,
    jobs: Dependents<Job>,
    written: ConsistencyStore,
}

/// Puts the loop into a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let (cron_jobs, jobs) = {
        let informers = manager.informers();
        (informers.informer::<CronJob>(Scope::All), informers.informer::<Job>(Scope::All))
    };
    let (events, clock) = (EventRecorder::new(client.clone(), NAME), settings.clock);
    let context = Context {
        client,
        clock,
        cron_jobs: cron_jobs.lister(),
        events: events.clone(),
        jobs: Dependents::of(&jobs),
        written: ConsistencyStore::new().covers(&cron_jobs.lister()).covers(&jobs.lister()),
    };
    let controller = Controller::of(&cron_jobs, reconcile, context).name(NAME).workers(WORKERS).owns::<Job>();
    let queue = controller.queue();
    // A new schedule counts from now on: its times that have passed since the last Job are not made up for.
    let controller = controller.when(move |change| {
        let Change::Updated { old, new } = change else { return true };
        let Some(old) = old.object() else { return true };
        if !is_rescheduled(old, new) {
            return true;
        }
        match read_schedule(new) {
            Ok(schedule) => {
                let status = new.status.clone().unwrap_or_default();
                if let Some(wait) = plan::next_wait(new, &status, &schedule, clock()) {
                    queue.add_after(ObjectKey::of(&***new), wait);
                }
            }
            Err(_) => {
                let note = format!("unparseable schedule for cronjob: {}", new.spec.schedule);
                events.event(&***new, EventType::Warning, "UnParseableCronJobSchedule", &note);
            }
        }
        false
    });
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    let Some(cron_job) = cx.cron_jobs.find(&key)? else {
        cx.written.clear(&key);
        return Ok(Action::AwaitChange);
    };
    let pass = Pass { cron_job: &cron_job, cx, key: &key };
    let mut status = cron_job.status.clone().unwrap_or_default();
    let result = pass.run(&mut status).await;
    if status != cron_job.status.clone().unwrap_or_default() {
        let changed = CronJob { status: Some(status), ..(*cron_job).clone() };
        if let Some(written) = refusal::replace_status(&pass.cron_jobs(), &changed).await? {
            cx.written.wrote_at(&key, &written);
        }
    }
    result.map(|wait| wait.map_or(Action::AwaitChange, Action::RequeueAfter))
}

/// One look at a CronJob.
struct Pass<'a> {
    cron_job: &'a CronJob,
    cx: &'a Context,
    key: &'a ObjectKey,
}

impl Pass<'_> {
    /// What is in `status` after this is to be written, also after an error. Returns when to look again.
    async fn run(&self, status: &mut CronJobStatus) -> Result<Option<Duration>, Error> {
        let jobs = self.cx.jobs.controlled_by(self.cron_job.metadata.uid.as_deref().unwrap_or_default())?;
        for job in plan::surplus(self.cron_job, &jobs) {
            // An Event says what failed; the next pass tries again.
            let _ = self.delete(&job, status).await;
        }
        self.warn_of_unexpected(status, &jobs).await?;
        self.say_all(plan::note_finished(status, &jobs));
        for active in plan::missing(status, &jobs) {
            self.drop_if_missing(status, &active).await?;
        }
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let spec = &self.cron_job.spec;
        if let Some(name) = &spec.time_zone
            && let Err(error) = schedule::zone(name)
        {
            self.say(Say::warning("UnknownTimeZone", format!("invalid timeZone: {name:?}: {error}")));
            return Ok(None);
        }
        if spec.suspend == Some(true) {
            return Ok(None);
        }
        if spec.schedule.contains("TZ") {
            let note = format!(
                "CRON_TZ or TZ used in schedule {:?} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
                spec.schedule
            );
            self.say(Say::warning("UnsupportedSchedule", note));
        }
        let schedule = match read_schedule(self.cron_job) {
            Ok(schedule) => schedule,
            Err(error) => {
                let note = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                self.say(Say::warning("UnparseableSchedule", note));
                return Ok(None);
            }
        };
        let decision = plan::decide(self.cron_job, status, &schedule, (self.cx.clock)());
        self.say_all(decision.says);
        if let Some(time) = decision.start {
            if spec.concurrency_policy.as_deref() == Some("Replace") {
                self.delete_active(status).await?;
            }
            self.start(status, time).await?;
        }
        Ok(decision.wait)
    }

    /// Warns of Jobs that run and that nobody has started for the CronJob. The status may have changed since the cache was filled.
    async fn warn_of_unexpected(&self, status: &CronJobStatus, jobs: &[std::sync::Arc<Job>]) -> Result<(), Error> {
        let unexpected = plan::unexpected(status, jobs);
        if unexpected.is_empty() {
            return Ok(());
        }
        let now = self.cron_jobs().get_opt(self.key.name()).await.map_err(Refused::to("read the cron job"))?;
        let now = now.and_then(|now| now.status).unwrap_or_default();
        for job in unexpected {
            if !plan::is_active(&now, job.metadata.uid.as_deref()) {
                let note = format!("Saw a job that the controller did not create or forgot: {}", job.name_any());
                self.say(Say::warning("UnexpectedJob", note));
            }
        }
        Ok(())
    }

    /// Takes a Job out of the list of those that run if the server does not have it either.
    async fn drop_if_missing(&self, status: &mut CronJobStatus, active: &ObjectReference) -> Result<(), Error> {
        let name = active.name.as_deref().unwrap_or_default();
        let found = if name.is_empty() {
            None
        } else {
            self.jobs().get_opt(name).await.map_err(Refused::to(format!("read the job {name:?}")))?
        };
        if found.is_none() {
            plan::remove_active(status, active.uid.as_deref());
            self.say(Say::normal("MissingJob", format!("Active job went missing: {name}")));
        }
        Ok(())
    }

    /// Makes room for the Job that replaces those that run.
    async fn delete_active(&self, status: &mut CronJobStatus) -> Result<(), Error> {
        for active in status.active.clone().unwrap_or_default() {
            let name = active.name.as_deref().unwrap_or_default();
            match self.jobs().get(name).await {
                Ok(job) => self.delete(&job, status).await?,
                Err(error) => {
                    self.say(Say::warning("FailedGet", format!("Get job: {}", refusal::message(&error))));
                    return Err(Refused::to(format!("read the job {name:?}"))(error).into());
                }
            }
        }
        Ok(())
    }

    async fn delete(&self, job: &Job, status: &mut CronJobStatus) -> Result<(), Error> {
        let name = job.name_any();
        let preconditions = Preconditions { uid: job.uid(), resource_version: None };
        match self.jobs().delete(&name, &DeleteParams::background().preconditions(preconditions)).await {
            Ok(_) => self.say(Say::normal("SuccessfulDelete", format!("Deleted job {name}"))),
            Err(error) if refusal::is_outdated(&error) => {}
            Err(error) => {
                self.say(Say::warning("FailedDelete", format!("Deleted job: {}", refusal::message(&error))));
                return Err(Refused::to(format!("delete the job {name:?}"))(error).into());
            }
        }
        self.cx.written.deleted(self.key, job);
        plan::remove_active(status, job.metadata.uid.as_deref());
        Ok(())
    }

    /// Creates the Job for a time, or finds that an earlier pass did that and did not come to write it down.
    async fn start(&self, status: &mut CronJobStatus, time: Timestamp) -> Result<(), Error> {
        let wanted = self.job_for(time);
        let name = wanted.name_any();
        let job = match self.jobs().create(&PostParams::default(), &wanted).await {
            Ok(job) => {
                self.say(Say::normal("SuccessfulCreate", format!("Created job {name}")));
                job
            }
            Err(error) if refusal::exists_already(&error) => {
                let found = self.jobs().get_opt(&name).await.map_err(Refused::to(format!("read the job {name:?}")))?;
                let is_own = |job: &Job| dependents::is_controlled_by(job, self.cron_job.metadata.uid.as_deref());
                let Some(job) = found.filter(is_own) else { return Ok(()) };
                if plan::is_active(status, job.metadata.uid.as_deref()) {
                    return Ok(());
                }
                job
            }
            Err(error) => {
                if !refusal::is_namespace_ending(&error) {
                    let note = format!("Error creating job: {}", refusal::message(&error));
                    self.say(Say::warning("FailedCreate", note));
                }
                return Err(Refused::to(format!("create the job {name:?}"))(error).into());
            }
        };
        self.cx.written.wrote_at(self.key, &job);
        let mut reference = job.object_ref(&());
        reference.resource_version.clone_from(&job.metadata.resource_version);
        status.active.get_or_insert_default().push(reference);
        status.last_schedule_time = Some(Time(time));
        Ok(())
    }

    fn job_for(&self, time: Timestamp) -> Job {
        let spec = &self.cron_job.spec;
        let template = spec.job_template.clone();
        let described = template.metadata.unwrap_or_default();
        let zone = spec.time_zone.as_deref().and_then(|name| schedule::zone(name).ok());
        let shown = time.to_zoned(zone.unwrap_or(jiff::tz::TimeZone::UTC));
        let format = if shown.offset().is_zero() { "%FT%TZ" } else { "%FT%T%:z" };
        let mut annotations = described.annotations.unwrap_or_default();
        annotations.insert(SCHEDULED.to_owned(), shown.strftime(format).to_string());
        let owner = self.cron_job.controller_owner_ref(&());
        Job {
            metadata: ObjectMeta {
                annotations: Some(annotations),
                labels: described.labels,
                name: Some(plan::job_name(self.cron_job, time)),
                namespace: self.cron_job.metadata.namespace.clone(),
                owner_references: owner.map(|owner| vec![OwnerReference { block_owner_deletion: Some(true), ..owner }]),
                ..ObjectMeta::default()
            },
            spec: template.spec,
            status: None,
        }
    }

    fn say(&self, say: Say) {
        self.cx.events.event(self.cron_job, say.type_, say.reason, &say.note);
    }

    fn say_all(&self, says: Vec<Say>) {
        says.into_iter().for_each(|say| self.say(say));
    }

    fn cron_jobs(&self) -> Api<CronJob> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }
}

fn is_rescheduled(old: &CronJob, new: &CronJob) -> bool {
    old.spec.schedule != new.spec.schedule || old.spec.time_zone != new.spec.time_zone
}

/// The schedule in its time zone. Where that is unknown, which is said elsewhere, in UTC.
fn read_schedule(cron_job: &CronJob) -> Result<Schedule, schedule::ParseError> {
    let name = cron_job.spec.time_zone.as_deref().unwrap_or_default();
    Schedule::parse(&cron_job.spec.schedule, schedule::zone(name).unwrap_or(jiff::tz::TimeZone::UTC))
}
