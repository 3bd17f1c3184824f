//! `cargo xtask bench etcd`: what a server on etcd does, beside etcd alone, a kube-apiserver on the same kind of etcd, and a server on
//! its embedded store, in one run.
//!
//! Each has an etcd of its own with one member, which waits for the disk as a user's does. etcd alone is loaded by etcd's own
//! `tools/benchmark` with values of the size of the objects; the servers are loaded by the client of `bench server`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use serde::Deserialize;

use crate::bench::server::load_client;
use crate::shared::etcd::{Durability, Etcd};
use crate::shared::process::capture;
use crate::shared::reference::Reference;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::tools;
use crate::shared::workspace::{Profile, Workspace};

/// etcd's own load client, below the root of the workspace.
const BENCHMARK_DIRECTORY: &str = "tests/reference/etcd-benchmark";
const BENCHMARK_PACKAGE: &str = "go.etcd.io/etcd/v3/tools/benchmark";
/// The users of the kube-apiserver, below the root of the workspace.
const TOKENS: &str = "tests/walks/tokens.csv";
/// The clients that create at the same time, as in `bench server`.
const CLIENTS: &str = "64";
const MEGABYTE: f64 = 1e6;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Measure the release profile, which is built faster than the published one
    #[arg(long)]
    release: bool,
    /// The runs of each row; medians count
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Values that are written to etcd alone
    #[arg(long, default_value_t = 60_000)]
    puts: u32,
}

/// The figures of the load client.
#[derive(Default, Deserialize)]
struct Report {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    value: f64,
    server_cpu_us: Option<f64>,
}

/// A line of the table.
struct Figure<'a> {
    title: &'a str,
    unit: &'a str,
    /// For the server on etcd, the one on its embedded store, the kube-apiserver, and etcd alone.
    values: [Option<f64>; 4],
}

/// A ratio that is promised.
struct Promise<'a> {
    title: &'a str,
    value: Option<f64>,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

struct Bench<'a> {
    load: PathBuf,
    server: PathBuf,
    scratch: &'a Path,
    runs: String,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let profile = if options.release { Profile::Release } else { Profile::Dist };
    let (reference, benchmark) = (Reference::build(workspace)?, build_benchmark(workspace)?);
    let scratch = workspace.scratch("bench-etcd")?;
    let server = workspace.build_steersman(profile)?;
    let bench = Bench { load: load_client(workspace)?, server, scratch: &scratch, runs: options.runs.to_string() };

    eprintln!("etcd alone");
    let etcd = start_etcd(&reference, &scratch, "alone")?;
    let alone = rate_of_etcd(&benchmark, &etcd, options.puts)?;
    drop(etcd);
    let embedded = bench.own("embedded", "create,get,memory-100000,open", &[])?;
    let etcd = start_etcd(&reference, &scratch, "own")?;
    let own = bench.own("own", "create,get", &["--etcd-servers", &etcd.url])?;
    drop(etcd);
    let etcd = start_etcd(&reference, &scratch, "many")?;
    let many = bench.own("many", "memory-100000,open", &["--etcd-servers", &etcd.url])?;
    let memory_of_etcd = etcd.resident_bytes()? as f64 / MEGABYTE;
    drop(etcd);
    let etcd = start_etcd(&reference, &scratch, "upstream")?;
    let (upstream, upstream_bytes) = bench.upstream(workspace, &reference, &etcd)?;
    drop(etcd);

    print(&[
        Figure {
            title: "durable creates, 64 clients",
            unit: "/s",
            values: [own.value("create"), embedded.value("create"), upstream.value("create"), Some(alone)],
        },
        Figure {
            title: "  processor time of the server for each",
            unit: "us",
            values: [own.cpu("create"), embedded.cpu("create"), upstream.cpu("create"), None],
        },
        Figure {
            title: "GETs, 32 clients",
            unit: "/s",
            values: [own.value("get"), embedded.value("get"), upstream.value("get"), None],
        },
        Figure {
            title: "  processor time of the server for each",
            unit: "us",
            values: [own.cpu("get"), embedded.cpu("get"), upstream.cpu("get"), None],
        },
        Figure {
            title: "opening 100,000 objects",
            unit: "s",
            values: [many.value("open"), embedded.value("open"), None, None],
        },
        Figure {
            title: "memory with 100,000 objects (kube-apiserver: those it was sent)",
            unit: "MB",
            values: [
                many.value("memory-100000"),
                embedded.value("memory-100000"),
                Some(upstream_bytes as f64 / MEGABYTE),
                Some(memory_of_etcd),
            ],
        },
    ]);
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let promises = [
        Promise {
            title: "creates, to those of etcd alone",
            value: ratio(own.value("create"), Some(alone)),
            bound: Bound::AtLeast(0.5),
        },
        Promise {
            title: "creates, to those of kube-apiserver",
            value: ratio(own.value("create"), upstream.value("create")),
            bound: Bound::AtLeast(8.0),
        },
        Promise {
            title: "processor time of a GET, to the embedded store's",
            value: ratio(own.cpu("get"), embedded.cpu("get")),
            bound: Bound::AtMost(1.25),
        },
        Promise { title: "seconds to open 100,000 objects", value: many.value("open"), bound: Bound::AtMost(2.0) },
    ];
    promises.iter().for_each(Promise::print);
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}

