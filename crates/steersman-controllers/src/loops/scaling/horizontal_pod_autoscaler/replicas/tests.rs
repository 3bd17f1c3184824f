//! The number of replicas for given metrics.

use super::*;

const TOLERANCE: Tolerance = Tolerance { down: 0.1, up: 0.1 };
const CPU: Resource<'_> = Resource { name: "cpu", container: "" };

fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().unwrap()
}

/// A Pod that has been running and ready for an hour, and requests a whole processor.
fn pod(n: usize) -> Arc<Pod> {
    pod_with(n, "Running", "True", "2026-01-01T09:00:00Z")
}

fn pod_with(n: usize, phase: &str, ready: &str, started: &str) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"name": format!("p{n}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": phase, "startTime": started,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": started}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn metrics(values: &[i64]) -> Metrics {
    let metric = |value: &i64| Metric { value: *value, at: now(), window: Duration::from_secs(60) };
    values.iter().enumerate().map(|(n, value)| (format!("p{n}"), metric(value))).collect()
}

#[track_caller]
fn check(pods: &[Arc<Pod>], values: &[i64], target: i32, want: Result<(i32, i32), &str>) {
    let of = Pods { pods, now: now() };
    let current = i32::try_from(pods.len()).unwrap();
    let got = by_utilization(current, target, CPU, TOLERANCE, of, metrics(values));
    let got = got.map(|proposal| (proposal.replicas, proposal.utilization));
    assert_eq!(got.as_ref().map_err(String::as_str), want.as_ref().map_err(|why| *why));
}

#[test]
fn usage_against_requests_gives_the_number() {
    let three = [pod(0), pod(1), pod(2)];
    check(&three, &[500, 500, 500], 50, Ok((3, 50)));
    check(&three, &[540, 540, 540], 50, Ok((3, 54)));
    check(&three, &[1000, 1000, 1000], 50, Ok((6, 100)));
    check(&three, &[100, 100, 100], 50, Ok((1, 10)));
    check(&[], &[], 50, Err("no pods returned by selector while calculating replica count"));
    check(&three, &[], 50, Err("did not receive metrics for targeted pods (pods might be unready)"));
}

#[test]
fn one_without_a_metric_counts_against_the_change() {
    let three = [pod(0), pod(1), pod(2)];
    check(&three, &[1000, 1000], 50, Ok((4, 100)));
    check(&three, &[100, 100], 50, Ok((3, 10)));
    check(&three, &[520, 520], 50, Ok((3, 52)));
}

#[test]
fn one_that_is_pending_or_starting_only_slows_growth_and_one_that_has_failed_is_nothing() {
    let pending = pod_with(2, "Pending", "False", "2026-01-01T09:59:00Z");
    check(&[pod(0), pod(1), pending.clone()], &[1000, 1000], 50, Ok((4, 100)));
    check(&[pod(0), pod(1), pending], &[100, 100], 50, Ok((1, 10)));
    let starting = pod_with(2, "Running", "True", "2026-01-01T09:59:30Z");
    check(&[pod(0), pod(1), starting], &[1000, 1000, 9000], 50, Ok((4, 100)));
    let failed = pod_with(2, "Failed", "False", "2026-01-01T09:00:00Z");
    check(&[pod(0), pod(1), failed], &[1000, 1000, 9000], 50, Ok((4, 100)));
}

#[test]
fn what_is_not_requested_is_an_error() {
    let plain = json!({"metadata": {"name": "p0"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running",
        "startTime": "2026-01-01T09:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]}});
    let plain: Pod = serde_json::from_value(plain).unwrap();
    check(&[Arc::new(plain)], &[100], 50, Err("missing request for cpu in container c of Pod p0"));
}

#[test]
fn absurd_metrics_do_not_overflow() {
    let three = [pod(0), pod(1), pod(2)];
    check(&three, &[i64::MAX, i64::MAX, i64::MAX], 1, Ok((i32::MAX, i32::MAX)));
    let of = Pods { pods: &three, now: now() };
    let proposal = by_average(3, 1, None, TOLERANCE, of, metrics(&[i64::MAX; 3])).unwrap();
    assert_eq!((proposal.replicas, proposal.average), (i32::MAX, i64::MAX));
    let proposal = by_average(3, 0, None, TOLERANCE, of, metrics(&[0; 3])).unwrap();
    assert_eq!(proposal.replicas, 0, "nothing of nothing");
    assert_eq!(by_value_per_replica(0, i64::MAX, 1, TOLERANCE), (i32::MAX, i64::MAX));
    assert_eq!(by_value_per_replica(4, 2000, 500, TOLERANCE), (4, 500));
    assert_eq!(by_ratio(3, f64::INFINITY, TOLERANCE, of), Ok(i32::MAX));
    assert_eq!(by_ratio(3, 2.0, TOLERANCE, of), Ok(6));
}
