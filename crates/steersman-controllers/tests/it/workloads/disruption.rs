//! PodDisruptionBudgets, on a whole control plane.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{EvictParams, Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops};

const SET: &str = "
{kind: ReplicaSet, apiVersion: apps/v1, metadata: {name: web, namespace: default}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}
";

const CARTS: &str = "
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: carts.shop.example}
spec:
  group: shop.example
  names: {kind: Cart, plural: carts}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}}}}}}
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
";

async fn pods(plane: &ControlPlane, owner: Option<&str>, app: &str, n: usize) {
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    let owners = owner.map(|uid| {
        format!(
            ", ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: {uid}, controller: true}}]"
        )
    });
    let owners = owners.unwrap_or_default();
    for n in 0..n {
        plane
            .apply(&format!(
                "{{kind: Pod, apiVersion: v1, metadata: {{name: {app}{n}, namespace: default, labels: {{app: {app}}}{owners}}}, \
                 spec: {{containers: [{{name: c, image: i}}]}}}}"
            ))
            .await;
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(&format!("{app}{n}"), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

/// The current, desired, expected and allowed numbers of Pods.
fn counts(budget: &PodDisruptionBudget) -> Option<[i32; 4]> {
    let status = budget.status.as_ref()?;
    status.observed_generation?;
    Some([
        status.current_healthy.unwrap_or_default(),
        status.desired_healthy.unwrap_or_default(),
        status.expected_pods.unwrap_or_default(),
        status.disruptions_allowed.unwrap_or_default(),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_counts_its_pods_and_lets_as_many_go_as_it_may() {
    let plane = ControlPlane::start_with(Loops::only(["disruption"])).await;
    let set = plane.apply(SET).await;
    pods(&plane, set[0].metadata.uid.as_deref(), "web", 3).await;
    plane.apply("{kind: PodDisruptionBudget, apiVersion: policy/v1, metadata: {name: b, namespace: default}, spec: {maxUnavailable: 34%, selector: {matchLabels: {app: web}}}}").await;
    let key = ObjectKey::namespaced("default", "b");
    plane.until(&key, |budget: &PodDisruptionBudget| counts(budget) == Some([3, 1, 3, 2])).await;
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.evict("web0", &EvictParams::default()).await.unwrap();
    plane.until(&key, |budget: &PodDisruptionBudget| counts(budget) == Some([2, 1, 3, 1])).await;
    pods.evict("web1", &EvictParams::default()).await.unwrap();
    let budget = plane.until(&key, |budget: &PodDisruptionBudget| counts(budget) == Some([1, 1, 3, 0])).await;
    let conditions = budget.status.unwrap().conditions.unwrap();
    assert_eq!((&*conditions[0].status, &*conditions[0].reason), ("False", "InsufficientPods"));
    pods.evict("web2", &EvictParams::default()).await.expect_err("the last one has to stay");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_without_an_owner_are_unmanaged_and_an_owner_without_a_scale_is_an_error() {
    let plane = ControlPlane::start_with(Loops::only(["disruption"])).await;
    pods(&plane, None, "bare", 1).await;
    plane.apply("{kind: PodDisruptionBudget, apiVersion: policy/v1, metadata: {name: b, namespace: default}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: bare}}}}").await;
    let key = ObjectKey::namespaced("default", "b");
    plane.until(&key, |budget: &PodDisruptionBudget| counts(budget) == Some([1, 0, 0, 0])).await;
    plane.apply("{kind: Node, apiVersion: v1, metadata: {name: node-1}}").await;
    plane.apply("{kind: Pod, apiVersion: v1, metadata: {name: odd, namespace: default, labels: {app: bare}, ownerReferences: [{apiVersion: example.com/v1, kind: Thing, name: t, uid: u, controller: true}]}, spec: {containers: [{name: c, image: i}]}}").await;
    let failed = plane
        .until(&key, |budget: &PodDisruptionBudget| {
            let conditions = budget.status.iter().flat_map(|status| &status.conditions).flatten();
            conditions.into_iter().any(|condition| condition.reason == "SyncFailed")
        })
        .await;
    let message = &failed.status.unwrap().conditions.unwrap()[0].message;
    assert_eq!(message, "no matches for kind \"Thing\" in version \"example.com/v1\"");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_to_be_disrupted_and_was_not_says_so_no_more() {
    let plane = ControlPlane::start_with(Loops::only(["disruption"])).await;
    pods(&plane, None, "bare", 1).await;
    let old = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "m", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.patch_status("bare0", &PatchParams::default(), &Patch::Strategic(old)).await.unwrap();
    let target = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "DisruptionTarget")
    };
    let is_reset = |pod: &Pod| target(pod).is_some_and(|target| target.status == "False");
    let pod = plane.until(&ObjectKey::namespaced("default", "bare0"), is_reset).await;
    assert_eq!(target(&pod).unwrap().reason, None);
    let events = Api::<Event>::namespaced(plane.client(), "default").list(&Default::default()).await.unwrap();
    assert!(events.items.is_empty(), "{:?}", events.items);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_two_budgets_select_say_so_once() {
    let plane = ControlPlane::start_with(Loops::only(["disruption"])).await;
    let set = plane.apply(SET).await;
    pods(&plane, set[0].metadata.uid.as_deref(), "web", 3).await;
    for name in ["a", "b"] {
        plane.apply(&format!("{{kind: PodDisruptionBudget, apiVersion: policy/v1, metadata: {{name: {name}, namespace: default}}, spec: {{minAvailable: 1, selector: {{matchLabels: {{app: web}}}}}}}}")).await;
    }
    let counted =
        |healthy| move |budget: &PodDisruptionBudget| counts(budget).is_some_and(|counts| counts[0] == healthy);
    let api = Api::<Pod>::namespaced(plane.client(), "default");
    // Each change makes both budgets recount all their Pods.
    for (n_ready, ready) in [(2, "False"), (3, "True"), (2, "False")] {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        api.patch_status("web0", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        for name in ["a", "b"] {
            plane.until(&ObjectKey::namespaced("default", name), counted(n_ready)).await;
        }
    }
    for name in ["web0", "web1", "web2"] {
        let event = crate::support::events::until(&plane, name, "MultiplePodDisruptionBudgets").await;
        let message =
            format!("Pod \"default\"/\"{name}\" matches multiple PodDisruptionBudgets.  Chose \"a\" arbitrarily.");
        assert_eq!((event.count, event.message), (Some(1), Some(message)));
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_owners_is_looked_up_once_for_all_of_them() {
    const N_OWNERS: usize = 4;
    let plane = ControlPlane::start_with(Loops::only(["disruption"])).await;
    plane.apply(CARTS).await;
    for n in 0..N_OWNERS {
        let cart = format!(
            "{{kind: Cart, apiVersion: shop.example/v1, metadata: {{name: c{n}, namespace: default}}, spec: {{replicas: 2}}}}"
        );
        let uid = plane.apply(&cart).await[0].metadata.uid.clone().unwrap();
        plane
            .apply(&format!(
                "{{kind: Pod, apiVersion: v1, metadata: {{name: p{n}, namespace: default, labels: {{app: cart}}, \
                 ownerReferences: [{{apiVersion: shop.example/v1, kind: Cart, name: c{n}, uid: {uid}, controller: true}}]}}, \
                 spec: {{containers: [{{name: c, image: i}}]}}}}"
            ))
            .await;
    }
    let n_lookups = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&n_lookups);
    plane.fail_next_where(1, Fault::Unsent, move |_, path| {
        if path == "/apis/shop.example/v1" {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        false
    });
    plane.apply("{kind: PodDisruptionBudget, apiVersion: policy/v1, metadata: {name: b, namespace: default}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: cart}}}}").await;
    plane
        .until(&ObjectKey::namespaced("default", "b"), |budget: &PodDisruptionBudget| {
            counts(budget) == Some([0, 7, 8, 0])
        })
        .await;
    assert_eq!(n_lookups.load(Ordering::Relaxed), 1);
    plane.stop().await;
}
