//! The definitions of `corpus.txt`: all compile, and every sample comes through its type unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use steersman_codegen::crd::{self, Definition, ReadError};
use steersman_codegen::types::{self, Options};

use crate::project::{Kind, Project};
use crate::samples::{self, Kinds, Sample};

/// Where Go keeps the modules of the list: set by `cargo xtask test`, and printed by `cargo xtask tools`.
const VARIABLE: &str = "CODEGEN_CORPUS";

const LIST: &str = include_str!("corpus.txt");

/// A module of the list.
struct Module {
    name: String,
    version: String,
    is_short: bool,
    /// Files or directories of definitions.
    paths: Vec<String>,
}

fn modules() -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if line.starts_with(' ') {
            modules.last_mut().unwrap().paths.push(line.trim().to_owned());
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        modules.push(Module {
            name: words[0].to_owned(),
            version: words[1].to_owned(),
            is_short: words.get(2) == Some(&"short"),
            paths: Vec::new(),
        });
    }
    modules
}

impl Module {
    /// The module's directory in Go's cache, which writes capitals as `!` and a small letter.
    fn directory(&self, cache: &Path) -> PathBuf {
        let mut escaped = String::new();
        for character in format!("{}@{}", self.name, self.version).chars() {
            if character.is_ascii_uppercase() {
                escaped.push('!');
            }
            escaped.push(character.to_ascii_lowercase());
        }
        cache.join(escaped)
    }

    /// The files with definitions.
    fn files(&self, cache: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for path in &self.paths {
            let path = self.directory(cache).join(path);
            if path.is_file() {
                files.push(path);
                continue;
            }
            let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut found: Vec<PathBuf> = entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
                // What controller-gen makes of a package without a group.
                .filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('_')))
                .collect();
            found.sort();
            files.append(&mut found);
        }
        files
    }
}

#[test]
fn public_definitions_compile_and_their_samples_come_through() {
    let Some(cache) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        eprintln!(
            "!!! SKIPPED: ${VARIABLE} is not set, so that there are no public definitions to try: `cargo xtask tools`"
        );
        return;
    };
    let is_long = std::env::var_os("STEERSMAN_LONG").is_some();
    let start = Instant::now();
    let mut definitions: Vec<Definition> = Vec::new();
    let mut kinds = Kinds::new();
    let mut found: Vec<Sample> = Vec::new();
    let modules: Vec<Module> = modules().into_iter().filter(|module| is_long || module.is_short).collect();
    for module in &modules {
        for file in module.files(&cache) {
            match crd::read_file(&file) {
                Ok(read) => definitions.extend(read),
                Err(ReadError::NoDefinition { .. }) => continue,
                Err(error) => panic!("{error}"),
            }
            kinds.append(&mut samples::kinds(&std::fs::read_to_string(&file).unwrap()));
        }
    }
    for module in &modules {
        found.append(&mut samples::find(&module.directory(&cache), &kinds));
    }
    println!("read {} definitions, {} samples: {:?}", definitions.len(), found.len(), start.elapsed());

    let start = Instant::now();
    let options = Options::default();
    let files = types::generate(&definitions, &options).unwrap_or_else(|error| panic!("{error}"));
    let n_lines: usize = files.iter().map(|(_, text)| text.lines().count()).sum();
    println!("generated {} files, {n_lines} lines: {:?}", files.iter().count(), start.elapsed());

    let start = Instant::now();
    let project = Project::new("codegen-corpus", "k8s-openapi = \"0.29\"");
    files.write(&project.sources()).unwrap();
    project.write_main(&paths(&definitions));
    let (is_success, messages) = project.cargo(&["build", "--quiet"]);
    assert!(is_success, "{messages}");
    println!("compiled: {:?}", start.elapsed());

    let objects: Vec<_> = found.iter().map(|sample| &sample.object).collect();
    let mut n_tried: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (sample, answer) in found.iter().zip(project.run(&objects)) {
        *n_tried.entry(sample.object["kind"].as_str().unwrap()).or_default() += 1;
        let difference = match answer.get("object") {
            Some(object) => samples::difference(&sample.object, object),
            None => Some(format!(": {}", answer["error"])),
        };
        if let Some(difference) = difference {
            wrong.push(format!("{} {}{difference}", sample.file.display(), sample.object["kind"]));
        }
    }
    println!("{} samples of {} kinds came through", found.len() - wrong.len(), n_tried.len());
    assert!(wrong.is_empty(), "{} samples were changed:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!is_long || definitions.len() >= 100, "only {} definitions", definitions.len());
}

/// Where the type of each version of each kind is.
pub(crate) fn paths(definitions: &[Definition]) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for definition in definitions {
        for version in definition.versions.iter().filter(|version| version.is_served) {
            kinds.push(Kind {
                api_version: format!("{}/{}", definition.group, version.name),
                kind: definition.names.kind.clone(),
                path: types::path(definition, version, "apis"),
            });
        }
    }
    kinds
}
