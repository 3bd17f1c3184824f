//! The proxies of nodes, Pods and Services: a request with its path, query and body, and the answer, both passed on as they
//! come.
//!
//! Follows apimachinery's `util/proxy` and kubernetes' `registry/core/{node,pod,service}`. Redirects to a path of the other
//! side, and links in its pages, are made to lead through the proxy again.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stream;
use crate::http::endpoint::stream::backend::{self, Backend};
use crate::http::endpoint::stream::kubelet::Kubelet;
use crate::http::endpoint::stream::location::{self, Location};
use crate::http::endpoint::stream::{links, options, pod};
use crate::http::passing::{self, Lasts, Upgrade};
use crate::shared::nodes::connections::Peer;
use crate::shared::request::body::Body;
use crate::shared::request::query;
use crate::shared::request::unread::Unread;
use crate::shared::status::Failure;
use http::header::LOCATION;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use rand::Rng as _;
use std::net::IpAddr;
use std::sync::Arc;
use steersman_machinery::value::str_at;
use steersman_machinery::{ObjectKey, Value};
use tokio::net::lookup_host;

/// The path by which the client has asked, for the other side.
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Passes a request on to a node, a Pod or a Service.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn answer(cx: &Context<'_>, options: &Value, unread: Unread) -> Result<Answer, Failure> {
    let backend = match cx.operation.attributes.resource {
        "nodes" => of_node(cx).await?,
        "pods" => of_pod(cx).await?,
        _ => of_service(cx).await?,
    };
    let path = clean(str_at(options, &["path"]).unwrap_or_default());
    let query = cx.parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("{}{query}", if path.is_empty() { "/".to_owned() } else { query::encode_path(&path) });
    if let Some(upgrade) = Upgrade::asked(cx.parts) {
        return backend.upgrade(cx, &target, upgrade, unread);
    }
    let (prefix, _) = options::split(cx);
    let prefix = query::encode_path(prefix);
    if path.is_empty() && matches!(cx.parts.method, Method::GET | Method::HEAD) {
        // Relative links of a page lead to the other side only from a path that ends with a slash.
        let mut answer = Answer::empty(301);
        answer.set(LOCATION.as_str(), &format!("{prefix}/{query}"));
        return Ok(answer);
    }
    let mut headers = backend::for_backend(cx, &unread, None);
    if let Ok(uri) = HeaderValue::from_str(&format!("{prefix}{}", query::encode_path(&path))) {
        headers.insert(FORWARDED_URI, uri);
    }
    let request = backend.request(cx, &target, headers, unread.body)?;
    let place = passing::place(cx.state, cx.payer)?;
    let state = cx.state.clone();
    let host = backend::host(cx.parts).and_then(|host| host.to_str().map(str::to_owned).ok()).unwrap_or_default();
    Ok(Answer::later(Box::pin(async move {
        let mut response = state.connections.send(backend.peer, request).await.map_err(|error| unreached(&error))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(unreached(&"the other side switched protocols, which nobody asked it for"));
        }
        let through = move |link: &str| through_proxy(link, &prefix, &[&backend.authority, &host]);
        let is_redirect = response.headers().contains_key(LOCATION);
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        if let Some(Ok(location)) = location.map(|location| HeaderValue::from_str(&through(location))) {
            response.headers_mut().insert(LOCATION, location);
        }
        let mut answer = passing::streamed(&state, response, Lasts::Unbounded, Some(place));
        if !is_redirect {
            let body = std::mem::replace(answer.response.body_mut(), Body::empty());
            let body = links::rewritten(answer.response.headers_mut(), body, Arc::new(through));
            *answer.response.body_mut() = body;
        }
        Ok(answer)
    })))
}

/// The kubelet of a node, or another port of it.
async fn of_node(cx: &Context<'_>) -> Result<Backend, Failure> {
    let location = Location::parse("node", cx.operation.name())?;
    let kubelet = Kubelet::find(cx, location.name).await?;
    if location.port.is_empty() || location.port == kubelet.port.to_string() {
        return Ok(kubelet.backend(Peer::Kubelet));
    }
    // The port is the client's choice, so that it must not lead to this machine.
    let addresses = lookup_host((kubelet.host.as_str(), 0)).await;
    let addresses = addresses.map_err(|error| Failure::bad_request(format!("lookup {}: {error}", kubelet.host)))?;
    let addresses: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
    match addresses.first() {
        // Another lookup might find another address.
        Some(first) if addresses.iter().copied().all(location::is_global) => {
            Ok(Backend::new(Peer::Other, location.scheme, &first.to_string(), number(location.port)?))
        }
        _ => Err(not_allowed()),
    }
}

/// A port of a Pod.
async fn of_pod(cx: &Context<'_>) -> Result<Backend, Failure> {
    let location = Location::parse("pod", cx.operation.name())?;
    let found = pod::find(cx, location.name).await?;
    let address = location::pod_addresses(&found).next().filter(|address| location::is_reachable(address));
    let address = address.ok_or_else(not_allowed)?;
    let port = match location.port {
        "" => match location::first_port(&found) {
            Some(port) => number(&port.to_string())?,
            None => location.usual_port(),
        },
        port => number(port)?,
    };
    Ok(Backend::new(Peer::Other, location.scheme, address, port))
}

