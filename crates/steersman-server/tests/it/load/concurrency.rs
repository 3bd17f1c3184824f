//! Many writers of one object.

use crate::support::{CONFIGS, TestServer, config, version};
use futures::future::join_all;
use serde_json::json;

const WRITERS: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn of_many_patches_at_once_none_is_lost() {
    let test = TestServer::new().await;
    let path = format!("{CONFIGS}/c");
    test.http().post(CONFIGS, &config("c")).await.ok();
    let writers = (0..WRITERS).map(|writer| {
        let (http, path) = (test.http(), path.clone());
        tokio::spawn(async move {
            http.merge(&path, &json!({"metadata": {"labels": {format!("writer-{writer}"): "was-here"}}})).await.ok();
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    let labels = test.http().get(&path).await.ok()["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), WRITERS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_guarded_by_a_test_counts_every_writer() {
    let test = TestServer::new().await;
    let path = format!("{CONFIGS}/c");
    test.http().post(CONFIGS, &json!({"metadata": {"name": "c"}, "data": {"n": "0"}})).await.ok();
    let writers = (0..WRITERS).map(|_| {
        let (http, path) = (test.http(), path.clone());
        tokio::spawn(async move {
            loop {
                let n: usize = http.get(&path).await.ok()["data"]["n"].as_str().unwrap().parse().unwrap();
                let patch = json!([
                    {"op": "test", "path": "/data/n", "value": n.to_string()},
                    {"op": "replace", "path": "/data/n", "value": (n + 1).to_string()},
                ]);
                let answer = http.json_patch(&path, &patch).await;
                match answer.code {
                    200 => return,
                    422 => {}
                    code => panic!("{code} {answer:?}"),
                }
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    assert_eq!(test.http().get(&path).await.ok()["data"]["n"], WRITERS.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_updates_from_one_version_one_wins() {
    let test = TestServer::new().await;
    let path = format!("{CONFIGS}/c");
    let seen = version(&test.http().post(CONFIGS, &config("c")).await.ok());
    let writers = (0..WRITERS).map(|writer| {
        let (http, path) = (test.http(), path.clone());
        let metadata = json!({"name": "c", "resourceVersion": seen.to_string()});
        tokio::spawn(async move {
            http.put(&path, &json!({"metadata": metadata, "data": {"by": writer.to_string()}})).await
        })
    });
    let mut winners = Vec::new();
    for (writer, answer) in join_all(writers).await.into_iter().enumerate() {
        let answer = answer.unwrap();
        match answer.code {
            200 => winners.push(writer.to_string()),
            _ => assert_eq!(answer.refusal(), (409, "Conflict".to_owned())),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(test.http().get(&path).await.ok()["data"]["by"], winners[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_creations_of_one_name_one_wins() {
    let test = TestServer::new().await;
    let writers = (0..WRITERS).map(|_| {
        let http = test.http();
        tokio::spawn(async move { http.post(CONFIGS, &config("c")).await.code })
    });
    let mut codes: Vec<u16> = join_all(writers).await.into_iter().map(|code| code.unwrap()).collect();
    codes.sort_unstable();
    assert_eq!((codes[0], &codes[1..]), (201, [409; WRITERS - 1].as_slice()));
}
