//! Times that the types of objects cannot hold.
//!
//! A [`Timestamp`] ends a day before the end of the year 9999, and objects may hold later ones: "never" is often
//! written as the last second of that year. Decoded objects have the last possible timestamp instead.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::DateTime;

/// The prefix of every text that may be too late.
const BEGINNING: &str = "\"9999-12-3";
const LAST: &str = "9999-12-30T22:00:00.000000Z";

/// The object with the last possible time in place of later ones; `None` if it has none.
pub(super) fn brought_forward(json: &str) -> Option<String> {
    let mut changed = String::new();
    let (mut copied, mut from) = (0, 0);
    while let Some(at) = json[from..].find(BEGINNING) {
        let begin = from + at + 1;
        from = begin;
        // An escaped quote within a string, such as an annotation that holds a whole object, begins no string of its
        // own.
        let is_escaped = json[..begin - 1].ends_with('\\');
        let Some(end) = json[begin..].find('"').map(|length| begin + length) else { break };
        if !is_escaped && is_too_late(&json[begin..end]) {
            changed.push_str(&json[copied..begin]);
            changed.push_str(LAST);
            copied = end;
        }
    }
    if copied == 0 {
        return None;
    }
    changed.push_str(&json[copied..]);
    Some(changed)
}

fn is_too_late(text: &str) -> bool {
    let is_time = text.get(..19).is_some_and(|local| local.parse::<DateTime>().is_ok());
    is_time && text.len() > 19 && text.parse::<Timestamp>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_too_late_become_the_last_that_is_possible() {
        let json = |a: &str, b: &str| format!(r#"{{"a":"{a}","k":["{b}"],"text":"ends 9999-12-31T23:59:59Z"}}"#);
        let never = "9999-12-31T23:59:59Z";
        assert_eq!(brought_forward(&json(never, "x")), Some(json(LAST, "x")));
        assert_eq!(brought_forward(&json("2026-01-01T00:00:00Z", never)), Some(json("2026-01-01T00:00:00Z", LAST)));
        assert_eq!(brought_forward(&json("9999-12-31", "9999-12-30T00:00:00Z")), None);
        assert_eq!(brought_forward(&json("x", "y")), None);
        assert_eq!(brought_forward(r#"{"a":"9999-12-3"#), None);
        assert!(LAST.parse::<Timestamp>().is_ok());
    }

    #[test]
    fn an_object_within_an_annotation_stays_as_it_is() {
        let json = |until: &str| {
            format!(r#"{{"applied":"{{\"until\":\"9999-12-31T23:59:59Z\",\"a\":\"b\"}}\n","until":"{until}"}}"#)
        };
        let changed = brought_forward(&json("9999-12-31T23:59:59Z")).unwrap();
        assert_eq!(changed, json(LAST));
        assert!(serde_json::from_str::<serde_json::Value>(&changed).is_ok());
    }
}
