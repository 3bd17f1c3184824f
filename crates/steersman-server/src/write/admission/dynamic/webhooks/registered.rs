//! The registered webhooks: read from the store when the server starts, and kept up to date by a task for each of the
//! two kinds of configurations. A configuration is compiled once for each of its changes.

use crate::shared::follower::{self, Followed, Progress};
use crate::write::admission::dynamic::matching::{Criteria, Index};
use crate::write::admission::dynamic::webhooks::Webhooks;
use crate::write::admission::dynamic::webhooks::hook::Hook;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, Revision, Value};
use steersman_storage::{Event, Kind as EventKind, ReadError, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const GROUP: &str = "admissionregistration.k8s.io";

/// A kind of webhooks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Mutating,
    Validating,
}

/// All webhooks of one kind.
#[derive(Default)]
pub(crate) struct Registered {
    /// The webhooks for lookups by writes.
    index: ArcSwap<Index<Entry>>,
    /// The webhooks by the name of their configuration, which is the order of the calls.
    hooks: Mutex<BTreeMap<Box<str>, Vec<Arc<Hook>>>>,
    progress: Progress,
}

/// A webhook and its position.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) hook: Arc<Hook>,
    /// The position among all webhooks of its kind.
    pub(crate) position: usize,
}

/// One of the two resources.
struct Part {
    webhooks: Arc<Webhooks>,
    kind: Kind,
}

/// Registers the webhooks of the store, and starts the tasks that keep them up to date until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    webhooks: &Arc<Webhooks>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let part = |kind| Box::new(Part { webhooks: webhooks.clone(), kind });
    [Kind::Mutating, Kind::Validating].into_iter().map(|kind| follower::start(store, part(kind), stopping)).collect()
}

// === impl Kind ===

impl Kind {
    pub(crate) fn find(group: &str, plural: &str) -> Option<Kind> {
        let is_about = |kind: &Kind| group == GROUP && plural == kind.plural();
        [Kind::Mutating, Kind::Validating].into_iter().find(is_about)
    }

    pub(crate) fn storage(self) -> GroupResource {
        GroupResource::new(GROUP, self.plural())
    }

    fn plural(self) -> &'static str {
        match self {
            Kind::Mutating => "mutatingwebhookconfigurations",
            Kind::Validating => "validatingwebhookconfigurations",
        }
    }

    /// The name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Mutating => "admit",
            Kind::Validating => "validating",
        }
    }
}

// === impl Entry, Registered ===

impl Entry {
    fn criteria(&self) -> &Criteria {
        &self.hook.criteria
    }
}

impl Registered {
    pub(crate) fn index(&self) -> arc_swap::Guard<Arc<Index<Entry>>> {
        self.index.load()
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) async fn wait_for(&self, revision: Revision) -> bool {
        self.progress.wait_for(revision).await
    }

    fn publish(&self, hooks: &BTreeMap<Box<str>, Vec<Arc<Hook>>>) {
        let all = hooks.values().flatten().cloned().enumerate();
        let entries = all.map(|(position, hook)| Arc::new(Entry { hook, position })).collect();
        self.index.store(Arc::new(Index::new(entries, Entry::criteria)));
    }
}

// === impl Part ===

impl Followed for Part {
    fn resource(&self) -> GroupResource {
        self.kind.storage()
    }

    fn replace(&self, objects: &[Arc<Object>], revision: Revision) {
        let registered = self.webhooks.of(self.kind);
        {
            let mut hooks = registered.hooks.lock();
            *hooks = objects.iter().map(|object| ((*object.key.name).into(), compile(object))).collect();
            registered.publish(&hooks);
        }
        registered.progress.report(revision);
    }

    fn change(&self, events: &[Arc<Event>]) {
        let registered = self.webhooks.of(self.kind);
        {
            let mut hooks = registered.hooks.lock();
            for event in events {
                let name: Box<str> = (*event.object.key.name).into();
                match event.kind {
                    EventKind::Added | EventKind::Modified => hooks.insert(name, compile(&event.object)),
                    EventKind::Deleted => hooks.remove(&name),
                };
            }
            registered.publish(&hooks);
        }
        if let Some(last) = events.last() {
            registered.progress.report(last.revision);
        }
    }
}

fn compile(object: &Object) -> Vec<Arc<Hook>> {
    match serde_json::from_slice::<Value>(object.json()) {
        Ok(configuration) => Hook::read(&object.key.name, &configuration).into_iter().map(Arc::new).collect(),
        Err(error) => {
            tracing::error!(key = %object.key, %error, "a stored webhook configuration is not readable, and not in force");
            Vec::new()
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.webhooks.of(self.kind).progress.end();
    }
}
