//! `cargo xtask bench cel`: fifty rules of a definition on an object of five kilobytes, compared with Kubernetes' own
//! validator on cel-go.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::shared::process::{capture, find_program};
use crate::shared::tools::go_program;
use crate::shared::workspace::{Workspace, executable};

/// The target for one evaluation of all rules.
const TARGET_US: f64 = 50.0;
/// The file with the schema, the object and the rules, below the root of the workspace.
const WORK: &str = "crates/steersman-cel/benches/rules.json";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each program is run, in turn; the medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Print one line of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Figures in microseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Figures {
    evaluate_us: f64,
    compile_us: f64,
}

#[derive(Serialize)]
struct Results {
    steersman: Figures,
    /// `None` if Go is not installed.
    kubernetes: Option<Figures>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let ours = build_ours(workspace)?;
    let theirs = build_theirs(workspace)?;
    let work = workspace.root.join(WORK);
    let (mut our_figures, mut their_figures) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        our_figures.push(measure(Command::new(&ours).args(["--bench", "--json"]))?);
        if let Some(theirs) = &theirs {
            their_figures.push(measure(Command::new(theirs).arg(&work))?);
        }
    }
    let results =
        Results { steersman: median(&our_figures).context("nothing was run")?, kubernetes: median(&their_figures) };
    match options.json {
        true => print_json(&results)?,
        false => print_table(&results),
    }
    Ok(ExitCode::SUCCESS)
}

fn build_ours(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut command = workspace.cargo();
    command.args(["bench", "--package", "steersman-cel", "--bench", "rules", "--no-run"]);
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let messages = capture(&mut command)?;
    executable(&messages, "rules").context("cargo bench named no rules")
}

/// Builds Kubernetes' validator. `None`, with a message, if Go is not installed.
fn build_theirs(workspace: &Workspace) -> anyhow::Result<Option<PathBuf>> {
    if find_program("go").is_none() {
        eprintln!("there is no go on PATH: Kubernetes' validator is left out");
        return Ok(None);
    }
    go_program(workspace, "bench-celgo", &workspace.benches().join("peers/celgo"), &["."]).map(Some)
}

fn measure(command: &mut Command) -> anyhow::Result<Figures> {
    let said = capture(command)?;
    serde_json::from_str(said.trim()).with_context(|| format!("{} said {said:?}", name_of(command)))
}

fn name_of(command: &Command) -> String {
    Path::new(command.get_program()).display().to_string()
}

/// The median of each figure on its own.
fn median(runs: &[Figures]) -> Option<Figures> {
    let of = |figure: fn(&Figures) -> f64| {
        let mut samples: Vec<f64> = runs.iter().map(figure).collect();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
    };
    Some(Figures { evaluate_us: of(|run| run.evaluate_us)?, compile_us: of(|run| run.compile_us)? })
}

fn print_json(results: &Results) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(results).context("cannot write the figures as JSON")?);
    Ok(())
}

fn print_table(results: &Results) {
    println!("{:<34} {:>12} {:>12} {:>8}", "50 rules on an object of 5 KB", "steersman", "Kubernetes", "ratio");
    let (ours, theirs) = (results.steersman, results.kubernetes);
    for (name, ours, theirs) in [
        ("evaluated", ours.evaluate_us, theirs.map(|theirs| theirs.evaluate_us)),
        ("compiled", ours.compile_us, theirs.map(|theirs| theirs.compile_us)),
    ] {
        let theirs = theirs.map_or_else(
            || format!("{:>12} {:>8}", "-", "-"),
            |theirs| format!("{theirs:>9.1} us {:>7.1}x", theirs / ours),
        );
        println!("{name:<34} {ours:>9.1} us {theirs}");
    }
    let verdict = if results.steersman.evaluate_us <= TARGET_US { "met" } else { "MISSED" };
    println!("target: {TARGET_US:.0} us evaluated, {verdict}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_median_of_its_own() {
        let runs = [(1.0, 30.0), (3.0, 10.0), (2.0, 20.0)];
        let runs = runs.map(|(evaluate_us, compile_us)| Figures { evaluate_us, compile_us });
        let median = median(&runs).unwrap();
        assert_eq!((median.evaluate_us, median.compile_us), (2.0, 20.0));
        assert!(super::median(&[]).is_none());
    }
}
