//! Messages for Envoy, field by field. Fields with their default value are left out.

use expect_test::{Expect, expect};
use prost::Message;
use steersman_xds::resources::{Cluster, ClusterLoadAssignment, HttpConnectionManager, Listener, RouteConfiguration};
use steersman_xds::{Kind, Resource};

use crate::pilot::resources::{Options, Resources};
use crate::pilot::world::World;
use crate::pilot::world::tests::{http_route, objects, service};

fn resources(yaml: &str) -> Resources {
    Resources::of(&World::of(&objects(yaml)), &Options::default(), &Resources::default())
}

fn message<M: Message + Default>(resources: &Resources, kind: Kind, name: &str) -> M {
    let is_meant = |resource: &&std::sync::Arc<Resource>| resource.kind() == kind && &**resource.name() == name;
    M::decode(resources.iter().find(is_meant).unwrap().bytes().clone()).unwrap()
}

/// The lines of a message that say something.
fn fields(message: &impl std::fmt::Debug) -> String {
    let defaults = [": None,", ": \"\",", ": [],", ": 0,", ": false,", ": {},"];
    let text = format!("{message:#?}\n");
    let said = text.lines().filter(|line| !defaults.iter().any(|default| line.ends_with(default)));
    said.fold(String::new(), |text, line| text + line + "\n")
}

/// The routes of `web` in the namespace `shop` that has this rule.
#[track_caller]
fn check_rule(rule: &str, expected: Expect) {
    let yaml = service("shop", "web", 1, &["http:80"])
        + &service("shop", "v1", 2, &["http:80"])
        + &http_route("shop", "r", "name: web", &format!("[{rule}]"));
    let routes: RouteConfiguration = message(&resources(&yaml), Kind::Route, "outbound|80||web.shop.svc");
    expected.assert_eq(&fields(&routes.virtual_hosts[0].routes));
}

