//! The Pod of a request, its container and its node.

use crate::http::endpoint::context::Context;
use crate::http::endpoint::stream;
use crate::shared::status::Failure;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{ObjectKey, Value};

/// The Pod of this name in the namespace of the request.
pub(super) async fn find(cx: &Context<'_>, name: &str) -> Result<Value, Failure> {
    stream::stored(cx, "pods", &ObjectKey::namespaced(cx.operation.namespace().unwrap_or_default(), name)).await
}

/// The container that is asked for, which must be one of the Pod's, or else the Pod's only one.
///
/// # Errors
/// 400 if there is no such container, or the Pod has several.
pub(super) fn container<'a>(cx: &Context<'_>, pod: &'a Value, asked: Option<&str>) -> Result<&'a str, Failure> {
    let name = cx.operation.name();
    let list = |list: &str| at(pod, &["spec", list]).and_then(Value::as_array).into_iter().flatten();
    let all = list("initContainers").chain(list("containers")).chain(list("ephemeralContainers"));
    let all: Vec<&str> = all.filter_map(|container| str_at(container, &["name"])).collect();
    let first = list("containers").next().and_then(|container| str_at(container, &["name"]));
    let why = match asked {
        Some(asked) => match all.iter().find(|container| **container == asked) {
            Some(container) => return Ok(container),
            None => format!("container {asked} is not valid for pod {name}"),
        },
        None => match list("containers").count() {
            0 => format!("a container name must be specified for pod {name}"),
            1 => return Ok(first.unwrap_or_default()),
            _ => format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" ")),
        },
    };
    Err(Failure::bad_request(why))
}

/// The node of a Pod, if it has one.
pub(super) fn node(pod: &Value) -> Option<&str> {
    str_at(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty())
}

/// The path of an action on the Pod of the request, or on a container of it, at the kubelet.
pub(super) fn path(cx: &Context<'_>, action: &str, container: Option<&str>) -> String {
    let (namespace, name) = (cx.operation.namespace().unwrap_or_default(), cx.operation.name());
    let container = container.map(|container| format!("/{container}")).unwrap_or_default();
    format!("/{action}/{namespace}/{name}{container}")
}
