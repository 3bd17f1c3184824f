//! Views of random worlds and of given ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use serde_json::json;
use steersman_xds::{Kind, View};

use crate::pilot::resources::Options;
use crate::pilot::scope::{Calls, Scope, Snapshot};
use crate::pilot::world::World;
use crate::pilot::world::tests::{http_route, objects, service};

fn snapshot(yaml: &str, previous: &Snapshot) -> Snapshot {
    Snapshot::of(World::of(&objects(yaml)), &Options::default(), previous)
}

fn scope(namespace: &str, calls: &str) -> Scope {
    Scope { namespace: namespace.to_owned(), calls: Calls::parse(calls, namespace).unwrap() }
}

fn names(view: &View, kind: Kind) -> Vec<String> {
    view.set(kind).iter().map(|resource| resource.name().to_string()).collect()
}

#[test]
fn the_annotation_narrows_a_view_to_services_and_what_their_routes_name() {
    let yaml = service("shop", "web", 1, &["http:80"])
        + &service("shop", "v1", 2, &["http:80"])
        + &service("other", "db", 3, &["tcp:5432"])
        + &service("other", "api", 4, &["http:80"])
        + &http_route(
            "shop",
            "r",
            "name: web",
            "[{backendRefs: [{name: v1, port: 80, weight: 0}, {name: web, port: 80}]}]",
        );
    let snapshot = snapshot(&yaml, &Snapshot::default());
    let view = |calls| snapshot.view(Some(&scope("shop", calls)), &Arc::default());
    let of = |calls| names(&view(calls), Kind::Cluster);
    assert_eq!(of("web"), ["outbound|80||v1.shop.svc", "outbound|80||web.shop.svc"]);
    assert_eq!(of("*.other"), ["outbound|5432||db.other.svc", "outbound|80||api.other.svc"]);
    assert_eq!(of("api.other, gone"), ["outbound|80||api.other.svc"]);
    assert_eq!(of(""), [""; 0]);
    assert_eq!(of("*").len(), 4);
    assert_eq!(names(&view("web"), Kind::Listener), ["10.96.0.1:80"]);
    assert_eq!(names(&view("*.other"), Kind::Route), ["outbound|80||api.other.svc"]);
}

#[test]
fn an_annotation_that_cannot_be_read_is_named() {
    let error = |text| Calls::parse(text, "shop").unwrap_err().to_string();
    let expected = "\"Web\" in the annotation mesh.steersman.dev/calls is no Service: write NAME, NAME.NAMESPACE, *.NAMESPACE or *";
    assert_eq!(error("Web"), expected);
    assert!(error("a.b.c").starts_with("\"a.b.c\""));
    assert!(error(".x").starts_with("\".x\""));
    assert!(error(&"a,".repeat(1_001)).contains("names 1001 Services"));
}

#[test]
fn clients_of_a_namespace_with_a_consumer_route_have_other_routes_and_the_same_listeners() {
    let to = "[{backendRefs: [{name: web, namespace: shop, port: 80}]}]";
    let yaml = service("shop", "web", 1, &["http:80"]) + &http_route("client", "r", "name: web, namespace: shop", to);
    let snapshot = snapshot(&yaml, &Snapshot::default());
    let (client, other) = (scope("client", "*"), scope("other", "*"));
    assert!(!snapshot.is_common(&client));
    assert!(snapshot.is_common(&other));
    let (consumer, common) = (snapshot.view(Some(&client), &Arc::default()), snapshot.view(None, &Arc::default()));
    let route = |view: &View| Arc::clone(view.get(Kind::Route, "outbound|80||web.shop.svc").unwrap());
    assert_ne!(route(&consumer).version(), route(&common).version());
    assert_eq!(&**route(&consumer).source().unwrap(), "HTTPRoute client/r");
    let listener = |view: &View| Arc::clone(view.get(Kind::Listener, "10.96.0.1:80").unwrap());
    assert!(Arc::ptr_eq(&listener(&consumer), &listener(&common)));
}

#[test]
fn a_consumer_route_leaves_the_bytes_of_other_clients_alone() {
    let to = "[{backendRefs: [{name: db, namespace: shop, port: 5432}]}]";
    let yaml = service("shop", "db", 1, &["db:5432"]) + &http_route("client", "r", "name: db, namespace: shop", to);
    let snapshot = snapshot(&yaml, &Snapshot::default());
    let consumer = snapshot.view(Some(&scope("client", "*")), &Arc::default());
    let common = snapshot.view(None, &Arc::default());
    let needs = |view: &View| {
        let listener = view.get(Kind::Listener, "10.96.0.1:5432").unwrap();
        listener.needs().iter().map(|need| need.kind).collect::<Vec<_>>()
    };
    assert_eq!([needs(&consumer), needs(&common)], [[Kind::Route], [Kind::Cluster]]);
    assert_eq!(names(&common, Kind::Route), [""; 0]);
}

