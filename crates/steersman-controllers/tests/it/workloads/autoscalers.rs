//! HorizontalPodAutoscalers, on a whole control plane. Each is evaluated every fifteen seconds, so one test has them
//! all.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

/// The metrics of Pods, as a metrics server serves them.
const METRICS: &str = "
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: pods.metrics.k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: metrics.k8s.io
  names: {kind: PodMetrics, plural: pods}
  scope: Namespaced
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

async fn target(plane: &ControlPlane, name: &str, replicas: i32, metric: &str) {
    plane
        .apply(&format!(
            "{{kind: Deployment, apiVersion: apps/v1, metadata: {{name: {name}, namespace: default}}, spec: {{replicas: {replicas}, \
             selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: \
             [{{name: c, image: i}}]}}}}}}}}"
        ))
        .await;
    plane
        .apply(&format!(
            "{{kind: HorizontalPodAutoscaler, apiVersion: autoscaling/v2, metadata: {{name: {name}, namespace: default}}, spec: \
             {{minReplicas: 2, maxReplicas: 5, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}, metrics: \
             [{metric}]}}}}"
        ))
        .await;
}

const CPU: &str = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}";

/// A running Pod that requests a whole processor and has this usage.
async fn pod(plane: &ControlPlane, app: &str, n: usize, usage: &str) {
    let labels = format!("{{app: {app}}}");
    plane
        .apply(&format!(
            "{{kind: Pod, apiVersion: v1, metadata: {{name: {app}{n}, namespace: default, labels: {labels}}}, spec: {{containers: \
             [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}}}"
        ))
        .await;
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
    let status = json!({"status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z", "conditions": ready}});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.patch_status(&format!("{app}{n}"), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    plane
        .apply(&format!(
            "{{kind: PodMetrics, apiVersion: metrics.k8s.io/v1beta1, metadata: {{name: {app}{n}, namespace: default, labels: {labels}}}, \
             timestamp: 2030-01-01T00:00:00Z, window: 30s, containers: [{{name: c, usage: {{cpu: {usage}}}}}]}}"
        ))
        .await;
}

/// Status, reason and message of each condition.
fn conditions(autoscaler: &HorizontalPodAutoscaler) -> Vec<(String, String, String)> {
    let conditions = autoscaler.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let brief = conditions.into_iter().map(|one| {
        (format!("{}={}", one.type_, one.status), one.reason.unwrap_or_default(), one.message.unwrap_or_default())
    });
    brief.collect()
}

fn says(autoscaler: &HorizontalPodAutoscaler, what: &str, reason: &str) -> bool {
    conditions(autoscaler).iter().any(|one| one.0 == what && one.1 == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_are_kept_within_bounds_and_scaled_by_what_their_pods_use() {
    let plane = ControlPlane::start_with(Loops::only(["horizontalpodautoscaling"])).await;
    plane.apply(METRICS).await;
    target(&plane, "low", 1, CPU).await;
    target(&plane, "high", 9, CPU).await;
    target(&plane, "none", 0, CPU).await;
    target(&plane, "busy", 2, CPU).await;
    target(&plane, "blind", 3, CPU).await;
    target(&plane, "odd", 3, "{type: External, external: {metric: {name: queue}, target: {type: Value, value: 5}}}")
        .await;
    plane.apply("{kind: HorizontalPodAutoscaler, apiVersion: autoscaling/v2, metadata: {name: void, namespace: default}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: void}}}").await;
    for n in 0..2 {
        pod(&plane, "busy", n, "900m").await;
    }
    let key = |name: &str| ObjectKey::namespaced("default", name);
    for (name, replicas) in [("low", 2), ("high", 5), ("busy", 4)] {
        plane.until(&key(name), |target: &Deployment| target.spec.replicas == Some(replicas)).await;
    }
    let busy = plane
        .until(&key("busy"), |one: &HorizontalPodAutoscaler| says(one, "ScalingActive=True", "ValidMetricFound"))
        .await;
    let status: Value = serde_json::to_value(busy.status).unwrap();
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(2), &json!(4)));
    assert_eq!(
        status["currentMetrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 90, "averageValue": "900m"}}}])
    );
    plane
        .until(&key("none"), |one: &HorizontalPodAutoscaler| says(one, "ScalingActive=False", "ScalingDisabled"))
        .await;
    let void = plane
        .until(&key("void"), |one: &HorizontalPodAutoscaler| says(one, "AbleToScale=False", "FailedGetScale"))
        .await;
    assert_eq!(
        conditions(&void)[0].2,
        "the HPA controller was unable to get the target's current scale: deployments.apps \"void\" not found"
    );
    let blind = plane
        .until(&key("blind"), |one: &HorizontalPodAutoscaler| {
            says(one, "ScalingActive=False", "FailedGetResourceMetric")
        })
        .await;
    assert_eq!(
        conditions(&blind)[1].2,
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: no \
         metrics returned from resource metrics API"
    );
    let odd = plane
        .until(&key("odd"), |one: &HorizontalPodAutoscaler| says(one, "ScalingActive=False", "FailedGetExternalMetric"))
        .await;
    let message = &conditions(&odd)[1].2;
    let end = "the server could not find the requested resource (get queue.external.metrics.k8s.io)";
    assert!(message.ends_with(end), "{message}");
    plane.stop().await;
}
