//! The layout of modules and files: a module for each group, containing one for each version, containing one for each
//! kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::output::{Files, MARK};
use crate::types::print::COLUMNS;
use crate::types::{Layout, Options};
use crate::words;

/// The width up to which rustfmt leaves a list of imports on one line.
const USE_MAX: usize = 98;

/// The generated text of a kind.
pub(crate) struct Kind {
    /// The docs of its module.
    pub(crate) docs: String,
    /// The name of its module.
    pub(crate) module: String,
    pub(crate) text: String,
    /// The names that the version's module re-exports.
    pub(crate) exports: Vec<String>,
    pub(crate) uses_quantity: bool,
}

/// A module with its name, its text, and the modules in it.
struct Module {
    name: String,
    /// Its `//!` lines.
    docs: String,
    /// The content besides other modules.
    body: String,
    children: Vec<Module>,
}

/// The type of quantities in custom resources.
const QUANTITY: &str = r#"
/// A quantity in the form in which it was written: `2`, or `"500m"`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Quantity {
    Integer(i64),
    String(String),
}

impl From<Quantity> for k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: Quantity) -> Self {
        match quantity {
            Quantity::Integer(number) => Self(number.to_string()),
            Quantity::String(text) => Self(text),
        }
    }
}
"#;

/// Lays out all kinds.
pub(crate) fn files(groups: BTreeMap<&str, BTreeMap<&str, Vec<Kind>>>, options: &Options) -> Files {
    let mut children = Vec::new();
    for (group, versions) in groups {
        children.push(group_module(group, versions, options));
    }
    let mut files = Files::default();
    match &options.layout {
        Layout::Tree(name) => {
            let docs = format!("//! Types of custom resources.\n//!\n//! {MARK}: do not edit.\n");
            tree(&Module { name: name.clone(), docs, body: String::new(), children }, "", &mut files);
            files = files.below(name);
        }
        Layout::SingleFile(name) => {
            let mut text = format!("// Types of custom resources. {MARK}: do not edit.\n");
            for child in &children {
                text.push('\n');
                inline(child, &mut text);
            }
            files.insert(name, text);
        }
    }
    files
}

fn group_module(group: &str, versions: BTreeMap<&str, Vec<Kind>>, options: &Options) -> Module {
    let docs = format!("//! Types of the group `{group}`.\n//!\n//! {MARK}: do not edit.\n");
    let mut body = String::new();
    if versions.values().flatten().any(|kind| kind.uses_quantity) {
        body.push_str("use serde::{Deserialize, Serialize};\n");
        let derives = if options.schemars { "Serialize, schemars::JsonSchema)" } else { "Serialize)" };
        body.push_str(&QUANTITY.replacen("Serialize)", derives, 1));
    }
    let children = versions.into_iter().map(|(version, kinds)| version_module(group, version, kinds)).collect();
    Module { name: words::field(group), docs, body, children }
}

fn version_module(group: &str, version: &str, mut kinds: Vec<Kind>) -> Module {
    let docs = format!("//! Kinds of `{group}/{version}`.\n//!\n//! {MARK}: do not edit.\n");
    kinds.sort_by(|left, right| left.module.cmp(&right.module));
    let mut children: Vec<Module> = Vec::new();
    let mut body = String::new();
    for mut kind in kinds {
        // `FOO` and `Foo` would have modules of the same name.
        while children.iter().any(|other| other.name == kind.module) {
            kind.module.push('_');
        }
        body.push_str(&export(&kind.module, &kind.exports));
        children.push(Module { name: kind.module, docs: kind.docs, body: kind.text, children: Vec::new() });
    }
    Module { name: words::field(version), docs, body, children }
}

fn export(module: &str, names: &[String]) -> String {
    if let [only] = names {
        return format!("pub use {module}::{only};\n");
    }
    let line = format!("pub use {module}::{{{}}};", names.join(", "));
    if line.len() <= USE_MAX {
        return line + "\n";
    }
    let mut lines = format!("pub use {module}::{{\n");
    let mut row = String::new();
    for name in names {
        if !row.is_empty() && "    ".len() + row.len() + name.len() + 1 > COLUMNS {
            let _ = writeln!(lines, "    {}", row.trim_end());
            row.clear();
        }
        let _ = write!(row, "{name}, ");
    }
    let _ = write!(lines, "    {}\n}};\n", row.trim_end());
    lines
}

/// Writes a module and its submodules to separate files.
fn tree(module: &Module, directory: &str, files: &mut Files) {
    let mut text = module.docs.clone();
    if !module.children.is_empty() {
        text.push('\n');
    }
    for child in &module.children {
        let _ = writeln!(text, "pub mod {};", child.name);
    }
    if !module.body.is_empty() {
        text.push('\n');
        text.push_str(&module.body);
    }
    files.insert(format!("{directory}{}.rs", module.name), text);
    for child in &module.children {
        tree(child, &format!("{directory}{}/", module.name), files);
    }
}

/// Appends a module with all its submodules.
fn inline(module: &Module, out: &mut String) {
    let mut inner = module.docs.clone();
    if !module.body.is_empty() {
        inner.push('\n');
        inner.push_str(&module.body);
    }
    for child in &module.children {
        inner.push('\n');
        inline(child, &mut inner);
    }
    let _ = writeln!(out, "pub mod {} {{", module.name);
    for line in inner.lines() {
        let _ = if line.is_empty() { writeln!(out) } else { writeln!(out, "    {line}") };
    }
    out.push_str("}\n");
}
