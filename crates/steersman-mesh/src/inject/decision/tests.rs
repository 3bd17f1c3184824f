//! Pods by their labels, annotations and kind, and the decision on each.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn pod(own_labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Value {
    json!({
        "metadata": {"labels": labels(own_labels), "annotations": labels(annotations)},
        "spec": {"containers": [{"name": "web"}]}
    })
}

fn of_policy(pod: &Value, namespace_label: Option<&str>, policy: &Policy) -> String {
    let of_namespace = namespace_label.map(|value| labels(&[(INJECT, value)])).unwrap_or_default();
    let decision = decide(pod, "shop", &of_namespace, policy);
    let mut lines = vec![decision.skip.map_or_else(|| "injected".to_owned(), |skip| skip.to_string())];
    lines.extend(decision.warnings);
    lines.join("\n")
}

#[track_caller]
fn check(pod: &Value, namespace_label: Option<&str>, expected: Expect) {
    expected.assert_eq(&of_policy(pod, namespace_label, &Policy::default()));
}

#[test]
fn the_most_specific_setting_decides() {
    let everything = |label, annotation, namespace| {
        let own: Vec<(&str, &str)> = Option::into_iter(label).map(|value| (INJECT, value)).collect();
        let asks: Vec<(&str, &str)> = Option::into_iter(annotation).map(|value| (ASK, value)).collect();
        let policy = Policy { otherwise: Otherwise::Leave, ..Policy::default() };
        of_policy(&pod(&own, &asks), namespace, &policy)
    };
    let (yes, no) = (Some("true"), Some("false"));
    assert_eq!(everything(yes, no, no), "injected");
    assert_eq!(everything(no, yes, yes), "its label mesh.steersman.dev/inject is \"false\"");
    assert_eq!(everything(None, yes, no), "injected");
    assert_eq!(everything(None, no, yes), "its annotation initializer.kubernetes.io/envoy is \"false\"");
    assert_eq!(everything(None, None, yes), "injected");
    assert_eq!(everything(None, None, no), "the label mesh.steersman.dev/inject of its namespace is \"false\"");
    assert_eq!(everything(None, None, None), "nothing asks for the sidecar");
}

#[test]
fn selectors_count_after_the_pod_and_before_the_namespace() {
    let policy = Policy {
        never: vec![labels(&[("app", "db"), ("tier", "x")])],
        always: vec![labels(&[("app", "db")])],
        otherwise: Otherwise::Inject,
    };
    let db = pod(&[("app", "db")], &[]);
    assert_eq!(of_policy(&db, Some("false"), &policy), "injected");
    let never = pod(&[("app", "db"), ("tier", "x")], &[]);
    let refused = "the injector is told never to inject Pods with these labels";
    assert_eq!(of_policy(&never, Some("true"), &policy), refused);
    let asks = pod(&[("app", "db"), ("tier", "x")], &[(ASK, "true")]);
    assert_eq!(of_policy(&asks, None, &policy), "injected");
}

#[test]
fn another_value_is_reported_and_does_not_count() {
    check(
        &pod(&[(INJECT, "yes")], &[(ASK, "TRUE")]),
        Some("enabled"),
        expect![[r#"
            injected
            the label mesh.steersman.dev/inject is "yes" and does not count: want "true" or "false"
            the annotation initializer.kubernetes.io/envoy is "TRUE" and does not count: want "true" or "false"
            the label of the namespace mesh.steersman.dev/inject is "enabled" and does not count: want "true" or "false""#]],
    );
    let long = "é".repeat(10_000);
    assert!(of_policy(&pod(&[], &[(ASK, &long)]), None, &Policy::default()).len() < 300);
}

#[test]
fn some_pods_never_get_it_and_who_asks_is_told() {
    let mut host = pod(&[(INJECT, "true")], &[]);
    host["spec"]["hostNetwork"] = true.into();
    check(
        &host,
        None,
        expect![[r#"
        it uses the network of its node (hostNetwork)
        the Pod asks for the sidecar and does not get it: it uses the network of its node (hostNetwork)"#]],
    );
    check(&pod(&[], &[(MIRROR, "x")]), Some("true"), expect!["it is a mirror of a static Pod"]);
    check(&pod(&[("app", "envoy-initializer")], &[]), None, expect!["it is a Pod of the injector"]);
    check(&pod(&[], &[(ISTIO_STATUS, "{}")]), None, expect!["Istio has injected it"]);
    let mut linkerd = pod(&[], &[]);
    linkerd["spec"]["initContainers"] = json!([{"name": "linkerd-proxy"}]);
    check(&linkerd, None, expect!["Linkerd has injected it"]);
    for namespace in SYSTEM_NAMESPACES {
        let skip = decide(&pod(&[(INJECT, "true")], &[]), namespace, &Labels::new(), &Policy::default()).skip;
        assert_eq!(skip, Some(Skip::SystemNamespace));
    }
}

#[test]
fn a_pod_that_is_none_is_left_to_the_server() {
    for pod in [json!(null), json!([]), json!({"spec": 1}), json!({"metadata": {"labels": 1}})] {
        assert_eq!(decide(&pod, "shop", &Labels::new(), &Policy::default()).skip, Some(Skip::Malformed));
    }
}
