//! The state of all keys of an etcd at one revision, out of a snapshot or a copy of etcd's file.
//!
//! Whoever wants to look into an etcd of which nothing is known reads it here: whose keys they are is asked afterwards
//! ([`State::objects`]). The values of all keys are in memory; of values that were replaced, only one at a time.

use crate::layout::{Format, Layout};
use crate::options::Keys;
use crate::snapshot::bolt::{Bolt, Bucket};
use crate::snapshot::{CHECKSUM, Change, KEYS, SnapshotError, UNIT, compacted, is_sound, next};
use bytes::Bytes;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use steersman_machinery::Revision;
use steersman_storage::kv::Entry;

/// The state of all keys at one revision.
#[derive(Debug)]
pub struct State {
    /// The entries under etcd's keys, in no order.
    pub entries: Vec<Entry>,
    /// The revision of the state.
    pub at: Revision,
    /// The newest revision in the file.
    pub newest: Revision,
    /// The oldest revision whose state the file has.
    pub oldest: Revision,
    /// Whether the file has no checksum, since it is a copy of etcd's own: it may be torn.
    pub is_unsigned: bool,
}

/// The objects of a server.
#[derive(Debug)]
pub struct Objects {
    /// The entries under the keys of the contract, in no order.
    pub entries: Vec<Entry>,
    /// The entries below the prefix that are not those of objects, under etcd's keys.
    pub foreign: Vec<Entry>,
    /// The number that is added to etcd's revisions, as it is in those of `entries`.
    pub shift: u64,
}

impl State {
    /// Reads a snapshot, or a copy of etcd's file, which has no checksum. Without a revision, the newest state is read.
    ///
    /// # Errors
    /// When it is damaged, or does not have the state of the revision.
    pub fn read(path: &Path, at: Option<Revision>) -> Result<State, SnapshotError> {
        let io = |source| SnapshotError::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let is_unsigned = length % UNIT != CHECKSUM;
        let length = if is_unsigned { length } else { length - CHECKSUM };
        if !is_unsigned && !is_sound(&mut file, length).map_err(io)? {
            return Err(SnapshotError::Checksum { path: path.to_owned() });
        }
        let damaged = |source| SnapshotError::Bolt { path: path.to_owned(), source };
        let bolt = Bolt::open(file, length).map_err(damaged)?;
        // etcd's first revision is 1.
        let oldest = Revision(compacted(&bolt).map_err(damaged)?.max(1));
        let mut state = State { entries: Vec::new(), at: oldest, newest: oldest, oldest, is_unsigned };
        if let Some(keys) = bolt.bucket(KEYS).map_err(damaged)? {
            state.fill(&bolt, &keys, path, at)?;
        }
        match at {
            Some(requested) if requested < oldest || state.newest < requested => {
                let (path, newest) = (path.to_owned(), state.newest);
                Err(SnapshotError::Revision { path, requested, oldest, newest })
            }
            at => Ok(State { at: at.unwrap_or(state.newest), ..state }),
        }
    }

    fn fill(
        &mut self,
        bolt: &Bolt<File>,
        keys: &Bucket,
        path: &Path,
        at: Option<Revision>,
    ) -> Result<(), SnapshotError> {
        let mut present: HashMap<Bytes, (Revision, Bytes)> = HashMap::new();
        let cursor = bolt.cursor(keys);
        let mut cursor = cursor.map_err(|source| SnapshotError::Bolt { path: path.to_owned(), source })?;
        while let Some(Change { is_deletion, key, place, value }) = next(&mut cursor, path)? {
            let revision = Revision(place.0);
            self.newest = self.newest.max(revision);
            if at.is_some_and(|at| at < revision) {
                continue;
            }
            // Removed first: a map keeps the old key, which would keep the old value in memory.
            present.remove(&key);
            if !is_deletion {
                present.insert(key, (revision, value));
            }
        }
        let entries = present.into_iter().map(|(key, (revision, value))| Entry { key, revision, value });
        self.entries = entries.collect();
        Ok(())
    }

    /// Takes the objects of a server out of the entries, by its prefix and the form of its keys.
    pub fn objects(&mut self, prefix: &str, keys: &Keys) -> Objects {
        let layout = Layout::new(prefix, keys);
        let all = layout.all();
        let (below, others) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| all.start <= entry.key && entry.key < all.end);
        self.entries = others;
        let mut objects = Objects { entries: Vec::new(), foreign: Vec::new(), shift: 0 };
        let below: Vec<Entry> = below;
        for entry in below {
            if entry.key == layout.format_key() {
                if let Format::Store { shift } = Format::parse(&entry.value) {
                    objects.shift = shift;
                }
            } else if let Some(key) = layout.key(&entry.key) {
                objects.entries.push(Entry { key, ..entry });
            } else if !layout.is_own(&entry.key) {
                objects.foreign.push(entry);
            }
        }
        for entry in &mut objects.entries {
            entry.revision = Revision(entry.revision.0.saturating_add(objects.shift));
        }
        objects
    }
}
