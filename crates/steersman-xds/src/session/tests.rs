//! The rules of the protocol and of the order, one by one.

use crate::kind::Kind;
use crate::report::{Certainty, Variant};
use crate::resource::Resource;
use crate::session::model::Random;
use crate::session::track::Has;
use crate::session::{Change, Now, PATIENCE, Request, RequestError, Session};
use crate::transport::Response;
use crate::view::View;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A session with a clock.
struct Test {
    session: Session,
    variant: Variant,
    start: Instant,
    elapsed: Duration,
}

fn cluster(name: &str, content: &str) -> Arc<Resource> {
    let content = Bytes::from(format!("{name} {content}"));
    Arc::new(Resource::from_bytes(Kind::Cluster, name, content).needing(Kind::Endpoints, [name]))
}

fn endpoints(name: &str, content: &str) -> Arc<Resource> {
    Arc::new(Resource::from_bytes(Kind::Endpoints, name, Bytes::from(format!("{name} {content}"))))
}

fn listener(name: &str, content: &str, routes: &[&str]) -> Arc<Resource> {
    let content = Bytes::from(format!("{name} {content}"));
    Arc::new(Resource::from_bytes(Kind::Listener, name, content).needing(Kind::Route, routes.iter().copied()))
}

fn route(name: &str, content: &str, clusters: &[&str]) -> Arc<Resource> {
    let content = Bytes::from(format!("{name} {content}"));
    Arc::new(Resource::from_bytes(Kind::Route, name, content).needing(Kind::Cluster, clusters.iter().copied()))
}

fn view(resources: &[&Arc<Resource>]) -> Arc<View> {
    let of = |kind| {
        resources.iter().filter(|resource| resource.kind() == kind).map(|resource| (*resource).clone()).collect()
    };
    Arc::new(Kind::ALL.into_iter().fold(View::new(), |view, kind| view.with(kind, of(kind))))
}

/// A response as text: its type, names, and what it removes.
fn words(response: &Response) -> String {
    let names: Vec<_> = response.resources.iter().map(|resource| resource.name().to_string()).collect();
    let removed: Vec<_> = response.removed.iter().map(|name| format!("-{name}")).collect();
    [vec![response.kind.to_string()], names, removed].concat().join(" ")
}

impl Test {
    fn new(variant: Variant, view: &Arc<View>) -> Test {
        let mut session = Session::new(variant);
        session.wanted(view.clone());
        Test { session, variant, start: tokio::time::Instant::now().into_std(), elapsed: Duration::ZERO }
    }

    fn delta(view: &Arc<View>) -> Test {
        Test::new(Variant::Delta, view)
    }

    fn sotw(view: &Arc<View>) -> Test {
        Test::new(Variant::StateOfTheWorld, view)
    }

    fn now(&self) -> Now {
        Now { instant: self.start + self.elapsed, time: SystemTime::UNIX_EPOCH + self.elapsed }
    }

    fn request(&mut self, kind: Kind, nonce: &str, error: Option<&str>, change: Change) {
        let request = Request { kind, nonce: nonce.to_owned(), error: error.map(str::to_owned), change };
        self.session.request(self.now(), request, 10).unwrap();
    }

    /// Asks for names; in the delta variant, for more of them.
    fn ask(&mut self, kind: Kind, nonce: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let change = match self.variant {
            Variant::Delta => Change::Delta { subscribe: names, unsubscribe: Vec::new(), has: Vec::new() },
            Variant::StateOfTheWorld => Change::Names { names, version: String::new() },
        };
        self.request(kind, nonce, None, change);
    }

    fn unsubscribe(&mut self, kind: Kind, names: &[&str]) {
        let unsubscribe = names.iter().map(ToString::to_string).collect();
        self.request(kind, "", None, Change::Delta { subscribe: Vec::new(), unsubscribe, has: Vec::new() });
    }

