//! Validation of Events, in the core form. `events.k8s.io` is stricter than the core group.

use crate::builtin::kind::Request;
use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::name;

const LENGTH_MAX: usize = 128;
const NOTE_LENGTH_MAX: usize = 1024;

/// Validates an Event of the core group.
pub(super) fn core(request: &Request<'_>, faults: &mut Vec<Error>) {
    common(&Place::root(request.new), "reportingComponent", faults);
}

/// Validates a new Event of `events.k8s.io`.
pub(super) fn create(request: &Request<'_>, faults: &mut Vec<Error>) {
    let event = Place::root(request.new);
    let has_time = event.field("eventTime").is_present();
    if has_time {
        common(&event, "reportingController", faults);
    } else {
        faults.push(event.field("eventTime").required(""));
        reported(&event, "reportingController", faults);
    }
    match event.field("type").text() {
        "Normal" | "Warning" => {}
        other => faults.push(unsaid("type", format!("has invalid value: {other}"))),
    }
    for (field, is_unset) in [
        ("firstTimestamp", event.field("firstTimestamp").is_absent()),
        ("lastTimestamp", event.field("lastTimestamp").is_absent()),
        ("count", event.field("count").number().unwrap_or(0) == 0),
        ("source", event.field("source").is_empty()),
    ] {
        if !is_unset {
            faults.push(unsaid(field, "needs to be unset"));
        }
    }
    series(&event, faults);
}

/// Validates an update through `events.k8s.io`: only the series may change.
pub(super) fn update(request: &Request<'_>, faults: &mut Vec<Error>) {
    let (event, old) = (Place::root(request.new), Place::root(request.old));
    for field in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingInstance",
    ] {
        rules::immutable(&event.field(field), &old.field(field), faults);
    }
    if event.field("reportingComponent").value != old.field("reportingComponent").value {
        let place = Place { path: Path::new("reportingController"), ..event.field("reportingComponent") };
        faults.push(place.invalid(rules::IMMUTABLE));
    }
    series(&event, faults);
}

fn common(event: &Place<'_>, reporter: &str, faults: &mut Vec<Error>) {
    let namespace = event.at(&["metadata", "namespace"]).text();
    let involved = event.at(&["involvedObject", "namespace"]);
    if event.field("eventTime").is_absent() {
        // An Event about a cluster-scoped object lives in `default`.
        let home = if involved.text().is_empty() { "default" } else { involved.text() };
        if namespace != home && !(involved.text().is_empty() && namespace.is_empty()) {
            faults.push(Error::invalid(&involved.path, involved.text(), "does not match event.namespace"));
        }
        return;
    }
    if involved.text().is_empty() && namespace != "default" && namespace != "kube-system" {
        faults.push(Error::invalid(&involved.path, "", "does not match event.namespace"));
    }
    reported(event, reporter, faults);
}

/// A new Event must name its reporting controller and instance, the action and the reason.
fn reported(event: &Place<'_>, reporter: &str, faults: &mut Vec<Error>) {
    let component = Place { path: Path::new(reporter), ..event.field("reportingComponent") };
    rules::required_name(&component, name::qualified, faults);
    for field in ["reportingInstance", "action", "reason"] {
        let place = event.field(field);
        rules::required(&place, faults);
        if place.text().len() > LENGTH_MAX {
            faults.push(unsaid(field, format!("can have at most {LENGTH_MAX} characters")));
        }
    }
    if event.field("message").text().len() > NOTE_LENGTH_MAX {
        faults.push(unsaid("message", format!("can have at most {NOTE_LENGTH_MAX} characters")));
    }
}

fn series(event: &Place<'_>, faults: &mut Vec<Error>) {
    let series = event.field("series");
    if series.is_absent() {
        return;
    }
    if series.field("count").number().unwrap_or(0) < 2 {
        faults.push(unsaid("series.count", "should be at least 2"));
    }
    rules::required(&series.field("lastObservedTime"), faults);
}

/// An error that does not repeat the value.
fn unsaid(field: &str, detail: impl Into<String>) -> Error {
    Error::invalid(&Path::new(field), Value::from(""), detail)
}
