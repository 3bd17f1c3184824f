//! The metadata of all kinds: the fields that the server sets, and validation.
//!
//! Rules and messages follow apimachinery's `api/validation` and apiserver's `registry/rest`.

use serde_json::json;
use std::collections::HashSet;
use steersman_kinds::strategy::{Endpoint, Strategy};
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{self, Map};
use steersman_machinery::{Value, name};

/// The most bytes of an object's annotations, keys and values together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Finalizers that need no domain, because the server itself defines them.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];
/// The fields that an update never changes, whatever the client sends.
const KEPT: [&str; 4] = ["creationTimestamp", "generation", "name", "namespace"];
/// The fields that an update keeps if the client omits them. Another value is refused.
const IMMUTABLE: [&str; 3] = ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"];
/// The fields that a creation drops.
const DROPPED: [&str; 3] = ["deletionGracePeriodSeconds", "deletionTimestamp", "selfLink"];

/// The metadata of an object.
pub(crate) fn of(value: &Value) -> Option<&Map> {
    value.get("metadata").and_then(Value::as_object)
}

/// A text in the metadata; empty if it is absent.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    value::str_at(object, &["metadata", key]).unwrap_or("")
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = value::at(object, &["metadata", "finalizers"]).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Drops the metadata of a new object that only a deletion sets, before field owners are recorded.
pub(crate) fn drop_system_fields(object: &mut Value) {
    if let Some(metadata) = value::object_at(object, &["metadata"]) {
        DROPPED.iter().for_each(|key| _ = metadata.remove(*key));
    }
}

/// Sets the metadata of a new object that only the server decides, instead of the client's values. Kinds with
/// generations begin at 1; the others keep the client's value, as upstream does.
pub(crate) fn prepare_create(object: &mut Value, uid: String, now: String) {
    drop_system_fields(object);
    let Some(metadata) = value::object_at(object, &["metadata"]) else { return };
    if metadata.get("generation").and_then(Value::as_i64) == Some(0) {
        metadata.remove("generation");
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
}

/// Copies the fields that an update cannot change.
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
    // An update cannot take back a deletion. An empty uid counts as none.
    let is_deleting = value::at(old, &["metadata", "deletionTimestamp"]).is_some();
    for key in IMMUTABLE {
        let Some(kept) = value::at(old, &["metadata", key]) else { continue };
        let is_unsaid = metadata.get(key).is_none_or(|sent| sent.as_str() == Some(""));
        if is_unsaid || is_deleting && key == "deletionTimestamp" {
            metadata.insert(key.to_owned(), kept.clone());
        }
    }
}

/// The validation errors of a new object's metadata.
pub(crate) fn validate_create(object: &Value, strategy: &dyn Strategy) -> Vec<Error> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    let given = text(object, "name");
    if given.is_empty() {
        errors.push(Error::required(&path.child("name"), "name or generateName is required"));
    } else {
        let faults = strategy
            .name_faults(given)
            .into_iter()
            .chain(name::path_segment(given).into_iter().filter(|_| strategy.name_faults(given).is_empty()));
        errors.extend(faults.map(|fault| Error::invalid(&path.child("name"), given, fault)));
    }
    if strategy.rules().validates_generate_name {
        validate_generate_name(object, &|base| strategy.name_faults(base), &mut errors);
    } else {
        validate_segment(object, &mut errors);
    }
    errors.extend(validate(object, strategy));
    validate_generation(object, &mut errors);
    errors
}

/// The errors of the metadata of a Scale, which is that of an object of another kind.
pub(crate) fn validate_scale(scale: &Value, strategy: &dyn Strategy) -> Vec<Error> {
    let mut errors = Vec::new();
    validate_generate_name(scale, &name::dns1123_subdomain, &mut errors);
    errors.extend(validate(scale, strategy));
    validate_generation(scale, &mut errors);
    errors
}

fn validate_generation(object: &Value, errors: &mut Vec<Error>) {
    let generation = value::at(object, &["metadata", "generation"]).and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|generation| *generation < 0) {
        let path = Path::new("metadata.generation");
        errors.push(Error::invalid(&path, generation, "must be greater than or equal to 0"));
    }
}

/// Validates `generateName` of a kind without rules of its own for it: it must be a part of a path.
fn validate_segment(object: &Value, errors: &mut Vec<Error>) {
    let (path, base) = (Path::new("metadata.generateName"), text(object, "generateName"));
    errors.extend(name::path_segment(base).into_iter().map(|fault| Error::invalid(&path, base, fault)));
}

