//! OpenAPI: the served API, in the form that kubectl and other clients read.
//!
//! Version 3 is a document for every group version and an index with their hashes; version 2 is one document of all. An
//! [`OpenApi`] belongs to one [`Catalog`]. Documents are rendered at the first request: the index renders each once for
//! its hash and drops it, a requested document is kept. Version 2 is composed of one part for each group version; the
//! parts are kept too. [`OpenApi::after`] reuses the documents that a change of the catalog does not affect, so that
//! the next document of version 2 renders only the changed parts.
//!
//! Deliberately not here: the content and the descriptions of schemas (`steersman_schema::openapi`).

mod answers;
mod operations;
mod parameters;
mod print;
mod protobuf;
mod schemas;

pub(crate) use crate::http::documents::openapi::answers::{answer_v2, answer_v3, is_made};

use crate::http::documents::discovery::upper_hex;
use crate::http::documents::openapi::operations::DocumentPath;
use crate::shared::aggregation::discovered::Discovered;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use steersman_kinds::catalog::{Catalog, Group, PerGroup};

/// The OpenAPI documents of one catalog.
#[derive(Debug)]
pub struct OpenApi {
    /// The documents of `/version`, `/api` and `/apis`.
    roots: Arc<[Entry; 3]>,
    groups: PerGroup<Entries>,
    index: OnceLock<Bytes>,
    v2: OnceLock<Document>,
    v2_protobuf: OnceLock<Bytes>,
    /// Built-in definitions in the form of version 2, rendered at the first reference. Bounded by the table of built-in
    /// definitions.
    built_in_v2: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

/// The documents of one group.
#[derive(Debug)]
struct Entries {
    /// The document of the group itself, if it has built-in resources.
    group: Option<Entry>,
    versions: Vec<Arc<Entry>>,
}

/// The form of the document of version 2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Json,
    Protobuf,
}

/// A rendered document.
#[derive(Clone, Debug)]
pub struct Document {
    /// The JSON.
    pub bytes: Bytes,
    /// The SHA-512 of the bytes in upper-case hexadecimal digits.
    pub hash: Box<str>,
}

#[derive(Debug)]
struct Entry {
    path: DocumentPath,
    hash: OnceLock<Box<str>>,
    document: OnceLock<Document>,
    part: OnceLock<print::Part>,
}

// === impl OpenApi ===

impl OpenApi {
    /// The documents of a catalog.
    pub fn new(catalog: &Catalog) -> OpenApi {
        OpenApi {
            roots: Arc::new([DocumentPath::Version, DocumentPath::Core, DocumentPath::Groups].map(Entry::new)),
            groups: PerGroup::new(catalog, |group| Entries::new(group, None)),
            index: OnceLock::new(),
            v2: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
            built_in_v2: Arc::default(),
        }
    }

    /// The documents of the next catalog. Those of unchanged group versions are reused.
    #[must_use]
    pub fn after(&self, catalog: &Catalog) -> OpenApi {
        OpenApi {
            roots: self.roots.clone(),
            groups: self.groups.after(catalog, Entries::new),
            index: OnceLock::new(),
            v2: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
            built_in_v2: self.built_in_v2.clone(),
        }
    }

    /// `GET /openapi/v3`: the path of each group version's document, with its hash.
    pub fn index(&self) -> Bytes {
        let render = || {
            let path = |entry: &Entry| {
                let key = entry.path.key();
                let url = format!("/openapi/v3/{key}?hash={}", entry.hash());
                (key, json!({"serverRelativeURL": url}))
            };
            let paths: Map<String, serde_json::Value> = self.entries().map(path).collect();
            json!({"paths": paths}).to_string().into()
        };
        self.index.get_or_init(render).clone()
    }

    /// The same with the documents that other servers list. Those of this server come first.
    pub(crate) fn index_beside(&self, discovered: &Discovered) -> Bytes {
        let own = self.index();
        let mut others = discovered.versions.iter().flat_map(|version| &version.openapi).peekable();
        if others.peek().is_none() {
            return own;
        }
        let mut index: serde_json::Value = serde_json::from_slice(&own).unwrap_or_default();
        let paths = index.get_mut("paths").and_then(serde_json::Value::as_object_mut);
        if let Some(paths) = paths {
            for (path, entry) in others {
                paths.entry(path).or_insert_with(|| entry.clone());
            }
        }
        index.to_string().into()
    }

