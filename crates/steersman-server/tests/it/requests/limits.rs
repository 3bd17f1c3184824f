//! Requests that are too many, too long or too late.

use crate::support::{Answer, CONFIGS, Http, Options, TestServer, allow_all, config, options};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use http::{Method, Request, Version};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_server::Concurrency;
use steersman_storage::{Memory, Store};

/// The most bytes of a body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The most requests of one user whose bodies are being received.
const RECEIVING_MAX: usize = 500;

/// A creation whose body never comes.
async fn stuck(http: Http, path: &str) -> Answer {
    stuck_after(Bytes::new(), http, path).await
}

/// A creation whose body ends after its beginning.
async fn stuck_after(beginning: Bytes, http: Http, path: &str) -> Answer {
    let beginning = stream::iter([Ok::<_, Infallible>(Frame::data(beginning))]);
    let body = StreamBody::new(beginning.chain(stream::pending()));
    let request = Request::post(path).header("content-type", "application/json").body(body).unwrap();
    http.raw(request).await
}

#[tokio::test]
async fn a_body_has_a_limit() {
    let test = TestServer::new().await;
    let http = test.http();
    let fits = vec![b' '; BODY_BYTES_MAX];
    assert_eq!(http.send(Method::POST, CONFIGS, "application/json", fits).await.code, 400);
    let over = vec![b' '; BODY_BYTES_MAX + 1];
    let refused = http.send(Method::POST, CONFIGS, "application/json", over).await;
    assert_eq!(refused.refusal(), (413, "RequestEntityTooLarge".to_owned()));
    http.post(CONFIGS, &config("c")).await.ok();
}

#[tokio::test]
async fn a_body_without_an_end_is_cut_off_at_the_limit() {
    let test = TestServer::new().await;
    let piece = Bytes::from(vec![b' '; 64 * 1024]);
    let endless = stream::repeat_with(move || Ok::<_, Infallible>(Frame::data(piece.clone())));
    let request =
        Request::post(CONFIGS).header("content-type", "application/json").body(StreamBody::new(endless)).unwrap();
    assert_eq!(test.http().raw(request).await.code, 413);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_sends_its_body_does_not_stay() {
    let test = TestServer::new().await;
    let begun = tokio::time::Instant::now();
    assert_eq!(stuck(test.http(), CONFIGS).await.refusal(), (504, "Timeout".to_owned()));
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(stuck(test.http(), &format!("{CONFIGS}?timeout=3s")).await.code, 504);
    assert_eq!(begun.elapsed().as_secs(), 63);
}

#[tokio::test(start_paused = true)]
async fn who_comes_when_all_of_ones_places_are_taken_is_told_to_come_back_and_others_are_not() {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    let http = test.http();
    let begun = tokio::time::Instant::now();
    let holders = join_all((0..RECEIVING_MAX).map(|_| stuck(test.http(), CONFIGS)));
    let latecomer = async {
        let refused = http.post(CONFIGS, &config("late")).await;
        assert_eq!(refused.refusal(), (429, "TooManyRequests".to_owned()));
        assert_eq!(refused.header("retry-after"), Some("1"));
        let said = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(
            said.contains("being received take 500 places for this user and 500 for all users, of 1000; with 1 more"),
            "{said}"
        );
        test.http_as("bob").post(CONFIGS, &config("of-another")).await.ok();
        assert!(begun.elapsed().as_secs() < 60);
    };
    let (held, ()) = tokio::join!(holders, latecomer);
    assert!(held.iter().all(|answer| answer.code == 504));
    http.post(CONFIGS, &config("late")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn slow_bodies_leave_room_for_others_and_who_is_refused_can_send_to_the_end() {
    let test = TestServer::with(steersman_storage::Options::default(), allow_all()).await;
    let large = Bytes::from(vec![b' '; 2 << 20]);
    let slow = join_all((0..16).map(|_| stuck_after(large.clone(), test.http(), CONFIGS)));
    let others = async {
        let (piece, n_read) = (Bytes::from(vec![b' '; 900_000]), Arc::new(AtomicUsize::new(0)));
        let counted = n_read.clone();
        let pieces = stream::iter(0..3).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(piece.clone()))
        });
        let request = Request::post(CONFIGS).header("content-type", "application/json");
        let refused = test.http().raw(request.body(StreamBody::new(pieces)).unwrap()).await;
        assert_eq!(refused.refusal(), (429, "TooManyRequests".to_owned()));
        assert_eq!((n_read.load(Ordering::Relaxed), refused.header("connection")), (3, None));
        let data = "x".repeat(1_000_000);
        let large = json!({"metadata": {"name": "of-another"}, "data": {"a": data}});
        test.http_as("bob").post(CONFIGS, &large).await.ok();
    };
    let (held, ()) = tokio::join!(slow, others);
    assert!(held.iter().all(|answer| answer.code == 504));
}

