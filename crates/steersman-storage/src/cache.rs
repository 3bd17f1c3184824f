//! All resources as they are now: one shelf each, and the newest revision that is in.
//!
//! Fed by the log only (`feeder`), never by writers. Locks, in the order they are taken: the map of shelves, then one shelf.

use crate::key;
use crate::kv;
use crate::parallel;
use crate::ring::Limits;
use crate::shelf::{Change, Shelf};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use steersman_machinery::object::DecodeError;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision};
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Cache {
    applied: watch::Sender<Applied>,
    limits: Limits,
    shelves: RwLock<Shelves>,
}

/// How far the log has been applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    /// Nothing more will be.
    pub(crate) closed: bool,
    pub(crate) revision: Revision,
}

#[derive(Debug)]
struct Shelves {
    by_resource: HashMap<GroupResource, Arc<Shelf>>,
    /// A resource without a shelf has had no objects since this revision; what it had before is forgotten.
    floor: Revision,
}

/// A stored entry that is no object.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The key is not of the form `group/resource/key`.
    #[error("stored key {key:?} names no object")]
    Key {
        /// The key.
        key: bytes::Bytes,
    },
    /// The value is no object.
    #[error("stored key {key:?} holds no object")]
    Object {
        /// The key.
        key: bytes::Bytes,
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
}

// === impl Cache ===

impl Cache {
    /// The cache of a snapshot, which is in the order of its keys. Blocks while it decodes.
    pub(crate) fn new(snapshot: kv::Snapshot, limits: Limits) -> Result<Cache, Unreadable> {
        let floor = snapshot.revision;
        let mut by_resource = HashMap::new();
        let objects = parallel::try_map(snapshot.entries, |kv::Entry { key, revision, value }| {
            let (group, resource, printed) = key::split(&key).ok_or_else(|| Unreadable::Key { key: key.clone() })?;
            let prefix = key.slice(..group.len() + resource.len() + 1);
            let object = Object::decode(ObjectKey::parse(printed), revision, &value);
            Ok((prefix, Arc::new(object.map_err(|source| Unreadable::Object { key, source })?)))
        })?;
        // The snapshot is in the order of its keys: those of a resource are together.
        for run in objects.chunk_by(|a, b| a.0 == b.0) {
            if let Some((group, resource)) = run.first().and_then(|(prefix, _)| key::split_resource(prefix)) {
                let objects = run.iter().map(|(_, object)| object.clone()).collect();
                by_resource.insert(GroupResource::new(group, resource), Arc::new(Shelf::new(objects, floor)));
            }
        }
        Ok(Cache {
            applied: watch::Sender::new(Applied { closed: false, revision: floor }),
            limits,
            shelves: RwLock::new(Shelves { by_resource, floor }),
        })
    }

