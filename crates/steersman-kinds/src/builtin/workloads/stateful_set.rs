//! StatefulSet: pods with stable names and volumes, created and deleted in order.

use crate::builtin::kind::{Column, Kind, RULES, Request, Scale, ScaleSelector, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::selector;
use crate::builtin::storage::volume_claim;
use crate::builtin::workloads::workload;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{object_at, set_at};

pub const KIND: Kind = Kind {
    group: "apps",
    kind: "StatefulSet",
    pod_spec: &["spec", "template", "spec"],
    plural: "statefulsets",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "statefulset",
    short_names: &["sts"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.apps.v1.StatefulSet",
        has_status: true,
        scale: Some(&Scale {
            spec: ".spec.replicas",
            status: ".status.replicas",
            selector: ScaleSelector::Object(".spec.selector"),
        }),
        columns: &[
            Column::NAME,
            Column::text("Ready", "How many of the wanted pods are ready."),
            Column::AGE,
            Column::text("Containers", "The names of the template's containers.").wide(),
            Column::text("Images", "The images of the template's containers.").wide(),
        ],
        cells,
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    validate_create: |request, errors| {
        let set = Field::root(request.new);
        for claim in set.at(&["spec", "volumeClaimTemplates"]).items() {
            volume_claim::validate(&claim.field("spec"), errors);
        }
        validate(&set, errors);
    },
    validate_update,
    validate_status,
    ..Kind::NAMESPACED
};

fn default(object: &mut Value) {
    let Some(spec) = object_at(object, &["spec"]) else { return };
    unless_set(spec, "podManagementPolicy", "OrderedReady");
    unless_set(spec, "replicas", 1);
    unless_set(spec, "revisionHistoryLimit", 10);
    unless_set(spec, "updateStrategy", json!({}));
    unless_set(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    if let Some(policy) = spec.get_mut("persistentVolumeClaimRetentionPolicy").and_then(Value::as_object_mut) {
        unless_set(policy, "whenDeleted", "Retain");
        unless_set(policy, "whenScaled", "Retain");
    }
    if let Some(strategy) = spec.get_mut("updateStrategy").and_then(Value::as_object_mut) {
        unless_set(strategy, "type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            unless_set(strategy, "rollingUpdate", json!({}));
            if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
                unless_set(rolling, "partition", 0);
            }
        }
    }
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        set_at(claim, &["apiVersion"], json!("v1"));
        set_at(claim, &["kind"], json!("PersistentVolumeClaim"));
        for (path, field, value) in [("spec", "volumeMode", "Filesystem"), ("status", "phase", "Pending")] {
            if let Some(part) = object_at(claim, &[path]) {
                unless_set(part, field, value);
            }
        }
    }
    pod::defaults::spec(object, &["spec", "template", "spec"]);
}

fn validate(object: &Field<'_>, errors: &mut Vec<Error>) {
    let spec = object.field("spec");
    let policy = spec.field("podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy.text()) {
        errors.push(policy.invalid("must be 'OrderedReady' or 'Parallel'"));
    }
    let strategy = spec.field("updateStrategy");
    let rolling = strategy.field("rollingUpdate");
    match strategy.field("type").text() {
        "OnDelete" if rolling.is_present() => {
            errors.push(rolling.invalid("only allowed for updateStrategy 'RollingUpdate'"));
        }
        "OnDelete" => {}
        "RollingUpdate" => rules::not_negative(&rolling.field("partition"), errors),
        _ => errors.push(strategy.invalid("must be 'RollingUpdate' or 'OnDelete'")),
    }
    for field in ["whenDeleted", "whenScaled"] {
        let retention = spec.at(&["persistentVolumeClaimRetentionPolicy", field]);
        rules::one_of(&retention, &["Delete", "Retain"], errors);
    }
    for path in [&["replicas"][..], &["minReadySeconds"], &["ordinals", "start"]] {
        rules::not_negative(&spec.at(path), errors);
    }
    workload::validate_selector(&spec, "statefulset", errors);
    let with_claims = with_claims(&spec);
    let object = Value::Object([("spec".to_owned(), with_claims)].into_iter().collect());
    let selector = spec.field("selector");
    if selector::is_valid(&selector) {
        workload::validate_template(&Field::root(&object).field("spec"), "StatefulSet", errors);
    } else {
        errors.push(selector.invalid(""));
    }
}

/// The selector and the template of a set as for its pods: with a volume for each claim.
fn with_claims(spec: &Field<'_>) -> Value {
    let mut template = spec.field("template").value.clone();
    let claims = spec.field("volumeClaimTemplates");
    let claims = claims.value.as_array().into_iter().flatten();
    let names = claims.map(|claim| claim["metadata"]["name"].as_str().unwrap_or_default());
    if let Some(pod) = object_at(&mut template, &["spec"]) {
        let volumes = pod.entry("volumes").or_insert_with(|| json!([]));
        if volumes.is_null() {
            *volumes = json!([]);
        }
        if let Some(volumes) = volumes.as_array_mut() {
            // A volume with the name of a claim is replaced by it.
            for name in names {
                volumes.retain(|volume| volume["name"].as_str().unwrap_or_default() != name);
                volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            }
        }
    }
    json!({"selector": spec.field("selector").value, "template": template})
}

/// The fields that may be changed in an existing set.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (object, old) = (Field::root(request.new), Field::root(request.old));
    validate(&object, errors);
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|name, _| !CHANGEABLE.contains(&name.as_str()));
        }
        spec
    };
    let spec = object.field("spec");
    if fixed(spec.value) != fixed(old.field("spec").value) {
        errors.push(spec.forbidden(
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

fn validate_status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let status = Field::root(request.new).field("status");
    let number = |field: &str| status.field(field).number().unwrap_or(0);
    let counters = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    for field in counters {
        rules::not_negative(&status.field(field), errors);
        if number(field) > number("replicas") {
            errors.push(status.field(field).invalid("cannot be greater than status.replicas"));
        }
    }
    rules::not_negative(&status.field("observedGeneration"), errors);
    if number("availableReplicas") > number("readyReplicas") {
        errors.push(status.field("availableReplicas").invalid("cannot be greater than status.readyReplicas"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = workload::container_cells(object);
    let ready = cells::number(object, &["status", "readyReplicas"]);
    let wanted = cells::number(object, &["spec", "replicas"]);
    vec![cells::name(object), Value::from(format!("{ready}/{wanted}")), cells::age(object, now), names, images]
}
