//! Asks a real kube-apiserver and a server of this project the same generated questions, and says where the answers differ.
//!
//! `cargo xtask differential` builds and starts both servers and this program. A run is a function of its seed, of the schemas that
//! the kube-apiserver serves, and of the objects in `seeds`. It ends with code 1 when a difference is not among the accepted ones.

mod accepted;
mod answer;
mod case;
mod difference;
mod generate;
mod kind;
mod mutation;
mod report;
mod run;
mod schema;
mod seeds;
mod server;
mod shrink;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Compares the answers of two servers.
#[derive(Parser)]
struct Options {
    /// The kubeconfig-free address of the kube-apiserver, as https://HOST:PORT
    #[arg(long)]
    upstream: String,
    /// The file with the certificates by which the kube-apiserver is known
    #[arg(long)]
    upstream_ca: PathBuf,
    /// The address of the server that is held against it
    #[arg(long)]
    server: String,
    /// The file with the certificates by which that server is known
    #[arg(long)]
    server_ca: PathBuf,
    /// The bearer token of an administrator of both
    #[arg(long)]
    token: String,
    /// Where the generator starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many requests are generated
    #[arg(long, default_value_t = 5_000)]
    cases: usize,
    /// Only kinds whose plural contains this
    #[arg(long, default_value = "")]
    only: String,
    /// How many requests are under way at once
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// The list of differences that are accepted, each with its reason
    #[arg(long)]
    accepted: Option<PathBuf>,
    /// Write every difference to this file too, a line of JSON each
    #[arg(long)]
    json: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    // Only an earlier call in the same process could fail this.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run::run(&options).await {
        Ok(report) if report.n_unexpected() == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::from(2)
        }
    }
}
