//! `cargo xtask bench`: measures the product's targets.

mod cel;
mod envtest;
mod etcd;
mod figure;
mod hostile;
mod loops;
mod mesh;
mod runtime;
mod server;
mod up;

use std::process::ExitCode;

use crate::shared::workspace::Workspace;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Rules of a definition, evaluated and compiled, compared with Kubernetes' own validator on cel-go
    Cel(cel::Options),
    /// Milliseconds from the start of a control plane to its end, from Go by envtest and from a shell, alone and twenty at once
    Envtest(envtest::Options),
    /// A server on etcd beside etcd alone, a kube-apiserver on etcd, and a server on its embedded store
    Etcd(etcd::Options),
    /// Attacks the API server as two users with few rights, and measures other clients; --help lists the flags
    Hostile(hostile::Options),
    /// The control loops of steersman up: 1,000 Pods created, 10,000 dependents collected, a namespace deleted, and the
    /// cost at rest
    Loops(loops::Options),
    /// The pilot of a mesh with 1,000 fake proxies: time until a change has reached them, its processor time and memory
    Mesh(mesh::Options),
    /// The library compared with kube-runtime and client-go: time to sync, memory, updates, lookups, the work queue
    Runtime(runtime::Options),
    /// An API server under load, ours or that of any kubeconfig: rates, cost per request, memory; --help lists the flags
    Server(server::Options),
    /// Milliseconds from exec until /readyz answers 200, and idle resident memory
    Up(up::Options),
}

pub(crate) fn run(workspace: &Workspace, command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Cel(options) => cel::run(workspace, options),
        Command::Envtest(options) => envtest::run(workspace, options),
        Command::Etcd(options) => etcd::run(workspace, options),
        Command::Hostile(options) => hostile::run(workspace, options),
        Command::Loops(options) => loops::run(workspace, options),
        Command::Mesh(options) => mesh::run(workspace, options),
        Command::Runtime(options) => runtime::run(workspace, options),
        Command::Server(options) => server::run(workspace, options),
        Command::Up(options) => up::run(workspace, options),
    }
}
