//! ResourceSlice: devices that a driver offers, on one node or for several.

use crate::builtin::built_in::count_generation;
use crate::builtin::kind::{Alias, Column, Kind, RULES, SelectableField, Version};
use crate::builtin::pods::device::request::{NAME, TAINT};
use crate::builtin::pods::device::{GROUP, binding_conditions, capacity, each_once, name_of, pool_name, qualified};
use crate::builtin::pods::pod::scheduling;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::storage::csi;
use crate::strategy::Rules;
use jiff::Timestamp;
use regex::Regex;
use serde_json::json;
use std::sync::LazyLock;
use steersman_machinery::field::Error;
use steersman_machinery::value::set_at;
use steersman_machinery::{Value, name};

const DEVICES_MAX: usize = 128;
/// The maximum number of devices in a slice with taints or counters.
const COMPLEX_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMPTIONS_MAX: usize = 2;
const ATTRIBUTES_MAX: usize = 32;
/// Attributes with several values need a feature gate that is off.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    let number = r"(0|[1-9][0-9]*)";
    let pre = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)";
    let build = "[0-9a-zA-Z-]+";
    let form = format!(r"^{number}\.{number}\.{number}(-{pre}(\.{pre})*)?(\+{build}(\.{build})*)?$");
    Regex::new(&form).expect("invariant: a constant that the tests compile")
});

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "ResourceSlice",
    plural: "resourceslices",
    rules: Rules { validates_generate_name_on_update: false, returns_deleted: true, ..RULES },
    singular: "resourceslice",
    versions: &[Version {
        definition: "io.k8s.api.resource.v1.ResourceSlice",
        columns: &[
            Column::NAME,
            Column::text("Node", "The node that has the devices."),
            Column::text("Driver", "The driver that offers them."),
            Column::text("Pool", "The pool that they are part of."),
            Column::AGE,
        ],
        cells,
        fields: &[
            SelectableField::new("spec.driver", ".spec.driver"),
            SelectableField::new("spec.nodeName", ".spec.nodeName"),
        ],
        ..Version::V1
    }],
    aliases: &[Alias {
        name: "v1beta2",
        definition: "io.k8s.api.resource.v1beta2.ResourceSlice",
        deprecation: "resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+",
    }],
    prepare_create: |slice| {
        set_at(slice, &["metadata", "generation"], Value::from(1));
        drop_disabled(slice);
    },
    prepare_update: |new, old| {
        // As upstream: a change that is dropped counts too.
        count_generation(&[&["spec"]], new, old);
        drop_disabled(new);
    },
    set_times,
    validate: &[
        Rule::new("spec.driver", Check::By(csi::driver_name)),
        Rule::new("spec.pool.name", Check::By(pool_name)),
        Rule::new("spec.pool.resourceSliceCount", Check::AtLeast(1, "must be greater than zero")).or_zero(),
        Rule::new("spec.pool.generation", Check::AtLeast(0, "must be greater than or equal to zero")),
        Rule::new("spec", Check::By(validate_nodes)),
        Rule::new("spec", Check::By(devices_or_counters)),
        Rule::new("spec.pool.name", Check::Immutable),
        Rule::new("spec.driver", Check::Immutable),
        Rule::new("spec.nodeName", Check::Immutable),
    ],
    ..Kind::CLUSTER
};

fn devices(slice: &mut Value) -> impl Iterator<Item = &mut Value> {
    slice.pointer_mut("/spec/devices").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Drops fields of feature gates that are off.
fn drop_disabled(slice: &mut Value) {
    for device in devices(slice).filter_map(Value::as_object_mut) {
        device.remove("nodeAllocatableResourceMappings");
        let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
        for attribute in attributes.into_iter().flat_map(|all| all.values_mut()).filter_map(Value::as_object_mut) {
            LISTS.iter().for_each(|list| drop(attribute.remove(*list)));
        }
    }
}

/// Sets the time at which a taint was added.
fn set_times(slice: &mut Value, _old: &Value, now: &str) {
    for device in devices(slice) {
        let taints = device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten();
        for taint in taints.filter(|taint| taint["timeAdded"].is_null()) {
            taint["timeAdded"] = json!(now);
        }
    }
}

fn devices_or_counters(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (devices, counters) = (spec.field("devices"), spec.field("sharedCounters"));
    if devices.is_present() && counters.is_present() {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(Error::invalid(&spec.path, "", why));
    }
    let is_complex =
        |device: Field<'_>| !device.field("taints").is_empty() || !device.field("consumesCounters").is_empty();
    let most = if devices.items().any(is_complex) { COMPLEX_DEVICES_MAX } else { DEVICES_MAX };
    let is_per_device = spec.field("perDeviceNodeSelection").flag();
    each_once(&devices, most, name_of, errors, |device, errors| validate_device(device, is_per_device, errors));
    each_once(&counters, COUNTER_SETS_MAX, name_of, errors, |set, errors| {
        validate_counters(set, "name", errors);
    });
}

/// The field that locates devices, as errors name it; `None` if it is not set.
fn node_selection(field: &Field<'_>, name: &'static str, errors: &mut Vec<Error>) -> Option<&'static str> {
    let field = field.field(name);
    match (name, field.value) {
        (_, Value::Null) => None,
        ("nodeName", Value::String(node)) if !node.is_empty() => {
            rules::named(&field, name::dns1123_subdomain, errors);
            Some("`nodeName`")
        }
        ("nodeSelector", _) => {
            scheduling::node_selector(&field, errors);
            Some("`nodeSelector`")
        }
        ("allNodes", Value::Bool(true)) => Some("`allNodes`"),
        ("perDeviceNodeSelection", Value::Bool(true)) => Some("`perDeviceNodeSelection`"),
        ("nodeName", _) => {
            errors.push(field.invalid("must be either unset or set to a non-empty string"));
            None
        }
        _ => {
            errors.push(field.invalid("must be either unset or set to true"));
            None
        }
    }
}

