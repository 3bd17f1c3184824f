//! The objects in a snapshot of etcd, the file that `etcdctl snapshot save` writes: a database of bbolt and its SHA-256.
//!
//! The bucket `key` has every change that is not compacted, under its revision. The last change of each key is its present state. It is found
//! first, which takes the memory of all keys below the prefix, and the values are read then, one after the other.
//!
//! The keys of either layout are read (`layout`). The values are as they are in etcd.

mod bolt;
pub(crate) mod state;

pub use crate::snapshot::bolt::BoltError;

use crate::layout::{Format, Layout, Span};
use crate::options::Keys;
use crate::proto::KeyValue;
use crate::snapshot::bolt::page::Leaf;
use crate::snapshot::bolt::{Bolt, Bucket, Cursor, ReadAt};
use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use steersman_machinery::Revision;
use steersman_storage::kv::Entry;

/// The bucket of all changes.
const KEYS: &[u8] = b"key";
/// The bucket with the revisions up to which history was removed, and their keys. etcd takes them into account too when it finds its newest
/// revision: earlier versions remove a deletion that is the newest change.
const META: &[u8] = b"meta";
const COMPACTED: [&[u8]; 2] = [b"finishedCompactRev", b"scheduledCompactRev"];
/// The size of the checksum at the end.
const CHECKSUM: u64 = 32;
/// bbolt's pages are of this size or larger.
const UNIT: u64 = 512;
/// The size of the pieces that the checksum is computed of.
const PIECE_BYTES: usize = 256 * 1024;
/// The beginnings of the values of a kube-apiserver: protobuf, and encrypted ones.
const KUBERNETES: [&[u8]; 2] = [b"k8s\0", b"k8s:enc:"];

/// The error of a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A page is damaged, or cannot be read.
    #[error("{path:?} cannot be read as a snapshot of etcd: {source}; use another one")]
    Bolt {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: BoltError,
    },
    /// A change is not as etcd writes it.
    #[error("{path:?} has a change of etcd that cannot be read, at revision {revision}: use another snapshot")]
    Change {
        /// The file.
        path: PathBuf,
        /// The revision.
        revision: u64,
    },
    /// The checksum is wrong.
    #[error("{path:?} is damaged: its SHA-256 is not that of its end; use another snapshot")]
    Checksum {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing below the prefix.
    #[error("{path:?} has nothing below {prefix:?}{}: name the prefix of a server's objects (--snapshot-prefix)", elsewhere(other.as_deref()))]
    Empty {
        /// The file.
        path: PathBuf,
        /// The prefix.
        prefix: String,
        /// A key that it has.
        other: Option<String>,
    },
    /// There is something else below the prefix.
    #[error(
        "{path:?} has keys below {prefix:?} that are not Steersman's, such as {key:?}: name another prefix (--snapshot-prefix)"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The prefix.
        prefix: String,
        /// One of the keys.
        key: String,
    },
    /// Another release wrote the keys below the prefix.
    #[error(
        "{path:?} has the format {format:?} below {prefix:?}, which this release does not know: use the release that wrote it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The prefix.
        prefix: String,
        /// The format.
        format: String,
    },
    /// A restore had not ended.
    #[error("{path:?} was taken while a restore into {prefix:?} had not ended: use another snapshot")]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The prefix.
        prefix: String,
    },
    /// It cannot be read.
    #[error("{path:?} cannot be read")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// There are the objects of a kube-apiserver below the prefix.
    #[error(
        "{path:?} has the objects of a kube-apiserver below {prefix:?}, such as {key:?}: they are not in the layout of Steersman"
    )]
    KubeApiserver {
        /// The file.
        path: PathBuf,
        /// The prefix.
        prefix: String,
        /// One of the keys.
        key: String,
    },
    /// It does not have the state of a revision.
    #[error("{path:?} has the states from revision {oldest} to {newest}, and none of {requested}: name one of those")]
    Revision {
        /// The file.
        path: PathBuf,
        /// The revision.
        requested: Revision,
        /// The oldest state.
        oldest: Revision,
        /// The newest state.
        newest: Revision,
    },
    /// There is no checksum at its end.
    #[error(
        "{path:?} has no SHA-256 at its end, so it is a copy of etcd's file and may be torn: make a snapshot with `etcdctl snapshot save`"
    )]
    NoChecksum {
        /// The file.
        path: PathBuf,
    },
}

/// The present objects in a snapshot.
#[derive(Debug)]
pub struct Snapshot {
    bolt: Bolt<File>,
    keys: Bucket,
    layout: Layout,
    path: PathBuf,
    present: Present,
    revision: Revision,
    shift: u64,
}

/// Reads the objects of a snapshot.
#[derive(Debug)]
pub struct SnapshotEntries<'a> {
    cursor: Cursor<'a, File>,
    snapshot: &'a Snapshot,
}

/// The revision of a change, and its number among those of one transaction.
type Place = (u64, u64);