    /// The first request of a type on a new stream of a proxy that has resources.
    fn resume(&mut self, kind: Kind, names: &[&str], has: &[&Arc<Resource>]) {
        let subscribe = names.iter().map(ToString::to_string).collect();
        let has = has.iter().map(|resource| (resource.name().to_string(), resource.version().to_string())).collect();
        self.request(kind, "", None, Change::Delta { subscribe, unsubscribe: Vec::new(), has });
    }

    fn next(&mut self) -> Option<Response> {
        let now = self.now();
        self.session.next(now)
    }

    #[track_caller]
    fn expect(&mut self, expected: &str) -> Response {
        let response = self.next().unwrap_or_else(|| panic!("nothing is sent, not {expected}"));
        assert_eq!(words(&response), expected);
        response
    }

    #[track_caller]
    fn expect_nothing(&mut self) {
        let response = self.next();
        assert_eq!(response.as_ref().map(words), None);
    }

    /// Acknowledges, with the names that it wants in the state-of-the-world variant.
    fn ack(&mut self, response: &Response, names: &[&str]) {
        let names = if self.variant == Variant::Delta { &[] } else { names };
        self.ask(response.kind, &response.nonce, names);
    }

    fn nack(&mut self, response: &Response, error: &str) {
        let change = Change::Delta { subscribe: Vec::new(), unsubscribe: Vec::new(), has: Vec::new() };
        self.request(response.kind, &response.nonce, Some(error), change);
    }

    /// Expects a response, and acknowledges it.
    #[track_caller]
    fn take(&mut self, expected: &str) {
        let response = self.expect(expected);
        self.ack(&response, &[]);
    }

    fn is_settled(&self) -> bool {
        self.session.settled().zip(self.session.view()).is_some_and(|(settled, view)| Arc::ptr_eq(settled, view))
    }
}

/// A proxy that has a listener, its route, and the cluster of that.
fn started(variant: Variant) -> Test {
    let view = view(&[&cluster("a", "1"), &endpoints("a", "1"), &listener("l", "1", &["r"]), &route("r", "1", &["a"])]);
    let mut test = Test::new(variant, &view);
    test.ask(Kind::Cluster, "", &[]);
    let clusters = test.expect("cluster a");
    test.ask(Kind::Endpoints, "", &["a"]);
    let response = test.expect("endpoints a");
    test.ack(&response, &["a"]);
    test.ack(&clusters, &[]);
    test.ask(Kind::Listener, "", &[]);
    test.take("listener l");
    test.ask(Kind::Route, "", &["r"]);
    let response = test.expect("route r");
    test.ack(&response, &["r"]);
    test.expect_nothing();
    assert!(test.is_settled());
    test
}

const VARIANTS: [Variant; 2] = [Variant::Delta, Variant::StateOfTheWorld];

// === Subscriptions ===

#[test]
fn the_first_request_for_everything_is_answered_even_with_nothing() {
    for variant in VARIANTS {
        let mut test = Test::new(variant, &view(&[]));
        test.ask(Kind::Cluster, "", &[]);
        test.take("cluster");
        test.expect_nothing();
    }
}

#[test]
fn nothing_is_answered_before_there_is_a_view() {
    let mut test = Test::delta(&view(&[]));
    test.session = Session::new(Variant::Delta);
    test.ask(Kind::Cluster, "", &[]);
    test.expect_nothing();
    test.session.wanted(view(&[&cluster("a", "1")]));
    test.expect("cluster a");
}

#[test]
fn without_names_only_clusters_and_listeners_mean_everything() {
    for variant in VARIANTS {
        let mut test = Test::new(variant, &view(&[&endpoints("a", "1"), &route("r", "1", &[])]));
        test.ask(Kind::Endpoints, "", &[]);
        test.ask(Kind::Route, "", &[]);
        test.expect_nothing();
    }
}

#[test]
fn a_star_means_everything_for_all_types() {
    for variant in VARIANTS {
        let mut test = Test::new(variant, &view(&[&endpoints("a", "1"), &endpoints("b", "1")]));
        test.ask(Kind::Endpoints, "", &["*"]);
        test.expect("endpoints a b");
    }
}

