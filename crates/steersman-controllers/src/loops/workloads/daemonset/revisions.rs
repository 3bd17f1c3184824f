//! The ControllerRevisions of a DaemonSet: the current template's, and older ones.
//!
//! Follows upstream's `constructHistory`, `snapshot` and `cleanupHistory`.

use crate::loops::workloads::daemonset::{Context, Error};
use crate::loops::workloads::history;
use crate::loops::workloads::template_hash;
use crate::shared::dependents::Claim;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman::ObjectKey;

/// The revisions of a DaemonSet.
pub(super) struct Revisions {
    /// The hash of the current template's revision.
    pub(super) hash: String,
    /// The other revisions, the oldest first.
    pub(super) old: Vec<Arc<ControllerRevision>>,
}

/// A DaemonSet whose revisions are read and written.
pub(super) struct Keeper<'a> {
    pub(super) cx: &'a Context,
    pub(super) key: &'a ObjectKey,
    pub(super) set: &'a DaemonSet,
}

// === impl Keeper ===

impl Keeper<'_> {
    fn api(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }

    /// Finds or creates the revision of the template, and gives it the highest number.
    ///
    /// # Errors
    /// When the cache is not filled, the server refuses a request, or a name is taken by a revision with other data.
    pub(super) async fn read(&self, claim: &Claim<'_, DaemonSet>, pods: &[Arc<Pod>]) -> Result<Revisions, Error> {
        let wanted = history::data(&self.set.spec.template);
        let (mut current, mut old) = (Vec::new(), Vec::new());
        for revision in claim.of(&self.cx.revisions).await? {
            let revision = self.labelled(revision).await?;
            if history::is_equal(&revision, &wanted) { current.push(revision) } else { old.push(revision) }
        }
        history::sort(&mut old);
        history::sort(&mut current);
        let number = history::next(&old);
        let Some(kept) = current.pop() else {
            let created = self.create(wanted, number).await?;
            return Ok(Revisions { hash: hash_of(&created).to_owned(), old });
        };
        let hash = hash_of(&kept).to_owned();
        for duplicate in current {
            self.relabel(pods, &hash).await?;
            self.delete(&duplicate).await?;
        }
        if kept.revision < Some(number) {
            self.replace(ControllerRevision { revision: Some(number), ..(*kept).clone() }).await?;
        }
        Ok(Revisions { hash, old })
    }

    /// Deletes the oldest revisions beyond the limit that no Pod uses.
    ///
    /// # Errors
    /// When the server refuses.
    pub(super) async fn truncate(&self, old: &[Arc<ControllerRevision>], pods: &[Arc<Pod>]) -> Result<(), Error> {
        let in_use = history::labels_of(pods);
        for revision in history::surplus(old, self.set.spec.revision_history_limit, |one| in_use.contains(hash_of(one)))
        {
            self.delete(&revision).await?;
        }
        Ok(())
    }

    /// Labels a revision from before there were hashes with its name as the hash.
    async fn labelled(&self, revision: Arc<ControllerRevision>) -> Result<Arc<ControllerRevision>, Error> {
        if !hash_of(&revision).is_empty() {
            return Ok(revision);
        }
        let mut changed = (*revision).clone();
        let name = history::name(&revision).to_owned();
        changed.metadata.labels.get_or_insert_default().insert(history::POD_LABEL.to_owned(), name);
        Ok(Arc::new(self.replace(changed).await?))
    }

    async fn replace(&self, revision: ControllerRevision) -> Result<ControllerRevision, Error> {
        let name = history::name(&revision).to_owned();
        let replaced = self.api().replace(&name, &PostParams::default(), &revision).await;
        let replaced = replaced.map_err(Refused::to(format!("change the revision {name:?}")))?;
        self.cx.written.wrote_at(self.key, &replaced);
        Ok(replaced)
    }

    async fn delete(&self, revision: &ControllerRevision) -> Result<(), Error> {
        history::delete(&self.cx.client, revision).await?;
        self.cx.written.deleted(self.key, revision);
        Ok(())
    }

    /// Relabels Pods of a duplicate revision, which is about to be deleted, for the revision that is kept.
    async fn relabel(&self, pods: &[Arc<Pod>], hash: &str) -> Result<(), Error> {
        let api = Api::<Pod>::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default());
        for pod in pods.iter().filter(|pod| history::pod_revision(pod) != Some(hash)) {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let patch = json!({"metadata": {"uid": pod.metadata.uid, "labels": {history::POD_LABEL: hash}}});
            match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(pod) => self.cx.written.wrote_at(self.key, &pod),
                Err(error) if refusal::is_outdated(&error) => {}
                Err(error) => return Err(Refused::to(format!("label the pod {name:?}"))(error).into()),
            }
        }
        Ok(())
    }

    async fn create(&self, data: Value, number: i64) -> Result<ControllerRevision, Error> {
        let n_collisions = self.set.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash::compute(&self.set.spec.template, n_collisions);
        let described = self.set.spec.template.metadata.as_ref();
        let mut labels = described.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
        labels.insert(history::POD_LABEL.to_owned(), hash.clone());
        let revision = history::new(self.set, &hash, labels, data, number);
        let error = match self.api().create(&PostParams::default(), &revision).await {
            Ok(created) => {
                self.cx.written.wrote_at(self.key, &created);
                return Ok(created);
            }
            Err(error) => error,
        };
        let name = history::name(&revision);
        if refusal::exists_already(&error) {
            let found = self.api().get(name).await.map_err(Refused::to(format!("read the revision {name:?}")))?;
            if history::is_equal(&found, &revision.data.0) {
                return Ok(found);
            }
            self.count_collision(n_collisions).await?;
        }
        Err(Refused::to(format!("create the revision {name:?}"))(error).into())
    }

    /// Increments the number of collisions, because another template has the same hash: this changes the hash.
    async fn count_collision(&self, n_collisions: Option<i32>) -> Result<(), Error> {
        let api = Api::<DaemonSet>::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default());
        let found = api.get(self.key.name()).await.map_err(Refused::to("read the DaemonSet"))?;
        let mut status = found.status.clone().unwrap_or_default();
        if status.collision_count != n_collisions {
            return Ok(());
        }
        status.collision_count = Some(n_collisions.unwrap_or(0).saturating_add(1));
        if let Some(written) = refusal::replace_status(&api, &DaemonSet { status: Some(status), ..found }).await? {
            self.cx.written.wrote_at(self.key, &written);
        }
        Ok(())
    }
}

fn hash_of(revision: &ControllerRevision) -> &str {
    revision.metadata.labels.as_ref().and_then(|labels| labels.get(history::POD_LABEL)).map_or("", String::as_str)
}
