//! Service address ranges that become ready and are deleted, on a whole control plane.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Api;
use kube::api::DeleteParams;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

const RANGE: &str =
    "{kind: ServiceCIDR, apiVersion: networking.k8s.io/v1, metadata: {name: more}, spec: {cidrs: [198.51.100.0/24]}}";
const SERVICE: &str = "{kind: Service, apiVersion: v1, metadata: {name: s, namespace: default}, spec: {clusterIP: 198.51.100.7, ports: [{port: 80}]}}";

/// The status and the message of the condition `Ready`.
fn ready(range: &ServiceCIDR) -> Option<(&str, &str)> {
    let conditions = range.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some((&ready.status, &ready.message))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_made_ready_and_held_while_a_service_has_an_address_of_it() {
    let plane = ControlPlane::start_with(Loops::only(["service-cidr"])).await;
    let (ranges, key) = (Api::<ServiceCIDR>::all(plane.client()), ObjectKey::cluster("more"));
    plane.apply(RANGE).await;
    let is_ready = |range: &ServiceCIDR| ready(range) == Some(("True", "Kubernetes Service CIDR is ready"));
    let range = plane.until(&key, is_ready).await;
    assert_eq!(range.metadata.finalizers.unwrap(), ["networking.k8s.io/service-cidr-finalizer"]);
    plane.apply(SERVICE).await;
    ranges.delete("more", &DeleteParams::default()).await.unwrap();
    let is_held = |range: &ServiceCIDR| {
        ready(range)
            .is_some_and(|(status, message)| status == "False" && message.starts_with("There are still IPAddresses"))
    };
    plane.until(&key, is_held).await;
    Api::<Service>::namespaced(plane.client(), "default").delete("s", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<ServiceCIDR>(&key).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_within_another_one_goes_at_once() {
    let plane = ControlPlane::start_with(Loops::only(["service-cidr"])).await;
    let (ranges, key) = (Api::<ServiceCIDR>::all(plane.client()), ObjectKey::cluster("part"));
    plane.apply("{kind: ServiceCIDR, apiVersion: networking.k8s.io/v1, metadata: {name: part}, spec: {cidrs: [10.96.7.0/24]}}").await;
    plane.until(&key, |range: &ServiceCIDR| ready(range).is_some()).await;
    plane.apply("{kind: Service, apiVersion: v1, metadata: {name: s, namespace: default}, spec: {clusterIP: 10.96.7.7, ports: [{port: 80}]}}").await;
    ranges.delete("part", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<ServiceCIDR>(&key).await;
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_range_is_ready_since_the_time_that_the_clock_of_the_control_plane_shows() {
    let plane = crate::support::moved::plane(Loops::only(["service-cidr"])).await;
    plane.apply(RANGE).await;
    let range = plane.until(&ObjectKey::cluster("more"), |range: &ServiceCIDR| ready(range).is_some()).await;
    let since = range.status.unwrap().conditions.unwrap().remove(0).last_transition_time.0.to_string();
    assert!(since.starts_with("2026-03-01T00:0"), "{since}");
    plane.stop().await;
}
