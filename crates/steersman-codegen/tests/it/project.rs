//! A cargo package with generated types that decodes and encodes objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The part of the program that does not depend on the types. It reads an object per line, and writes the result per
/// line.
const MAIN: &str = r##"//! Decodes each object of its input into the type of its kind, and encodes it again.
#![deny(warnings)]

pub mod apis;

use std::io::{BufRead, Write};

use serde_json::{Value, json};

fn through<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) -> Value {
    match serde_json::from_str::<T>(text) {
        Ok(object) => json!({"object": serde_json::to_value(&object).expect("an object can be encoded")}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn main() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the input can be read");
        let value: Value = serde_json::from_str(&line).expect("the input is JSON");
        let answer = convert(value["apiVersion"].as_str().unwrap_or(""), value["kind"].as_str().unwrap_or(""), &line);
        writeln!(out, "{answer}").expect("the output can be written");
    }
}

"##;

/// A package below the build directory of this crate's tests.
pub(crate) struct Project {
    directory: PathBuf,
}

/// A kind in generated code.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Kind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The path of the type: `apis::example_com::v1::Network`.
    pub(crate) path: String,
}

impl Project {
    /// A package called `name`, with these dependencies besides serde's.
    pub(crate) fn new(name: &str, dependencies: &str) -> Project {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(directory.join("src/bin")).unwrap();
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\nserde = {{ version = \"1\", features = [\"derive\"] }}\nserde_json = \"1\"\n{dependencies}\n\n\
             [profile.dev]\ndebug = false\nincremental = false\n"
        );
        std::fs::write(directory.join("Cargo.toml"), manifest).unwrap();
        // The versions that this workspace was tested with.
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        std::fs::copy(lock, directory.join("Cargo.lock")).unwrap();
        Project { directory }
    }

    /// All packages share the build of their dependencies.
    fn target() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("codegen-target")
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory for a program's types. Unchanged files are not built again.
    pub(crate) fn sources(&self, program: &str) -> PathBuf {
        self.directory.join("src/bin").join(program)
    }

    /// Writes a program for these kinds.
    pub(crate) fn write_main(&self, program: &str, kinds: &[Kind]) {
        let mut main = MAIN.to_owned();
        main.push_str(
            "fn convert(api_version: &str, kind: &str, text: &str) -> Value {\n    match (api_version, kind) {\n",
        );
        for Kind { api_version, kind, path } in kinds {
            let _ = writeln!(main, "        ({api_version:?}, {kind:?}) => through::<{path}>(text),");
        }
        main.push_str("        _ => json!({\"error\": \"no such kind\"}),\n    }\n}\n");
        let path = self.sources(program).join("main.rs");
        if !std::fs::read_to_string(&path).is_ok_and(|there| there == main) {
            std::fs::create_dir_all(self.sources(program)).unwrap();
            std::fs::write(path, main).unwrap();
        }
    }

    /// Builds one program, or all. Returns whether cargo succeeded, and its messages.
    pub(crate) fn build(&self, programs: &[&str]) -> (bool, String) {
        let output = Command::new(env!("CARGO"))
            .args(["build", "--quiet"])
            .args(programs.iter().flat_map(|program| ["--bin", program]))
            .current_dir(&self.directory)
            .env("CARGO_TARGET_DIR", Project::target())
            .env("K8S_OPENAPI_ENABLED_VERSION", "1.37")
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The answer of a program for each object.
    pub(crate) fn run(&self, program: &str, objects: &[&Value]) -> Vec<BTreeMap<String, Value>> {
        let program = Project::target().join("debug").join(program);
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "the program ended with {}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
