//! The spans of reconciles, as a subscriber sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steersman::queue::RateLimiter;
use steersman::{Action, Controller, InformerFactory, ObjectKey, ReconcileError};
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::server::{Server, eventually};

#[derive(Debug, thiserror::Error)]
#[error("scripted")]
struct Scripted;

impl ReconcileError for Scripted {}

/// Fields by name, as text.
#[derive(Clone, Default)]
struct Fields(BTreeMap<&'static str, String>);

/// The spans named `reconcile` that were closed, and the events inside them.
#[derive(Clone, Default)]
struct Spans {
    closed: Arc<Mutex<Vec<Fields>>>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.lookup_current().filter(|span| span.name() == "reconcile") else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let key = span.extensions().get::<Fields>().unwrap().0["key"].clone();
        self.said.lock().push(format!("{key}: {}", fields.0["message"]));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if span.name() == "reconcile" {
            self.closed.lock().extend(span.extensions().get::<Fields>().cloned());
        }
    }
}

async fn reconcile(key: ObjectKey, _: &()) -> Result<Action, Scripted> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    tracing::info!("at work");
    match key.name() {
        "again" => Ok(Action::Requeue),
        "error" => Err(Scripted),
        "later" => Ok(Action::RequeueAfter(Duration::from_secs(1_000_000))),
        _ => Ok(Action::AwaitChange),
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_has_a_span_that_says_what_ran_why_how_long_and_how_it_ended() {
    let spans = Spans::default();
    // With a single subscriber, tracing asks whether it wants a span on the first thread that creates it, which may be
    // another test's.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(spans.clone()));
    let server = Server::new();
    for name in ["again", "error", "later"] {
        server.put(&format!("a/{name}"), "1");
    }
    let factory = InformerFactory::new(server.client());
    let seldom = RateLimiter::exponential(Duration::from_secs(1_000_000), Duration::from_secs(1_000_000));
    let controller = Controller::<ConfigMap>::new(reconcile, ()).rate_limiter(seldom);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { controller.run(&factory, stop).await }
    });
    eventually("three ran", || spans.closed.lock().len() == 3).await;
    server.put("a/fine", "1");
    server.put("a/error", "2");
    eventually("all ran", || spans.closed.lock().len() == 5).await;
    stop.cancel();
    running.await.unwrap().unwrap();

    let names = ["controller", "id", "key", "priority", "n_failures", "result", "took_seconds"];
    let line = |fields: &Fields| {
        assert_eq!(fields.0.len(), names.len(), "{:?}", fields.0);
        names.map(|name| fields.0[name].as_str()).join(" ")
    };
    let lines: Vec<String> = spans.closed.lock().iter().map(line).collect();
    let expected = [
        "configmap 1 a/again Low 0 requeue 2.0",
        "configmap 2 a/error Low 0 error 2.0",
        "configmap 3 a/later Low 0 requeue_after 2.0",
        "configmap 4 a/fine Normal 0 success 2.0",
        "configmap 5 a/error Normal 1 error 2.0",
    ];
    assert_eq!(lines, expected);
    let said = spans.said.lock();
    for expected in ["a/again: at work", "a/fine: at work", "a/error: reconcile failed, will retry"] {
        assert!(said.iter().any(|said| said == expected), "{expected} in {said:?}");
    }
}
