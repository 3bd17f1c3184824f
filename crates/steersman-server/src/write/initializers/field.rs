//! The field `metadata.initializers` of an object: the pending initializers, whose turn it is, and the allowed changes.
//!
//! The messages of validation errors follow apimachinery's `api/validation` of Kubernetes 1.13.

use crate::write::initializers::{ASKED_DOMAIN, ASKS, Configured, OnTimeout};
use jiff::Timestamp;
use serde_json::json;
use std::collections::HashSet;
use steersman_kinds::builtin::cluster::admission_registration::initializer::name_faults;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at};

const INITIALIZERS: [&str; 2] = ["metadata", "initializers"];
const PENDING: [&str; 3] = ["metadata", "initializers", "pending"];
const RESULT: [&str; 3] = ["metadata", "initializers", "result"];
const CURRENT: [&str; 3] = ["metadata", "initializers", "current"];

/// The initializer that an object is waiting for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Turn {
    pub(crate) name: String,
    pub(crate) since: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) on_timeout: OnTimeout,
}

/// Whether the object has the field, even if it is empty.
pub(crate) fn is_given(object: &Value) -> bool {
    at(object, &INITIALIZERS).is_some_and(|initializers| !initializers.is_null())
}

/// The names of the pending initializers, the next one first.
pub(crate) fn pending(object: &Value) -> Vec<&str> {
    let list = at(object, &PENDING).and_then(Value::as_array);
    list.into_iter().flatten().map(|one| str_at(one, &["name"]).unwrap_or_default()).collect()
}

/// The Status that says why the object could not be initialized.
pub(crate) fn result(object: &Value) -> Option<&Value> {
    at(object, &RESULT).filter(|result| !result.is_null())
}

/// The initializer whose turn it is, as recorded by the server.
pub(crate) fn turn(object: &Value) -> Option<Turn> {
    let current = at(object, &CURRENT)?;
    let time = |field| str_at(current, &[field])?.parse().ok();
    Some(Turn {
        name: str_at(current, &["name"])?.to_owned(),
        since: time("since")?,
        deadline: time("deadline")?,
        on_timeout: OnTimeout::parse(str_at(current, &["failurePolicy"]).unwrap_or_default()),
    })
}

/// Removes the field if nothing is pending and there is no result: the object is initialized.
pub(crate) fn normalize(object: &mut Value) {
    if is_given(object) && pending(object).is_empty() && result(object).is_none() {
        remove_at(object, &INITIALIZERS);
    }
}

/// Makes the object wait for these initializers, in this order.
pub(crate) fn set_pending(object: &mut Value, names: &[Box<str>]) {
    let pending: Vec<Value> = names.iter().map(|name| json!({"name": &**name})).collect();
    set_at(object, &INITIALIZERS, json!({"pending": pending}));
}

/// Removes the first pending initializer.
pub(crate) fn pass_over(object: &mut Value) {
    if let Some(Value::Array(pending)) = object_at(object, &INITIALIZERS).and_then(|field| field.get_mut("pending"))
        && !pending.is_empty()
    {
        pending.remove(0);
    }
}

/// Sets the Status that says why the object could not be initialized.
pub(crate) fn set_result(object: &mut Value, status: Value) {
    set_at(object, &RESULT, status);
}

/// Copies the field from the old object.
pub(crate) fn carry(new: &mut Value, old: &Value) {
    match at(old, &INITIALIZERS) {
        Some(before) => {
            set_at(new, &INITIALIZERS, before.clone());
        }
        None => {
            remove_at(new, &INITIALIZERS);
        }
    }
}

/// Records whose turn it is, and until when. An initializer that was already first keeps its deadline; a client cannot
/// change this.
pub(crate) fn set_turn(new: &mut Value, old: Option<&Value>, configured: &Configured, now: Timestamp) {
    if !is_given(new) {
        return;
    }
    let first = pending(new).first().map(|name| (*name).to_owned());
    let Some(first) = first else {
        remove_at(new, &CURRENT);
        return;
    };
    let before = old.filter(|old| turn(old).is_some_and(|turn| turn.name == first)).and_then(|old| at(old, &CURRENT));
    let current = before.cloned().unwrap_or_else(|| {
        let timeout_policy = configured.timeout_policy(&first);
        let deadline = now.checked_add(timeout_policy.timeout).unwrap_or(Timestamp::MAX);
        json!({
            "name": first, "since": precise(now), "deadline": precise(deadline),
            "failurePolicy": timeout_policy.on_timeout.as_str(),
        })
    });
    set_at(new, &CURRENT, current);
}

/// A time to the microsecond.
fn precise(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// The initializers that the annotations of an object ask for.
pub(crate) fn asked(object: &Value) -> Vec<String> {
    let annotations = at(object, &["metadata", "annotations"]).and_then(Value::as_object);
    let asks = annotations.into_iter().flatten().filter(|(_, value)| *value == "true");
    asks.filter_map(|(key, _)| key.strip_prefix(ASKS)).map(|short| format!("{short}{ASKED_DOMAIN}")).collect()
}

/// The validation errors of the field in a new object.
pub(crate) fn validate_create(object: &Value) -> Vec<Error> {
    let path = Path::new("metadata.initializers");
    let mut errors = validate_names(object, &path);
    if result(object).is_some() {
        errors.push(Error::forbidden(&path.child("result"), "is set by initializers, in an update"));
    }
    errors
}

/// The validation errors of a change of the field. Both objects are normalized.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Error> {
    let path = Path::new("metadata.initializers");
    if !is_given(new) {
        return Vec::new();
    }
    if !is_given(old) {
        let given = at(new, &INITIALIZERS).cloned().unwrap_or_default();
        return vec![Error::invalid(&path, given, "field is immutable once initialization has completed")];
    }
    let mut errors = validate_names(new, &path);
    let result_path = path.child("result");
    match (result(new), result(old)) {
        (now, Some(before)) if now != Some(before) => {
            errors.push(Error::invalid(&result_path, now.cloned().unwrap_or_default(), "field is immutable"));
        }
        (Some(now), None) => {
            let status = str_at(now, &["status"]).unwrap_or_default();
            if status != "Failure" {
                errors.push(Error::invalid(&result_path.child("status"), status, "must be 'Failure'"));
            }
        }
        (_, Some(_)) | (None, None) => {}
    }
    errors.extend(validate_order(&pending(new), &pending(old), &path));
    errors
}

