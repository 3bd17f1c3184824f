//! `cargo xtask fuzz`: runs the targets of `fuzz/` in libFuzzer, and replays their corpora.
//!
//! Stable Rust has no flag for coverage counters, and `cargo fuzz` needs a nightly compiler; but LLVM's own pass takes
//! its options through `RUSTFLAGS`, and libFuzzer needs nothing else. One program contains all targets, because linking
//! one takes longer than running it. New inputs that a run finds are kept below the target directory. Crashing inputs
//! are minimized and written there, with the command that replays them.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;

use crate::shared::process::{Heard, Running, find_program, now};
use crate::shared::workspace::{Workspace, executable};

/// The default run time of a target.
const SECONDS: u64 = 60;
/// The time after which an input counts as hanging.
const INPUT_SECONDS_MAX: u64 = 25;
/// The memory limit of a process.
const MEMORY_MIB_MAX: u64 = 3072;
/// The longest input: longer ones are only larger, not different.
const INPUT_BYTES_MAX: u64 = 16 * 1024;
/// How long a crashing input is minimized.
const MINIMIZE_SECONDS: u64 = 60;
const TARGET_VARIABLE: &str = "STEERSMAN_FUZZ_TARGET";
/// The instrumentation of every crate but build scripts.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Targets to run, named like the files of fuzz/src/targets; all if none is named
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many processes of a target run at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Run one file through one target, without the fuzzer's loop
    #[arg(long, requires = "targets")]
    replay: Option<PathBuf>,
}

