//! Tests of lists: in pieces, at their ends, and with clients that read slowly or not at all.

use super::*;
use crate::http::representation::tests::{answer_options, cups, object, pods};
use crate::shared::compute::{Compute, Pool};
use crate::shared::request::memory::Memory;
use crate::shared::request::negotiate::{Encoding, Layout, Negotiated};
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_kinds::user::User;
use steersman_machinery::Budget;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Objects of about 1 KB each: enough that they are not all written before the client reads.
const MANY: usize = 1_000;

fn objects(n: usize) -> Vec<Arc<Object>> {
    let filling = "x".repeat(900);
    let object = |index| object(&format!("cup-{index:05}"), &json!({"spec": {"notes": filling, "size": index}}));
    (0..n).map(object).collect()
}

fn head() -> ListHead {
    ListHead { revision: Some(Revision(7)), token: Some("more".to_owned()), remaining: Some(3) }
}

fn json() -> Representation {
    let negotiated = Negotiated::new(Encoding::Json, Form::Object);
    Representation::new(&cups(), answer_options(negotiated)).unwrap()
}

/// Reads pages from a list of all objects, and counts the reads.
fn reloaded(all: Vec<Arc<Object>>) -> (Reload, Arc<AtomicUsize>) {
    let n_reloads = Arc::new(AtomicUsize::new(0));
    let counted = n_reloads.clone();
    let reload: Reload = Box::new(move |after, objects_max| {
        counted.fetch_add(1, Ordering::Relaxed);
        let page = all.iter().filter(|object| after < object.key).take(objects_max).cloned().collect();
        Box::pin(std::future::ready(Ok(page)))
    });
    (reload, n_reloads)
}

#[tokio::test]
async fn a_list_in_pieces_is_the_list_in_one() {
    for form in [Form::Object, Form::PartialMetadata, Form::Table] {
        for (encoding, layout) in
            [(Encoding::Json, Layout::Compact), (Encoding::Json, Layout::Indented), (Encoding::Yaml, Layout::Compact)]
        {
            for n in [0, 1, 2, MANY] {
                for served in [cups(), pods()] {
                    let looks = answer_options(Negotiated::new(encoding, form));
                    let plain = answer_options(Negotiated::new(Encoding::Json, form));
                    let looks = crate::http::representation::AnswerOptions { layout, ..looks };
                    let representation = |looks| Representation::new(&served, looks).unwrap();
                    let text = async |representation: Representation| {
                        let body = list(representation, objects(n), &head(), None, rest()).await.unwrap();
                        body.collect().await.unwrap().to_bytes()
                    };
                    let whole = text(representation(plain)).await;
                    let mut want = Vec::new();
                    representation(looks).encoder().document(&whole, &mut want).unwrap();
                    assert!(text(representation(looks)).await == want, "{form:?} {encoding:?} {layout:?} {n}");
                    let tree: Value = serde_json::from_slice(&whole).unwrap();
                    let items = if form == Form::Table { &tree["rows"] } else { &tree["items"] };
                    match form {
                        Form::PartialMetadata if n == 0 => assert!(items.is_null()),
                        _ => assert_eq!(items.as_array().unwrap().len(), n),
                    }
                    assert_eq!(tree["metadata"]["remainingItemCount"], 3);
                }
            }
        }
    }
}

/// A list of pods in protobuf, parsed as a tree, and its length.
async fn in_protobuf(form: Form, objects: Vec<Arc<Object>>) -> (Value, usize) {
    let looks = answer_options(Negotiated::new(Encoding::Protobuf, form));
    let representation = Representation::new(&pods(), looks).unwrap();
    let bytes = list(representation, objects, &head(), None, rest()).await.unwrap().collect().await.unwrap().to_bytes();
    (steersman_kinds::protobuf::decode(&bytes, &Budget::unlimited()).unwrap(), bytes.len())
}

