//! What a controller has asked for and not yet seen: so many creations, and the deletions of these objects.
//!
//! A controller that keeps N children counts them in a cache. Between its creating one and the cache showing it, the
//! count is wrong, and it would create another. [`Expectations`] keep a key from being acted on until the cache has shown
//! what was asked for, or for [`Expectations::TIMEOUT`] at most, in case it never does. After Kubernetes'
//! `pkg/controller/controller_utils.go`.
//!
//! Where every write returns the object, [`Lister::wait_for`](crate::Lister::wait_for) (one write, and the worker waits)
//! and [`ConsistencyStore`](crate::ConsistencyStore) (any writes, and the key comes back) are simpler and exact. Expect
//! where names are made by the server, where the answer to a write may be lost, or where many children are made at once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use hashbrown::HashMap;
use kube::Resource;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::handler::Change;
use crate::key::ObjectKey;
use crate::owners::{OwnedBy, OwnerType};

/// Creations and deletions that are expected, per key of a controller. Clones are the same.
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
/// # use steersman::{Action, Controller, Expectations, ObjectKey, ReconcileError, Scope};
/// # #[derive(Debug, thiserror::Error)] #[error("no")] struct Error;
/// # impl ReconcileError for Error {}
/// async fn reconcile(key: ObjectKey, expectations: &Expectations) -> Result<Action, Error> {
///     if let Some(left) = expectations.pending(&key) {
///         return Ok(Action::RequeueAfter(left));
///     }
///     let n_missing = 3; // What is, compared with what should be.
///     expectations.expect_creations(&key, n_missing);
///     // Create them; call `creation_failed` for each that failed.
/// #   let _ = n_missing;
///     Ok(Action::AwaitChange)
/// }
///
/// # fn wire() -> Controller<ReplicaSet> {
/// let expectations = Expectations::new();
/// Controller::<ReplicaSet>::new(reconcile, expectations.clone())
///     .watches_changes::<Pod>(Scope::All, expectations.observer::<ReplicaSet, Pod>())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Expectations {
    entries: Arc<Mutex<HashMap<ObjectKey, Entry>>>,
}

struct Entry {
    n_creations: usize,
    /// Uids of objects whose deletion is to be seen.
    deletions: BTreeSet<String>,
    /// When nothing more is waited for.
    until: Instant,
}

impl Expectations {
    /// So long after the last expectation was set, it no longer counts: an event was missed, or a request was lost.
    pub const TIMEOUT: Duration = Duration::from_secs(300);

    /// Nothing is expected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects `n` more creations of what `key` owns. Say so before the first is sent: its event may come before the
    /// answer.
    pub fn expect_creations(&self, key: &ObjectKey, n: usize) {
        self.raise(key, |entry| entry.n_creations += n);
    }

    /// Expects the deletion of the objects with these uids, which `key` owns. Say so before the first is sent.
    pub fn expect_deletions(&self, key: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.raise(key, |entry| entry.deletions.extend(uids));
    }

    /// A creation was refused, so it will not be seen.
    pub fn creation_failed(&self, key: &ObjectKey) {
        self.creation_observed(key);
    }

    /// A deletion was refused, so it will not be seen.
    pub fn deletion_failed(&self, key: &ObjectKey, uid: &str) {
        self.deletion_observed(key, uid);
    }

    /// An object that `key` owns has appeared in the cache. [`Expectations::observer`] calls this.
    pub fn creation_observed(&self, key: &ObjectKey) {
        self.lower(key, |entry| entry.n_creations = entry.n_creations.saturating_sub(1));
    }

    /// An object that `key` owns is gone or going. Told twice of one uid, it counts once. [`Expectations::observer`] calls
    /// this.
    pub fn deletion_observed(&self, key: &ObjectKey, uid: &str) {
        self.lower(key, |entry| entry.deletions.retain(|known| known != uid));
    }

