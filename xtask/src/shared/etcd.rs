//! A real etcd of one member on loopback.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::shared::process::{Running, until};

/// How long it may take to listen.
const START_MAX: Duration = Duration::from_secs(30);

/// A running etcd.
pub(crate) struct Etcd {
    _running: Running,
    pub(crate) url: String,
}

impl Etcd {
    /// Starts it with its data and its log in `directory`, and waits until it listens.
    pub(crate) fn start(program: &Path, directory: &Path) -> anyhow::Result<Etcd> {
        let (client, peer) = (free_port()?, free_port()?);
        let (url, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let log = directory.join("etcd.log");
        let log = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut etcd = Command::new(program);
        etcd.arg("--data-dir").arg(directory.join("etcd"));
        etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]).stderr(log);
        let running = Running::start(&mut etcd)?;
        until("that etcd listens", START_MAX, || TcpStream::connect(("127.0.0.1", client)).is_ok())?;
        Ok(Etcd { _running: running, url })
    }
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}
