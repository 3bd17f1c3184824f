//! The injector: puts a sidecar into Pods while they are created.
//!
//! The sidecar is a fragment of a Pod in a ConfigMap ([`fragment`]). Whether a Pod gets it is decided by the Pod, its
//! namespace and the injector's rules ([`decision`]), and how, by a strategic merge patch ([`merge`]); all three are pure.
//! `injector` joins them to a verdict, which two thin ways carry out: the initializer of the source document, for a
//! Steersman with initializers, and a mutating webhook, for any Kubernetes. Both read only caches, so that a verdict
//! costs no request.
//!
//! Every refusal is an Event about the Pod's owner. What the injector cannot know (its caches are not filled, the
//! server is away) is no verdict: the Pod goes on waiting, or the webhook's `failurePolicy` decides.

pub mod decision;
pub mod fragment;
mod initializer;
mod injector;
pub mod merge;
mod metrics;
mod namespaces;
mod requirements;
mod source;
mod waiting;
mod way;
mod webhook;

pub use crate::inject::decision::{Otherwise, Policy};
pub use crate::inject::fragment::{Fragment, FragmentError};
pub use crate::inject::merge::{Conflict, Plan, inject, plan};
pub use crate::inject::requirements::rules;
pub use crate::inject::source::DATA_KEY;
pub use crate::inject::webhook::PATH;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::core::PartialObjectMeta;
use steersman::cache::{Selection, handler_fn};
use steersman::events::EventRecorder;
use steersman::webhook::{BindError, Certificates, SelfSigned, Webhooks};
use steersman::{Manager, ManagerError, ObjectKey, Scope};

use crate::inject::injector::Injector;
use crate::inject::metrics::Counts;
use crate::inject::namespaces::Namespaces;
use crate::inject::source::Source;

/// The name of the injector in Events, of its Lease, and as a field manager.
pub const NAME: &str = "mesh-injector";
/// The name by which Pods wait for the initializer; the source document's.
pub const INITIALIZER: &str = "envoy.initializer.kubernetes.io";
/// The annotation by which a Pod asks for the sidecar; the source document's.
pub const ASK: &str = "initializer.kubernetes.io/envoy";
/// The label of Pods and namespaces that asks for the sidecar, or forbids it.
pub const INJECT: &str = "mesh.steersman.dev/inject";
/// The annotation with the hash of the fragment that a Pod got.
pub const FRAGMENT: &str = "mesh.steersman.dev/fragment";
/// The annotation with what a Pod got.
pub const RECORD: &str = "mesh.steersman.dev/injected";
/// The readiness gate that a fragment can have; the pilot sets the condition.
pub const CONFIGURED: &str = "mesh.steersman.dev/configured";
/// The name of the ConfigMap; the source document's.
pub const CONFIG_MAP: &str = "envoy-initializer";

/// The beginning of the injector's own labels and annotations.
const OWN_PREFIX: &str = "mesh.steersman.dev/";
/// How long the last Events may take to be written, since the API server may be gone.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of the injector.
#[derive(Clone, Debug)]
pub struct Options {
    /// The ConfigMap with the fragment.
    pub config_map: ObjectKey,
    /// The rules for Pods without a label or annotation of their own.
    pub policy: Policy,
    /// Whether it works as an initializer.
    pub initializer: bool,
    /// How it works as a webhook, if it does.
    pub webhook: Option<WebhookOptions>,
    /// The namespace of the Lease [`NAME`], if the manager uses it for its election: the injector then needs the
    /// permissions for it.
    pub lease_namespace: Option<String>,
}

/// Options of the webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The address to listen on; port 0 takes any free port.
    pub address: SocketAddr,
    /// The certificate to serve.
    pub certificate: Certificate,
    /// How long it accepts further calls after it is asked to end: until a Service no longer leads to it.
    pub linger: Duration,
}