    /// `GET /openapi/v3/PATH`, where PATH is a path of the index, such as `api/v1` or `apis/apps/v1`.
    pub fn document(&self, path: &str) -> Option<Document> {
        let entry = self.entry(path)?;
        Some(entry.document.get_or_init(|| Document::new(print::v3(&entry.path))).clone())
    }

    fn entry(&self, path: &str) -> Option<&Entry> {
        let steps: Vec<&str> = path.split('/').collect();
        let version = |group: &str, version: &str| {
            let entries = &self.groups.get(group)?.versions;
            entries.iter().find(|entry| entry.path.version() == Some(version)).map(|entry| &**entry)
        };
        match *steps.as_slice() {
            ["api", name] => version("", name),
            ["apis", group] => self.groups.get(group)?.group.as_ref(),
            ["apis", group, name] => version(group, name),
            _ => self.roots.iter().find(|entry| entry.path.key() == path),
        }
    }

    /// `GET /openapi/v2`.
    pub fn v2(&self) -> Document {
        self.v2.get_or_init(|| Document::new(print::v2(&self.contents()))).clone()
    }

    /// `GET /openapi/v2` in protobuf.
    pub fn v2_protobuf(&self) -> Bytes {
        let render = || {
            let message = protobuf::document(&self.contents());
            message.expect("invariant: the parts are JSON that `print` has written").into()
        };
        self.v2_protobuf.get_or_init(render).clone()
    }

    fn contents(&self) -> print::Contents<'_> {
        let built_in = |edition, name: &str| {
            let mut rendered = self.built_in_v2.lock();
            rendered.entry(name.to_owned()).or_insert_with(|| print::built_in_v2(edition, name)).clone()
        };
        let parts: Vec<&print::Part> = self.entries().map(Entry::part).collect();
        print::contents(&parts, built_in)
    }

    /// Whether the document of a path below `/openapi/` was made before, in the form that is asked for.
    fn has_made(&self, path: &str, form: Form) -> bool {
        match path {
            "v2" if form == Form::Protobuf => self.v2_protobuf.get().is_some(),
            "v2" => self.v2.get().is_some(),
            "v3" => self.index.get().is_some(),
            _ => {
                let Some(key) = path.strip_prefix("v3/") else { return true };
                self.entry(key).is_none_or(|entry| entry.document.get().is_some())
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let groups = self
            .groups
            .iter()
            .flat_map(|(_, entries)| entries.group.iter().chain(entries.versions.iter().map(|entry| &**entry)));
        self.roots.iter().chain(groups)
    }
}

// === impl Entries ===

impl Entries {
    /// The documents of a group. Those of unchanged versions are taken from `before`.
    fn new(group: &Group, before: Option<&Entries>) -> Entries {
        let versions = group.served().iter().map(|version| {
            let mut known = before.into_iter().flat_map(|before| &before.versions);
            let same = known.find(
                |entry| matches!(&entry.path, DocumentPath::GroupVersion(before) if Arc::ptr_eq(before, version)),
            );
            same.cloned().unwrap_or_else(|| Arc::new(Entry::new(DocumentPath::GroupVersion(version.clone()))))
        });
        let has_document = group.has_built_in() && !group.name.is_empty();
        Entries {
            group: has_document.then(|| Entry::new(DocumentPath::Group(group.name.clone()))),
            versions: versions.collect(),
        }
    }
}

// === impl Entry, Document ===

impl Entry {
    fn new(path: DocumentPath) -> Entry {
        Entry { path, hash: OnceLock::new(), document: OnceLock::new(), part: OnceLock::new() }
    }

    fn part(&self) -> &print::Part {
        self.part.get_or_init(|| print::part(&self.path))
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| match self.document.get() {
            Some(document) => document.hash.clone(),
            None => Document::new(print::v3(&self.path)).hash,
        })
    }
}

impl Document {
    fn new(bytes: Vec<u8>) -> Document {
        Document { hash: upper_hex(&Sha512::digest(&bytes)).into(), bytes: bytes.into() }
    }

    /// The entity tag, quotes included.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }
}

#[cfg(test)]
mod tests;
