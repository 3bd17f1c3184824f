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
    split_after(cx.path, if cx.operation.namespace().is_some() { 7 } else { 5 })
}

/// The first segments of a path, and the rest: `/api/v1/nodes/NAME/proxy` has five.
fn split_after(path: &str, n_segments: usize) -> (&str, &str) {
    match path.match_indices('/').nth(n_segments) {
        Some((at, _)) => path.split_at(at),
        None => (path, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_path_begins_behind_the_proxy_whatever_the_names_are() {
        for (path, n_segments, rest) in [
            ("/api/v1/nodes/n/proxy", 5, ""),
            ("/api/v1/nodes/n/proxy/", 5, "/"),
            ("/api/v1/nodes/proxy/proxy/logs/a", 5, "/logs/a"),
            ("/api/v1/namespaces/proxy/services/namespaces/proxy/a", 7, "/a"),
        ] {
            let (proxy, found) = split_after(path, n_segments);
            assert_eq!((found, format!("{proxy}{found}").as_str()), (rest, path));
            assert!(proxy.ends_with("/proxy"));
        }
    }
}
