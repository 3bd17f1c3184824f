//! Discovery and OpenAPI of another server beside those of this one.

use crate::requests::aggregation::{Discovery, FAR, Far, SERVICES};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn aggregated_group<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    document["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name)
}

fn group_names(list: &Value) -> Vec<&str> {
    list["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_group_is_listed_at_the_place_of_its_priority() {
    let far = Far::start().await;
    let mut service = far.api_service();
    service["spec"]["groupPriorityMinimum"] = json!(17_450);
    far.http().post(SERVICES, &service).await.ok();
    let list = far.until("/apis", JSON, |list| group_names(list).contains(&"far.example.com")).await;
    let names = group_names(&list);
    let at = names.iter().position(|name| *name == "far.example.com").unwrap();
    assert_eq!(names[at - 1..=at + 1], ["autoscaling", "far.example.com", "batch"]);
    let version = json!({"groupVersion": "far.example.com/v1", "version": "v1"});
    let group = far.http().get("/apis/far.example.com").await.ok();
    assert_eq!((&group["versions"], &group["preferredVersion"]), (&json!([version]), &version));
    let paths = far.http().get("/").await.ok();
    for path in ["/apis/far.example.com", FAR] {
        assert!(paths["paths"].as_array().unwrap().contains(&json!(path)), "{path}");
    }
    let resources = far.until(FAR, JSON, |_| true).await;
    assert_eq!(resources["resources"][0]["name"], "things");
    far.http().delete(&format!("{SERVICES}/v1.far.example.com")).await.ok();
    far.until("/apis", JSON, |list| !group_names(list).contains(&"far.example.com")).await;
    assert_eq!(far.http().get(FAR).await.code, 404);
}

#[tokio::test]
async fn the_aggregated_document_has_the_resources_however_the_other_server_lists_them() {
    for (discovery, kind) in [
        (Discovery::Aggregated, json!({"group": "far.example.com", "version": "v1", "kind": "Thing"})),
        (Discovery::Classic, json!({"group": "", "version": "", "kind": "Thing"})),
    ] {
        let far = Far::with(discovery, |options| options).await;
        far.register().await;
        let is_current = |document: &Value| {
            aggregated_group(document, "far.example.com")
                .is_some_and(|group| group["versions"][0]["freshness"] == "Current")
        };
        let document = far.until("/apis", AGGREGATED, is_current).await;
        let want = json!([{"version": "v1", "freshness": "Current", "resources": [{
            "resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "thing",
            "verbs": ["get", "list"],
        }]}]);
        assert_eq!(aggregated_group(&document, "far.example.com").unwrap()["versions"], want);
        // The other server is not believed about groups that are not its own.
        assert_ne!(aggregated_group(&document, "apps").unwrap()["versions"][0]["resources"], json!([]));
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_stale() {
    let mut far = Far::start().await;
    far.end().await;
    far.http().post(SERVICES, &far.api_service()).await.ok();
    far.reason(|reason| reason == "FailedDiscoveryCheck").await;
    let has_group = |document: &Value| aggregated_group(document, "far.example.com").is_some();
    let document = far.until("/apis", AGGREGATED, has_group).await;
    let want = json!([{"version": "v1", "freshness": "Stale"}]);
    assert_eq!(aggregated_group(&document, "far.example.com").unwrap()["versions"], want);
}

#[tokio::test]
async fn a_group_of_both_servers_has_the_versions_of_both() {
    let far = Far::start().await;
    let mut definition = json!({
        "metadata": {"name": "hats.far.example.com"},
        "spec": {
            "group": "far.example.com", "scope": "Namespaced", "names": {"plural": "hats", "kind": "Hat"},
            "versions": [{"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    definition["spec"]["scope"] = json!("Cluster");
    far.http().post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    far.register().await;
    let group =
        far.until("/apis/far.example.com", JSON, |group| group["versions"].as_array().unwrap().len() == 2).await;
    // The version of a definition has the priority 100, the other one 15.
    assert_eq!(group["preferredVersion"]["version"], "v2");
    assert_eq!(far.http().get("/apis/far.example.com/v2/hats").await.code, 200);
    assert_eq!(far.http().get(&format!("{FAR}/things")).await.code, 201);
}

#[tokio::test]
async fn documents_of_openapi_version_3_are_those_of_the_other_server() {
    let far = Far::registered().await;
    let has_far = |index: &Value| index["paths"].get("apis/far.example.com/v1").is_some();
    let index = far.until("/openapi/v3", JSON, has_far).await;
    let entry = &index["paths"]["apis/far.example.com/v1"]["serverRelativeURL"];
    assert_eq!(entry, "/openapi/v3/apis/far.example.com/v1?hash=FAR");
    let own = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(!own.contains("EVIL"), "{own}");
    let document = far.http().get(entry.as_str().unwrap()).await.ok();
    assert_eq!(document["info"]["title"], "far");
    let received = far.received().pop().unwrap();
    assert_eq!(
        (received.path.as_str(), &received.headers["x-remote-user"]),
        (entry.as_str().unwrap(), &"admin".parse().unwrap())
    );
}
