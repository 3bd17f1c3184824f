//! Controllers of servers that share a store: the server that holds a Lease runs them. It is the Lease of
//! kube-controller-manager, so that neither runs beside the other.

use crate::plane::controllers::lineup::Lineup;
use crate::plane::controllers::tasks::Tasks;
use steersman::election::{Election, ElectionOptions};
use tokio_util::sync::CancellationToken;

const LEASE: &str = "kube-controller-manager";
const NAMESPACE: &str = "kube-system";

/// The end of the time for which this server has led.
enum Ended {
    AsAsked,
    Failed(anyhow::Error),
    Lost,
}

/// Starts the controllers whenever this server is elected, until `stop` is cancelled.
pub(super) fn start(lineup: Lineup, stop: CancellationToken) -> Tasks {
    let mut tasks = Tasks::default();
    tasks.spawn("election", run(lineup, stop));
    tasks
}

async fn run(lineup: Lineup, stop: CancellationToken) -> anyhow::Result<()> {
    let options = ElectionOptions::new(LEASE, NAMESPACE);
    loop {
        let mut election = Election::new(lineup.reader(), options.clone())?;
        if stop.run_until_cancelled(election.acquire()).await.is_none() {
            // The interrupted attempt may have won.
            election.release().await;
            return Ok(());
        }
        let term = CancellationToken::new();
        let mut controllers = lineup.start(&term, Some(&election.leadership().clone()));
        // All arms are cancel-safe.
        let ended = tokio::select! {
            () = election.hold() => Ended::Lost,
            error = controllers.failed() => Ended::Failed(error),
            () = stop.cancelled() => Ended::AsAsked,
        };
        match ended {
            Ended::Lost => {
                // Their work is dropped at its await points.
                drop(controllers);
                tracing::warn!("another server may run the controllers now; this one tries to be elected again");
            }
            Ended::Failed(error) => {
                drop(controllers);
                election.release().await;
                return Err(error);
            }
            Ended::AsAsked => {
                term.cancel();
                // Both arms are cancel-safe.
                tokio::select! {
                    () = election.hold() => {}
                    () = controllers.join() => election.release().await,
                }
                return Ok(());
            }
        }
    }
}
