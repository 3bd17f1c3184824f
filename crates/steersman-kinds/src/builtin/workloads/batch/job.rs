//! Job: runs pods until a number of them have completed.

use crate::builtin::kind::{Column, Kind, RULES, SelectableField, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules;
use crate::builtin::rules::age;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::builtin::workloads::batch::policy;
use crate::builtin::workloads::workload;
use crate::strategy::{Propagation, Rules};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::field::Error;
use steersman_machinery::time as times;
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at, unless_set};
use steersman_machinery::{Value, name};

pub(in crate::builtin) mod status;

/// The label by which a job selects its pods.
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// The completion mode in which every pod has an index.
pub const INDEXED: &str = "Indexed";

pub const KIND: Kind = Kind {
    group: "batch",
    kind: "Job",
    pod_spec: &["spec", "template", "spec"],
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
        fields: &[SelectableField::new("status.successful", ".status.succeeded").or("0")],
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    rules: Rules { propagation: Propagation::Orphan, warns_of_orphans: true, ..RULES },
    completed_for_owners: |job| {
        let has_labels = at(job, &["metadata", "labels"]).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        let mut labelled = (!has_labels).then(|| job.clone())?;
        label_like_template(&mut labelled).then_some(labelled)
    },
    adopt: |job| _ = label_like_template(job),
    prepare_create,
    prepare_update: |new, _| _ = label_like_template(new),
    warnings: |object, old| warnings::of_name(object, old, warnings::POD_NAMES),
    validate: &[
        Rule::new("", Check::Change(generated_selector)),
        Rule::new("spec", Check::Rules(SPEC)),
        Rule::new("spec.selector", Check::By(selector::validate)).and_present(""),
        Rule::new("spec", Check::By(selects_template)),
        Rule::new("", Check::By(pod_names)),
        Rule::new("spec.selector", Check::Immutable),
        Rule::new("spec.completionMode", Check::Immutable),
        Rule::new("spec.podFailurePolicy", Check::Immutable),
        Rule::new("spec.backoffLimitPerIndex", Check::Immutable),
        Rule::new("spec.managedBy", Check::Immutable),
        Rule::new("spec.successPolicy", Check::Immutable),
        Rule::new("spec", Check::Change(completions)).on_update(),
        Rule::new("", Check::Change(template)).on_update(),
    ],
    validate_status: &[Rule::new("", Check::Change(status::validate))],
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
        unless_set(spec, "manualSelector", false);
        let has_failure_policy = spec.get("podFailurePolicy").is_some_and(Value::is_object);
        unless_set(spec, "podReplacementPolicy", if has_failure_policy { "Failed" } else { "TerminatingOrFailed" });
    }
    default_conditions(job.pointer_mut("/spec/podFailurePolicy/rules"));
    pod::defaults::spec(job, &["spec", "template", "spec"]);
}

/// A condition of a Pod that the rules of a job's failures name holds, unless they say otherwise.
pub(super) fn default_conditions(rules: Option<&mut Value>) {
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        let conditions = rule.get_mut("onPodConditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            if condition.get("status").is_none_or(|status| status.is_null() || status == "") {
                condition.insert("status".to_owned(), json!("True"));
            }
        }
    }
}

/// Copies the labels of the template to a job without labels; called after the server has labeled the template. Returns
/// whether the job had none.
fn label_like_template(job: &mut Value) -> bool {
    let has_labels = at(job, &["metadata", "labels"]).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let labels = at(job, &["spec", "template", "metadata", "labels"]).filter(|labels| labels.is_object()).cloned();
    match labels.filter(|_| !has_labels) {
        Some(labels) => set_at(job, &["metadata", "labels"], labels),
        None => false,
    }
}

/// Labels the pods of a job with its uid and selects them by it, unless the client manages the selector.
fn prepare_create(job: &mut Value) {
    if at(job, &["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        label_like_template(job);
        return;
    }
    let uid = str_at(job, &["metadata", "uid"]).unwrap_or_default().to_owned();
    let name = str_at(job, &["metadata", "name"]).unwrap_or_default().to_owned();
    if let Some(labels) = object_at(job, &["spec", "template", "metadata", "labels"]) {
        for (key, value) in [("controller-uid", &uid), (UID_LABEL, &uid)] {
            labels.insert(key.to_owned(), json!(value));
        }
        for key in ["job-name", NAME_LABEL] {
            labels.insert(key.to_owned(), json!(name));
        }
    }
    if let Some(labels) = object_at(job, &["spec", "selector", "matchLabels"]) {
        labels.entry(UID_LABEL).or_insert(json!(uid));
    }
    label_like_template(job);
}

/// The longest name to which a pod's index can be appended.
const POD_NAME_LENGTH_MAX: usize = 63;

fn pod_names(job: &Field<'_>, errors: &mut Vec<Error>) {
    let (name, spec) = (job.at(&["metadata", "name"]), job.field("spec"));
    let completions = spec.field("completions").number().filter(|number| *number > 0);
    if let Some(completions) = completions.filter(|_| spec.field("completionMode").text() == INDEXED) {
        let pod = format!("{}-{}", name.text(), completions - 1);
        let wrong = name::dns1123_label(&pod);
        if pod.len() > POD_NAME_LENGTH_MAX || !wrong.is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {pod}");
            errors.push(name.invalid(why));
        }
    }
}

