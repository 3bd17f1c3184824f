//! Clients of the kinds of an API group: what client-go's `generate-groups.sh` writes for Go.
//!
//! For each version of each group there is a module with clients, informers and listers of its kinds, and one with their apply
//! configurations. What is the same for every kind is not generated: it is `steersman::typed`. The Rust types of the kinds exist
//! already, written by hand or generated; [`Options::types`] says where.
//!
//! The text is what rustfmt would make of it with its default settings, unless names are very long. Whoever formats with others keeps
//! rustfmt away from it: `#[rustfmt::skip] pub mod client;`.

mod apply;
mod names;
#[cfg(test)]
mod tests;
mod text;
mod version;

use std::collections::{BTreeMap, BTreeSet};

use crate::clients::names::{GroupVersion, Kind};
use crate::clients::text::Text;
use crate::crd::{Definition, Version};
use crate::output::{Files, MARK};
use crate::words;

/// What is to be generated, and around what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the module: the files are `<module>.rs` and, below `<module>/`, one for each group and version.
    pub module: String,
    /// The path of the Rust types, without that of the kind. `{group}` (`samplecrd_k8s_io`) and `{version}` in it
    /// are replaced, so that [`crate::types`] makes them at `crate::apis::{group}::{version}`.
    pub types: String,
    /// What writes the files, for their first lines.
    pub command: String,
}

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to generate clients of.
    #[error("no definition has a version that is served: there are no clients to generate")]
    Nothing,
    /// Two groups and versions have modules of one name.
    #[error("{first} and {second} would both be the module {module}: generate them apart")]
    Alike { first: String, second: String, module: String },
    /// The same kind was given twice.
    #[error("{name} is defined twice: in {first} and in {second}")]
    Repeated { name: String, first: String, second: String },
}

/// The clients, informers, listers and apply configurations of all served versions.
///
/// # Errors
///
/// If no version is served, a kind is defined twice, or two groups have one name in Rust.
pub fn generate(definitions: &[Definition], options: &Options) -> Result<Files, Error> {
    let mut sources: BTreeMap<&str, &Definition> = BTreeMap::new();
    for definition in definitions {
        if let Some(first) = sources.insert(&definition.name, definition) {
            return Err(Error::Repeated {
                name: definition.name.clone(),
                first: first.source.to_string(),
                second: definition.source.to_string(),
            });
        }
    }
    let groups: BTreeSet<&str> = sources.values().map(|definition| definition.group.as_str()).collect();
    let mut versions: BTreeMap<GroupVersion, Vec<Kind<'_>>> = BTreeMap::new();
    for definition in sources.values() {
        for version in definition.versions.iter().filter(|version| version.is_served) {
            let group_version = GroupVersion::new(&definition.group, &version.name, &groups);
            versions.entry(group_version).or_default().push(Kind::new(definition, version));
        }
    }
    if versions.is_empty() {
        return Err(Error::Nothing);
    }
    let mut files = Files::default().below(&options.module);
    files.insert(format!("{}.rs", options.module), root(&versions, options));
    let mut modules: BTreeMap<&str, &GroupVersion> = BTreeMap::new();
    for (group_version, kinds) in &versions {
        if let Some(first) = modules.insert(&group_version.module, group_version) {
            return Err(Error::Alike {
                first: first.api_version(),
                second: group_version.api_version(),
                module: group_version.module.clone(),
            });
        }
        let path = format!("{}/{}", options.module, group_version.module);
        files.insert(format!("{path}.rs"), version::module(group_version, kinds, options));
        files.insert(format!("{path}/apply.rs"), apply::module(group_version, kinds, options));
    }
    Ok(files)
}

/// The module that leads to all others.
fn root(versions: &BTreeMap<GroupVersion, Vec<Kind<'_>>>, options: &Options) -> String {
    let mut text = Text::default();
    let groups: BTreeSet<&str> = versions.keys().map(|version| version.group.as_str()).collect();
    let groups = groups.into_iter().collect::<Vec<_>>().join(", ");
    head(&mut text, &format!("Clients, informers, listers and apply configurations of {groups}."), options);
    for version in versions.keys() {
        text.line(&format!("pub mod {};", version.module));
    }
    text.blank();
    text.line("use steersman::InformerFactory;");
    text.blank();

    text.doc("What a client can do with the kinds of these groups.");
    text.open("pub trait Clientset {");
    for version in versions.keys() {
        text.doc(&format!("Clients of {}.", version.api_version()));
        text.line(&format!("fn {0}(&self) -> {0}::Clients;", version.module));
    }
    text.close("}");
    text.blank();
    text.open("impl Clientset for kube::Client {");
    text.separated(versions.keys(), |text, version| {
        text.open(&format!("fn {0}(&self) -> {0}::Clients {{", version.module));
        text.line(&format!("{}::Clients::new(self.clone())", version.module));
        text.close("}");
    });
    text.close("}");
    text.blank();

    text.doc("The informers of these groups that a factory makes.");
    text.open("pub trait Informers {");
    for version in versions.keys() {
        text.doc(&format!("Informers of {}.", version.api_version()));
        text.line(&format!("fn {0}(&self) -> {0}::Informers;", version.module));
    }
    text.close("}");
    text.blank();
    text.open("impl Informers for InformerFactory {");
    text.separated(versions.keys(), |text, version| {
        text.open(&format!("fn {0}(&self) -> {0}::Informers {{", version.module));
        text.line(&format!("{}::Informers::new(self.clone())", version.module));
        text.close("}");
    });
    text.close("}");
    text.finish()
}

/// The first lines of a file.
fn head(text: &mut Text, what: &str, options: &Options) {
    text.inner_doc(what);
    text.inner_doc("");
    text.inner_doc(&format!("{MARK}: `{}` writes it anew.", options.command));
    text.blank();
}

/// The path of the Rust types of a version.
fn types(group_version: &GroupVersion, options: &Options) -> String {
    let group = words::field(&group_version.group);
    options.types.replace("{group}", &group).replace("{version}", &words::field(&group_version.version))
}

/// Whether an object of this version has something at `/status`, which is applied on its own.
fn has_status(version: &Version) -> bool {
    version.has_status
}
