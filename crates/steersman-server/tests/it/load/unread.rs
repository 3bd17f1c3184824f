//! Answers that are not read and watches with large selectors: they keep a bounded amount of memory.

use crate::support::{Answer, CONFIGS, Http, TestServer, allow_all, config};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use steersman_server::Body;

fn large(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "x".repeat(900_000)}})
}

fn metric(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name) && line.as_bytes().get(name.len()) == Some(&b' '));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Sends one GET after the other and reads no answer, until one is refused.
async fn until_refused(http: &Http, path: &str) -> (Vec<Body>, Answer) {
    let mut unread = Vec::new();
    while unread.len() < 1_000 {
        match http.unread_or_refused(path).await {
            Ok(body) => unread.push(body),
            Err(refusal) => return (unread, refusal),
        }
    }
    panic!("1,000 answers are kept");
}

#[tokio::test]
async fn answers_that_a_user_does_not_read_are_bounded_and_hold_up_nobody_else() {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    let (alice, bob) = (test.http_as("alice"), test.http_as("bob"));
    alice.post(CONFIGS, &large("large")).await.ok();
    alice.post(CONFIGS, &config("small")).await.ok();
    let path = format!("{CONFIGS}/large");
    let (mut unread, refused) = until_refused(&alice, &path).await;
    assert!(30 < unread.len() && refused.code == 429, "{} {}", unread.len(), refused.code);
    let said = refused.body_text();
    assert!(said.contains("for this user") && said.contains("read them"), "{said}");
    let kept = metric(&bob.get("/metrics").await.body_text(), "steersman_unread_answer_bytes");
    assert!((25 << 20..=32 << 20).contains(&kept), "{kept}");
    // A large write would need room for its answer, so it does not begin. Small requests do not.
    assert_eq!(alice.put(&path, &large("large")).await.code, 429);
    alice.get(&format!("{CONFIGS}/small")).await.ok();
    alice.merge(&format!("{CONFIGS}/small"), &json!({"data": {"a": "c"}})).await.ok();
    bob.get(&path).await.ok();
    bob.put(&path, &large("large")).await.ok();
    // A part that the transport has taken over and not sent counts as well.
    let taken = unread[0].frame().await.unwrap().unwrap().into_data().unwrap();
    unread.truncate(1);
    unread.clear();
    let kept = metric(&bob.get("/metrics").await.body_text(), "steersman_unread_answer_bytes");
    assert!((800_000..900_000).contains(&kept), "{kept}");
    drop(taken);
    alice.put(&path, &large("large")).await.ok();
    assert_eq!(metric(&bob.get("/metrics").await.body_text(), "steersman_unread_answer_bytes"), 0);
}

#[tokio::test]
async fn parts_of_lists_that_a_user_does_not_read_count_and_documents_of_the_server_do_not() {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    let (alice, bob) = (test.http_as("alice"), test.http_as("bob"));
    for index in 0..3 {
        alice.post(CONFIGS, &large(&format!("large-{index}"))).await.ok();
    }
    let kept = || async { metric(&bob.get("/metrics").await.body_text(), "steersman_unread_answer_bytes") };
    let mut unread = Vec::new();
    for _ in 0..100 {
        unread.push(alice.unread("/openapi/v2").await);
    }
    assert_eq!(kept().await, 0);
    drop(unread);
    let path = format!("{CONFIGS}?pretty=true");
    let (mut unread, refused) = until_refused(&alice, &path).await;
    assert!(20 < unread.len() && refused.code == 429, "{} {}", unread.len(), refused.code);
    // A list that is read waits until there is memory for its next chunk, and goes on to its end.
    let mut rest = unread.pop().unwrap();
    let mut read = rest.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    unread.push(alice.unread(&path).await);
    assert!(futures::poll!(std::pin::pin!(rest.frame())).is_pending());
    unread.clear();
    read.extend_from_slice(&rest.collect().await.unwrap().to_bytes());
    let list: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(kept().await, 0);
}

