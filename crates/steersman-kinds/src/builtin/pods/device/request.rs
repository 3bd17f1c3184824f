//! The requests of a claim: their defaults and rules, for claims and for templates of claims.

use crate::builtin::pods::device::selector::{SELECTOR, SELECTORS_MAX};
use crate::builtin::pods::device::{CONFIG_MAX, CONFIGURATION, each, each_once, fully_qualified, itself, name_of};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use std::collections::BTreeMap;
use steersman_machinery::field::Error;
use steersman_machinery::value::{Map, unless_set};
use steersman_machinery::{Value, name};

const REQUESTS_MAX: usize = 32;
const CONSTRAINTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// The names of the requests of a claim, each with the names of its alternatives.
pub(super) struct Names<'a>(BTreeMap<&'a str, Vec<&'a str>>);

impl<'a> Names<'a> {
    /// The names in the spec of a claim.
    pub(super) fn of(spec: &Field<'a>) -> Names<'a> {
        let requests = spec.at(&["devices", "requests"]);
        let names = requests.items().map(|request| {
            let alternatives = request.field("firstAvailable");
            (request.field("name").text(), alternatives.items().map(|one| one.field("name").text()).collect())
        });
        Names(names.collect())
    }

    /// The string must name a request, or an alternative of one.
    pub(super) fn validate(&self, reference: &Field<'_>, errors: &mut Vec<Error>) {
        const WHY: &str =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let parts: Vec<&str> = reference.text().split('/').collect();
        if parts.len() <= 2 {
            for part in &parts {
                let wrong = name::dns1123_label(part).into_iter();
                errors.extend(wrong.map(|detail| Error::invalid(&reference.path, *part, detail)));
            }
        }
        let is_known = match parts.as_slice() {
            [request] => self.0.contains_key(request),
            [request, alternative] => self.0.get(request).is_some_and(|all| all.contains(alternative)),
            _ => false,
        };
        if !is_known {
            errors.push(Error::invalid(&reference.path, reference.text(), WHY));
        }
    }

    /// The rules of a list of such references.
    pub(super) fn validate_all(&self, references: &Field<'_>, errors: &mut Vec<Error>) {
        each_once(references, REQUESTS_MAX, itself, errors, |reference, errors| self.validate(reference, errors));
    }
}

/// Sets the defaults in the spec of a claim.
pub(super) fn default(spec: Option<&mut Value>) {
    let requests = spec.and_then(|spec| spec.pointer_mut("/devices/requests")).and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly").and_then(Value::as_object_mut) {
            default_one(exactly);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut).into_iter().flatten();
        alternatives.filter_map(Value::as_object_mut).for_each(default_one);
    }
}

fn default_one(request: &mut Map) {
    if request.get("allocationMode").and_then(Value::as_str).is_none_or(str::is_empty) {
        request.insert("allocationMode".to_owned(), "ExactCount".into());
    }
    let is_zero = request.get("count").and_then(Value::as_i64).unwrap_or(0) == 0;
    if is_zero && request["allocationMode"] == "ExactCount" {
        request.insert("count".to_owned(), 1.into());
    }
    let tolerations = request.get_mut("tolerations").and_then(Value::as_array_mut).into_iter().flatten();
    for toleration in tolerations.filter_map(Value::as_object_mut) {
        unless_set(toleration, "operator", "Equal");
    }
}

/// The rules of the spec of a claim.
pub(super) fn validate(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let devices = spec.field("devices");
    let names = Names::of(spec);
    each_once(&devices.field("requests"), REQUESTS_MAX, name_of, errors, validate_request);
    each(&devices.field("constraints"), CONSTRAINTS_MAX, errors, |constraint, errors| {
        names.validate_all(&constraint.field("requests"), errors);
        let (same, different) = (constraint.field("matchAttribute"), constraint.field("distinctAttribute"));
        if same.is_present() {
            fully_qualified(&same, errors);
        } else if different.is_present() {
            fully_qualified(&different, errors);
        } else {
            // Upstream takes the end of this text from another case.
            let why =
                r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
            errors.push(constraint.required(why));
        }
    });
    each(&devices.field("config"), CONFIG_MAX, errors, |config, errors| {
        names.validate_all(&config.field("requests"), errors);
        check_field(CONFIGURATION, config, errors);
    });
}

fn validate_request(request: &Field<'_>, errors: &mut Vec<Error>) {
    check_field(NAME, request, errors);
    let (exactly, alternatives) = (request.field("exactly"), request.field("firstAvailable"));
    match (exactly.is_present(), !alternatives.is_empty()) {
        (false, false) => {
            errors.push(request.required("exactly one of `exactly` or `firstAvailable` is required"));
        }
        (true, true) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(Error::invalid_without_value(&request.path, why));
        }
        (true, false) => check_field(ONE, &exactly, errors),
        (false, true) => each_once(&alternatives, ALTERNATIVES_MAX, name_of, errors, |one, errors| {
            check_field(NAME, one, errors);
            check_field(ONE, one, errors);
        }),
    }
}

pub(in crate::builtin) const NAME: &[Rule] = &[Rule::new("name", Check::Format(name::dns1123_label))];

/// The rules of a request, or of an alternative of one.
pub(in crate::builtin) const ONE: &[Rule] = &[
    Rule::new("deviceClassName", Check::Format(name::dns1123_subdomain)).and_required(""),
    Rule::new("selectors[]", Check::Rules(SELECTOR)).up_to(SELECTORS_MAX),
    Rule::new("", Check::By(allocation_mode)),
    Rule::new("tolerations[]", Check::Rules(TOLERATION)),
];

const TOLERATION: &[Rule] = &[
    Rule::new("key", Check::Format(name::qualified)).unless_empty(),
    Rule::new("", Check::By(toleration_value)),
    Rule::new("effect", Check::OneOf(EFFECTS)).unless_empty(),
];

/// The rules of a taint of a device.
pub(super) const TAINT: &[Rule] = &[
    Rule::new("key", Check::Format(name::qualified)),
    Rule::new("value", Check::Format(name::label_value)),
    Rule::new("effect", Check::OneOf(EFFECTS)).and_required(""),
];

fn allocation_mode(request: &Field<'_>, errors: &mut Vec<Error>) {
    let (mode, count) = (request.field("allocationMode"), request.field("count"));
    let number = count.number().unwrap_or(0);
    match mode.text() {
        "All" if number != 0 => errors.push(count.invalid("must not be specified when allocationMode is 'All'")),
        "ExactCount" if number <= 0 => errors.push(count.invalid("must be greater than zero")),
        "All" | "ExactCount" => {}
        _ => errors.push(mode.not_supported(&["All", "ExactCount"])),
    }
}

fn toleration_value(toleration: &Field<'_>, errors: &mut Vec<Error>) {
    let (operator, value) = (toleration.field("operator"), toleration.field("value"));
    match operator.text() {
        "Exists" if !value.is_empty() => errors.push(value.invalid("must be empty for operator `Exists`")),
        "Exists" => {}
        "Equal" => rules::named(&value, name::label_value, errors),
        "" => errors.push(operator.required("")),
        _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
    }
}
