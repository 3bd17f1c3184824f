//! `exec`, `attach` and `portforward`: connections to a container or a Pod, which its kubelet upgrades. What they carry, SPDY
//! or WebSocket, is between the client and the kubelet.

use crate::access::authz;
use crate::http::answer::Answer;
use crate::http::endpoint::agent;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stream::kubelet::Kubelet;
use crate::http::endpoint::stream::pod;
use crate::http::passing::Upgrade;
use crate::shared::nodes::connections::Peer;
use crate::shared::operation::{Attributes, ResourceAttributes};
use crate::shared::request::query;
use crate::shared::request::unread::Unread;
use crate::shared::status::Failure;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// The fields of the options that are flags, with the names that they have in the query of a kubelet.
const FLAGS: [(&str, &str); 4] = [("stderr", "error"), ("stdin", "input"), ("stdout", "output"), ("tty", "tty")];

/// Connects the client with a container or a Pod.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn answer(
    cx: &Context<'_>,
    subresource: &str,
    options: &Value,
    unread: Unread,
) -> Result<Answer, Failure> {
    may_create(cx).await?;
    let found = pod::find(cx, cx.operation.name()).await?;
    let path = match subresource {
        "portforward" => pod::path(cx, "portForward", None),
        _ => pod::path(cx, subresource, Some(pod::container(cx, &found, str_at(options, &["container"]))?)),
    };
    let Some(node) = pod::node(&found) else {
        return Err(Failure::bad_request(format!("pod {} does not have a host assigned", cx.operation.name())));
    };
    if let Some(answer) = agent::ask(cx.state, node, cx.parts.method.clone(), path.clone()).await {
        return answer;
    }
    let kubelet = Kubelet::find(cx, node).await?;
    let upgrade = Upgrade::asked(cx.parts).ok_or_else(|| Failure::bad_request("Upgrade request required"))?;
    let query = kubelet_query(options);
    let path = if query.is_empty() { path } else { format!("{path}?{query}") };
    kubelet.backend(Peer::Kubelet).upgrade(cx, &path, upgrade, unread)
}

/// Whether the user may create such a connection. WebSockets begin with a GET, so that the permission to read has been
/// checked; it must not be enough to run commands
/// (<https://github.com/kubernetes/kubernetes/issues/133515>).
async fn may_create(cx: &Context<'_>) -> Result<(), Failure> {
    let attributes = cx.operation.attributes;
    if attributes.verb == "create" {
        return Ok(());
    }
    let attributes = Attributes::Resource(ResourceAttributes { verb: "create", ..attributes });
    authz::authorize(&*cx.state.authorizer, cx.operation.user, &attributes).await
}

/// The options as the query of a kubelet, in the order in which kube-apiserver sends them.
fn kubelet_query(options: &Value) -> String {
    let list = |name: &str| at(options, &[name]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let commands = list("command").iter().filter_map(Value::as_str);
    let mut pairs: Vec<String> = commands.map(|command| format!("command={}", query::encode_value(command))).collect();
    for (field, name) in FLAGS {
        if at(options, &[field]).and_then(Value::as_bool) == Some(true) {
            pairs.push(format!("{name}=1"));
        }
    }
    let ports: Vec<String> = list("ports").iter().filter_map(Value::as_i64).map(|port| port.to_string()).collect();
    if !ports.is_empty() {
        pairs.push(format!("port={}", query::encode_value(&ports.join(","))));
    }
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kubelet_gets_the_query_that_kube_apiserver_sends() {
        let all = json!({"command": ["sh", "-c", "a b&c"], "stdin": true, "stdout": true, "stderr": true, "tty": true});
        assert_eq!(kubelet_query(&all), "command=sh&command=-c&command=a+b%26c&error=1&input=1&output=1&tty=1");
        assert_eq!(kubelet_query(&json!({"stdout": true, "container": "c"})), "output=1");
        assert_eq!(kubelet_query(&json!({"ports": [80, 443]})), "port=80%2C443");
        assert_eq!(kubelet_query(&json!({})), "");
    }
}
