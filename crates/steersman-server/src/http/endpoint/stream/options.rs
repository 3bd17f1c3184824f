//! The options of a connection as an object of their kind, for admission.

use crate::http::endpoint::context::Context;
use serde_json::json;
use steersman_kinds::catalog::Subresource;
use steersman_machinery::Value;

/// The options of a request on a subresource that streams.
pub(super) fn read(cx: &Context<'_>, subresource: &Subresource) -> Value {
    let query = cx.query;
    let mut options = json!({"kind": subresource.kind.kind, "apiVersion": subresource.kind.api_version()});
    match &*subresource.name {
        "attach" | "exec" => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if query.is_true(name) {
                    options[name] = true.into();
                }
            }
            if let Some(container) = query.non_empty("container") {
                options["container"] = container.into();
            }
            let command: Vec<&str> = query.all("command").collect();
            if &*subresource.name == "exec" && !command.is_empty() {
                options["command"] = command.into();
            }
        }
        "portforward" => {
            let ports: Vec<i64> =
                query.all("ports").flat_map(|ports| ports.split(',')).filter_map(|port| port.parse().ok()).collect();
            if !ports.is_empty() {
                options["ports"] = ports.into();
            }
        }
        // A proxy: the rest of the path.
        _ => {
            let (_, rest) = split(cx);
            if !rest.is_empty() {
                options["path"] = rest.into();
            }
        }
    }
    options
}

/// The path of the proxy, and the rest of the path, which belongs to the other side.
pub(super) fn split<'a>(cx: &Context<'a>) -> (&'a str, &'a str) {
    let proxy = format!("/{}/proxy", cx.operation.name());
    match cx.path.find(&proxy) {
        Some(at) => cx.path.split_at(at + proxy.len()),
        None => (cx.path, ""),
    }
}