#[tokio::test(start_paused = true)]
async fn who_is_slow_to_send_keeps_nobody_from_writing() {
    let test = TestServer::new().await;
    let slow = join_all((0..RECEIVING_MAX / 2).map(|_| stuck(test.http(), CONFIGS)));
    let others = async {
        for index in 0..10 {
            test.http().post(CONFIGS, &config(&format!("c{index}"))).await.ok();
        }
    };
    let (held, ()) = tokio::join!(slow, others);
    assert!(held.iter().all(|answer| answer.code == 504));
}

#[tokio::test]
async fn a_client_that_goes_away_gives_back_its_place() {
    let test = TestServer::new().await;
    let mut holders: Vec<_> = (0..RECEIVING_MAX).map(|_| Box::pin(stuck(test.http(), CONFIGS))).collect();
    for holder in &mut holders {
        assert!(futures::poll!(holder.as_mut()).is_pending());
    }
    assert_eq!(test.http().post(CONFIGS, &config("c")).await.code, 429);
    drop(holders);
    test.http().post(CONFIGS, &config("c")).await.ok();
}

#[tokio::test]
async fn a_stopping_server_sends_clients_elsewhere_but_says_how_it_is() {
    let test = TestServer::new().await;
    let http = test.http();
    test.server.withdraw();
    assert_eq!(http.get("/readyz").await.code, 500);
    http.post(CONFIGS, &config("c")).await.ok();
    test.server.begin_stop();
    let refused = http.get(CONFIGS).await;
    assert_eq!(
        (refused.code, refused.header("retry-after"), refused.header("connection")),
        (429, Some("1"), Some("close"))
    );
    assert_eq!(http.get("/livez").await.code, 200);
}

