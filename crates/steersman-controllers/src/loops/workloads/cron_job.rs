//! Starts the Jobs of CronJobs at their scheduled times, tracks them in the status, and deletes those beyond the
//! history limits.
//!
//! Follows upstream's `pkg/controller/cronjob`. Nothing runs between two scheduled times: the key comes back when the
//! next one is due. `plan` decides, `schedule` computes the times, and this file sends the requests. Jobs are found by
//! the uid of their controller, not by its name as upstream.

mod changes;
mod plan;
mod schedule;

use crate::loops::workloads::cron_job::changes::Changes;
use crate::loops::workloads::cron_job::plan::Times;
use crate::loops::workloads::cron_job::schedule::Schedule;
use crate::settings::Parts;
use crate::shared::dependents::{self, Dependents};
use crate::shared::namespaces::Namespaces;
use crate::shared::note::Note;
use crate::shared::refusal::{self, Error, Refused};
use crate::shared::stale;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Resource as _;
use kube::{Api, Client, ResourceExt as _};
use std::time::Duration;
use steersman::consistency::ConsistencyStore;
use steersman::events::EventRecorder;
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};

/// The source of Events, and the name of the loop in logs.
const NAME: &str = "cronjob-controller";
const WORKERS: usize = 5;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

struct Context {
    changes: Changes,
    client: Client,
    clock: fn() -> Timestamp,
    cron_jobs: Lister<CronJob>,
    events: EventRecorder,
    jobs: Dependents<Job>,
    namespaces: Namespaces,
    written: ConsistencyStore,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let (cron_jobs, jobs) = {
        let informers = manager.informers();
        (informers.informer::<CronJob>(Scope::All), informers.informer::<Job>(Scope::All))
    };
    let context = Context {
        changes: Changes::default(),
        events: EventRecorder::new(client.clone(), NAME),
        client,
        clock: settings.clock,
        cron_jobs: cron_jobs.lister(),
        jobs: Dependents::of(&jobs),
        namespaces: Namespaces::of(manager.informers()),
        written: ConsistencyStore::new().covers(&cron_jobs.lister()).covers(&jobs.lister()),
    };
    let controller = Controller::of(&cron_jobs, reconcile, context).name(NAME).workers(WORKERS).owns::<Job>();
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    let Some(cron_job) = cx.cron_jobs.find(&key)? else {
        cx.changes.forget(&key);
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

/// One pass over a CronJob.
struct Pass<'a> {
    cron_job: &'a CronJob,
    cx: &'a Context,
    key: &'a ObjectKey,
}

impl Pass<'_> {
    /// Updates `status`, which is to be written afterwards even if an error is returned. Returns when to run again.
    async fn run(&self, status: &mut CronJobStatus) -> Result<Option<Duration>, Error> {
        let jobs = self.cx.jobs.controlled_by(self.cron_job.metadata.uid.as_deref().unwrap_or_default())?;
        for job in plan::surplus(self.cron_job, &jobs) {
            // An Event reports the failure; the next pass tries again.
            let _ = self.delete(&job, status).await;
        }
        self.warn_of_unexpected(status, &jobs).await?;
        self.record_all(&plan::note_finished(status, &jobs));
        for active in plan::missing(status, &jobs) {
            self.drop_if_missing(status, &active).await?;
        }
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let (spec, now) = (&self.cron_job.spec, (self.cx.clock)());
        let (changed, is_new) = self.cx.changes.last(self.key, self.cron_job, now);
        if let Some(name) = &spec.time_zone
            && let Err(error) = schedule::zone(name)
        {
            self.record(&Note::warning("UnknownTimeZone", format!("invalid timeZone: {name:?}: {error}")));
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
            self.record(&Note::warning("UnsupportedSchedule", note));
        }
        let schedule = match read_schedule(self.cron_job) {
            Ok(schedule) => schedule,
            Err(_) if is_new => {
                let note = format!("unparseable schedule for cronjob: {}", spec.schedule);
                self.record(&Note::warning("UnParseableCronJobSchedule", note));
                return Ok(None);
            }
            Err(error) => {
                let note = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                self.record(&Note::warning("UnparseableSchedule", note));
                return Ok(None);
            }
        };
        let decision = plan::decide(self.cron_job, status, Times { schedule: &schedule, changed }, now);
        self.record_all(&decision.notes);
        if let Some(time) = decision.start {
            if self.cx.namespaces.is_ending(&self.cron_job.metadata) {
                return Ok(None);
            }
            if spec.concurrency_policy.as_deref() == Some("Replace") {
                self.delete_active(status).await?;
            }
            self.start(status, time).await?;
        }
        Ok(decision.wait)
    }

