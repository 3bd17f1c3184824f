//! Removes the finalizer from Pods that no Job counts any more: their Job is gone, has finished, or is no longer their
//! controller.
//!
//! Follows upstream's `syncOrphanPod`. Without this, Pods that the garbage collector deletes after a Job would stay
//! forever.

use crate::loops::workloads::job::pass::has_finalizer;
use crate::loops::workloads::job::{FINALIZER, finished, is_managed_elsewhere, release_in};
use crate::shared::dependents::Dependents;
use crate::shared::refusal::Error;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Resource as _;
use kube::{Api, Client};
use steersman::cache::{Change, Informer};
use steersman::controller::Watch;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, owners};

const NAME: &str = "job-controller-orphan-pods";
const WORKERS: usize = 5;

struct Context {
    client: Client,
    jobs: Lister<Job>,
    pods: Lister<Pod>,
}

pub(super) fn add(manager: Manager, client: Client, jobs: &Informer<Job>, pods: &Informer<Pod>) -> Manager {
    let context = Context { client, jobs: jobs.lister(), pods: pods.lister() };
    let (all_jobs, by_job) = (jobs.lister(), Dependents::of(pods));
    let ended = Watch::of(jobs).when(|change: &Change<'_, Job>| match change {
        Change::Added(job, _) | Change::Updated { new: job, .. } => finished(job).is_some(),
        Change::Deleted(_) | Change::Undecodable(_) => true,
    });
    let controller = Controller::of(pods, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .when(move |change| match change {
            // If the cache cannot answer yet, the reconciler decides.
            Change::Added(pod, _) | Change::Updated { new: pod, .. } => {
                has_finalizer(pod) && is_orphan(pod, &all_jobs).unwrap_or(true)
            }
            Change::Deleted(_) | Change::Undecodable(_) => false,
        })
        .watches(ended, move |job| {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            let is_held = |metadata: &ObjectMeta| metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
            let pods = by_job.controlled_where(uid, is_held).unwrap_or_default();
            pods.iter().map(|pod| ObjectKey::of(&**pod)).collect()
        });
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(pod) = cx.pods.find(&key)? else { return Ok(Action::AwaitChange) };
    if has_finalizer(&pod) && is_orphan(&pod, &cx.jobs)? {
        let api = Api::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
        release_in(&api, &pod).await?;
    }
    Ok(Action::AwaitChange)
}

/// Whether no Job counts the Pod. Pods with another kind of controller are not touched.
fn is_orphan(pod: &Pod, jobs: &Lister<Job>) -> Result<bool, LookupError> {
    let Some(controller) = owners::controller_of(pod) else { return Ok(true) };
    if controller.kind != Job::kind(&()) || controller.api_version != Job::api_version(&()) {
        return Ok(false);
    }
    let key = ObjectKey::namespaced(pod.metadata.namespace.as_deref().unwrap_or_default(), &controller.name);
    let owner = jobs.find(&key)?.filter(|job| job.metadata.uid.as_deref() == Some(&*controller.uid));
    Ok(owner.is_none_or(|job| !is_managed_elsewhere(&job) && finished(&job).is_some()))
}
