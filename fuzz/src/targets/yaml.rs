//! YAML bodies, and answers in YAML and in indented JSON: written text is read back as the same tree.

use crate::input::{self, Draw};
use serde_json::Value;
use steersman_server::fuzzing::{decode_yaml, encode, encode_pretty};
use steersman_server::negotiate::Encoding;

pub fn run(data: &[u8]) {
    let tree = match Draw::of(data) {
        Some(mut draw) => Some(draw.any(0)),
        None => input::tree(data),
    };
    if let Some(tree) = &tree {
        check(tree);
    }
    if let Ok((tree, _)) = decode_yaml(data) {
        check(&tree);
    }
}

fn check(tree: &Value) {
    let pretty = encode_pretty(tree);
    let read: Value = serde_json::from_slice(&pretty).unwrap_or_else(|error| panic!("{error}: {tree}"));
    assert_eq!(read.to_string(), tree.to_string(), "indented JSON is the same tree");
    let yaml = encode(tree, Encoding::Yaml);
    let (read, repeated) =
        decode_yaml(&yaml).unwrap_or_else(|error| panic!("{error}: {tree} is\n{}", String::from_utf8_lossy(&yaml)));
    assert_eq!(repeated, 0);
    let mut normal = tree.clone();
    steersman_machinery::value::normalize_numbers(&mut normal);
    assert_eq!(read, normal, "in YAML it is\n{}", String::from_utf8_lossy(&yaml));
}
