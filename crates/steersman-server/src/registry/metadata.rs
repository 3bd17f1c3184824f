//! The metadata of all kinds: which fields the server sets, and their validation.
//!
//! Rules and texts follow apimachinery's `api/validation` and apiserver's `registry/rest`.

use crate::strategy::Strategy;
use serde_json::json;
use std::collections::HashSet;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{self, Map};
use steersman_machinery::{Value, name};

/// Bytes that the annotations of one object may take, keys and values together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Finalizers that need no domain: the server itself knows them.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];
/// The fields that an update keeps, whatever the client sends.
const KEPT: [&str; 7] =
    ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "name", "namespace", "uid"];

/// The metadata of an object.
pub(crate) fn of(value: &Value) -> Option<&Map> {
    value.get("metadata").and_then(Value::as_object)
}

/// A text in the metadata, empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    value::str_at(object, &["metadata", key]).unwrap_or("")
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = value::at(object, &["metadata", "finalizers"]).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Sets the metadata of a new object that only the server decides, in place of what the client has sent.
pub(crate) fn prepare_create(object: &mut Value, uid: String, now: String) {
    let Some(metadata) = value::object_at(object, &["metadata"]) else { return };
    for key in ["deletionGracePeriodSeconds", "deletionTimestamp", "generation", "selfLink"] {
        metadata.remove(key);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
}

/// Carries over what an update cannot change.
pub(crate) fn prepare_update(new: &mut Value, old: &Value) {
    let Some(metadata) = value::object_at(new, &["metadata"]) else { return };
    metadata.remove("selfLink");
    for key in KEPT {
        match (value::at(old, &["metadata", key]), metadata.get_mut(key)) {
            (Some(kept), Some(sent)) if sent == kept => {}
            (Some(kept), _) => {
                metadata.insert(key.to_owned(), kept.clone());
            }
            (None, Some(_)) => {
                metadata.remove(key);
            }
            (None, None) => {}
        }
    }
}

/// The faults of a new object's metadata.
pub(crate) fn validate_create(object: &Value, strategy: &dyn Strategy, is_custom: bool) -> Vec<Error> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    let (given, base) = (text(object, "name"), text(object, "generateName"));
    if given.is_empty() {
        errors.push(Error::required(&path.child("name"), "name or generateName is required"));
    } else {
        let faults = strategy
            .name_faults(given)
            .into_iter()
            .chain(name::path_segment(given).into_iter().filter(|_| strategy.name_faults(given).is_empty()));
        errors.extend(faults.map(|fault| Error::invalid(&path.child("name"), given, fault)));
    }
    if !base.is_empty() && text(object, "name").is_empty() {
        let stem = base.trim_end_matches('-');
        errors.extend(
            strategy
                .name_faults(stem)
                .into_iter()
                .map(|fault| Error::invalid(&path.child("generateName"), base, fault)),
        );
    }
    errors.extend(validate(object, is_custom));
    errors
}

/// The faults of a change in the metadata.
pub(crate) fn validate_update(new: &Value, old: &Value, is_custom: bool) -> Vec<Error> {
    let mut errors = validate(new, is_custom);
    let is_deleting = !text(new, "deletionTimestamp").is_empty();
    if is_deleting {
        let before: HashSet<&str> = finalizers(old).into_iter().collect();
        let added: Vec<&str> = finalizers(new).into_iter().filter(|one| !before.contains(one)).collect();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|one| format!("{one:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            let error = Error::forbidden(&Path::new("metadata.finalizers"), detail);
            // Upstream checks this both before and within the kind's validation; clients see the cause twice.
            errors.extend([error.clone(), error]);
        }
    }
    errors
}