/// The certificate of the webhook.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Files in PEM, which are read again when they change.
    Files {
        /// The certificate.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// One that the injector makes, keeps in a Secret and renews, and whose authority it writes into the
    /// MutatingWebhookConfiguration.
    SelfSigned {
        /// The Secret.
        secret: ObjectKey,
        /// The MutatingWebhookConfiguration.
        configuration: String,
        /// The Services that lead here.
        services: Vec<ObjectKey>,
        /// The hosts of URLs that lead here.
        hosts: Vec<String>,
    },
}

/// An injector that is set up and does not work yet.
#[must_use = "an injector does nothing until it runs"]
pub struct Prepared {
    manager: Manager,
    events: EventRecorder,
    webhook: Option<SocketAddr>,
}

/// Sets up the injector in a manager, which may have metrics, a port and an election. Of replicas with an election one
/// works as the initializer, and all answer calls of the webhook.
///
/// # Errors
/// The address of the webhook cannot be listened on.
pub fn prepare(manager: Manager, options: Options) -> Result<Prepared, BindError> {
    let factory = manager.informers();
    let client = factory.client().clone();
    let events = EventRecorder::new(client.clone(), NAME);
    manager.metrics().observe_events(&events);
    let counts = Counts::default();
    counts.register(manager.metrics());
    let scope = Scope::Namespace(options.config_map.namespace().unwrap_or_default().to_owned());
    let selection = Selection::new(scope).fields(format!("metadata.name={}", options.config_map.name()));
    let configs = factory.informer::<ConfigMap>(selection);
    let namespaces = factory.informer::<PartialObjectMeta<Namespace>>(Scope::All);
    let injector = Arc::new(Injector {
        source: Source::new(options.config_map.clone(), configs.lister(), events.clone(), counts.clone()),
        namespaces: Namespaces { client: client.clone(), cached: namespaces.lister() },
        policy: options.policy.clone(),
        events: events.clone(),
        counts: counts.clone(),
    });
    let source_reader = Arc::clone(&injector);
    // A new version is read at once, so that a mistake in it is reported before the next Pod comes.
    let registration = configs.add_handler(handler_fn(move |_| drop(source_reader.source.current())));
    let rules = rules(&options);
    let requirements =
        requirements::Requirements { client: client.clone(), rules, needs_initializers: options.initializer };
    let mut manager = manager.run_always("requirements", move |stop| {
        // Dropping the registration would remove the handler.
        let registration = registration;
        async move {
            let watched = requirements.watch(counts, stop).await;
            drop(registration);
            watched
        }
    });
    let mut address = None;
    if let Some(webhook) = options.webhook {
        let certificates = certificates(client, webhook.certificate);
        let server = Webhooks::new().mutate(PATH, webhook::mutate, Arc::clone(&injector));
        let server = server.bind(webhook.address, certificates)?.linger(webhook.linger);
        address = Some(server.address());
        manager = manager.webhooks(server);
    }
    if options.initializer {
        let controller = initializer::controller(manager.informers(), injector);
        manager = manager.controller(controller);
    }
    Ok(Prepared { manager, events, webhook: address })
}

fn certificates(client: Client, certificate: Certificate) -> Certificates {
    match certificate {
        Certificate::Files { certificate, key } => Certificates::files(certificate, key),
        Certificate::SelfSigned { secret, configuration, services, hosts } => {
            let namespace = secret.namespace().unwrap_or_default();
            let mut made = SelfSigned::new(client, namespace, secret.name()).mutating(&configuration);
            for service in &services {
                made = made.service(service.namespace().unwrap_or_default(), service.name());
            }
            for host in &hosts {
                made = made.host(host);
            }
            made.into()
        }
    }
}

// === impl Prepared ===

impl Prepared {
    /// The address of the webhook, if there is one.
    pub fn webhook_address(&self) -> Option<SocketAddr> {
        self.webhook
    }

    /// Runs until `shutdown` resolves; Pods under way are finished first.
    ///
    /// # Errors
    /// As [`Manager::run`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let outcome = self.manager.run(shutdown).await;
        if tokio::time::timeout(FLUSH_TIMEOUT, self.events.flush()).await.is_err() {
            tracing::warn!(seconds = FLUSH_TIMEOUT.as_secs(), "some Events could not be written before the end");
        }
        outcome
    }
}