fn validate_nodes(spec: &Field<'_>, errors: &mut Vec<Error>) {
    const FIELDS: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let set: Vec<&str> = FIELDS.iter().filter_map(|field| node_selection(spec, field, errors)).collect();
    let terms = spec.at(&["nodeSelector", "nodeSelectorTerms"]);
    if spec.field("nodeSelector").is_present() && terms.items().count() != 1 {
        errors.push(terms.invalid("must have exactly one node selector term"));
    }
    match set.len() {
        0 => errors.push(spec.required(ONE)),
        1 => {}
        _ => {
            let why = format!("{ONE}, but multiple fields are set");
            errors.push(Error::invalid(&spec.path, format!("{{{}}}", set.join(", ")), why));
        }
    }
}

pub(in crate::builtin) const TAINTS: &[Rule] = &[Rule::new("taints[]", Check::Rules(TAINT)).up_to(16)];

fn validate_device(device: &Field<'_>, is_per_device: bool, errors: &mut Vec<Error>) {
    check_field(NAME, device, errors);
    let (attributes, capacities) = (device.field("attributes"), device.field("capacity"));
    let count = attributes.entries().count() + capacities.entries().count();
    if count > ATTRIBUTES_MAX {
        let why = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        errors.push(Error::invalid(&device.path, count, why));
    }
    for (key, attribute) in attributes.entries() {
        qualified(key, &attributes, errors);
        validate_attribute(&attribute, errors);
    }
    let is_shared = device.field("allowMultipleAllocations").flag();
    for (key, one) in capacities.entries() {
        qualified(key, &capacities, errors);
        match is_shared {
            true => capacity::validate_shared(&one, errors),
            false => capacity::validate_unshared(&one, errors),
        }
    }
    check_field(TAINTS, device, errors);
    let consumptions = device.field("consumesCounters");
    let set_of = |consumption: &Field<'_>| Value::from(consumption.field("counterSet").text());
    each_once(&consumptions, CONSUMPTIONS_MAX, set_of, errors, |consumption, errors| {
        validate_counters(consumption, "counterSet", errors);
    });
    validate_device_nodes(device, is_per_device, errors);
    binding_conditions(device, errors);
}

/// Validates a counter set, or the counters that a device consumes.
fn validate_counters(set: &Field<'_>, name_field: &str, errors: &mut Vec<Error>) {
    rules::required_name(&set.field(name_field), name::dns1123_label, errors);
    let counters = set.field("counters");
    let count = counters.entries().count();
    if count == 0 {
        errors.push(counters.required(""));
    } else if count > COUNTERS_MAX {
        errors.push(Error::too_many(&counters.path, count, COUNTERS_MAX));
    } else {
        for (key, _) in counters.entries() {
            let wrong = name::dns1123_label(key).into_iter();
            errors.extend(wrong.map(|detail| Error::invalid(&counters.path, key, detail)));
        }
    }
}

fn validate_device_nodes(device: &Field<'_>, is_per_device: bool, errors: &mut Vec<Error>) {
    const FIELDS: [&str; 3] = ["nodeName", "nodeSelector", "allNodes"];
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if !is_per_device {
        if FIELDS.iter().any(|field| device.field(field).is_present()) {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.push(Error::invalid_without_value(&device.path, why));
        }
        return;
    }
    let set: Vec<&str> = FIELDS.iter().filter_map(|field| node_selection(device, field, errors)).collect();
    match set.len() {
        0 => errors.push(device.required(ONE)),
        1 => {}
        _ => errors.push(Error::invalid(&device.path, format!("{{{}}}", set.join(", ")), ONE)),
    }
}

pub(in crate::builtin) const ATTRIBUTE: &[Rule] = &[
    Rule::new(
        "version",
        Check::Text(|version| VERSION.is_match(version), "must be a string compatible with semver.org spec 2.0.0"),
    )
    .if_present(),
    Rule::new("string", Check::LengthMax(64)),
    Rule::new("version", Check::LengthMax(64)),
];

fn validate_attribute(attribute: &Field<'_>, errors: &mut Vec<Error>) {
    check_field(ATTRIBUTE, attribute, errors);
    let set = ["bool", "int", "string", "version"].iter().filter(|name| attribute.field(name).is_present()).count();
    match set {
        0 => errors.push(Error::invalid(&attribute.path, "", "exactly one value must be specified")),
        1 => {}
        _ => errors.push(attribute.invalid("exactly one value must be specified")),
    }
}

fn cells(slice: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(slice),
        cells::text(slice, &["spec", "nodeName"]),
        cells::text(slice, &["spec", "driver"]),
        cells::text(slice, &["spec", "pool", "name"]),
        cells::age(slice, now),
    ]
}
