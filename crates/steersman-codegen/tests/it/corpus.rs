//! The definitions of `corpus.txt`: all compile, and every sample passes through its type unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use steersman_codegen::crd::{self, Definition};
use steersman_codegen::types::{self, Options};

use crate::project::{Kind, Project};
use crate::samples::{self, Kinds, Sample};

/// The variable with Go's module cache that has the modules of the list: set by `cargo xtask test`, and printed by
/// `cargo xtask tools`.
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
    /// The module's directory in Go's cache, which writes a capital as `!` and the lower-case letter.
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

    /// The name of the program for the module's types.
    fn program(&self) -> String {
        let name: String = self
            .name
            .chars()
            .map(|character| if character.is_ascii_alphanumeric() { character } else { '-' })
            .collect();
        format!("codegen-{name}")
    }

    /// The module's definitions. Their schemas are added to `served`.
    fn definitions(&self, cache: &Path, served: &mut Kinds) -> Vec<Definition> {
        let mut definitions = Vec::new();
        for file in self.files(cache) {
            let mut documents = samples::documents(&std::fs::read_to_string(&file).unwrap());
            documents.retain(|document| document["kind"] == "CustomResourceDefinition");
            if !documents.is_empty() {
                served.append(&mut samples::kinds(&documents));
                let read = crd::from_list(&file.display().to_string(), Value::Array(documents));
                definitions.extend(read.unwrap_or_else(|error| panic!("{error}")));
            }
        }
        definitions
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
                // controller-gen writes such files for a package without a group.
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
    let modules: Vec<Module> = modules().into_iter().filter(|module| is_long || module.is_short).collect();
    let project = Project::new("codegen-corpus", "k8s-openapi = \"0.29\"");
    let mut served = Kinds::new();
    let mut programs: BTreeMap<(String, String), String> = BTreeMap::new();
    let (mut n_definitions, mut n_lines) = (0, 0);
    for module in &modules {
        let definitions = module.definitions(&cache, &mut served);
        let files = types::generate(&definitions, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        files.write(&project.sources(&module.program())).unwrap();
        let kinds = paths(&definitions);
        project.write_main(&module.program(), &kinds);
        programs.extend(kinds.into_iter().map(|kind| ((kind.api_version, kind.kind), module.program())));
        n_definitions += definitions.len();
        n_lines += files.iter().map(|(_, text)| text.lines().count()).sum::<usize>();
    }
    println!("{n_definitions} definitions became {n_lines} lines");

    let mut found: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for module in &modules {
        for sample in samples::find(&module.directory(&cache), &served) {
            let text = |name: &str| sample.object[name].as_str().unwrap_or_default().to_owned();
            found.entry(&programs[&(text("apiVersion"), text("kind"))]).or_default().push(sample);
        }
    }
    println!("{} samples found", found.values().map(Vec::len).sum::<usize>());

    // For experiments with other types on the same samples.
    for (program, samples) in &found {
        let lines: String = samples.iter().map(|sample| format!("{}\n", sample.object)).collect();
        std::fs::write(project.directory().join(format!("{program}.samples")), lines).unwrap();
    }

    let mut wrong = Vec::new();
    // One by one: compiling them all at once takes more memory than a small machine has.
    for module in &modules {
        let program = module.program();
        let (is_success, messages) = project.build(&[&program]);
        assert!(is_success, "{messages}");
        let samples = found.get(program.as_str()).map_or(&[][..], Vec::as_slice);
        println!("{} {}: compiles, {} samples", module.name, module.version, samples.len());
        wrong.extend(changed(&project, &program, samples));
    }
    assert!(wrong.is_empty(), "{} samples were changed:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!is_long || n_definitions >= 100, "only {n_definitions} definitions");
}

/// The samples that change on their way through their type, and the differences.
fn changed(project: &Project, program: &str, samples: &[Sample]) -> Vec<String> {
    let objects: Vec<&Value> = samples.iter().map(|sample| &sample.object).collect();
    let mut changed = Vec::new();
    for (sample, answer) in samples.iter().zip(project.run(program, &objects)) {
        let difference = match answer.get("object") {
            Some(object) => samples::change(&sample.object, object),
            None => Some(format!(": {}", answer["error"])),
        };
        if let Some(difference) = difference {
            changed.push(format!("{} {}{difference}", sample.file.display(), sample.object["kind"]));
        }
    }
    changed
}

/// The paths of the types of each version of each kind.
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