/// The content of a prefix.
#[derive(Debug, Default)]
struct Present {
    /// The keys below the prefix that are those of no objects, with the beginnings of their values.
    foreign: BTreeMap<Bytes, Bytes>,
    /// The value of the key that says what is below the prefix.
    format: Option<Bytes>,
    newest: u64,
    /// The last change of each object.
    objects: HashMap<Bytes, Place>,
    /// A key that is not below the prefix.
    other: Option<Bytes>,
}

/// A change, decoded.
struct Change {
    is_deletion: bool,
    key: Bytes,
    place: Place,
    value: Bytes,
}

impl Snapshot {
    /// Whether a file begins as one of bbolt does. Some hundred bytes of it suffice.
    pub fn is_one(beginning: &[u8]) -> bool {
        bolt::is_meta(beginning)
    }

    /// Opens a snapshot, compares its checksum, and finds the present state of all objects below a prefix.
    ///
    /// # Errors
    /// When it is damaged, or has no objects in this layout below the prefix.
    pub fn open(path: &Path, prefix: &str, keys_below: &Keys) -> Result<Snapshot, SnapshotError> {
        let path = path.to_owned();
        let io = |source| SnapshotError::Io { path: path.clone(), source };
        let mut file = File::open(&path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        if length % UNIT != CHECKSUM {
            return Err(SnapshotError::NoChecksum { path });
        }
        let length = length - CHECKSUM;
        if !is_sound(&mut file, length).map_err(io)? {
            return Err(SnapshotError::Checksum { path });
        }
        let damaged = |source| SnapshotError::Bolt { path: path.clone(), source };
        let bolt = Bolt::open(file, length).map_err(damaged)?;
        let Some(keys) = bolt.bucket(KEYS).map_err(damaged)? else {
            return Err(SnapshotError::Empty { path, prefix: prefix.to_owned(), other: None });
        };
        let layout = Layout::new(prefix, keys_below);
        let mut present = present(&bolt, &keys, &layout, &path)?;
        present.newest = present.newest.max(compacted(&bolt).map_err(damaged)?);
        let shift = usable(&present, &layout, &path, prefix)?;
        let revision = Revision(present.newest.saturating_add(shift));
        Ok(Snapshot { bolt, keys, layout, path, present, revision, shift })
    }

    /// The revision of the state.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of objects.
    pub fn n_entries(&self) -> usize {
        self.present.objects.len()
    }

    /// The keys below the prefix that are not those of entries here, such as the objects of kinds that this release does not serve.
    pub fn foreign_keys(&self) -> impl Iterator<Item = &Bytes> {
        self.present.foreign.keys()
    }

    /// Reads all objects.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn entries(&self) -> Result<SnapshotEntries<'_>, SnapshotError> {
        let cursor = self.bolt.cursor(&self.keys);
        let cursor = cursor.map_err(|source| SnapshotError::Bolt { path: self.path.clone(), source })?;
        Ok(SnapshotEntries { cursor, snapshot: self })
    }
}

impl SnapshotEntries<'_> {
    /// The next object, in the order of their revisions; `None` after the last.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    #[expect(clippy::should_implement_trait, reason = "an error ends it")]
    pub fn next(&mut self) -> Result<Option<Entry>, SnapshotError> {
        let Snapshot { layout, path, present, shift, .. } = self.snapshot;
        while let Some(change) = next(&mut self.cursor, path)? {
            let Some(key) = layout.key(&change.key) else { continue };
            if present.objects.get(&key) == Some(&change.place) {
                let revision = Revision(change.place.0.saturating_add(*shift));
                return Ok(Some(Entry { key, revision, value: change.value }));
            }
        }
        Ok(None)
    }
}

/// Reads all changes.
fn present<R: ReadAt>(bolt: &Bolt<R>, keys: &Bucket, layout: &Layout, path: &Path) -> Result<Present, SnapshotError> {
    let all: Span = layout.all();
    let mut present = Present::default();
    let cursor = bolt.cursor(keys);
    let mut cursor = cursor.map_err(|source| SnapshotError::Bolt { path: path.to_owned(), source })?;
    while let Some(Change { is_deletion, key, place, value }) = next(&mut cursor, path)? {
        present.newest = present.newest.max(place.0);
        if !(all.start <= key && key < all.end) {
            if !is_deletion {
                present.other = Some(key);
            }
        } else if let Some(own) = layout.key(&key) {
            // A copy of the key alone: it would keep the page.
            let key = Bytes::copy_from_slice(&own);
            if is_deletion {
                present.objects.remove(&key);
            } else {
                present.objects.insert(key, place);
            }
        } else if key == layout.format_key() {
            present.format = Some(value).filter(|_| !is_deletion);
        } else if is_deletion {
            present.foreign.remove(&key);
        } else if !layout.is_own(&key) {
            // Copies, for the same reason.
            let beginning = &value[..value.len().min(KUBERNETES[1].len())];
            present.foreign.insert(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(beginning));
        }
    }
    Ok(present)
}

