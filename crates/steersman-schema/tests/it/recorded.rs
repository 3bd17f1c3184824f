//! Every object of the recorded server is decoded without errors and written back unchanged: the table has its fields,
//! and knows which empty values are written.

use std::path::Path;
use steersman_machinery::Budget;
use steersman_machinery::{GroupVersion, Value};
use steersman_schema::{Definitions, decode};

/// The JSON answers of a walk that are whole objects, each with the title of its step.
fn answers(walk: &str) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for step in walk.split("\n=== ").skip(1) {
        let Some((request, answer)) = step.split_once("\n>>> ") else { continue };
        // An object without a field that is always written would not be written back unchanged.
        let is_part = |dropped: &str| {
            let optional = dropped.trim().strip_prefix("metadata.").or(dropped.trim().strip_prefix("spec."));
            optional.is_none_or(|field| field.contains('.'))
        };
        let lacks = |line: &str| line.strip_prefix("DROP ").is_some_and(|dropped| dropped.split(',').any(is_part));
        if request.lines().any(|line| line.starts_with("PICK") || line.starts_with('$') || lacks(line)) {
            continue;
        }
        let Some(start) = answer.find("\n{") else { continue };
        let text = answer[start..].replace("\"<time>\"", "\"2026-01-01T00:00:00Z\"");
        let mut values = serde_json::Deserializer::from_str(&text).into_iter();
        if let Some(Ok(value)) = values.next() {
            found.push((request.lines().next().unwrap_or_default().to_owned(), value));
        }
    }
    found
}

fn walks(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walks(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "walk") {
            found.push(path);
        }
    }
}

#[test]
fn recorded_objects_are_read_and_written_as_they_were() {
    let mut files = Vec::new();
    walks(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/walks"), &mut files);
    let (mut n_objects, mut wrong) = (0, Vec::new());
    for file in files {
        for (title, value) in answers(&std::fs::read_to_string(&file).unwrap()) {
            let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
            let Some(group_version) = GroupVersion::parse(text("apiVersion")) else { continue };
            let Some(schema) = Definitions::builtin().schema_of(&group_version.kind(text("kind"))) else { continue };
            n_objects += 1;
            match decode::from_value(schema, &value, &Budget::unlimited()) {
                Ok(decoded) if decoded.faults.is_empty() && decoded.value == value => {}
                Ok(decoded) => {
                    wrong.push(format!(
                        "{}: {title}: {:?}\n{}\n{value}",
                        file.display(),
                        decoded.faults,
                        decoded.value
                    ));
                }
                Err(error) => wrong.push(format!("{}: {title}: {error}", file.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_objects > 100, "only {n_objects} objects were found");
}
