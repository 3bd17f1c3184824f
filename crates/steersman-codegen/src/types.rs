//! Generates Rust types from CustomResourceDefinitions.
//!
//! A kind becomes a struct with `metadata`, `spec` and so on, the impls that make it a `kube::Resource`, and the types
//! below it. Types that are equal (in fields, descriptions, and the name they are used under) become one type, under
//! the shortest name that is free. The stages are: `infer` (schema to `model`), `names`, `derives`, `print`, `layout`
//! (files and modules).
//!
//! A type can hold what the API server accepts, and no value changes on its way through a type, as far as Rust and
//! Kubernetes' own types allow: an optional field is an `Option`, an empty list is distinct from an absent one, and
//! quantities keep the form in which they were written.

mod derives;
mod infer;
mod kubernetes_type;
mod layout;
mod model;
pub(crate) mod names;
mod print;
mod resource;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::crd::{Definition, Source, Version};
use crate::output::Files;
use crate::words;

/// Options for the generated code.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Descriptions become doc comments. Set by default.
    pub docs: bool,
    /// How strings with an `enum` are represented.
    pub enums: Enums,
    /// Whether to use the types of k8s-openapi where a schema is exactly theirs. Set by default.
    pub known_types: bool,
    /// Whether versions that the definition does not serve get types too.
    pub unserved_versions: bool,
    /// Whether `spec` is a plain field even if the schema does not require it; otherwise it is an `Option` then.
    pub spec_always: bool,
    /// Derive `schemars::JsonSchema`. The generated code then needs the crate `schemars` in version 1, and the feature
    /// of the same name of k8s-openapi.
    pub schemars: bool,
    /// Derives added to every type, as paths: `bon::Builder`.
    pub derives: Vec<String>,
    pub layout: Layout,
}

/// How strings with an `enum` are represented.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Enums {
    /// A Rust enum of the values. An object with another value cannot be decoded.
    Closed,
    /// A Rust enum of the values, and a variant that holds any other: a later version of the definition may have more.
    #[default]
    Open,
    /// `String`
    Strings,
}

/// How the generated modules are laid out in files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Layout {
    /// A module for each group, version and kind, below one of this name: `apis.rs`, `apis/example_com.rs`,
    /// `apis/example_com/v1.rs`, `apis/example_com/v1/network.rs`. For a directory of sources.
    Tree(String),
    /// The same modules in one file of this name, for `include!`.
    SingleFile(String),
}

/// Why no types could be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two definitions define the same version of the same kind.
    #[error("{kind} of {group}/{version} is defined twice, in {first} and in {second}: leave one out")]
    Twice { group: String, version: String, kind: String, first: Source, second: Source },
    /// Two groups, versions or kinds would have the same name in Rust.
    #[error("{first} and {second} would both be {name} in Rust: generate them apart")]
    Alike { first: String, second: String, name: String },
    /// No version of any definition is served.
    #[error("no version of {definitions} is served: ask for versions that are not")]
    NothingServed { definitions: String },
}

/// Generates the types of all definitions.
///
/// # Errors
///
/// If two definitions are of the same version of the same kind, one has no version to generate, or two groups, versions
/// or kinds would have the same name in Rust.
pub fn generate(definitions: &[Definition], options: &Options) -> Result<Files, Error> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<layout::Kind>>> = BTreeMap::new();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (definition, version) in versions(definitions, options)? {
        check_names(definition, version, &mut names)?;
        let model = infer::infer(definition, version, options);
        let kind = layout::Kind {
            module: words::field(&definition.names.kind),
            docs: print::module_docs(definition, version),
            text: print::print(definition, version, &model, options),
            exports: model.exports(),
            uses_quantity: model.uses_quantity,
        };
        groups.entry(&definition.group).or_default().entry(&version.name).or_default().push(kind);
    }
    Ok(layout::files(groups, options))
}

/// Records the Rust names of a kind and its group and version, to find clashes: `a-b.com` and `a.b.com` become one
/// module, `Foo` and `foo` one type.
fn check_names(definition: &Definition, version: &Version, names: &mut BTreeMap<String, String>) -> Result<(), Error> {
    let group = &definition.group;
    let group_name = words::field(group);
    let version_name = format!("{group_name}::{}", words::field(&version.name));
    let kind_name = format!("{version_name}::{}", names::of_kind(&definition.names.kind));
    let group_version = format!("{group}/{}", version.name);
    let kind = format!("{} of {group_version}", definition.names.kind);
    for (name, what) in [(group_name, group.clone()), (version_name, group_version), (kind_name, kind)] {
        if let Some(first) = names.get(&name).filter(|first| **first != what) {
            return Err(Error::Alike { first: first.clone(), second: what, name });
        }
        names.insert(name, what);
    }
    Ok(())
}

/// The path of a kind's generated type, below the module of the output: `apis::example_com::v1::Network`.
pub fn path(definition: &Definition, version: &Version, module: &str) -> String {
    let group = words::field(&definition.group);
    format!("{module}::{group}::{}::{}", words::field(&version.name), names::of_kind(&definition.names.kind))
}

/// Every version of every kind that gets types, in stable order.
fn versions<'a>(definitions: &'a [Definition], options: &Options) -> Result<Vec<(&'a Definition, &'a Version)>, Error> {
    let mut found: BTreeMap<(&str, &str, &str), (&Definition, &Version)> = BTreeMap::new();
    for definition in definitions {
        for version in definition.versions.iter().filter(|version| options.unserved_versions || version.is_served) {
            let key = (definition.group.as_str(), version.name.as_str(), definition.names.kind.as_str());
            if let Some((other, _)) = found.insert(key, (definition, version)) {
                return Err(Error::Twice {
                    group: definition.group.clone(),
                    version: version.name.clone(),
                    kind: definition.names.kind.clone(),
                    first: other.source.clone(),
                    second: definition.source.clone(),
                });
            }
        }
    }
    if found.is_empty() {
        let names: Vec<&str> = definitions.iter().map(|definition| definition.name.as_str()).collect();
        return Err(Error::NothingServed { definitions: names.join(", ") });
    }
    Ok(found.into_values().collect())
}

// === impl Options ===

impl Default for Options {
    fn default() -> Options {
        Options {
            docs: true,
            enums: Enums::default(),
            known_types: true,
            unserved_versions: false,
            spec_always: false,
            schemars: false,
            derives: Vec::new(),
            layout: Layout::Tree("apis".to_owned()),
        }
    }
}
