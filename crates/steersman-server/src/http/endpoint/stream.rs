//! Subresources that lead to what runs an object: logs, exec, attach and port-forward of pods, and the proxies of pods,
//! services and nodes.
//!
//! This server runs no containers and connects to no node, but calls the agents of nodes that are in its process
//! ([`Agents`](crate::shared::nodes::agents::Agents)). It makes the same checks as kube-apiserver before a connection, in the same order and
//! with the same messages (kubernetes' `pkg/registry/core/pod/strategy.go` and its neighbours), so that a client learns
//! what is wrong with its request. A valid request fails where the connection would begin.

mod location;
mod options;

use crate::http::answer::Answer;
use crate::http::endpoint::agent;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stream::location::Location;
use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::write::admission;
use http::Method;
use jiff::SignedDuration;
use steersman_kinds::catalog::{Subresource, Verb};
use steersman_machinery::field::{Error, Path};
use steersman_machinery::time as times;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupKind, GroupResource, ObjectKey, Value};

/// Carries out a request on a subresource that streams.
///
/// # Errors
/// With the answer for the client. Without an agent nothing can be streamed, so only the logs of a pod without a node
/// succeed, with an empty answer.
pub(super) async fn handle(
    cx: &mut Context<'_>,
    subresource: &Subresource,
    method: &Method,
) -> Result<Answer, Failure> {
    let verb = match *method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => return Err(Failure::method_not_allowed()),
    };
    if !subresource.verbs.contains(&verb) {
        return Err(Failure::method_not_allowed());
    }
    // Logs are read; all other streams are connections, which pass admission.
    if &*subresource.name != "log" {
        let mut options = options::read(cx, subresource);
        admission::connect(cx.state, &mut cx.operation, &mut options).await?;
    }
    match (cx.operation.attributes.resource, &*subresource.name) {
        ("pods", "log") => logs(cx).await,
        ("pods", "attach" | "exec") => {
            let pod = pod(cx, cx.operation.name()).await?;
            let container = container(cx, &pod)?;
            let path = agent_path(cx, &subresource.name, Some(container));
            to_agent(cx, &pod, method, path).await
        }
        ("pods", "portforward") => {
            let pod = pod(cx, cx.operation.name()).await?;
            to_agent(cx, &pod, method, agent_path(cx, "portForward", None)).await
        }
        ("pods", _) => Err(to_pod(cx).await),
        ("services", _) => Err(to_service(cx).await),
        _ => {
            let location = Location::parse("node", cx.operation.name())?;
            Err(to_kubelet(cx, location.name, location.port).await)
        }
    }
}

async fn logs(cx: &Context<'_>) -> Result<Answer, Failure> {
    let faults = log_faults(cx)?;
    if !faults.is_empty() {
        return Err(Failure::invalid(&GroupKind::new("", "PodLogOptions"), cx.operation.name(), &faults));
    }
    let pod = pod(cx, cx.operation.name()).await?;
    let container = container(cx, &pod)?;
    if node_of(&pod).is_none() {
        return Ok(Answer::empty(204));
    }
    let path = agent_path(cx, "containerLogs", Some(container));
    to_agent(cx, &pod, &Method::GET, format!("{path}?{}", log_query(cx))).await
}

/// The checked options of a log, as a query for the agent of a node.
fn log_query(cx: &Context<'_>) -> String {
    let mut pairs = Vec::new();
    for name in ["previous", "timestamps"] {
        if cx.query.is_true(name) {
            pairs.push(format!("{name}=true"));
        }
    }
    for name in ["limitBytes", "stream", "tailLines"] {
        pairs.extend(cx.query.non_empty(name).map(|value| format!("{name}={value}")));
    }
    let since_seconds = cx.query.non_empty("sinceSeconds").and_then(|text| text.parse::<i64>().ok());
    let since = match since_seconds {
        Some(seconds) => cx.state.now().checked_sub(SignedDuration::from_secs(seconds)).ok(),
        None => cx.query.non_empty("sinceTime").and_then(times::parse),
    };
    pairs.extend(since.map(|since| format!("sinceTime={since}")));
    pairs.join("&")
}

