//! Where the requests of a Service port go.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::objects;
use crate::pilot::world::World;

#[track_caller]
fn check(yaml: &str, expected: Expect) {
    let mut text = String::new();
    for backend in World::of(&objects(yaml)).backends.values() {
        writeln!(text, "{} {:?}", backend.name, backend.protocol).unwrap();
        for (address, condition) in &backend.endpoints {
            writeln!(text, "  {address} {condition:?}").unwrap();
        }
    }
    expected.assert_eq(&text);
}

fn service(spec: &str) -> String {
    format!("kind: Service\nmetadata: {{namespace: shop, name: web}}\nspec: {spec}\n---\n")
}

fn slice(name: &str, family: &str, ports: &str, endpoints: &str) -> String {
    format!(
        "kind: EndpointSlice\naddressType: {family}\nmetadata: {{namespace: shop, name: {name}, labels: {{kubernetes.io/service-name: web}}}}\nports: {ports}\nendpoints: {endpoints}\n---\n"
    )
}

const PLAIN: &str = "{clusterIP: 10.96.0.1, ipFamilies: [IPv4], ports: [{name: http, port: 80}]}";
const PORTS: &str = "[{name: http, port: 8080}]";

#[test]
fn endpoints_that_end_are_drained_and_those_that_are_not_ready_left_out() {
    let endpoints = "
- {addresses: [10.0.0.1], conditions: {ready: true, serving: true, terminating: false}}
- {addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.0.0.3], conditions: {ready: false, serving: false, terminating: false}}
- {addresses: [10.0.0.4], conditions: {ready: false, serving: false, terminating: true}}
- {addresses: [10.0.0.5]}";
    check(
        &(service(PLAIN) + &slice("a", "IPv4", PORTS, endpoints)),
        expect![[r#"
            outbound|80||web.shop.svc Http1
              10.0.0.1:8080 Ready
              10.0.0.2:8080 Draining
              10.0.0.5:8080 Ready
        "#]],
    );
}

#[test]
fn if_none_is_ready_those_that_end_get_the_requests() {
    let endpoints = "[{addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}}, {addresses: [10.0.0.3], conditions: {ready: false}}]";
    check(
        &(service(PLAIN) + &slice("a", "IPv4", PORTS, endpoints)),
        expect![[r#"
            outbound|80||web.shop.svc Http1
              10.0.0.2:8080 Ready
        "#]],
    );
}

#[test]
fn slices_are_joined_and_an_endpoint_counts_once() {
    let yaml = service(PLAIN)
        + &slice(
            "a",
            "IPv4",
            PORTS,
            "[{addresses: [10.0.0.1], conditions: {ready: false, serving: true, terminating: true}}]",
        )
        + &slice(
            "b",
            "IPv4",
            "[{name: http, port: 8080}, {name: other, port: 1}, {name: http, protocol: UDP, port: 2}]",
            "[{addresses: [10.0.0.1]}]",
        )
        + &slice("c", "IPv4", "[{name: http, port: 9090}]", "[{addresses: [10.0.0.9]}]")
        + &slice("d", "IPv6", PORTS, "[{addresses: [\"fd00::1\"]}]");
    check(
        &yaml,
        expect![[r#"
            outbound|80||web.shop.svc Http1
              10.0.0.1:8080 Ready
              10.0.0.9:9090 Ready
        "#]],
    );
}

#[test]
fn a_headless_service_has_backends_and_an_external_one_has_none() {
    check(
        &service("{clusterIP: None, ports: [{port: 80}, {name: dns, port: 53, protocol: UDP}]}"),
        expect![[r#"
            outbound|80||web.shop.svc Undeclared
        "#]],
    );
    check(&service("{type: ExternalName, externalName: example.com, ports: [{port: 80}]}"), expect![""]);
}
