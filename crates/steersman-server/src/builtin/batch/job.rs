//! Job: pods that run until so many have done their work.

use crate::builtin::kind::{Column, Field, Kind, RULES, Request, Version};
use crate::builtin::place::Place;
use crate::builtin::pod::defaults::unless_set;
use crate::builtin::{age, cells, pod, rules, selector, workload};
use crate::strategy::{Propagation, Rules};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at};

/// By which a job knows its pods.
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

pub(crate) const KIND: Kind = Kind {
    group: "batch",
    kind: "Job",
    plural: "jobs",
    singular: "job",
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.batch.v1.Job",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Status", "What it is doing, or how it ended."),
            Column::text("Completions", "How many pods have done their work, of how many."),
            Column::text("Duration", "How long it took, or has taken."),
            Column::AGE,
            Column::text("Containers", "The names of the template's containers.").wide(),
            Column::text("Images", "The images of the template's containers.").wide(),
            Column::text("Selector", "Which pods are its own.").wide(),
        ],
        cells,
        fields: &[Field::new("status.successful", ".status.succeeded").or("0")],
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    rules: Rules { propagation: Propagation::Orphan, ..RULES },
    prepare_create,
    validate_create: |request, faults| validate(&Place::root(request.new), faults),
    validate_update,
    ..Kind::NAMESPACED
};

fn default(job: &mut Value) {
    if let Some(spec) = object_at(job, &["spec"]) {
        if spec.get("completions").is_none_or(Value::is_null) && spec.get("parallelism").is_none_or(Value::is_null) {
            unless_set(spec, "completions", 1);
        }
        unless_set(spec, "parallelism", 1);
        let is_per_index = spec.get("backoffLimitPerIndex").is_some_and(Value::is_number);
        unless_set(spec, "backoffLimit", if is_per_index { i32::MAX } else { 6 });
        unless_set(spec, "completionMode", "NonIndexed");
        unless_set(spec, "suspend", false);
        let has_failure_policy = spec.get("podFailurePolicy").is_some_and(Value::is_object);
        unless_set(spec, "podReplacementPolicy", if has_failure_policy { "Failed" } else { "TerminatingOrFailed" });
    }
    pod::defaults::spec(job, &["spec", "template", "spec"]);
}

/// Unless the client takes it upon himself, a job's pods are labelled with its uid and selected by it.
fn prepare_create(job: &mut Value) {
    if at(job, &["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        return;
    }
    let uid = str_at(job, &["metadata", "uid"]).unwrap_or_default().to_owned();
    let name = str_at(job, &["metadata", "name"]).unwrap_or_default().to_owned();
    if let Some(labels) = object_at(job, &["spec", "template", "metadata", "labels"]) {
        for (key, value) in [("controller-uid", &uid), (UID_LABEL, &uid)] {
            labels.insert(key.to_owned(), json!(value));
        }
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.insert(key.to_owned(), json!(name));
        }
    }
    if let Some(labels) = object_at(job, &["spec", "selector", "matchLabels"]) {
        labels.entry(UID_LABEL).or_insert(json!(uid));
    }
    let has_labels = at(job, &["metadata", "labels"]).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if !has_labels {
        let labels = at(job, &["spec", "template", "metadata", "labels"]).cloned().unwrap_or(json!({}));
        set_at(job, &["metadata", "labels"], labels);
    }
}

fn validate(job: &Place<'_>, faults: &mut Vec<Error>) {
    let spec = job.field("spec");
    validate_spec(&spec, faults);
    let wanted = spec.field("selector");
    if wanted.is_absent() {
        faults.push(wanted.required(""));
        return;
    }
    selector::validate(&wanted, faults);
    let labels = spec.at(&["template", "metadata", "labels"]);
    if selector::parse(wanted.value).is_some_and(|wanted| !selector::matches(&wanted, labels.value)) {
        faults.push(labels.invalid("`selector` does not match template `labels`"));
    }
}

/// The rules that a job and the template of one share.
pub(crate) fn validate_spec(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let amounts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    amounts.iter().for_each(|field| rules::not_negative(&spec.field(field), faults));
    let mode = spec.field("completionMode");
    rules::one_of_if_present(&mode, &["Indexed", "NonIndexed"], faults);
    if mode.text() == "Indexed" && spec.field("completions").is_absent() {
        faults.push(spec.field("completions").required("when completion mode is Indexed"));
    }
    rules::one_of_if_present(&spec.field("podReplacementPolicy"), &["Failed", "TerminatingOrFailed"], faults);
    pod::spec::validate_template(&spec.field("template"), faults);
    let policy = spec.at(&["template", "spec", "restartPolicy"]);
    if !["OnFailure", "Never"].contains(&policy.text()) {
        faults.push(policy.required(r#"valid values: "OnFailure", "Never""#));
    }
}

fn validate_update(request: &Request<'_>, faults: &mut Vec<Error>) {
    let (job, old) = (Place::root(request.new), Place::root(request.old));
    validate(&job, faults);
    let (spec, before) = (job.field("spec"), old.field("spec"));
    for field in ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"] {
        rules::immutable(&spec.field(field), &before.field(field), faults);
    }
    let (completions, completions_before) = (spec.field("completions"), before.field("completions"));
    let is_elastic = spec.field("completionMode").text() == "Indexed"
        && completions.value == spec.field("parallelism").value
        && completions.is_present()
        && completions_before.is_present();
    if !is_elastic {
        rules::immutable(&completions, &completions_before, faults);
    }
    let is_asleep = before.field("suspend").flag() && old.at(&["status", "startTime"]).is_absent();
    let template = spec.field("template");
    let is_same = if is_asleep {
        without_placement(template.value) == without_placement(before.field("template").value)
    } else {
        template.value == before.field("template").value
    };
    if !is_same {
        faults.push(template.invalid(rules::IMMUTABLE));
    }
}

/// A template without what says where its pods run, which may change while a job has not begun.
fn without_placement(template: &Value) -> Value {
    let mut template = template.clone();
    for path in [&["metadata", "labels"], &["metadata", "annotations"]] {
        remove_at(&mut template, path);
    }
    for field in ["affinity", "nodeSelector", "schedulingGates", "tolerations"] {
        remove_at(&mut template, &["spec", field]);
    }
    template
}

fn cells(job: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = cells::number(job, &["status", "succeeded"]);
    let parallelism = cells::number(job, &["spec", "parallelism"]);
    let completions = match at(job, &["spec", "completions"]).and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let [names, images] = workload::container_cells(job);
    vec![
        cells::name(job),
        Value::from(status(job)),
        Value::from(completions),
        Value::from(duration(job, now)),
        cells::age(job, now),
        names,
        images,
        workload::selector_cell(job),
    ]
}

fn status(job: &Value) -> &'static str {
    let holds = |kind: &str| {
        let conditions = at(job, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
        conditions
            .into_iter()
            .any(|one| str_at(one, &["type"]) == Some(kind) && str_at(one, &["status"]) == Some("True"))
    };
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if at(job, &["metadata", "deletionTimestamp"]).is_some() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| str_at(job, &["status", field])?.parse::<Timestamp>().ok();
    match time("startTime") {
        Some(start) => age::human(time("completionTime").unwrap_or(now).as_second() - start.as_second()),
        None => String::new(),
    }
}
