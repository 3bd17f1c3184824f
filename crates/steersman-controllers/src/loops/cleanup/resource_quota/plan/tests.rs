//! The counted usage, and when a status is written.

use super::*;

#[test]
fn a_name_says_what_is_counted() {
    let object = |group: &str, resource: &str| Held::Object { group: group.to_owned(), resource: resource.to_owned() };
    for (name, want) in [
        ("pods", Held::Pod),
        ("count/pods", Held::Pod),
        ("requests.example.com/gpu", Held::Pod),
        ("services.nodeports", Held::Service),
        ("fast.storageclass.storage.k8s.io/requests.storage", Held::Claim),
        ("secrets", object("", "secrets")),
        ("count/secrets", object("", "secrets")),
        ("count/roles.rbac.authorization.k8s.io", object("rbac.authorization.k8s.io", "roles")),
        ("count/events", Held::Unknown),
        ("count/", Held::Unknown),
        ("dogs", Held::Unknown),
    ] {
        assert_eq!(Held::of(name), want, "{name}");
    }
}

fn quota(spec: Value, status: Value) -> ResourceQuota {
    serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec, "status": status})).unwrap()
}

#[test]
fn the_status_is_written_when_something_differs_and_keeps_what_was_not_counted() {
    let hard = json!({"hard": {"pods": "10", "count/gone.example.com": "3", "requests.cpu": "2"}});
    let known = json!({"hard": hard["hard"], "used": {"pods": "1", "count/gone.example.com": "2", "requests.cpu": "100m", "old": "1"}});
    let quota = quota(hard, known);
    let pod = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "50m"}}}]}});
    let mut usage = Usage::new();
    usage.add(&Held::Pod, &["pods", "requests.cpu"], &Value::Null, &[pod.clone(), pod]);
    let status = counted(&quota, usage).unwrap().status.unwrap();
    let used = serde_json::to_value(status.used).unwrap();
    assert_eq!(used, json!({"pods": "2", "count/gone.example.com": "2", "requests.cpu": "100m"}));
}

#[test]
fn nothing_is_written_when_all_is_said_in_other_words() {
    let quota = quota(
        json!({"hard": {"requests.cpu": "2"}}),
        json!({"hard": {"requests.cpu": "2000m"}, "used": {"requests.cpu": "0.1"}}),
    );
    let pod = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "100m"}}}]}});
    let mut usage = Usage::new();
    usage.add(&Held::Pod, &["requests.cpu"], &Value::Null, &[pod]);
    assert!(counted(&quota, usage).is_none());
}

#[test]
fn only_what_is_in_the_scopes_counts() {
    let scoped = json!({"spec": {"scopes": ["BestEffort"]}});
    let pods = [
        json!({"spec": {"containers": [{}]}}),
        json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}),
    ];
    let mut usage = Usage::new();
    usage.add(&Held::Pod, &["pods"], &scoped, &pods);
    assert_eq!(usage.used["pods"].to_string(), "1");
    usage.add_number(&Held::of("secrets"), &["secrets"], &scoped, 5);
    assert_eq!(usage.used["secrets"].to_string(), "0");
}

#[test]
fn a_pod_that_should_have_been_gone_for_its_grace_period_uses_nothing_but_its_place() {
    let pod = json!({
        "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T10:00:00Z", "deletionGracePeriodSeconds": 30},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": "Running"},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let phase = |now: &str| brief(&pod, now.parse().unwrap()).unwrap()["status"]["phase"].clone();
    assert_eq!(phase("2026-01-01T10:00:30Z"), "Running");
    assert_eq!(phase("2026-01-01T10:00:31Z"), "Failed");
    let now = "2026-01-01T10:00:20Z".parse().unwrap();
    assert_eq!(time_left(&pod, now), Some(Duration::from_secs(11)));
    assert_eq!(brief(&pod, now).unwrap()["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
}