/// Validates `generateName` by the faults of a name. It may end in dashes, since letters are appended to it.
fn validate_generate_name(object: &Value, name_faults: &dyn Fn(&str) -> Vec<String>, errors: &mut Vec<Error>) {
    let base = text(object, "generateName");
    if base.is_empty() {
        return;
    }
    let masked = match base.strip_suffix('-') {
        Some(stem) if !stem.is_empty() && stem.is_char_boundary(stem.len() - 1) => {
            format!("{}a", &stem[..stem.len() - 1])
        }
        _ => base.to_owned(),
    };
    let mut faults = name_faults(&masked);
    faults.extend(name::path_segment(base).into_iter().filter(|_| faults.is_empty()).collect::<Vec<_>>());
    let path = Path::new("metadata.generateName");
    errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, base, fault)));
}

/// The validation errors of a change of metadata.
pub(crate) fn validate_update(new: &Value, old: &Value, strategy: &dyn Strategy, endpoint: Endpoint) -> Vec<Error> {
    let mut errors = validate(new, strategy);
    let path = Path::new("metadata");
    for key in IMMUTABLE {
        let field = |object| value::at(object, &["metadata", key]).filter(|value| !value.is_null()).cloned();
        let (after, before) = (field(new), field(old));
        if after != before {
            errors.push(Error::invalid(&path.child(key), after.unwrap_or_default(), "field is immutable"));
        }
    }
    if strategy.rules().validates_generate_name_on_update && endpoint == Endpoint::Main {
        validate_generate_name(new, &|base| strategy.name_faults(base), &mut errors);
    } else {
        validate_segment(new, &mut errors);
    }
    let is_deleting = !text(old, "deletionTimestamp").is_empty();
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
            // Upstream checks this both before and within the kind's validation, so clients get the cause twice.
            errors.extend([error.clone(), error]);
        }
    }
    errors
}

/// The errors of labels, annotations, finalizers and owners.
pub(crate) fn validate(object: &Value, strategy: &dyn Strategy) -> Vec<Error> {
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
    let requires_qualified_finalizers = strategy.rules().requires_qualified_finalizers;
    for (index, finalizer) in finalizers(object).into_iter().enumerate() {
        let path = path.child("finalizers");
        errors.extend(name::qualified(finalizer).into_iter().map(|fault| Error::invalid(&path, finalizer, fault)));
        if requires_qualified_finalizers && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path.index(index), finalizer, detail));
        }
    }
    if let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) {
        validate_owners(owners, &path.child("ownerReferences"), &mut errors);
    }
    errors
}

