//! `steersman network`: the Network controller alone, against any Kubernetes.

use crate::Failure;
use crate::args::NetworkOptions;
use crate::cloud::Choice;
use crate::signals::Signals;
use std::pin::pin;
use steersman::ClientOptions;
use tokio_util::sync::CancellationToken;

/// Runs until a signal comes. A second signal ends the process at once.
pub(crate) async fn run(options: NetworkOptions) -> Result<(), Failure> {
    let choice = Choice::new(&options.cloud)?;
    if matches!(choice, Choice::Simulated) {
        let way =
            "name a Neutron with --neutron-url URL or --neutron-auth keystone (only `steersman up` simulates one)";
        return Err(Failure::Refused(format!("the Network controller needs a cloud: {way}")));
    }
    let client_options = ClientOptions {
        kubeconfig: options.kubeconfig,
        master: options.master,
        user_agent: Some("steersman-network".to_owned()),
        ..ClientOptions::default()
    };
    let client = steersman::client(&client_options).await.map_err(|error| Failure::Refused(crate::sentence(&error)))?;
    let cloud = choice.open(std::path::Path::new("."), true)?;
    let mut signals = Signals::new()?;
    tracing::info!(neutron = cloud.name(), "the Network controller is running");
    let stop = CancellationToken::new();
    let mut running = pin!(steersman_network::run(client, cloud, stop.clone().cancelled_owned()));
    let ended = tokio::select! {
        ended = &mut running => ended,
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            stop.cancel();
            tokio::select! {
                ended = running => ended,
                signal = signals.next() => return Err(Failure::stopped_at_once(signal)),
            }
        }
    };
    ended.map_err(anyhow::Error::from)?;
    Ok(())
}
