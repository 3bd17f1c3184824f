//! The input of code generation: a kind, as its CustomResourceDefinition describes it.
//!
//! [`read`] takes a manifest with any number of documents, [`from_list`] the answer of a server. Both API versions,
//! `apiextensions.k8s.io/v1` and `v1beta1`, result in the same [`Definition`]. Documents of other kinds are skipped,
//! and parts that generation does not need (webhooks, conflicts of short names, conditions) are not read. Nothing is
//! validated that only matters to an API server, except names: they become part of generated code and its file names.

mod parse;
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use crate::crd::schema::{Additional, ListType, Schema, SchemaType};

/// A kind, as its CustomResourceDefinition describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The document that it was read from.
    pub source: Source,
    /// `metadata.name`: `<plural>.<group>`.
    pub name: String,
    /// The API group, `samplecrd.k8s.io`.
    pub group: String,
    pub names: Names,
    pub scope: Scope,
    /// The versions in the order of the manifest, which has at least one.
    pub versions: Vec<Version>,
}

/// The names of a kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Names {
    /// `Network`
    pub kind: String,
    /// `NetworkList`
    pub list_kind: String,
    /// `networks`
    pub plural: String,
    /// `network`
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

/// Whether objects of a kind live in namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// One version of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// `v1beta1`
    pub name: String,
    pub is_served: bool,
    /// Whether objects are stored in this version.
    pub is_storage: bool,
    /// The deprecation warning that a client gets, if the version is deprecated.
    pub deprecation: Option<String>,
    /// The schema. Without properties if the manifest has none; `schema.preserves_unknown` is set then.
    pub schema: Schema,
    /// Whether `/status` is a subresource.
    pub has_status: bool,
    /// The paths of the subresource `/scale`, if there is one.
    pub scale: Option<Scale>,
    pub columns: Vec<Column>,
    /// JSON paths of the fields that field selectors support.
    pub selectable_fields: Vec<String>,
}

/// The JSON paths that the scale subresource reads and writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// A printer column of `kubectl get`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `date` and so on.
    pub column_type: String,
    pub format: Option<String>,
    pub description: Option<String>,
    pub priority: i64,
    pub json_path: String,
}

/// The document from which a definition was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// A path, or the caller's name for the text, such as the address of a server.
    pub file: String,
    /// The number of the document, counted from one.
    pub document: usize,
}

/// Why definitions could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error("cannot read {}: give the path of a manifest", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Neither YAML nor JSON.
    #[error("{file} is neither YAML nor JSON: {message}")]
    Syntax { file: String, message: String },
    /// There are documents, but none is a CustomResourceDefinition.
    #[error("{file} has no CustomResourceDefinition; {found}")]
    NoDefinition { file: String, found: String },
    /// A field of a definition is missing, or has a wrong type.
    #[error("{place}, {definition}: {path} {problem}")]
    Field { place: Source, definition: String, path: String, problem: String },
}

/// Reads a file of manifests.
///
/// # Errors
///
/// As [`read`], and if the file does not exist.
pub fn read_file(path: &Path) -> Result<Vec<Definition>, ReadError> {
    let text = std::fs::read_to_string(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
    read(&path.display().to_string(), &text)
}

/// Reads the files of a directory that end in `.yaml`, `.yml` or `.json`, in the order of their names. Files without a
/// definition are skipped, since a directory of manifests contains others too.
///
/// # Errors
///
/// As [`read`], and if no file has a definition.
pub fn read_directory(path: &Path) -> Result<Vec<Definition>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_manifest = file
            .extension()
            .is_some_and(|extension| ["json", "yaml", "yml"].into_iter().any(|wanted| extension == wanted));
        if is_manifest && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let mut definitions = Vec::new();
    for file in &files {
        match read_file(file) {
            Ok(found) => definitions.extend(found),
            Err(ReadError::NoDefinition { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if definitions.is_empty() {
        let found = format!("of its {} files that end in .yaml, .yml or .json none does", files.len());
        return Err(ReadError::NoDefinition { file: path.display().to_string(), found });
    }
    Ok(definitions)
}

/// Reads every CustomResourceDefinition in a YAML or JSON text, including those inside lists.
///
/// # Errors
///
/// If the text is neither, has no definition, or a definition lacks a required field. `file` names the text in the
/// error.
pub fn read(file: &str, text: &str) -> Result<Vec<Definition>, ReadError> {
    let documents = parse::documents(file, text)?;
    collect(file, documents)
}

/// The CustomResourceDefinitions of a text unchanged, of either API version.
///
/// # Errors
///
/// If the text is neither YAML nor JSON.
pub fn objects(file: &str, text: &str) -> Result<Vec<Value>, ReadError> {
    let mut objects = Vec::new();
    for document in parse::documents(file, text)? {
        parse::objects(document, &mut objects);
    }
    Ok(objects)
}

/// Reads the definitions in `objects`, for example the `items` of a server's answer to `GET
/// /apis/apiextensions.k8s.io/v1/customresourcedefinitions`, or that whole answer.
///
/// # Errors
///
/// If there is no definition, or one lacks a required field. `origin` names the list in the error.
pub fn from_list(origin: &str, objects: Value) -> Result<Vec<Definition>, ReadError> {
    let documents = match objects {
        Value::Array(items) => items,
        object => vec![object],
    };
    collect(origin, documents)
}

fn collect(file: &str, documents: Vec<Value>) -> Result<Vec<Definition>, ReadError> {
    let mut definitions = Vec::new();
    let mut others = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let source = Source { file: file.to_owned(), document: index + 1 };
        parse::definitions(&source, document, &mut definitions, &mut others)?;
    }
    if definitions.is_empty() {
        let found = match others.as_slice() {
            [] => "it holds no object".to_owned(),
            kinds => format!("it holds {}", kinds.join(", ")),
        };
        return Err(ReadError::NoDefinition { file: file.to_owned(), found });
    }
    Ok(definitions)
}

// === impl Definition ===

impl Definition {
    /// The storage version, or else the first version.
    pub fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.is_storage).or_else(|| self.versions.first())
    }
}

// === impl Source ===

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (document {})", self.file, self.document)
    }
}