fn validate(object: &Value, is_custom: bool) -> Vec<Error> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    let Some(metadata) = of(object) else {
        return vec![Error::required(&path, "")];
    };
    if let Some(labels) = metadata.get("labels").and_then(Value::as_object) {
        validate_labels(labels, &path.child("labels"), &mut errors);
    }
    if let Some(annotations) = metadata.get("annotations").and_then(Value::as_object) {
        validate_annotations(annotations, &path.child("annotations"), &mut errors);
    }
    for (index, finalizer) in finalizers(object).into_iter().enumerate() {
        let path = path.child("finalizers").index(index);
        let faults = name::qualified(finalizer);
        let is_known = finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer);
        errors.extend(faults.iter().map(|fault| Error::invalid(&path, finalizer, fault.as_str())));
        if faults.is_empty() && !is_known && !is_custom {
            errors.push(Error::invalid(
                &path,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    if let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) {
        validate_owners(owners, &path.child("ownerReferences"), &mut errors);
    }
    errors
}

/// The faults of labels.
pub(crate) fn validate_labels(labels: &Map, path: &Path, errors: &mut Vec<Error>) {
    for (key, label) in labels {
        errors.extend(name::qualified(key).into_iter().map(|fault| Error::invalid(path, key.as_str(), fault)));
        if let Some(text) = label.as_str() {
            errors.extend(name::label_value(text).into_iter().map(|fault| Error::invalid(path, text, fault)));
        }
    }
}

fn validate_annotations(annotations: &Map, path: &Path, errors: &mut Vec<Error>) {
    let mut bytes = 0;
    for (key, annotation) in annotations {
        let faults = name::qualified(&key.to_lowercase());
        errors.extend(faults.into_iter().map(|fault| Error::invalid(path, key.as_str(), fault)));
        bytes += key.len() + annotation.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(Error::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
}

fn validate_owners(owners: &[Value], path: &Path, errors: &mut Vec<Error>) {
    let mut controllers: Vec<&str> = Vec::new();
    for (index, owner) in owners.iter().enumerate() {
        let path = path.index(index);
        for (key, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            let text = owner.get(key).and_then(Value::as_str).unwrap_or("");
            if text.is_empty() {
                errors.push(Error::invalid(&path.child(key), text, detail));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers.push(owner.get("name").and_then(Value::as_str).unwrap_or(""));
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(Error::invalid(path, json!(owners), detail));
    }
}

/// Takes away owners that are named twice; the text of the warning if there were any.
pub(crate) fn deduplicate_owners(object: &mut Value) -> Option<String> {
    let owners = value::object_at(object, &["metadata"])?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut repeated: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    owners.retain(|owner| {
        let is_new = seen.insert(owner.to_string());
        if is_new {
            return true;
        }
        if let Some(uid) = owner.get("uid").and_then(Value::as_str) {
            repeated.push(uid.to_owned());
        }
        false
    });
    (!repeated.is_empty()).then(|| {
        format!(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}", repeated.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_cannot_change_what_is_the_servers() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3, "creationTimestamp": "t"}});
        let mut new = json!({"metadata": {"name": "a", "uid": "v", "deletionTimestamp": "x", "labels": {"a": "b"}}});
        prepare_update(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"name": "a", "uid": "u", "generation": 3, "creationTimestamp": "t", "labels": {"a": "b"}}})
        );
    }

    #[test]
    fn finalizers_need_a_domain_and_none_come_late() {
        let with =
            |finalizers: Value| json!({"metadata": {"name": "a", "deletionTimestamp": "t", "finalizers": finalizers}});
        assert_eq!(validate(&with(json!(["orphan", "example.com/x"])), false), []);
        assert_eq!(
            validate(&with(json!(["hold"])), false)[0].to_string(),
            "metadata.finalizers[0]: Invalid value: \"hold\": name is neither a standard finalizer name nor is it fully qualified"
        );
        assert_eq!(validate(&with(json!(["hold"])), true), []);
        let errors = validate_update(&with(json!(["a.b/c", "a.b/d"])), &with(json!(["a.b/c"])), false);
        assert_eq!(errors.len(), 2);
        assert!(errors[0].to_string().ends_with("found new finalizers []string{\"a.b/d\"}"));
    }

    #[test]
    fn an_owner_named_twice_is_named_once() {
        let mut object = json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}, {"uid": "1"}]}});
        assert!(deduplicate_owners(&mut object).unwrap().ends_with("observed: 1"));
        assert_eq!(object, json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}}));
        assert_eq!(deduplicate_owners(&mut object), None);
    }
}
