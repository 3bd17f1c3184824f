//! `steersman network`: the Network controller alone, against any Kubernetes.

use crate::Failure;
use crate::args::NetworkOptions;
use crate::commands::standalone::{election, until_signal};
use crate::plane::cloud::Choice;
use crate::process::signals::Signals;
use std::io::Write as _;
use steersman::metrics::Metrics;
use steersman::{ClientOptions, Manager};
use tokio_util::sync::CancellationToken;

/// Runs until a signal arrives. A second signal ends the process at once.
pub(crate) async fn run(options: NetworkOptions) -> Result<(), Failure> {
    let choice = Choice::new(&options.cloud)?;
    // Against a user's cluster, a simulated cloud must be requested explicitly.
    if matches!(choice, Choice::Simulated) && !options.cloud.simulated {
        let way = "name a Neutron with --neutron-url URL or --neutron-auth keystone, or take a simulated one with --simulated";
        return Err(Failure::Refused(format!("the Network controller needs a cloud: {way}")));
    }
    let metrics = Metrics::new();
    let client_options = ClientOptions::default()
        .kubeconfig(options.kubeconfig)
        .master(options.master)
        .user_agent("steersman-network".to_owned())
        .metrics(metrics.clone());
    let client = steersman::client(&client_options).await.map_err(|error| Failure::Refused(crate::chain(&error)))?;
    let namespace = client.default_namespace().to_owned();
    let mut manager = Manager::new(client).name(steersman_network::NAME).with_metrics(metrics);
    let lease_namespace = options.leader_elect.then(|| options.leader_elect_namespace.unwrap_or(namespace));
    if let Some(namespace) = &lease_namespace {
        manager = manager.elect_with(election(steersman_network::NAME, namespace, options.leader_elect_lease_duration));
    }
    if let Some(address) = options.metrics_address {
        manager = manager.serve(address).map_err(|error| {
            Failure::Refused(format!("{}; choose another with --metrics-address", crate::chain(&error)))
        })?;
    }
    let cloud = choice.open(None)?;
    let signals = Signals::new()?;
    if let Some(address) = manager.address() {
        // The port may be a random one. A closed standard output is no reason to end.
        let _ = writeln!(std::io::stdout(), "metrics and health: http://{address}");
    }
    tracing::info!(neutron = cloud.name(), "the Network controller is running");
    let work = steersman_network::Options {
        cluster: options.cluster_id,
        drift_interval: options.drift_interval,
        orphan_grace: options.orphan_grace,
        lease_namespace,
    };
    let stop = CancellationToken::new();
    let running = steersman_network::run_with(manager, cloud, work, stop.clone().cancelled_owned());
    until_signal(signals, stop, running).await
}
