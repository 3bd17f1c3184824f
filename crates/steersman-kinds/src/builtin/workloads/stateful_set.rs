//! StatefulSet: pods with stable names and volumes, created and deleted in order.

use crate::builtin::built_in::remove_unless_kept;
use crate::builtin::kind::{Column, Kind, RULES, Scale, ScaleSelector, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::int_or_percent;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::builtin::storage::volume_claim;
use crate::builtin::workloads::workload;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::value::{object_at, remove_at, set_at, unless_set};

/// A field behind a feature gate that is off by default: it is dropped, unless the old object has it.
const MAX_UNAVAILABLE: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];

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
    prepare_create: |set| _ = remove_at(set, &MAX_UNAVAILABLE),
    prepare_update: |set, old| remove_unless_kept(set, old, &MAX_UNAVAILABLE),
    validate: &[
        Rule::new("spec.volumeClaimTemplates[].spec", Check::Rules(volume_claim::SPEC)).on_create(),
        Rule::new(
            "spec.podManagementPolicy",
            Check::Text(is_management_policy, "must be 'OrderedReady' or 'Parallel'"),
        ),
        Rule::new("spec.serviceName", Check::Format(name::dns1123_label)).on_create().unless_empty(),
        Rule::new("spec.updateStrategy", Check::By(strategy)),
        Rule::new("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Check::OneOf(&["Delete", "Retain"])),
        Rule::new("spec.persistentVolumeClaimRetentionPolicy.whenScaled", Check::OneOf(&["Delete", "Retain"])),
        Rule::new("spec.replicas", Check::NotNegative),
        Rule::new("spec.minReadySeconds", Check::NotNegative),
        Rule::new("spec.ordinals.start", Check::NotNegative),
        Rule::new("spec", Check::By(selector_and_template)),
        Rule::new("spec", Check::Change(unchanged)).on_update(),
    ],
    warnings: |set, _| claim_warnings(set),
    validate_status: &[
        Rule::new("status", Check::By(counters)),
        Rule::new("status.observedGeneration", Check::NotNegative),
        Rule::new("status.collisionCount", Check::NotNegative).if_present(),
        Rule::new("status", Check::By(available)),
    ],
    ..Kind::NAMESPACED
};

/// The warnings about claims in templates. Upstream leaves `spec` out of their paths.
fn claim_warnings(set: &Value) -> Vec<String> {
    let templates = Field::root(set).at(&["spec", "volumeClaimTemplates"]).items();
    let of = |template: Field<'_>| {
        let path = template.path.clone();
        warnings::of_claim(&Field { path, ..template.field("spec") })
    };
    templates.into_iter().flat_map(of).collect()
}

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
        let is_typed = strategy.get("type").is_some_and(|kind| !kind.is_null());
        unless_set(strategy, "type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            if !is_typed {
                unless_set(strategy, "rollingUpdate", json!({}));
            }
            if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
                unless_set(rolling, "partition", 0);
            }
        }
    }
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        set_at(claim, &["apiVersion"], json!("v1"));
        set_at(claim, &["kind"], json!("PersistentVolumeClaim"));
        volume_claim::default(claim);
    }
    pod::defaults::spec(object, &["spec", "template", "spec"]);
}

fn strategy(strategy: &Field<'_>, errors: &mut Vec<Error>) {
    let rolling = strategy.field("rollingUpdate");
    match strategy.field("type").text() {
        "OnDelete" if rolling.is_present() => {
            errors.push(rolling.invalid("only allowed for updateStrategy 'RollingUpdate'"));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            Check::NotNegative.of(&rolling.field("partition"), errors);
            let unavailable = rolling.field("maxUnavailable");
            if unavailable.is_present() {
                int_or_percent::validate(&unavailable, errors);
                if int_or_percent::is_zero(unavailable.value) {
                    errors.push(unavailable.invalid("cannot be 0"));
                }
                int_or_percent::at_most_all(&unavailable, errors);
            }
        }
        _ => errors.push(strategy.invalid("must be 'RollingUpdate' or 'OnDelete'")),
    }
}

fn is_management_policy(text: &str) -> bool {
    matches!(text, "OrderedReady" | "Parallel")
}

fn selector_and_template(spec: &Field<'_>, errors: &mut Vec<Error>) {
    workload::validate_selector(spec, "statefulset", errors);
    let mut with_claims = with_claims(spec);
    // The loop gives each pod its own.
    if let Some(pod) = object_at(&mut with_claims, &["template", "spec"]) {
        pod.remove("hostname");
        pod.remove("subdomain");
    }
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

fn unchanged(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let fixed = |spec: &Field<'_>| {
        let mut spec = spec.value.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|name, _| !CHANGEABLE.contains(&name.as_str()));
        }
        spec
    };
    if fixed(new) != fixed(old) {
        errors.push(new.forbidden(
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

fn counters(status: &Field<'_>, errors: &mut Vec<Error>) {
    let number = |field: &str| status.field(field).number().unwrap_or(0);
    for field in ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
        Check::NotNegative.of(&status.field(field), errors);
        if number(field) > number("replicas") {
            errors.push(status.field(field).invalid("cannot be greater than status.replicas"));
        }
    }
}

fn available(status: &Field<'_>, errors: &mut Vec<Error>) {
    let available = status.field("availableReplicas");
    if available.number().unwrap_or(0) > status.field("readyReplicas").number().unwrap_or(0) {
        errors.push(available.invalid("cannot be greater than status.readyReplicas"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = workload::container_cells(object);
    let ready = cells::number(object, &["status", "readyReplicas"]);
    let wanted = cells::number(object, &["spec", "replicas"]);
    vec![cells::name(object), Value::from(format!("{ready}/{wanted}")), cells::age(object, now), names, images]
}
