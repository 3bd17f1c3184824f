//! `steersman network`: the Network controller alone, against any Kubernetes.

use crate::Failure;
use crate::args::NetworkOptions;
use crate::cloud::Choice;
use crate::signals::Signals;
use steersman::ClientOptions;

/// Runs until a signal comes.
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
    let stop = async move {
        signals.next().await;
    };
    steersman_network::run(client, cloud, stop).await.map_err(anyhow::Error::from)?;
    Ok(())
}
