//! Which requests go where.

use expect_test::{Expect, expect};

use super::{http_route, objects, service, tables};
use crate::pilot::world::World;

#[track_caller]
fn check(yaml: &str, expected: Expect) {
    expected.assert_eq(&tables(&World::of(&objects(yaml))));
}

fn shop() -> String {
    ["web", "v1", "v2"].iter().zip(1..).map(|(name, last)| service("shop", name, last, &["http:80"])).collect()
}

#[test]
fn a_port_without_a_route_is_forwarded() {
    check(
        &service("shop", "web", 1, &["http:80", "tcp-db:5432"]),
        expect![[r#"
            shop/web:80
              forward
            shop/web:5432
              forward
        "#]],
    );
}

#[test]
fn a_producer_route_counts_for_all_clients() {
    let rules = "[{backendRefs: [{name: v1, port: 80, weight: 90}, {name: v2, port: 80, weight: 10}]}]";
    check(
        &(shop() + &http_route("shop", "split", "name: web", rules)),
        expect![[r#"
            shop/v1:80
              forward
            shop/v2:80
              forward
            shop/web:80
              any -> shop/v1:80 x90, shop/v2:80 x10 (split#0)
        "#]],
    );
}

#[test]
fn a_consumer_route_counts_for_clients_of_its_namespace_in_place_of_producer_routes() {
    let web = "[{backendRefs: [{name: web, namespace: shop, port: 80}]}]";
    let yaml = shop()
        + &http_route("shop", "producer", "name: web", "[{backendRefs: [{name: v1, port: 80}]}]")
        + &http_route("client", "consumer", "name: web, namespace: shop", web);
    check(
        &yaml,
        expect![[r#"
            shop/v1:80
              forward
            shop/v2:80
              forward
            shop/web:80
              any -> shop/v1:80 x1 (producer#0)
            shop/web:80 for client
              any -> shop/web:80 x1 (consumer#0)
        "#]],
    );
}

#[test]
fn a_port_or_the_name_of_one_narrows_a_route() {
    let to = "[{backendRefs: [{name: web, port: 80}]}]";
    let yaml = service("shop", "web", 1, &["http:80", "http-alt:8080", "http2-x:9000", "tcp:5432"])
        + &http_route("shop", "all", "name: web", to)
        + &http_route("shop", "one", "name: web, port: 8080", to)
        + &http_route("shop", "named", "name: web, sectionName: http2-x", to);
    check(
        &yaml,
        expect![[r#"
            shop/web:80
              any -> shop/web:80 x1 (all#0)
            shop/web:8080
              any -> shop/web:80 x1 (all#0)
              any -> shop/web:80 x1 (one#0)
            shop/web:9000
              any -> shop/web:80 x1 (all#0)
              any -> shop/web:80 x1 (named#0)
            shop/web:5432
              forward
        "#]],
    );
}

#[test]
fn precedence_is_exact_expression_prefix_method_headers_query_then_position() {
    let to = "backendRefs: [{name: v1, port: 80}]";
    let rules = format!(
        r#"
  - {{matches: [{{path: {{value: /}}}}], {to}}}
  - {{matches: [{{path: {{value: /a}}, queryParams: [{{name: q, value: "1"}}]}}], {to}}}
  - {{matches: [{{path: {{value: /a}}, headers: [{{name: X, value: "1"}}]}}], {to}}}
  - {{matches: [{{path: {{value: /a}}, headers: [{{name: X, value: "1"}}, {{name: Z, type: RegularExpression, value: "2+"}}]}}], {to}}}
  - {{matches: [{{path: {{value: /a}}, method: GET}}], {to}}}
  - {{matches: [{{path: {{value: /a/b/}}}}, {{path: {{value: /aa}}}}], {to}}}
  - {{matches: [{{path: {{type: RegularExpression, value: "/[ab]"}}}}], {to}}}
  - {{matches: [{{path: {{type: Exact, value: /a}}}}], {to}}}
  - {{matches: [{{path: {{type: Exact, value: /a}}}}], {to}}}"#
    );
    check(
        &(service("shop", "v1", 1, &["http:80"]) + &http_route("shop", "r", "name: v1", &rules)),
        expect![[r#"
            shop/v1:80
              =/a -> shop/v1:80 x1 (r#7)
              =/a -> shop/v1:80 x1 (r#8)
              ~/[ab] -> shop/v1:80 x1 (r#6)
              /a/b/* -> shop/v1:80 x1 (r#5)
              /aa/* -> shop/v1:80 x1 (r#5)
              /a/* GET -> shop/v1:80 x1 (r#4)
              /a/* x=1 z~2+ -> shop/v1:80 x1 (r#3)
              /a/* x=1 -> shop/v1:80 x1 (r#2)
              /a/* ?q=1 -> shop/v1:80 x1 (r#1)
              any -> shop/v1:80 x1 (r#0)
        "#]],
    );
}

#[test]
fn of_equal_matches_the_older_route_counts_then_the_name() {
    let to = "[{backendRefs: [{name: v1, port: 80}]}]";
    let at = |name: &str, time: &str| {
        http_route("shop", name, "name: v1", to)
            .replace(&format!("name: {name}}}"), &format!("name: {name}, creationTimestamp: \"{time}\"}}"))
    };
    let yaml = service("shop", "v1", 1, &["http:80"])
        + &at("b", "2026-01-02T00:00:00Z")
        + &at("a", "2026-01-02T00:00:00Z")
        + &at("z", "2026-01-01T00:00:00Z")
        + &http_route("shop", "new", "name: v1", to);
    check(
        &yaml,
        expect![[r#"
            shop/v1:80
              any -> shop/v1:80 x1 (z#0)
              any -> shop/v1:80 x1 (a#0)
              any -> shop/v1:80 x1 (b#0)
              any -> shop/v1:80 x1 (new#0)
        "#]],
    );
}

#[test]
fn invalid_backends_keep_their_share_and_weights_of_nothing_are_an_error() {
    let rules = r"
  - {matches: [{path: {value: /part}}], backendRefs: [{name: v1, port: 80, weight: 3}, {name: gone, port: 80}]}
  - {matches: [{path: {value: /none}}], backendRefs: [{name: gone, port: 80}]}
  - {matches: [{path: {value: /zero}}], backendRefs: [{name: v1, port: 80, weight: 0}, {name: v2, port: 80, weight: 0}]}
  - {matches: [{path: {value: /keep}}], backendRefs: [{name: v1, port: 80, weight: 0}, {name: v2, port: 80}]}
  - {matches: [{path: {value: /empty}}]}";
    check(
        &(shop() + &http_route("shop", "r", "name: web", rules)),
        expect![[r#"
            shop/v1:80
              forward
            shop/v2:80
              forward
            shop/web:80
              /empty/* -> 500 (r#4)
              /part/* -> shop/v1:80 x3, nothing x1 (r#0)
              /none/* -> 500 (r#1)
              /zero/* -> 500 (r#2)
              /keep/* -> shop/v1:80 x0, shop/v2:80 x1 (r#3)
        "#]],
    );
}

#[test]
fn a_backend_in_another_namespace_needs_a_grant() {
    let other = service("other", "api", 4, &["http:80"]) + &service("other", "db", 5, &["http:80"]);
    let rules = "[{backendRefs: [{name: api, namespace: other, port: 80}, {name: db, namespace: other, port: 80}]}]";
    let route = http_route("shop", "r", "name: web", rules);
    let grant = "kind: ReferenceGrant\nmetadata: {namespace: other, name: g}\nspec:\n  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]\n  to: [{group: \"\", kind: Service, name: api}]\n";
    check(
        &(service("shop", "web", 1, &["http:80"]) + &other + &route + grant),
        expect![[r#"
            other/api:80
              forward
            other/db:80
              forward
            shop/web:80
              any -> other/api:80 x1, nothing x1 (r#0)
        "#]],
    );
}

#[test]
fn a_grpc_route_takes_the_place_of_http_routes_at_its_port() {
    let grpc = "kind: GRPCRoute
metadata: {namespace: shop, name: g}
spec:
  parentRefs: [{group: \"\", kind: Service, name: web, port: 80}]
  rules:
  - {matches: [{method: {service: shop.Cart}}, {method: {service: shop.Cart, method: Add}}, {method: {method: Ping}}], backendRefs: [{name: web, port: 80}]}
  - {matches: [{method: {type: RegularExpression, service: 'shop\\..*'}, headers: [{name: v, value: '2'}]}], backendRefs: [{name: web, port: 81}]}
  - {backendRefs: [{name: gone, port: 80}]}";
    let yaml = service("shop", "web", 1, &["grpc:80", "http:81"])
        + &http_route("shop", "h", "name: web", "[{backendRefs: [{name: web, port: 81}]}]")
        + grpc;
    check(
        &yaml,
        expect![[r#"
            shop/web:80
              =/shop.Cart/Add -> shop/web:80 x1 (g#0)
              /shop.Cart/* -> shop/web:80 x1 (g#0)
              ~/(?:shop\..*)/[^/]+ v=2 -> shop/web:81 x1 (g#1)
              ~/[^/]+/Ping -> shop/web:80 x1 (g#0)
              any -> 503 (g#2)
            shop/web:81
              any -> shop/web:81 x1 (h#0)
        "#]],
    );
}

#[test]
fn a_header_that_a_match_names_twice_counts_once() {
    let rules = "[{matches: [{headers: [{name: Foo, value: '1'}, {name: foo, value: '2'}]}], backendRefs: [{name: web, port: 80}]}]";
    check(
        &(service("shop", "web", 1, &["http:80"]) + &http_route("shop", "r", "name: web", rules)),
        expect![[r#"
            shop/web:80
              any foo=1 -> shop/web:80 x1 (r#0)
        "#]],
    );
}
