//! `cargo xtask faults`: several servers on several members of etcd, broken by seed while clients work, and a check of
//! everything that the clients saw.
//!
//! Nothing that was acknowledged may be lost, every answer must be one that a single server that never fails could have
//! given, every watch must have every change once and in order, and in the end all members must hold the same. The exit
//! code is 1 if not, and the processes' logs stay.

mod check;
mod client;
mod cluster;
mod fault;
mod history;
mod link;
mod workload;

use crate::client::Client;
use crate::cluster::{Cluster, Programs};
use crate::fault::{Event, Kind};
use crate::history::{History, Outcome};
use crate::workload::{Clients, Workload};
use anyhow::Context as _;
use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long the last events of watches may take once everything is mended.
const SETTLES: Duration = Duration::from_secs(120);

/// The most faults of a run of which each is printed.
const DETAILED_MAX: usize = 50;

/// How often the members are asked for their hashes.
const HASH_ATTEMPTS: usize = 20;

#[derive(Parser)]
#[command(name = "cargo xtask faults")]
struct Flags {
    /// Path of the steersman binary
    #[arg(long)]
    server: PathBuf,
    /// Path of the etcd binary
    #[arg(long)]
    etcd: PathBuf,
    /// An empty directory for data and logs
    #[arg(long)]
    scratch: PathBuf,
    /// Seed of the faults; printed, so that a run can be repeated
    #[arg(long)]
    seed: Option<u64>,
    /// The number of faults, one after the other
    #[arg(long, default_value_t = 1_000)]
    faults: usize,
    #[arg(long, default_value_t = 3)]
    members: usize,
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// Clients that write and read
    #[arg(long, default_value_t = 6)]
    clients: u64,
    /// Faults of this kind alone
    #[arg(long)]
    only: Option<Kind>,
    /// Seconds without a fault after each, so that what one costs can be told; with at most 50 faults it is printed
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    rest: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Another crate may have installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(&Flags::parse()).await {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            println!("\n{} violations:", faults.len());
            faults.iter().take(50).for_each(|fault| println!("- {fault}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: &Flags) -> anyhow::Result<Vec<String>> {
    let seed = flags.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    println!("seed {seed}: {} faults over {} members and {} servers", flags.faults, flags.members, flags.servers);
    let Flags { server, etcd, scratch, .. } = flags;
    let programs = Programs { etcd: etcd.clone(), server: server.clone(), scratch: scratch.clone() };
    std::fs::create_dir_all(scratch)?;
    let mut cluster = Cluster::start(&programs, flags.members, flags.servers).await?;
    let client = Client::new(&scratch.join("server-0/pki/ca.crt"), &cluster.addresses)?;
    let (after, _) = client.list(0).await.context("the first list failed")?;
    let load = Workload::new(client);
    let mut clients = workload::start(&load, seed, flags.clients, after);

    let begun = Instant::now();
    let Broken { times, ended } = break_all(flags, seed, &mut cluster, &load).await?;
    let broken_for = begun.elapsed();
    if let Some(ended) = ended {
        return Ok(vec![ended]);
    }

    load.stop();
    let mut faults = Vec::new();
    let history = recorded(&load, &mut clients, &mut faults).await?;
    faults.extend(unready(flags, &load).await);
    faults.extend(different_members(&cluster).await?);
    faults.extend(check::check(&history));
    if flags.faults <= DETAILED_MAX {
        times.iter().for_each(|(event, during)| report_of(event, during, &history));
    }
    report(&history, broken_for, load.n_gone.load(Ordering::SeqCst));
    if faults.is_empty() {
        drop(cluster);
        std::fs::remove_dir_all(scratch)?;
    }
    Ok(faults)
}

/// The faults that happened.
struct Broken {
    /// Each fault, and the time until the next one.
    times: Vec<(Event, Range<Duration>)>,
    /// A sentence about a process that ended by itself.
    ended: Option<String>,
}

/// Lets the faults of a seed happen, one after the other.
async fn break_all(flags: &Flags, seed: u64, cluster: &mut Cluster, load: &Workload) -> anyhow::Result<Broken> {
    let mut random = StdRng::seed_from_u64(seed);
    let begun = Instant::now();
    let mut times = Vec::new();
    for number in 0..flags.faults {
        let event = match flags.only {
            Some(kind) => fault::draw_kind(&mut random, flags.members, flags.servers, kind),
            None => fault::draw(&mut random, flags.members, flags.servers),
        };
        if flags.faults <= DETAILED_MAX || number % 50 == 0 {
            println!("{:6.1} s  {number}: {event}", begun.elapsed().as_secs_f64());
        }
        let since = load.now();
        event.happen(cluster).await.with_context(|| format!("fault {number}: {event}"))?;
        let mut processes = cluster.servers.iter_mut().chain(&mut cluster.members);
        if let Some(process) = processes.find_map(|process| process.has_ended().then_some(process)) {
            let log = process.log();
            let ended = format!("{} ended by itself during {event}: see {}", process.name, log.display());
            return Ok(Broken { times, ended: Some(ended) });
        }
        sleep(Duration::from_secs(flags.rest) + Duration::from_millis(random.random_range(0..1_000))).await;
        times.push((event, since..load.now()));
    }
    Ok(Broken { times, ended: None })
}

/// Everything that the clients saw, once their watches have seen the end.
async fn recorded(load: &Workload, clients: &mut Clients, faults: &mut Vec<String>) -> anyhow::Result<History> {
    let mut history = History::default();
    while let Some(operations) = clients.workers.join_next().await {
        history.operations.extend(operations?);
    }
    while let Some(listings) = clients.listers.join_next().await {
        history.listings.extend(listings?);
    }
    let (_, end) = load.mark_end().await?;
    let watched = async {
        while let Some(watches) = clients.watchers.join_next().await {
            history.watches.extend(watches?);
        }
        anyhow::Ok(())
    };
    match timeout(SETTLES, watched).await {
        Ok(watched) => watched?,
        Err(_) => faults.push(format!("a watch did not reach version {end} within {} s", SETTLES.as_secs())),
    }
    Ok(history)
}

/// Sentences about the servers that are not ready although everything is mended.
async fn unready(flags: &Flags, load: &Workload) -> Vec<String> {
    let mut faults = Vec::new();
    for server in 0..flags.servers {
        let ready = async {
            while !load.client.is_ready(server).await {
                sleep(Duration::from_millis(200)).await;
            }
        };
        if timeout(SETTLES, ready).await.is_err() {
            faults.push(format!("server {server} is not ready after everything was mended"));
        }
    }
    faults
}

/// A sentence about members that do not hold the same.
async fn different_members(cluster: &Cluster) -> anyhow::Result<Option<String>> {
    let mut hashes = Vec::new();
    // Servers still renew their Leases, so the members are asked again until they are asked between two writes.
    for _ in 0..HASH_ATTEMPTS {
        hashes = cluster.hashes().await.context("the members' hashes cannot be read")?;
        if hashes.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(None);
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(Some(format!("the members hold different data: {hashes:?}")))
}

/// The longest operation that began while a fault lasted, or in the rest after it.
fn report_of(event: &Event, during: &Range<Duration>, history: &History) {
    let begun = history.operations.iter().filter(|operation| during.contains(&operation.began));
    let unknown = begun.clone().filter(|operation| operation.outcome == Outcome::Unknown).count();
    let longest = begun.map(|operation| operation.ended - operation.began).max().unwrap_or_default();
    println!("{event}: the longest operation took {:.1} s, {unknown} of unknown outcome", longest.as_secs_f64());
}

fn report(history: &History, took: Duration, n_gone: u64) {
    let n = |is_counted: fn(&Outcome) -> bool| {
        history.operations.iter().filter(|operation| is_counted(&operation.outcome)).count()
    };
    let unknown = n(|outcome| *outcome == Outcome::Unknown);
    let refused = n(|outcome| matches!(outcome, Outcome::Conflict | Outcome::Absent));
    let mut times: Vec<Duration> =
        history.operations.iter().map(|operation| operation.ended - operation.began).collect();
    times.sort_unstable();
    let percentile = |part: usize| times.get(times.len() * part / 1_000).copied().unwrap_or_default().as_secs_f64();
    let events: usize = history.watches.iter().map(|watch| watch.events.len()).sum();
    println!(
        "{:.0} s of faults: {} operations, of which {refused} refused and {unknown} of unknown outcome; of 1,000 operations 990 within {:.2} s, 999 within {:.2} s, the longest {:.1} s; {} lists; \
         {events} events of {} watches, {n_gone} begun anew",
        took.as_secs_f64(),
        history.operations.len(),
        percentile(990),
        percentile(999),
        times.last().copied().unwrap_or_default().as_secs_f64(),
        history.listings.len(),
        history.watches.len(),
    );
}