#[test]
fn once_names_were_given_an_empty_list_means_nothing() {
    let mut test = Test::sotw(&view(&[&cluster("a", "1"), &cluster("b", "1")]));
    test.ask(Kind::Cluster, "", &["a"]);
    let response = test.expect("cluster a");
    test.ack(&response, &[]);
    test.session.wanted(view(&[&cluster("a", "2"), &cluster("b", "2")]));
    test.expect_nothing();
}

#[test]
fn names_after_a_first_request_without_names_end_the_wildcard_in_the_state_of_the_world() {
    let mut test = Test::sotw(&view(&[&cluster("a", "1"), &cluster("b", "1")]));
    test.ask(Kind::Cluster, "", &[]);
    let response = test.expect("cluster a b");
    test.ack(&response, &["a"]);
    test.expect("cluster a");
}

#[test]
fn names_after_a_first_request_without_names_add_to_the_wildcard_in_delta() {
    let mut test = Test::delta(&view(&[&cluster("a", "1"), &cluster("b", "1")]));
    test.ask(Kind::Cluster, "", &[]);
    test.take("cluster a b");
    test.ask(Kind::Cluster, "", &["a"]);
    test.take("cluster a");
    test.session.wanted(view(&[&cluster("a", "1"), &cluster("b", "2")]));
    test.take("cluster b");
    test.unsubscribe(Kind::Cluster, &["*"]);
    test.session.wanted(view(&[&cluster("a", "2"), &cluster("b", "3")]));
    test.take("cluster a");
}

#[test]
fn a_name_that_is_unsubscribed_beside_a_wildcard_is_answered() {
    let mut test = Test::delta(&view(&[&cluster("a", "1")]));
    test.ask(Kind::Cluster, "", &["*", "a", "b"]);
    test.take("cluster a -b");
    test.unsubscribe(Kind::Cluster, &["a"]);
    test.take("cluster a");
    test.unsubscribe(Kind::Cluster, &["b"]);
    test.take("cluster -b");
    test.expect_nothing();
}

#[test]
fn a_name_that_is_subscribed_again_is_sent_again() {
    let mut test = Test::delta(&view(&[&endpoints("a", "1")]));
    test.ask(Kind::Endpoints, "", &["a"]);
    test.take("endpoints a");
    test.ask(Kind::Endpoints, "", &["a"]);
    test.take("endpoints a");
    test.expect_nothing();
}

#[test]
fn a_request_repeated_word_for_word_is_answered_in_the_state_of_the_world() {
    let mut test = Test::sotw(&view(&[&endpoints("a", "1")]));
    test.ask(Kind::Endpoints, "", &["a"]);
    let response = test.expect("endpoints a");
    test.ack(&response, &["a"]);
    test.expect_nothing();
    // A cluster of the proxy has lost its endpoints and wants them again.
    test.ask(Kind::Endpoints, &response.nonce, &["a"]);
    test.expect("endpoints a");
}

#[test]
fn names_that_do_not_exist_are_said_to_be_removed_once_and_sent_when_they_do() {
    let mut test = Test::delta(&view(&[]));
    test.ask(Kind::Endpoints, "", &["a"]);
    test.take("endpoints -a");
    test.expect_nothing();
    test.session.wanted(view(&[&endpoints("a", "1")]));
    test.take("endpoints a");
    test.session.wanted(view(&[]));
    // The proxy may have a cluster that refers to them, for which it has not asked yet.
    test.expect_nothing();
    test.elapsed = PATIENCE;
    test.take("endpoints -a");
    test.expect_nothing();
}

#[test]
fn names_that_do_not_exist_yet_are_remembered_in_the_state_of_the_world() {
    let mut test = Test::sotw(&view(&[]));
    test.ask(Kind::Endpoints, "", &["a"]);
    test.expect_nothing();
    test.session.wanted(view(&[&endpoints("a", "1")]));
    test.expect("endpoints a");
}

