//! Three servers on three members of etcd, behind one address, of which one is killed each minute and started again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use crate::shared::etcd::{Durability, Etcd, free_port};
use crate::shared::process::{Heard, Running};
use crate::shared::steersman::{Role, Steersman};

const MEMBERS: usize = 3;
const SERVERS: usize = 3;
/// The time between the killing of one server and that of the next.
const KILLED_EVERY: Duration = Duration::from_secs(60);
/// How long the forwarder may take to listen.
const START_MAX: Duration = Duration::from_secs(60);

/// Running servers. Dropping them kills them.
pub(crate) struct Replicas {
    /// The kubeconfig of their common address.
    pub(crate) kubeconfig: PathBuf,
    killer: JoinHandle<anyhow::Result<Killed>>,
    stop: mpsc::SyncSender<()>,
    _forwarder: Running,
    _etcd: Etcd,
}

/// The servers at the end, and how many were killed before.
struct Killed {
    servers: Vec<Steersman>,
    n_killed: usize,
}

impl Replicas {
    /// Starts all of it in `scratch`, the servers with `extra` flags.
    pub(crate) fn start(binary: &Path, etcd: &Path, scratch: &Path, extra: &[&str]) -> anyhow::Result<Replicas> {
        let etcd = Etcd::start(etcd, scratch, MEMBERS, Durability::Unsynced)?;
        let ports = (0..SERVERS).map(|_| free_port()).collect::<anyhow::Result<Vec<u16>>>()?;
        let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let replica = Replica {
            binary: binary.to_owned(),
            scratch: scratch.to_owned(),
            flags: [&["--etcd-servers", &*etcd.url], extra].concat().into_iter().map(str::to_owned).collect(),
            addresses: addresses.clone(),
        };
        let servers = (0..SERVERS).map(|index| replica.start(index)).collect::<anyhow::Result<Vec<_>>>()?;

        let mut forward = Command::new(binary);
        forward.args(["forward", "--listen", "127.0.0.1:0", "--servers", &addresses.join(",")]);
        let forwarder = Running::start(&mut forward)?;
        let Heard::Line(line) = forwarder.listen(START_MAX) else { anyhow::bail!("steersman forward does not start") };
        let address = line.split(' ').nth(1).with_context(|| format!("no address in {line:?}"))?;
        // Beside the certificates, where some clients look for them.
        let kubeconfig = scratch.join("server-0/replicas.kubeconfig");
        servers[0].ready.kubeconfig_for(&format!("https://{address}"), &kubeconfig)?;

        let (stop, stopped) = mpsc::sync_channel(1);
        let killer = std::thread::spawn(move || kill_in_turn(&replica, servers, &stopped));
        Ok(Replicas { kubeconfig, killer, stop, _forwarder: forwarder, _etcd: etcd })
    }

    /// Stops the servers as an init system would. Returns how many were killed before.
    pub(crate) fn stop(self) -> anyhow::Result<usize> {
        drop(self.stop);
        let killed = self.killer.join().map_err(|_| anyhow::anyhow!("whoever kills servers panicked"))??;
        for server in killed.servers {
            let status = server.stop()?;
            anyhow::ensure!(status.success(), "a server ended with {status} after SIGTERM");
        }
        Ok(killed.n_killed)
    }
}

/// A server's program, flags and addresses, with which it is started again.
struct Replica {
    binary: PathBuf,
    scratch: PathBuf,
    flags: Vec<String>,
    addresses: Vec<String>,
}

impl Replica {
    fn start(&self, index: usize) -> anyhow::Result<Steersman> {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let (data, log) = (format!("server-{index}"), format!("server-{index}.log"));
        let (data, log) = (self.scratch.join(data), self.scratch.join(log));
        Steersman::start_at(&self.binary, Role::Server, &data, &self.addresses[index], &flags, &log)
    }
}

/// Kills one server after the other and starts it again, until it is told to stop.
fn kill_in_turn(replica: &Replica, servers: Vec<Steersman>, stopped: &mpsc::Receiver<()>) -> anyhow::Result<Killed> {
    let mut servers: Vec<Option<Steersman>> = servers.into_iter().map(Some).collect();
    let mut n_killed = 0;
    while stopped.recv_timeout(KILLED_EVERY) == Err(RecvTimeoutError::Timeout) {
        let index = n_killed % SERVERS;
        servers[index] = None;
        servers[index] = Some(replica.start(index).context("a server that was killed does not start")?);
        n_killed += 1;
    }
    Ok(Killed { servers: servers.into_iter().flatten().collect(), n_killed })
}
