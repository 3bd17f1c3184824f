//! Objects that are cheap to send and costly to decode, default, validate or refuse.

use std::fmt::Write as _;

use rand::Rng as _;

use crate::client::Request;
use crate::requests::Material;
use crate::stage::WORDS;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// A custom object whose field of the spec is this text.
fn target(material: &Material<'_>, query: &str, field: &str, value: &str) -> Request {
    let body = format!(
        r#"{{"apiVersion":"hostile.example.com/v1","kind":"Target","metadata":{{"name":"hostile"}},"spec":{{"{field}":{value}}}}}"#
    );
    Request::new("", "POST", format!("{}?{query}", material.targets()), JSON, body)
}

/// A ConfigMap with more metadata and data, given as the inside of an object.
fn config_map(material: &Material<'_>, query: &str, metadata: &str, data: &str) -> Request {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"hostile"{metadata}}},"data":{{{data}}}}}"#
    );
    Request::new("", "POST", format!("{}?{query}", material.core("configmaps")), JSON, body)
}

/// `make` for each number below `n`, with commas between.
fn joined(n: usize, mut make: impl FnMut(&mut String, usize)) -> String {
    let mut text = String::new();
    for index in 0..n {
        text.push_str(if index == 0 { "" } else { "," });
        make(&mut text, index);
    }
    text
}

fn list(n: usize, item: &str) -> String {
    format!("[{}]", joined(n, |text, _| text.push_str(item)))
}

pub(crate) fn defaults(material: &mut Material<'_>) -> Request {
    let n = material.rng.random_range(100_000..900_000);
    target(material, "dryRun=All", "defaults", &list(n, "{}"))
}

/// Short enough to pass for a light request, although 60 KB of it become 400,000 fields.
pub(crate) fn small_defaults(material: &mut Material<'_>) -> Request {
    let n = material.rng.random_range(5_000..20_000);
    target(material, "dryRun=All", "defaults", &list(n, "{}"))
}

pub(crate) fn words(material: &mut Material<'_>) -> Request {
    let last = format!("\"word-{}\"", WORDS - 1);
    target(material, "dryRun=All", "words", &list(200_000, &last))
}

pub(crate) fn patterns(material: &mut Material<'_>) -> Request {
    let long = format!("\"{}\"", "a".repeat(200_000));
    let (n, item) = if material.rng.random() { (14, long.as_str()) } else { (300_000, "\"aaaa\"") };
    target(material, "dryRun=All", "patterns", &list(n, item))
}

pub(crate) fn rules(material: &mut Material<'_>) -> Request {
    let item = format!("{{\"name\":\"{}!\"}}", "a".repeat(90));
    let n = material.rng.random_range(1_000..20_000);
    target(material, "dryRun=All", "rules", &list(n, &item))
}

pub(crate) fn deep(material: &mut Material<'_>) -> Request {
    let depth = material.rng.random_range(50..1_000_000);
    let value = if material.rng.random() {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    } else {
        // Many lists of the greatest depth that is taken.
        let one = format!("{}{}", "[".repeat(60), "]".repeat(60));
        list(20_000, &one)
    };
    target(material, "dryRun=All", "defaults", &value)
}

pub(crate) fn yaml_aliases(material: &mut Material<'_>) -> Request {
    let mut body = String::from(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hostile}\nbombs:\n  - &a0 [x,x,x,x,x,x,x,x,x,x]\n",
    );
    for level in 1..material.rng.random_range(4..12) {
        let below = format!("*a{}", level - 1);
        let _ = writeln!(body, "  - &a{level} [{}]", [below.as_str(); 10].join(","));
    }
    Request::new("", "POST", format!("{}?dryRun=All", material.core("configmaps")), YAML, body)
}

pub(crate) fn yaml_blocks(material: &mut Material<'_>) -> Request {
    let mut body = String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hostile}\ndata:\n");
    for index in 0..material.rng.random_range(1..100_000) {
        let _ = writeln!(body, "  k{index}: |-\n    x\n");
    }
    let _ = writeln!(body, "  last: >\n{}", "    a\n\n".repeat(100_000));
    Request::new("", "POST", format!("{}?dryRun=All", material.core("configmaps")), YAML, body)
}

pub(crate) fn yaml_flow(material: &mut Material<'_>) -> Request {
    let items = list(material.rng.random_range(100_000..700_000), "{}");
    let body = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: hostile}}\nspec: {{containers: {items}}}\n");
    Request::new("", "POST", format!("{}?dryRun=All", material.core("pods")), YAML, body)
}

pub(crate) fn keys(material: &mut Material<'_>) -> Request {
    let n = material.rng.random_range(50_000..200_000);
    config_map(material, "dryRun=All", "", &joined(n, |text, index| _ = write!(text, "\"{index:x}\":\"\"")))
}

pub(crate) fn labels(material: &mut Material<'_>) -> Request {
    let labels = joined(100_000, |text, index| _ = write!(text, "\"{index:x}\":\"\""));
    config_map(material, "dryRun=All", &format!(",\"labels\":{{{labels}}}"), "")
}

pub(crate) fn errors(material: &mut Material<'_>) -> Request {
    let field = ["words", "patterns", "defaults", "numbers"][material.rng.random_range(0..4)];
    target(material, "dryRun=All", field, &list(300_000, if field == "words" { "\"no\"" } else { "\"!\"" }))
}

pub(crate) fn unknown_fields(material: &mut Material<'_>) -> Request {
    let handling = ["Warn", "Strict", "Ignore"][material.rng.random_range(0..3)];
    let length = material.rng.random_range(1..200);
    let name = "u".repeat(length);
    let fields = joined(2_500_000 / (length + 12), |text, index| _ = write!(text, "\"{name}{index:x}\":0"));
    target(
        material,
        &format!("dryRun=All&fieldValidation={handling}"),
        "keyed",
        &format!("[{{\"name\":\"a\",{fields}}}]"),
    )
}

pub(crate) fn duplicate_keys(material: &mut Material<'_>) -> Request {
    let handling = ["Warn", "Strict", "Ignore"][material.rng.random_range(0..3)];
    let data = joined(300_000, |text, _| text.push_str("\"a\":\"\""));
    config_map(material, &format!("dryRun=All&fieldValidation={handling}"), "", &data)
}

pub(crate) fn duplicate_items(material: &mut Material<'_>) -> Request {
    let n = material.rng.random_range(20_000..150_000);
    let items = joined(n, |text, index| _ = write!(text, "{{\"name\":\"{}\"}}", index / 2));
    target(material, "dryRun=All", "keyed", &format!("[{items}]"))
}

pub(crate) fn managed_fields(material: &mut Material<'_>) -> Request {
    let fields = joined(20_000, |text, index| _ = write!(text, "\"f:{index:x}\":{{}}"));
    let n_entries = material.rng.random_range(1..9);
    let entries = joined(n_entries, |text, index| {
        _ = write!(
            text,
            r#"{{"manager":"m{index}","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{{fields}}}}}}}"#
        );
    });
    config_map(material, "dryRun=All", &format!(",\"managedFields\":[{entries}]"), "")
}

pub(crate) fn containers(material: &mut Material<'_>) -> Request {
    let n = material.rng.random_range(20_000..70_000);
    let items = joined(n, |text, index| _ = write!(text, "{{\"name\":\"c{index}\",\"image\":\"i\"}}"));
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"hostile"}},"spec":{{"containers":[{items}]}}}}"#
    );
    Request::new("", "POST", format!("{}?dryRun=All", material.core("pods")), JSON, body)
}
