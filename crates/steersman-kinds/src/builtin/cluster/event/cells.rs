//! The row of an Event in a table.

use crate::builtin::cluster::event::convert;
use crate::builtin::rules::age;
use crate::builtin::rules::cells;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// The row of an Event of `events.k8s.io`.
pub(super) fn of_events(event: &Value, now: Timestamp) -> Vec<Value> {
    of_core(&convert::to_core(event.clone()), now)
}

/// The row of a core Event.
pub(super) fn of_core(event: &Value, now: Timestamp) -> Vec<Value> {
    let time = |path: &[&str]| at(event, path).filter(|time| !time.is_null());
    let since = |time: Option<&Value>| age::since(time.unwrap_or(&Value::Null), now);
    let first = since(time(&["firstTimestamp"]).or(time(&["eventTime"])));
    let mut last = time(&["lastTimestamp"]).map_or_else(|| first.clone(), |last| since(Some(last)));
    let mut count = cells::number(event, &["count"]);
    if at(event, &["series"]).is_some_and(Value::is_object) {
        last = since(time(&["series", "lastObservedTime"]));
        count = cells::number(event, &["series", "count"]);
    } else if count == 0 {
        // An Event of the new API without a series has no count: it was reported once.
        count = 1;
    }
    vec![
        Value::from(last),
        cells::text(event, &["type"]),
        cells::text(event, &["reason"]),
        Value::from(target(event)),
        cells::text(event, &["involvedObject", "fieldPath"]),
        Value::from(source(event)),
        Value::from(str_at(event, &["message"]).unwrap_or_default().trim()),
        Value::from(first),
        Value::from(count),
        cells::name(event),
    ]
}

/// `pod/name`.
fn target(event: &Value) -> String {
    let part = |name: &str| str_at(event, &["involvedObject", name]).unwrap_or_default();
    let kind = part("kind").to_lowercase();
    match part("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// The reporting component and its host.
fn source(event: &Value) -> String {
    let first = |paths: [&[&str]; 2]| {
        paths.into_iter().filter_map(|path| str_at(event, path)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let component = first([&["source", "component"], &["reportingComponent"]]);
    match first([&["source", "host"], &["reportingInstance"]]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