impl Bench<'_> {
    /// Measures servers of this tree, each on a fresh directory and, with `--etcd-servers`, a prefix of its own.
    fn own(&self, name: &str, rows: &str, more: &[&str]) -> anyhow::Result<Report> {
        let scratch = self.scratch.join(format!("server-{name}"));
        std::fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
        let mut load = Command::new(&self.load);
        load.arg("--server").arg(&self.server).arg("--scratch").arg(scratch).args(more);
        self.report(load, name, rows)
    }

    /// Measures a kube-apiserver, and how much memory it has in the end.
    fn upstream(&self, workspace: &Workspace, reference: &Reference, etcd: &Etcd) -> anyhow::Result<(Report, u64)> {
        let (data, log) = (self.scratch.join("pki-of"), self.scratch.join("pki-of.log"));
        // It has the certificates that a server of this tree makes.
        let flags = ["--in-memory", "--controllers=-*"];
        let own = Steersman::start(&self.server, Role::Server, &data, &flags, &log)?;
        let tokens = workspace.root.join(TOKENS);
        let upstream = reference.start_on(etcd, self.scratch, &tokens, &data.join("pki"))?;
        let kubeconfig = self.scratch.join("upstream.kubeconfig");
        upstream.kubeconfig(&own.ready, &kubeconfig)?;
        own.stop()?;
        let mut load = Command::new(&self.load);
        load.arg("--kubeconfig").arg(&kubeconfig).args(["--pid", &upstream.id().to_string()]);
        let report = self.report(load, "upstream", "create,get")?;
        Ok((report, upstream.resident_bytes()?))
    }

    fn report(&self, mut load: Command, name: &str, rows: &str) -> anyhow::Result<Report> {
        let json = self.scratch.join(format!("{name}.json"));
        load.args(["--only", rows, "--runs", &self.runs, "--json"]).arg(&json);
        let status = load.stdout(Stdio::null()).status().context("cannot run the load client")?;
        anyhow::ensure!(status.success(), "the load client failed at {name}");
        let text = std::fs::read(&json).with_context(|| format!("cannot read {}", json.display()))?;
        serde_json::from_slice(&text).context("the load client's figures cannot be read")
    }
}

fn build_benchmark(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let directory = workspace.root.join(BENCHMARK_DIRECTORY);
    tools::go_program(workspace, "etcd-benchmark", &directory, &[BENCHMARK_PACKAGE])
}

fn start_etcd(reference: &Reference, scratch: &Path, name: &str) -> anyhow::Result<Etcd> {
    let directory = scratch.join(format!("etcd-of-{name}"));
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Etcd::start(&reference.etcd, &directory, 1, Durability::Synced)
}

/// Writes to etcd that end in a second, from as many clients as create objects.
fn rate_of_etcd(benchmark: &Path, etcd: &Etcd, puts: u32) -> anyhow::Result<f64> {
    let mut command = Command::new(benchmark);
    let endpoint = etcd.url.trim_start_matches("http://");
    command.args(["put", "--endpoints", endpoint, "--clients", CLIENTS, "--conns", CLIENTS]);
    command.args(["--key-size", "64", "--val-size", "650", "--sequential-keys"]);
    command.args(["--key-space-size", &puts.to_string(), "--total", &puts.to_string()]);
    rate(&capture(&mut command)?)
}

/// The rate that etcd's load client prints.
fn rate(printed: &str) -> anyhow::Result<f64> {
    let rate = printed.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    let rate = rate.with_context(|| format!("etcd's load client printed no rate: {printed}"))?;
    rate.trim().parse().with_context(|| format!("{rate:?} is no rate"))
}

impl Report {
    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.row(name).map(|row| row.value)
    }

    fn cpu(&self, name: &str) -> Option<f64> {
        self.row(name)?.server_cpu_us
    }
}

impl Promise<'_> {
    fn print(&self) {
        let (is_met, bound) = match (self.bound, self.value) {
            (Bound::AtLeast(bound), value) => (value.is_some_and(|value| bound <= value), format!("at least {bound}")),
            (Bound::AtMost(bound), value) => (value.is_some_and(|value| value <= bound), format!("at most {bound}")),
        };
        let verdict = if is_met { "met" } else { "MISSED" };
        println!("{:<66} {:>12}  {bound}, {verdict}", self.title, text(self.value));
    }
}

fn print(figures: &[Figure<'_>]) {
    println!("{:<66} {:>12} {:>12} {:>14} {:>12}", "", "on etcd", "embedded", "kube-apiserver", "etcd alone");
    for Figure { title, unit, values } in figures {
        let [own, embedded, upstream, etcd] = values.map(text);
        println!("{title:<66} {own:>12} {embedded:>12} {upstream:>14} {etcd:>12}  {unit}");
    }
}

fn text(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 100.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_one_that_etcds_client_prints() {
        let printed = "\nSummary:\n  Total:\t2.7 secs.\n  Requests/sec:\t21941.5204\n\nResponse time histogram:\n";
        assert_eq!(rate(printed).unwrap(), 21_941.520_4);
        assert!(rate("Total: 1").unwrap_err().to_string().starts_with("etcd's load client printed no rate"));
    }
}
