//! Drives a Kubernetes API server, as hard as possible or just once, and reports the cost of each request for that
//! server.
//!
//! It works with any server that a kubeconfig names; `cargo xtask bench server` gives it a fresh `steersman server` for
//! every stage. Each stage is bounded in requests and in time and ends by itself. The resources of a server's processes
//! are read from /proc, so they are known only for servers on the same machine.

mod errors;
mod hook;
mod load;
mod objects;
mod own;
mod results;
mod stage;
mod stages;
mod table;
mod watchers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bench_client::process::Processes;
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::errors::Errors;
use crate::own::Launch;
use crate::results::{ROWS, Results};
use crate::stage::{Bounds, Site, Stage};
use crate::stages::scale::{self, Growth, Scale};
use crate::stages::{ALL, Counts};

/// Measures a Kubernetes API server: requests a second, what each costs the server, and its memory
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench server")]
struct Options {
    /// The server to measure; without it, a fresh steersman server for every stage
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The processes of the server in --kubeconfig, if they run here; their figures are added together
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "kubeconfig")]
    pid: Vec<u32>,
    /// Rows to measure; `list` means `list-table` and its like too
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// The runs of each stage; medians count
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seconds for each row that is measured per second
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    duration: u64,
    /// Seconds after which a row that is not done is cut off
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    limit: u64,
    /// The size of a custom resource, as the server answers it
    #[arg(long, default_value_t = 650, value_name = "BYTES")]
    object_bytes: usize,
    /// Watchers whose memory is measured
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    idle_watchers: u32,
    /// Measure the opening of 1,000,000 objects too; takes minutes
    #[arg(long)]
    million: bool,
    /// Measure how cost grows, instead of the table
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    scale: Vec<Scale>,
    /// The last step of --scale
    #[arg(long, value_name = "N", requires = "scale")]
    scale_max: Option<u64>,
    /// Passed on to steersman server: the time for which old versions are kept
    #[arg(long, value_name = "DURATION", conflicts_with = "kubeconfig")]
    history: Option<String>,
    /// Passed on to steersman server: an etcd that has the objects; each stage has a prefix of its own
    #[arg(long, value_name = "URLS", conflicts_with = "kubeconfig")]
    etcd_servers: Option<String>,
    /// Threads of the load client
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Write the figures here as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The steersman to start
    #[arg(long, value_name = "FILE", requires = "scratch", hide = true)]
    server: Option<PathBuf>,
    /// The directory of its data
    #[arg(long, value_name = "DIR", hide = true)]
    scratch: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(usize::from(options.threads))
        .enable_all()
        .build()
        .context("cannot start the runtime");
    let ran = runtime.and_then(|runtime| runtime.block_on(async { tokio::spawn(run(options)).await? }));
    match ran {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<ExitCode> {
    raise_open_files();
    let unknown = options.only.iter().find(|only| !ROWS.iter().any(|row| is_named(row.name, only)));
    if let Some(unknown) = unknown {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        anyhow::bail!("there is no row {unknown:?}; there are {}", names.join(", "));
    }
    let site = site(&options).await?;
    let errors = Arc::<Errors>::default();
    let bounds = Bounds {
        duration: Duration::from_secs(options.duration),
        limit: Duration::from_secs(options.limit),
        object_bytes: options.object_bytes,
    };
    let server = version(&site, bounds, &errors).await?;
    let (mut results, mut growths) = (Results::default(), Vec::new());
    // Either way the run ends in order, because a server of ours must not stay behind.
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let is_stopped = tokio::select! {
        () = measure(&options, &site, bounds, &errors, &mut results, &mut growths) => false,
        _ = terminated.recv() => true,
        _ = tokio::signal::ctrl_c() => true,
    };
    println!("server: {server}; objects of {} bytes", options.object_bytes);
    if !results.samples.is_empty() {
        print!("{}", table::render(&results));
    }
    for growth in &growths {
        print!("\n{}", table::render_growth(growth));
    }
    if is_stopped {
        errors.note("the run was stopped before its end");
    }
    let counts = errors.counts();
    for (text, n) in &counts {
        println!("!!! {n} times: {text}");
    }
    println!("{} errors", counts.values().sum::<u64>());
    if let Some(path) = &options.json {
        let report = json!({
            "server": server, "machine": machine(), "history": options.history, "runs": options.runs,
            "duration_s": options.duration, "object_bytes": options.object_bytes, "client_threads": options.threads,
            "rows": table::to_json(&results), "growth": growths, "errors": counts,
        });
        let text = serde_json::to_string_pretty(&report).context("cannot write the figures as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if counts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the requested measurements. Failures are counted, and the rest goes on.
async fn measure(
    options: &Options,
    site: &Site,
    bounds: Bounds,
    errors: &Arc<Errors>,
    results: &mut Results,
    growths: &mut Vec<Growth>,
) {
    for scale in &options.scale {
        eprintln!("scale: {scale:?}");
        let max = options.scale_max.unwrap_or(scale.max()).min(scale.max());
        match scale::measure(*scale, max, site, bounds, errors).await {
            Ok(growth) => growths.push(growth),
            Err(error) => errors.note(format!("{scale:?}: {error:#}")),
        }
    }
    if !options.scale.is_empty() {
        return;
    }
    let counts = Counts {
        // A count in thousands fits on every machine.
        idle_watchers: usize::try_from(options.idle_watchers).unwrap_or(usize::MAX),
        is_million: options.million,
    };
    let is_wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| is_named(name, only));
    for run in 1..=options.runs {
        for (kind, rows) in ALL {
            if !rows.iter().any(|row| is_wanted(row)) {
                continue;
            }
            eprintln!("run {run} of {}: {}", options.runs, rows.join(", "));
            if let Err(error) = stages::run(*kind, site, bounds, counts, errors, &is_wanted, results).await {
                errors.note(format!("{kind:?}: {error:#}"));
            }
        }
    }
}

/// Whether `only` selects the row `name`: it is the name, or the first words of it.
fn is_named(name: &str, only: &str) -> bool {
    name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

async fn site(options: &Options) -> anyhow::Result<Site> {
    if let Some(kubeconfig) = &options.kubeconfig {
        let processes = Some(options.pid.clone()).filter(|ids| !ids.is_empty()).map(|ids| Processes { ids });
        return Ok(Site::Foreign { kubeconfig: kubeconfig.clone(), processes });
    }
    let server = options.server.clone().zip(options.scratch.clone());
    let (binary, scratch) = server.context("no server: give --kubeconfig, or run `cargo xtask bench server`")?;
    let (history, etcd_servers) = (options.history.clone(), options.etcd_servers.clone());
    Ok(Site::Own(Launch { binary, scratch, history, etcd_servers, webhook: hook::start().await? }))
}

/// The version that the server reports.
async fn version(site: &Site, bounds: Bounds, errors: &Arc<Errors>) -> anyhow::Result<String> {
    let stage = Stage::open(site, "version", bounds, errors).await?;
    let (_, answer) = stage.ask("GET", "/version", None).await?;
    let answer: Value = serde_json::from_slice(&answer).context("/version is no JSON")?;
    stage.close().await?;
    Ok(answer["gitVersion"].as_str().unwrap_or("of an unknown version").to_owned())
}

fn machine() -> Value {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let processors = std::thread::available_parallelism().map(usize::from).ok();
    json!({"processor": model, "processors": processors})
}

/// Raises the limit of open files: every watcher over HTTP/1.1 is one.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        eprintln!("bench: the limit on open files stays as it is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_its_first_words() {
        assert!(is_named("list", "list") && is_named("list-table", "list") && is_named("list-table", "list-table"));
        assert!(!is_named("list", "list-table") && !is_named("listing", "list"));
    }
}
