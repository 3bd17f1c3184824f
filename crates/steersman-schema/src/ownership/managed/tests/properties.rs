//! Properties that hold for all configurations.

use crate::ownership::fields::FieldSet;
use crate::ownership::managed::OnConflict;
use crate::ownership::managed::tests::OwnedObject;
use proptest::collection::{btree_map, vec};
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq};
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::remove_at;

/// A configuration of a Deployment, with few names so that managers collide.
fn wish() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![Just("1"), Just("2")];
    let texts = || btree_map("[a-c]", text(), 0..3);
    let env = vec(("[A-C]", text()), 0..3)
        .prop_map(|pairs| unique("name", pairs.into_iter().map(|(name, value)| json!({"name": name, "value": value}))));
    let args = vec("[x-z]", 0..3);
    let container = ("[c-e]", proptest::option::of(text()), env, args)
        .prop_map(|(name, image, env, args)| json!({"name": name, "env": env, "args": args, "image": image}));
    let finalizers = vec("[a-c]", 0..3)
        .prop_map(|names| unique("", names.into_iter().map(|name| json!(format!("example.com/{name}")))));
    let parts = (texts(), finalizers, vec(container, 0..3), proptest::option::of(0..3), texts());
    parts.prop_map(|(labels, finalizers, containers, replicas, selector)| {
        let containers = unique("name", containers.into_iter());
        let mut wish = json!({
            "metadata": {"labels": labels, "finalizers": finalizers},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": selector},
                "template": {"spec": {"containers": containers}}}});
        drop_empty(&mut wish);
        wish
    })
}

/// Removes empty values, which no configuration contains.
fn drop_empty(value: &mut Value) {
    let is_something = |value: &mut Value| {
        drop_empty(value);
        let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty) || *value == json!([]);
        !is_empty && !value.is_null()
    };
    match value {
        Value::Object(fields) => fields.retain(|_, value| is_something(value)),
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// The first item of each key; without a key, of each value.
fn unique(key: &str, items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for item in items {
        let identity = |item: &Value| if key.is_empty() { item.clone() } else { item[key].clone() };
        if kept.iter().all(|other| identity(other) != identity(&item)) {
            kept.push(item);
        }
    }
    kept
}

/// The object without the times of its record, which depend on the order of writes.
fn timeless(mut object: Value) -> Value {
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        entries.iter_mut().for_each(|entry| entry["time"] = Value::Null);
        entries.sort_by_key(Value::to_string);
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn applying_twice_is_applying_once(first in wish(), other in wish(), wish in wish()) {
        let mut owned = OwnedObject::deployment();
        owned.apply("me", first);
        owned.try_apply("other", other, OnConflict::Force).unwrap();
        let once = owned.try_apply("me", wish.clone(), OnConflict::Force).unwrap();
        let twice = owned.try_apply("me", wish, OnConflict::Refuse).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_is_applied_is_owned_and_there(first in wish(), other in wish(), wish in wish()) {
        let mut owned = OwnedObject::deployment();
        owned.try_apply("other", other, OnConflict::Force).unwrap();
        owned.try_apply("me", first, OnConflict::Force).unwrap();
        let object = owned.try_apply("me", wish.clone(), OnConflict::Force).unwrap();
        let named = FieldSet::of(owned.schema, &owned.object(wish));
        let has = FieldSet::of(owned.schema, &object);
        // An empty list or map in the configuration is absent if no other manager filled it; nothing else may be
        // missing.
        for path in named.difference(&has).paths() {
            let beneath = has.paths().iter().any(|other| other.0.starts_with(&path.0));
            prop_assert!(beneath, "{} is missing", path);
        }
    }

    #[test]
    fn managers_of_disjoint_fields_commute(
        labels in btree_map("[a-c]", "[x-z]", 1..3),
        annotations in btree_map("[a-c]", "[x-z]", 1..3),
        mine in "[c-d]",
        theirs in "[e-f]",
    ) {
        let one = json!({"metadata": {"labels": labels}, "spec": {"template": {"spec": {"volumes": [{"name": mine, "emptyDir": {}}]}}}});
        let two = json!({"metadata": {"annotations": annotations}, "spec": {"template": {"spec": {"containers": [{"name": theirs}]}}}});
        let run = |order: [(&str, &Value); 2]| {
            let mut owned = OwnedObject::deployment();
            for (manager, wish) in order {
                owned.apply(manager, wish.clone());
            }
            timeless(owned.live.unwrap())
        };
        prop_assert_eq!(run([("one", &one), ("two", &two)]), run([("two", &two), ("one", &one)]));
    }

    #[test]
    fn applying_nothing_undoes_an_apply(other in wish(), wish in wish()) {
        let mut owned = OwnedObject::deployment();
        let before = owned.apply("other", other);
        let Ok(_) = owned.try_apply("me", wish, OnConflict::Refuse) else {
            return Ok(());
        };
        let after = owned.apply("me", json!({}));
        let data = |mut object: Value| {
            remove_at(&mut object, &["metadata", "managedFields"]);
            FieldSet::of(owned.schema, &object)
        };
        prop_assert_eq!(data(after).leaves(), data(before).leaves());
    }

    #[test]
    fn every_field_that_an_update_changes_is_the_updaters(old in wish(), new in wish()) {
        let mut owned = OwnedObject::deployment();
        let mut old = owned.object(old);
        old["spec"]["paused"] = json!(true);
        owned.put("one", old);
        let mut new = owned.object(new);
        new["metadata"]["uid"] = json!("u");
        let object = owned.put("two", new);
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let of = |manager: &str| {
            let entry = entries.iter().find(|entry| entry["manager"] == manager);
            entry.map(|entry| FieldSet::from_value(&entry["fieldsV1"]).unwrap()).unwrap_or_default()
        };
        prop_assert!(of("one").intersection(&of("two")).is_empty());
        let mut bare = object.clone();
        remove_at(&mut bare, &["metadata", "managedFields"]);
        let has = FieldSet::of(owned.schema, &bare);
        let always_there = FieldSet::of(owned.schema, &owned.kind("").nothing());
        let identity = FieldSet::of_names(&[&["metadata", "name"], &["metadata", "uid"]]);
        let owned = of("one").union(&of("two")).union(&always_there).union(&identity);
        let orphans = has.leaves().difference(&owned);
        prop_assert!(orphans.is_empty(), "{:?}", orphans.paths());
    }

    // `OwnedObject::put` compares every record with one that is computed from scratch.
    #[test]
    fn a_record_is_the_same_whether_its_sets_are_read_or_not(wishes in vec(("[a-c]", wish()), 1..6)) {
        let mut owned = OwnedObject::deployment();
        for (manager, wish) in wishes {
            match owned.live.clone() {
                Some(live) => {
                    let mut object = owned.object(wish);
                    object["metadata"]["uid"] = json!("u");
                    object["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
                    owned.put(&manager, object);
                }
                None => drop(owned.create(&manager, wish)),
            }
            // Most updates change one field.
            owned.patch(&manager, |object| object["spec"]["minReadySeconds"] = json!(manager.len()));
            owned.patch(&manager, |object| object["spec"]["paused"] = json!(manager == "a"));
        }
    }
}
