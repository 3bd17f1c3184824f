//! Reads and reviews that cost the server more than their sender.

use rand::Rng as _;
use serde_json::json;

use crate::client::Request;
use crate::requests::Material;

pub(crate) fn selector(material: &mut Material<'_>) -> Request {
    // A longer path does not fit into a request of the HTTP library.
    let n = material.rng.random_range(500..6_500);
    let terms: Vec<String> = (0..n).map(|index| format!("k{index}!=v")).collect();
    Request::get(format!("{}?labelSelector={}", material.core("configmaps"), terms.join(",")))
}

pub(crate) fn table(material: &mut Material<'_>) -> Request {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let path = format!("{}?includeObject=Object", material.core("configmaps"));
    Request::get(path).accepting(TABLE)
}

pub(crate) fn list(material: &mut Material<'_>) -> Request {
    let accepted = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    let path = if material.rng.random() { material.core("configmaps") } else { material.targets() };
    Request::get(path).accepting(accepted[material.rng.random_range(0..accepted.len())])
}

pub(crate) fn rules_review(material: &mut Material<'_>) -> Request {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": material.namespace},
    });
    Request::json("", "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review)
}

pub(crate) fn access_review(material: &mut Material<'_>) -> Request {
    let requirements: Vec<_> =
        (0..20_000).map(|n| json!({"key": format!("k{n}"), "operator": "In", "values": ["a", "b"]})).collect();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": material.namespace, "verb": "list", "resource": "pods",
            "labelSelector": {"requirements": requirements},
        }},
    });
    Request::json("", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
}