#[tokio::test]
async fn a_list_in_protobuf_is_the_list_in_json() {
    for form in [Form::Object, Form::PartialMetadata] {
        for n in [0, 1, 2, MANY] {
            let plain = answer_options(Negotiated::new(Encoding::Json, form));
            let body =
                list(Representation::new(&pods(), plain).unwrap(), pods_named(n), &head(), None, rest()).await.unwrap();
            let mut want: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            for item in want["items"].as_array_mut().into_iter().flatten() {
                // In protobuf only the list has kind and apiVersion.
                item.as_object_mut().unwrap().retain(|name, _| !matches!(&**name, "kind" | "apiVersion"));
            }
            if n == 0 {
                want.as_object_mut().unwrap().remove("items");
            }
            let (got, bytes) = in_protobuf(form, pods_named(n)).await;
            assert!(got == want, "{form:?} {n}");
            let is_long = form == Form::Object && n == MANY;
            assert!(!is_long || CHUNK_BYTES < bytes, "{bytes} bytes are one chunk");
        }
    }
}

#[tokio::test]
async fn a_long_list_in_protobuf_is_not_held_whole() {
    let looks = answer_options(Negotiated::new(Encoding::Protobuf, Form::Object));
    let representation = Representation::new(&pods(), looks).unwrap();
    let mut long = list(representation, pods_named(MANY), &head(), None, rest()).await.unwrap();
    assert_eq!(http_body::Body::size_hint(&long).exact(), None);
    while let Some(chunk) = long.frame().await {
        assert!(chunk.unwrap().into_data().unwrap().len() < COMPRESS_BYTES_MIN + 4096);
    }
}

#[tokio::test]
async fn a_chunk_of_larger_objects_in_another_form_is_no_longer_than_a_few_of_them() {
    let object =
        |index| object(&format!("cup-{index:05}"), &json!({"spec": {"notes": vec!["x"; 5_000], "size": index}}));
    let all: Vec<_> = (0..100).map(object).collect();
    for (encoding, layout) in [(Encoding::Json, Layout::Indented), (Encoding::Yaml, Layout::Compact)] {
        let looks = crate::http::representation::AnswerOptions {
            layout,
            ..answer_options(Negotiated::new(encoding, Form::Object))
        };
        let mut body =
            list(Representation::new(&cups(), looks).unwrap(), all.clone(), &head(), None, rest()).await.unwrap();
        let mut n_chunks = 0;
        while let Some(chunk) = body.frame().await {
            let bytes = chunk.unwrap().into_data().unwrap().len();
            assert!(bytes < 700_000, "{bytes} bytes in {encoding:?}");
            n_chunks += 1;
        }
        assert!(4 < n_chunks, "{n_chunks} in {encoding:?}");
    }
}

/// Pods of a kilobyte each.
fn pods_named(n: usize) -> Vec<Arc<Object>> {
    let pod = |number: usize| {
        let metadata =
            json!({"name": format!("p{number:05}"), "namespace": "default", "labels": {"n": number.to_string()}});
        let mut text = "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",".to_owned();
        let rest = json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i".repeat(1000)}]}});
        text.push_str(&rest.to_string()[1..]);
        let key = steersman_machinery::ObjectKey::namespaced("default", format!("p{number:05}"));
        Arc::new(Object::decode(key, Revision(5), text.as_bytes()).unwrap())
    };
    (0..n).map(pod).collect()
}

