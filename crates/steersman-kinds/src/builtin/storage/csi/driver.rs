//! CSIDriver: the capabilities and requirements of a storage driver.

use crate::builtin::built_in::{count_generation, remove_unless_kept};
use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, unless_set};

pub const KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIDriver",
    plural: "csidrivers",
    singular: "csidriver",
    versions: &[Version {
        definition: "io.k8s.api.storage.v1.CSIDriver",
        columns: &[
            Column::NAME,
            Column::boolean("AttachRequired", "Whether volumes are attached to a node before they are mounted."),
            Column::boolean("PodInfoOnMount", "Whether the driver is told about the pod when it mounts a volume."),
            Column::boolean("StorageCapacity", "Whether the scheduler considers the capacity that the driver reports."),
            Column::text("TokenRequests", "The audiences of the service account tokens that the driver gets."),
            Column::boolean("RequiresRepublish", "Whether mounted volumes are published again from time to time."),
            Column::text("Modes", "The lifecycles of volumes that the driver supports."),
            Column::AGE,
        ],
        cells,
        default,
        ..Version::V1
    }],
    rules: Rules {
        updates_unconditionally: false,
        validates_generate_name_on_update: false,
        returns_deleted: true,
        ..RULES
    },
    prepare_create: |driver| remove_unless_kept(driver, &Value::Null, NOT_ENABLED),
    prepare_update: |new, old| {
        remove_unless_kept(new, old, NOT_ENABLED);
        // A new driver has no generation, while other kinds begin with 1.
        if at(new, &["spec"]) != at(old, &["spec"]) {
            count_generation(&[&["spec"]], new, old);
        }
    },
    validate: &[
        Rule::new("spec.fsGroupPolicy", Check::OneOf(&["File", "None", "ReadWriteOnceWithFSType"])).if_present(),
        Rule::new("spec.tokenRequests", Check::By(token_requests)),
        Rule::new("spec.volumeLifecycleModes[]", Check::OneOf(&["Persistent", "Ephemeral"]))
            .blaming("spec.volumeLifecycleModes"),
        Rule::new(
            "spec.nodeAllocatableUpdatePeriodSeconds",
            Check::AtLeast(10, "must be greater than or equal to 10 seconds"),
        ),
        Rule::new("spec", Check::By(in_secrets)),
        // Upstream misspells the field in this path.
        Rule::new("spec.attachRequired", Check::Immutable).blaming("spec.attachedRequired"),
        Rule::new("spec.volumeLifecycleModes", Check::Immutable),
    ],
    warnings,
    ..Kind::CLUSTER
};

fn default(driver: &mut Value) {
    let Some(spec) = object_at(driver, &["spec"]) else { return };
    unless_set(spec, "attachRequired", true);
    unless_set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    for field in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
        unless_set(spec, field, false);
    }
    if spec.get("volumeLifecycleModes").is_none_or(|modes| modes.as_array().is_none_or(Vec::is_empty)) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
}

/// A field whose feature is not enabled.
const NOT_ENABLED: &[&str] = &["spec", "preventPodSchedulingIfMissing"];

fn in_secrets(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let in_secrets = spec.field("serviceAccountTokenInSecrets");
    if in_secrets.is_present() && spec.field("tokenRequests").is_empty() {
        errors.push(in_secrets.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified"));
    }
}

fn token_requests(requests: &Field<'_>, errors: &mut Vec<Error>) {
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let (audience, seconds) = (request.field("audience"), request.field("expirationSeconds"));
        if !audiences.insert(audience.text()) {
            errors.push(Error::duplicate(&audience.path, audience.text().into()));
            continue;
        }
        let why = match seconds.number() {
            Some(number) if number < 600 => "may not specify a duration less than 10 minutes",
            Some(number) if number > 1 << 32 => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        errors.push(seconds.invalid(why));
    }
}

fn warnings(driver: &Value, old: &Value) -> Vec<String> {
    let (spec, old) = (Field::root(driver).field("spec"), Field::root(old).field("spec"));
    let requests = spec.field("tokenRequests");
    let is_known = requests.is_empty() || requests.value == old.field("tokenRequests").value;
    if is_known || spec.field("serviceAccountTokenInSecrets").is_present() {
        return Vec::new();
    }
    vec![
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"
            .to_owned(),
    ]
}

fn cells(driver: &Value, now: Timestamp) -> Vec<Value> {
    let spec = Field::root(driver).field("spec");
    let flag = |field: &str| Value::from(spec.field(field).flag());
    let requests = spec.field("tokenRequests");
    let audiences: Vec<&str> = requests.items().map(|request| request.field("audience").text()).collect();
    let modes: Vec<&str> = spec.field("volumeLifecycleModes").items().map(|mode| mode.text()).collect();
    let attach = spec.field("attachRequired");
    vec![
        cells::name(driver),
        Value::from(attach.is_absent() || attach.flag()),
        flag("podInfoOnMount"),
        flag("storageCapacity"),
        Value::from(if requests.is_absent() { "<unset>".to_owned() } else { audiences.join(",") }),
        flag("requiresRepublish"),
        Value::from(if modes.is_empty() { cells::NONE.to_owned() } else { modes.join(",") }),
        cells::age(driver, now),
    ]
}
