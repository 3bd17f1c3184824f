//! Subresources that lead to what runs an object: logs, exec, attach and port-forward of pods, and the proxies of pods,
//! services and nodes.
//!
//! A request is checked here as kube-apiserver does before a connection, in the same order and with the same messages
//! (kubernetes' `pkg/registry/core/pod/strategy.go` and its neighbours). After that it is passed on to the kubelet of the
//! node, or to the address of the Pod; an agent of the node that is in the process is asked instead
//! ([`Agents`](crate::shared::nodes::agents::Agents)). The answer comes later: it holds no place among the requests in flight.

mod backend;
mod exec;
mod kubelet;
mod links;
mod location;
mod log;
mod options;
mod pod;
mod proxy;

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::shared::conversion;
use crate::shared::request::unread::Unread;
use crate::shared::status::Failure;
use crate::write::admission;
use http::Method;
use steersman_kinds::catalog::{Subresource, Verb};
use steersman_machinery::{GroupResource, ObjectKey, Value};

/// Carries out a request on a subresource that streams.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn handle(cx: &mut Context<'_>, subresource: &Subresource, unread: Unread) -> Result<Answer, Failure> {
    let verb = match cx.parts.method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        Method::OPTIONS if &*subresource.name == "proxy" => Verb::Get,
        _ => return Err(Failure::method_not_allowed()),
    };
    if !subresource.verbs.contains(&verb) {
        return Err(Failure::method_not_allowed());
    }
    // Logs are read; all other streams are connections, which pass admission.
    if &*subresource.name == "log" {
        return log::answer(cx).await;
    }
    if cx.query.first("dryRun").is_some() {
        return Err(Failure::bad_request("dryRun is not supported"));
    }
    let mut options = options::read(cx, subresource);
    admission::connect(cx.state, &mut cx.operation, &mut options).await?;
    match &*subresource.name {
        "proxy" => proxy::answer(cx, &options, unread).await,
        name => exec::answer(cx, name, &options, unread).await,
    }
}

/// A stored object of the core group.
async fn stored(cx: &Context<'_>, resource: &str, key: &ObjectKey) -> Result<Value, Failure> {
    let resource = GroupResource::new("", resource);
    let found = cx.state.get(&resource, key).await?;
    let found = found.ok_or_else(|| Failure::not_found(&resource, &key.name))?;
    conversion::parse(&found)
}
