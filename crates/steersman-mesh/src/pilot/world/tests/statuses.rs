//! Verdicts on routes.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::{http_route, objects, service};
use crate::pilot::world::{Finding, Holds, World};

#[track_caller]
fn check(yaml: &str, expected: Expect) {
    let mut text = String::new();
    let line = |text: &mut String, type_: &str, finding: &Finding| {
        let holds = if finding.holds == Holds::Yes { "" } else { "not " };
        writeln!(text, "  {holds}{type_} {}: {}", finding.reason, finding.message).unwrap();
    };
    for (route, verdicts) in &World::of(&objects(yaml)).verdicts {
        for verdict in &verdicts.parents {
            writeln!(text, "{route}").unwrap();
            line(&mut text, "Accepted", &verdict.accepted);
            line(&mut text, "ResolvedRefs", &verdict.resolved);
            if let Some(finding) = &verdict.partially_invalid {
                line(&mut text, "PartiallyInvalid", finding);
            }
        }
    }
    expected.assert_eq(&text);
}

fn web() -> String {
    service("shop", "web", 1, &["http:80", "https:443"])
}

const TO_WEB: &str = "[{backendRefs: [{name: web, port: 80}]}]";

#[test]
fn an_attached_route_is_told_where() {
    let hosts = http_route(
        "client",
        "r",
        "name: web, namespace: shop",
        "[{backendRefs: [{name: web, namespace: shop, port: 80}]}]",
    )
    .replace("spec:", "spec:\n  hostnames: [example.com]");
    check(
        &(web() + &http_route("shop", "r", "name: web", TO_WEB) + &hosts),
        expect![[r#"
            HTTPRoute client/r
              Accepted Accepted: attached to port 80 of Service shop/web for clients in client; hostnames have no effect on requests to a Service: match the header Host
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
            HTTPRoute shop/r
              Accepted Accepted: attached to port 80 of Service shop/web
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
        "#]],
    );
}

#[test]
fn a_parent_that_cannot_have_routes_is_named() {
    let headless = "kind: Service\nmetadata: {namespace: shop, name: headless}\nspec: {clusterIP: None, ports: [{port: 80}]}\n---\n";
    let yaml = web()
        + headless
        + &http_route("shop", "a", "name: gone", TO_WEB)
        + &http_route("shop", "b", "name: web, port: 81", TO_WEB)
        + &http_route("shop", "c", "name: web, port: 443", TO_WEB)
        + &http_route("shop", "d", "name: headless", TO_WEB)
        + &http_route("shop", "e", "name: web, sectionName: x", TO_WEB);
    check(
        &yaml,
        expect![[r#"
            HTTPRoute shop/a
              not Accepted NoMatchingParent: Service shop/gone does not exist
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
            HTTPRoute shop/b
              not Accepted NoMatchingParent: Service shop/web has no TCP port 81
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
            HTTPRoute shop/c
              not Accepted NoMatchingParent: Service shop/web declares port 443 as tls: routes need HTTP
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
            HTTPRoute shop/d
              not Accepted NoMatchingParent: Service shop/headless is headless: routes apply to requests to a cluster IP
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
            HTTPRoute shop/e
              not Accepted NoMatchingParent: Service shop/web has no TCP port of the name x
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
        "#]],
    );
}

#[test]
fn a_parent_that_is_no_service_is_left_to_others() {
    let route = http_route("shop", "r", "name: web", TO_WEB).replace("kind: Service", "kind: Gateway");
    check(&(web() + &route), expect![""]);
}

#[test]
fn a_reference_that_leads_nowhere_is_named() {
    let rules = r"
  - {backendRefs: [{name: gone, port: 80}]}
  - {backendRefs: [{name: web, port: 82}, {name: web, port: 443}, {name: web, namespace: other, port: 80}]}
  - {backendRefs: [{name: x, kind: Bucket, group: example.com, port: 80}]}";
    check(
        &(web() + &http_route("shop", "r", "name: web", rules)),
        expect![[r#"
            HTTPRoute shop/r
              Accepted Accepted: attached to port 80 of Service shop/web
              not ResolvedRefs BackendNotFound: Service shop/gone does not exist; Service shop/web has no port 82; port 443 of Service shop/web is declared as tls: the mesh cannot route it; and 2 more
        "#]],
    );
}

#[test]
fn what_is_not_supported_is_said() {
    let to = "backendRefs: [{name: web, port: 80}]";
    let all = format!("[{{filters: [{{type: CORS, cors: {{}}}}], {to}}}, {{sessionPersistence: {{}}, {to}}}]");
    let some = format!(
        r#"
  - {{{to}}}
  - {{matches: [{{path: {{type: RegularExpression, value: "("}}}}], {to}}}
  - {{filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: Host, value: x}}]}}}}], {to}}}
  - {{timeouts: {{request: 1s, backendRequest: 2s}}, {to}}}"#
    );
    check(
        &(web() + &http_route("shop", "all", "name: web", &all) + &http_route("shop", "some", "name: web", &some)),
        expect![[r#"
            HTTPRoute shop/all
              not Accepted UnsupportedValue: the filter CORS is not supported; sessionPersistence is not supported
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
            HTTPRoute shop/some
              Accepted Accepted: attached to port 80 of Service shop/web
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
              PartiallyInvalid UnsupportedValue: Dropped Rule: rule 1 is dropped: the regular expression "(" cannot be used: unclosed group; requests for rule 2 are answered with 500: requestHeaderModifier cannot change the header Host: use urlRewrite.hostname; requests for rule 3 are answered with 500: timeouts.backendRequest is longer than timeouts.request
        "#]],
    );
}

#[test]
fn an_http_route_beside_a_grpc_route_conflicts() {
    let grpc = "kind: GRPCRoute\nmetadata: {namespace: shop, name: g}\nspec:\n  parentRefs: [{group: \"\", kind: Service, name: web}]\n  rules: [{backendRefs: [{name: web, port: 80}]}]\n";
    check(
        &(web() + &http_route("shop", "r", "name: web", TO_WEB) + grpc),
        expect![[r#"
            GRPCRoute shop/g
              Accepted Accepted: attached to port 80 of Service shop/web
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
            HTTPRoute shop/r
              not Accepted Conflicted: a GRPCRoute is attached to the same ports of Service shop/web
              ResolvedRefs ResolvedRefs: all references lead to ports of Services
        "#]],
    );
}

#[test]
fn a_value_for_which_envoy_refuses_a_table_drops_its_rule() {
    let filter = |filter: &str| format!("[{{filters: [{filter}], backendRefs: [{{name: web, port: 80}}]}}]");
    let long = "a".repeat(100);
    let cases = [
        (filter("{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [HOST]}}"), "responseHeaderModifier"),
        (
            filter(r#"{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: a, value: "b\nc"}]}}"#),
            "header a has",
        ),
        (filter(r#"{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: "\0"}]}}"#), "NUL"),
        (
            filter(r#"{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: "/a\n"}}}"#),
            "replaceFullPath has",
        ),
        (
            filter(
                r#"{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: "/a\r"}}}"#,
            ),
            "replacePrefixMatch has",
        ),
        (filter(r#"{type: RequestRedirect, requestRedirect: {hostname: "a\n"}}"#), "hostname has"),
        (
            format!(
                "[{{matches: [{{path: {{value: /{long}}}}}], filters: [{{type: URLRewrite, urlRewrite: {{path: {{type: ReplacePrefixMatch, replacePrefixMatch: /}}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
            ),
            "instructions",
        ),
        (
            "[{matches: [{path: {type: RegularExpression, value: '/[a-z]{1,60}/[a-z]{1,60}'}}]}]".to_owned(),
            "instructions",
        ),
    ];
    for (rules, words) in cases {
        let world = World::of(&objects(&(web() + &http_route("shop", "r", "name: web", &rules))));
        let accepted = &world.verdicts.values().next().unwrap().parents[0].accepted;
        assert_eq!((accepted.holds, accepted.reason), (Holds::No, "UnsupportedValue"), "{rules}");
        assert!(accepted.message.contains(words), "{}", accepted.message);
    }
}
