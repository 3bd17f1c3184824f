//! Schemas of definitions: checked, compiled and printed; a schema that passes prunes, defaults and validates any tree.

use steersman_machinery::budget::Budget;
use crate::input;
use serde_json::json;
use steersman_machinery::GroupVersionKind;
use steersman_machinery::field::Path;
use steersman_schema::openapi::{self, Version};
use steersman_schema::{default, format, prune, structural, validate};

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let Some(schema) = parts.first().and_then(|json| input::tree(json)) else { return };
    let path = Path::new("spec.validation.openAPIV3Schema");
    let faults = structural::check(&schema, &path);
    let _ = structural::check_root_with_status(&schema, &path);
    let _ = format::unrecognized(&schema);
    let compiled = structural::compile(&schema);
    let kind = GroupVersionKind::new("example.com", "v1", "Thing");
    for version in [Version::V2, Version::V3] {
        let printed = openapi::custom_resource(&compiled, &kind, &[".spec.a"], version);
        assert!(printed.is_object(), "{printed}");
        let _ = openapi::schema_json(&compiled, version);
    }
    if !faults.is_empty() {
        return;
    }
    let object = parts.get(1).and_then(|json| input::tree(json)).unwrap_or_else(|| json!({"spec": {"a": [1, {"b": null}]}}));
    let mut pruned = object;
    prune::prune(&compiled, &mut pruned);
    assert!(prune::prune(&compiled, &mut pruned.clone()).is_empty(), "pruning twice is pruning once");
    default::apply(&compiled, &mut pruned, &Budget::unlimited()).expect("no budget");
    let once = pruned.clone();
    default::apply(&compiled, &mut pruned, &Budget::unlimited()).expect("no budget");
    assert_eq!(pruned, once, "defaults are set once");
    let _ = validate::validate(&compiled, &pruned, &Budget::unlimited());
    let _ = validate::validate_update(&compiled, &pruned, &once, &Budget::unlimited());
}
