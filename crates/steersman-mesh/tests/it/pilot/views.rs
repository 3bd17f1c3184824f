//! Views of proxies.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use steersman_xds::{Kind, View};

use super::{Mesh, names, service, split};

const ROUTE: &str = "outbound|80||web.default.svc";

fn source(view: &View) -> Option<&str> {
    view.get(Kind::Route, ROUTE)?.source().map(|source| &**source)
}

#[tokio::test]
async fn a_proxy_has_all_services_and_follows_a_route() {
    let mesh = Mesh::start().await;
    for (name, endpoint) in [("web", "10.9.0.1"), ("v1", "10.9.0.2"), ("v2", "10.9.0.3")] {
        mesh.plane.apply(&service("default", name, endpoint)).await;
    }
    mesh.pod("default", "client", "10.9.1.1", json!({})).await;
    let mut stream = mesh.proxy("default", "client").await;
    // The control plane has a Service of its own.
    let view = stream.until(|view| view.set(Kind::Cluster).len() == 4).await;
    assert_eq!(source(&view), Some("Service default/web"));

    mesh.plane.apply(&split("default", 90, 10)).await;
    let first = stream.until(|view| source(view) == Some("HTTPRoute default/split")).await;
    mesh.plane.apply(&split("default", 0, 100)).await;
    let version = |view: &View| view.get(Kind::Route, ROUTE).map(|resource| resource.version());
    let second = stream.until(|view| version(view) != version(&first)).await;
    assert_eq!(names(&second, Kind::Cluster), names(&first, Kind::Cluster));
    mesh.stop().await;
}

#[tokio::test]
async fn the_annotation_of_a_running_pod_narrows_its_view() {
    let mesh = Mesh::start().await;
    mesh.plane.apply(&service("default", "web", "10.9.0.1")).await;
    mesh.plane.apply(&service("default", "v1", "10.9.0.2")).await;
    mesh.pod("default", "client", "10.9.1.1", json!({})).await;
    let mut stream = mesh.proxy("default", "client").await;
    stream.until(|view| view.set(Kind::Cluster).len() == 3).await;
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(mesh.plane.client(), "default");
    let annotation = json!({"metadata": {"annotations": {"mesh.steersman.dev/calls": "web"}}});
    pods.patch("client", &PatchParams::default(), &Patch::Merge(annotation)).await.unwrap();
    let view = stream.until(|view| view.set(Kind::Cluster).len() == 1).await;
    assert_eq!(names(&view, Kind::Cluster), [ROUTE]);
    mesh.stop().await;
}

#[tokio::test]
async fn the_stream_of_a_pod_that_is_gone_ends() {
    let mesh = Mesh::start().await;
    mesh.pod("default", "client", "10.9.1.1", json!({})).await;
    let mut stream = mesh.proxy("default", "client").await;
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(mesh.plane.client(), "default");
    pods.delete("client", &DeleteParams::default().grace_period(0)).await.unwrap();
    stream.ended().await;
    mesh.stop().await;
}
