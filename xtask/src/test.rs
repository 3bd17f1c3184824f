//! `cargo xtask test`: the one test command.
//!
//! Sets up the tools of the tests, and runs every test of the workspace (documentation and the corpora of the fuzz targets
//! included), then the walks, the recorded answers of a kube-apiserver and a few faults of several servers. The last line
//! is `N passed, N failed` over all of it, and nothing else.

use std::num::NonZeroUsize;
use std::process::{Command, ExitCode};

use crate::clients;
use crate::cluster;
use crate::differential;
use crate::faults;
use crate::fuzz;
use crate::shared::process::stream;
use crate::shared::report::Report;
use crate::shared::tally::Tally;
use crate::shared::tools;
use crate::shared::workspace::{Workspace, in_ci};
use crate::walks;

/// Tests that run at a time, for each processor: many of them wait for the programs that they drive.
const TESTS_PER_PROCESSOR: usize = 2;
/// The variable by which Rust's test programs are told how many.
const TEST_THREADS_VARIABLE: &str = "RUST_TEST_THREADS";
/// The number of cases of every property test in a long run; 256 is the default.
const LONG_CASES: &str = "8192";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Many more cases in property tests, more rounds in the others, the benches' tests, a minute of each fuzz target, the
    /// slow suites of clients, and a cluster of real parts
    #[arg(long)]
    long: bool,
    /// Only tests, and walks, whose name contains this
    filter: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let mut total = Tally::default();

    let kubectl = report.set_up("kubectl 1.35", || tools::kubectl(workspace));
    let neutron = report.set_up("Neutron", || tools::neutron(workspace));
    let oidc = report.set_up("an OpenID Connect provider", || tools::oidc_provider(workspace));
    let celgo = report.set_up("cel-go", || tools::celgo(workspace));
    let etcd = report.set_up("etcd", || tools::etcd(workspace));
    let envoy = report.set_up("Envoy", || tools::envoy(workspace));
    let extent = if options.long { tools::Extent::Whole } else { tools::Extent::Short };
    let corpus = report.set_up("public definitions", || tools::corpus(workspace, extent));
    let python = report.set_up("python3", || tools::program("python3"));

    let with_filter = |mut command: Command| {
        if in_ci() {
            command.arg("--locked");
        }
        if let Some(filter) = &options.filter {
            command.args(["--", filter]);
        }
        command
    };
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    let mut command = with_filter(command);
    if std::env::var_os(TEST_THREADS_VARIABLE).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        command.env(TEST_THREADS_VARIABLE, (TESTS_PER_PROCESSOR * processors).to_string());
    }
    if options.long {
        command.env("STEERSMAN_LONG", "1").env("PROPTEST_CASES", LONG_CASES);
    }
    if let Some(kubectl) = &kubectl {
        command.env(tools::KUBECTL_VARIABLE, kubectl);
    }
    if let Some(venv) = &neutron {
        command.env(tools::NEUTRON_VARIABLE, venv);
    }
    if let Some(modules) = &oidc {
        command.env(tools::OIDC_VARIABLE, modules);
    }
    if let Some(celgo) = &celgo {
        command.env(tools::CELGO_VARIABLE, celgo);
    }
    if let Some(etcd) = &etcd {
        command.env(tools::ETCD_VARIABLE, etcd);
    }
    if let Some(envoy) = &envoy {
        command.env(tools::ENVOY_VARIABLE, envoy);
    }
    if let Some(cache) = &corpus {
        command.env(tools::CORPUS_VARIABLE, cache);
    }
    let mut commands = vec![("cargo test", command)];
    if options.long {
        // In the benches, only the server and the load client have logic to test.
        let mut benches = workspace.cargo_benches();
        benches.args(["test", "--package", "bench-server", "--package", "bench-load"]);
        commands.push(("cargo test of benches", with_filter(benches)));
    }
    for (name, mut command) in commands {
        let mut counted = Tally::default();
        let passed = report.part(name, || {
            let status = stream(&mut command, |line| counted += Tally::from_line(line).unwrap_or_default())?;
            anyhow::ensure!(status.success(), "cargo test ended with {status}");
            Ok(())
        });
        total += counted_or_one(passed, counted);
    }

    if options.long {
        let passed = report.part("fuzz", || fuzz::test_long(workspace));
        total += counted_or_one(passed, Tally { passed: usize::from(passed.is_some()), failed: 0 });
    }

    if let (Some(kubectl), Some(_)) = (&kubectl, &python) {
        let mut counted = Tally::default();
        let passed = report.part("walks", || {
            counted = walks::test(workspace, kubectl, options.filter.as_deref().unwrap_or_default())?;
            anyhow::ensure!(counted.failed == 0, "{} steps did not do as expected", counted.failed);
            Ok(())
        });
        total += counted_or_one(passed, counted);
    }

    // The corpus is one test of many cases, which no filter selects among.
    if options.filter.is_none() {
        let passed = report.part("answers of kube-apiserver", || differential::test(workspace));
        total += counted_or_one(passed, Tally { passed: usize::from(passed.is_some()), failed: 0 });
    }

    if let (Some(etcd), None) = (&etcd, &options.filter) {
        let passed = report.part("faults", || faults::test(workspace, etcd));
        total += counted_or_one(passed, Tally { passed: usize::from(passed.is_some()), failed: 0 });
    }

    total += clients::test_named(workspace, &mut report, options.filter.as_deref().unwrap_or_default(), extent)?;

    if options.long && options.filter.is_none() {
        total += cluster::test_all(workspace, &mut report)?;
    }

    report.print_summary();
    total.failed += report.n_forbidden_skips();
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(report.exit_code())
}

/// The count of a part. A part that failed without a failed test, for example because it does not compile, counts as
/// one.
fn counted_or_one(passed: Option<()>, counted: Tally) -> Tally {
    match passed {
        None => Tally { failed: counted.failed.max(1), ..counted },
        Some(()) => counted,
    }
}
