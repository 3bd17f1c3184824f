//! Predicates, which select the changes that count: for [`Controller::when`](crate::Controller::when) and
//! [`Watch::when`](crate::control::controller::Watch::when).
//!
//! A predicate is a function of a [`Change`]: it gets the type of the change, and the previous and the new state. The
//! ones here judge additions and updates only. A deletion passes them all, whether the object is gone or still waits
//! for its finalizers, and so does an object that cannot be decoded: a reconciler that never gets these leaves things
//! behind for ever. That holds for their combinations too, [`Combine::not`] included. A custom closure may reject
//! deletions.
//!
//! A resync is not a change, so where [`generation_changed`] and the like stand alone, a resync runs nothing; add
//! `.or(is_resync())` where it should.
//!
//! ```
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use steersman::Controller;
//! use steersman::predicates::{Combine, annotations_changed, generation_changed};
//!
//! # fn when(controller: Controller<ConfigMap>) -> Controller<ConfigMap> {
//! controller.when(generation_changed().or(annotations_changed()))
//! # }
//! ```
//!
//! Follows controller-runtime's `pkg/predicate`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{Selector, SelectorExt};

use crate::cache::handler::Change;

/// Combines predicates. Implemented for every function that can be one; never implement it by hand.
pub trait Combine<K: Resource>: Fn(&Change<'_, K>) -> bool + Send + Sync + Sized + 'static {
    /// Passes changes that both pass.
    fn and<P: Combine<K>>(self, other: P) -> impl Combine<K> {
        move |change: &Change<'_, K>| always_passes(change) || (self(change) && other(change))
    }

    /// Passes changes that either passes.
    fn or<P: Combine<K>>(self, other: P) -> impl Combine<K> {
        move |change: &Change<'_, K>| always_passes(change) || self(change) || other(change)
    }

    /// Passes the additions and updates that this one does not.
    fn not(self) -> impl Combine<K> {
        move |change: &Change<'_, K>| always_passes(change) || !self(change)
    }
}

impl<K: Resource, P: Fn(&Change<'_, K>) -> bool + Send + Sync + 'static> Combine<K> for P {}

/// The desired state changed; see [`Change::is_generation_change`]. New objects pass.
pub fn generation_changed<K: Resource + 'static>() -> impl Combine<K> {
    |change: &Change<'_, K>| change.is_generation_change()
}

/// Anything changed at all: everything but a resync. New objects pass.
pub fn resource_version_changed<K: Resource + 'static>() -> impl Combine<K> {
    metadata_updated(|old, new| old.resource_version != new.resource_version)
}

/// A label was set, changed or removed. New objects pass.
pub fn labels_changed<K: Resource + 'static>() -> impl Combine<K> {
    metadata_updated(|old, new| old.labels.iter().flatten().ne(new.labels.iter().flatten()))
}

/// An annotation was set, changed or removed. New objects pass.
pub fn annotations_changed<K: Resource + 'static>() -> impl Combine<K> {
    metadata_updated(|old, new| old.annotations.iter().flatten().ne(new.annotations.iter().flatten()))
}

/// The labels match `selector`, in the new or the previous state: an object that no longer matches passes once more, so
/// that earlier work for it can be undone.
///
/// To select on the server instead, give the selector to the [`Selection`](crate::cache::Selection).
pub fn labels_match<K: Resource + 'static>(selector: Selector) -> impl Combine<K> {
    move |change: &Change<'_, K>| {
        let none = std::collections::BTreeMap::new();
        let matches = |metadata: &ObjectMeta| selector.matches(metadata.labels.as_ref().unwrap_or(&none));
        match change {
            Change::Added(object, _) => matches(object.meta()),
            Change::Updated { old, new } => {
                always_passes(change) || matches(new.meta()) || old.metadata().is_some_and(matches)
            }
            Change::Deleted(_) | Change::Undecodable(_) => true,
        }
    }
}

/// The object is delivered again without a change.
pub fn is_resync<K: Resource + 'static>() -> impl Combine<K> {
    |change: &Change<'_, K>| always_passes(change) || change.is_resync()
}

/// Passes updates for which `differ` is true, updates whose previous state cannot be decoded, and all changes that are
/// not updates.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use steersman::predicates::{Combine, updated};
/// let data_changed = updated(|old: &ConfigMap, new: &ConfigMap| old.data != new.data);
/// # let _: &dyn Fn(&steersman::cache::Change<'_, ConfigMap>) -> bool = &data_changed;
/// ```
pub fn updated<K: Resource + 'static>(differ: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> impl Combine<K> {
    move |change: &Change<'_, K>| match change {
        Change::Updated { old, new } => always_passes(change) || old.object().is_none_or(|old| differ(old, new)),
        Change::Added(..) | Change::Deleted(_) | Change::Undecodable(_) => true,
    }
}

/// As [`updated`], by metadata alone, so that nothing else of the previous state is decoded.
fn metadata_updated<K: Resource + 'static>(
    differ: impl Fn(&ObjectMeta, &ObjectMeta) -> bool + Send + Sync + 'static,
) -> impl Combine<K> {
    move |change: &Change<'_, K>| match change {
        Change::Updated { old, new } => {
            always_passes(change) || old.metadata().is_none_or(|old| differ(old, new.meta()))
        }
        Change::Added(..) | Change::Deleted(_) | Change::Undecodable(_) => true,
    }
}

/// Whether a change is a deletion, the beginning of one, or about an undecodable object.
fn always_passes<K: Resource>(change: &Change<'_, K>) -> bool {
    match change {
        Change::Added(..) => false,
        Change::Deleted(_) | Change::Undecodable(_) => true,
        Change::Updated { old, new } => {
            old.metadata().is_none_or(|old| old.deletion_timestamp != new.meta().deletion_timestamp)
        }
    }
}

#[cfg(test)]
mod tests;
