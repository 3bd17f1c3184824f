//! A real kube-apiserver with its etcd, built from their Go modules and started on loopback.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::shared::etcd::{Durability, Etcd, free_port};
use crate::shared::process::{Running, until};
use crate::shared::steersman::Ready;
use crate::shared::tools;
use crate::shared::workspace::Workspace;

/// The directory of kube-apiserver's main package, below the root of the workspace.
const DIRECTORY: &str = "tests/reference/kube-apiserver";
/// The version that the kube-apiserver reports, which is that of the module it is built from.
const VERSION: &str = "v1.36.3";

/// How long a kube-apiserver may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(90);

/// The built programs.
pub(crate) struct Reference {
    pub(crate) etcd: PathBuf,
    /// `None` if only etcd was built.
    apiserver: Option<PathBuf>,
}

/// A running kube-apiserver, and its etcd unless that was there before. They are dropped in this order.
pub(crate) struct Upstream {
    apiserver: Running,
    _etcd: Option<Etcd>,
    pub(crate) address: String,
    /// The CA of its certificate.
    pub(crate) ca: PathBuf,
}

impl Reference {
    /// Builds both. Go caches the build, so that only the first one takes minutes.
    pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<Reference> {
        eprintln!("building etcd and kube-apiserver {VERSION}");
        let version = format!("-X k8s.io/component-base/version.gitVersion={VERSION}");
        let directory = workspace.root.join(DIRECTORY);
        let apiserver = tools::go_program(workspace, "kube-apiserver", &directory, &["-ldflags", &version, "."])?;
        Ok(Reference { etcd: tools::etcd(workspace)?, apiserver: Some(apiserver) })
    }

    /// Builds etcd alone.
    pub(crate) fn of_etcd(workspace: &Workspace) -> anyhow::Result<Reference> {
        Ok(Reference { etcd: tools::etcd(workspace)?, apiserver: None })
    }

    /// Starts both with their data and logs in `directory`. The directory `pki` of a server of this tree has its certificates; the CA signs
    /// tokens of ServiceAccounts too.
    pub(crate) fn start(&self, directory: &Path, tokens: &Path, pki: &Path) -> anyhow::Result<Upstream> {
        let etcd = self.start_etcd(directory)?;
        let upstream = self.start_on(&etcd, directory, tokens, pki)?;
        Ok(Upstream { _etcd: Some(etcd), ..upstream })
    }

    /// Starts etcd alone, with its data and log in `directory`.
    pub(crate) fn start_etcd(&self, directory: &Path) -> anyhow::Result<Etcd> {
        Etcd::start(&self.etcd, directory, 1, Durability::Unsynced)
    }

    /// Starts a kube-apiserver on an etcd.
    pub(crate) fn start_on(
        &self,
        etcd: &Etcd,
        directory: &Path,
        tokens: &Path,
        pki: &Path,
    ) -> anyhow::Result<Upstream> {
        let log = directory.join("kube-apiserver.log");
        let log = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let secure = free_port()?;
        let mut apiserver = Command::new(self.apiserver.as_ref().context("kube-apiserver was not built")?);
        apiserver.args(["--etcd-servers", &etcd.url, "--bind-address", "127.0.0.1", "--allow-privileged"]);
        apiserver.args(["--secure-port", &secure.to_string(), "--authorization-mode", "Node,RBAC"]);
        apiserver.args(["--disable-admission-plugins", "ServiceAccount", "--service-cluster-ip-range", "10.96.0.0/16"]);
        apiserver.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        // It reads a public key out of a certificate, but not out of an elliptic private key in PKCS #8.
        apiserver.arg("--service-account-key-file").arg(pki.join("ca.crt"));
        apiserver.arg("--service-account-signing-key-file").arg(pki.join("ca.key"));
        apiserver.args(["--max-requests-inflight", "4000", "--max-mutating-requests-inflight", "4000"]);
        apiserver.arg("--token-auth-file").arg(tokens).arg("--anonymous-auth=false");
        apiserver.arg("--tls-cert-file").arg(pki.join("server.crt"));
        apiserver.arg("--tls-private-key-file").arg(pki.join("server.key"));
        apiserver.arg("--client-ca-file").arg(pki.join("ca.crt"));
        let apiserver = Running::start(apiserver.stderr(log))?;
        Ok(Upstream { apiserver, _etcd: None, address: format!("https://127.0.0.1:{secure}"), ca: pki.join("ca.crt") })
    }
}

impl Upstream {
    /// The id of the kube-apiserver's process.
    pub(crate) fn id(&self) -> u32 {
        self.apiserver.id()
    }

    /// The resident memory of the kube-apiserver in bytes.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.apiserver.resident_bytes()
    }

    /// Waits until it is ready, and writes a kubeconfig out of that of a server with the same certificates.
    pub(crate) fn kubeconfig(&self, of_other: &Ready, path: &Path) -> anyhow::Result<()> {
        of_other.kubeconfig_for(&self.address, path)?;
        let address: SocketAddr = self.address.trim_start_matches("https://").parse().context("no address")?;
        until("that kube-apiserver listens", READY_MAX, || TcpStream::connect(address).is_ok())
    }
}
