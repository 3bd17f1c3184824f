//! Answers in the form in which kube-apiserver gives them. `cargo xtask differential` found these cases.

use crate::support::{TestServer, names, text};
use http::Method;
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SCALERS: &str = "namespaces/default/horizontalpodautoscalers";

#[tokio::test]
async fn a_scale_has_a_table() {
    let test = TestServer::new().await;
    let http = test.http();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    http.post(DEPLOYMENTS, &json!({"metadata": {"name": "d"}, "spec": spec})).await.ok();
    let table = http.get_as(&format!("{DEPLOYMENTS}/d/scale"), TABLE).await.ok();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("d"), json!(2), json!(0)]);
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "d");
}

#[tokio::test]
async fn a_table_without_rows_has_null_where_the_columns_are_the_plain_ones() {
    let test = TestServer::new().await;
    let http = test.http();
    let rows = async |path: &str| http.get_as(path, TABLE).await.ok()["rows"].clone();
    assert_eq!(rows("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles").await, json!(null));
    assert_eq!(rows(DEPLOYMENTS).await, json!([]));
}

#[tokio::test]
async fn a_row_shows_an_autoscaler_as_it_is_stored() {
    let test = TestServer::new().await;
    let http = test.http();
    let processor = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}});
    let requests = json!({"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "metrics": [processor, requests]});
    http.post(&format!("/apis/autoscaling/v2/{SCALERS}"), &json!({"metadata": {"name": "h"}, "spec": spec})).await.ok();
    let path = format!("/apis/autoscaling/v1/{SCALERS}/h");
    let shown = async || http.get_as(&path, TABLE).await.ok()["rows"][0]["cells"][2].clone();
    assert_eq!(shown().await, "cpu: <unknown>/70%, <unknown>/10");
    // A write of v1 has the metric of the processor apart from the others, behind which it is put.
    http.merge(&path, &json!({"spec": {"maxReplicas": 4}})).await.ok();
    assert_eq!(shown().await, "<unknown>/10, cpu: <unknown>/70%");
}

#[tokio::test]
async fn errors_of_fields_come_before_ports_that_are_out_of_range_in_a_dry_run() {
    let test = TestServer::new().await;
    let http = test.http();
    let ports = json!([{"port": 0, "nodePort": 1}]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}});
    let blamed = async |query: &str| {
        let refused = http.post(&format!("/api/v1/namespaces/default/services{query}"), &service).await.json();
        let causes = refused["details"]["causes"].as_array().unwrap().clone();
        causes.iter().map(|cause| cause["field"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(blamed("?dryRun=All").await, ["spec.ports[0].port", "spec.ports[0].targetPort"]);
    assert_eq!(blamed("").await, ["spec.ports[0].nodePort"]);
}

#[tokio::test]
async fn an_empty_record_of_owners_removes_it() {
    let test = TestServer::new().await;
    let http = test.http();
    let path = "/api/v1/namespaces/default/configmaps";
    let made = http.post(path, &json!({"metadata": {"name": "c"}, "data": {"a": "b"}})).await.ok();
    assert!(made["metadata"]["managedFields"].is_array());
    let emptied = json!({"metadata": {"name": "c", "managedFields": []}, "data": {"a": "b"}});
    assert_eq!(http.put(&format!("{path}/c"), &emptied).await.ok()["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn a_table_has_flow_schemas_in_the_order_in_which_they_match() {
    let test = TestServer::new().await;
    let http = test.http();
    let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    for (name, precedence) in [("a", 9_000), ("c", 300), ("b", 300)] {
        let spec = json!({"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": "exempt"}});
        http.post(schemas, &json!({"metadata": {"name": name, "labels": {"own": ""}}, "spec": spec})).await.ok();
    }
    let path = format!("{schemas}?labelSelector=own");
    let table = http.get_as(&path, TABLE).await.ok();
    let rows = table["rows"].as_array().unwrap().iter().map(|row| row["cells"][0].as_str().unwrap());
    assert_eq!(rows.collect::<Vec<_>>(), ["b", "c", "a"]);
    assert_eq!(names(&http.get(&path).await.ok()), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_patch_whose_result_is_no_object_of_its_kind_is_refused_as_a_whole() {
    let test = TestServer::new().await;
    let http = test.http();
    let path = "/api/v1/namespaces/default/configmaps";
    http.post(path, &json!({"metadata": {"name": "m"}, "data": {"a": "b"}})).await.ok();
    let path = &format!("{path}/m");
    let wrong = json!({"data": {"a": 1}});
    let operations = json!([{"op": "replace", "path": "/data/a", "value": 1}]);
    for (media_type, patch) in [
        ("application/merge-patch+json", &wrong),
        ("application/strategic-merge-patch+json", &wrong),
        ("application/json-patch+json", &operations),
    ] {
        let refused = http.send(Method::PATCH, path, media_type, patch.to_string()).await;
        let cause = refused.json()["details"]["causes"][0].clone();
        assert_eq!((refused.code, text(&refused.json(), "/reason")), (422, "Invalid"), "{media_type}");
        assert_eq!((&cause["field"], &cause["reason"]), (&json!("patch"), &json!("FieldValueInvalid")), "{media_type}");
    }
    // An applied configuration is itself such an object.
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "immutable": true, "binaryData": {"a": "?"}});
    let path = format!("{path}?fieldManager=m");
    let refused = http.send(Method::PATCH, &path, "application/apply-patch+yaml", applied.to_string()).await;
    assert_eq!(refused.code, 400);
}

#[tokio::test]
async fn a_record_of_owners_that_is_emptied_or_has_nothing_but_null_is_forgotten() {
    let test = TestServer::new().await;
    let http = test.http();
    let path = "/api/v1/namespaces/default/configmaps";
    for (name, record, want) in
        [("a", json!([null]), 0), ("b", json!([]), 0), ("c", json!([{}]), 0), ("d", json!(null), 1)]
    {
        let made = http.post(path, &json!({"metadata": {"name": name}, "data": {"a": "b"}})).await.ok();
        assert_eq!(made["metadata"]["managedFields"].as_array().unwrap().len(), 1, "{record}");
        let n_owners = |object: &Value| object["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
        let patch = json!({"metadata": {"managedFields": record}});
        assert_eq!(n_owners(&http.merge(&format!("{path}/{name}"), &patch).await.ok()), want, "{record} in a patch");
        let mut whole = made;
        whole["metadata"]["managedFields"] = record.clone();
        whole["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        assert_eq!(n_owners(&http.put(&format!("{path}/{name}"), &whole).await.ok()), want, "{record} in an update");
    }
}

#[tokio::test]
async fn some_kinds_without_a_namespace_are_not_selected_by_it() {
    let test = TestServer::new().await;
    let http = test.http();
    let selector = "?fieldSelector=metadata.namespace=a";
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for path in ["/api/v1/namespaces", "/api/v1/nodes", requests, "/apis/resource.k8s.io/v1/resourceslices"] {
        let refused = http.get(&format!("{path}{selector}")).await;
        let why = "field label not supported: metadata.namespace";
        assert_eq!((refused.code, text(&refused.json(), "/message")), (400, why), "{path}");
    }
    for path in ["/api/v1/pods", "/api/v1/persistentvolumes"] {
        http.get(&format!("{path}{selector}")).await.ok();
    }
}
