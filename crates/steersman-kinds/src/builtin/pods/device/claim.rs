//! ResourceClaim: requested devices, and those that were allocated.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Request, Version};
use crate::builtin::pods::device::request::{self, Names};
use crate::builtin::pods::device::{
    CONFIG_MAX, GROUP, binding_conditions, configuration, each, each_once, json_object, label, pool_name,
};
use crate::builtin::pods::pod::scheduling;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::storage::csi;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, remove_at, set_at};

const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_ADDRESS_BYTES_MAX: usize = 128;

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
    status_leaves: &[
        &["spec"],
        &["metadata", "annotations"],
        &["metadata", "finalizers"],
        &["metadata", "labels"],
        &["metadata", "ownerReferences"],
    ],
    prepare_status: drop_deallocated,
    validate_create: |request, errors| request::validate(&Field::root(request.new).field("spec"), errors),
    validate_update: |request, errors| {
        let (claim, old) = (Field::root(request.new), Field::root(request.old));
        rules::immutable(&claim.field("spec"), &old.field("spec"), errors);
    },
    validate_status,
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

fn validate_status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let claim = Field::root(request.new);
    let (status, old) = (claim.field("status"), Field::root(request.old).field("status"));
    let (consumers, allocation) = (status.field("reservedFor"), status.field("allocation"));
    each_once(
        &consumers,
        CONSUMERS_MAX,
        |consumer| consumer.field("uid").text().into(),
        errors,
        |consumer, errors| {
            ["resource", "name", "uid"].iter().for_each(|field| rules::required(&consumer.field(field), errors));
        },
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

fn validate_allocation(allocation: &Field<'_>, names: &Names<'_>, errors: &mut Vec<Error>) {
    let devices = allocation.field("devices");
    each(&devices.field("results"), RESULTS_MAX, errors, |result, errors| {
        names.validate(&result.field("request"), errors);
        validate_identity(result, errors);
        binding_conditions(result, errors);
    });
    each(&devices.field("config"), 2 * CONFIG_MAX, errors, |config, errors| {
        let source = config.field("source");
        if source.is_empty() {
            errors.push(source.required(""));
        } else {
            rules::one_of(&source, &["FromClaim", "FromClass"], errors);
        }
        names.validate_all(&config.field("requests"), errors);
        configuration(config, errors);
    });
    let nodes = allocation.field("nodeSelector");
    if nodes.is_present() {
        scheduling::node_selector(&nodes, errors);
    }
}

/// Validates the identity of a device.
fn validate_identity(field: &Field<'_>, errors: &mut Vec<Error>) {
    csi::driver_name(&field.field("driver"), errors);
    pool_name(&field.field("pool"), errors);
    label(&field.field("device"), errors);
    let share = field.field("shareID");
    if share.is_present() && !is_uid(share.text()) {
        let why = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        errors.push(share.invalid(why));
    }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text == text.to_lowercase() && uuid::Uuid::try_parse(text).is_ok()
}

fn validate_device(one: &Field<'_>, in_use: &BTreeSet<String>, errors: &mut Vec<Error>) {
    validate_identity(one, errors);
    if !in_use.contains(&device(one).to_string()) {
        errors.push(Error::invalid(&one.path, device(one), "must be an allocated device in the claim"));
    }
    let (conditions, data) = (one.field("conditions"), one.field("data"));
    let count = conditions.items().count();
    if count > CONDITIONS_MAX {
        errors.push(Error::too_many(&conditions.path, count, CONDITIONS_MAX));
    }
    rules::conditions(&conditions, errors);
    if data.is_present() {
        json_object(&data, errors);
    }
    let network = one.field("networkData");
    for (field, most) in [("interfaceName", INTERFACE_BYTES_MAX), ("hardwareAddress", HARDWARE_ADDRESS_BYTES_MAX)] {
        let text = network.field(field);
        if text.text().len() > most {
            errors.push(Error::too_long(&text.path, most));
        }
    }
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
