//! Times that the types of objects cannot hold.
//!
//! A [`Timestamp`] ends a day before the year 9999 does, and objects may hold later ones: "never" is often written as the last second
//! of that year. In what is decoded they are the last time that a timestamp can be.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::DateTime;

/// How every text that may be too late begins.
const BEGINNING: &str = "\"9999-12-3";
const LAST: &str = "9999-12-30T22:00:00.000000Z";

/// The object with the last possible time in place of later ones; nothing if there are none.
pub(super) fn brought_forward(json: &str) -> Option<String> {
    let mut changed: Option<String> = None;
    let mut rest = json;
    while let Some(at) = rest.find(BEGINNING) {
        let (before, from) = rest.split_at(at + 1);
        let Some(end) = from.find('"') else { break };
        let (text, behind) = from.split_at(end);
        let out = changed.get_or_insert_with(|| String::with_capacity(json.len() + LAST.len()));
        out.push_str(before);
        out.push_str(if is_too_late(text) { LAST } else { text });
        rest = behind;
    }
    let mut changed = changed?;
    changed.push_str(rest);
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
        assert_eq!(
            brought_forward(&json("9999-12-31", "9999-12-30T00:00:00Z")),
            Some(json("9999-12-31", "9999-12-30T00:00:00Z"))
        );
        assert_eq!(brought_forward(&json("x", "y")), None);
        assert_eq!(brought_forward(r#"{"a":"9999-12-3"#), None);
        assert!(LAST.parse::<Timestamp>().is_ok());
    }
}
