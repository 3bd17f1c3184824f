//! A manager that runs alone, against any Kubernetes: its election, and its end by a signal.

use crate::Failure;
use crate::process::signals::Signals;
use std::pin::pin;
use std::time::Duration;
use steersman::election::ElectionOptions;
use tokio_util::sync::CancellationToken;

/// The election of replicas, with the proportions of Kubernetes' own controllers: a leader renews at two thirds of the
/// lease at the latest, and all replicas try eight times in it.
pub(super) fn election(name: &str, namespace: &str, lease: Duration) -> ElectionOptions {
    ElectionOptions::new(name, namespace).lease(lease).renew_deadline(lease * 2 / 3).retry(lease / 8)
}

/// Runs until a signal arrives, which cancels `stop`. A second signal ends the process at once.
pub(super) async fn until_signal<E>(
    mut signals: Signals,
    stop: CancellationToken,
    running: impl Future<Output = Result<(), E>>,
) -> Result<(), Failure>
where
    anyhow::Error: From<E>,
{
    let mut running = pin!(running);
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