/// The validation errors of labels.
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
    for owner in owners {
        let said = owner.get("apiVersion").and_then(Value::as_str).unwrap_or("");
        if said.matches('/').count() > 1 {
            errors.push(Error::invalid(&path.child("apiVersion"), said, "version must not be empty"));
        }
        if said == "v1" && owner.get("kind").and_then(Value::as_str) == Some("Event") {
            errors.push(Error::invalid(path, owner.clone(), "/v1, Kind=Event is disallowed from being an owner"));
        }
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

/// Removes repeated owner references; returns the text of a warning if there were any.
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
    use std::sync::Arc;

    use super::*;
    use steersman_kinds::builtin;
    use steersman_kinds::catalog::Resource;
    use steersman_kinds::runtime_config::RuntimeConfig;

    /// The catalog's row of a built-in kind.
    #[track_caller]
    fn resource(kind: &str) -> Arc<Resource> {
        let resources = builtin::resources(&RuntimeConfig::default());
        resources.into_iter().find(|resource| &*resource.kind == kind).unwrap()
    }

    fn texts(errors: Vec<Error>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_update_keeps_what_is_the_servers() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3, "creationTimestamp": "t"}});
        let mut new = json!({"metadata": {"name": "b", "generation": 7, "labels": {"a": "b"}}});
        prepare_update(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"name": "a", "uid": "u", "generation": 3, "creationTimestamp": "t", "labels": {"a": "b"}}})
        );
        let old = json!({"metadata": {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 5}});
        let mut new = json!({"metadata": {"deletionTimestamp": "u"}});
        prepare_update(&mut new, &old);
        assert_eq!(new, old);
    }

    #[test]
    fn an_update_cannot_change_the_uid_or_say_that_an_object_is_being_deleted() {
        let config_maps = resource("ConfigMap");
        let old = json!({"metadata": {"name": "a", "uid": "u"}});
        for (field, value) in
            [("uid", json!("v")), ("deletionTimestamp", json!("t")), ("deletionGracePeriodSeconds", json!(3))]
        {
            let mut new = old.clone();
            new["metadata"][field] = value;
            prepare_update(&mut new, &old);
            let errors = texts(validate_update(&new, &old, &*config_maps.strategy, Endpoint::Main));
            assert_eq!(errors.len(), 1, "{field}");
            assert!(errors[0].starts_with(&format!("metadata.{field}: Invalid value: ")), "{errors:?}");
        }
    }

    #[test]
    fn a_base_of_names_is_checked_beside_a_name() {
        let object = json!({"metadata": {"name": "a", "generateName": "A_b-"}});
        let errors = |kind: &str| {
            let resource = resource(kind);
            let created = validate_create(&object, &*resource.strategy).len();
            (created, validate_update(&object, &object, &*resource.strategy, Endpoint::Main).len())
        };
        assert_eq!(errors("ConfigMap"), (1, 1));
        // Updates of this kind only check for characters that no path may have.
        assert_eq!(errors("Deployment"), (1, 0));
        // Upstream has no check of it for this kind.
        assert_eq!(errors("DeviceClass"), (0, 0));
        let object = json!({"metadata": {"name": "a", "generateName": "a/b"}});
        assert_eq!(validate_update(&object, &object, &*resource("Deployment").strategy, Endpoint::Main).len(), 1);
        let fine = json!({"metadata": {"name": "a", "generateName": "a-"}});
        assert_eq!(validate_create(&fine, &*resource("ConfigMap").strategy), []);
    }

    #[test]
    fn finalizers_need_a_domain_and_none_come_late() {
        let (config_maps, leases) = (resource("ConfigMap"), resource("Lease"));
        let with =
            |finalizers: Value| json!({"metadata": {"name": "a", "deletionTimestamp": "t", "finalizers": finalizers}});
        assert_eq!(validate(&with(json!(["orphan", "example.com/x"])), &*config_maps.strategy), []);
        assert_eq!(
            texts(validate(&with(json!(["hold"])), &*config_maps.strategy)),
            [
                "metadata.finalizers[0]: Invalid value: \"hold\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
        assert_eq!(validate(&with(json!(["hold"])), &*leases.strategy), []);
        let errors = texts(validate(&with(json!(["*"])), &*leases.strategy));
        assert!(errors[0].starts_with("metadata.finalizers: Invalid value"), "{errors:?}");
        let (new, old) = (with(json!(["a.b/c", "a.b/d"])), with(json!(["a.b/c"])));
        let errors = validate_update(&new, &old, &*config_maps.strategy, Endpoint::Main);
        assert_eq!(errors.len(), 2);
        assert!(errors[0].to_string().ends_with("found new finalizers []string{\"a.b/d\"}"));
    }

    #[test]
    fn a_base_of_names_is_a_part_of_a_path_for_every_kind() {
        let budget = json!({"metadata": {"name": "a", "generateName": "a/b"}});
        let budgets = resource("PodDisruptionBudget");
        let expected = ["metadata.generateName: Invalid value: \"a/b\": may not contain '/'"];
        assert_eq!(texts(validate_create(&budget, &*budgets.strategy)), expected);
        assert_eq!(texts(validate_update(&budget, &budget, &*budgets.strategy, Endpoint::Main)), expected);
    }

    #[test]
    fn only_the_older_group_of_events_has_any_finalizers() {
        let event = json!({"metadata": {"name": "e", "finalizers": ["hold", "orphan", "example.com/hold"]}});
        let resources = builtin::resources(&RuntimeConfig::default());
        let blamed = resources.iter().filter(|resource| &*resource.kind == "Event").map(|resource| {
            let strategy = &*resource.strategy;
            let created = validate_create(&event, strategy);
            let updated = validate_update(&event, &event, strategy, Endpoint::Main);
            let fields = created.iter().chain(&updated).map(|error| error.field.to_string());
            (resource.group.to_string(), fields.collect::<Vec<_>>())
        });
        let both = vec!["metadata.finalizers[0]".to_owned(); 2];
        let mut blamed: Vec<_> = blamed.collect();
        blamed.sort();
        assert_eq!(blamed, [(String::new(), vec![]), ("events.k8s.io".to_owned(), both)]);
    }

    #[test]
    fn faults_of_owners_are_blamed_on_the_list() {
        let owner =
            json!({"metadata": {"ownerReferences": [{"apiVersion": "", "kind": "A", "name": "a", "uid": "u"}]}});
        assert_eq!(
            texts(validate(&owner, &*resource("ConfigMap").strategy)),
            ["metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty"]
        );
    }

    #[test]
    fn a_kind_without_generations_keeps_the_one_that_is_sent_unless_it_is_negative() {
        let mut node = json!({"metadata": {"name": "a", "generation": 4}});
        prepare_create(&mut node, "u".to_owned(), "t".to_owned());
        assert_eq!(node["metadata"]["generation"], 4);
        node["metadata"]["generation"] = json!(-1);
        assert_eq!(
            texts(validate_create(&node, &*resource("Node").strategy)),
            ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]
        );
    }

    #[test]
    fn an_owner_named_twice_is_named_once() {
        let mut object = json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}, {"uid": "1"}]}});
        assert!(deduplicate_owners(&mut object).unwrap().ends_with("observed: 1"));
        assert_eq!(object, json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}}));
        assert_eq!(deduplicate_owners(&mut object), None);
    }
}
