//! Lists in pages, while other clients write and history is compacted.

use crate::support::{CONFIGS, TestServer, config, names, text, version};
use serde_json::{Value, json};

const OBJECTS: usize = 30;

async fn filled() -> TestServer {
    let test = TestServer::new().await;
    for index in 0..OBJECTS {
        test.http().post(CONFIGS, &config(&format!("c-{index:02}"))).await.ok();
    }
    test
}

async fn page(test: &TestServer, token: &str) -> Value {
    test.http().get(&format!("{CONFIGS}?limit=7&continue={token}")).await.ok()
}

#[tokio::test]
async fn pages_show_one_version_whoever_writes_between_them() {
    let test = filled().await;
    let http = test.http();
    let (mut items, mut token, mut at) = (Vec::new(), String::new(), None);
    for round in 0.. {
        let page = page(&test, &token).await;
        assert_eq!(*at.get_or_insert(version(&page)), version(&page));
        let remaining = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        assert_eq!(remaining as usize, OBJECTS - items.len());
        // Changes after, among and before the objects that were already read.
        http.post(CONFIGS, &config(&format!("c-{:02}-new", 29 - round))).await.ok();
        http.merge(&format!("{CONFIGS}/c-{:02}", 20 + round), &json!({"data": {"changed": "1"}})).await.ok();
        http.delete(&format!("{CONFIGS}/c-{:02}", 10 + round)).await.ok();
        token = text(&page, "/metadata/continue").to_owned();
        if token.is_empty() {
            break;
        }
    }
    let whole = http.get(&format!("{CONFIGS}?resourceVersion={}&resourceVersionMatch=Exact", at.unwrap())).await.ok();
    assert_eq!((items.len(), &items), (OBJECTS, whole["items"].as_array().unwrap()));
}

