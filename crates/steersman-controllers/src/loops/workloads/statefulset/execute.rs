//! Executes the plan for a StatefulSet, and records Events.
//!
//! Follows upstream's `stateful_pod_control.go`: its reasons and messages.

use crate::loops::workloads::statefulset::claims::ClaimChanges;
use crate::loops::workloads::statefulset::plan::{Plan, Step};
use crate::loops::workloads::statefulset::{Context, Error, identity};
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use std::sync::Arc;
use steersman::ObjectKey;
use steersman::events::EventType;
use steersman::write::slow_start;

/// A StatefulSet whose plan is executed.
pub(super) struct Executor<'a> {
    pub(super) cx: &'a Context,
    pub(super) key: &'a ObjectKey,
    pub(super) set: &'a StatefulSet,
}

/// The action on a Pod that succeeded or failed.
#[derive(Clone, Copy)]
enum Verb {
    Create,
    Delete,
    Update,
}

// === impl Executor ===

impl Executor<'_> {
    /// Executes the phases in order, and stops after one that failed. Returns how many outdated Pods were deleted.
    pub(super) async fn run(&self, plan: &Plan) -> (i32, Result<(), Error>) {
        for phase in &plan.phases {
            let done = if plan.is_parallel { self.at_once(phase).await } else { self.in_order(phase).await };
            if let Err(error) = done {
                return (0, Err(error));
            }
        }
        let mut n_deleted: i32 = 0;
        for pod in &plan.outdated {
            if let Err(error) = self.delete(pod).await {
                return (n_deleted, Err(error));
            }
            n_deleted = n_deleted.saturating_add(1);
        }
        (n_deleted, Ok(()))
    }

    async fn in_order(&self, steps: &[Step]) -> Result<(), Error> {
        for step in steps {
            self.step(step).await?;
        }
        Ok(())
    }

    async fn at_once(&self, steps: &[Step]) -> Result<(), Error> {
        let (_, error) = slow_start(steps.len(), async |at: usize| self.step(&steps[at]).await).await;
        error.map_or(Ok(()), Err)
    }

    async fn step(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Claims(pod, work) => {
                self.create_claims(pod, work).await?;
                let changed = self.change_owners(work).await;
                changed.inspect_err(|error| self.record(Verb::Update, pod, Some(error)))
            }
            Step::Create(pod, work) => self.create(pod, work).await,
            Step::Delete(pod) => self.delete(pod).await,
            Step::Update(pod, work) => self.update(pod, work).await,
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.cx.client.clone(), self.key.namespace().unwrap_or_default())
    }

    async fn create(&self, pod: &Pod, work: &ClaimChanges) -> Result<(), Error> {
        let made = self.create_claims(pod, work).await;
        made.inspect_err(|error| self.record(Verb::Create, pod, Some(error)))?;
        let created = match self.pods().create(&PostParams::default(), pod).await {
            Ok(created) => {
                self.cx.written.wrote_at(self.key, &created);
                Ok(())
            }
            // The Pod belongs to somebody else, or the cache does not have it yet.
            Err(error) if refusal::exists_already(&error) => {
                return Err(Refused::to(format!("create the pod {:?}", name_of(pod)))(error).into());
            }
            Err(error) => Err(Refused::to(format!("create the pod {:?}", name_of(pod)))(error).into()),
        };
        let changed = self.change_owners(work).await;
        changed.inspect_err(|error| self.record(Verb::Update, pod, Some(error)))?;
        self.record(Verb::Create, pod, created.as_ref().err());
        created
    }

    async fn update(&self, pod: &Pod, work: &ClaimChanges) -> Result<(), Error> {
        let record = |error: &Error| self.record(Verb::Update, pod, Some(error));
        self.create_claims(pod, work).await.inspect_err(record)?;
        self.change_owners(work).await.inspect_err(record)?;
        match self.pods().replace(name_of(pod), &PostParams::default(), pod).await {
            Ok(updated) => {
                self.cx.written.wrote_at(self.key, &updated);
                self.record(Verb::Update, pod, None);
                Ok(())
            }
            // The Pod has changed since, so its event brings the set back.
            Err(error) if refusal::is_conflict(&error) => Ok(()),
            Err(error) => {
                let error = Refused::to(format!("update the pod {:?}", name_of(pod)))(error).into();
                self.record(Verb::Update, pod, Some(&error));
                Err(error)
            }
        }
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<(), Error> {
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        match self.pods().delete(name_of(pod), &params).await {
            Ok(_) => {}
            Err(error) if refusal::is_gone(&error) => {}
            Err(error) => {
                // Another Pod may have the name now, which needs no Event. Or an admission webhook denies the deletion.
                let is_conflict = refusal::is_conflict(&error);
                let error = Refused::to(format!("delete the pod {:?}", name_of(pod)))(error).into();
                if !is_conflict {
                    self.record(Verb::Delete, pod, Some(&error));
                }
                return Err(error);
            }
        }
        self.cx.written.deleted(self.key, &**pod);
        self.record(Verb::Delete, pod, None);
        Ok(())
    }

    /// Creates all missing claims, and then returns what went wrong.
    async fn create_claims(&self, pod: &Pod, work: &ClaimChanges) -> Result<(), Error> {
        let mut problems: Vec<String> = work.ending.iter().map(|name| format!("pvc {name} is being deleted")).collect();
        let (set, pod) = (identity::name(self.set), name_of(pod));
        for claim in &work.create {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let error = match self.claims().create(&PostParams::default(), claim).await {
                Ok(created) => {
                    self.cx.written.wrote_at(self.key, &created);
                    let note = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                    self.cx.events.event(self.set, EventType::Normal, "SuccessfulCreate", &note);
                    continue;
                }
                Err(error) => error,
            };
            let message = refusal::message(&error);
            if !refusal::exists_already(&error) {
                let note = format!("Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {message}");
                self.cx.events.event(self.set, EventType::Warning, "FailedCreate", &note);
            }
            problems.push(format!("failed to create PVC {name}: {message}"));
        }
        match &*problems {
            [] => Ok(()),
            [one] => Err(Error::Claims(one.clone())),
            several => Err(Error::Claims(format!("[{}]", several.join(", ")))),
        }
    }

    async fn change_owners(&self, work: &ClaimChanges) -> Result<(), Error> {
        for name in &work.conflicting {
            // The spelling is upstream's.
            let note = format!(
                "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, the retention policy \
                 is ignored for this claim"
            );
            self.cx.events.event(self.set, EventType::Warning, "ConflictingController", &note);
        }
        for claim in &work.update {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            match self.claims().replace(name, &PostParams::default(), claim).await {
                Ok(updated) => self.cx.written.wrote_at(self.key, &updated),
                Err(error) => {
                    let message = refusal::message(&error);
                    let problem = format!("could not update claim {name} for delete policy ownerRefs: {message}");
                    return Err(Error::Claims(problem));
                }
            }
        }
        Ok(())
    }

    fn record(&self, verb: Verb, pod: &Pod, error: Option<&Error>) {
        let (successful, failed, verb) = match verb {
            Verb::Create => ("SuccessfulCreate", "FailedCreate", "Create"),
            Verb::Delete => ("SuccessfulDelete", "FailedDelete", "Delete"),
            Verb::Update => ("SuccessfulUpdate", "FailedUpdate", "Update"),
        };
        let what = format!("{verb} Pod {} in StatefulSet {}", name_of(pod), identity::name(self.set));
        match error {
            None => self.cx.events.event(self.set, EventType::Normal, successful, &format!("{what} successful")),
            Some(error) => {
                let note = format!("{what} failed error: {}", error.message());
                self.cx.events.event(self.set, EventType::Warning, failed, &note);
            }
        }
    }
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}
