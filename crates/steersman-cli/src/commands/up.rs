//! `steersman up` and `steersman server`: the control plane, with or without controllers.

use crate::Failure;
use crate::args::UpOptions;
use crate::plane::Plan;
use crate::plane::cloud::Choice;
use crate::plane::controllers::{Controllers, Monitoring, NETWORK, POLICY_STATUS, Role, Running, scheduler};
use crate::plane::nodes::{Joining, Nodes};
use crate::process::signals::Signals;
use anyhow::Context as _;
use jiff::SignedDuration;
use std::sync::Arc;
use steersman_controllers::Settings;
#[cfg(target_os = "linux")]
use tokio_util::task::AbortOnDropHandle;

/// Runs until a signal arrives. A second signal ends the process at once.
pub(crate) async fn run(options: UpOptions, role: Role) -> Result<(), Failure> {
    let joining =
        if options.server.authentication.enable_bootstrap_token_auth { Joining::Allowed } else { Joining::Refused };
    let nodes = Nodes::new(options.simulate_nodes, joining);
    let controllers = Controllers::parse(&options.controllers, role, &nodes)?;
    let choice = if controllers.has(NETWORK) {
        Some(Choice::new(&options.cloud)?)
    } else {
        options.cloud.check_unused()?;
        None
    };
    let in_memory = options.server.in_memory;
    let signing_duration = SignedDuration::try_from(options.server.authentication.cluster_signing_duration)
        .context("--cluster-signing-duration is too long")?;
    let scheduler = scheduler::configuration(options.server.scheduler_config.as_deref(), &controllers)?;
    let metrics_address = options.server.metrics_address;
    let mut signals = Signals::new()?;
    let plan = Plan::new(options.server, &controllers, &nodes)?;
    let monitoring = metrics_address.map(Monitoring::bind).transpose()?;
    let mut plane = tokio::select! {
        plane = plan.start(&nodes) => plane?,
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            return Ok(());
        }
    };
    if controllers.has(POLICY_STATUS) {
        plane.check_policies();
    }
    let data_dir = (!in_memory).then(|| plane.data_dir.path());
    let cloud = choice.map(|choice| choice.open(data_dir)).transpose()?;
    let authority = plane.authority()?.with_lifetime(signing_duration);
    let settings = Arc::new(Settings::new().authority(authority).root_ca(plane.root_ca()?).scheduler(scheduler));
    plane.check_ready().await?;
    let metrics_address = monitoring.as_ref().map(Monitoring::address);
    let mut running = Running::start(&controllers, &plane, &settings, cloud.clone(), &nodes, monitoring);
    let neutron = cloud.map(|cloud| cloud.name().to_owned());
    plane.say_ready(controllers.names(), neutron, nodes.described(), metrics_address);
    #[cfg(target_os = "linux")]
    let _settling = AbortOnDropHandle::new(tokio::spawn(crate::process::startup_pages::drop_when_settled()));
    let failed = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            None
        }
        error = running.failed() => Some(error),
        error = plane.replaced() => Some(error),
    };
    let stop = async {
        plane.withdraw().await;
        running.stop().await;
        plane.stop().await
    };
    tokio::select! {
        stopped = stop => stopped?,
        signal = signals.next() => return Err(Failure::stopped_at_once(signal)),
    }
    match failed {
        Some(error) => Err(Failure::Failed(error)),
        None => Ok(()),
    }
}