/// The agent's path for an action on the pod, or on a container of it.
fn agent_path(cx: &Context<'_>, what: &str, container: Option<&str>) -> String {
    let (namespace, name) = (cx.operation.namespace().unwrap_or_default(), cx.operation.name());
    let container = container.map(|container| format!("/{container}")).unwrap_or_default();
    format!("/{what}/{namespace}/{name}{container}")
}

/// Sends a request to the agent of the pod's node, if it is in this process.
async fn to_agent(cx: &Context<'_>, pod: &Value, method: &Method, path: String) -> Result<Answer, Failure> {
    if let Some(node) = node_of(pod)
        && let Some(answer) = agent::ask(cx.state, node, method.clone(), path).await
    {
        return answer;
    }
    Err(to_node(cx, pod).await)
}

/// The validation errors of a log's options.
fn log_faults(cx: &Context<'_>) -> Result<Vec<Error>, Failure> {
    let number = |name: &str| match cx.query.non_empty(name) {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| Failure::bad_request(format!("{name} must be a whole number, not {text:?}"))),
    };
    let (lines, bytes, seconds) = (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    if let Some(text) = cx.query.non_empty("sinceTime").filter(|text| times::parse(text).is_none()) {
        return Err(Failure::bad_request(format!(
            "sinceTime must be a time such as 2026-01-02T03:04:05Z, not {text:?}"
        )));
    }
    let mut faults = Vec::new();
    if let Some(lines) = lines.filter(|lines| *lines < 0) {
        faults.push(Error::invalid(&Path::new("tailLines"), lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = bytes.filter(|bytes| *bytes < 1) {
        faults.push(Error::invalid(&Path::new("limitBytes"), bytes, "must be greater than 0"));
    }
    if seconds.is_some() && cx.query.non_empty("sinceTime").is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        faults.push(Error::forbidden(&Path::root(), why));
    } else if let Some(seconds) = seconds.filter(|seconds| *seconds < 1) {
        faults.push(Error::invalid(&Path::new("sinceSeconds"), seconds, "must be greater than 0"));
    }
    let stream = cx.query.non_empty("stream").unwrap_or("All");
    if !["All", "Stderr", "Stdout"].contains(&stream) {
        faults.push(Error::not_supported(&Path::new("stream"), stream, &["All", "Stderr", "Stdout"]));
    }
    if stream != "All" && lines.is_some() {
        // The message is kube-apiserver's.
        let why = "`tailLines` and specific `stream` are mutually exclusive for now";
        faults.push(Error::forbidden(&Path::root(), why));
    }
    Ok(faults)
}

/// The container that the request names, which must be one of the pod's, or else the pod's only one.
fn container<'a>(cx: &'a Context<'_>, pod: &'a Value) -> Result<&'a str, Failure> {
    let name = cx.operation.name();
    let list = |list: &str| at(pod, &["spec", list]).and_then(Value::as_array).into_iter().flatten();
    let all = list("initContainers").chain(list("containers")).chain(list("ephemeralContainers"));
    let all: Vec<&str> = all.filter_map(|container| str_at(container, &["name"])).collect();
    let first = list("containers").next().and_then(|container| str_at(container, &["name"]));
    let why = match cx.query.non_empty("container") {
        Some(container) if all.contains(&container) => return Ok(container),
        Some(container) => format!("container {container} is not valid for pod {name}"),
        None => match list("containers").count() {
            0 => format!("a container name must be specified for pod {name}"),
            1 => return Ok(first.unwrap_or_default()),
            _ => format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" ")),
        },
    };
    Err(Failure::bad_request(why))
}

/// The failure to connect to the node of a pod.
async fn to_node(cx: &Context<'_>, pod: &Value) -> Failure {
    match node_of(pod) {
        Some(node) => to_kubelet(cx, node, "").await,
        None => Failure::bad_request(format!("pod {} does not have a host assigned", cx.operation.name())),
    }
}

fn node_of(pod: &Value) -> Option<&str> {
    str_at(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty())
}

