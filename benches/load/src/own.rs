//! A `steersman server` of our own: started on a scratch directory, killed, started again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::hook;

/// The time after which a start counts as hung: opening a million objects is slow on a busy machine.
const START_MAX: Duration = Duration::from_secs(300);

/// The control loops that it runs: only those that a server needs, so that a request's cost is the server's own. `bench
/// loops` measures the others.
const CONTROLLERS: &str = "certificates,namespace,service-cidr,serviceaccount-token,validatingadmissionpolicy-status";

/// The options of its start.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) scratch: PathBuf,
    pub(crate) history: Option<String>,
    /// The addresses of an etcd that has the objects, below a prefix for each stage.
    pub(crate) etcd_servers: Option<String>,
    /// The address of the webhook in this process.
    pub(crate) webhook: SocketAddr,
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    /// Kept open so that later output does not fail.
    _output: Lines<BufReader<ChildStdout>>,
    pub(crate) id: u32,
    pub(crate) kubeconfig: PathBuf,
    /// The time from exec to the line of readiness, which is printed when `/readyz` answers 200.
    pub(crate) took: Duration,
}

#[derive(Deserialize)]
struct Ready {
    kubeconfig: PathBuf,
}

impl Launch {
    /// Starts a server on `data`, which may already contain objects, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// If it ends early, or takes too long.
    pub(crate) async fn start(&self, data: &Path) -> anyhow::Result<Server> {
        let log = std::fs::File::create(self.scratch.join("log")).context("cannot create the server's log")?;
        let mut command = Command::new(&self.binary);
        command.arg("server").arg("--data-dir").arg(data);
        command.args(["--listen", "127.0.0.1:0", "--output", "json", "--log", "warn", "--controllers", CONTROLLERS]);
        let service = format!("{}/{}=http://{}", hook::NAMESPACE, hook::NAME, self.webhook);
        command.args(["--webhook-service", &service]);
        if let Some(history) = &self.history {
            command.args(["--history", history]);
        }
        if let Some(servers) = &self.etcd_servers {
            let stage = data.file_name().context("the data directory has no name")?;
            command.args(["--etcd-servers", servers, "--etcd-prefix", &format!("/{}", stage.display())]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let start = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.binary.display()))?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut output = BufReader::new(stdout).lines();
        let line = timeout(START_MAX, output.next_line()).await;
        let line = line.with_context(|| format!("the server was not ready after {} s", START_MAX.as_secs()))?;
        let took = start.elapsed();
        let Some(line) = line.context("cannot read what the server prints")? else {
            let log = std::fs::read_to_string(self.scratch.join("log")).unwrap_or_default();
            anyhow::bail!("the server ended before it was ready: {}", log.trim());
        };
        let ready: Ready = serde_json::from_str(&line).with_context(|| format!("no ready line but {line:?}"))?;
        let id = child.id().context("the server has ended")?;
        Ok(Server { child, _output: output, id, kubeconfig: ready.kubeconfig, took })
    }
}

impl Server {
    /// Kills it as `kill -9` does, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the server")
    }
}