/// The revision up to which history was removed.
fn compacted<R: ReadAt>(bolt: &Bolt<R>) -> Result<u64, BoltError> {
    let mut newest = 0;
    if let Some(meta) = bolt.bucket(META)? {
        let mut cursor = bolt.cursor(&meta)?;
        while let Some(Leaf { key, value, .. }) = cursor.next()? {
            if COMPACTED.contains(&key) {
                newest = newest.max(value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
            }
        }
    }
    Ok(newest)
}

/// The number by which revisions of the store are beyond etcd's, if there is a store.
fn usable(present: &Present, layout: &Layout, path: &Path, prefix: &str) -> Result<u64, SnapshotError> {
    let (path, prefix) = (path.to_owned(), prefix.to_owned());
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    match present.format.as_ref().map(|format| (Format::parse(format), format)) {
        Some((Format::Store { shift }, _)) if !layout.is_registry() => return Ok(shift),
        Some((Format::Restoring, _)) => return Err(SnapshotError::Incomplete { path, prefix }),
        Some((Format::Other | Format::Store { .. }, format)) => {
            return Err(SnapshotError::Format { path, prefix, format: text(format) });
        }
        None => {}
    }
    let object = present.objects.keys().next().map(|key| layout.stored(key));
    if layout.is_registry() && object.is_some() {
        return Ok(0);
    }
    match (present.foreign.first_key_value(), object) {
        (Some((key, value)), _) if is_of_kubernetes(key, value, prefix.len()) => {
            Err(SnapshotError::KubeApiserver { path, prefix, key: text(key) })
        }
        (Some((key, _)), _) => Err(SnapshotError::Foreign { path, prefix, key: text(key) }),
        (None, Some(key)) => Err(SnapshotError::Foreign { path, prefix, key: text(&key) }),
        (None, None) => Err(SnapshotError::Empty { path, prefix, other: present.other.as_ref().map(text) }),
    }
}

/// Whether an entry is of a kube-apiserver: protobuf and encrypted values have a beginning of their own, and JSON is that of custom
/// resources, whose keys name a group.
fn is_of_kubernetes(key: &[u8], value: &[u8], prefix: usize) -> bool {
    let is_of_group = || {
        key.get(prefix + 1..)
            .and_then(|rest| rest.split(|byte| *byte == b'/').next())
            .is_some_and(|group| group.contains(&b'.'))
    };
    KUBERNETES.iter().any(|start| value.starts_with(start)) || value.starts_with(b"{") && is_of_group()
}

/// The next change of a snapshot.
fn next<R: ReadAt>(cursor: &mut Cursor<'_, R>, path: &Path) -> Result<Option<Change>, SnapshotError> {
    let next = cursor.next().map_err(|source| SnapshotError::Bolt { path: path.to_owned(), source })?;
    let Some(Leaf { key, value, .. }) = next else { return Ok(None) };
    let number = |at: usize| key.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let place = (number(0), number(9));
    let is_deletion = match key.len() {
        17 => false,
        18 if key[17] == b't' => true,
        _ => return Err(SnapshotError::Change { path: path.to_owned(), revision: place.0 }),
    };
    let found = KeyValue::decode(Bytes::copy_from_slice(value));
    let KeyValue { key, value, .. } =
        found.map_err(|_| SnapshotError::Change { path: path.to_owned(), revision: place.0 })?;
    Ok(Some(Change { is_deletion, key, place, value }))
}

/// Whether the checksum at the end of a file is that of the bytes before it.
fn is_sound(file: &mut File, length: u64) -> io::Result<bool> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = length;
    while 0 < left {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        file.read_exact(&mut piece[..part])?;
        hasher.update(&piece[..part]);
        left -= part as u64;
    }
    let mut checksum = [0; CHECKSUM as usize];
    file.read_exact(&mut checksum)?;
    Ok(hasher.finalize().as_slice() == checksum)
}

fn elsewhere(other: Option<&str>) -> String {
    other.map_or_else(String::new, |other| format!(", but for example {other:?}"))
}

/// Reads the pages of a snapshot that follow the meta pages, the last of which is the uppermost bucket, for the fuzz target. Returns the
/// number of objects, if all of it can be read.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz_snapshot(pages: &[u8]) -> Option<usize> {
    let file = bolt::with_meta(pages);
    let bolt = Bolt::open(&*file, file.len() as u64).ok()?;
    let keys = bolt.bucket(KEYS).ok()??;
    let layout = Layout::new("/steersman", &Keys::Steersman);
    let present = present(&bolt, &keys, &layout, Path::new("fuzzed")).ok()?;
    let _shift = usable(&present, &layout, Path::new("fuzzed"), "/steersman");
    let _compacted = compacted(&bolt);
    Some(present.objects.len())
}
