//! The difference between two answers, with a signature by which like differences are counted together.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::answer::Answer;

/// How many differing places of an object a signature names.
const PLACES_NAMED: usize = 3;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Class {
    /// One accepts and the other refuses.
    Accepted,
    /// Both accept, but the objects differ.
    Stored,
    /// Both refuse, with another status or reason.
    Status,
    /// Both refuse, but blame other fields.
    Blamed,
    Warnings,
    /// The kube-apiserver fails with a 500 where the other refuses.
    Better,
}

#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) class: Class,
    /// The differing places without their values; items of lists are `[]`.
    pub(crate) detail: String,
}

// === impl Class ===

impl Class {
    pub(crate) const ALL: [Class; 6] =
        [Class::Accepted, Class::Stored, Class::Status, Class::Blamed, Class::Warnings, Class::Better];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Class::Accepted => "accepted",
            Class::Stored => "stored",
            Class::Status => "status",
            Class::Blamed => "blamed",
            Class::Warnings => "warnings",
            Class::Better => "better",
        };
        f.pad(word)
    }
}

// === impl Difference ===

impl Difference {
    /// The greatest difference between what the kube-apiserver answered and what the other server did.
    pub(crate) fn find(upstream: &Answer, ours: &Answer) -> Option<Difference> {
        let difference = |class, detail| Some(Difference { class, detail });
        let statuses = || {
            let side = |answer: &Answer| {
                let parts =
                    [&answer.status.to_string(), &answer.reason, &*generic(&answer.blamed.join(",")), range(answer)];
                parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
            };
            format!("{} | {}", side(upstream), side(ours))
        };
        if upstream.status >= 500 && (400..500).contains(&ours.status) {
            return difference(Class::Better, statuses());
        }
        if upstream.is_accepted() != ours.is_accepted() {
            return difference(Class::Accepted, statuses());
        }
        if !upstream.is_accepted() {
            if upstream.status != ours.status || upstream.reason != ours.reason {
                return difference(Class::Status, statuses());
            }
            if upstream.blamed != ours.blamed {
                let only = |left: &Answer, right: &Answer| {
                    let fields = left.blamed.iter().filter(|field| !right.blamed.contains(field));
                    fields
                        .map(|field| generic(field))
                        .collect::<BTreeSet<_>>()
                        .into_iter()
                        .collect::<Vec<_>>()
                        .join(",")
                };
                let ours_only = [&*only(ours, upstream), range(ours)].join(" ");
                return difference(Class::Blamed, format!("{} | {}", only(upstream, ours), ours_only.trim()));
            }
        } else if upstream.status != ours.status {
            return difference(Class::Status, statuses());
        } else {
            let mut places = BTreeSet::new();
            compare("", &upstream.body, &ours.body, &mut places);
            if !places.is_empty() {
                let named: Vec<String> = places.into_iter().take(PLACES_NAMED).collect();
                return difference(Class::Stored, named.join(" "));
            }
        }
        if upstream.warnings != ours.warnings {
            let only = |left: &Answer, right: &Answer| {
                let texts = left.warnings.iter().filter(|text| !right.warnings.contains(text));
                texts.map(|text| generic(text)).collect::<Vec<_>>().join("; ")
            };
            return difference(Class::Warnings, format!("{} | {}", only(upstream, ours), only(ours, upstream)));
        }
        None
    }
}

/// The words of a signature for an answer that refuses a number because its field has fewer bits. The kube-apiserver wraps some of these around.
fn range(answer: &Answer) -> &'static str {
    if answer.message.contains(" must be a whole number from ") { "out of range" } else { "" }
}

/// The places where two values differ.
fn compare(path: &str, upstream: &Value, ours: &Value, places: &mut BTreeSet<String>) {
    match (upstream, ours) {
        (Value::Object(upstream), Value::Object(ours)) => {
            for (name, value) in upstream {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match ours.get(name) {
                    Some(other) => compare(&below, value, other, places),
                    None => {
                        places.insert(format!("-{below}"));
                    }
                }
            }
            for name in ours.keys().filter(|name| !upstream.contains_key(*name)) {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                places.insert(format!("+{below}"));
            }
        }
        (Value::Array(upstream), Value::Array(ours)) if upstream.len() == ours.len() => {
            for (value, other) in upstream.iter().zip(ours) {
                compare(&format!("{path}[]"), value, other, places);
            }
        }
        (upstream, ours) if upstream == ours => {}
        _ => {
            places.insert(format!("~{path}"));
        }
    }
}

/// Text with what is in brackets left out: indices and keys.
fn generic(text: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0_usize;
    for letter in text.chars() {
        match letter {
            '[' => {
                depth += 1;
                kept.push('[');
            }
            ']' => {
                depth = depth.saturating_sub(1);
                kept.push(']');
            }
            _ if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, blamed: &[&str], body: Value) -> Answer {
        let blamed = blamed.iter().map(|field| (*field).to_owned()).collect();
        Answer { status, reason: String::new(), blamed, warnings: Vec::new(), body, message: String::new() }
    }

    fn class(upstream: &Answer, ours: &Answer) -> Option<(Class, String)> {
        Difference::find(upstream, ours).map(|difference| (difference.class, difference.detail))
    }

    #[test]
    fn each_class_is_told_from_the_others() {
        let stored = |value: i32| answer(201, &[], json!({"spec": {"items": [{"a": value}]}}));
        assert_eq!(class(&stored(1), &stored(1)), None);
        assert_eq!(class(&stored(1), &stored(2)), Some((Class::Stored, "~spec.items[].a".to_owned())));
        let refused = |status, field| answer(status, &[field], Value::Null);
        assert_eq!(class(&refused(422, "a"), &stored(1)).map(|(class, _)| class), Some(Class::Accepted));
        assert_eq!(class(&refused(422, "a"), &refused(400, "a")).map(|(class, _)| class), Some(Class::Status));
        assert_eq!(class(&refused(500, ""), &refused(400, "")).map(|(class, _)| class), Some(Class::Better));
        assert_eq!(
            class(&refused(422, "a[1].b"), &refused(422, "a[0]")),
            Some((Class::Blamed, "a[].b | a[]".to_owned()))
        );
    }

    #[test]
    fn a_number_that_has_too_many_bits_is_told_from_other_faults() {
        let out_of_range = |status| {
            let message =
                "spec.replicas must be a whole number from -2147483648 to 2147483647, not 3000000000".to_owned();
            Answer { message, ..answer(status, &["patch"], Value::Null) }
        };
        let wrapped = answer(422, &["spec.replicas"], Value::Null);
        let detail = |ours: &Answer| class(&wrapped, ours).unwrap().1;
        assert_eq!(detail(&out_of_range(400)), "422 spec.replicas | 400 patch out of range");
        assert_eq!(detail(&out_of_range(422)), "spec.replicas | patch out of range");
        assert_eq!(detail(&answer(400, &[], Value::Null)), "422 spec.replicas | 400");
    }
}
