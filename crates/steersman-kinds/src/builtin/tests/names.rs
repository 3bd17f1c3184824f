//! Every name of a field in the sources of the built-in kinds, in rows and in functions, is a field of the kind.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use steersman_schema::{Definitions, Edition, Schema};

/// The literals that name fields: `.field("spec")`, `.get("spec")`, `value["spec"]`, `&["spec", "replicas"]`, `"spec.replicas"` in a row
/// of a selectable field.
static LITERALS: LazyLock<Regex> = LazyLock::new(|| {
    let one = r#"\.(?:field|get|get_mut|remove|contains_key)\("([a-z][A-Za-z0-9]*)"\)"#;
    let index = r#"[a-z_)\]]\["([a-z][A-Za-z0-9]*)"\]"#;
    let path = r#"&\[((?:\s*"[a-z][A-Za-z0-9]*"\s*,?)+)\s*\]"#;
    let row = r#"SelectableField::(?:new|of)\("([a-zA-Z.]+)""#;
    Regex::new(&format!("{one}|{index}|{path}|{row}")).unwrap()
});
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""(io\.k8s\.[A-Za-z0-9.]+)""#).unwrap());

/// Literals that name no field of the kind, by file, each with what they are.
const OTHERS: &[(&str, &[&str])] = &[
    // Fields that upstream misspells in errors.
    ("pods/pod/volume_source.rs", &["cephFS", "downwarAPI"]),
    // A value of `os.name`.
    ("pods/pod/spec.rs", &["windows"]),
    // Keys of the data of two types.
    ("pods/secret.rs", &["password", "username"]),
    // The path that upstream blames where a volume has no source, and a resource.
    ("storage/persistent_volume.rs", &["persistentvolumesource", "storage"]),
    ("storage/volume_claim.rs", &["storage"]),
    // Values in upstream's messages.
    ("workloads/batch/cron_job.rs", &["false", "nil"]),
    ("workloads/batch/job.rs", &["successful"]),
];

/// The names of all fields below a schema.
fn collect(schema: &Schema, seen: &mut BTreeSet<usize>, names: &mut BTreeSet<String>) {
    let target = schema.target();
    if !seen.insert(std::ptr::from_ref(target).addr()) {
        return;
    }
    for (name, property) in target.properties.iter() {
        names.insert(name.to_owned());
        collect(property, seen, names);
    }
    for inner in target.values().into_iter().chain(target.item()) {
        collect(inner, seen, names);
    }
}

fn names_of<'a>(definitions: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let (mut seen, mut names) = (BTreeSet::new(), BTreeSet::new());
    for name in definitions {
        if let Some(schema) = Definitions::of(Edition::WithInitializers).schema(name) {
            collect(schema, &mut seen, &mut names);
        }
    }
    names.extend(["apiVersion", "kind", "metadata"].map(str::to_owned));
    names
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// The module of a kind that a file belongs to: `network/service` for `network/service/update.rs`.
fn module(relative: &Path) -> String {
    let parts: Vec<_> = relative.iter().take(2).map(|part| part.to_string_lossy().replace(".rs", "")).collect();
    parts.join("/")
}

/// Whether a line is a comment, or has names of the kind and not of its fields.
fn is_skipped(line: &str) -> bool {
    ["//", "short_names:", "categories:"].iter().any(|start| line.trim_start().starts_with(start))
}

#[test]
fn every_field_that_a_rule_names_is_a_field_of_its_kind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/builtin");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut texts: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        if relative.starts_with("tests") || relative.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        // Tests are last in a file.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        texts.entry(module(relative)).or_default().push((relative.to_string_lossy().into_owned(), text));
    }
    let all: Vec<_> = Definitions::of(Edition::WithInitializers).iter().map(|one| one.name()).collect();
    let all = names_of(all);
    let mut wrong = Vec::new();
    let mut n_checked = 0;
    for files in texts.values() {
        let defined: Vec<&str> = files
            .iter()
            .flat_map(|(_, text)| DEFINITION.captures_iter(text).map(|found| found.get(1).unwrap().as_str()))
            .collect();
        let names = if defined.is_empty() { all.clone() } else { names_of(defined) };
        for (file, text) in files {
            let others = OTHERS.iter().filter(|(one, _)| one == file).flat_map(|(_, names)| *names);
            let others: BTreeSet<&str> = others.copied().collect();
            let code: Vec<&str> = text.lines().filter(|line| !is_skipped(line)).collect();
            let code = code.join("\n");
            for found in LITERALS.captures_iter(&code) {
                let literal = found.iter().skip(1).flatten().next().unwrap().as_str();
                for name in literal.split(['"', ',', '.', ' ', '\n']).filter(|name| !name.is_empty()) {
                    n_checked += 1;
                    if !names.contains(name) && !others.contains(name) {
                        wrong.push(format!("{file}: {name}"));
                    }
                }
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "names of no field of the kind:\n{}", wrong.join("\n"));
    assert!(n_checked > 2_000, "the test reads the sources: {n_checked} names");
}
