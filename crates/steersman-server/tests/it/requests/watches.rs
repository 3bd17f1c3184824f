//! Watches: all events, once, in order, or an ERROR event that says why not.

use crate::support::{CONFIGS, TestServer, config, names, text, version};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

async fn list_version(test: &TestServer) -> u64 {
    version(&test.http().get(CONFIGS).await.ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_version_of_a_list_every_change_comes_once_and_in_order() {
    let test = TestServer::new().await;
    for name in ["old-1", "old-2"] {
        test.http().post(CONFIGS, &config(name)).await.ok();
    }
    let list = test.http().get(CONFIGS).await.ok();
    let mut watch = test.http().watch(&format!("{CONFIGS}?resourceVersion={}", version(&list))).await;

    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let http = test.http();
            tokio::spawn(async move {
                let mut versions = Vec::new();
                for round in 0..10 {
                    let name = format!("w{writer}-{}", round % 3);
                    let path = format!("{CONFIGS}/{name}");
                    versions.push(version(&http.post(CONFIGS, &config(&name)).await.ok()));
                    versions
                        .push(version(&http.merge(&path, &json!({"data": {"round": round.to_string()}})).await.ok()));
                    if round < 9 {
                        http.delete(&path).await.ok();
                    }
                }
                versions
            })
        })
        .collect();
    let mut written = BTreeSet::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    test.http().post(CONFIGS, &config("the-end")).await.ok();

    let mut state: BTreeSet<String> = names(&list).into_iter().collect();
    let (mut last, mut seen) = (version(&list), BTreeSet::new());
    loop {
        let event = watch.next().await.unwrap();
        let (name, at) = (text(&event, "/object/metadata/name").to_owned(), version(&event["object"]));
        assert!(last < at, "{at} comes after {last}");
        last = at;
        if name == "the-end" {
            break;
        }
        match text(&event, "/type") {
            "ADDED" => assert!(state.insert(name) && seen.insert(at)),
            "MODIFIED" => assert!(state.contains(&name) && seen.insert(at)),
            "DELETED" => assert!(state.remove(&name)),
            other => panic!("{other}"),
        }
    }
    assert_eq!(seen, written);
    state.insert("the-end".to_owned());
    assert_eq!(state.into_iter().collect::<Vec<_>>(), names(&test.http().get(CONFIGS).await.ok()));
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let test = TestServer::new().await;
    let http = test.http();
    let path = format!("{CONFIGS}/c");
    let from = list_version(&test).await;
    http.post(CONFIGS, &json!({"metadata": {"name": "c", "labels": {"tier": "front"}}, "data": {"n": "0"}})).await.ok();
    http.merge(&path, &json!({"data": {"n": "1"}})).await.ok();
    let left = version(&http.merge(&path, &json!({"metadata": {"labels": {"tier": "back"}}})).await.ok());
    http.merge(&path, &json!({"data": {"n": "2"}})).await.ok();
    http.merge(&path, &json!({"metadata": {"labels": {"tier": "front"}}})).await.ok();
    http.delete(&path).await.ok();

    let mut watch = http.watch(&format!("{CONFIGS}?resourceVersion={from}&labelSelector=tier%3Dfront")).await;
    let mut got = Vec::new();
    for _ in 0..5 {
        let event = watch.next().await.unwrap();
        let (word, labels, n) =
            (text(&event, "/type"), text(&event, "/object/metadata/labels/tier"), text(&event, "/object/data/n"));
        got.push(format!("{word} {labels} {n}"));
        if got.len() == 3 {
            // The event has the last selected state, at the version at which the object left the selection.
            assert_eq!(version(&event["object"]), left);
        }
    }
    assert_eq!(got, ["ADDED front 0", "MODIFIED front 1", "DELETED front 1", "ADDED front 2", "DELETED front 2"]);
}

