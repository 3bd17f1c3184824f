//! Plays the proxies of a mesh against `steersman mesh pilot`, and prints how long changes take to reach them and what
//! they cost the pilot, as one line of JSON.
//!
//! `cargo xtask bench mesh` starts the API server and runs this twice: with proxies that have everything, and with
//! proxies whose Pods say which Services they call.

mod cluster;
mod fleet;
mod messages;
mod pilot;
mod proxy;
mod scenarios;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench_client::kubeconfig;
use bench_client::target::Target;
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cluster::{Cluster, Shape};
use crate::pilot::Launch;
use crate::scenarios::Bench;

/// Measures the pilot of a mesh
#[derive(Debug, Parser)]
#[command(name = "bench-mesh")]
struct Options {
    /// The cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The steersman whose pilot is measured
    #[arg(long, value_name = "FILE")]
    steersman: PathBuf,
    /// The definitions of the Gateway API
    #[arg(long, value_name = "DIR")]
    definitions: PathBuf,
    /// Where the pilot's log goes
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Fake proxies
    #[arg(long, default_value_t = 1_000)]
    proxies: usize,
    /// Services with three endpoints each
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(20..))]
    services: u64,
    /// Services that each Pod calls; all without it
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=10))]
    calls: Option<u64>,
    /// Pods that call the same
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    replicas: u64,
    /// Changes of each kind
    #[arg(long, default_value_t = 20)]
    changes: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<serde_json::Value> {
    // Every proxy is a connection.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).context("cannot raise the open files")?;
    let shape = Shape {
        n_proxies: options.proxies,
        n_services: usize::try_from(options.services)?,
        n_calls: options.calls.map(usize::try_from).transpose()?,
        replicas: usize::try_from(options.replicas)?,
    };
    let mut cluster = Cluster::connect(Target::new(kubeconfig::read(&options.kubeconfig)?)?).await?;
    cluster.fill(shape, &options.definitions).await.context("the objects of the mesh")?;
    let launch = Launch { binary: options.steersman, kubeconfig: options.kubeconfig, log: options.log };
    Bench { shape, n_changes: options.changes, cluster, launch }.run().await
}