/// The result of a target.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Outcome {
    executions: u64,
    /// The edges that were reached, and the features: edges with the number of times.
    coverage: u64,
    features: u64,
    /// The inputs that crashed, hung, or took too much memory.
    crashes: Vec<PathBuf>,
    /// Why the target did not run.
    failure: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let known = targets(workspace)?;
    if let Some(unknown) = options.targets.iter().find(|name| !known.contains(name)) {
        anyhow::bail!("no target {unknown}; there are {}", known.join(", "));
    }
    let program = build(workspace)?;
    if let Some(file) = &options.replay {
        return replay(&program, &options.targets, file);
    }
    let asked = if options.targets.is_empty() { &known } else { &options.targets };
    let mut outcomes = Vec::new();
    for target in asked {
        println!("=== {target}: {} s", options.seconds);
        let outcome = fuzz(workspace, &program, target, options)
            .unwrap_or_else(|error| Outcome { failure: Some(format!("{error:#}")), ..Outcome::default() });
        outcomes.push((target, outcome));
    }
    println!("\n{:<18} {:>12} {:>8} {:>8}  outcome", "target", "executions", "edges", "features");
    let mut is_sound = true;
    for (target, outcome) in &outcomes {
        let Outcome { executions, coverage, features, crashes, failure } = outcome;
        let verdict = match (failure, crashes.len()) {
            (Some(why), _) => why.clone(),
            (None, 0) => "ok".to_owned(),
            (None, n_crashes) => format!("{n_crashes} inputs CRASH, HANG OR TAKE TOO MUCH MEMORY"),
        };
        is_sound &= failure.is_none() && crashes.is_empty();
        println!("{target:<18} {executions:>12} {coverage:>8} {features:>8}  {verdict}");
        for crash in crashes {
            println!("    cargo xtask fuzz {target} --replay {}", crash.display());
        }
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs every target for some seconds, for the long form of `cargo xtask test`.
pub(crate) fn test_long(workspace: &Workspace) -> anyhow::Result<()> {
    let options = Options { targets: Vec::new(), seconds: SECONDS, jobs: 1, replay: None };
    anyhow::ensure!(run(workspace, &options)? == ExitCode::SUCCESS, "a target found an input that it should not have");
    Ok(())
}

/// The names of the targets, which are those of their files.
fn targets(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let directory = workspace.fuzz().join("src/targets");
    let entries = std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", directory.display()))?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Builds the program with coverage counters. Its output directory is separate from that of builds without counters.
fn build(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(
        find_program("c++").or_else(|| find_program("g++")).is_some(),
        "there is no C++ compiler on PATH, which libFuzzer is built with"
    );
    let host = host()?;
    let mut command = workspace.cargo();
    command.args([
        "build",
        "--package",
        "steersman-fuzz",
        "--locked",
        "--profile",
        "fuzz",
        "--features",
        "libfuzzer",
        "--bin",
        "fuzz",
        "--target",
        &host,
    ]);
    command.args(["--message-format", "json-render-diagnostics"]);
    command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", workspace.target.join("fuzz"));
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo build")?;
    anyhow::ensure!(output.status.success(), "cargo build of the fuzz targets ended with {}", output.status);
    executable(&String::from_utf8_lossy(&output.stdout), "fuzz").context("cargo build named no executable for fuzz")
}

/// The target triple of this machine: with an explicit target, build scripts are not instrumented.
fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("rustc -vV names no host")
}

fn replay(program: &Path, targets: &[String], file: &Path) -> anyhow::Result<ExitCode> {
    let [target] = targets else { anyhow::bail!("a file is replayed by one target: name one") };
    let status = Command::new(program).env(TARGET_VARIABLE, target).arg(file).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one target, starting from its corpus in the tree and from inputs that earlier runs found.
fn fuzz(workspace: &Workspace, program: &Path, target: &str, options: &Options) -> anyhow::Result<Outcome> {
    let seeds = workspace.fuzz().join("corpus").join(target);
    let found = workspace.target.join("fuzz").join("corpus").join(target);
    let crashes = workspace.target.join("fuzz").join("crashes").join(target);
    let log = workspace.target.join("fuzz").join(format!("{target}.log"));
    for directory in [&found, &crashes] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let before = list(&crashes)?;
    let errors = std::fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut command = Command::new(program);
    command.env(TARGET_VARIABLE, target).current_dir(&crashes);
    command.arg(format!("-max_total_time={}", options.seconds));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg(format!("-artifact_prefix={}/", crashes.display()));
    command.args(["-print_final_stats=1", "-use_value_profile=0"]);
    let dictionary = workspace.fuzz().join("dictionaries").join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    if options.jobs > 1 {
        command.arg(format!("-fork={}", options.jobs));
    }
    command.arg(&found).arg(&seeds).stderr(errors);
    let deadline = now() + Duration::from_secs(options.seconds + 4 * INPUT_SECONDS_MAX + MINIMIZE_SECONDS);
    let fuzzer = Running::start(&mut command)?;
    loop {
        match fuzzer.listen(deadline.saturating_duration_since(now())) {
            Heard::Line(_) => {}
            Heard::End => break,
            Heard::Nothing => anyhow::bail!("it did not end, see {}", log.display()),
        }
    }
    let status = fuzzer.wait()?;
    let said = std::fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut outcome = read(&String::from_utf8_lossy(&said));
    let after = list(&crashes)?;
    for crash in after.into_iter().filter(|crash| !before.contains(crash)) {
        outcome.crashes.push(smaller(program, target, &crash)?);
    }
    if !status.success() && outcome.crashes.is_empty() {
        outcome.failure = Some(format!("it ended with {status}, see {}", log.display()));
    }
    Ok(outcome)
}

/// Minimizes a crashing input. Returns the input itself if that fails.
fn smaller(program: &Path, target: &str, crash: &Path) -> anyhow::Result<PathBuf> {
    let name = crash.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.starts_with("crash-") {
        return Ok(crash.to_owned());
    }
    let small = crash.with_file_name(format!("small-{name}"));
    let mut command = Command::new(program);
    command.env(TARGET_VARIABLE, target).arg("-minimize_crash=1").arg(format!("-max_total_time={MINIMIZE_SECONDS}"));
    command.arg(format!("-exact_artifact_path={}", small.display())).arg(crash);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().with_context(|| format!("cannot run {}", program.display()))?;
    Ok(if small.is_file() { small } else { crash.to_owned() })
}

fn list(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.with_context(|| format!("cannot read {}", directory.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Parses libFuzzer's output of a run: `#4096 pulse cov: 12 ft: 30 corp: 4/9b ...`, and at the end
/// `stat::number_of_executed_units: 8192`.
fn read(said: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        let number = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(count) = line.strip_prefix('#').and_then(|rest| rest.split([':', '\t', ' ']).next()?.parse().ok()) {
            outcome.executions = outcome.executions.max(count);
            outcome.coverage = number(" cov: ").unwrap_or(outcome.coverage);
            outcome.features = number(" ft: ").unwrap_or(outcome.features);
        }
        if let Some(count) = number("stat::number_of_executed_units:") {
            outcome.executions = count;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_run_are_read() {
        let said = "INFO: Seed: 7\n#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #4096\tpulse  cov: 40 ft: 90 corp: 9/99b lim: 4 exec/s: 2048 rss: 31Mb\nstat::number_of_executed_units: 5000\n";
        let outcome = read(said);
        assert_eq!((outcome.executions, outcome.coverage, outcome.features), (5000, 40, 90));
        let forked = "#1310: cov: 7 ft: 9 corp: 3 exec/s 655 oom/timeout/crash: 0/0/0 time: 2s job: 1 dft_time: 0\n";
        assert_eq!(read(forked), Outcome { executions: 1310, coverage: 7, features: 9, ..Outcome::default() });
        assert_eq!(read("cannot run"), Outcome::default());
    }
}