#[tokio::test]
async fn a_patch_that_grows_an_object_beyond_measure_is_refused() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &json!({"metadata": {"name": "c"}, "data": {"a": "x".repeat(500_000)}})).await.ok();
    let copies: Vec<_> =
        (0..10).map(|n| json!({"op": "copy", "from": "/data/a", "path": format!("/data/b{n}")})).collect();
    let refused = http.json_patch(&format!("{CONFIGS}/c"), &json!(copies)).await;
    assert!((400..500).contains(&refused.code), "{}", refused.code);
    assert_eq!(http.get(&format!("{CONFIGS}/c")).await.ok()["data"].as_object().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_a_list_keeps_nobody_from_reading() {
    /// The most reads in flight.
    const READS_MAX: u32 = 200;
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let concurrency = Concurrency { has_priority_and_fairness: false, reads_max: READS_MAX, writes_max: 200 };
    let test = TestServer::of(store.clone(), Options { concurrency, ..options(&store, allow_all()) }).await;
    let http = test.http();
    // More than is written before the answer begins.
    for index in 0..5 {
        let data = json!({"metadata": {"name": format!("c{index}")}, "data": {"a": "x".repeat(100_000)}});
        http.post(CONFIGS, &data).await.ok();
    }
    let unread = join_all((0..READS_MAX).map(|_| http.unread(CONFIGS))).await;
    assert_eq!(http.get(CONFIGS).await.code, 429);
    tokio::time::sleep(Duration::from_secs(2)).await;
    http.get(CONFIGS).await.ok();
    tokio::time::sleep(Duration::from_secs(60)).await;
    for mut body in unread {
        assert!(body.frame().await.unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_a_list_late_gets_it_as_it_was() {
    let test = TestServer::new().await;
    let http = test.http();
    for index in 0..9 {
        let data = json!({"metadata": {"name": format!("c{index}")}, "data": {"a": "x".repeat(100_000)}});
        http.post(CONFIGS, &data).await.ok();
    }
    let whole = http.get(CONFIGS).await.ok();
    let body = http.unread(CONFIGS).await;
    http.delete(&format!("{CONFIGS}/c8")).await.ok();
    http.merge(&format!("{CONFIGS}/c7"), &json!({"data": {"a": "new"}})).await.ok();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let late = body.collect().await.unwrap().to_bytes();
    assert!(serde_json::from_slice::<serde_json::Value>(&late).unwrap() == whole);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_announced_when_a_body_stays_unread() {
    let test = TestServer::new().await;
    let post = |path: &str| Request::post(path).header("content-type", "application/json");
    let early = format!("{CONFIGS}?timeout=never");

    let whole = Bytes::from(config("c").to_string());
    let refused = test.http().raw(post(&early).body(Full::new(whole.clone())).unwrap()).await;
    assert_eq!((refused.code, refused.header("connection")), (400, None), "the body was there: it is out of the way");

    let late = stream::once(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, Infallible>(Frame::data(whole))
    });
    let refused = test.http().raw(post(&early).body(StreamBody::new(late)).unwrap()).await;
    assert_eq!((refused.code, refused.header("connection")), (400, None), "it came in a moment");

    let begun = tokio::time::Instant::now();
    let refused = stuck(test.http(), &early).await;
    assert_eq!((refused.code, refused.header("connection")), (400, Some("close")));
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits long for what nobody reads");

    let begun = tokio::time::Instant::now();
    let held_back = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let refused = test.http().raw(post(&early).header("expect", "100-continue").body(held_back).unwrap()).await;
    assert_eq!((refused.code, refused.header("connection")), (400, Some("close")));
    assert!(begun.elapsed().is_zero(), "the client was not asked for it");

    let read = Request::get(CONFIGS).body(Full::new(Bytes::from_static(b"{}"))).unwrap();
    let answer = test.http().raw(read).await;
    assert_eq!((answer.code, answer.header("connection")), (200, Some("close")));

    let over = vec![b' '; BODY_BYTES_MAX + 1];
    let refused = test.http().send(Method::POST, CONFIGS, "application/json", over).await;
    assert_eq!((refused.code, refused.header("connection")), (413, None));
}

#[tokio::test(start_paused = true)]
async fn an_early_answer_over_http2_waits_a_moment_for_the_body() {
    const LATE: Duration = Duration::from_millis(100);
    let test = TestServer::new().await;
    let post = || {
        let post = Request::post(format!("{CONFIGS}?timeout=never")).version(Version::HTTP_2);
        post.header("content-type", "application/json")
    };

    let (came, has_come) = tokio::sync::oneshot::channel();
    let late = stream::once(async move {
        tokio::time::sleep(LATE).await;
        came.send(()).unwrap();
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{}")))
    });
    let refused = test.http().raw(post().body(StreamBody::new(late)).unwrap()).await;
    assert_eq!((refused.code, refused.header("connection")), (400, None));
    has_come.await.expect("the stream was reset before its body came");

    let begun = tokio::time::Instant::now();
    let held_back = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let refused = test.http().raw(post().body(held_back).unwrap()).await;
    assert_eq!((refused.code, refused.header("connection")), (400, None), "other streams go on");
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits long for what nobody reads");
}
