//! The input of code generation: what a CustomResourceDefinition says about a kind.
//!
//! [`read`] takes a manifest with any number of documents, [`from_list`] the answer of a server. Both API versions,
//! `apiextensions.k8s.io/v1` and `v1beta1`, end in the same [`Definition`]. Documents of other kinds are passed over, and what
//! generation has no use for (webhooks, short names' conflicts, conditions) is not read. Nothing is validated that only an API
//! server needs to refuse, except names: they go into generated code and the names of its files.

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
    /// Where it was read.
    pub source: Source,
    /// `metadata.name`: `<plural>.<group>`.
    pub name: String,
    /// The API group, `samplecrd.k8s.io`.
    pub group: String,
    pub names: Names,
    pub scope: Scope,
    /// In the order of the manifest, which has at least one.
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
    /// Present where the version is deprecated: the warning that a client gets.
    pub deprecation: Option<String>,
    /// Without properties where the manifest has no schema; `schema.preserves_unknown` is set then.
    pub schema: Schema,
    /// Whether `/status` is a subresource.
    pub has_status: bool,
    /// Present where `/scale` is a subresource.
    pub scale: Option<Scale>,
    pub columns: Vec<Column>,
    /// JSON paths by which field selectors may select.
    pub selectable_fields: Vec<String>,
}

/// Where the scale subresource reads and writes, as JSON paths.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// A column that `kubectl get` prints.
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

/// The document that something was read from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// A path, or what else the caller calls the text, such as the address of a server.
    pub file: String,
    /// Counted from one.
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
    /// A definition lacks something, or has something of a wrong type.
    #[error("{place}, {definition}: {path} {problem}")]
    Field { place: Source, definition: String, path: String, problem: String },
}

/// Reads a file of manifests.
///
/// # Errors
///
/// As [`read`], and if there is no such file.
pub fn read_file(path: &Path) -> Result<Vec<Definition>, ReadError> {
    let text = std::fs::read_to_string(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
    read(&path.display().to_string(), &text)
}

/// Reads the files of a directory that end in `.yaml`, `.yml` or `.json`, in the order of their names. Those without a definition
/// are passed over: a directory of manifests has others too.
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

/// Reads every CustomResourceDefinition of a text in YAML or JSON. Lists of objects are taken apart.
///
/// # Errors
///
/// If the text is neither, has no definition, or a definition lacks what it must have. `file` names the text in the error.
pub fn read(file: &str, text: &str) -> Result<Vec<Definition>, ReadError> {
    let documents = parse::documents(file, text)?;
    collect(file, documents)
}

/// The CustomResourceDefinitions of a text as they stand there, of either API version.
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

/// Takes the definitions out of `objects`, for example the `items` that a server answers to
/// `GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions`, or that whole answer.
///
/// # Errors
///
/// If there is no definition, or one lacks what it must have. `origin` names the list in the error.
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
    /// The version that objects are stored in, or else the first.
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
