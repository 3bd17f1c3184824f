//! Reconciles as spans of OpenTelemetry. The library uses `tracing` and no exporter: the program connects the two, and
//! chooses where spans go. Here, to standard output; with the exporter of `opentelemetry-otlp`, to a collector.
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use steersman::{Action, BoxError, ClientOptions, Controller, Lister, Manager, ManagerError, ObjectKey, Scope};
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;

/// Prints spans, which a program in production would send to a collector.
#[derive(Debug)]
struct Printer;

impl SpanExporter for Printer {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        for span in spans {
            let took = span.end_time.duration_since(span.start_time).unwrap_or(Duration::ZERO);
            let attributes: Vec<String> =
                span.attributes.iter().map(|attribute| format!("{}={}", attribute.key, attribute.value)).collect();
            println!("{} took {took:?}: {}", span.name, attributes.join(" "));
        }
        Ok(())
    }
}

struct Context {
    configs: Lister<ConfigMap>,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let config = cx.configs.get(&key)?;
    // This is within the span of the reconcile, which has the controller, the key and the result.
    tracing::info!(entries = config.data.as_ref().map_or(0, |data| data.len()), "looked at a ConfigMap");
    Ok(Action::AwaitChange)
}

/// Sends spans to `provider`, with the log lines inside them as their events.
pub(crate) fn subscriber(provider: &SdkTracerProvider) -> impl Subscriber + Send + Sync + use<> {
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("config-looker"));
    // Without a filter, the spans of HTTP clients are included.
    tracing_subscriber::registry().with(tracing_subscriber::EnvFilter::new("info")).with(layer)
}

pub(crate) async fn run(client: kube::Client, end: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let manager = Manager::new(client);
    let configs = manager.informers().informer(Scope::All).lister();
    manager.controller(Controller::<ConfigMap>::new(reconcile, Context { configs })).run(end).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let provider = SdkTracerProvider::builder().with_simple_exporter(Printer).build();
    tracing::subscriber::set_global_default(subscriber(&provider))?;
    let client = steersman::client(&ClientOptions::default()).await?;
    run(client, steersman::shutdown_signal()).await?;
    provider.shutdown()?;
    Ok(())
}