#[test]
fn a_stale_request_is_ignored_in_the_state_of_the_world() {
    let mut test = Test::sotw(&view(&[&endpoints("a", "1"), &endpoints("b", "1")]));
    test.ask(Kind::Endpoints, "", &["a"]);
    let first = test.expect("endpoints a");
    test.ack(&first, &["a"]);
    test.session.wanted(view(&[&endpoints("a", "2"), &endpoints("b", "1")]));
    let second = test.expect("endpoints a");
    // It was sent before the second response arrived, and its names must not count yet.
    test.ask(Kind::Endpoints, &first.nonce, &["a", "b"]);
    test.expect_nothing();
    test.ack(&second, &["a", "b"]);
    // The ignored request could have been without "a", which the proxy would then have forgotten.
    test.expect("endpoints a b");
}

#[test]
fn names_count_whatever_the_nonce_in_delta() {
    let mut test = Test::delta(&view(&[&endpoints("a", "1"), &endpoints("b", "1")]));
    test.ask(Kind::Endpoints, "", &["a"]);
    let first = test.expect("endpoints a");
    test.ask(Kind::Endpoints, "of another response", &["b"]);
    test.expect_nothing();
    test.ack(&first, &[]);
    test.expect("endpoints b");
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

fn subscribing(subscribe: Vec<String>, unsubscribe: Vec<String>) -> Change {
    Change::Delta { subscribe, unsubscribe, has: Vec::new() }
}

#[test]
fn too_many_names_end_the_stream_and_are_not_kept() {
    let has = numbers(0..11).into_iter().map(|name| (name, String::new())).collect();
    let changes = [
        (Variant::Delta, subscribing(numbers(0..11), Vec::new())),
        (Variant::Delta, Change::Delta { subscribe: Vec::new(), unsubscribe: Vec::new(), has }),
        (Variant::StateOfTheWorld, Change::Names { names: numbers(0..11), version: String::new() }),
    ];
    for (variant, change) in changes {
        let mut test = Test::new(variant, &view(&[]));
        let request = Request { kind: Kind::Route, nonce: String::new(), error: None, change };
        let expected = RequestError::TooManyNames { kind: Kind::Route, names: 11, max: 10 };
        assert_eq!(test.session.request(test.now(), request, 10), Err(expected));
        let track = test.session.track(Kind::Route);
        assert_eq!((track.entries.len(), track.dirty.len()), (0, 0), "{variant:?}");
    }
}

/// Random requests are refused if there would be too many names after them, and only then.
#[test]
fn names_are_counted_as_they_will_be() {
    for seed in 1..300 {
        let mut random = Random(seed);
        let mut test = Test::delta(&view(&[]));
        let mut expected = BTreeSet::new();
        loop {
            let mut pick = || -> Vec<String> {
                let n = random.below(8);
                (0..n).map(|_| random.below(16)).map(|n| if n == 0 { "*".to_owned() } else { n.to_string() }).collect()
            };
            let (subscribe, unsubscribe) = (pick(), pick());
            expected.retain(|name| !unsubscribe.contains(name));
            expected.extend(subscribe.iter().filter(|name| *name != "*").cloned());
            let change = subscribing(subscribe, unsubscribe);
            let request = Request { kind: Kind::Route, nonce: String::new(), error: None, change };
            let (names, max) = (expected.len(), 10);
            match test.session.request(test.now(), request, max) {
                Ok(()) => assert!(names <= max, "{names} {seed}"),
                Err(error) => {
                    assert_eq!(error, RequestError::TooManyNames { kind: Kind::Route, names, max }, "{seed}");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_long_version_is_kept_once_however_many_names_there_are() {
    let mut test = Test::sotw(&view(&[]));
    // The cut would be within a letter.
    let version = format!("x{}", "\u{e9}".repeat(1000));
    test.request(Kind::Endpoints, "", None, Change::Names { names: numbers(0..10), version });
    let kept = test.session.track(Kind::Endpoints).entries.values().map(|entry| match &entry.has {
        Has::Foreign(version) => version.clone(),
        other => panic!("{other:?}"),
    });
    let kept: Vec<Arc<str>> = kept.collect();
    assert_eq!((kept.len(), kept[0].len()), (10, 127));
    assert!(kept.iter().all(|version| Arc::ptr_eq(version, &kept[0])));
}

#[test]
fn a_long_version_of_one_name_is_cut() {
    let mut test = Test::delta(&view(&[]));
    let has = vec![("a".to_owned(), "x".repeat(1000))];
    let change = Change::Delta { subscribe: vec!["a".to_owned()], unsubscribe: Vec::new(), has };
    test.request(Kind::Endpoints, "", None, change);
    assert_eq!(test.session.resources()[0].in_force, Some("x".repeat(128)));
}

#[test]
fn the_newest_view_is_sent_to_a_slow_proxy() {
    let mut test = Test::delta(&view(&[&endpoints("a", "1")]));
    test.ask(Kind::Endpoints, "", &["a"]);
    let response = test.expect("endpoints a");
    for content in ["2", "3", "4"] {
        test.session.wanted(view(&[&endpoints("a", content)]));
        test.expect_nothing();
    }
    test.ack(&response, &[]);
    let response = test.expect("endpoints a");
    assert_eq!(response.resources[0].bytes(), "a 4");
}

#[test]
fn a_complete_response_has_what_has_not_changed_too() {
    let mut test = Test::sotw(&view(&[&cluster("a", "1"), &cluster("b", "1"), &cluster("c", "1")]));
    test.ask(Kind::Cluster, "", &[]);
    test.take("cluster a b c");
    test.ask(Kind::Listener, "", &[]);
    test.take("listener");
    test.ask(Kind::Route, "", &[]);
    test.session.wanted(view(&[&cluster("a", "1"), &cluster("b", "2")]));
    let response = test.expect("cluster a b -c");
    assert_eq!(response.resources.len(), 2, "what is left out is removed");
}

// === Reconnection ===

#[test]
fn a_proxy_that_has_everything_gets_nothing() {
    let [cluster, endpoints, listener, route] =
        [cluster("a", "1"), endpoints("a", "1"), listener("l", "1", &["r"]), route("r", "1", &["a"])];
    let mut test = Test::delta(&view(&[&cluster, &endpoints, &listener, &route]));
    test.resume(Kind::Endpoints, &["a"], &[&endpoints]);
    test.resume(Kind::Listener, &[], &[&listener]);
    test.resume(Kind::Route, &["r"], &[&route]);
    test.resume(Kind::Cluster, &[], &[&cluster]);
    // Envoy waits for an answer to what it asks for as a whole.
    test.take("cluster");
    test.take("listener");
    test.expect_nothing();
    assert!(test.is_settled());
}

#[test]
fn a_proxy_gets_what_has_changed_while_it_was_away() {
    let mut test =
        Test::delta(&view(&[&cluster("a", "2"), &cluster("b", "1"), &endpoints("a", "1"), &endpoints("b", "1")]));
    test.resume(Kind::Cluster, &[], &[&cluster("a", "1"), &cluster("b", "1"), &cluster("c", "1")]);
    test.resume(Kind::Endpoints, &["a", "b"], &[&endpoints("a", "1"), &endpoints("b", "1")]);
    // The cluster that is gone waits until routes and listeners are known.
    test.take("cluster a");
    test.take("endpoints a");
    test.expect_nothing();
    test.resume(Kind::Listener, &[], &[]);
    test.take("listener");
    test.resume(Kind::Route, &[], &[]);
    test.take("cluster -c");
}

#[test]
fn a_proxy_that_never_asks_for_routes_gets_clusters_removed_after_a_while() {
    let mut test = Test::delta(&view(&[]));
    test.resume(Kind::Cluster, &[], &[&cluster("a", "1")]);
    test.take("cluster");
    test.expect_nothing();
    assert_eq!(test.session.deadline(), Some(test.start + PATIENCE));
    test.elapsed = PATIENCE;
    test.take("cluster -a");
}

#[test]
fn versions_of_another_control_plane_are_replaced() {
    let mut test = Test::delta(&view(&[&cluster("a", "1")]));
    let has = vec![("a".to_owned(), "2026-01-01/7".to_owned())];
    test.request(Kind::Cluster, "", None, Change::Delta { subscribe: Vec::new(), unsubscribe: Vec::new(), has });
    assert_eq!(test.session.resources()[0].in_force.as_deref(), Some("2026-01-01/7"));
    test.take("cluster a");
}

// === Order ===

#[test]
fn endpoints_follow_a_changed_cluster_although_they_are_the_same() {
    for variant in VARIANTS {
        let mut test = started(variant);
        let changed = [&cluster("a", "2"), &endpoints("a", "1"), &listener("l", "1", &["r"]), &route("r", "1", &["a"])];
        test.session.wanted(view(&changed));
        // The proxy holds its answer back until it has endpoints.
        test.expect("cluster a");
        test.expect("endpoints a");
    }
}

#[test]
fn a_route_waits_for_the_endpoints_of_its_clusters_and_others_go() {
    let mut test = Test::delta(&view(&[
        &cluster("a", "1"),
        &endpoints("a", "1"),
        &route("needs", "1", &["a"]),
        &route("other", "1", &[]),
    ]));
    test.ask(Kind::Cluster, "", &[]);
    test.ask(Kind::Route, "", &["needs", "other"]);
    let clusters = test.expect("cluster a");
    test.take("route other");
    test.ack(&clusters, &[]);
    test.expect_nothing();
    test.ask(Kind::Endpoints, "", &["a"]);
    let response = test.expect("endpoints a");
    test.expect_nothing();
    test.ack(&response, &[]);
    test.take("route needs");
}

#[test]
fn a_route_that_waits_too_long_goes_and_is_reported_until_its_clusters_are_ready() {
    let mut test = Test::delta(&view(&[&cluster("a", "1"), &endpoints("a", "1"), &route("r", "1", &["a"])]));
    test.ask(Kind::Route, "", &["r"]);
    test.expect_nothing();
    assert_eq!(test.session.deadline(), Some(test.start + PATIENCE));
    test.elapsed = PATIENCE - Duration::from_millis(1);
    test.expect_nothing();
    test.elapsed = PATIENCE;
    test.take("route r");
    let hurried = test.session.hurried();
    assert_eq!(hurried.len(), 1);
    assert_eq!(hurried[0].clusters.iter().map(|name| &**name).collect::<Vec<_>>(), ["a"]);
    test.ask(Kind::Cluster, "", &[]);
    test.take("cluster a");
    test.ask(Kind::Endpoints, "", &["a"]);
    test.take("endpoints a");
    assert!(test.session.hurried().is_empty());
}

#[test]
fn a_route_does_not_wait_for_a_cluster_that_is_only_being_changed() {
    let mut test = started(Variant::Delta);
    test.session.wanted(view(&[
        &cluster("a", "2"),
        &endpoints("a", "1"),
        &listener("l", "1", &["r"]),
        &route("r", "2", &["a"]),
    ]));
    test.expect("cluster a");
    test.expect("endpoints a");
    test.expect("route r");
}

#[test]
fn a_cluster_goes_after_the_routes_that_refer_to_it() {
    for variant in VARIANTS {
        let mut test = started(variant);
        let (next, endpoints_of_next) = (cluster("b", "1"), endpoints("b", "1"));
        test.session.wanted(view(&[&next, &endpoints_of_next, &listener("l", "1", &["r"]), &route("r", "2", &["b"])]));
        let is_delta = variant == Variant::Delta;
        test.take(if is_delta { "cluster b" } else { "cluster a b" });
        let last = if is_delta { String::new() } else { "2".to_owned() };
        test.ask(Kind::Endpoints, &last, &["a", "b"]);
        let response = test.next().unwrap();
        assert_eq!(response.kind, Kind::Endpoints);
        test.ack(&response, &["a", "b"]);
        let routes = test.expect("route r");
        test.expect_nothing();
        test.ack(&routes, &["r"]);
        test.take(if is_delta { "cluster -a" } else { "cluster b -a" });
    }
}

#[test]
fn a_cluster_that_comes_back_is_new() {
    let mut test = started(Variant::Delta);
    test.session.wanted(view(&[&listener("l", "1", &["r"]), &route("r", "2", &[])]));
    test.take("route r");
    let removal = test.expect("cluster -a");
    let back = [&cluster("a", "1"), &endpoints("a", "1"), &listener("l", "1", &["r"]), &route("r", "3", &["a"])];
    test.session.wanted(view(&back));
    test.expect_nothing();
    test.unsubscribe(Kind::Endpoints, &["a"]);
    test.ack(&removal, &[]);
    test.take("cluster a");
    test.expect_nothing();
    test.ask(Kind::Endpoints, "", &["a"]);
    test.take("endpoints a");
    test.take("route r");
}

#[test]
fn a_first_complete_response_waits_for_all_of_it() {
    let tcp = listener("tcp", "1", &[]);
    let tcp = Arc::new((*tcp).clone().needing(Kind::Cluster, ["a"]));
    let all = [&cluster("a", "1"), &endpoints("a", "1"), &tcp, &listener("l", "1", &[])];
    let mut test = Test::sotw(&view(&all));
    test.ask(Kind::Listener, "", &[]);
    test.expect_nothing();
    test.ask(Kind::Cluster, "", &[]);
    test.take("cluster a");
    test.ask(Kind::Endpoints, "", &["a"]);
    let response = test.expect("endpoints a");
    test.expect_nothing();
    test.ack(&response, &["a"]);
    test.expect("listener l tcp");
}

#[test]
fn a_proxy_is_settled_when_it_has_what_its_resources_refer_to() {
    let all = [&cluster("a", "1"), &endpoints("a", "1"), &listener("l", "1", &["r"]), &route("r", "1", &[])];
    let mut test = Test::delta(&view(&all));
    test.ask(Kind::Cluster, "", &[]);
    test.take("cluster a");
    test.ask(Kind::Listener, "", &[]);
    test.take("listener l");
    test.expect_nothing();
    assert!(!test.is_settled(), "neither endpoints nor routes were asked for");
    test.ask(Kind::Endpoints, "", &["a"]);
    test.take("endpoints a");
    test.expect_nothing();
    assert!(!test.is_settled());
    test.ask(Kind::Route, "", &["r"]);
    test.take("route r");
    test.expect_nothing();
    assert!(test.is_settled());
}

// === Rejections ===

#[test]
fn a_rejected_version_is_not_sent_again_and_the_next_one_is() {
    for variant in VARIANTS {
        let mut test = started(variant);
        let with_route = |content| {
            let rest = [cluster("a", "1"), endpoints("a", "1"), listener("l", "1", &["r"])];
            view(&[&rest[0], &rest[1], &rest[2], &route("r", content, &["a"])])
        };
        test.session.wanted(with_route("2"));
        let response = test.expect("route r");
        let change = match variant {
            Variant::Delta => Change::Delta { subscribe: Vec::new(), unsubscribe: Vec::new(), has: Vec::new() },
            Variant::StateOfTheWorld => Change::Names { names: vec!["r".to_owned()], version: "1".to_owned() },
        };
        test.request(Kind::Route, &response.nonce, Some("no"), change);
        test.expect_nothing();
        assert!(test.is_settled(), "but for the rejection");
        let rejections = test.session.rejections();
        assert_eq!((rejections.len(), &*rejections[0].error, rejections[0].certainty), (1, "no", Certainty::Named));
        let report = test.session.resources().into_iter().find(|report| &*report.name == "r").unwrap();
        assert_eq!(report.rejected, report.wanted);
        assert_eq!(report.in_force, Some(route("r", "1", &["a"]).version().to_string()));
        // Another view with the same route changes nothing.
        test.session.wanted(with_route("2"));
        test.expect_nothing();
        test.session.wanted(with_route("3"));
        let response = test.expect("route r");
        assert_eq!(test.session.rejections().len(), 1, "until the next one is in force");
        test.ack(&response, &["r"]);
        assert!(test.session.rejections().is_empty());
    }
}

#[test]
fn going_back_to_what_is_in_force_ends_a_rejection() {
    let mut test = started(Variant::Delta);
    let before = test.session.view().unwrap().clone();
    test.session.wanted(Arc::new((*before).clone().with(Kind::Route, [route("r", "2", &["a"])].into_iter().collect())));
    let response = test.expect("route r");
    test.nack(&response, "no");
    assert_eq!(test.session.rejections().len(), 1);
    test.session.wanted(before);
    test.expect_nothing();
    assert!(test.session.rejections().is_empty());
    assert!(test.is_settled());
}

#[test]
fn what_a_rejection_does_not_name_is_sent_again() {
    let mut test = Test::delta(&view(&[&cluster("a", "1"), &cluster("b", "1"), &cluster("c", "1")]));
    test.ask(Kind::Cluster, "", &[]);
    let response = test.expect("cluster a b c");
    test.nack(&response, "Error adding/updating cluster(s) b: no");
    test.take("cluster a c");
    test.expect_nothing();
    assert_eq!(test.session.rejections().len(), 1);
}

#[test]
fn what_is_rejected_without_names_is_sent_one_by_one() {
    let mut test = Test::delta(&view(&[&cluster("a", "1"), &cluster("b", "1"), &cluster("c", "1")]));
    test.ask(Kind::Cluster, "", &[]);
    let response = test.expect("cluster a b c");
    test.nack(&response, "no");
    assert!(test.session.rejections().is_empty());
    test.take("cluster a");
    let response = test.expect("cluster b");
    test.nack(&response, "no");
    test.take("cluster c");
    test.expect_nothing();
    let rejections = test.session.rejections();
    assert_eq!(rejections.iter().map(|rejection| &**rejection.resource.name()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_rejected_cluster_is_left_out_of_the_whole_and_what_it_replaces_is_kept() {
    let mut test = Test::sotw(&view(&[&cluster("a", "1")]));
    test.ask(Kind::Cluster, "", &[]);
    test.take("cluster a");
    test.session.wanted(view(&[&cluster("a", "2"), &cluster("b", "1")]));
    let response = test.expect("cluster a b");
    let change = Change::Names { names: Vec::new(), version: "1".to_owned() };
    test.request(Kind::Cluster, &response.nonce, Some("Error adding/updating cluster(s) a: no, b: no"), change);
    test.expect_nothing();
    test.session.wanted(view(&[&cluster("a", "2"), &cluster("b", "1"), &cluster("c", "1")]));
    let response = test.expect("cluster a c");
    assert_eq!(response.resources[0].bytes(), "a 1", "the version in force");
}

#[test]
fn a_cluster_that_was_perhaps_taken_over_is_removed() {
    let mut test = started(Variant::Delta);
    let rest = [cluster("a", "1"), endpoints("a", "1"), listener("l", "1", &["r"]), route("r", "1", &["a"])];
    let rest: Vec<&Arc<Resource>> = rest.iter().collect();
    test.session.wanted(view(&[&rest[..], &[&cluster("b", "1"), &cluster("c", "1")]].concat()));
    let response = test.expect("cluster b c");
    test.session.wanted(view(&rest));
    test.nack(&response, "Error adding/updating cluster(s) c: no");
    test.take("cluster -b");
    test.expect_nothing();
}

#[test]
fn large_responses_are_divided() {
    let large = "x".repeat(700 * 1024);
    let all: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| endpoints(name, &large)).into();
    let mut test = Test::delta(&view(&all.iter().collect::<Vec<_>>()));
    test.ask(Kind::Endpoints, "", &["a", "b", "c", "d", "e"]);
    test.take("endpoints a b c");
    test.take("endpoints d e");
    test.expect_nothing();
}
