//! Builds the measured programs, and reads their output.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::bench::runtime::Options;
use crate::shared::tools::go_program;
use crate::shared::workspace::{Workspace, executable};

pub(crate) struct Programs {
    pub(crate) server: PathBuf,
    /// The programs that keep a cache of objects; ours first.
    pub(crate) informers: Vec<Program>,
    /// The programs that measure a work queue; ours first.
    pub(crate) queues: Vec<Program>,
}

pub(crate) struct Program {
    /// The heading of its column.
    pub(crate) name: &'static str,
    /// The command that starts it, or why it cannot be started.
    pub(crate) command: Result<Start, String>,
}

pub(crate) struct Start {
    path: PathBuf,
    arguments: Vec<&'static str>,
}

/// Builds everything in release. Only Go may be missing.
pub(crate) fn build(workspace: &Workspace, options: &Options) -> anyhow::Result<Programs> {
    let messages = build_with(workspace.cargo_benches().args(["build", "--release", "--locked"]))?;
    let built = |name: &str| executable(&messages, name).with_context(|| format!("cargo build named no {name}"));
    let bench = ["bench", "--package", "steersman", "--bench", "queue", "--no-run"];
    let queue =
        executable(&build_with(workspace.cargo().args(bench))?, "queue").context("cargo bench named no queue")?;
    let clientgo = build_go(workspace).map_err(|error| format!("{error:#}"));

    let (steersman, kube_runtime) = (built("bench-steersman")?, built("bench-kube-runtime")?);
    let stripped = |arguments: &[&'static str]| {
        let mut arguments = arguments.to_vec();
        arguments.extend(options.strip.then_some("--strip"));
        arguments
    };
    let informers = vec![
        Program::new("steersman", Ok(steersman.clone()), vec![]),
        Program::new("steersman typed", Ok(steersman.clone()), vec!["--cache", "typed"]),
        Program::new("steersman compact", Ok(steersman.clone()), vec!["--cache", "compact"]),
        Program::new("steersman decoding", Ok(steersman), vec!["--decode"]),
        Program::new("kube-runtime list", Ok(kube_runtime.clone()), stripped(&["--initial", "list"])),
        Program::new("kube-runtime stream", Ok(kube_runtime), stripped(&["--initial", "stream"])),
        Program::new("client-go", clientgo.clone(), stripped(&[])),
    ];
    let queues =
        vec![Program::new("steersman", Ok(queue), vec![]), Program::new("client-go", clientgo, vec!["--queue"])];
    Ok(Programs { server: built("bench-server")?, informers, queues })
}

/// Runs a cargo command that builds, and returns its messages.
fn build_with(command: &mut Command) -> anyhow::Result<String> {
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "cargo ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn build_go(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    eprintln!("building the program on client-go");
    go_program(workspace, "bench-clientgo", &workspace.benches().join("peers/clientgo"), &["."])
}

/// Parses the figures of a line: a JSON object, or a line of the queue's benchmark, which is written for people.
pub(crate) fn parse_line(line: &str) -> BTreeMap<String, f64> {
    if let Ok(figures) = serde_json::from_str(line) {
        return figures;
    }
    let figure = line.split_once(": ").and_then(|(what, rate)| {
        let rate: f64 = rate.strip_suffix(" million/s")?.parse().ok()?;
        let name = if what.starts_with("1 thread") { "queue_cycles_per_s" } else { "queue_adds_per_s" };
        Some((name.to_owned(), rate * 1e6))
    });
    figure.into_iter().collect()
}

// === impl Program ===

impl Program {
    fn new(name: &'static str, path: Result<PathBuf, String>, arguments: Vec<&'static str>) -> Program {
        Program { name, command: path.map(|path| Start { path, arguments }) }
    }
}

// === impl Start ===

impl Start {
    /// The command with the arguments of this run at the end.
    pub(crate) fn start(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).args(arguments);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[(&str, f64)]) {
        let expected: BTreeMap<String, f64> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        assert_eq!(parse_line(line), expected);
    }

    #[test]
    fn figures_are_read_from_json_and_from_the_bench_of_the_queue() {
        check(r#"{"synced_s":0.5,"resident_mb":100}"#, &[("resident_mb", 100.0), ("synced_s", 0.5)]);
        check("1 thread, add + get + done: 2.50 million/s", &[("queue_cycles_per_s", 2.5e6)]);
        check("8 producers, 1 consumer, adds: 4.00 million/s", &[("queue_adds_per_s", 4e6)]);
        check("no runtime", &[]);
    }
}
