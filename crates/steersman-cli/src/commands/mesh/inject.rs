//! `steersman mesh inject`: the injector of sidecars.

use crate::Failure;
use crate::args::duration;
use crate::commands::standalone::{election, until_signal};
use crate::process::signals::Signals;
use clap::{ArgGroup, Args as ClapArgs, ValueEnum};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use steersman::metrics::Metrics;
use steersman::{ClientOptions, Manager, ObjectKey};
use steersman_mesh::inject::decision::Labels;
use steersman_mesh::inject::{self, Certificate, Options, Otherwise, Policy, WebhookOptions};
use tokio_util::sync::CancellationToken;

/// How long further calls are accepted after the end was asked for, until a Service has noticed.
const LINGER: Duration = Duration::from_secs(5);

/// The options of the injector.
#[derive(ClapArgs, Debug)]
#[command(group = ArgGroup::new("ways").args(["initializer", "webhook"]).required(true).multiple(true))]
pub(crate) struct InjectOptions {
    /// The kubeconfig of the cluster; without it and --master: in-cluster, then $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The URL of the API server, instead of the kubeconfig's.
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// Serve /metrics for Prometheus, /healthz and /readyz on this address, without TLS; port 0 takes any free port.
    #[arg(long, value_parser = address, value_name = "ADDR")]
    metrics_address: Option<SocketAddr>,
    /// Work as the initializer envoy.initializer.kubernetes.io.
    #[arg(long)]
    initializer: bool,
    /// Work as a mutating webhook on this address, at the path /inject; port 0 takes any free port, which is printed.
    #[arg(long, value_parser = address, value_name = "ADDR")]
    webhook: Option<SocketAddr>,
    /// A Service that leads to the webhook: the certificate that is made is valid for it. May be given more than once.
    #[arg(long, requires = "webhook", value_parser = namespaced, value_name = "NAMESPACE/NAME")]
    webhook_service: Vec<ObjectKey>,
    /// A host in URLs that lead to the webhook, a name or an address. May be given more than once.
    #[arg(long, requires = "webhook", value_name = "HOST")]
    webhook_host: Vec<String>,
    /// The MutatingWebhookConfiguration into which the authority of the certificate is written, as its caBundle.
    #[arg(long, requires = "webhook", default_value = inject::NAME, value_name = "NAME")]
    webhook_configuration: String,
    /// The Secret with the certificate, which all replicas share; without a namespace it is in that of the pod or of the
    /// kubeconfig.
    #[arg(long, requires = "webhook", default_value = "mesh-injector-webhook", value_name = "[NAMESPACE/]NAME")]
    webhook_secret: Name,
    /// A file with the webhook's certificate in PEM, which is read again when it changes, instead of one that is made.
    #[arg(long, requires_all = ["webhook", "webhook_key"], conflicts_with_all = ["webhook_service", "webhook_host"], value_name = "FILE")]
    webhook_certificate: Option<PathBuf>,
    /// The file with the key of --webhook-certificate.
    #[arg(long, requires = "webhook_certificate", value_name = "FILE")]
    webhook_key: Option<PathBuf>,
    /// The ConfigMap with the sidecar; without a namespace it is in that of the pod or of the kubeconfig.
    #[arg(long, default_value = inject::CONFIG_MAP, value_name = "[NAMESPACE/]NAME")]
    config_map: Name,
    /// The treatment of Pods that no label, annotation or selector decides about.
    #[arg(long, value_enum, default_value_t = Unmarked::Inject, value_name = "WHAT")]
    default: Unmarked,
    /// Leave Pods with all of these labels alone, unless they ask for the sidecar themselves. May be given more than once.
    #[arg(long, value_parser = |text: &str| labels("--never", text), value_name = "KEY=VALUE,..")]
    never: Vec<Labels>,
    /// Inject Pods with all of these labels, unless they or --never say no. May be given more than once.
    #[arg(long, value_parser = |text: &str| labels("--always", text), value_name = "KEY=VALUE,..")]
    always: Vec<Labels>,
    /// Work as the initializer only while holding the Lease mesh-injector, so that one replica works and the others wait.
    /// Calls of the webhook are answered by all.
    #[arg(long, requires = "initializer")]
    leader_elect: bool,
    /// The namespace of the Lease; without it, that of the pod or of the kubeconfig.
    #[arg(long, requires = "leader_elect", value_name = "NAMESPACE")]
    leader_elect_namespace: Option<String>,
    /// The time for which a leader that has vanished blocks the others; it renews the Lease eight times as often.
    #[arg(long, default_value = "15s", value_parser = duration::lease, value_name = "DURATION")]
    leader_elect_lease_duration: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Unmarked {
    /// They get the sidecar.
    Inject,
    /// They are left alone.
    Leave,
}

/// The name of an object, with or without its namespace.
#[derive(Clone, Debug)]
struct Name {
    namespace: Option<String>,
    name: String,
}

/// Runs until a signal arrives. A second signal ends the process at once.
pub(super) async fn run(options: InjectOptions) -> Result<(), Failure> {
    let needs_name = options.webhook.is_some() && options.webhook_certificate.is_none();
    if needs_name && options.webhook_service.is_empty() && options.webhook_host.is_empty() {
        let ways = "--webhook-service NAMESPACE/NAME, --webhook-host HOST or --webhook-certificate FILE";
        return Err(Failure::Refused(format!("the webhook's certificate is to be valid for no name: want {ways}")));
    }
    let metrics = Metrics::new();
    let client_options = ClientOptions::default()
        .kubeconfig(options.kubeconfig.clone())
        .master(options.master.clone())
        .user_agent("steersman-mesh-injector".to_owned())
        .metrics(metrics.clone());
    let client = steersman::client(&client_options).await.map_err(|error| Failure::Refused(crate::chain(&error)))?;
    let namespace = client.default_namespace().to_owned();
    let mut manager = Manager::new(client).name(inject::NAME).with_metrics(metrics);
    let lease = options.leader_elect_namespace.clone().unwrap_or_else(|| namespace.clone());
    let lease_namespace = options.leader_elect.then_some(lease);
    if let Some(namespace) = &lease_namespace {
        manager = manager.elect_with(election(inject::NAME, namespace, options.leader_elect_lease_duration));
    }
    let refused = |flag: &str, error: &(dyn std::error::Error + 'static)| {
        Failure::Refused(format!("{}; choose another with {flag}", crate::chain(error)))
    };
    if let Some(address) = options.metrics_address {
        manager = manager.serve(address).map_err(|error| refused("--metrics-address", &error))?;
    }
    let metrics_address = manager.address();
    let work = work(options, &namespace, lease_namespace);
    let prepared = inject::prepare(manager, work).map_err(|error| refused("--webhook", &error))?;
    let signals = Signals::new()?;
    // Ports may be random ones. A closed standard output is no reason to end.
    if let Some(address) = metrics_address {
        let _ = writeln!(std::io::stdout(), "metrics and health: http://{address}");
    }
    if let Some(address) = prepared.webhook_address() {
        let _ = writeln!(std::io::stdout(), "webhook: https://{address}{}", inject::PATH);
    }
    tracing::info!("the injector is running");
    let stop = CancellationToken::new();
    let running = prepared.run(stop.clone().cancelled_owned());
    until_signal(signals, stop, running).await
}

/// The options of the injector, with names in the client's namespace where none is given.
fn work(options: InjectOptions, namespace: &str, lease_namespace: Option<String>) -> Options {
    // Whoever calls by a URL is told nothing of the end; a Service stops leading here.
    let linger = if options.webhook_service.is_empty() { Duration::ZERO } else { LINGER };
    let certificate = match (options.webhook_certificate, options.webhook_key) {
        (Some(certificate), Some(key)) => Certificate::Files { certificate, key },
        _ => Certificate::SelfSigned {
            secret: options.webhook_secret.within(namespace),
            configuration: options.webhook_configuration,
            services: options.webhook_service,
            hosts: options.webhook_host,
        },
    };
    let otherwise = match options.default {
        Unmarked::Inject => Otherwise::Inject,
        Unmarked::Leave => Otherwise::Leave,
    };
    Options {
        config_map: options.config_map.within(namespace),
        policy: Policy { never: options.never, always: options.always, otherwise },
        initializer: options.initializer,
        webhook: options.webhook.map(|address| WebhookOptions { address, certificate, linger }),
        lease_namespace,
    }
}

impl Name {
    fn within(self, namespace: &str) -> ObjectKey {
        ObjectKey::namespaced(self.namespace.as_deref().unwrap_or(namespace), &self.name)
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [name] if !name.is_empty() => Ok(Name { namespace: None, name: name.to_owned() }),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Ok(Name { namespace: Some(namespace.to_owned()), name: name.to_owned() })
            }
            _ => Err("want NAME or NAMESPACE/NAME".to_owned()),
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "want an IP address and a port, such as 127.0.0.1:9443 or [::1]:0")
}

fn namespaced(text: &str) -> Result<ObjectKey, String> {
    match text.split('/').collect::<Vec<_>>()[..] {
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok(ObjectKey::namespaced(namespace, name)),
        _ => Err("want NAMESPACE/NAME".to_owned()),
    }
}

fn labels(flag: &str, text: &str) -> Result<Labels, String> {
    let mut labels = BTreeMap::new();
    for pair in text.split(',') {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err("want labels such as app=db or app=db,tier=backend".to_owned());
        };
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("the key {key} occurs twice: give {flag} once for each value"));
        }
    }
    Ok(labels)
}