    pub(crate) fn applied(&self) -> Applied {
        *self.applied.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Applied> {
        self.applied.subscribe()
    }

    /// The shelf of a resource that has objects, history or watchers; else the revision since which it has had none.
    pub(crate) fn shelf(&self, resource: &GroupResource) -> Result<Arc<Shelf>, Revision> {
        let shelves = self.shelves.read();
        shelves.by_resource.get(resource).cloned().ok_or(shelves.floor)
    }

    /// The shelf of a resource, made if there is none.
    pub(crate) fn shelf_or_new(&self, resource: &GroupResource) -> Arc<Shelf> {
        if let Ok(shelf) = self.shelf(resource) {
            return shelf;
        }
        let mut shelves = self.shelves.write();
        let floor = shelves.floor;
        let new = || Arc::new(Shelf::new(Vec::new(), floor));
        shelves.by_resource.entry(resource.clone()).or_insert_with(new).clone()
    }

    /// Applies committed changes in order, then makes their revision the newest, then rings where something changed.
    pub(crate) fn apply(&self, events: Vec<kv::Event>, now: Instant) -> Result<(), Unreadable> {
        let Some(revision) = events.last().map(|event| event.revision) else { return Ok(()) };
        let mut touched: Vec<Arc<Shelf>> = Vec::new();
        let mut run: Option<Run> = None;
        for event in events {
            let (resource, change) = decode(event, run.as_ref().map(|run| &run.resource))?;
            if let Some(resource) = resource {
                if let Some(run) = run.take() {
                    touched.push(run.finish(&self.limits, now));
                }
                run = Some(Run { shelf: self.shelf_or_new(&resource), resource, changes: Vec::new() });
            }
            if let Some(run) = &mut run {
                run.changes.push(change);
            }
        }
        if let Some(run) = run {
            touched.push(run.finish(&self.limits, now));
        }
        self.applied.send_modify(|applied| applied.revision = revision);
        touched.iter().for_each(|shelf| shelf.ring_bell());
        Ok(())
    }

    /// Lets go of history that is too old, and of resources nobody has or looks at.
    pub(crate) fn trim(&self, now: Instant) {
        let shelves: Vec<Arc<Shelf>> = self.shelves.read().by_resource.values().cloned().collect();
        shelves.iter().for_each(|shelf| shelf.trim(&self.limits, now));
        drop(shelves);
        let mut shelves = self.shelves.write();
        let Shelves { by_resource, floor } = &mut *shelves;
        by_resource.retain(|_, shelf| {
            // Under the map's write lock nobody can take another reference.
            let (is_bare, since) = shelf.read(|state| (state.is_bare(), state.ring.floor()));
            let keep = !is_bare || Arc::strong_count(shelf) > 1;
            if !keep {
                *floor = since.max(*floor);
            }
            keep
        });
    }

    /// Forgets history up to and including a revision.
    pub(crate) fn drop_through(&self, revision: Revision) {
        let mut shelves = self.shelves.write();
        let revision = revision.min(self.applied().revision);
        shelves.by_resource.values().for_each(|shelf| shelf.drop_through(revision));
        shelves.floor = shelves.floor.max(revision);
    }

    /// Number of objects of all resources.
    pub(crate) fn count(&self) -> usize {
        self.shelves.read().by_resource.values().map(|shelf| shelf.count()).sum()
    }

    /// Nothing more will be applied: wakes everyone to that.
    pub(crate) fn close(&self) {
        self.applied.send_modify(|applied| applied.closed = true);
        self.shelves.read().by_resource.values().for_each(|shelf| shelf.ring_bell());
    }
}

/// Consecutive changes of one resource.
struct Run {
    changes: Vec<Change>,
    resource: GroupResource,
    shelf: Arc<Shelf>,
}

impl Run {
    fn finish(self, limits: &Limits, now: Instant) -> Arc<Shelf> {
        self.shelf.apply(self.changes, limits, now);
        self.shelf
    }
}

/// The change an event makes, and its resource unless that is the one given.
fn decode(event: kv::Event, current: Option<&GroupResource>) -> Result<(Option<GroupResource>, Change), Unreadable> {
    let kv::Event { key, revision, value } = event;
    let (resource, object_key) = locate(&key, current)?;
    let change = match value {
        None => Change::Delete(object_key, revision),
        Some(value) => match Object::decode(object_key, revision, &value) {
            Ok(object) => Change::Put(Arc::new(object)),
            Err(source) => return Err(Unreadable::Object { key, source }),
        },
    };
    Ok((resource, change))
}

fn locate(
    key: &bytes::Bytes,
    current: Option<&GroupResource>,
) -> Result<(Option<GroupResource>, ObjectKey), Unreadable> {
    let (group, resource, printed) = key::split(key).ok_or_else(|| Unreadable::Key { key: key.clone() })?;
    let same = current.is_some_and(|current| current.group == group && current.resource == resource);
    let resource = (!same).then(|| GroupResource::new(group, resource));
    Ok((resource, ObjectKey::parse(printed)))
}
