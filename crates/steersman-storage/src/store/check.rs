//! Checks a store on a disk that no process has open: the engine's checksums, and whether each entry is an object.

use crate::disk::{self, OpenError, Report};
use crate::key;
use crate::kv;
use crate::kv::transformed::SEALED;
use bytes::Bytes;
use std::path::Path;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision};

/// A stored entry that is damaged or no object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unreadable {
    /// Its resource and key; `None` if the stored key is not that of an object.
    pub object: Option<(GroupResource, ObjectKey)>,
    /// The revision that wrote it.
    pub revision: Revision,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Check {
    /// The result of the engine's check.
    pub report: Report,
    /// The number of readable objects.
    pub n_objects: usize,
    /// The number of encrypted values. They are as they were written; whether they can be decrypted is not tried.
    pub n_sealed: usize,
    /// Entries that are damaged or no objects.
    pub unreadable: Vec<Unreadable>,
}

/// Checks the store in a directory, and changes nothing.
///
/// # Errors
/// When the store is open, does not exist, or is so damaged that the lost changes are unknown.
pub fn check(dir: &Path) -> Result<Check, OpenError> {
    let (mut n_objects, mut n_sealed, mut unreadable) = (0, 0, Vec::new());
    let report = disk::check(dir, |kv::Entry { key, revision, value }| match locate(&key) {
        Some(_) if value.starts_with(SEALED) => n_sealed += 1,
        Some((_, object)) if Object::decode(object.clone(), revision, &value).is_ok() => n_objects += 1,
        object => unreadable.push(Unreadable { object, revision }),
    })?;
    unreadable.extend(report.damaged.iter().map(|damaged| unreadable_at(&damaged.key, damaged.revision)));
    Ok(Check { report, n_objects, n_sealed, unreadable })
}

/// Names an unreadable entry.
pub(crate) fn unreadable_at(key: &Bytes, revision: Revision) -> Unreadable {
    Unreadable { object: locate(key), revision }
}

/// The resource and the key of the object with a stored key; `None` if that is not of an object.
pub fn locate(key: &[u8]) -> Option<(GroupResource, ObjectKey)> {
    let (group, resource, key) = key::split(key)?;
    Some((GroupResource::new(group, resource), ObjectKey::parse(key)))
}
