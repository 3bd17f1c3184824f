//! The ControllerRevisions of a StatefulSet: the current template's, and the one that an update starts from.
//!
//! Follows upstream's `getStatefulSetRevisions` and `truncateHistory`. A revision is named by a hash of its data, so
//! that a second attempt finds the revision that the first one created.

use crate::loops::workloads::history;
use crate::loops::workloads::statefulset::{Context, Error, identity};
use crate::shared::dependents::Claim;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use std::sync::Arc;
use steersman::ObjectKey;

/// How many names are tried if they belong to revisions with other data.
const COLLISIONS_MAX: usize = 20;

/// The revisions of a StatefulSet.
pub(super) struct Revisions {
    /// All existing revisions, the oldest first.
    pub(super) all: Vec<Arc<ControllerRevision>>,
    /// The revision of Pods that are not updated yet. The same as `update` if no update is in progress.
    pub(super) current: Arc<ControllerRevision>,
    pub(super) update: Arc<ControllerRevision>,
    pub(super) n_collisions: i32,
}

/// A StatefulSet whose revisions are read and written.
pub(super) struct Keeper<'a> {
    pub(super) cx: &'a Context,
    pub(super) key: &'a ObjectKey,
    pub(super) set: &'a StatefulSet,
}

// === impl Keeper ===

impl Keeper<'_> {
    fn api(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }

    /// Finds or creates the revision of the template, and gives it the highest number. `None` if it does not exist, and
    /// the set or its namespace is being deleted.
    ///
    /// # Errors
    /// When the cache is not filled, or the server refuses a request.
    pub(super) async fn read(&self, claim: &Claim<'_, StatefulSet>) -> Result<Option<Revisions>, Error> {
        let mut all = claim.of(&self.cx.revisions).await?;
        history::sort(&mut all);
        let status = self.set.status.as_ref();
        let mut n_collisions = status.and_then(|status| status.collision_count).unwrap_or(0);
        let wanted = history::data(&self.set.spec.template);
        let latest = all.last();
        let equal = all.iter().rfind(|revision| history::is_equal(revision, &wanted));
        let update = match (equal, latest) {
            (Some(equal), Some(latest)) if history::is_equal(latest, &equal.data.0) => Arc::clone(latest),
            (None, Some(latest)) if history::means(latest, &wanted) => Arc::clone(latest),
            _ if self.set.metadata.deletion_timestamp.is_some() => return Ok(None),
            (Some(equal), _) => self.renumber(equal, history::next(&all)).await?,
            (None, _) => match self.create(&wanted, history::next(&all), &mut n_collisions).await {
                Err(error) if error.is_namespace_ending() => return Ok(None),
                created => created?,
            },
        };
        let current = status.and_then(|status| status.current_revision.as_deref());
        let current = all.iter().find(|revision| Some(history::name(revision)) == current);
        let current = Arc::clone(current.unwrap_or(&update));
        Ok(Some(Revisions { all, current, update, n_collisions }))
    }

    /// Gives a revision the highest number, because its template is the current one again.
    async fn renumber(&self, revision: &ControllerRevision, number: i64) -> Result<Arc<ControllerRevision>, Error> {
        let changed = ControllerRevision { revision: Some(number), ..revision.clone() };
        let name = history::name(revision);
        let changed = self.api().replace(name, &PostParams::default(), &changed).await;
        let changed = changed.map_err(Refused::to(format!("change the revision {name:?}")))?;
        self.cx.written.wrote_at(self.key, &changed);
        Ok(Arc::new(changed))
    }

    async fn create(
        &self,
        data: &Value,
        number: i64,
        n_collisions: &mut i32,
    ) -> Result<Arc<ControllerRevision>, Error> {
        let described = self.set.spec.template.metadata.as_ref();
        let mut labels = described.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
        let hash = history::hash(data, Some(*n_collisions));
        labels.insert(history::HASH_LABEL.to_owned(), hash.clone());
        let mut revision = history::new(self.set, &hash, labels, data.clone(), number);
        for _ in 0..COLLISIONS_MAX {
            let hash = history::hash(data, Some(*n_collisions));
            let name = history::name_of(identity::name(self.set), &hash);
            revision.metadata.name = Some(name.clone());
            match self.api().create(&PostParams::default(), &revision).await {
                Ok(created) => {
                    self.cx.written.wrote_at(self.key, &created);
                    return Ok(Arc::new(created));
                }
                Err(error) if refusal::exists_already(&error) => {
                    let found = self.api().get(&name).await;
                    let found = found.map_err(Refused::to(format!("read the revision {name:?}")))?;
                    if history::is_equal(&found, data) {
                        return Ok(Arc::new(found));
                    }
                    *n_collisions = n_collisions.saturating_add(1);
                }
                Err(error) => return Err(Refused::to(format!("create the revision {name:?}"))(error).into()),
            }
        }
        Err(Error::Collisions)
    }

    /// Deletes the oldest revisions beyond the limit that neither the set nor a Pod uses.
    ///
    /// # Errors
    /// When the server refuses.
    pub(super) async fn truncate(&self, revisions: &Revisions, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let mut in_use = history::labels_of(pods);
        in_use.extend([history::name(&revisions.current), history::name(&revisions.update)]);
        let unused = |revision: &&Arc<ControllerRevision>| !in_use.contains(history::name(revision));
        let unused: Vec<_> = revisions.all.iter().filter(unused).cloned().collect();
        for revision in history::surplus(&unused, self.set.spec.revision_history_limit, |_| false) {
            history::delete(&self.cx.client, &revision).await?;
            self.cx.written.deleted(self.key, &*revision);
        }
        Ok(())
    }
}
