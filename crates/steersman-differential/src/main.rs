//! Asks a real kube-apiserver and a server of this project the same generated questions, and says where the answers differ.
//!
//! `cargo xtask differential` builds and starts both servers and this program. A comparison is a function of its seed, of the schemas that
//! the kube-apiserver serves, and of the objects in `seeds`. Its answers can be recorded, and replayed without a
//! kube-apiserver. The program ends with code 1 when a difference is not among the accepted ones.

mod accepted;
mod answer;
mod corpus;
mod difference;
mod pairs;
mod report;
mod requests;
mod run;
mod server;
mod shared;
mod shrink;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Compares the answers of a server with those of a kube-apiserver.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generates requests, and sends each to both servers
    Compare(Compare),
    /// Makes objects of all kinds on a server
    Fill(Fill),
    /// Changes something at one of two servers on one etcd, and uses the change at the other at once
    Pairs(Pairs),
    /// Sends the requests of a corpus, which has the answers of a kube-apiserver
    Replay(Replay),
    /// Compares all objects of two servers on one etcd
    Same(Same),
}

#[derive(Args)]
struct Compare {
    #[command(flatten)]
    common: Common,
    /// The address of the kube-apiserver, as https://HOST:PORT
    #[arg(long)]
    upstream: String,
    /// The file with the certificates by which the kube-apiserver is known
    #[arg(long)]
    upstream_ca: PathBuf,
    /// The seed of the generator
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of requests that are generated
    #[arg(long, default_value_t = 5_000)]
    cases: usize,
    /// Only kinds whose plural contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Write the requests that both servers answer alike, or in an accepted way, into a corpus
    #[arg(long)]
    record: Option<PathBuf>,
}

#[derive(Args)]
struct Replay {
    #[command(flatten)]
    common: Common,
    /// The corpus
    corpus: PathBuf,
}

#[derive(Args)]
struct Fill {
    #[command(flatten)]
    common: Common,
    /// The seed of the generator
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of objects that the server is sent
    #[arg(long, default_value_t = 1_000)]
    objects: usize,
}

#[derive(Args)]
struct Pairs {
    #[command(flatten)]
    common: Common,
    /// The address of the other server, as https://HOST:PORT
    #[arg(long)]
    other: String,
    /// The file with the certificates by which the other server is known
    #[arg(long)]
    other_ca: PathBuf,
    /// The bearer token of the user alice, who may do nothing
    #[arg(long)]
    user_token: String,
    /// The number of pairs
    #[arg(long, default_value_t = 1_000)]
    pairs: usize,
}

#[derive(Args)]
struct Same {
    #[command(flatten)]
    common: Common,
    /// The address of the other server, as https://HOST:PORT
    #[arg(long)]
    upstream: String,
    /// The file with the certificates by which the other server is known
    #[arg(long)]
    upstream_ca: PathBuf,
}

#[derive(Args)]
struct Common {
    /// The address of the server that is compared, as https://HOST:PORT
    #[arg(long)]
    server: String,
    /// The file with the certificates by which that server is known
    #[arg(long)]
    server_ca: PathBuf,
    /// The bearer token of an administrator
    #[arg(long)]
    token: String,
    /// The number of requests under way at once
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
    let n_unexpected = match &options.command {
        Command::Compare(compare) => run::compare(compare).await.map(|report| report.n_unexpected()),
        Command::Fill(fill) => shared::fill(fill).await.map(|()| 0),
        Command::Pairs(pairs) => pairs::pairs(pairs).await,
        Command::Replay(replay) => run::replay(replay).await.map(|report| report.n_unexpected()),
        Command::Same(same) => shared::same(same).await,
    };
    match n_unexpected {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::from(2)
        }
    }
}
