//! Worlds of manifests, written out.

mod endpoints;
mod routes;
mod statuses;

use std::fmt::Write as _;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::pilot::world::{Action, Entry, Objects, PathMatch, Table, Target, TextMatch, World};

/// The objects of a manifest with documents divided by lines of `---`.
#[track_caller]
pub(crate) fn objects(yaml: &str) -> Objects {
    let mut objects = Objects::default();
    for document in yaml.split("\n---").filter(|document| !document.trim().is_empty()) {
        let value: Value = serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"));
        match value["kind"].as_str().unwrap() {
            "EndpointSlice" => objects.slices.push(read(value)),
            "GRPCRoute" => objects.grpc_routes.push(read(value)),
            "HTTPRoute" => objects.http_routes.push(read(value)),
            "ReferenceGrant" => objects.grants.push(read(value)),
            "Service" => objects.services.push(read(value)),
            other => panic!("no kind of the mesh: {other}"),
        }
    }
    objects
}

fn read<T: DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A Service with ports `NAME:PORT`, and an endpoint.
pub(crate) fn service(namespace: &str, name: &str, last: u8, ports: &[&str]) -> String {
    let mut service = format!(
        "kind: Service\nmetadata: {{namespace: {namespace}, name: {name}}}\nspec:\n  clusterIP: 10.96.0.{last}\n  ipFamilies: [IPv4]\n  ports:\n"
    );
    let mut slice = format!(
        "---\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {{namespace: {namespace}, name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\nendpoints: [{{addresses: [10.244.0.{last}]}}]\nports:\n"
    );
    for port in ports {
        let (port_name, number) = port.split_once(':').unwrap();
        writeln!(service, "  - {{name: \"{port_name}\", port: {number}}}").unwrap();
        writeln!(slice, "- {{name: \"{port_name}\", port: 8080}}").unwrap();
    }
    format!("{service}{slice}---\n")
}

/// An HTTPRoute for `parent` with `rules` as they stand in a manifest.
pub(crate) fn http_route(namespace: &str, name: &str, parent: &str, rules: &str) -> String {
    format!(
        "kind: HTTPRoute\nmetadata: {{namespace: {namespace}, name: {name}}}\nspec:\n  parentRefs: [{{group: \"\", kind: Service, {parent}}}]\n  rules: {rules}\n---\n"
    )
}

/// The tables of a world, an entry each line.
pub(crate) fn tables(world: &World) -> String {
    let mut text = String::new();
    for port in world.frontends.values().flat_map(|frontend| &frontend.ports) {
        let tables = std::iter::once((None, &port.producer))
            .chain(port.consumers.iter().map(|(namespace, table)| (Some(namespace), table)));
        for (namespace, table) in tables {
            let clients = namespace.map(|namespace| format!(" for {namespace}")).unwrap_or_default();
            writeln!(text, "{}:{}{clients}", port.name.service, port.name.port).unwrap();
            match &**table {
                Table::Forward => text.push_str("  forward\n"),
                Table::Rules(entries) => entries.iter().for_each(|one| writeln!(text, "  {}", entry(one)).unwrap()),
            }
        }
    }
    text
}

fn entry(entry: &Entry) -> String {
    let compared = |(name, value): &(String, TextMatch)| match value {
        TextMatch::Exact(value) => format!("{name}={value}"),
        TextMatch::Regex(value) => format!("{name}~{value}"),
    };
    let matching = &entry.matching;
    let mut words = vec![match &matching.path {
        PathMatch::Any => "any".to_owned(),
        PathMatch::Exact(path) => format!("={path}"),
        PathMatch::Prefix(prefix) => format!("{prefix}/*"),
        PathMatch::Regex(pattern) => format!("~{pattern}"),
    }];
    words.extend(matching.method.clone());
    words.extend(matching.headers.iter().map(compared));
    words.extend(matching.query.iter().map(|pair| format!("?{}", compared(pair))));
    let target = |target: &Target| {
        let to = target.backend.as_ref().map_or("nothing".to_owned(), |port| format!("{}:{}", port.service, port.port));
        format!("{to} x{}", target.weight)
    };
    let action = match &entry.rule.action {
        Action::Fail(status) => status.to_string(),
        Action::Forward(targets) => targets.iter().map(target).collect::<Vec<_>>().join(", "),
        Action::Redirect(redirect) => format!("redirect {}", redirect.status),
    };
    format!("{} -> {action} ({}#{})", words.join(" "), entry.rule.route.name, entry.rule.index)
}
