//! A real Envoy under load while its configuration changes.

use crate::support::process::{ApiType, Envoy};
use crate::support::upstream::{self, Load};
use crate::support::{Running, envoy_program, free_port, routes, set, view};
use std::sync::Arc;
use steersman_xds::{Certainty, Kind, Options, View};

/// Traffic moves from one cluster to another, the control plane restarts, a version is rejected, and clusters come and go: no request fails.
async fn traffic_moves(api_type: ApiType) {
    let Some(program) = envoy_program() else { return };
    let (one, two, three) =
        (upstream::start("one").await, upstream::start("two").await, upstream::start("three").await);
    let plane = Running::start(None, Options::default()).await;
    let address = plane.address;
    let port = free_port();
    let both = [("one", one), ("two", two)];
    let first = view(port, &both, &[("one", 90), ("two", 10)]);
    plane.set(&first);
    let envoy = Envoy::start(&program, api_type, address);
    let report = plane.until_settled(&first).await;
    assert_eq!(report.subscriber.node.id, "test");
    assert!(report.rejections.is_empty() && report.hurried.is_empty(), "{report:?}");

    let mut load = Load::start(port);
    let counts = load.count(1000).await;
    let share = counts.get("two").copied().unwrap_or_default();
    assert!((40..=180).contains(&share), "10 of 100 go to the second: {counts:?}");

    // All goes to the second, without the clusters being touched.
    let second = view(port, &both, &[("one", 0), ("two", 100)]);
    plane.set(&second);
    plane.until_settled(&second).await;
    load.count(10).await;
    let counts = load.count(500).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["two"], "{counts:?}");

    // The control plane is away and comes back, as another process would, with other things to say: a cluster more, one less.
    plane.stop().await;
    let counts = load.count(200).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["two"], "{counts:?}");
    let plane = Running::start(Some(address), Options::default()).await;
    let third = view(port, &[("two", two), ("three", three)], &[("two", 50), ("three", 50)]);
    plane.set(&third);
    plane.until_settled(&third).await;
    load.count(10).await;
    let counts = load.count(500).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["three", "two"], "{counts:?}");

    // Envoy rejects weights whose sum is 0, keeps what it has, and takes over what comes next.
    let bad = routes(&[("two", 0), ("three", 0)]).to_resource().made_from("default/web");
    let rejected: Arc<View> = Arc::new((*third).clone().with(Kind::Route, set([bad])));
    plane.set(&rejected);
    let report = plane.until("a rejection", |report| !report.rejections.is_empty()).await;
    let rejection = &report.rejections[0];
    assert_eq!(rejection.resource.source().map(|source| &**source), Some("default/web"));
    assert_eq!(rejection.certainty, Certainty::Named);
    assert!(rejection.error.contains("weight"), "{}", rejection.error);
    let report = plane.until_settled(&rejected).await;
    assert_eq!(report.rejections.len(), 1, "settled, but for what is rejected");
    let good = view(port, &[("two", two), ("three", three)], &[("three", 1)]);
    plane.set(&good);
    let report = plane.until_settled(&good).await;
    assert!(report.rejections.is_empty(), "{report:?}");
    load.count(10).await;
    assert_eq!(load.count(200).await.keys().collect::<Vec<_>>(), ["three"]);

    // Resources that nothing needs any more go, and those in force have the versions that were sent.
    let last = view(port, &[("three", three)], &[("three", 1)]);
    plane.set(&last);
    plane.until_settled(&last).await;
    let stream = *plane.plane.reports.borrow().keys().next().unwrap();
    let resources = plane.server.resources(stream).await.unwrap();
    assert_eq!(resources.len(), 4, "{resources:?}");
    for resource in resources {
        assert_eq!(resource.in_force, resource.wanted.map(|version| version.to_string()), "{resource:?}");
    }

    let counts = load.stop().await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["one", "three", "two"], "a request has failed: {counts:?}");
    envoy.stop().await;
    plane.stop().await;
}

#[tokio::test]
async fn no_request_fails_while_traffic_moves_by_delta() {
    traffic_moves(ApiType::DeltaGrpc).await;
}

#[tokio::test]
async fn no_request_fails_while_traffic_moves_by_state_of_the_world() {
    traffic_moves(ApiType::Grpc).await;
}