#[tokio::test]
async fn a_short_list_has_a_length_and_a_long_one_is_not_held_whole() {
    let short = list(json(), objects(3), &head(), None, rest()).await.unwrap();
    assert!(http_body::Body::size_hint(&short).exact().is_some());
    let mut long = list(json(), objects(MANY), &head(), None, rest()).await.unwrap();
    assert_eq!(http_body::Body::size_hint(&long).exact(), None);
    while let Some(chunk) = long.frame().await {
        assert!(chunk.unwrap().into_data().unwrap().len() < COMPRESS_BYTES_MIN + 4096);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_keeps_nothing_and_is_cut_off() {
    let all = objects(MANY);
    let (reload, _) = reloaded(Vec::new());
    let mut body = list(json(), all.clone(), &head(), Some(reload), rest()).await.unwrap();
    let places = Arc::new(Semaphore::new(1));
    body.hold(places.clone().try_acquire_owned().unwrap());
    assert!(places.available_permits() == 0 && Arc::strong_count(&all[MANY - 1]) == 2);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(places.available_permits() == 1 && Arc::strong_count(&all[MANY - 1]) == 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(body.frame().await.unwrap().err(), Some(Error::TooSlow));
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn without_history_a_list_is_kept_until_its_client_is_cut_off() {
    let all = objects(MANY);
    let _body = list(json(), all.clone(), &head(), None, rest()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(Arc::strong_count(&all[MANY - 1]), 2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(Arc::strong_count(&all[MANY - 1]), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_sent_ends_although_its_user_has_no_memory_left() {
    let memory = Memory::default().answers;
    let user = Arc::new(User::authenticated("alice", []));
    let large = |index| object(&format!("cup-{index}"), &json!({"spec": {"notes": "x".repeat(500_000)}}));
    let mut body = list(json(), (0..3).map(large).collect(), &head(), None, rest()).await.unwrap();
    body.reserve(memory.reserve(&user));
    let mut chunks = Vec::new();
    let is_whole = |chunks: &[Bytes]| chunks.last().is_some_and(|chunk: &Bytes| chunk.ends_with(b"]}"));
    while !is_whole(&chunks) {
        chunks.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    assert!(1 < chunks.len());
    let mut rest = memory.reserve(&user);
    rest.take(64 << 20);
    let begun = Instant::now();
    assert!(body.frame().await.is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_gets_the_same_list() {
    let all = objects(MANY);
    let whole = list(json(), all.clone(), &head(), None, rest()).await.unwrap().collect().await.unwrap().to_bytes();
    let (reload, n_reloads) = reloaded(all.clone());
    let mut body = list(json(), all, &head(), Some(reload), rest()).await.unwrap();
    let mut got = Vec::new();
    while let Some(chunk) = body.frame().await {
        got.extend_from_slice(&chunk.unwrap().into_data().unwrap());
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert!(got == whole);
    assert!(n_reloads.load(Ordering::Relaxed) > 1);
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_server_takes_is_not_the_clients() {
    let all = objects(MANY);
    let whole = list(json(), all.clone(), &head(), None, rest()).await.unwrap().collect().await.unwrap().to_bytes();
    let kept = all.clone();
    let slow: Reload = Box::new(move |after, objects_max| {
        let page = kept.iter().filter(|object| after < object.key).take(objects_max).cloned().collect();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(45)).await;
            Ok(page)
        })
    });
    let mut body = list(json(), all, &head(), Some(slow), rest()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut got = Vec::new();
    while let Some(chunk) = body.frame().await {
        got.extend_from_slice(&chunk.unwrap().into_data().unwrap());
    }
    assert!(got == whole);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_rest_is_forgotten_is_broken_off() {
    let (reload, _) = reloaded(Vec::new());
    let mut body = list(json(), objects(MANY), &head(), Some(reload), rest()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut last = None;
    while let Some(chunk) = body.frame().await {
        last = Some(chunk);
    }
    assert!(matches!(last, Some(Err(Error::Broken(_)))), "{last:?}");
}

#[tokio::test]
async fn others_have_their_turn_between_two_chunks() {
    let mut body = list(json(), objects(MANY), &head(), None, rest()).await.unwrap();
    assert!(body.frame().now_or_never().is_some());
    assert!(body.frame().now_or_never().is_none());
    assert!(body.frame().now_or_never().is_some());
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_told_before_the_answer_begins() {
    let negotiated = Negotiated::new(Encoding::Json, Form::Table);
    let representation = Representation::new(&cups(), answer_options(negotiated)).unwrap();
    let unreadable = crate::http::representation::tests::unreadable("b");
    let failed =
        list(representation.clone(), vec![objects(1).remove(0), unreadable.clone()], &head(), None, rest()).await;
    assert_eq!(failed.unwrap_err().code(), 500);
    // A later failure can only be shown by a body that breaks off.
    let mut late = objects(MANY);
    late.push(unreadable);
    let broken = list(representation, late, &head(), None, rest()).await.unwrap().collect().await;
    assert!(matches!(broken, Err(Error::Broken(_))));
}

fn rest() -> AnswerCompute {
    let pool = Arc::new(Pool::new(Compute::default()));
    AnswerCompute::new(&pool, &Arc::new(User::authenticated("alice", [])))
}