#[test]
fn a_cluster_speaks_what_its_port_declares() {
    let resources = resources(&service("shop", "web", 1, &["http:80", "grpc:81", "odd:82"]));
    let cluster = |port: u16| message::<Cluster>(&resources, Kind::Cluster, &format!("outbound|{port}||web.shop.svc"));
    expect![[r#"
        Cluster {
            name: "outbound|80||web.shop.svc",
            discovery: Some(
                Type(
                    Eds,
                ),
            ),
            eds_cluster_config: Some(
                EdsClusterConfig {
                    eds_config: Some(
                        ConfigSource {
                            ads: Some(
                                Empty,
                            ),
                            resource_api_version: V3,
                        },
                    ),
                },
            ),
            connect_timeout: Some(
                Duration {
                    seconds: 10,
                },
            ),
            lb_policy: LeastRequest,
            circuit_breakers: Some(
                CircuitBreakers {
                    thresholds: [
                        Thresholds {
                            priority: Default,
                            max_connections: Some(
                                4294967295,
                            ),
                            max_pending_requests: Some(
                                4294967295,
                            ),
                            max_requests: Some(
                                4294967295,
                            ),
                            max_retries: Some(
                                4294967295,
                            ),
                        },
                    ],
                },
            ),
            common_lb_config: Some(
                CommonLbConfig {
                    healthy_panic_threshold: Some(
                        Percent {
                            value: 0.0,
                        },
                    ),
                },
            ),
        }
    "#]]
    .assert_eq(&fields(&cluster(80)));
    let protocols = |port| cluster(port).typed_extension_protocol_options.len();
    assert_eq!([protocols(80), protocols(81), protocols(82)], [0, 1, 1]);
    assert_ne!(cluster(81).typed_extension_protocol_options, cluster(82).typed_extension_protocol_options);
}

#[test]
fn endpoints_have_their_health() {
    let yaml = service("shop", "web", 1, &["http:80"]).replace(
        "endpoints: [",
        "endpoints: [{addresses: [10.244.0.9], conditions: {ready: false, serving: true, terminating: true}}, ",
    );
    let endpoints: ClusterLoadAssignment = message(&resources(&yaml), Kind::Endpoints, "outbound|80||web.shop.svc");
    expect![[r#"
        ClusterLoadAssignment {
            cluster_name: "outbound|80||web.shop.svc",
            endpoints: [
                LocalityLbEndpoints {
                    lb_endpoints: [
                        LbEndpoint {
                            endpoint: Some(
                                Endpoint {
                                    address: Some(
                                        Address {
                                            address: Some(
                                                Socket(
                                                    SocketAddress {
                                                        address: "10.244.0.1",
                                                        port: Some(
                                                            Value(
                                                                8080,
                                                            ),
                                                        ),
                                                    },
                                                ),
                                            ),
                                        },
                                    ),
                                },
                            ),
                            health_status: Healthy,
                        },
                        LbEndpoint {
                            endpoint: Some(
                                Endpoint {
                                    address: Some(
                                        Address {
                                            address: Some(
                                                Socket(
                                                    SocketAddress {
                                                        address: "10.244.0.9",
                                                        port: Some(
                                                            Value(
                                                                8080,
                                                            ),
                                                        ),
                                                    },
                                                ),
                                            ),
                                        },
                                    ),
                                },
                            ),
                            health_status: Draining,
                        },
                    ],
                },
            ],
        }
    "#]]
    .assert_eq(&fields(&endpoints));
}

#[test]
fn a_listener_is_at_the_cluster_ip() {
    let resources = resources(&service("shop", "web", 1, &["http:80", "tcp:5432"]));
    let listener: Listener = message(&resources, Kind::Listener, "10.96.0.1:80");
    let config = listener.filter_chains[0].filters[0].typed_config.clone().unwrap();
    expect![[r#"
        HttpConnectionManager {
            codec_type: Auto,
            stat_prefix: "outbound|80||web.shop.svc",
            route_specifier: Some(
                Rds(
                    Rds {
                        config_source: Some(
                            ConfigSource {
                                ads: Some(
                                    Empty,
                                ),
                                resource_api_version: V3,
                            },
                        ),
                        route_config_name: "outbound|80||web.shop.svc",
                    },
                ),
            ),
            http_filters: [
                HttpFilter {
                    name: "envoy.filters.http.router",
                    typed_config: Some(
                        Any {
                            type_url: "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                            value: b" \x01",
                        },
                    ),
                },
            ],
            skip_xff_append: true,
            upgrade_configs: [
                UpgradeConfig {
                    upgrade_type: "websocket",
                },
            ],
            stream_idle_timeout: Some(
                Duration {
                },
            ),
            normalize_path: Some(
                true,
            ),
            server_header_transformation: PassThrough,
        }
    "#]]
    .assert_eq(&fields(&config.read::<HttpConnectionManager>().unwrap()));
    let listener: Listener = message(&resources, Kind::Listener, "10.96.0.1:5432");
    expect![[r#"
        Listener {
            name: "10.96.0.1:5432",
            address: Some(
                Address {
                    address: Some(
                        Socket(
                            SocketAddress {
                                address: "10.96.0.1",
                                port: Some(
                                    Value(
                                        5432,
                                    ),
                                ),
                            },
                        ),
                    ),
                },
            ),
            freebind: Some(
                true,
            ),
            traffic_direction: Outbound,
        }
    "#]]
    .assert_eq(&fields(&Listener { filter_chains: Vec::new(), ..listener }));
}

#[test]
fn shares_are_weights_and_an_invalid_backend_answers_for_its_own() {
    check_rule(
        "{backendRefs: [{name: v1, port: 80, weight: 9}, {name: gone, port: 80}, {name: web, port: 80, weight: 0}]}",
        expect![[r#"
            [
                Route {
                    r#match: Some(
                        RouteMatch {
                            path: Some(
                                Prefix(
                                    "/",
                                ),
                            ),
                        },
                    ),
                    action: Some(
                        Route(
                            RouteAction {
                                cluster: Some(
                                    WeightedClusters(
                                        WeightedCluster {
                                            clusters: [
                                                ClusterWeight {
                                                    name: "outbound|80||v1.shop.svc",
                                                    weight: Some(
                                                        9,
                                                    ),
                                                },
                                                ClusterWeight {
                                                    name: "invalid-backend",
                                                    weight: Some(
                                                        1,
                                                    ),
                                                },
                                                ClusterWeight {
                                                    name: "outbound|80||web.shop.svc",
                                                    weight: Some(
                                                        0,
                                                    ),
                                                },
                                            ],
                                        },
                                    ),
                                ),
                                timeout: Some(
                                    Duration {
                                    },
                                ),
                                retry_policy: Some(
                                    RetryPolicy {
                                        retry_on: "connect-failure,refused-stream,unavailable,cancelled,reset-before-request",
                                        num_retries: Some(
                                            2,
                                        ),
                                        retry_host_predicate: [
                                            RetryHostPredicate {
                                                name: "envoy.retry_host_predicates.previous_hosts",
                                                typed_config: Some(
                                                    Any {
                                                        type_url: "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
                                                        value: b"",
                                                    },
                                                ),
                                            },
                                        ],
                                        host_selection_retry_max_attempts: 5,
                                    },
                                ),
                                cluster_not_found_response_code: InternalServerError,
                            },
                        ),
                    ),
                    name: "HTTPRoute shop/r rule 0",
                },
            ]
        "#]],
    );
}

#[test]
fn matches_are_those_of_the_route() {
    check_rule(
        "{name: named, matches: [{path: {type: Exact, value: /a}, method: GET, headers: [{name: Host, value: h}, {name: V, type: RegularExpression, value: '2+'}], queryParams: [{name: q, value: '1'}]}]}",
        expect![[r#"
            [
                Route {
                    r#match: Some(
                        RouteMatch {
                            path: Some(
                                Path(
                                    "/a",
                                ),
                            ),
                            headers: [
                                HeaderMatcher {
                                    name: ":method",
                                    matches: Some(
                                        String(
                                            StringMatcher {
                                                pattern: Some(
                                                    Exact(
                                                        "GET",
                                                    ),
                                                ),
                                            },
                                        ),
                                    ),
                                },
                                HeaderMatcher {
                                    name: ":authority",
                                    matches: Some(
                                        String(
                                            StringMatcher {
                                                pattern: Some(
                                                    Exact(
                                                        "h",
                                                    ),
                                                ),
                                            },
                                        ),
                                    ),
                                },
                                HeaderMatcher {
                                    name: "v",
                                    matches: Some(
                                        String(
                                            StringMatcher {
                                                pattern: Some(
                                                    SafeRegex(
                                                        RegexMatcher {
                                                            regex: "2+",
                                                        },
                                                    ),
                                                ),
                                            },
                                        ),
                                    ),
                                },
                            ],
                            query_parameters: [
                                QueryParameterMatcher {
                                    name: "q",
                                    matches: Some(
                                        String(
                                            StringMatcher {
                                                pattern: Some(
                                                    Exact(
                                                        "1",
                                                    ),
                                                ),
                                            },
                                        ),
                                    ),
                                },
                            ],
                        },
                    ),
                    action: Some(
                        DirectResponse(
                            DirectResponseAction {
                                status: 500,
                            },
                        ),
                    ),
                    name: "HTTPRoute shop/r rule 0 named",
                },
            ]
        "#]],
    );
}

#[test]
fn headers_are_changed_and_a_percent_sign_is_one() {
    check_rule(
        "{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: '100%'}], add: [{name: b, value: c}], remove: [d]}}, {type: ResponseHeaderModifier, responseHeaderModifier: {remove: [e]}}, {type: RequestRedirect, requestRedirect: {hostname: h, statusCode: 301}}]}",
        expect![[r#"
            [
                Route {
                    r#match: Some(
                        RouteMatch {
                            path: Some(
                                Prefix(
                                    "/",
                                ),
                            ),
                        },
                    ),
                    action: Some(
                        Redirect(
                            RedirectAction {
                                host_redirect: "h",
                                response_code: MovedPermanently,
                            },
                        ),
                    ),
                    request_headers_to_add: [
                        HeaderValueOption {
                            header: Some(
                                HeaderValue {
                                    key: "a",
                                    value: "100%%",
                                },
                            ),
                            append_action: OverwriteIfExistsOrAdd,
                            keep_empty_value: true,
                        },
                        HeaderValueOption {
                            header: Some(
                                HeaderValue {
                                    key: "b",
                                    value: "c",
                                },
                            ),
                            append_action: AppendIfExistsOrAdd,
                            keep_empty_value: true,
                        },
                    ],
                    response_headers_to_remove: [
                        "e",
                    ],
                    request_headers_to_remove: [
                        "d",
                    ],
                    name: "HTTPRoute shop/r rule 0",
                },
            ]
        "#]],
    );
}

#[test]
fn timeouts_retries_and_copies() {
    check_rule(
        "{timeouts: {request: 10s, backendRequest: 2s}, retry: {attempts: 5, codes: [503], backoff: 100ms}, filters: [{type: RequestMirror, requestMirror: {backendRef: {name: v1, port: 80}, percent: 5}}, {type: URLRewrite, urlRewrite: {hostname: h, path: {type: ReplaceFullPath, replaceFullPath: /x}}}], backendRefs: [{name: web, port: 80}]}",
        expect![[r#"
            [
                Route {
                    r#match: Some(
                        RouteMatch {
                            path: Some(
                                Prefix(
                                    "/",
                                ),
                            ),
                        },
                    ),
                    action: Some(
                        Route(
                            RouteAction {
                                cluster: Some(
                                    WeightedClusters(
                                        WeightedCluster {
                                            clusters: [
                                                ClusterWeight {
                                                    name: "outbound|80||web.shop.svc",
                                                    weight: Some(
                                                        1,
                                                    ),
                                                },
                                            ],
                                        },
                                    ),
                                ),
                                timeout: Some(
                                    Duration {
                                        seconds: 10,
                                    },
                                ),
                                retry_policy: Some(
                                    RetryPolicy {
                                        retry_on: "connect-failure,refused-stream,unavailable,cancelled,reset-before-request,retriable-status-codes",
                                        num_retries: Some(
                                            5,
                                        ),
                                        per_try_timeout: Some(
                                            Duration {
                                                seconds: 2,
                                            },
                                        ),
                                        retry_host_predicate: [
                                            RetryHostPredicate {
                                                name: "envoy.retry_host_predicates.previous_hosts",
                                                typed_config: Some(
                                                    Any {
                                                        type_url: "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
                                                        value: b"",
                                                    },
                                                ),
                                            },
                                        ],
                                        host_selection_retry_max_attempts: 5,
                                        retriable_status_codes: [
                                            503,
                                        ],
                                        retry_back_off: Some(
                                            RetryBackOff {
                                                base_interval: Some(
                                                    Duration {
                                                        nanos: 100000000,
                                                    },
                                                ),
                                            },
                                        ),
                                    },
                                ),
                                cluster_not_found_response_code: InternalServerError,
                                request_mirror_policies: [
                                    RequestMirrorPolicy {
                                        cluster: "outbound|80||v1.shop.svc",
                                        runtime_fraction: Some(
                                            RuntimeFractionalPercent {
                                                default_value: Some(
                                                    FractionalPercent {
                                                        numerator: 50000,
                                                        denominator: Million,
                                                    },
                                                ),
                                            },
                                        ),
                                        disable_shadow_host_suffix_append: true,
                                    },
                                ],
                                regex_rewrite: Some(
                                    RegexMatchAndSubstitute {
                                        pattern: Some(
                                            RegexMatcher {
                                                regex: ".*",
                                            },
                                        ),
                                        substitution: "/x",
                                    },
                                ),
                                host_rewrite: Some(
                                    Literal(
                                        "h",
                                    ),
                                ),
                            },
                        ),
                    ),
                    name: "HTTPRoute shop/r rule 0",
                },
            ]
        "#]],
    );
}

/// The rewrite of paths below `/a` or of all paths.
#[track_caller]
fn check_prefix(prefix: &str, new: &str, expected: Expect) {
    let yaml = service("shop", "web", 1, &["http:80"])
        + &http_route(
            "shop",
            "r",
            "name: web",
            &format!(
                "[{{matches: [{{path: {{value: {prefix}}}}}], filters: [{{type: URLRewrite, urlRewrite: {{path: {{type: ReplacePrefixMatch, replacePrefixMatch: {new}}}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
            ),
        );
    let routes: RouteConfiguration = message(&resources(&yaml), Kind::Route, "outbound|80||web.shop.svc");
    let Some(steersman_xds::resources::route::Action::Route(action)) = &routes.virtual_hosts[0].routes[0].action else {
        panic!("no action")
    };
    let regex = action
        .regex_rewrite
        .as_ref()
        .map(|rewrite| format!("{} -> {}", rewrite.pattern.as_ref().unwrap().regex, rewrite.substitution));
    expected.assert_eq(&regex.unwrap_or_else(|| action.prefix_rewrite.clone()));
}

#[test]
fn a_prefix_is_replaced_by_elements() {
    check_prefix("/a", "/b", expect!["/b"]);
    check_prefix("/a/", "/b/", expect!["/b"]);
    check_prefix("/a.c", "/", expect![[r"^/a\.c/* -> /"]]);
    check_prefix("/", "/b", expect!["/b/"]);
    check_prefix("/", "/", expect!["/"]);
}

/// The address to which a redirect of port 80 or 8080 leads.
#[track_caller]
fn check_redirect(port: u16, redirect: &str, expected: Expect) {
    let rules = format!("[{{filters: [{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}]}}]");
    let yaml = service("shop", "web", 1, &[&format!("http:{port}")]) + &http_route("shop", "r", "name: web", &rules);
    let routes: RouteConfiguration = message(&resources(&yaml), Kind::Route, &format!("outbound|{port}||web.shop.svc"));
    let Some(steersman_xds::resources::route::Action::Redirect(action)) = &routes.virtual_hosts[0].routes[0].action
    else {
        panic!("no redirect")
    };
    let host = if action.host_redirect.is_empty() { "same" } else { &action.host_redirect };
    expected.assert_eq(&format!("{host}:{} {}", action.port_redirect, action.response_code));
}

#[test]
fn a_redirect_names_a_port_only_if_it_does_not_go_without_saying() {
    check_redirect(80, "hostname: h", expect!["h:0 1"]);
    check_redirect(8080, "hostname: h", expect!["h:8080 1"]);
    check_redirect(8080, "hostname: h, port: 80", expect!["h:0 1"]);
    check_redirect(80, "port: 8443, statusCode: 308", expect!["same:8443 4"]);
    check_redirect(80, "scheme: https", expect!["same:0 1"]);
    check_redirect(8080, "scheme: https", expect!["same:443 1"]);
    check_redirect(80, "scheme: https, port: 8443", expect!["same:8443 1"]);
}
