//! Validation of Events, in the core form. `events.k8s.io` is stricter than the core group.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::name;

const LENGTH_MAX: usize = 128;
const NOTE_LENGTH_MAX: usize = 1024;

/// The rules of Events of the core group.
pub(super) const CORE: &[Rule] =
    &[Rule::new("", Check::By(|event, errors| common(event, "reportingComponent", errors)))];

/// The rules of Events of `events.k8s.io`: an update may change the series only.
pub(super) const EVENTS: &[Rule] = &[
    Rule::new("", Check::By(create)).on_create(),
    Rule::new("", Check::By(|event, errors| common(event, "reportingController", errors))).on_update(),
    Rule::new("involvedObject", Check::Immutable),
    Rule::new("reason", Check::Immutable),
    Rule::new("message", Check::Immutable),
    Rule::new("source", Check::Immutable),
    Rule::new("firstTimestamp", Check::Immutable),
    Rule::new("lastTimestamp", Check::Immutable),
    Rule::new("count", Check::Immutable),
    Rule::new("type", Check::Immutable),
    Rule::new("eventTime", Check::Immutable),
    Rule::new("action", Check::Immutable),
    Rule::new("related", Check::Immutable),
    Rule::new("reportingInstance", Check::Immutable),
    Rule::new("reportingComponent", Check::Immutable).blaming("reportingController"),
    Rule::new("series", Check::By(series)).if_present(),
];

/// Validates a new Event of `events.k8s.io`.
fn create(event: &Field<'_>, errors: &mut Vec<Error>) {
    common(event, "reportingController", errors);
    rules::required(&event.field("eventTime"), errors);
    match event.field("type").text() {
        "Normal" | "Warning" => {}
        other => errors.push(unsaid("type", format!("has invalid value: {other}"))),
    }
    for (field, is_unset) in [
        ("firstTimestamp", event.field("firstTimestamp").is_absent()),
        ("lastTimestamp", event.field("lastTimestamp").is_absent()),
        ("count", event.field("count").number().unwrap_or(0) == 0),
        ("source", event.field("source").is_empty()),
    ] {
        if !is_unset {
            errors.push(unsaid(field, "needs to be unset"));
        }
    }
}

fn common(event: &Field<'_>, reporter: &str, errors: &mut Vec<Error>) {
    let namespace = event.at(&["metadata", "namespace"]).text();
    let involved = event.at(&["involvedObject", "namespace"]);
    if event.field("eventTime").is_absent() {
        // An Event about a cluster-scoped object lives in `default`.
        let home = if involved.text().is_empty() { "default" } else { involved.text() };
        if namespace != home && !(involved.text().is_empty() && namespace.is_empty()) {
            errors.push(Error::invalid(&involved.path, involved.text(), "does not match event.namespace"));
        }
        return;
    }
    if involved.text().is_empty() && namespace != "default" && namespace != "kube-system" {
        errors.push(Error::invalid(&involved.path, "", "does not match event.namespace"));
    }
    reported(event, reporter, errors);
}

/// A new Event must name its reporting controller and instance, the action and the reason.
fn reported(event: &Field<'_>, reporter: &str, errors: &mut Vec<Error>) {
    let component = Field { path: Path::new(reporter), ..event.field("reportingComponent") };
    rules::required_name(&component, name::qualified, errors);
    for name in ["reportingInstance", "action", "reason"] {
        let field = event.field(name);
        rules::required(&field, errors);
        if field.text().len() > LENGTH_MAX {
            errors.push(unsaid(name, format!("can have at most {LENGTH_MAX} characters")));
        }
    }
    if event.field("message").text().len() > NOTE_LENGTH_MAX {
        errors.push(unsaid("message", format!("can have at most {NOTE_LENGTH_MAX} characters")));
    }
}

fn series(series: &Field<'_>, errors: &mut Vec<Error>) {
    if series.field("count").number().unwrap_or(0) < 2 {
        errors.push(unsaid("series.count", "should be at least 2"));
    }
    rules::required(&series.field("lastObservedTime"), errors);
}

/// An error that does not repeat the value.
fn unsaid(field: &str, detail: impl Into<String>) -> Error {
    Error::invalid(&Path::new(field), Value::from(""), detail)
}