/// Opens 100 watches of a large object in a form of its own, and reads what they send without letting go of it until the memory is full.
async fn open_watches(query: &str, accept: &str) {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    let (alice, bob) = (test.http_as("alice"), test.http_as("bob"));
    alice.post(CONFIGS, &large("large")).await.ok();
    let (sender, mut read) = tokio::sync::mpsc::channel(100);
    for _ in 0..100 {
        let mut watch = alice.watch_as(&format!("{CONFIGS}?resourceVersion=0{query}"), accept).await;
        let sender = sender.clone();
        tokio::spawn(async move { sender.send(watch.next_chunk().await.unwrap()).await });
    }
    let mut unread = Vec::new();
    let kept = || async { metric(&bob.get("/metrics").await.body_text(), "steersman_unread_answer_bytes") };
    while kept().await < 30 << 20 {
        assert!(unread.len() < 100, "all are kept");
        unread.push(read.recv().await.unwrap());
    }
    assert!(kept().await <= 33 << 20);
    // Nothing is made for the others until these are read.
    while let Ok(chunk) = read.try_recv() {
        unread.push(chunk);
    }
    // The first 64 KiB of each are not counted.
    let counted: usize = unread.iter().map(|chunk: &bytes::Bytes| chunk.len() - (64 << 10)).sum();
    assert!(counted <= 33 << 20, "{counted} bytes are made");
    let n_left = 100 - unread.len();
    unread.clear();
    for _ in 0..n_left {
        read.recv().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn initial_objects_of_watches_in_protobuf_that_are_not_read_are_bounded() {
    open_watches("", "application/vnd.kubernetes.protobuf").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn initial_objects_of_watches_in_tables_that_are_not_read_are_bounded() {
    open_watches("&includeObject=Object", "application/json;as=Table;v=v1;g=meta.k8s.io").await;
}

#[tokio::test]
async fn a_refusal_repeats_little_of_what_was_sent_and_counts_until_it_is_read() {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    let (alice, bob) = (test.http_as("alice"), test.http_as("bob"));
    let quotes = "\"".repeat(1_400_000);
    let named = json!({"metadata": {"name": quotes}});
    let refused = alice.post(CONFIGS, &named).await;
    assert!(refused.code == 422 && refused.bytes.len() < 600_000, "{} {}", refused.code, refused.bytes.len());
    let said = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(said.starts_with("ConfigMap") && said.ends_with(" more bytes)"), "{}", &said[said.len() - 100..]);
    let field = json!({"metadata": {"name": "a"}, (quotes.clone()): {}});
    let unknown = alice.post(&format!("{CONFIGS}?fieldValidation=Strict"), &field).await;
    assert!(unknown.code == 400 && unknown.bytes.len() < 600_000, "{} {}", unknown.code, unknown.bytes.len());
    let kept = metric(&bob.get("/metrics").await.body_text(), "steersman_unread_answer_bytes");
    assert!(300_000 < kept, "{kept} bytes of two answers count");
    drop((refused, unknown));
    assert_eq!(metric(&bob.get("/metrics").await.body_text(), "steersman_unread_answer_bytes"), 0);
}

fn many_values(n: usize) -> String {
    let values: Vec<_> = (0..n).map(|index| format!("value-{index:05}")).collect();
    format!("{CONFIGS}?labelSelector=a%20in%20({})", values.join(","))
}

#[tokio::test]
async fn selectors_of_open_watches_are_bounded() {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    let (alice, bob) = (test.http_as("alice"), test.http_as("bob"));
    let path = format!("{}&watch=true", many_values(5_000));
    let (watches, refused) = until_refused(&alice, &path).await;
    assert!(10 < watches.len() && refused.code == 429, "{} {}", watches.len(), refused.code);
    assert!(refused.body_text().contains("the selectors of the open watches take"), "{}", refused.body_text());
    alice.watch(&format!("{CONFIGS}?labelSelector=a%3Db")).await;
    bob.watch(&many_values(5_000)).await;
    drop(watches);
    alice.watch(&many_values(5_000)).await;
}

#[tokio::test]
async fn a_selector_of_very_many_requirements_is_refused_unless_they_say_the_same() {
    let http = TestServer::new().await.http();
    let keys = |n: usize| (0..n).map(|index| format!("k{index}")).collect::<Vec<_>>();
    let select = |selector: String| format!("{CONFIGS}?labelSelector={selector}");
    http.get(&select(keys(1024).join(","))).await.ok();
    let refused = http.get(&select(keys(1025).join(","))).await;
    assert_eq!(refused.code, 400);
    assert!(refused.body_text().contains("the label selector has 1025 different requirements, and the most is 1024"));
    http.get(&select(vec!["k"; 20_000].join(","))).await.ok();
    let names = |n: usize| (0..n).map(|index| format!("metadata.name!%3D{index}")).collect::<Vec<_>>().join(",");
    assert_eq!(http.get(&format!("{CONFIGS}?fieldSelector={}", names(1025))).await.code, 400);
    http.get(&format!("{CONFIGS}?fieldSelector={}", names(1024))).await.ok();
}

#[tokio::test]
async fn all_that_a_selector_says_again_takes_no_memory() {
    let test = TestServer::new().await;
    let http: Http = test.http();
    let watch = http.watch(&format!("{CONFIGS}?labelSelector={}", vec!["k"; 20_000].join(","))).await;
    assert_eq!(metric(&http.get("/metrics").await.body_text(), "steersman_watch_selector_bytes"), 0);
    drop(watch);
}
