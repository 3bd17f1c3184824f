//! The pilot as a process: started on ports that it chooses, asked for its metrics, stopped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use bench_client::process::Processes;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

const START_MAX: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);

/// How the pilot is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) log: PathBuf,
}

/// A running pilot. Dropping it kills it.
pub(crate) struct Pilot {
    child: Child,
    _output: Lines<BufReader<ChildStdout>>,
    /// Where proxies connect.
    pub(crate) address: SocketAddr,
    metrics: String,
    pub(crate) process: Processes,
}

impl Launch {
    /// Starts the pilot and waits until it has read everything.
    pub(crate) async fn start(&self, listen: &str) -> anyhow::Result<Pilot> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut command = Command::new(&self.binary);
        command.args(["mesh", "pilot", "--trust-node-ids", "--listen", listen, "--log", "warn"]);
        command.args(["--debug-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.binary.display()))?;
        let mut output = BufReader::new(child.stdout.take().context("the pilot has no standard output")?).lines();
        let (mut address, mut metrics) = (None, None);
        while metrics.is_none() {
            let line = timeout(START_MAX, output.next_line()).await.context("the pilot says nothing")?;
            let line = line.context("cannot read the pilot")?;
            let line = line.with_context(|| format!("the pilot has ended: {}", tail(&self.log)))?;
            if let Some(text) = line.strip_prefix("proxies: ") {
                address = Some(text.parse().context("the pilot's address is none")?);
            }
            metrics = line.strip_prefix("metrics and health: http://").map(str::to_owned);
        }
        let id = child.id().context("the pilot has ended")?;
        let pilot = Pilot {
            child,
            _output: output,
            address: address.context("the pilot names no address")?,
            metrics: metrics.unwrap_or_default(),
            process: Processes { ids: vec![id] },
        };
        let start = Instant::now();
        while !pilot.get("/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            anyhow::ensure!(start.elapsed() < START_MAX, "the pilot is not ready: {}", tail(&self.log));
            sleep(LOOK).await;
        }
        Ok(pilot)
    }
}

impl Pilot {
    async fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(&self.metrics).await.context("cannot connect to the pilot's metrics")?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: pilot\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.context("cannot ask the pilot")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.context("cannot ask the pilot")?;
        Ok(answer)
    }

    /// A metric by its name, if the pilot has it.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let answer = self.get("/metrics").await?;
        Ok(answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok()))
    }

    /// Kills it, as `kill -9` does.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the pilot")
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
