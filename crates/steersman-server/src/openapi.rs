//! OpenAPI: what the server serves, in the form that kubectl and other clients read.
//!
//! Version 3 is a document for every group version and an index with their hashes; version 2 is one document of all.
//! An [`OpenApi`] belongs to one [`Catalog`]. Nothing is rendered before somebody asks: the index renders each document once
//! for its hash and lets go of it, a document that was asked for is kept, and so is version 2. [`OpenApi::after`] takes over
//! what a change of the catalog does not touch.
//!
//! Deliberately not here: what is in a schema (`steersman_schema::openapi`), and any text of Kubernetes' own documents.

mod answers;
mod operations;
mod parameters;
mod print;
mod protobuf;
mod schemas;
mod words;

pub(crate) use crate::openapi::answers::{answer_v2, answer_v3};

use crate::catalog::{Catalog, Origin, Served};
use crate::discovery::upper_hex;
use crate::openapi::operations::Subject;
use bytes::Bytes;
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The OpenAPI documents of one catalog.
#[derive(Debug)]
pub struct OpenApi {
    /// Version 3, by the path behind `/openapi/v3/`.
    entries: BTreeMap<String, Arc<Entry>>,
    index: OnceLock<Bytes>,
    v2: OnceLock<Document>,
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
    subject: Subject,
    hash: OnceLock<Box<str>>,
    document: OnceLock<Document>,
}

// === impl OpenApi ===

impl OpenApi {
    /// The documents of a catalog.
    pub fn new(catalog: Arc<Catalog>) -> OpenApi {
        let entries = subjects(&catalog).into_iter().map(|subject| (subject.key(), Arc::new(Entry::new(subject))));
        OpenApi { entries: entries.collect(), index: OnceLock::new(), v2: OnceLock::new() }
    }

    /// The documents of the catalog that comes next. Documents of group versions that serve the same as before are taken
    /// over with what is known of them.
    #[must_use]
    pub fn after(&self, catalog: Arc<Catalog>) -> OpenApi {
        let mut next = OpenApi::new(catalog);
        for (key, entry) in &mut next.entries {
            if let Some(before) = self.entries.get(key).filter(|before| is_same(&before.subject, &entry.subject)) {
                *entry = before.clone();
            }
        }
        next
    }

    /// `GET /openapi/v3`: where the document of each group version is, with its hash.
    pub fn index(&self) -> Bytes {
        let render = || {
            let paths: Map<String, serde_json::Value> = self
                .entries
                .iter()
                .map(|(key, entry)| {
                    let url = format!("/openapi/v3/{key}?hash={}", entry.hash());
                    (key.clone(), json!({"serverRelativeURL": url}))
                })
                .collect();
            json!({"paths": paths}).to_string().into()
        };
        self.index.get_or_init(render).clone()
    }

    /// `GET /openapi/v3/PATH`, where the path is one of the index: `api/v1`, `apis/apps/v1`.
    pub fn document(&self, path: &str) -> Option<Document> {
        let entry = self.entries.get(path)?;
        Some(entry.document.get_or_init(|| Document::new(print::v3(&entry.subject))).clone())
    }

    /// `GET /openapi/v2`.
    pub fn v2(&self) -> Document {
        let subjects = || self.entries.values().map(|entry| &entry.subject);
        self.v2.get_or_init(|| Document::new(print::v2(subjects()))).clone()
    }
}

/// What there is a document of: the roots, the groups with built-in kinds, every group version.
fn subjects(catalog: &Catalog) -> Vec<Subject> {
    let mut subjects = vec![Subject::Version, Subject::Core, Subject::Groups];
    for group in catalog.groups() {
        let mut has_built_in = false;
        for version in &group.versions {
            let served: Vec<Served> = catalog.resources(&group.name, version).into_iter().cloned().collect();
            has_built_in |= served.iter().any(|served| !served.resource.is_custom());
            subjects.push(Subject::GroupVersion { group: group.name.clone(), version: version.clone(), served });
        }
        if has_built_in && !group.name.is_empty() {
            subjects.push(Subject::Group(group.name.clone()));
        }
    }
    subjects
}

/// Whether two subjects of one path have the same document: built-in kinds do not change while the server runs, and a
/// custom resource that changed was made anew.
fn is_same(a: &Subject, b: &Subject) -> bool {
    let (Subject::GroupVersion { served: a, .. }, Subject::GroupVersion { served: b, .. }) = (a, b) else {
        return true;
    };
    let is_same_resource = |(a, b): (&Served, &Served)| {
        let are_built_in = a.resource.origin == Origin::BuiltIn && b.resource.origin == Origin::BuiltIn;
        Arc::ptr_eq(&a.resource, &b.resource) || (are_built_in && a.resource.plural == b.resource.plural)
    };
    a.len() == b.len() && a.iter().zip(b).all(is_same_resource)
}

// === impl Entry, Document ===

impl Entry {
    fn new(subject: Subject) -> Entry {
        Entry { subject, hash: OnceLock::new(), document: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| match self.document.get() {
            Some(document) => document.hash.clone(),
            None => Document::new(print::v3(&self.subject)).hash,
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
