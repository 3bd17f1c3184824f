//! Every name of a field in the functions of the built-in kinds is a field of the kind, and every value that they compare one with is a
//! value of a field. Rows, which say more, are checked in `rows`.

use crate::builtin::pods::pod::container::environment;
use crate::builtin::storage::volume_claim;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use steersman_schema::openapi::{Version as Document, definition_json};
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

/// Files by their path below `builtin`, each with its text.
type Sources = Vec<(String, String)>;

/// The sources of the built-in kinds without their tests, by their path below `builtin`.
pub(super) fn sources_of_kinds() -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/builtin");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut texts = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        if relative.starts_with("tests") || relative.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        // Tests are last in a file.
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
        texts.push((relative.to_string_lossy().into_owned(), text));
    }
    texts
}

/// The sources by module, each with the definitions that the module names.
fn modules() -> Vec<(Sources, Vec<String>)> {
    let mut modules: BTreeMap<String, Sources> = BTreeMap::new();
    for (file, text) in sources_of_kinds() {
        modules.entry(module(Path::new(&file))).or_default().push((file, text));
    }
    let definitions = |files: &[(String, String)]| {
        let texts = files.iter().flat_map(|(_, text)| DEFINITION.captures_iter(text));
        texts.map(|found| found.get(1).unwrap().as_str().to_owned()).collect()
    };
    modules.into_values().map(|files| (files.clone(), definitions(&files))).collect()
}

#[test]
fn every_field_that_a_rule_names_is_a_field_of_its_kind() {
    let all: Vec<_> = Definitions::of(Edition::WithInitializers).iter().map(|one| one.name()).collect();
    let all = names_of(all);
    let mut wrong = Vec::new();
    let mut n_checked = 0;
    for (files, defined) in &modules() {
        let names = if defined.is_empty() { all.clone() } else { names_of(defined.iter().map(String::as_str)) };
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
    assert!(n_checked > 1_000, "the test reads the sources: {n_checked} names");
}

/// Calls that compare a field with a list of words, which stands in the call, or is a constant of the file.
static COMPARISONS: LazyLock<Regex> = LazyLock::new(|| {
    let call = r"(?:one_of|one_of_if_present|required_one_of|not_supported)\(";
    Regex::new(&format!(r"{call}[^;]*?(?:&\[([^\]]*)\]|&?([A-Z][A-Z_]+)\b)")).unwrap()
});
static CONSTANTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"const ([A-Z_]+): (?:&\[&str\]|\[&str; \d+\]) =\s*&?\[([^\]]*)\]").unwrap());
static WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""([^"]*)""#).unwrap());

/// Words that no enumeration and no description has, by file, each with what they are.
const OTHER_WORDS: &[(&str, &[&str])] = &[
    // The types of a limit's response: constants of `k8s.io/api`.
    ("cluster/flow/level.rs", &["Queue", "Reject"]),
    // Verbs.
    ("cluster/flow/schema.rs", &["deletecollection", "proxy"]),
    // The modes of a load balancer's address: constants of `k8s.io/api`.
    ("network/service/validate.rs", &["Proxy", "VIP"]),
    // Names of resources of a container.
    ("pods/pod/container/environment.rs", environment::RESOURCES),
    // The modes of a mount that is read-only with those below it: constants of `k8s.io/api`.
    ("pods/pod/volume.rs", &["Disabled", "IfPossible"]),
    // The states of a resize: constants of `k8s.io/api`.
    ("storage/volume_claim.rs", volume_claim::RESIZE_STATES),
    // Upstream's word for an absent boolean.
    ("workloads/batch/cron_job.rs", &["nil"]),
    // The statuses of a condition.
    ("workloads/batch/policy.rs", &["False", "True", "Unknown"]),
];

/// The values of a definition's fields, and their descriptions, and those of the definitions below it.
fn values_below(schema: &Schema, seen: &mut BTreeSet<&'static str>, texts: &mut String) {
    if let Some(definition) = schema.reference()
        && seen.insert(definition.name())
        && let Some(json) = definition_json(Edition::WithInitializers, definition.name(), Document::V3)
    {
        texts.push_str(&json.to_string());
    } else if schema.reference().is_some() {
        return;
    }
    for (_, property) in schema.target().properties.iter() {
        values_below(property, seen, texts);
    }
    for inner in schema.target().values().into_iter().chain(schema.target().item()) {
        values_below(inner, seen, texts);
    }
}

#[test]
fn every_value_that_a_function_compares_a_field_with_is_a_value_of_a_field() {
    let (mut wrong, mut n_checked) = (BTreeSet::new(), 0);
    for (files, defined) in &modules() {
        let (mut seen, mut texts) = (BTreeSet::new(), String::new());
        let definitions = Definitions::of(Edition::WithInitializers);
        for definition in
            definitions.iter().filter(|one| defined.is_empty() || defined.iter().any(|name| name == one.name()))
        {
            // The names below a definition follow from its properties.
            let json = definition_json(Edition::WithInitializers, definition.name(), Document::V3).unwrap();
            texts.push_str(&json.to_string());
            values_below(definition.schema(), &mut seen, &mut texts);
        }
        for (file, text) in files.iter().filter(|(file, _)| !file.starts_with("rules")) {
            let code: Vec<&str> = text.lines().filter(|line| !is_skipped(line)).collect();
            let code = code.join("\n");
            let constant = |name: &str| {
                let found = CONSTANTS.captures_iter(&code).find(|found| &found[1] == name);
                found.map(|found| found.get(2).unwrap().as_str()).unwrap_or_default()
            };
            for found in COMPARISONS.captures_iter(&code) {
                let words = found.get(1).map_or_else(|| constant(&found[2]), |words| words.as_str());
                for word in WORDS.captures_iter(words).map(|word| word.get(1).unwrap().as_str()) {
                    n_checked += 1;
                    let is_other = OTHER_WORDS.iter().any(|(one, words)| one == file && words.contains(&word));
                    if !is_other && !word.is_empty() && !texts.contains(word) {
                        wrong.insert(format!("{file}: {word}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "values of no field of the kind:\n{}", Vec::from_iter(wrong).join("\n"));
    assert!(n_checked > 40, "the test reads the sources: {n_checked} words");
}
