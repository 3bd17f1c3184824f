//! What a run of several parts says: how long each took, what was skipped, how it ended.

use std::process::ExitCode;
use std::time::Duration;

use crate::process::now;
use crate::workspace::in_ci;

/// The parts of one run, in the order they ran.
#[derive(Default)]
pub(crate) struct Report {
    parts: Vec<Part>,
    skipped: Vec<String>,
}

struct Part {
    name: &'static str,
    took: Duration,
    /// Why it failed, if it did.
    failure: Option<String>,
}

impl Report {
    /// Runs one part under a heading. What it returns besides success is kept; a failure does not stop the others.
    pub(crate) fn part<T>(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        println!("=== {name}");
        let start = now();
        let outcome = work();
        let took = start.elapsed();
        let (value, failure) = match outcome {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        match &failure {
            None => println!("=== {name}: {:.1} s", took.as_secs_f64()),
            Some(why) => println!("=== {name}: FAILED after {:.1} s: {why}", took.as_secs_f64()),
        }
        self.parts.push(Part { name, took, failure });
        value
    }

    /// Gets hold of something that tests drive. What this machine cannot have is skipped: a loud line here and at the end;
    /// in continuous integration a failure.
    pub(crate) fn set_up<T>(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        let start = now();
        match work() {
            Ok(value) => {
                println!("=== {name} is there: {:.1} s", start.elapsed().as_secs_f64());
                Some(value)
            }
            Err(error) => {
                let what = format!("what needs {name}: {error:#}");
                println!("!!! SKIPPED: {what}");
                self.skipped.push(what);
                None
            }
        }
    }

    /// Every part with its time, then what was skipped.
    pub(crate) fn print_summary(&self) {
        println!("\n=== summary");
        for part in &self.parts {
            let mark = if part.failure.is_some() { "FAILED" } else { "ok" };
            println!("{mark:>6}  {:>7.1} s  {}", part.took.as_secs_f64(), part.name);
        }
        let consequence =
            if in_ci() { "which is a failure here, because CI is set" } else { "set CI=1 to make it fail" };
        for what in &self.skipped {
            println!("!!! SKIPPED: {what} ({consequence})");
        }
    }

    /// How many skips count as failures: in continuous integration, where nothing may be skipped, all of them.
    pub(crate) fn n_forbidden_skips(&self) -> usize {
        if in_ci() { self.skipped.len() } else { 0 }
    }

    /// Success if nothing failed and nothing was skipped that may not be.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let failed = self.parts.iter().any(|part| part.failure.is_some());
        if failed || self.n_forbidden_skips() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