fn validate_names(object: &Value, path: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    for (index, name) in pending(object).iter().enumerate() {
        let path = path.child("pending").index(index).child("name");
        if !seen.insert(*name) {
            errors.push(Error::duplicate(&path, json!(name)));
        }
        errors.extend(name_faults(name).into_iter().map(|fault| Error::invalid(&path, *name, fault)));
    }
    errors
}

/// Pending initializers are removed from the front only, since later ones have not run yet. None may be added, or two
/// that add each other would keep the object for ever.
fn validate_order(new: &[&str], old: &[&str], path: &Path) -> Option<Error> {
    if old.ends_with(new) {
        return None;
    }
    let why = format!("initializers run in order: of {} only the first can be removed, and none added", old.join(", "));
    Some(Error::invalid(&path.child("pending"), json!(new), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(pending: &[&str]) -> Value {
        let pending: Vec<Value> = pending.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {"name": "o", "initializers": {"pending": pending}}})
    }

    #[track_caller]
    fn check(old: &Value, new: &Value, want: &[&str]) {
        let found: Vec<String> = validate_update(new, old).iter().map(ToString::to_string).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn an_object_is_initialized_once_and_for_all() {
        let done = json!({"metadata": {"name": "o"}});
        check(&object(&["a.b.c"]), &done, &[]);
        check(&done, &done, &[]);
        let again = validate_update(&object(&["a.b.c"]), &done)[0].to_string();
        assert!(again.ends_with("field is immutable once initialization has completed"), "{again}");
    }

    #[test]
    fn initializers_go_from_the_front_and_none_joins() {
        let old = object(&["a.b.c", "d.e.f", "g.h.i"]);
        for new in [&["d.e.f", "g.h.i"][..], &["g.h.i"], &["a.b.c", "d.e.f", "g.h.i"]] {
            check(&old, &object(new), &[]);
        }
        for new in [&["a.b.c", "g.h.i"][..], &["d.e.f", "a.b.c", "g.h.i"], &["g.h.i", "a.b.c"], &["j.k.l"]] {
            let found = validate_update(&object(new), &old);
            let want =
                "initializers run in order: of a.b.c, d.e.f, g.h.i only the first can be removed, and none added";
            assert!(found.iter().any(|error| error.to_string().ends_with(want)), "{new:?}: {found:?}");
        }
    }

    #[test]
    fn a_result_is_a_failure_and_stays() {
        let old = object(&["a.b.c"]);
        let with = |status: &str| {
            let mut new = old.clone();
            set_result(&mut new, json!({"status": status, "message": "no"}));
            new
        };
        check(&old, &with("Failure"), &[]);
        check(
            &old,
            &with("Success"),
            &["metadata.initializers.result.status: Invalid value: \"Success\": must be 'Failure'"],
        );
        let immutable = validate_update(&old, &with("Failure"))[0].to_string();
        assert!(immutable.starts_with("metadata.initializers.result: Invalid value: "), "{immutable}");
    }

    #[test]
    fn names_are_domains_of_three_parts() {
        let found: Vec<String> =
            validate_create(&object(&["envoy", "A.b.c", "a.b.c", "a.b.c"])).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].ends_with("should be a domain with at least three segments separated by dots"), "{found:?}");
        assert!(found[2].contains("Duplicate value"), "{found:?}");
    }

    #[test]
    fn a_turn_keeps_its_deadline_whatever_clients_write() {
        let configured = Configured::default();
        let now: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
        let mut first = object(&["a.b.c", "d.e.f"]);
        set_turn(&mut first, None, &configured, now);
        let begun = turn(&first).unwrap();
        assert_eq!((begun.name.as_str(), begun.since), ("a.b.c", now));
        assert_eq!(begun.deadline, "2026-01-01T00:00:30.5Z".parse().unwrap());
        let later = "2026-01-01T00:00:10Z".parse().unwrap();
        let mut same = object(&["a.b.c", "d.e.f"]);
        same["metadata"]["initializers"]["current"] = json!({"name": "a.b.c", "deadline": "2099-01-01T00:00:00Z"});
        set_turn(&mut same, Some(&first), &configured, later);
        assert_eq!(turn(&same).unwrap(), begun);
        let mut second = object(&["d.e.f"]);
        set_turn(&mut second, Some(&first), &configured, later);
        assert_eq!((turn(&second).unwrap().name.as_str(), turn(&second).unwrap().since), ("d.e.f", later));
    }

    #[test]
    fn annotations_ask_by_the_short_name() {
        let annotations = json!({
            "initializer.kubernetes.io/envoy": "true", "initializer.kubernetes.io/other": "false", "x.y/z": "true",
        });
        let object = json!({"metadata": {"annotations": annotations}});
        assert_eq!(asked(&object), ["envoy.initializer.kubernetes.io"]);
    }
}