/// The selector and the labels that the server generates must not be changed.
fn generated_selector(change: &Change<'_>, errors: &mut Vec<Error>) {
    let (job, spec) = (&change.new, change.new.field("spec"));
    if spec.field("manualSelector").flag() || spec.field("selector").is_absent() {
        return;
    }
    let (uid, name) = (job.at(&["metadata", "uid"]).text(), job.at(&["metadata", "name"]).text());
    let labels = spec.at(&["template", "metadata", "labels"]);
    let mut expected = json!({"controller-uid": uid, "job-name": name});
    // A Job that was made without the newer labels goes on without them.
    let before = change.old.at(&["spec", "template", "metadata", "labels"]);
    if change.old.is_absent() || [UID_LABEL, NAME_LABEL].iter().all(|label| before.key(label).is_present()) {
        expected[UID_LABEL] = json!(uid);
        expected[NAME_LABEL] = json!(name);
    }
    for (key, value) in expected.as_object().into_iter().flatten() {
        let have = labels.key(key);
        let why = format!("must be '{}'", value.as_str().unwrap_or_default());
        if have.is_absent() {
            errors.push(have.required(&why));
        } else if have.value != value {
            errors.push(Error::invalid(&have.path, labels.value.clone(), why));
        }
    }
    let selector = spec.field("selector");
    let is_other = |wanted| !selector::matches(&wanted, &expected);
    if selector::is_valid(&selector) && selector::parse(selector.value).is_some_and(is_other) {
        errors.push(selector.invalid("`selector` not auto-generated"));
    }
}

fn selects_template(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let labels = spec.at(&["template", "metadata", "labels"]);
    let wanted = spec.field("selector");
    let is_other = |wanted| !selector::matches(&wanted, labels.value);
    // No selector selects nothing.
    let is_other =
        wanted.is_absent() || selector::is_valid(&wanted) && selector::parse(wanted.value).is_some_and(is_other);
    if is_other {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
}

/// The rules of a job and of a job template.
pub const SPEC: &[Rule] = &[
    Rule::new("parallelism", Check::NotNegative),
    Rule::new("completions", Check::NotNegative),
    Rule::new("activeDeadlineSeconds", Check::NotNegative),
    Rule::new("backoffLimit", Check::NotNegative),
    Rule::new("ttlSecondsAfterFinished", Check::NotNegative),
    Rule::new("backoffLimitPerIndex", Check::NotNegative),
    Rule::new("maxFailedIndexes", Check::NotNegative),
    Rule::new("", Check::By(limit_per_index)),
    Rule::new("managedBy", Check::By(rules::domain_prefixed_path)).if_present(),
    Rule::new("managedBy", Check::LengthMax(63)),
    Rule::new("completionMode", Check::OneOf(&["NonIndexed", INDEXED])).if_present(),
    Rule::new("", Check::By(completion_mode)),
    Rule::new("", Check::By(policy::failure)),
    Rule::new("", Check::By(policy::success)),
    Rule::new("", Check::By(pod_replacement)),
    Rule::new("template", Check::Rules(pod::spec::TEMPLATE)),
    Rule::new("", Check::By(restart_policy)),
];

fn limit_per_index(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let limit = spec.field("backoffLimitPerIndex");
    if spec.field("maxFailedIndexes").is_present() && limit.is_absent() {
        errors.push(limit.required("when maxFailedIndexes is specified"));
    }
}

fn completion_mode(spec: &Field<'_>, errors: &mut Vec<Error>) {
    match spec.field("completionMode").text() {
        INDEXED => indexed(spec, errors),
        "" | "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"].map(|field| spec.field(field)) {
                if field.is_present() {
                    errors.push(field.invalid("requires indexed completion mode"));
                }
            }
        }
        _ => {}
    }
}

fn pod_replacement(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let has_failure_policy = spec.field("podFailurePolicy").is_present();
    let replacements = if has_failure_policy { &["Failed"][..] } else { &["Failed", "TerminatingOrFailed"] };
    rules::one_of_if_present(&spec.field("podReplacementPolicy"), replacements, errors);
}