#[test]
fn a_change_that_does_not_concern_a_view_leaves_it() {
    let web = service("shop", "web", 1, &["http:80"]);
    let first = snapshot(&(web.clone() + &service("shop", "v1", 2, &["http:80"])), &Snapshot::default());
    let (narrow, wide) = (scope("shop", "web"), scope("shop", "*"));
    let (narrow_view, wide_view) =
        (first.view(Some(&narrow), &Arc::default()), first.view(Some(&wide), &Arc::default()));
    let second = snapshot(&(web + &service("shop", "v1", 3, &["http:80"])), &first);
    assert!(Arc::ptr_eq(&second.view(Some(&narrow), &narrow_view), &narrow_view));
    let changed = second.view(Some(&wide), &wide_view);
    assert!(!Arc::ptr_eq(&changed, &wide_view));
    let same = |kind, name: &str| Arc::ptr_eq(changed.get(kind, name).unwrap(), wide_view.get(kind, name).unwrap());
    assert!(same(Kind::Cluster, "outbound|80||v1.shop.svc"), "a cluster does not change with its endpoints");
    assert!(!same(Kind::Endpoints, "outbound|80||v1.shop.svc"));
    assert!(same(Kind::Endpoints, "outbound|80||web.shop.svc"));
}

#[test]
fn a_weight_changes_a_table_of_routes_and_nothing_else() {
    let services = service("shop", "web", 1, &["http:80"]) + &service("shop", "v1", 2, &["http:80"]);
    let at = |weight: u32| {
        let rules = format!(
            "[{{backendRefs: [{{name: v1, port: 80, weight: {weight}}}, {{name: web, port: 80, weight: 5}}]}}]"
        );
        services.clone() + &http_route("shop", "r", "name: web", &rules)
    };
    let first = snapshot(&at(1), &Snapshot::default());
    let before = first.view(None, &Arc::default());
    let after = snapshot(&at(0), &first).view(None, &before);
    for kind in Kind::ALL {
        for resource in after.set(kind).iter() {
            let is_same = Arc::ptr_eq(resource, before.get(kind, resource.name()).unwrap());
            let is_route = kind == Kind::Route && &**resource.name() == "outbound|80||web.shop.svc";
            assert_eq!(is_same, !is_route, "{kind} {}", resource.name());
        }
    }
}

/// A world as a list of manifests: Services, and routes that may lead nowhere.
fn manifests() -> impl Strategy<Value = Vec<String>> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let namespace = || prop_oneof![Just("p"), Just("q")];
    let port = || prop_oneof![Just("http:80"), Just("tcp:5432"), Just("odd:81"), Just("grpc-x:82")];
    let services = (namespace(), name(), 1_u8..9, proptest::collection::vec(port(), 1..3)).prop_map(
        |(namespace, name, last, mut ports)| {
            ports.sort_unstable();
            ports.dedup();
            service(namespace, name, last, &ports)
        },
    );
    let backend = (namespace(), name(), 79_u16..84, 0_u32..3).prop_map(|(namespace, name, port, weight)| {
        format!("{{name: {name}, namespace: {namespace}, port: {port}, weight: {weight}}}")
    });
    let path = prop_oneof![Just("/"), Just("/a"), Just("/a/b")];
    let rule =
        (path, proptest::collection::vec(backend, 0..3), any::<bool>()).prop_map(|(path, backends, is_mirrored)| {
            let mirror = "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: b, port: 80}}}], ";
            let filters = if is_mirrored { mirror } else { "" };
            format!("{{matches: [{{path: {{value: {path}}}}}], {filters}backendRefs: [{}]}}", backends.join(", "))
        });
    let routes = (namespace(), name(), namespace(), name(), proptest::collection::vec(rule, 0..3)).prop_map(
        |(namespace, name, to_namespace, to, rules)| {
            let parent = format!("name: {to}, namespace: {to_namespace}");
            http_route(namespace, name, &parent, &format!("[{}]", rules.join(", ")))
        },
    );
    proptest::collection::vec(prop_oneof![3 => services, 2 => routes], 0..14).prop_map(|manifests| {
        // The last of several objects of one kind and name counts, as in a cluster.
        let named = |manifest: String| {
            let key: String = manifest.lines().take(2).collect();
            (key, manifest)
        };
        manifests.into_iter().map(named).collect::<BTreeMap<_, _>>().into_values().collect()
    })
}

fn options(is_explicit: bool) -> Options {
    let explicit_proxy = is_explicit.then(|| "127.0.0.1:15001".parse().unwrap());
    Options { explicit_proxy, cluster_domain: "cluster.local".to_owned() }
}

