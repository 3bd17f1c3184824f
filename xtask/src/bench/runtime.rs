//! `cargo xtask bench runtime`: the library compared with its peers at the same work, each in its own process.
//!
//! The programs and the server that feeds them are in `benches/`. A program takes all steps of a measurement and prints
//! its figures as one line of JSON. This module starts the programs one at a time, in turn, so that other load on the
//! machine affects all alike, and compares their medians.

mod figures;
mod programs;
mod table;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use crate::bench::runtime::figures::{Judged, Row, Samples};
use crate::bench::runtime::programs::{Program, Programs};
use crate::shared::process::{Heard, Running};
use crate::shared::workspace::Workspace;

/// How long a program may print nothing before it counts as hung. The slowest takes a minute on an idle machine.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Print one line of JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Measure one workload only
    #[arg(long, value_name = "WORKLOAD")]
    only: Option<Workload>,
    /// How often each program is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Let the peers drop managedFields too, which steersman does by default
    #[arg(long)]
    strip: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Workload {
    /// 100,000 custom resources of 1 KB
    Custom,
    /// 20,000 Pods of 5 KB
    Pods,
}

/// The results of one workload, or of the work queue.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    columns: Vec<Column>,
    rows: Vec<Judged>,
}

/// The figures of one program.
#[derive(Debug, Serialize)]
struct Column {
    program: &'static str,
    /// The figures by name. Empty if the program could not be built.
    figures: BTreeMap<String, Samples>,
    /// Why there are no figures.
    missing: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let programs = programs::build(workspace, options)?;
    let mut parts = Vec::new();
    for workload in [Workload::Custom, Workload::Pods] {
        if options.only.is_none_or(|only| only == workload) {
            parts.push(measure_workload(&programs, workload, options.runs)?);
        }
    }
    parts.push(measure_queues(&programs, options.runs)?);
    if options.json {
        println!("{}", serde_json::to_string(&parts).context("cannot write the figures as JSON")?);
    } else {
        for part in &parts {
            print!("{}", table::render(part));
        }
        table::print_notes(options);
    }
    Ok(ExitCode::SUCCESS)
}

fn measure_workload(programs: &Programs, workload: Workload, runs: u16) -> anyhow::Result<Part> {
    let server = Running::start(Command::new(&programs.server).args(["--workload", workload.name()]))?;
    let address = match server.listen(PATIENCE) {
        Heard::Line(line) => line,
        Heard::End | Heard::Nothing => anyhow::bail!("the server for the benches did not start"),
    };
    let arguments = ["--server", &address, "--workload", workload.name()];
    let columns = measure(&programs.informers, &arguments, runs)?;
    Ok(Part::new(workload.title(), columns, &workload.rows()))
}

fn measure_queues(programs: &Programs, runs: u16) -> anyhow::Result<Part> {
    let columns = measure(&programs.queues, &[], runs)?;
    Ok(Part::new("work queue, 1,000 keys", columns, figures::QUEUE))
}

/// Runs all `programs` in turn, `runs` times.
fn measure(programs: &[Program], arguments: &[&str], runs: u16) -> anyhow::Result<Vec<Column>> {
    let mut samples: Vec<BTreeMap<String, Vec<f64>>> = programs.iter().map(|_| BTreeMap::new()).collect();
    for run in 1..=runs {
        for (program, samples) in programs.iter().zip(&mut samples) {
            let Ok(command) = &program.command else { continue };
            eprintln!("run {run} of {runs}: {} {}", program.name, arguments.last().copied().unwrap_or("queue"));
            for (figure, value) in figures_of(program.name, command.start(arguments))? {
                samples.entry(figure).or_default().push(value);
            }
        }
    }
    let column = |(program, samples): (&Program, BTreeMap<String, Vec<f64>>)| Column {
        program: program.name,
        figures: samples.into_iter().map(|(figure, values)| (figure, Samples::of(values))).collect(),
        missing: program.command.as_ref().err().cloned(),
    };
    Ok(programs.iter().zip(samples).map(column).collect())
}

/// Runs a program to its end and returns the figures that it prints.
fn figures_of(name: &str, mut command: Command) -> anyhow::Result<BTreeMap<String, f64>> {
    let running = Running::start(&mut command)?;
    let mut figures = BTreeMap::new();
    loop {
        match running.listen(PATIENCE) {
            Heard::Line(line) => figures.extend(programs::parse_line(&line)),
            Heard::End if figures.is_empty() => anyhow::bail!("{name} ended without figures"),
            Heard::End => return Ok(figures),
            Heard::Nothing => anyhow::bail!("{name} said nothing for {} s", PATIENCE.as_secs()),
        }
    }
}

// === impl Workload ===

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Custom => "custom",
            Workload::Pods => "pods",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Workload::Custom => "100,000 custom resources of 1 KB",
            Workload::Pods => "20,000 Pods of 5 KB",
        }
    }

    fn rows(self) -> Vec<Row> {
        match self {
            Workload::Custom => figures::informer([0.45, 120.0, 130.0, 135.0, 210_000.0]),
            Workload::Pods => figures::informer([0.45, 110.0, 120.0, 125.0, 46_000.0]),
        }
    }
}

// === impl Part ===

impl Part {
    fn new(name: &'static str, columns: Vec<Column>, rows: &[Row]) -> Part {
        let rows = rows.iter().map(|row| row.judge(&columns)).collect();
        Part { name, columns, rows }
    }
}