fn restart_policy(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = spec.at(&["template", "spec", "restartPolicy"]);
    match policy.text() {
        "Never" => {}
        "OnFailure" if spec.field("podFailurePolicy").is_present() => {
            errors.push(policy.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" => {}
        "" | "Always" => errors.push(policy.required(r#"valid values: "OnFailure", "Never""#)),
        _ => errors.push(policy.not_supported(&["OnFailure", "Never"])),
    }
}

/// Validates the size of an indexed job: its indexes must fit into the status.
fn indexed(spec: &Field<'_>, errors: &mut Vec<Error>) {
    const PODS_MAX: i64 = 100_000;
    const PODS_MAX_OF_MANY: i64 = 10_000;
    let (completions, parallelism) = (spec.field("completions"), spec.field("parallelism"));
    let failed = spec.field("maxFailedIndexes");
    if completions.is_absent() {
        errors.push(completions.required("when completion mode is Indexed"));
    }
    if parallelism.number().is_some_and(|number| number > PODS_MAX) {
        let why = format!("must be less than or equal to {PODS_MAX} when completion mode is Indexed");
        errors.push(parallelism.invalid(why));
    }
    if let (Some(completions), Some(number)) = (completions.number(), failed.number())
        && number > completions
    {
        errors.push(failed.invalid("must be less than or equal to completions"));
    }
    if failed.number().is_some_and(|number| number > PODS_MAX) {
        errors.push(failed.invalid(format!("must be less than or equal to {PODS_MAX}")));
    }
    let has_many = completions.number().is_some_and(|number| number > PODS_MAX);
    if !has_many || spec.field("backoffLimitPerIndex").is_absent() {
        return;
    }
    if failed.is_absent() {
        errors.push(failed.required(&format!("must be specified when completions is above {PODS_MAX}")));
    }
    let why = format!(
        "must be less than or equal to {PODS_MAX_OF_MANY} when completions are above {PODS_MAX} and used with backoff limit per index"
    );
    for field in [parallelism, failed] {
        if field.number().is_some_and(|number| number > PODS_MAX_OF_MANY) {
            errors.push(field.invalid(why.clone()));
        }
    }
}

fn completions(Change { new: spec, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let (completions, before) = (spec.field("completions"), old.field("completions"));
    if spec.field("completionMode").text() != INDEXED {
        rules::immutable(&completions, &before, errors);
    } else if completions.value != before.value
        && completions.is_present()
        && completions.value != spec.field("parallelism").value
    {
        errors.push(completions.invalid("can only be modified in tandem with spec.parallelism"));
    }
}

/// While a Job is suspended and none of its Pods run, the placement and resources of its template may be changed.
fn template(change: &Change<'_>, errors: &mut Vec<Error>) {
    let Change { new, old } = change.at(&["spec", "template"]);
    if !is_asleep(&change.old) {
        return rules::immutable(&new, &old, errors);
    }
    let fixed = |template: &Field<'_>| without_placement(template.field("spec").value);
    if fixed(&new) != fixed(&old) {
        errors.push(new.field("spec").invalid(rules::IMMUTABLE));
    }
}

/// Whether a Job is suspended and has no Pods: it never started, or its suspension is complete.
fn is_asleep(job: &Field<'_>) -> bool {
    let status = job.field("status");
    let is_suspended = |condition: Field<'_>| {
        condition.field("type").text() == "Suspended" && condition.field("status").text() == "True"
    };
    let is_out = status.field("startTime").is_absent() || status.field("conditions").items().any(is_suspended);
    job.at(&["spec", "suspend"]).flag() && is_out && status.field("active").number().unwrap_or(0) == 0
}

/// The spec of a template without the placement and resources of its pods.
fn without_placement(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for field in ["nodeSelector", "schedulingGates", "tolerations"] {
        remove_at(&mut spec, &[field]);
    }
    let is_node_affinity_alone = |affinity: &Value| {
        affinity.as_object().is_some_and(|fields| fields.keys().all(|field| field == "nodeAffinity"))
    };
    if at(&spec, &["affinity"]).is_some_and(is_node_affinity_alone) {
        remove_at(&mut spec, &["affinity"]);
    }
    remove_at(&mut spec, &["affinity", "nodeAffinity"]);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            remove_at(container, &["resources"]);
        }
    }
    spec
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
        Value::from(shown_status(job)),
        Value::from(completions),
        Value::from(duration(job, now)),
        cells::age(job, now),
        names,
        images,
        workload::selector_cell(job),
    ]
}

fn shown_status(job: &Value) -> &'static str {
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
    let time = |field: &str| times::parse(str_at(job, &["status", field])?);
    match time("startTime") {
        Some(start) => age::human(time("completionTime").unwrap_or(now).as_second() - start.as_second()),
        None => String::new(),
    }
}