fn scopes() -> Vec<Option<Scope>> {
    vec![None, Some(scope("p", "*")), Some(scope("q", "a, b.p")), Some(scope("r", "*.q"))]
}

/// The bytes, without the pointers.
fn content(view: &View) -> BTreeMap<(Kind, String), Vec<u8>> {
    let of_kind =
        |kind: Kind| view.set(kind).iter().map(move |one| ((kind, one.name().to_string()), one.bytes().to_vec()));
    Kind::ALL.into_iter().flat_map(of_kind).collect()
}

proptest! {
    // Most of the time goes into reading manifests.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn everything_that_a_view_refers_to_is_in_it(manifests in manifests(), is_explicit in any::<bool>()) {
        let world = World::of(&objects(&manifests.concat()));
        let snapshot = Snapshot::of(world, &options(is_explicit), &Snapshot::default());
        for scope in scopes() {
            let view = snapshot.view(scope.as_ref(), &Arc::default());
            for resource in Kind::ALL.into_iter().flat_map(|kind| view.set(kind).iter()) {
                for need in resource.needs() {
                    assert!(view.get(need.kind, &need.name).is_some(), "{} needs {need:?}", resource.name());
                }
            }
        }
    }

    #[test]
    fn the_order_of_objects_does_not_matter(manifests in manifests(), seed in any::<u64>()) {
        let of = |manifests: &[String]| {
            let world = World::of(&objects(&manifests.concat()));
            Snapshot::of(world, &options(true), &Snapshot::default())
        };
        let mut shuffled = manifests.clone();
        let mut state = seed;
        for place in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(place, usize::try_from(state >> 33).unwrap() % (place + 1));
        }
        let (one, other) = (of(&manifests), of(&shuffled));
        assert_eq!(one.world, other.world);
        for scope in scopes() {
            let view = |snapshot: &Snapshot| content(&snapshot.view(scope.as_ref(), &Arc::default()));
            assert_eq!(view(&one), view(&other));
        }
    }

    #[test]
    fn step_by_step_is_the_same_as_from_scratch(worlds in proptest::collection::vec(manifests(), 1..4)) {
        let mut snapshot = Snapshot::default();
        let mut views: Vec<Arc<View>> = scopes().iter().map(|_| Arc::default()).collect();
        for manifests in worlds {
            let world = World::of(&objects(&manifests.concat()));
            let scratch = Snapshot::of(world.clone(), &options(true), &Snapshot::default());
            snapshot = Snapshot::of(world, &options(true), &snapshot);
            for (scope, view) in scopes().iter().zip(&mut views) {
                *view = snapshot.view(scope.as_ref(), view);
                assert_eq!(content(view), content(&scratch.view(scope.as_ref(), &Arc::default())));
                // Once more, nothing changes.
                assert!(Arc::ptr_eq(view, &snapshot.view(scope.as_ref(), view)));
            }
        }
    }

    #[test]
    fn any_annotation_is_read_or_refused(text in "[a-c.*, ]{0,20}|.{0,12}") {
        if let Ok(Calls::Only(callees)) = Calls::parse(&text, "p") {
            assert!(callees.len() <= text.split(',').count());
        }
    }

    #[test]
    fn whatever_a_route_says_a_view_comes_out(words in proptest::collection::vec(".{0,12}|[/a-z(){}%\\\\*.]{0,12}", 10)) {
        let rule = json!({
            "name": words[0],
            "matches": [{
                "path": {"type": "RegularExpression", "value": words[1]},
                "headers": [{"name": words[2], "type": words[3], "value": words[4]}],
            }, {"path": {"value": words[5]}, "queryParams": [{"name": words[2], "value": words[4]}]}],
            "filters": [
                {"type": "URLRewrite", "urlRewrite": {"hostname": words[6], "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": words[7]}}},
                {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": words[2], "value": words[8]}]}},
            ],
            "timeouts": {"request": words[9]},
            "backendRefs": [{"name": "a", "port": 80}],
        });
        let plain = json!({"matches": [{"path": {"value": words[5]}}], "backendRefs": [{"name": words[0], "kind": words[1], "port": -1}]});
        let route = json!({
            "metadata": {"namespace": "p", "name": "r"},
            "spec": {"parentRefs": [{"group": "", "kind": "Service", "name": "a"}], "rules": [rule, plain]},
        });
        let mut objects = objects(&service("p", "a", 1, &["http:80"]));
        objects.http_routes.push(Arc::new(serde_json::from_value(route).unwrap()));
        let snapshot = Snapshot::of(World::of(&objects), &options(true), &Snapshot::default());
        let view = snapshot.view(Some(&scope("p", "*")), &Arc::default());
        assert!(view.get(Kind::Route, "outbound|80||a.p.svc").is_some());
    }
}
