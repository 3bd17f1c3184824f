//! Converts between the two forms of an Event, whose fields have different names.

use steersman_machinery::Value;

/// Fields whose names differ: in the core group, and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// Converts from `events.k8s.io` to the core group.
pub(super) fn to_core(mut event: Value) -> Value {
    rename(&mut event, NAMES.map(|(core, events)| (events, core)));
    event
}

/// Converts from the core group to `events.k8s.io`.
pub(super) fn from_core(mut event: Value) -> Value {
    rename(&mut event, NAMES);
    event
}

fn rename(event: &mut Value, names: [(&str, &str); 7]) {
    let Some(fields) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_and_back_is_the_same() {
        let core = json!({
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "p"},
            "message": "m",
            "reason": "R",
            "count": 3,
            "source": {"component": "kubelet"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:10:00Z",
            "reportingComponent": "c",
        });
        let events = from_core(core.clone());
        assert_eq!(events["regarding"]["name"], "p");
        assert_eq!(events["note"], "m");
        assert_eq!(events["deprecatedCount"], 3);
        assert_eq!(events["reportingController"], "c");
        assert_eq!(to_core(events), core);
    }
}
