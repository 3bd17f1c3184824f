//! The members of etcd and the servers: processes on loopback with links between them, which can be killed, stopped and
//! started again.

use crate::link::Link;
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long a process may take until it is ready.
const READY: Duration = Duration::from_secs(90);
/// The token of the administrator at all servers.
pub(crate) const TOKEN: &str = "administrator";

/// The programs and where they work.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    pub(crate) server: PathBuf,
    pub(crate) scratch: PathBuf,
}

pub(crate) struct Cluster {
    pub(crate) members: Vec<Process>,
    pub(crate) servers: Vec<Process>,
    /// From each server to each member.
    pub(crate) links: Vec<Vec<Link>>,
    /// To each member from the other members.
    pub(crate) peers: Vec<Link>,
    /// Where each server listens.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Where each member listens for clients.
    pub(crate) member_addresses: Vec<SocketAddr>,
}

/// A process that can be started again.
pub(crate) struct Process {
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Cluster {
    /// Starts members and servers, and waits until all are ready.
    pub(crate) async fn start(programs: &Programs, n_members: usize, n_servers: usize) -> anyhow::Result<Cluster> {
        let [clients, peers, servers] = [n_members, n_members, n_servers].map(free_addresses);
        let (member_addresses, peer_addresses, addresses) = (clients?, peers?, servers?);
        let mut peers = Vec::new();
        for peer in &peer_addresses {
            peers.push(Link::to(*peer).await?);
        }
        let cluster: Vec<String> =
            peers.iter().enumerate().map(|(n, link)| format!("m{n}=http://{}", link.address)).collect();
        let mut members = Vec::new();
        for n in 0..n_members {
            let (client, peer) = (format!("http://{}", member_addresses[n]), format!("http://{}", peer_addresses[n]));
            let dir = programs.scratch.join(format!("member-{n}"));
            let flags = [
                ("--name", format!("m{n}")),
                ("--data-dir", dir.display().to_string()),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer),
                ("--initial-advertise-peer-urls", format!("http://{}", peers[n].address)),
                ("--initial-cluster", cluster.join(",")),
                ("--log-level", "warn".to_owned()),
            ];
            let arguments = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
            members.push(Process::new(format!("member-{n}"), &programs.etcd, arguments, &programs.scratch));
        }
        std::fs::write(programs.scratch.join("tokens.csv"), format!("{TOKEN},admin,1,system:masters\n"))?;
        let (mut links, mut servers) = (Vec::new(), Vec::new());
        for (n, address) in addresses.iter().enumerate() {
            let mut of_server = Vec::new();
            for member in &member_addresses {
                of_server.push(Link::to(*member).await?);
            }
            let urls: Vec<String> = of_server.iter().map(|link| format!("http://{}", link.address)).collect();
            let flags = [
                ("--data-dir", programs.scratch.join(format!("server-{n}")).display().to_string()),
                ("--listen", address.to_string()),
                ("--output", "json".to_owned()),
                ("--token-auth-file", programs.scratch.join("tokens.csv").display().to_string()),
                ("--etcd-servers", urls.join(",")),
            ];
            let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
            let arguments = std::iter::once("server".to_owned()).chain(flags).collect();
            servers.push(Process::new(format!("server-{n}"), &programs.server, arguments, &programs.scratch));
            links.push(of_server);
        }
        let mut cluster = Cluster { members, servers, links, peers, addresses, member_addresses };
        for member in &mut cluster.members {
            member.start()?;
        }
        for n in 0..n_members {
            cluster.wait_for_member(n).await?;
        }
        for server in &mut cluster.servers {
            server.start()?;
            server.wait_for_line().await?;
        }
        Ok(cluster)
    }

    /// Waits until a member has a leader.
    pub(crate) async fn wait_for_member(&self, n: usize) -> anyhow::Result<()> {
        let url = format!("http://{}/health", self.member_addresses[n]);
        let client = reqwest::Client::new();
        let deadline = Instant::now() + READY;
        while Instant::now() < deadline {
            let asked = client.get(&url).timeout(Duration::from_secs(2)).send().await;
            if asked.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("member {n} was not healthy after {} s", READY.as_secs())
    }

    /// The hash of what each member holds, and the revision of it.
    pub(crate) async fn hashes(&self) -> anyhow::Result<Vec<(String, String)>> {
        let client = reqwest::Client::new();
        let mut hashes = Vec::new();
        for address in &self.member_addresses {
            let url = format!("http://{address}/v3/maintenance/hashkv");
            let answer = client.post(&url).body(r#"{"revision": "0"}"#).timeout(Duration::from_secs(30)).send().await?;
            let answer: Value = serde_json::from_str(&answer.error_for_status()?.text().await?)?;
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            hashes.push((text(&answer["hash"]), text(&answer["header"]["revision"])));
        }
        Ok(hashes)
    }
}

/// Addresses on loopback that are free now.
fn free_addresses(n: usize) -> anyhow::Result<Vec<SocketAddr>> {
    // All are held until all are known, so that no two are the same.
    let held: Vec<StdListener> = (0..n).map(|_| StdListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    Ok(held.iter().map(StdListener::local_addr).collect::<Result<_, _>>()?)
}

impl Process {
    fn new(name: String, program: &Path, arguments: Vec<String>, scratch: &Path) -> Process {
        let log = scratch.join(format!("{name}.log"));
        Process { name, program: program.to_owned(), arguments, log, child: None }
    }

    /// Starts it; its log goes on.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        self.child = Some(command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?);
        Ok(())
    }

    /// Waits for the line that says that a server is ready.
    pub(crate) async fn wait_for_line(&mut self) -> anyhow::Result<()> {
        let output = self.child.as_mut().and_then(|child| child.stdout.take()).context("it has not been started")?;
        let mut lines = BufReader::new(output).lines();
        let line = timeout(READY, lines.next_line()).await;
        let line = line.with_context(|| format!("{} was not ready after {} s", self.name, READY.as_secs()))??;
        line.map(|_| ()).with_context(|| format!("{} ended before it was ready: see {}", self.name, self.log.display()))
    }

    /// Ends it at once, as a crash would.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await.with_context(|| format!("{} cannot be killed", self.name))?;
        }
        Ok(())
    }

    /// Holds it, as a machine that is suspended would.
    pub(crate) fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn go_on(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(id.with_context(|| format!("{} does not run", self.name))?, signal)?;
        Ok(())
    }
}
