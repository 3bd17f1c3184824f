//! What the follower keeps of a definition between its changes: little, for definitions are large and many.

use crate::catalog::Resource;
use crate::crd::{self, Names};
use std::sync::Arc;
use steersman_machinery::{Revision, Value, value};
use steersman_schema::Schema;
use tokio_util::sync::DropGuard;

/// A definition that the follower has seen.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The newest revision that was looked at, or written by the follower itself.
    pub(super) revision: Revision,
    /// The names that it was given, as the index has them.
    pub(super) names: Names,
    /// What its resource was made of, and the resource; none while it is not in force.
    pub(super) made: Option<(Source, Arc<Resource>)>,
    /// The task that deletes or rewrites its objects; it ends when this is dropped.
    pub(super) task: Option<Task>,
}

/// A task about the objects of a definition.
#[derive(Debug)]
pub(super) struct Task {
    /// What it was started for.
    pub(super) purpose: Purpose,
    pub(super) _guard: DropGuard,
}

/// Why a task is started. One with another purpose takes its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// To delete the objects of the definition with this uid, unless they are those of a built-in resource.
    Delete { uid: Box<str>, is_built_in: bool },
    /// To give stored objects the form of this generation.
    Rewrite { uid: Box<str>, generation: i64, stored_versions: usize },
}

/// What of a definition its resource is made of: one that is written again with the same makes no other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Source {
    uid: Box<str>,
    /// It counts the changes of the spec.
    generation: i64,
    names: Names,
    is_terminating: bool,
    are_objects_current: bool,
    /// A conversion webhook is needed for every object while there are several.
    stored_versions: usize,
}

// === impl Known, Source ===

impl Known {
    /// The schema of a version as it was compiled for a source with the same schemas.
    pub(super) fn schema(&self, source: &Source, version: &str) -> Option<Arc<Schema>> {
        let (made_of, resource) = self.made.as_ref()?;
        let has_same_spec = made_of.uid == source.uid && made_of.generation == source.generation;
        let same = resource.versions.iter().find(|one| has_same_spec && *one.name == *version)?;
        Some(same.schema.clone())
    }
}

impl Source {
    /// Of a definition in the internal form that is in force.
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

/// In how many versions objects may be stored.
pub(super) fn stored_versions(definition: &Value) -> usize {
    value::at(definition, &["status", "storedVersions"]).and_then(Value::as_array).map_or(0, Vec::len)
}