#[tokio::test]
async fn selected_pages_hold_what_the_selector_selects() {
    let test = filled().await;
    let http = test.http();
    for index in (0..OBJECTS).step_by(3) {
        http.merge(&format!("{CONFIGS}/c-{index:02}"), &json!({"metadata": {"labels": {"third": "yes"}}})).await.ok();
    }
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = http.get(&format!("{CONFIGS}?limit=4&labelSelector=third%3Dyes&continue={token}")).await.ok();
        found.extend(names(&page));
        token = text(&page, "/metadata/continue").to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, (0..OBJECTS).step_by(3).map(|index| format!("c-{index:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_version_that_the_cache_forgot_is_read_from_the_store() {
    let test = TestServer::with_events_max(3).await;
    let http = test.http();
    for index in 0..OBJECTS {
        http.post(CONFIGS, &config(&format!("c-{index:02}"))).await.ok();
    }
    let first = page(&test, "").await;
    for index in 0..OBJECTS {
        http.delete(&format!("{CONFIGS}/c-{index:02}")).await.ok();
    }
    let (mut found, mut token) = (names(&first), text(&first, "/metadata/continue").to_owned());
    while !token.is_empty() {
        let page = page(&test, &token).await;
        assert_eq!(version(&page), version(&first));
        found.extend(names(&page));
        token = text(&page, "/metadata/continue").to_owned();
    }
    let all: Vec<String> = (0..OBJECTS).map(|index| format!("c-{index:02}")).collect();
    assert_eq!(found, all);
    let exact = format!("{CONFIGS}?resourceVersion={}&resourceVersionMatch=Exact", version(&first));
    assert_eq!(names(&http.get(&exact).await.ok()), all);
    assert_eq!(names(&http.get(&format!("{exact}&fieldSelector=metadata.name%3Dc-01")).await.ok()), all[1..2]);
}

#[tokio::test]
async fn a_forgotten_version_is_told_with_a_way_to_go_on() {
    let test = filled().await;
    let http = test.http();
    let first = page(&test, "").await;
    http.delete(&format!("{CONFIGS}/c-08")).await.ok();
    let now = test.store.sync().await.unwrap();
    test.store.compact(now).await.unwrap();

    let refused = http.get(&format!("{CONFIGS}?limit=7&continue={}", text(&first, "/metadata/continue"))).await;
    assert_eq!(refused.refusal(), (410, "Expired".to_owned()));
    let next = page(&test, text(&refused.json(), "/metadata/continue")).await;
    assert_eq!(
        names(&next),
        (7..15).filter(|index| *index != 8).map(|index| format!("c-{index:02}")).collect::<Vec<_>>()
    );
    // The pages after it have one version again.
    assert_eq!(version(&page(&test, text(&next, "/metadata/continue")).await), version(&next));

    let exact = http.get(&format!("{CONFIGS}?resourceVersion={}&resourceVersionMatch=Exact", version(&first))).await;
    assert_eq!(exact.refusal(), (410, "Expired".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_there_yet_is_waited_for_but_not_for_ever() {
    let test = filled().await;
    let http = test.http();
    let next = version(&http.get(CONFIGS).await.ok()) + 1;
    let path = format!("{CONFIGS}?resourceVersion={next}&resourceVersionMatch=NotOlderThan");
    assert_eq!(http.get(&path).await.refusal(), (504, "Timeout".to_owned()));
    let new = config("z");
    let (list, _) = tokio::join!(http.get(&path), http.post(CONFIGS, &new));
    assert!(names(&list.ok()).contains(&"z".to_owned()));
}

#[tokio::test]
async fn pages_go_on_where_the_cache_no_longer_knows() {
    let test = TestServer::with_events_max(5).await;
    let http = test.http();
    for index in 0..OBJECTS {
        http.post(CONFIGS, &config(&format!("c-{index:02}"))).await.ok();
    }
    let first = page(&test, "").await;
    for index in 0..OBJECTS {
        http.merge(&format!("{CONFIGS}/c-{index:02}"), &json!({"data": {"changed": "1"}})).await.ok();
    }
    let second = page(&test, text(&first, "/metadata/continue")).await;
    assert_eq!(names(&second), (7..14).map(|index| format!("c-{index:02}")).collect::<Vec<_>>());
    assert_eq!((version(&second), &second["items"][0]["data"]), (version(&first), &Value::Null));
    let exact = format!("{CONFIGS}?resourceVersion={}&resourceVersionMatch=Exact", version(&first));
    assert_eq!(http.get(&exact).await.ok()["items"].as_array().unwrap().len(), OBJECTS);
}

#[tokio::test]
async fn tables_and_metadata_are_served_in_both_versions_of_their_group() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("a")).await.ok();
    let one = format!("{CONFIGS}/a");
    for version in ["v1", "v1beta1"] {
        let api_version = format!("meta.k8s.io/{version}");
        let accept = |kind: &str| format!("application/json;as={kind};v={version};g=meta.k8s.io");
        for (path, kind) in [
            (one.as_str(), "Table"),
            (CONFIGS, "Table"),
            (one.as_str(), "PartialObjectMetadata"),
            (CONFIGS, "PartialObjectMetadataList"),
        ] {
            let answer = http.get_as(path, &accept(kind)).await.ok();
            assert_eq!((text(&answer, "/kind"), text(&answer, "/apiVersion")), (kind, &*api_version), "{path}");
            for part in [&answer["rows"][0]["object"], &answer["items"][0]].into_iter().filter(|part| !part.is_null()) {
                assert_eq!(
                    (text(part, "/kind"), text(part, "/apiVersion")),
                    ("PartialObjectMetadata", &*api_version),
                    "{path}"
                );
            }
        }
        for kind in ["Table", "PartialObjectMetadata"] {
            let event = http.watch_as(CONFIGS, &accept(kind)).await.next().await.unwrap();
            let object = &event["object"];
            assert_eq!((text(object, "/kind"), text(object, "/apiVersion")), (kind, &*api_version));
        }
    }
}

#[tokio::test]
async fn the_source_of_an_event_is_its_reporter_where_no_component_is_named() {
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let test = TestServer::new().await;
    let http = test.http();
    let event = |name: &str, fields: Value| {
        let mut event = json!({
            "metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            "reason": "r", "message": "m", "type": "Normal",
        });
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        event
    };
    http.post(EVENTS, &event("component", json!({"source": {"component": "cook"}}))).await.ok();
    http.post(EVENTS, &event("both", json!({"source": {"component": "cook"}, "reportingComponent": "waiter"})))
        .await
        .ok();
    http.post(EVENTS, &event("reporter", json!({"source": {"component": ""}, "reportingComponent": "waiter"})))
        .await
        .ok();
    // An event that is written in the other group has no selectable fields in its header.
    let other = json!({
        "metadata": {"name": "other"}, "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "r",
        "action": "a", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "waiter.io/x",
        "reportingInstance": "i",
    });
    http.post("/apis/events.k8s.io/v1/namespaces/default/events", &other).await.ok();
    let selected = async |selector: &str| names(&http.get(&format!("{EVENTS}?fieldSelector={selector}")).await.ok());
    assert_eq!(selected("source=cook").await, ["both", "component"]);
    assert_eq!(selected("source=waiter").await, ["reporter"]);
    assert_eq!(selected("source=waiter.io/x").await, ["other"]);
    assert_eq!(selected("reportingComponent=waiter").await, ["both", "reporter"]);
    assert_eq!(selected("reportingComponent=waiter.io/x").await, ["other"]);
}
