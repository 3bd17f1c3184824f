//! A real etcd on loopback.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::shared::process::{Running, until};

/// How long it may take to listen.
const START_MAX: Duration = Duration::from_secs(30);

/// Whether a write waits for the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Durability {
    /// As users run it.
    Synced,
    /// Faster, for tests that cut no power.
    Unsynced,
}

/// A running etcd.
pub(crate) struct Etcd {
    members: Vec<Running>,
    /// The addresses of its members, as `--etcd-servers` takes them.
    pub(crate) url: String,
}

impl Etcd {
    /// Starts `n_members` with their data and logs in `directory`, and waits until all of them listen, which they do once there is
    /// a leader.
    pub(crate) fn start(
        program: &Path,
        directory: &Path,
        n_members: usize,
        durability: Durability,
    ) -> anyhow::Result<Etcd> {
        let ports = |_| Ok((free_port()?, free_port()?));
        let ports = (0..n_members).map(ports).collect::<anyhow::Result<Vec<(u16, u16)>>>()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let name = |index: usize| format!("member-{index}");
        let peers = ports.iter().enumerate().map(|(index, (_, peer))| format!("{}={}", name(index), url(*peer)));
        let peers = peers.collect::<Vec<String>>().join(",");
        let mut members = Vec::new();
        for (index, (client, peer)) in ports.iter().enumerate() {
            let (client, peer, name) = (url(*client), url(*peer), name(index));
            let log = directory.join(format!("etcd-{name}.log"));
            let log = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
            let mut etcd = Command::new(program);
            etcd.args(["--name", &name, "--data-dir"]).arg(directory.join(format!("etcd-{name}")));
            etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            etcd.args(["--initial-cluster", &peers]).stderr(log);
            if durability == Durability::Unsynced {
                etcd.arg("--unsafe-no-fsync");
            }
            members.push(Running::start(&mut etcd)?);
        }
        for (client, _) in &ports {
            until("that etcd listens", START_MAX, || TcpStream::connect(("127.0.0.1", *client)).is_ok())?;
        }
        let url = ports.iter().map(|(client, _)| url(*client)).collect::<Vec<String>>().join(",");
        Ok(Etcd { members, url })
    }

    /// The resident memory of all members in bytes.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.members.iter().map(Running::resident_bytes).sum()
    }
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}
