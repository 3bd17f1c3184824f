//! `cargo xtask bench hostile`: what others notice while two users with few rights attack a server, and what it takes.
//!
//! Starts a server, sets the stage, times reads at rest, then sends each kind of request by itself and all kinds together, eight
//! at a time. The exit code says whether the reads and the memory stayed within what docs/performance.md promises.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use steersman_hostile::attack::{self, Results};
use steersman_hostile::client::{Protocol, Request, Target};
use steersman_hostile::process::Process;
use steersman_hostile::report::{self, GROWN_MB, READ_P99_MS};
use steersman_hostile::requests::{self, Material};
use steersman_hostile::schema::{self, List};
use steersman_hostile::stage::{self, ADMIN, USERS};
use steersman_hostile::watches::{self, Over};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// How long reads are timed at rest.
const REST: Duration = Duration::from_secs(5);
/// Large objects that are watched without being read: more than the kernel holds for a connection.
const LARGE_OBJECTS: usize = 12;

#[derive(Parser)]
#[command(name = "cargo xtask bench hostile")]
struct Flags {
    /// The server to be started: path of the steersman binary
    #[arg(long)]
    server: PathBuf,
    /// Where it keeps its data
    #[arg(long)]
    scratch: PathBuf,
    /// Seed of the generator; printed, so that a run can be repeated
    #[arg(long)]
    seed: Option<u64>,
    /// Requests of each kind
    #[arg(long, default_value_t = 8)]
    requests: usize,
    /// Ten times as many requests of each kind
    #[arg(long)]
    long: bool,
    /// Only kinds whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Watches that are not read, over HTTP and over WebSocket
    #[arg(long, default_value_t = 1_000)]
    watches: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Flags::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hostile: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A server that is killed when this is dropped.
struct Server {
    _child: Child,
    process: Process,
    target: Target,
}

impl Server {
    async fn start(binary: &Path, scratch: &Path) -> anyhow::Result<Server> {
        std::fs::create_dir_all(scratch)?;
        let (tokens, data) = (scratch.join("tokens.csv"), scratch.join("data"));
        std::fs::write(&tokens, stage::tokens())?;
        let mut command = Command::new(binary);
        command.arg("server").arg("--data-dir").arg(&data).args(["--listen", "127.0.0.1:0", "--output", "json"]);
        command
            .arg("--token-auth-file")
            .arg(&tokens)
            .arg("--controllers=-*")
            .env("HOME", scratch)
            .env("RUST_LOG", "error");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the server ended before it was ready")?;
        let ready: Value = serde_json::from_str(&line)?;
        let target = Target::new(ready["listen"].as_str().context("no address")?, &data.join("pki/ca.crt"))?;
        let process = Process(child.id().context("the server has ended")?);
        Ok(Server { _child: child, process, target })
    }
}

async fn run(flags: &Flags) -> anyhow::Result<bool> {
    let seed = flags.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    let n_each = if flags.long { flags.requests * 10 } else { flags.requests };
    println!("seed {seed}, {n_each} requests of each kind, {} at a time", attack::AT_A_TIME);
    let server = Server::start(&flags.server, &flags.scratch.join("requests")).await?;
    let mut admin = server.target.user(ADMIN, Protocol::Http1);
    stage::set(&mut admin).await?;
    let lists = schema::lists(&mut admin).await?;
    println!("{} lists of kinds in namespaces; p50, p99 and longest of the reads; peak over idle", lists.len());
    let mut is_good = true;
    let rest = attack::rest(&server.target, server.process, REST).await?;
    println!("{}", report::line("at rest", &rest));

    let mut everything = Vec::new();
    for (index, (family, make)) in requests::ALL.iter().enumerate() {
        if flags.only.as_ref().is_some_and(|only| !family.contains(only.as_str())) {
            continue;
        }
        let made: Vec<(usize, Request)> = (0..n_each)
            .map(|n| {
                (
                    n % USERS.len(),
                    Request {
                        family,
                        ..make(&mut material(&lists, n % USERS.len(), seed + (index * 1_000 + n) as u64))
                    },
                )
            })
            .collect();
        let results = attack::run(&server.target, server.process, made.clone()).await?;
        println!("{}", report::line(family, &results));
        is_good &= judge(&results);
        everything.extend(made);
    }
    everything.shuffle(&mut StdRng::seed_from_u64(seed));
    let results = attack::run(&server.target, server.process, everything).await?;
    println!("{}", report::line("all kinds together", &results));
    print!("\n{}", report::families(&results));
    is_good &= judge(&results);
    drop((admin, server));

    for over in [Over::Http, Over::WebSocket] {
        let server = Server::start(&flags.server, &flags.scratch.join(format!("{over:?}"))).await?;
        watches::make_large_objects(&mut server.target.user(ADMIN, Protocol::Http1), LARGE_OBJECTS).await?;
        let idle = server.process.resident_mb()?;
        server.process.reset_peak()?;
        let streams = watches::open(&server.target, over, flags.watches).await?;
        let results = attack::rest(&server.target, server.process, REST).await?;
        let results = Results { idle_mb: idle, ..results };
        println!("{}", report::line(&format!("{} watches over {over:?} unread", streams.len()), &results));
        is_good &= judge(&results);
    }
    Ok(is_good)
}

fn material(lists: &[List], user: usize, seed: u64) -> Material<'_> {
    Material { lists, namespace: USERS[user].0, rng: StdRng::seed_from_u64(seed) }
}

/// Whether an attack stayed without effect; what did not is printed.
fn judge(results: &Results) -> bool {
    let mut faults = results.faults();
    let [_, p99, _] = report::percentiles(&results.reads);
    if p99 >= READ_P99_MS {
        faults.push(format!("the reads took {p99:.0} ms at the 99th percentile, not {READ_P99_MS:.0}"));
    }
    if results.grown_mb() >= GROWN_MB {
        faults.push(format!("the server took {:.0} MB more, not {GROWN_MB:.0}", results.grown_mb()));
    }
    faults.iter().take(5).for_each(|fault| println!("    {fault}"));
    faults.is_empty()
}
