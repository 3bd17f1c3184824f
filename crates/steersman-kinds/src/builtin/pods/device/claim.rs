//! ResourceClaim: requested devices, and those that were allocated.

use crate::builtin::kind::{Alias, Column, Compiles, Kind, RULES, SPEC_AND_METADATA, Version};
use crate::builtin::pods::device::request::{self, Names};
use crate::builtin::pods::device::{
    CONFIG_MAX, CONFIGURATION, GROUP, binding_conditions, each, each_once, json_object, pool_name,
};
use crate::builtin::pods::pod::scheduling;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::storage::csi;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, remove_at, set_at};
use steersman_machinery::{Value, name};

const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const ADDRESSES_MAX: usize = 16;

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "ResourceClaim",
    plural: "resourceclaims",
    rules: Rules { returns_deleted: true, ..RULES },
    singular: "resourceclaim",
    versions: &[Version {
        definition: "io.k8s.api.resource.v1.ResourceClaim",
        has_status: true,
        columns: &[Column::NAME, Column::text("State", "Whether it is allocated and reserved."), Column::AGE],
        cells,
        default: |claim| request::default(claim.get_mut("spec")),
        ..Version::V1
    }],
    aliases: &[Alias {
        name: "v1beta2",
        definition: "io.k8s.api.resource.v1beta2.ResourceClaim",
        deprecation: "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+",
    }],
    status_leaves: SPEC_AND_METADATA,
    prepare_status: drop_deallocated,
    compiles: Compiles::Created,
    validate: &[Rule::new("spec", Check::By(request::validate)).on_create(), Rule::new("spec", Check::Immutable)],
    validate_status: &[Rule::new("", Check::Change(validate_status))],
    ..Kind::NAMESPACED
};

/// The identity of a device, as one value.
fn device(field: &Field<'_>) -> Value {
    let text = |name: &str| field.field(name).text();
    json!({
        "driver": text("driver"), "pool": text("pool"), "device": text("device"), "shareID": field.field("shareID").value,
    })
}

fn allocated(status: &Field<'_>) -> BTreeSet<String> {
    status.at(&["allocation", "devices", "results"]).items().map(|result| device(&result).to_string()).collect()
}

/// Drops the status of devices that are no longer allocated.
fn drop_deallocated(new: &mut Value, old: &Value) {
    let (before, after) = (allocated(&Field::root(old).field("status")), allocated(&Field::root(new).field("status")));
    let Some(devices) = new.pointer_mut("/status/devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|one| {
        let key = device(&Field::root(one)).to_string();
        after.contains(&key) || !before.contains(&key)
    });
    let is_empty = devices.is_empty();
    if is_empty {
        remove_at(new, &["status", "devices"]);
    }
    if at(new, &["status"]).is_none() {
        set_at(new, &["status"], json!({}));
    }
}

fn validate_status(change: &Change<'_>, errors: &mut Vec<Error>) {
    let (claim, Change { new: status, old }) = (&change.new, change.field("status"));
    let (consumers, allocation) = (status.field("reservedFor"), status.field("allocation"));
    each_once(
        &consumers,
        CONSUMERS_MAX,
        |consumer| consumer.field("uid").text().into(),
        errors,
        |consumer, errors| check_field(CONSUMER, consumer, errors),
    );
    let in_use = allocated(&status);
    each_once(&status.field("devices"), usize::MAX, device, errors, |one, errors| {
        validate_device(one, &in_use, errors);
    });
    if !consumers.is_empty() && allocation.is_absent() {
        errors.push(consumers.forbidden("may not be specified when `allocated` is not set"));
    } else if claim.at(&["metadata", "deletionTimestamp"]).is_present() {
        let before: BTreeSet<String> = old.field("reservedFor").items().map(|one| one.value.to_string()).collect();
        if consumers.items().any(|consumer| !before.contains(&consumer.value.to_string())) {
            let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(consumers.forbidden(why));
        }
    }
    match (old.field("allocation").is_present(), allocation.is_present()) {
        (true, true) => rules::immutable(&allocation, &old.field("allocation"), errors),
        (false, true) => validate_allocation(&allocation, &Names::of(&claim.field("spec")), errors),
        (_, false) => {}
    }
}

pub(in crate::builtin) const CONSUMER: &[Rule] =
    &[Rule::required("resource", ""), Rule::required("name", ""), Rule::required("uid", "")];

fn validate_allocation(allocation: &Field<'_>, names: &Names<'_>, errors: &mut Vec<Error>) {
    let devices = allocation.field("devices");
    each(&devices.field("results"), RESULTS_MAX, errors, |result, errors| {
        names.validate(&result.field("request"), errors);
        check_field(IDENTITY, result, errors);
        binding_conditions(result, errors);
    });
    each(&devices.field("config"), 2 * CONFIG_MAX, errors, |config, errors| {
        rules::required_one_of(&config.field("source"), &["FromClaim", "FromClass"], errors);
        names.validate_all(&config.field("requests"), errors);
        check_field(CONFIGURATION, config, errors);
    });
    let nodes = allocation.field("nodeSelector");
    if nodes.is_present() {
        scheduling::node_selector(&nodes, errors);
    }
}

/// The rules of the identity of a device, in an allocation result or in the status of an allocated device.
pub(in crate::builtin) const IDENTITY: &[Rule] = &[
    Rule::new("driver", Check::By(csi::driver_name)),
    Rule::new("pool", Check::By(pool_name)),
    Rule::new("device", Check::Format(name::dns1123_label)),
    Rule::new("shareID", Check::Text(is_uid, NO_UID)).if_present(),
];

const NO_UID: &str = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text == text.to_lowercase() && uuid::Uuid::try_parse(text).is_ok()
}

pub(in crate::builtin) const DEVICE_STATUS: &[Rule] = &[
    Rule::new("conditions", Check::ItemsMax(8)),
    Rule::new("conditions[]", Check::Rules(rules::CONDITION)),
    Rule::new("data", Check::By(json_object)).if_present(),
    Rule::new("networkData.interfaceName", Check::LengthMax(256)),
    Rule::new("networkData.hardwareAddress", Check::LengthMax(128)),
];

fn validate_device(one: &Field<'_>, in_use: &BTreeSet<String>, errors: &mut Vec<Error>) {
    check_field(IDENTITY, one, errors);
    if !in_use.contains(&device(one).to_string()) {
        errors.push(Error::invalid(&one.path, device(one), "must be an allocated device in the claim"));
    }
    check_field(DEVICE_STATUS, one, errors);
    let network = one.field("networkData");
    each_once(
        &network.field("ips"),
        ADDRESSES_MAX,
        |address| address.text().into(),
        errors,
        |address, errors| {
            if address.text().parse::<ipnet::IpNet>().is_err() {
                let why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
                errors.push(address.invalid(why));
            }
        },
    );
}

fn cells(claim: &Value, now: Timestamp) -> Vec<Value> {
    let field = Field::root(claim);
    let is_deleted = field.at(&["metadata", "deletionTimestamp"]).is_present();
    let is_allocated = field.at(&["status", "allocation"]).is_present();
    let is_reserved = is_allocated && !field.at(&["status", "reservedFor"]).is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_deleted && !is_allocated, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    let states: Vec<&str> = states.into_iter().filter_map(|(is_so, state)| is_so.then_some(state)).collect();
    vec![cells::name(claim), Value::from(states.join(",")), cells::age(claim, now)]
}
