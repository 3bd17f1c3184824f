//! CronJob: begins a job at certain times.

use crate::builtin::batch::{job, schedule};
use crate::builtin::cells::{self, NONE};
use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::place::Place;
use crate::builtin::pod::defaults::unless_set;
use crate::builtin::{age, pod, rules};
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, str_at};
use steersman_machinery::{Value, name};

/// Jobs are named after it, with the time behind.
const NAME_LENGTH_MAX: usize = 52;

pub(crate) const KIND: Kind = Kind {
    group: "batch",
    kind: "CronJob",
    plural: "cronjobs",
    singular: "cronjob",
    short_names: &["cj"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.batch.v1.CronJob",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Schedule", "When it begins jobs."),
            Column::text("Timezone", "Whose clock it goes by."),
            Column::text("Suspend", "Whether it begins none for now."),
            Column::integer("Active", "How many of its jobs run."),
            Column::text("Last Schedule", "The time since it last began one."),
            Column::AGE,
            Column::text("Containers", "The names of the template's containers.").wide(),
            Column::text("Images", "The images of the template's containers.").wide(),
            Column::text("Selector", "Which pods are its own.").wide(),
        ],
        cells,
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    name_faults: |name| {
        let mut faults = name::dns1123_subdomain(name);
        if name.len() > NAME_LENGTH_MAX {
            faults.push(format!("must be no more than {NAME_LENGTH_MAX} characters"));
        }
        faults
    },
    validate_create: validate,
    validate_update: validate,
    ..Kind::NAMESPACED
};

fn default(cron_job: &mut Value) {
    if let Some(spec) = object_at(cron_job, &["spec"]) {
        unless_set(spec, "concurrencyPolicy", "Allow");
        unless_set(spec, "suspend", false);
        unless_set(spec, "successfulJobsHistoryLimit", 3);
        unless_set(spec, "failedJobsHistoryLimit", 1);
    }
    pod::defaults::spec(cron_job, &["spec", "jobTemplate", "spec", "template", "spec"]);
}

fn validate(request: &Request<'_>, faults: &mut Vec<Error>) {
    let spec = Place::root(request.new).field("spec");
    let schedule = spec.field("schedule");
    if schedule.is_empty() {
        faults.push(schedule.required(""));
    } else if let Err(fault) = schedule::check(schedule.text()) {
        faults.push(schedule.invalid(fault));
    }
    let zone = spec.field("timeZone");
    if zone.is_present() {
        if zone.is_empty() {
            faults.push(zone.invalid("timeZone must be nil or non-empty string"));
        } else if zone.text().eq_ignore_ascii_case("local") {
            faults.push(
                zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"),
            );
        }
        if schedule.text().contains("TZ") {
            faults.push(schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
        }
    }
    rules::one_of(&spec.field("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], faults);
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        rules::not_negative(&spec.field(field), faults);
    }
    job::validate_spec(&spec.at(&["jobTemplate", "spec"]), faults);
}

fn cells(cron_job: &Value, now: Timestamp) -> Vec<Value> {
    let template = at(cron_job, &["spec", "jobTemplate", "spec"]).unwrap_or(&Value::Null);
    let (names, images) = cells::containers(at(template, &["template", "spec"]));
    let is_suspended = at(cron_job, &["spec", "suspend"]) == Some(&Value::Bool(true));
    let last = at(cron_job, &["status", "lastScheduleTime"]).filter(|time| time.is_string());
    let selector = crate::builtin::selector::text(at(template, &["selector"]).unwrap_or(&Value::Null));
    vec![
        cells::name(cron_job),
        cells::text(cron_job, &["spec", "schedule"]),
        Value::from(str_at(cron_job, &["spec", "timeZone"]).unwrap_or(NONE)),
        Value::from(if is_suspended { "True" } else { "False" }),
        cells::count(cron_job, &[&["status", "active"]]),
        Value::from(last.map_or_else(|| NONE.to_owned(), |time| age::since(time, now))),
        cells::age(cron_job, now),
        names,
        images,
        Value::from(selector),
    ]
}
