//! The controllers that `steersman up` runs beside the control plane.

use crate::Failure;
use crate::plane::Plane;
use std::sync::Arc;
use steersman_neutron::Cloud;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Which controllers are wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Controllers {
    pub(crate) network: bool,
}

const NETWORK: &str = "network";

/// The controllers that run.
#[derive(Debug)]
pub(crate) struct Running {
    task: Option<JoinHandle<anyhow::Result<()>>>,
    stop: CancellationToken,
}

impl Controllers {
    /// Reads `a,b,-c`; `*` is all of them, and the last word on a controller counts.
    pub(crate) fn parse(words: &[String]) -> Result<Controllers, Failure> {
        // Who only says what is not wanted wants the rest.
        let network = !words.is_empty() && words.iter().all(|word| word.trim().starts_with('-'));
        let mut controllers = Controllers { network };
        for word in words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            let (name, is_wanted) = word.strip_prefix('-').map_or((word, true), |name| (name, false));
            match name {
                "*" | NETWORK => controllers.network = is_wanted,
                _ => {
                    return Err(Failure::Refused(format!(
                        "there is no controller {name:?}: --controllers takes {NETWORK}, * for all, and -NAME for all but one"
                    )));
                }
            }
        }
        Ok(controllers)
    }

    /// The names of those that are wanted.
    pub(crate) fn names(self) -> Vec<&'static str> {
        if self.network { vec![NETWORK] } else { Vec::new() }
    }
}

impl Running {
    /// Starts the Network controller on a cloud, if there is one.
    pub(crate) fn start(plane: &Plane, cloud: Option<Arc<dyn Cloud>>) -> Running {
        let stop = CancellationToken::new();
        let task = cloud.map(|cloud| {
            let client = plane.client("system:steersman:network-controller");
            let stop = stop.clone();
            tokio::spawn(async move {
                steersman_network::run(client, cloud, async move { stop.cancelled().await }).await?;
                Ok(())
            })
        });
        Running { task, stop }
    }

    /// Resolves when a controller has ended by itself, with the reason. Never, if none runs.
    ///
    /// # Cancel safety
    /// A controller that has ended is told by the next call.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await;
        self.task = None;
        match ended {
            Ok(Ok(())) => anyhow::anyhow!("the network controller has ended by itself"),
            Ok(Err(error)) => error.context("the network controller has failed"),
            Err(error) => anyhow::Error::new(error).context("the network controller has failed"),
        }
    }

    /// Stops them and waits until they have stopped.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Some(task) = self.task {
            match task.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(error = format!("{error:#}"), "the network controller ended with an error");
                }
                Err(error) => tracing::error!(%error, "the network controller ended with an error"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], want: Option<bool>) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(Controllers::parse(&words).ok().map(|controllers| controllers.network), want);
    }

    #[test]
    fn the_last_word_on_a_controller_counts() {
        check(&["*"], Some(true));
        check(&[], Some(false));
        check(&["network"], Some(true));
        check(&["-network"], Some(false));
        check(&["*", "-network"], Some(false));
        check(&["-network", "network"], Some(true));
        check(&["nework"], None);
    }
}
