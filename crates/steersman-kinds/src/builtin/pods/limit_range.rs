//! LimitRange: the minimum and maximum resources of containers, pods and claims of a namespace, and the defaults of
//! containers.

use crate::builtin::kind::{Column, Kind, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::quantity::round_up;
use crate::builtin::rules::resource_name;
use crate::builtin::rules::rule::{Check, Rule};
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{Map, at, object_at, set_at, str_at};
use steersman_machinery::{Value, name};

pub const KIND: Kind = Kind {
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.LimitRange",
        columns: &[Column::NAME, Column::date("Created At", "When it was created.")],
        cells: |range, _now| vec![cells::name(range), cells::text(range, &["metadata", "creationTimestamp"])],
        default,
        ..Version::V1
    }],
    prepare_create: |range| {
        // A LimitRange without a name gets its uid as its name.
        let is_named = str_at(range, &["metadata", "name"]).is_some_and(|name| !name.is_empty());
        if let (false, Some(uid)) = (is_named, at(range, &["metadata", "uid"]).cloned()) {
            set_at(range, &["metadata", "name"], uid);
        }
    },
    validate: &[Rule::new("spec.limits[]", Check::Rules(LIMIT))],
    ..Kind::NAMESPACED
};

fn default(range: &mut Value) {
    for limit in range.pointer_mut("/spec/limits").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(limit) = limit.as_object_mut() else { continue };
        for amounts in ["default", "defaultRequest", "max", "maxLimitRequestRatio", "min"] {
            round_up(limit, &[amounts]);
        }
    }
    let limits = range.pointer_mut("/spec/limits").and_then(Value::as_array_mut).into_iter().flatten();
    for limit in limits.filter(|limit| str_at(limit, &["type"]) == Some("Container")) {
        // In this order: default limits are also default requests.
        fill(limit, "default", "max");
        fill(limit, "defaultRequest", "default");
        fill(limit, "defaultRequest", "min");
    }
}

/// Adds the amounts of a map that another map lacks.
fn fill(limit: &mut Value, filled: &str, source: &str) {
    let Some(amounts) = at(limit, &[source]).and_then(Value::as_object).filter(|amounts| !amounts.is_empty()) else {
        return;
    };
    let amounts: Map = amounts.clone();
    let Some(filled) = object_at(limit, &[filled]) else { return };
    for (resource, amount) in amounts {
        filled.entry(resource).or_insert(amount);
    }
}

const LIMIT: &[Rule] = &[
    Rule::new("type", Check::By(type_name)),
    Rule::new("type", Check::Unique),
    Rule::new("", Check::By(resources)),
    Rule::new("", Check::By(contradictions)),
];

fn resources(limit: &Field<'_>, errors: &mut Vec<Error>) {
    let kind = limit.field("type");
    let is_of_pods = kind.text() == "Pod";
    for field in ["default", "defaultRequest", "max", "maxLimitRequestRatio", "min"] {
        let amounts = limit.field(field);
        if is_of_pods && field.starts_with("default") {
            if !amounts.is_empty() {
                errors.push(amounts.forbidden("may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for (resource, amount) in amounts.entries() {
            match kind.text() {
                "Container" | "Pod" => resource_name::of_container(resource, &amount, errors),
                _ => resource_name::of_anything(resource, &amount, errors),
            }
        }
    }
    let has_storage = |field: &str| limit.field(field).key("storage").is_present();
    if kind.text() == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(limit.field("limits").required(why));
    }
}

fn type_name(kind: &Field<'_>, errors: &mut Vec<Error>) {
    let wrong = name::qualified(kind.text());
    let is_own = kind.text().contains('/');
    if wrong.is_empty() && !is_own && !matches!(kind.text(), "Container" | "PersistentVolumeClaim" | "Pod") {
        errors.push(kind.invalid("must be a standard limit type or fully qualified"));
    }
    errors.extend(wrong.into_iter().map(|detail| kind.invalid(detail)));
}

/// The amounts of a resource must be in order: min, default request, default limit, max.
fn contradictions(limit: &Field<'_>, errors: &mut Vec<Error>) {
    let is_of_pods = limit.field("type").text() == "Pod";
    let fields = ["min", "defaultRequest", "default", "max"];
    let resources = fields.iter().chain(&["maxLimitRequestRatio"]).flat_map(|name| limit.field(name).entries());
    let resources: BTreeSet<&str> = resources.map(|(resource, _)| resource).collect();
    for resource in resources {
        let amount = |name: &str| {
            let is_ignored = is_of_pods && name.starts_with("default");
            let field = limit.field(name).key(resource);
            let quantity = Quantity::parse(field.text()).ok().filter(|_| !is_ignored)?;
            Some((field, quantity))
        };
        let (least, asked, limited, most) = (amount("min"), amount("defaultRequest"), amount("default"), amount("max"));
        // The field of the error, the value that it shows, and the two amounts with their names.
        let orders = [
            ("min", &least, &least, "min value", &most, "max value"),
            ("defaultRequest", &asked, &least, "min value", &asked, "default request value"),
            ("defaultRequest", &asked, &asked, "default request value", &most, "max value"),
            ("defaultRequest", &asked, &asked, "default request value", &limited, "default limit value"),
            ("default", &least, &least, "min value", &limited, "default value"),
            ("default", &most, &limited, "default value", &most, "max value"),
        ];
        for (name, shown, smaller, smaller_name, greater, greater_name) in orders {
            if let (Some(shown), Some(smaller), Some(greater)) = (shown, smaller, greater)
                && smaller.1 > greater.1
            {
                let why = format!("{smaller_name} {} is greater than {greater_name} {}", smaller.1, greater.1);
                errors.push(Error::invalid(&limit.field(name).path.key(resource), shown.0.text(), why));
            }
        }
        if let Some((field, ratio)) = amount("maxLimitRequestRatio") {
            if ratio < Quantity::units(1) {
                errors.push(field.invalid(format!("ratio {ratio} is less than 1")));
            }
            if let (Some(least), Some(most)) = (&least, &most) {
                let widest = most.1.within_64_bits().to_f64() / least.1.within_64_bits().to_f64();
                if ratio.within_64_bits().to_f64() > widest {
                    errors.push(field.invalid(format!("ratio {ratio} is greater than max/min = {widest:.6}")));
                }
            }
        }
        if let (Some(asked), Some(limited)) = (&asked, &limited)
            && !resource_name::can_be_overcommitted(resource)
            && asked.1 != limited.1
        {
            let why =
                format!("default value {} must equal to defaultRequest value {} in {resource}", limited.1, asked.1);
            errors.push(asked.0.invalid(why));
        }
    }
}