/// A Pod behind a Service.
async fn of_service(cx: &Context<'_>) -> Result<Backend, Failure> {
    let location = Location::parse("service", cx.operation.name())?;
    let namespace = cx.operation.namespace().unwrap_or_default();
    let key = ObjectKey::namespaced(namespace, location.name);
    let mut port = location.port.to_owned();
    if let Ok(number) = location.port.parse::<i64>() {
        let service = stream::stored(cx, "services", &key).await?;
        port = port_name(&service, number).ok_or_else(|| {
            let name = location.name;
            Failure::unavailable(format!("no service port {number} found for service {name:?}"))
        })?;
    }
    let endpoints = stream::stored(cx, "endpoints", &key).await?;
    let unavailable = |id: &str| Failure::unavailable(format!("no endpoints available for service {id:?}"));
    if endpoints.get("subsets").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err(unavailable(location.name));
    }
    let subsets = location::endpoints(&endpoints, &port);
    for subset in from_anywhere(&subsets) {
        for endpoint in from_anywhere(subset) {
            let (of_namespace, name) = endpoint.target;
            if of_namespace != namespace || !location::is_reachable(endpoint.address) {
                continue;
            }
            // Whoever may write endpoints must not thereby reach what is no Pod.
            let Ok(found) = pod::find(cx, name).await else { continue };
            if location::pod_addresses(&found).any(|address| address == endpoint.address) {
                let port = number(&endpoint.port.to_string())?;
                return Ok(Backend::new(Peer::Other, location.scheme, endpoint.address, port));
            }
        }
    }
    Err(unavailable(cx.operation.name()))
}

/// The name of a port of a Service.
fn port_name(service: &Value, number: i64) -> Option<String> {
    let mut ports = service.get("spec")?.get("ports")?.as_array()?.iter();
    let port = ports.find(|port| port.get("port").and_then(Value::as_i64) == Some(number))?;
    Some(str_at(port, &["name"]).unwrap_or_default().to_owned())
}

/// All items, beginning with a random one.
fn from_anywhere<T>(items: &[T]) -> impl Iterator<Item = &T> {
    let first = if items.is_empty() { 0 } else { rand::rng().random_range(0..items.len()) };
    items[first..].iter().chain(&items[..first])
}

fn number(port: &str) -> Result<u16, Failure> {
    port.parse().map_err(|_| unreached(&format!("dial tcp: lookup tcp/{port}: unknown port")))
}

fn not_allowed() -> Failure {
    Failure::bad_request("address not allowed")
}

fn unreached(why: &dyn std::fmt::Display) -> Failure {
    Failure::unavailable(format!("error trying to reach service: {why}"))
}

/// A path without empty segments and without `.` and `..`; a slash at its end stays.
fn clean(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let end = if path.ends_with('/') { "/" } else { "" };
    match segments.is_empty() {
        true => end.to_owned(),
        false => format!("/{}{end}", segments.join("/")),
    }
}

/// The target of a redirect. A path of the other side, which is known by these names, leads through the proxy again.
fn through_proxy(location: &str, prefix: &str, names: &[&str]) -> String {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let is_scheme = |name: &str| !name.is_empty() && name.bytes().all(is_of_scheme);
    let (base, path) = match location.split_once("//") {
        Some((scheme, rest)) if scheme.is_empty() || scheme.strip_suffix(':').is_some_and(is_scheme) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if path.is_empty() || !names.contains(&authority) {
                return location.to_owned();
            }
            // The client knows the name by which it has called this server, and no other.
            let is_called = names.last() == Some(&authority);
            (if is_called { &location[..location.len() - path.len()] } else { "" }, path)
        }
        _ => ("", location),
    };
    let is_through = path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    match path.starts_with('/') && !is_through {
        true => format!("{base}{prefix}{path}"),
        false => format!("{base}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_leave_the_proxy() {
        for (path, want) in
            [("", ""), ("/", "/"), ("/a/b", "/a/b"), ("/a//b/./", "/a/b/"), ("/a/../../c", "/c"), ("/..", "")]
        {
            assert_eq!(clean(path), want, "{path}");
        }
    }

    #[test]
    fn a_redirect_within_the_other_side_leads_through_the_proxy() {
        let (prefix, names) = ("/api/v1/namespaces/a/pods/p/proxy", ["10.0.0.1:80", "localhost:6443"]);
        for (location, want) in [
            ("/login?a=b", "/api/v1/namespaces/a/pods/p/proxy/login?a=b"),
            ("http://10.0.0.1:80/x", "/api/v1/namespaces/a/pods/p/proxy/x"),
            ("https://localhost:6443/x", "https://localhost:6443/api/v1/namespaces/a/pods/p/proxy/x"),
            ("/api/v1/namespaces/a/pods/p/proxy/x", "/api/v1/namespaces/a/pods/p/proxy/x"),
            ("x/y", "x/y"),
            ("/login?next=https://a/b", "/api/v1/namespaces/a/pods/p/proxy/login?next=https://a/b"),
            ("/go?to=http://10.0.0.1:80/b", "/api/v1/namespaces/a/pods/p/proxy/go?to=http://10.0.0.1:80/b"),
            ("http://10.0.0.1:80", "http://10.0.0.1:80"),
            ("a:b//c", "a:b//c"),
            ("a//10.0.0.1:80/b", "a//10.0.0.1:80/b"),
            ("://10.0.0.1:80/b", "://10.0.0.1:80/b"),
            ("https://example.com/x", "https://example.com/x"),
            ("//example.com/x", "//example.com/x"),
        ] {
            assert_eq!(through_proxy(location, prefix, &names), want, "{location}");
        }
    }
}
