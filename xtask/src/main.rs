//! Automation for this workspace; `cargo xtask help` lists the commands, one module each.
//!
//! Uses the crates of this workspace only as directories, commands and `cargo metadata`: it links none of them, so that
//! it builds in seconds and works while they do not compile. The exit code is 0 when everything passed, 1 when
//! something failed, 2 when the command line is wrong.

mod bench;
mod ci;
mod clients;
mod cluster;
mod codegen;
mod differential;
mod faults;
mod fuzz;
mod pairs;
mod shared;
mod test;
mod tidy;
mod twins;
mod walks;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::shared::workspace::Workspace;

/// Automation for this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the product
    #[command(subcommand)]
    Bench(bench::Command),
    /// Everything continuous integration checks besides the tests: fmt, clippy, tidy, codegen, doc, metadata of packages, deny
    Ci(ci::Options),
    /// Starts a server and two nodes of real parts (kubelet, containerd, kube-proxy, CoreDNS), and checks Pods, Services and
    /// failures; needs root
    Cluster(cluster::Options),
    /// Regenerates the code that is checked into this repository
    Codegen(codegen::Options),
    /// Sends the same generated requests to a real kube-apiserver and to a server of this tree, and reports where the
    /// answers differ
    Differential(differential::Options),
    /// Breaks several servers on several members of etcd by seed while clients work, and checks what the clients saw
    Faults(faults::Options),
    /// Runs the fuzz targets, from their corpora, until the time is up, and minimizes inputs that crash
    Fuzz(fuzz::Options),
    /// Changes something at one of two servers on one etcd, and uses the change at the other at once
    Pairs(pairs::Options),
    /// Sets up the tools of the tests (kubectl, Neutron, other clients) and runs all tests, including the walks
    Test(test::Options),
    /// Checks the tree against its own rules: crate edges, licences, file shape, words
    Tidy,
    /// Fetches the tools of the tests and prints the variables they look for: eval "$(cargo xtask tools)"
    Tools,
    /// Opens the etcd that a real kube-apiserver has filled, and compares all objects at both
    Twins(twins::Options),
    /// Replays the recorded answers of a real kube-apiserver against `steersman server`
    Walks(walks::Options),
    /// Runs the clients of other projects against a server
    Clients(clients::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::find()?;
    match command {
        Command::Bench(bench) => bench::run(&workspace, bench),
        Command::Ci(options) => ci::run(&workspace, options),
        Command::Cluster(options) => cluster::run(&workspace, options),
        Command::Codegen(options) => codegen::run(&workspace, options),
        Command::Differential(options) => differential::run(&workspace, options),
        Command::Faults(options) => faults::run(&workspace, options),
        Command::Fuzz(options) => fuzz::run(&workspace, options),
        Command::Pairs(options) => pairs::run(&workspace, options),
        Command::Test(options) => test::run(&workspace, options),
        Command::Tidy => tidy::run(&workspace),
        Command::Tools => shared::tools::run(&workspace),
        Command::Twins(options) => twins::run(&workspace, options),
        Command::Walks(options) => walks::run(&workspace, options),
        Command::Clients(options) => clients::run(&workspace, options),
    }
}
