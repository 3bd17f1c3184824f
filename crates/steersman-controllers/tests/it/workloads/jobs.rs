//! Jobs and their Pods on a whole control plane.

use crate::support::moved;
use http::Method;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

async fn create(plane: &ControlPlane, name: &str, spec: Value) {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut whole = json!({"template": template});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name, "namespace": "default"}, "spec": whole});
    plane.apply(&object.to_string()).await;
}

fn pods(plane: &ControlPlane) -> Api<Pod> {
    Api::namespaced(plane.client(), "default")
}

async fn pods_of(plane: &ControlPlane, job: &str) -> Vec<Pod> {
    let selected = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    pods(plane).list(&selected).await.unwrap().items
}

/// Sets the phase of Pods that have not finished.
pub(crate) async fn end(plane: &ControlPlane, job: &str, n: usize, phase: &str) {
    let is_running = |pod: &&Pod| pod.status.as_ref().is_none_or(|status| status.phase.as_deref() == Some("Pending"));
    let all = pods_of(plane, job).await;
    let running: Vec<&Pod> = all.iter().filter(is_running).take(n).collect();
    assert_eq!(running.len(), n, "so many pods run");
    for pod in running {
        let patch = Patch::Strategic(json!({"status": {"phase": phase}}));
        pods(plane).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

async fn until(plane: &ControlPlane, job: &str, condition: impl Fn(&JobStatus) -> bool) -> JobStatus {
    let key = ObjectKey::namespaced("default", job);
    plane.until(&key, |job: &Job| job.status.as_ref().is_some_and(&condition)).await.status.unwrap()
}

fn has(status: &JobStatus, type_: &str) -> bool {
    status.conditions.iter().flatten().any(|one| one.type_ == type_ && one.status == "True")
}

fn is_held(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_are_counted_and_let_go_until_the_job_is_complete() {
    let plane = ControlPlane::start_with(Loops::only(["job"])).await;
    create(&plane, "j", json!({"completions": 3, "parallelism": 2})).await;
    until(&plane, "j", |status| status.active == Some(2)).await;
    assert!(pods_of(&plane, "j").await.iter().all(is_held));
    end(&plane, "j", 2, "Succeeded").await;
    until(&plane, "j", |status| status.active == Some(1) && status.succeeded == Some(2)).await;
    end(&plane, "j", 1, "Succeeded").await;
    let status = until(&plane, "j", |status| has(status, "Complete")).await;
    assert_eq!((status.succeeded, status.failed, status.active), (Some(3), None, None));
    assert!(!pods_of(&plane, "j").await.iter().any(is_held));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_whose_job_is_gone_are_let_go_uncounted() {
    let plane = ControlPlane::start_with(Loops::only(["job"])).await;
    create(&plane, "j", json!({"completions": 2, "parallelism": 2})).await;
    until(&plane, "j", |status| status.active == Some(2)).await;
    let names: Vec<String> = pods_of(&plane, "j").await.iter().map(|pod| pod.name_any()).collect();
    Api::<Job>::namespaced(plane.client(), "default").delete("j", &DeleteParams::background()).await.unwrap();
    for name in names {
        plane.until(&ObjectKey::namespaced("default", &name), |pod: &Pod| !is_held(pod)).await;
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_while_no_loop_runs_is_counted_once_afterwards() {
    let plane = ControlPlane::start_with(Loops::only(["job"])).await;
    create(&plane, "j", json!({"completions": 4, "parallelism": 4, "backoffLimit": 9})).await;
    until(&plane, "j", |status| status.active == Some(4)).await;
    let plane = plane.with_loops(Loops::none()).await;
    end(&plane, "j", 2, "Succeeded").await;
    end(&plane, "j", 1, "Failed").await;
    let plane = plane.with_loops(Loops::only(["job"])).await;
    let status = until(&plane, "j", |status| status.succeeded == Some(2) && status.failed == Some(1)).await;
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_requests_fail_every_pod_is_counted_once() {
    let plane = moved::plane(Loops::only(["job"])).await;
    create(&plane, "j", json!({"completions": 12, "parallelism": 4, "backoffLimit": 99})).await;
    let is_write = |method: &Method, path: &str| {
        // The status writes of Pods are the test's own.
        let is_about_pods = path.contains("/pods") && !path.ends_with("/status");
        *method != Method::GET && (path.contains("/jobs/j/status") || is_about_pods)
    };
    let mut n_succeeded = 0;
    for round in 0..3 {
        until(&plane, "j", |status| status.active == Some(4)).await;
        end(&plane, "j", 4, "Succeeded").await;
        n_succeeded += 4;
        for fault in [Fault::Refused(500), Fault::Refused(409), Fault::Unanswered, Fault::Unsent] {
            plane.fail_next_where(1 + round, fault, is_write);
        }
        until(&plane, "j", |status| status.succeeded == Some(n_succeeded)).await;
    }
    let status = until(&plane, "j", |status| has(status, "Complete")).await;
    assert_eq!((status.succeeded, status.failed), (Some(12), None));
    assert!(!pods_of(&plane, "j").await.iter().any(is_held));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_is_replaced_after_ten_seconds_and_then_after_twenty() {
    let plane = moved::plane(Loops::only(["job"])).await;
    create(&plane, "j", json!({})).await;
    for _ in 0..3 {
        until(&plane, "j", |status| status.active == Some(1)).await;
        end(&plane, "j", 1, "Failed").await;
        until(&plane, "j", |status| status.active.is_none()).await;
    }
    until(&plane, "j", |status| status.active == Some(1)).await;
    let mut created: Vec<i64> =
        pods_of(&plane, "j").await.iter().map(|pod| pod.creation_timestamp().unwrap().0.as_second()).collect();
    created.sort_unstable();
    let waits: Vec<i64> = created.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Without a kubelet, the time of its creation counts as the time at which a Pod finished.
    assert!(waits.iter().zip([10, 20, 40]).all(|(wait, want)| (want..want + 3).contains(wait)), "{waits:?}");
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_job_and_its_time_to_live_deletes_it() {
    let plane = moved::plane(Loops::only(["job", "ttl-after-finished"])).await;
    create(&plane, "j", json!({"activeDeadlineSeconds": 3600, "ttlSecondsAfterFinished": 7200})).await;
    let status = until(&plane, "j", |status| has(status, "Failed")).await;
    let since = status.start_time.as_ref().unwrap().0;
    let finished = status.conditions.unwrap().into_iter().find(|one| one.type_ == "Failed").unwrap();
    assert_eq!(finished.reason.as_deref(), Some("DeadlineExceeded"));
    let finished = finished.last_transition_time.unwrap().0;
    assert!((3600..3602).contains(&finished.duration_since(since).as_secs()));
    // No garbage collector runs here, so the Job keeps waiting for its dependents.
    let key = ObjectKey::namespaced("default", "j");
    let job = plane.until(&key, |job: &Job| job.metadata.deletion_timestamp.is_some()).await;
    let deleted = job.metadata.deletion_timestamp.unwrap().0;
    assert!((7200..7202).contains(&deleted.duration_since(finished).as_secs()));
    assert_eq!(job.metadata.finalizers.unwrap(), ["foregroundDeletion"]);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_selector_matches_is_adopted_with_the_finalizer() {
    let plane = ControlPlane::start_with(Loops::only(["job"])).await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "own", "namespace": "default", "labels": {"app": "mine"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    plane.apply(&pod.to_string()).await;
    let template = json!({"metadata": {"labels": {"app": "mine"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"completions": 1, "manualSelector": true, "selector": {"matchLabels": {"app": "mine"}}, "template": template});
    create(&plane, "j", spec).await;
    let key = ObjectKey::namespaced("default", "own");
    plane.until(&key, |pod: &Pod| is_held(pod) && pod.owner_references().iter().any(|owner| owner.name == "j")).await;
    let patch = Patch::Strategic(json!({"status": {"phase": "Succeeded"}}));
    pods(&plane).patch_status("own", &PatchParams::default(), &patch).await.unwrap();
    let status = until(&plane, "j", |status| has(status, "Complete")).await;
    assert_eq!(status.succeeded, Some(1));
    assert_eq!(pods(&plane).list(&ListParams::default()).await.unwrap().items.len(), 1, "no other pod was needed");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_somebody_else_manages_is_left_alone() {
    let plane = ControlPlane::start_with(Loops::only(["job"])).await;
    create(&plane, "theirs", json!({"managedBy": "example.com/queue"})).await;
    create(&plane, "ours", json!({"managedBy": "kubernetes.io/job-controller"})).await;
    until(&plane, "ours", |status| status.active == Some(1)).await;
    assert_eq!(pods_of(&plane, "theirs").await.len(), 0);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexed_job_may_become_larger_and_smaller() {
    let plane = ControlPlane::start_with(Loops::only(["job"])).await;
    create(&plane, "ix", json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3})).await;
    until(&plane, "ix", |status| status.active == Some(3)).await;
    let scale = async |n: i32| {
        let patch = Patch::Merge(json!({"spec": {"completions": n, "parallelism": n}}));
        Api::<Job>::namespaced(plane.client(), "default").patch("ix", &PatchParams::default(), &patch).await.unwrap();
        until(&plane, "ix", |status| status.active == Some(n)).await;
    };
    scale(5).await;
    scale(2).await;
    let mut indexes: Vec<String> = pods_of(&plane, "ix")
        .await
        .iter()
        .map(|pod| pod.labels()["batch.kubernetes.io/job-completion-index"].clone())
        .collect();
    indexes.sort_unstable();
    assert_eq!(indexes, ["0", "1"]);
    end(&plane, "ix", 2, "Succeeded").await;
    let status = until(&plane, "ix", |status| has(status, "Complete")).await;
    assert_eq!((status.completed_indexes.as_deref(), status.succeeded, status.failed), (Some("0,1"), Some(2), None));
    plane.stop().await;
}
