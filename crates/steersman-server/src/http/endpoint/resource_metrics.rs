//! NodeMetrics and PodMetrics, made when they are read: the nodes or Pods of the store that a request selects, each
//! with its usage, if that is known.
//!
//! Answers like metrics-server: an object without known usage is not found under its kind; lists are complete, whatever
//! limit was requested; and neither objects nor lists have a version.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stored::Selection;
use crate::shared::nodes::resource_metrics::{NodeUsage, Offer, PodUsage, Usage};
use crate::shared::operation::seconds;
use crate::shared::request::negotiate::Shape;
use crate::shared::request::options;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use http::Method;
use serde_json::json;
use std::time::Duration;
use steersman_kinds::builtin::cluster::resource_metrics::GROUP;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::{GroupResource, Object, Value};
use steersman_storage::{At, Page};

/// The number of objects whose metrics are made before other tasks get a turn.
const BATCH_OBJECTS: usize = 64;
/// The largest value of a quantity.
const MEMORY_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// Carries out a request on metrics, which can only be read.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn handle(cx: &Context<'_>, method: &Method) -> Result<Answer, Failure> {
    if cx.operation.attributes.subresource.is_some() {
        return Err(Failure::unknown_resource());
    }
    let Some(offer) = &cx.state.resource_metrics else { return Err(Failure::unknown_resource()) };
    match (method, cx.operation.attributes.verb) {
        (&Method::GET, "get") => get(cx, offer).await,
        (&Method::GET, "list") => list(cx, offer).await,
        _ => Err(Failure::method_not_allowed()),
    }
}

async fn get(cx: &Context<'_>, offer: &Offer) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::One)?)?;
    let (subjects, name) = (subjects(cx), cx.operation.name());
    let found = cx.state.get(&subjects, &cx.operation.key(name)).await?;
    let subject = found.ok_or_else(|| Failure::not_found(&subjects, name))?;
    let metrics = metrics(cx, offer, &subject).ok_or_else(|| {
        let kind = cx.operation.resource().kind.to_lowercase();
        Failure::not_found(&GroupResource::new(GROUP, kind), &subject.key.to_string())
    })?;
    Answer::object(200, Payload::Tree(metrics), &representation).await
}

async fn list(cx: &Context<'_>, offer: &Offer) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::List)?)?;
    let options = options::List::parse(cx.query, options::Purpose::List)?;
    let selection = Selection::new(cx, &options)?;
    cx.state.sync().await?;
    let (resource, scope, budget) = (subjects(cx), cx.operation.list_scope(), &cx.operation.budget);
    selection.expect(&cx.operation, cx.state.store.count_in(&resource, &scope)).await;
    let selects = |object: &Object| selection.selects_within(object, budget);
    let found = cx.state.store.list_where(&resource, &scope, At::Latest, Page::ALL, selects);
    budget.check()?;
    let found = found.map_err(|error| Failure::of_read(&error))?;
    let mut payloads = Vec::new();
    for batch in found.objects.chunks(BATCH_OBJECTS) {
        payloads.extend(batch.iter().filter_map(|subject| metrics(cx, offer, subject)).map(Payload::Tree));
        tokio::task::yield_now().await;
    }
    Answer::list_of_made(&payloads, &representation)
}

/// The resource whose objects have metrics: nodes or Pods.
fn subjects(cx: &Context<'_>) -> GroupResource {
    GroupResource::new("", &*cx.operation.resource().plural)
}

/// The metrics of a node or a Pod, if they are known.
fn metrics(cx: &Context<'_>, offer: &Offer, subject: &Object) -> Option<Value> {
    let (key, now) = (&subject.key, cx.operation.now);
    match key.namespace.as_deref() {
        None => {
            let NodeUsage { window, usage } = offer.source.of_node(&key.name, now)?;
            Some(object(cx, subject, window, "usage", amounts(usage)))
        }
        Some(namespace) => {
            let PodUsage { window, containers } = offer.source.of_pod(namespace, &key.name, now)?;
            let container = |(name, usage): (String, Usage)| json!({"name": name, "usage": amounts(usage)});
            let containers: Vec<Value> = containers.into_iter().map(container).collect();
            Some(object(cx, subject, window, "containers", containers.into()))
        }
    }
}

/// A metrics object: it has the name and the labels of its node or Pod, and the time of the request as its creation.
fn object(cx: &Context<'_>, subject: &Object, window: Duration, field: &str, value: Value) -> Value {
    let now = seconds(cx.operation.now);
    let mut metadata = json!({"name": &*subject.key.name, "creationTimestamp": now});
    if let Some(namespace) = subject.key.namespace.as_deref() {
        metadata["namespace"] = namespace.into();
    }
    let labels: serde_json::Map<String, Value> =
        subject.meta().labels().map(|(key, value)| (key.to_owned(), value.into())).collect();
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    json!({
        "kind": &*cx.operation.resource().kind, "apiVersion": cx.operation.served.api_version(), "metadata": metadata,
        "timestamp": now, "window": format!("{}s", window.as_secs()), field: value,
    })
}

fn amounts(usage: Usage) -> Value {
    let Usage { cpu_nanos, memory_bytes } = usage;
    let memory_bytes = memory_bytes.min(MEMORY_BYTES_MAX);
    // Only powers of 1024 are used: 1000000 bytes are not written as 1M.
    let memory = match memory_bytes % 1024 {
        0 => canonical(format!("{}Ki", memory_bytes / 1024)),
        _ => memory_bytes.to_string(),
    };
    json!({"cpu": canonical(format!("{cpu_nanos}n")), "memory": memory})
}

/// The canonical text of a quantity; any other text is unchanged.
fn canonical(text: String) -> String {
    Quantity::canonical(&text).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cpu_nanos: u64, memory_bytes: u64, cpu: &str, memory: &str) {
        assert_eq!(amounts(Usage { cpu_nanos, memory_bytes }), json!({"cpu": cpu, "memory": memory}));
    }

    #[test]
    fn amounts_are_written_as_metrics_server_writes_them() {
        check(0, 0, "0", "0");
        check(250_000_000, 10 << 20, "250m", "10Mi");
        check(156_340_563, (10 << 20) + 1024, "156340563n", "10241Ki");
        check(2_000_000_000, 1 << 30, "2", "1Gi");
        check(1, 1_000_000, "1n", "1000000");
        check(u64::MAX, u64::MAX, "18446744073709551615n", "9223372036854775807");
    }
}