    /// How much longer `key` is not to be acted on, at most; `None` when all that was expected has been seen or the time
    /// is over. It runs again with the event that is waited for; to be safe, return the time as
    /// [`Action::RequeueAfter`](crate::Action::RequeueAfter).
    pub fn pending(&self, key: &ObjectKey) -> Option<Duration> {
        let mut entries = self.entries.lock();
        let until = entries.get(key)?.until;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            tracing::warn!(%key, "what was expected did not come in time, going on without");
            entries.remove(key);
            return None;
        }
        Some(left)
    }

    /// Expects nothing more of `key`, for instance because it was deleted.
    pub fn forget(&self, key: &ObjectKey) {
        self.entries.lock().remove(key);
    }

    /// A map for [`Controller::watches_changes`](crate::Controller::watches_changes) that lowers the expectations of the
    /// `O` that controls a `C` before it makes its key run, in this order: a handler of its own could be late.
    ///
    /// An object that begins to be deleted counts as deleted.
    pub fn observer<O, C>(&self) -> impl Fn(&Change<'_, C>) -> Vec<ObjectKey> + Send + Sync + 'static
    where
        O: Resource + 'static,
        O::DynamicType: Default,
        C: Resource + 'static,
    {
        let (this, owner) = (self.clone(), OwnerType::of::<O>(&O::DynamicType::default()));
        let owner_of = move |object: &C| owner.keys(object.meta(), OwnedBy::Controller, |_| true);
        move |change| {
            let mut keys = change.object().map(&owner_of).unwrap_or_default();
            let deleted = |object: &C, keys: &[ObjectKey]| {
                let uid = object.meta().uid.as_deref().unwrap_or_default();
                keys.iter().for_each(|key| this.deletion_observed(key, uid));
            };
            match change {
                Change::Added(object, _) if object.meta().deletion_timestamp.is_some() => deleted(object, &keys),
                Change::Added(..) => keys.iter().for_each(|key| this.creation_observed(key)),
                Change::Deleted(gone) => {
                    if let Some(object) = gone.object() {
                        deleted(object, &keys);
                    }
                }
                Change::Undecodable(_) => {}
                Change::Updated { old, new } => {
                    let before = owner_of(old);
                    if new.meta().deletion_timestamp.is_some() {
                        deleted(new, &before);
                    }
                    keys.extend(before);
                    keys.dedup();
                }
            }
            keys
        }
    }

    fn raise(&self, key: &ObjectKey, edit: impl FnOnce(&mut Entry)) {
        let until = Instant::now() + Self::TIMEOUT;
        let mut entries = self.entries.lock();
        let entry =
            entries.entry(key.clone()).or_insert_with(|| Entry { n_creations: 0, deletions: BTreeSet::new(), until });
        entry.until = until;
        edit(entry);
        Self::remove_satisfied(&mut entries, key);
    }

    fn lower(&self, key: &ObjectKey, edit: impl FnOnce(&mut Entry)) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else { return };
        edit(entry);
        Self::remove_satisfied(&mut entries, key);
    }

    fn remove_satisfied(entries: &mut HashMap<ObjectKey, Entry>, key: &ObjectKey) {
        if entries.get(key).is_some_and(|entry| entry.n_creations == 0 && entry.deletions.is_empty()) {
            entries.remove(key);
        }
    }
}

impl fmt::Debug for Expectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expectations").field("n_pending", &self.entries.lock().len()).finish_non_exhaustive()
    }
}

/// Does `n` like things in batches of 1, 2, 4 and so on, each batch at once, and stops after a batch in which one failed.
///
/// So what is bound to fail (a quota, a webhook that is down) fails once and not `n` times. Returns how many went well,
/// and the first error. What was not tried will not be seen: lower the expectations by it.
///
/// ```
/// # use steersman::slow_start;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let create = |number| async move { if number < 2 { Ok(()) } else { Err("quota") } };
/// let (n_created, error) = slow_start(100, create).await;
/// assert_eq!((n_created, error), (2, Some("quota")));
/// # }
/// ```
pub async fn slow_start<E, F>(n: usize, task: impl Fn(usize) -> F) -> (usize, Option<E>)
where
    F: Future<Output = Result<(), E>>,
{
    let (mut n_done, mut n_started, mut batch) = (0, 0, 1);
    while n_started < n {
        let end = n.min(n_started + batch);
        let mut running: FuturesUnordered<_> = (n_started..end).map(&task).collect();
        let mut first_error = None;
        while let Some(result) = running.next().await {
            match result {
                Ok(()) => n_done += 1,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if first_error.is_some() {
            return (n_done, first_error);
        }
        n_started = end;
        batch *= 2;
    }
    (n_done, None)
}

#[cfg(test)]
mod tests;
