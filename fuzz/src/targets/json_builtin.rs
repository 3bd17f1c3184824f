//! Bodies of built-in kinds: bytes and trees give the same object, which is read back unchanged.

use steersman_machinery::budget::Budget;
use crate::input;
use crate::kinds;
use steersman_machinery::Value;
use steersman_schema::Schema;
use steersman_schema::decode::{self, Body};

pub fn run(data: &[u8]) {
    let Some((schema, json)) = subject(data) else { return };
    let read = decode::built_in(schema, Body::Json(&json), &Budget::unlimited());
    if let Some(tree) = input::tree(&json) {
        let of_tree = decode::built_in(schema, Body::Tree(tree.clone()), &Budget::unlimited());
        let borrowed = decode::from_value(schema, &tree, &Budget::unlimited());
        assert_eq!(of_tree.is_ok(), borrowed.is_ok(), "{tree}");
        // Where an integer belongs, bytes may not say `1.0` or `1e3`, as with Go; a tree has made them integers.
        let is_same = serde_json::from_slice::<Value>(&json).is_ok_and(|read| read == tree);
        let document = decode::document(&json, &Budget::unlimited());
        let is_plain = is_same && document.is_ok_and(|document| document.faults.is_empty());
        if is_plain {
            assert_eq!(read.is_ok(), of_tree.is_ok(), "{tree}: {:?} and {:?}", read.err(), of_tree.err());
        }
        if let (true, Ok(read), Ok(of_tree)) = (is_plain, &read, &of_tree) {
            assert_eq!(read.value, of_tree.value, "{tree}");
            // A tree has its fields in order, and bytes as they were sent.
            let sorted = |faults: &[decode::Fault]| {
                let mut texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
                texts.sort();
                texts
            };
            assert_eq!(sorted(&read.faults), sorted(&of_tree.faults), "{tree}");
        }
    }
    let Ok(read) = read else { return };
    let again = decode::from_value(schema, &read.value, &Budget::unlimited());
    let again = again.unwrap_or_else(|error| panic!("{}: {error}", read.value));
    assert_eq!((&again.value, again.faults.len()), (&read.value, 0), "reading twice is reading once");
    for normalize in [decode::normalize, decode::normalize_stored] {
        let mut normal = read.value.clone();
        normalize(schema, &mut normal);
        let mut twice = normal.clone();
        normalize(schema, &mut twice);
        assert_eq!(twice, normal, "a normal object stays as it is");
    }
}

/// The schema of a body's kind, and the body; or both generated.
fn subject(data: &[u8]) -> Option<(&'static Schema, Vec<u8>)> {
    if let Some(mut draw) = input::Draw::of(data) {
        let (_, schema, object) = kinds::object(&mut draw);
        return Some((schema, object.to_string().into_bytes()));
    }
    let tree: Value = input::tree(data)?;
    Some((kinds::find(&tree)?, data.to_vec()))
}
