//! Bodies of custom resources against a schema: a document with the schema, one with the object.

use steersman_machinery::budget::Budget;
use crate::input;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_schema::decode::{self, Body, Unknown};
use steersman_schema::{Schema, default, prune, structural, validate};

/// The schema that objects are drawn for.
const DRAWN: &str = include_str!("../../seeds/schema.json");

pub fn run(data: &[u8]) {
    let Some((schema, json)) = subject(data) else { return };
    for unknown in [Unknown::Keep, Unknown::Prune] {
        let read = decode::custom_resource(&schema, unknown, Body::Json(&json), &Budget::unlimited());
        let is_plain = decode::document(&json, &Budget::unlimited()).is_ok_and(|document| document.faults.is_empty());
        if let (true, Some(tree)) = (is_plain, input::tree(&json)) {
            let of_tree = decode::custom_resource(&schema, unknown, Body::Tree(tree.clone()), &Budget::unlimited());
            assert_eq!(read, of_tree, "bytes and trees are read alike: {tree}");
        }
        let Ok(read) = read else { continue };
        let again = decode::custom_resource(&schema, unknown, Body::Tree(read.value.clone()), &Budget::unlimited());
        let again = again.unwrap_or_else(|error| panic!("{}: {error}", read.value));
        assert_eq!(again.value, read.value, "reading twice is reading once");
        let mut object = read.value;
        if unknown == Unknown::Prune {
            let mut pruned = object.clone();
            assert_eq!(prune::prune(&schema, &mut pruned), Vec::<String>::new(), "what was pruned is not pruned again");
        }
        default::apply(&schema, &mut object, &Budget::unlimited()).expect("no budget");
        let once = object.clone();
        default::apply(&schema, &mut object, &Budget::unlimited()).expect("no budget");
        assert_eq!(object, once, "defaults are set once");
        let faults = validate::validate(&schema, &object, &Budget::unlimited());
        if faults.is_empty() {
            let of_update = validate::validate_update(&schema, &object, &object, &Budget::unlimited());
            assert!(of_update.is_empty(), "what is valid may stay: {of_update:?}");
        }
    }
}

fn subject(data: &[u8]) -> Option<(Arc<Schema>, Vec<u8>)> {
    if let Some(mut draw) = input::Draw::of(data) {
        let schema = structural::compile(&serde_json::from_str(DRAWN).expect("the seed is JSON"));
        let mut object = draw.fitting(&schema, 0);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!("example.com/v1"));
            fields.insert("kind".to_owned(), json!("Thing"));
        }
        return Some((schema, object.to_string().into_bytes()));
    }
    let parts = input::documents(data);
    let [schema, object] = parts.as_slice() else { return None };
    let schema: Value = input::tree(schema)?;
    let is_structural = structural::check(&schema, &steersman_machinery::field::Path::new("schema")).is_empty();
    is_structural.then(|| (structural::compile(&schema), object.to_vec()))
}
