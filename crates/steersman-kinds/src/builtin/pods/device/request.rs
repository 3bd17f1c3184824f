//! The requests of a claim: their defaults and rules, for claims and for templates of claims.

use crate::builtin::pods::device::selector::selectors;
use crate::builtin::pods::device::{
    CONFIG_MAX, configuration, each, each_once, fully_qualified, itself, label, name_of,
};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use std::collections::BTreeMap;
use steersman_machinery::field::Error;
use steersman_machinery::value::Map;
use steersman_machinery::{Value, name};

const REQUESTS_MAX: usize = 32;
const CONSTRAINTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

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
        configuration(config, errors);
    });
}

fn validate_request(request: &Field<'_>, errors: &mut Vec<Error>) {
    label(&request.field("name"), errors);
    let (exactly, alternatives) = (request.field("exactly"), request.field("firstAvailable"));
    match (exactly.is_present(), !alternatives.is_empty()) {
        (false, false) => {
            errors.push(request.required("exactly one of `exactly` or `firstAvailable` is required"));
        }
        (true, true) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(Error::invalid_without_value(&request.path, why));
        }
        (true, false) => validate_one(&exactly, errors),
        (false, true) => each_once(&alternatives, ALTERNATIVES_MAX, name_of, errors, |one, errors| {
            label(&one.field("name"), errors);
            validate_one(one, errors);
        }),
    }
}

fn validate_one(request: &Field<'_>, errors: &mut Vec<Error>) {
    rules::required_name(&request.field("deviceClassName"), name::dns1123_subdomain, errors);
    selectors(&request.field("selectors"), errors);
    let (mode, count) = (request.field("allocationMode"), request.field("count"));
    let number = count.number().unwrap_or(0);
    match mode.text() {
        "All" if number != 0 => errors.push(count.invalid("must not be specified when allocationMode is 'All'")),
        "ExactCount" if number <= 0 => errors.push(count.invalid("must be greater than zero")),
        "All" | "ExactCount" => {}
        _ => errors.push(mode.not_supported(&["All", "ExactCount"])),
    }
    request.field("tolerations").items().for_each(|toleration| validate_toleration(&toleration, errors));
}

fn validate_toleration(toleration: &Field<'_>, errors: &mut Vec<Error>) {
    let (key, value) = (toleration.field("key"), toleration.field("value"));
    let (operator, effect) = (toleration.field("operator"), toleration.field("effect"));
    if !key.is_empty() {
        rules::named(&key, name::qualified, errors);
    }
    match operator.text() {
        "Exists" if !value.is_empty() => errors.push(value.invalid("must be empty for operator `Exists`")),
        "Exists" => {}
        "Equal" => rules::named(&value, name::label_value, errors),
        "" => errors.push(operator.required("")),
        _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        rules::one_of(&effect, &EFFECTS, errors);
    }
}

/// The rules of a taint of a device.
pub(super) fn validate_taint(taint: &Field<'_>, errors: &mut Vec<Error>) {
    let (key, effect) = (taint.field("key"), taint.field("effect"));
    let wrong = name::qualified(key.text()).into_iter();
    errors.extend(wrong.map(|detail| Error::invalid(&key.path, key.text(), detail)));
    rules::named(&taint.field("value"), name::label_value, errors);
    if effect.is_empty() {
        errors.push(effect.required(""));
    } else {
        rules::one_of(&effect, &EFFECTS, errors);
    }
}