    /// Warns of active Jobs that were not started for the CronJob. The status is read from the server first, because it
    /// may have changed since the cache was filled.
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
                self.record(&Note::warning("UnexpectedJob", note));
            }
        }
        Ok(())
    }

    /// Removes a Job from the list of active ones if the server does not have it either.
    async fn drop_if_missing(&self, status: &mut CronJobStatus, active: &ObjectReference) -> Result<(), Error> {
        let name = active.name.as_deref().unwrap_or_default();
        let found = if name.is_empty() {
            None
        } else {
            self.jobs().get_opt(name).await.map_err(Refused::to(format!("read the job {name:?}")))?
        };
        if found.is_none() {
            plan::remove_active(status, active.uid.as_deref());
            self.record(&Note::normal("MissingJob", format!("Active job went missing: {name}")));
        }
        Ok(())
    }

    /// Deletes the active Jobs, which the new Job replaces.
    async fn delete_active(&self, status: &mut CronJobStatus) -> Result<(), Error> {
        for active in status.active.clone().unwrap_or_default() {
            let name = active.name.as_deref().unwrap_or_default();
            match self.jobs().get(name).await {
                Ok(job) => self.delete(&job, status).await?,
                Err(error) => {
                    self.record(&Note::warning("FailedGet", format!("Get job: {}", refusal::message(&error))));
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
            Ok(_) => self.record(&Note::normal("SuccessfulDelete", format!("Deleted job {name}"))),
            Err(error) if refusal::is_gone(&error) => {}
            Err(error) => {
                self.record(&Note::warning("FailedDelete", format!("Deleted job: {}", refusal::message(&error))));
                return Err(Refused::to(format!("delete the job {name:?}"))(error).into());
            }
        }
        self.cx.written.deleted(self.key, job);
        plan::remove_active(status, job.metadata.uid.as_deref());
        Ok(())
    }

    /// Creates the Job for a scheduled time, or finds the one that an earlier pass created without recording it in the
    /// status.
    async fn start(&self, status: &mut CronJobStatus, time: Timestamp) -> Result<(), Error> {
        let wanted = self.job_for(time);
        let name = wanted.name_any();
        let job = match self.jobs().create(&PostParams::default(), &wanted).await {
            Ok(job) => {
                self.record(&Note::normal("SuccessfulCreate", format!("Created job {name}")));
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
                if refusal::is_namespace_ending(&error) {
                    return Ok(());
                }
                let note = format!("Error creating job: {}", refusal::message(&error));
                self.record(&Note::warning("FailedCreate", note));
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
        Job {
            metadata: ObjectMeta {
                annotations: Some(annotations),
                labels: described.labels,
                name: Some(plan::job_name(self.cron_job, time)),
                namespace: self.cron_job.metadata.namespace.clone(),
                owner_references: dependents::reference_to(self.cron_job).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: template.spec,
            status: None,
        }
    }

    fn record(&self, note: &Note) {
        note.record(&self.cx.events, self.cron_job);
    }

    fn record_all(&self, notes: &[Note]) {
        notes.iter().for_each(|note| self.record(note));
    }

    fn cron_jobs(&self) -> Api<CronJob> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }
}

/// The schedule in its time zone. An unknown time zone, which is reported elsewhere, counts as UTC.
fn read_schedule(cron_job: &CronJob) -> Result<Schedule, schedule::ParseError> {
    let name = cron_job.spec.time_zone.as_deref().unwrap_or_default();
    Schedule::parse(&cron_job.spec.schedule, schedule::zone(name).unwrap_or(jiff::tz::TimeZone::UTC))
}