/// The failure to connect to the agent of a node, or to a port of it.
async fn to_kubelet(cx: &Context<'_>, name: &str, port: &str) -> Failure {
    /// The types of a node's addresses, in the order of preference.
    const ADDRESSES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
    let node = match stored(cx, "nodes", &ObjectKey::cluster(name)).await {
        Ok(node) => node,
        Err(failure) => return failure,
    };
    let addresses =
        at(&node, &["status", "addresses"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of_type = |kind: &&str| addresses.iter().find(|address| str_at(address, &["type"]) == Some(kind));
    let Some(address) = ADDRESSES.iter().find_map(of_type) else {
        let known: Vec<&str> = addresses.iter().filter_map(|address| str_at(address, &["type"])).collect();
        let known = known.join(" ");
        return Failure::internal(format!("no preferred addresses found; known addresses: [{known}]"));
    };
    let own_port = at(&node, &["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).and_then(Value::as_i64);
    let own_port = own_port.filter(|port| *port > 0).unwrap_or(10_250).to_string();
    let port = if port.is_empty() { &own_port } else { port };
    no_connection(str_at(address, &["address"]).unwrap_or_default(), port)
}

/// The failure to connect to a port of a pod.
async fn to_pod(cx: &Context<'_>) -> Failure {
    let found = async {
        let location = Location::parse("pod", cx.operation.name())?;
        Ok((pod(cx, location.name).await?, location))
    };
    let (pod, location) = match found.await {
        Ok(found) => found,
        Err(failure) => return failure,
    };
    let ports = at(&pod, &["spec", "containers"]).and_then(Value::as_array).into_iter().flatten();
    let first =
        ports.filter_map(|container| container.get("ports")?.as_array()?.first()?.get("containerPort")?.as_i64());
    let first = first.map(|port| port.to_string()).next();
    let port = if location.port.is_empty() { first.as_deref().unwrap_or("80") } else { location.port };
    let address = at(&pod, &["status", "podIPs"]).and_then(|addresses| str_at(addresses.get(0)?, &["ip"]));
    match address.filter(|address| location::is_reachable(address)) {
        Some(address) => no_connection(address, port),
        None => Failure::bad_request("address not allowed"),
    }
}

/// The failure to connect to the endpoints of a service.
async fn to_service(cx: &Context<'_>) -> Failure {
    let found = async {
        let location = Location::parse("service", cx.operation.name())?;
        let namespace = cx.operation.namespace().unwrap_or_default();
        let key = ObjectKey::namespaced(namespace, location.name);
        let mut port = location.port.to_owned();
        if let Ok(number) = location.port.parse::<i64>() {
            let service = stored(cx, "services", &key).await?;
            let ports = at(&service, &["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
            let mut named = ports.filter(|port| port.get("port").and_then(Value::as_i64) == Some(number));
            let missing = || {
                let name = location.name;
                Failure::unavailable(format!("no service port {number} found for service {name:?}"))
            };
            let port_found = named.next().ok_or_else(missing)?;
            port = str_at(port_found, &["name"]).unwrap_or_default().to_owned();
        }
        let endpoints = stored(cx, "endpoints", &key).await?;
        location::endpoint(&endpoints, &port)
            .ok_or_else(|| Failure::unavailable(format!("no endpoints available for service {:?}", location.name)))
    };
    match found.await {
        Ok((address, port)) => no_connection(&address, &port),
        Err(failure) => failure,
    }
}

/// The failure of every connection after all checks.
fn no_connection(address: &str, port: &str) -> Failure {
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    Failure::internal(format!(
        "error dialing backend: dial tcp {address}:{port}: this server connects to no nodes and pods"
    ))
}

async fn pod(cx: &Context<'_>, name: &str) -> Result<Value, Failure> {
    stored(cx, "pods", &ObjectKey::namespaced(cx.operation.namespace().unwrap_or_default(), name)).await
}

async fn stored(cx: &Context<'_>, resource: &str, key: &ObjectKey) -> Result<Value, Failure> {
    let resource = GroupResource::new("", resource);
    let found = cx.state.get(&resource, key).await?;
    let found = found.ok_or_else(|| Failure::not_found(&resource, &key.name))?;
    conversion::parse(&found)
}
