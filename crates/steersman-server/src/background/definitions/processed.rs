//! The summary that the follower keeps of each definition between its changes, since definitions are large and many.

use std::sync::Arc;
use steersman_kinds::catalog::Resource;
use steersman_kinds::crd::{self, Names};
use steersman_machinery::{Revision, Value, value};
use steersman_schema::Schema;
use tokio_util::sync::DropGuard;

/// A definition that the follower has processed.
#[derive(Debug, Default)]
pub(super) struct ProcessedDefinition {
    /// The newest revision that was processed, or written by the follower itself.
    pub(super) revision: Revision,
    /// Its accepted names, the same as in the index.
    pub(super) names: Names,
    /// Its resource, with the source that it was made from; `None` while the definition is not in force.
    pub(super) made: Option<(Source, Arc<Resource>)>,
    /// The task that deletes or rewrites its objects. Dropping this ends the task.
    pub(super) task: Option<Task>,
}

/// A task about the objects of a definition.
#[derive(Debug)]
pub(super) struct Task {
    /// The purpose of the task.
    pub(super) purpose: Purpose,
    pub(super) _guard: DropGuard,
}

/// The purpose of a task. When it changes, another task replaces this one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// To delete the objects of the definition with this uid, unless they are those of a built-in resource.
    Delete { uid: Box<str>, is_built_in: bool },
    /// To rewrite stored objects in the form of this generation.
    Rewrite { uid: Box<str>, generation: i64, stored_versions: usize },
}

/// The parts of a definition from which its resource is made. A write that changes none of them needs no new resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Source {
    uid: Box<str>,
    /// Counts the changes of the spec.
    generation: i64,
    names: Names,
    is_terminating: bool,
    are_objects_current: bool,
    /// While objects may be stored in several versions, every object needs the conversion webhook.
    stored_versions: usize,
}

// === impl ProcessedDefinition, Source ===

impl ProcessedDefinition {
    /// The compiled schema of a version, if the spec has not changed since.
    pub(super) fn schema(&self, source: &Source, version: &str) -> Option<Arc<Schema>> {
        let (made_of, resource) = self.made.as_ref()?;
        let has_same_spec = made_of.uid == source.uid && made_of.generation == source.generation;
        let same = resource.versions.iter().find(|one| has_same_spec && *one.name == *version)?;
        Some(same.schema.clone())
    }
}

impl Source {
    /// The parts of a definition that is in force, in the internal form.
    pub(super) fn of(definition: &Value) -> Source {
        Source {
            uid: value::str_at(definition, &["metadata", "uid"]).unwrap_or_default().into(),
            generation: crd::generation(definition),
            names: Names::accepted(definition),
            is_terminating: crd::is_terminating(definition),
            are_objects_current: crd::are_current(definition),
            stored_versions: stored_versions(definition),
        }
    }
}

/// The number of versions in which objects may be stored.
pub(super) fn stored_versions(definition: &Value) -> usize {
    value::at(definition, &["status", "storedVersions"]).and_then(Value::as_array).map_or(0, Vec::len)
}