#[tokio::test]
async fn the_initial_events_end_with_a_bookmark_from_which_one_can_go_on() {
    let test = TestServer::new().await;
    let http = test.http();
    for name in ["a", "b"] {
        http.post(CONFIGS, &config(name)).await.ok();
    }
    let streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = http.watch(&format!("{CONFIGS}?{streamed}")).await;
    assert_eq!(watch.next_name().await.unwrap(), ("ADDED".to_owned(), "a".to_owned()));
    assert_eq!(watch.next_name().await.unwrap(), ("ADDED".to_owned(), "b".to_owned()));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(text(&bookmark, "/type"), "BOOKMARK");
    assert_eq!(text(&bookmark, "/object/kind"), "ConfigMap");
    assert_eq!(text(&bookmark, "/object/metadata/annotations/k8s.io~1initial-events-end"), "true");

    http.post(CONFIGS, &config("c")).await.ok();
    let mut resumed = http.watch(&format!("{CONFIGS}?resourceVersion={}", version(&bookmark["object"]))).await;
    for watch in [&mut watch, &mut resumed] {
        assert_eq!(watch.next_name().await.unwrap(), ("ADDED".to_owned(), "c".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_an_idle_watch_past_what_others_write() {
    let test = TestServer::new().await;
    let http = test.http();
    let from = list_version(&test).await;
    let mut watch =
        http.watch(&format!("{CONFIGS}?resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=90")).await;
    let other = http.post("/api/v1/namespaces/default/secrets", &config("s")).await.ok();
    let events = watch.rest().await;
    // One after a minute, and one shortly before the end.
    assert_eq!(events.iter().map(|event| text(event, "/type")).collect::<Vec<_>>(), ["BOOKMARK", "BOOKMARK"]);
    assert!(version(&events[0]["object"]) >= version(&other));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_in_time_however_much_there_is_to_say() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("c")).await.ok();
    let mut watch =
        http.watch(&format!("{CONFIGS}?resourceVersion={}&timeoutSeconds=5", list_version(&test).await)).await;
    for second in 0..10 {
        http.merge(&format!("{CONFIGS}/c"), &json!({"data": {"second": second.to_string()}})).await.ok();
        // The watch always has an event to return when it is polled.
        test.store.sync().await.unwrap();
        if watch.next().await.is_none() {
            assert!((4..=6).contains(&second), "{second}");
            return;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    panic!("the watch goes on after twice its time");
}

fn is_expired(event: &Value) -> bool {
    text(event, "/type") == "ERROR" && event["object"]["code"] == 410 && text(event, "/object/reason") == "Expired"
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_is_told_and_ends() {
    let test = TestServer::new().await;
    let from = list_version(&test).await;
    test.http().post(CONFIGS, &config("c")).await.ok();
    let now = test.store.sync().await.unwrap();
    test.store.compact(now).await.unwrap();
    let events = test.http().watch(&format!("{CONFIGS}?resourceVersion={from}")).await.rest().await;
    assert!(events.len() == 1 && is_expired(&events[0]), "{events:?}");
}

#[tokio::test]
async fn a_watch_that_is_too_slow_is_told_so_and_skips_nothing_in_silence() {
    let test = TestServer::with_events_max(20).await;
    let http = test.http();
    http.post(CONFIGS, &config("c")).await.ok();
    let mut watch = http.watch(&format!("{CONFIGS}?resourceVersion={}", list_version(&test).await)).await;
    let write = async |from: usize, to: usize| {
        for n in from..to {
            http.merge(&format!("{CONFIGS}/c"), &json!({"data": {"n": n.to_string()}})).await.ok();
        }
        test.store.sync().await.unwrap();
    };
    write(0, 10).await;
    let mut got = Vec::new();
    for _ in 0..3 {
        got.push(watch.next().await.unwrap());
    }
    write(10, 100).await;
    got.extend(watch.rest().await);
    let error = got.pop().unwrap();
    assert!(is_expired(&error), "{error}");
    let numbers: Vec<&str> = got.iter().map(|event| text(event, "/object/data/n")).collect();
    let want: Vec<String> = (0..numbers.len()).map(|n| n.to_string()).collect();
    assert!(numbers.len() >= 3 && numbers == want, "{numbers:?}");
}

#[tokio::test]
async fn a_fast_watch_beside_a_slow_one_misses_nothing() {
    let test = TestServer::with_events_max(20).await;
    let http = test.http();
    http.post(CONFIGS, &config("c")).await.ok();
    let from = format!("{CONFIGS}?resourceVersion={}", list_version(&test).await);
    let (_slow, mut fast) = (http.watch(&from).await, http.watch(&from).await);
    for n in 0..100 {
        http.merge(&format!("{CONFIGS}/c"), &json!({"data": {"n": n.to_string()}})).await.ok();
        assert_eq!(text(&fast.next().await.unwrap(), "/object/data/n"), n.to_string());
    }
}

#[tokio::test]
async fn a_watch_of_one_object_and_of_all_namespaces_see_their_own() {
    let test = TestServer::new().await;
    let http = test.http();
    let from = list_version(&test).await;
    let mut one = http.watch(&format!("{CONFIGS}?resourceVersion={from}&fieldSelector=metadata.name%3Db")).await;
    let mut all = http.watch(&format!("/api/v1/configmaps?resourceVersion={from}")).await;
    http.post(CONFIGS, &config("a")).await.ok();
    http.post("/api/v1/namespaces/kube-system/configmaps", &config("b")).await.ok();
    http.post(CONFIGS, &config("b")).await.ok();
    let event = one.next().await.unwrap();
    assert_eq!((text(&event, "/object/metadata/namespace"), text(&event, "/object/metadata/name")), ("default", "b"));
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..3 {
        *seen.entry(all.next_name().await.unwrap().1).or_default() += 1;
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}

#[tokio::test]
async fn a_stopping_server_ends_its_watches() {
    let test = TestServer::new().await;
    let mut watch = test.http().watch(&format!("{CONFIGS}?resourceVersion={}", list_version(&test).await)).await;
    test.server.begin_stop();
    assert_eq!(watch.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_watch_paths_write_nothing() {
    let test = TestServer::new().await;
    let old = CONFIGS.replacen("/v1/", "/v1/watch/", 1);
    assert_eq!(test.http().post(&old, &config("a")).await.refusal().0, 405);
    test.http().post(CONFIGS, &config("a")).await.ok();
    assert_eq!(test.http().delete(&format!("{old}/a")).await.refusal().0, 405);
    test.http().get(&format!("{CONFIGS}/a")).await.ok();
}

#[tokio::test]
async fn a_watch_from_a_version_that_was_never_given_out_is_told_so() {
    let test = TestServer::new().await;
    let from = list_version(&test).await + 1_000_000;
    let events = test.http().watch(&format!("{CONFIGS}?resourceVersion={from}")).await.rest().await;
    assert!(events.len() == 1 && is_expired(&events[0]), "{events:?}");
}

#[tokio::test]
async fn what_is_the_same_for_many_watchers_is_made_once() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("c")).await.ok();
    for accept in ["application/json", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"] {
        let from = list_version(&test).await;
        let path = format!("{CONFIGS}?resourceVersion={from}");
        let selected = format!("{path}&labelSelector=%21nothing");
        let mut watches = Vec::new();
        for path in [&path, &path, &selected] {
            watches.push(http.watch_as(path, accept).await);
        }
        http.merge(&format!("{CONFIGS}/c"), &json!({"data": {"accept": accept}})).await.ok();
        test.store.sync().await.unwrap();
        let mut frames = Vec::new();
        for watch in &mut watches {
            frames.push(watch.next_chunk().await.unwrap());
        }
        assert!(frames.iter().all(|frame| frame == &frames[0] && frame.as_ptr() == frames[0].as_ptr()), "{accept}");
    }
}

#[tokio::test]
async fn an_object_that_leaves_a_selection_is_deleted_with_what_it_was() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &json!({"metadata": {"name": "c", "labels": {"a": "1"}}, "data": {"x": "old"}})).await.ok();
    let from = list_version(&test).await;
    let path = format!("{CONFIGS}?resourceVersion={from}&labelSelector=a%3D1");
    let (mut one, mut other) = (http.watch(&path).await, http.watch(&path).await);
    let left = http
        .merge(&format!("{CONFIGS}/c"), &json!({"metadata": {"labels": {"a": "2"}}, "data": {"x": "new"}}))
        .await
        .ok();
    for watch in [&mut one, &mut other] {
        let event = watch.next().await.unwrap();
        assert_eq!((text(&event, "/type"), text(&event, "/object/data/x")), ("DELETED", "old"));
        assert_eq!(version(&event["object"]), version(&left));
    }
}

#[tokio::test]
async fn a_table_of_a_watch_says_its_columns_once() {
    let test = TestServer::new().await;
    let http = test.http();
    for name in ["a", "b"] {
        http.post(CONFIGS, &config(name)).await.ok();
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut watch = http.watch_as(&format!("{CONFIGS}?allowWatchBookmarks=false"), table).await;
    let (first, second) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert!(first["object"]["columnDefinitions"].is_array() && second["object"]["columnDefinitions"].is_null());
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
    assert_eq!(second["object"]["rows"][0]["object"]["metadata"]["name"], "b");
}

#[tokio::test]
async fn objects_that_are_there_already_are_sent_as_the_client_takes_them() {
    let test = TestServer::new().await;
    for number in 0..8 {
        let mut object = config(&format!("c{number}"));
        object["data"] = json!({"k": "x".repeat(100_000)});
        test.http().post(CONFIGS, &object).await.ok();
    }
    let mut watch = test.http().watch(CONFIGS).await;
    let first = watch.next_chunk().await.unwrap();
    assert!(first.len() < 200_000, "{} bytes wait for a client that may never read them", first.len());
    let mut watch = test.http().watch(CONFIGS).await;
    for name in ["c0", "c1"] {
        assert_eq!(watch.next_name().await, Some(("ADDED".to_owned(), name.to_owned())));
    }
}

#[tokio::test]
async fn a_version_that_is_no_number_is_the_clients_mistake() {
    let test = TestServer::new().await;
    let answer = test.http().get(&format!("{CONFIGS}?watch=1&resourceVersion=abc")).await;
    assert_eq!(answer.refusal(), (400, "BadRequest".to_owned()));
    assert!(answer.json()["message"].as_str().unwrap().contains("\"abc\" is not a resource version"));
}
