//! A real kube-apiserver with its etcd, built from their Go modules and started on loopback.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::process::{Running, capture};
use crate::tools;
use crate::workspace::Workspace;

/// The directory of the main package of each, below the root of the workspace.
const DIRECTORY: &str = "tests/reference";
/// The version that the kube-apiserver reports, which is that of the module it is built from.
const VERSION: &str = "v1.36.3";

/// The built programs.
pub(crate) struct Reference {
    etcd: PathBuf,
    apiserver: PathBuf,
}

/// Both programs, running.
pub(crate) struct Upstream {
    // Dropped in this order: the server before its store.
    _apiserver: Running,
    _etcd: Running,
    pub(crate) address: String,
    /// The directory in which the server creates its certificates at its start.
    pub(crate) certificates: PathBuf,
}

impl Reference {
    /// Builds both. Go caches the build, so that only the first one takes minutes.
    pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<Reference> {
        let build = |name: &str| {
            let path = workspace.tools().join(name);
            let mut command = Command::new(tools::program("go")?);
            let version = format!("-X k8s.io/component-base/version.gitVersion={VERSION}");
            command.args(["build", "-mod=readonly", "-buildvcs=false", "-ldflags", &version, "-o"]).arg(&path).arg(".");
            capture(command.current_dir(workspace.root.join(DIRECTORY).join(name)))?;
            anyhow::Ok(path)
        };
        eprintln!("building etcd and kube-apiserver {VERSION}");
        Ok(Reference { etcd: tools::etcd(workspace)?, apiserver: build("kube-apiserver")? })
    }

    /// Starts both with their data and logs in `directory`. The CA in the directory `pki` signs tokens of ServiceAccounts.
    pub(crate) fn start(&self, directory: &Path, tokens: &Path, pki: &Path) -> anyhow::Result<Upstream> {
        let log = |name: &str| {
            let path = directory.join(name);
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))
        };
        let (client, peer, secure) = (free_port()?, free_port()?, free_port()?);
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let mut etcd = Command::new(&self.etcd);
        etcd.arg("--data-dir").arg(directory.join("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]).stderr(log("etcd.log")?);
        let etcd = Running::start(&mut etcd)?;
        let certificates = directory.join("certificates");
        let mut apiserver = Command::new(&self.apiserver);
        apiserver.args(["--etcd-servers", &client, "--bind-address", "127.0.0.1", "--allow-privileged"]);
        apiserver.args(["--secure-port", &secure.to_string(), "--authorization-mode", "Node,RBAC"]);
        apiserver.args(["--disable-admission-plugins", "ServiceAccount", "--service-cluster-ip-range", "10.96.0.0/16"]);
        apiserver.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        // It reads a public key out of a certificate, but not out of an elliptic private key in PKCS #8.
        apiserver.arg("--service-account-key-file").arg(pki.join("ca.crt"));
        apiserver.arg("--service-account-signing-key-file").arg(pki.join("ca.key"));
        apiserver.args(["--max-requests-inflight", "4000", "--max-mutating-requests-inflight", "4000"]);
        apiserver.arg("--token-auth-file").arg(tokens).arg("--cert-dir").arg(&certificates);
        let apiserver = Running::start(apiserver.stderr(log("kube-apiserver.log")?))?;
        Ok(Upstream {
            _apiserver: apiserver,
            _etcd: etcd,
            address: format!("https://127.0.0.1:{secure}"),
            certificates: certificates.join("apiserver.crt"),
        })
    }
}

/// A port that nobody listens on.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}
