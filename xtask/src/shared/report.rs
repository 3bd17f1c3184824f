//! The report of a run with several parts: how long each took, what was skipped, and the result.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::shared::process::now;
use crate::shared::tally::Tally;
use crate::shared::workspace::in_ci;

/// The parts of one run, in the order they ran.
#[derive(Default)]
pub(crate) struct Report {
    parts: Vec<Part>,
    skipped: Vec<String>,
}

struct Part {
    name: &'static str,
    took: Duration,
    /// Why the part failed, if it did.
    failure: Option<String>,
}

// === impl Part ===

impl Part {
    fn print(&self) {
        let (name, seconds) = (self.name, self.took.as_secs_f64());
        match &self.failure {
            None => println!("=== {name}: {seconds:.1} s"),
            Some(why) => println!("=== {name}: FAILED after {seconds:.1} s: {why}"),
        }
    }
}

// === impl Report ===

impl Report {
    /// Runs one part under a heading. Returns its value if it succeeds; a failure does not stop the other parts.
    pub(crate) fn part<T>(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        println!("=== {name}");
        let start = now();
        let outcome = work();
        let took = start.elapsed();
        let (value, failure) = match outcome {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let part = Part { name, took, failure };
        part.print();
        self.parts.push(part);
        value
    }

    /// Runs lanes of parts concurrently, the parts of a lane one after another. The output of a part is printed in one
    /// piece when the part has ended. Returns the total of the counted tests; a part that failed without a failed test
    /// counts as one.
    pub(crate) fn lanes<P: Sync>(
        &mut self,
        lanes: &[Vec<P>],
        name: impl Fn(&P) -> &'static str + Sync,
        work: impl Fn(&P, &mut String) -> (Tally, anyhow::Result<()>) + Sync,
    ) -> Tally {
        let done = Mutex::new((Tally::default(), Vec::new()));
        let (done_by_all, name, work) = (&done, &name, &work);
        std::thread::scope(|scope| {
            for lane in lanes {
                scope.spawn(move || {
                    for part in lane {
                        let (name, start, mut said) = (name(part), now(), String::new());
                        println!("=== {name} begins");
                        let (mut counted, outcome) = work(part, &mut said);
                        let part = Part {
                            name,
                            took: start.elapsed(),
                            failure: outcome.err().map(|error| format!("{error:#}")),
                        };
                        if part.failure.is_some() {
                            counted.failed = counted.failed.max(1);
                        }
                        // The lock is held for printing and a push, which cannot panic half-way.
                        let mut done = done_by_all.lock().unwrap_or_else(PoisonError::into_inner);
                        println!("=== {name}\n{}", said.trim_end());
                        part.print();
                        done.0 += counted;
                        done.1.push(part);
                    }
                });
            }
        });
        let (total, parts) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.parts.extend(parts);
        total
    }

    /// Sets up a tool that tests use. If this machine cannot have it, that is reported here and at the end, and fails
    /// in continuous integration.
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

    /// Prints every part with its time, then the skipped ones.
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

    /// The number of skips that count as failures: in continuous integration, where nothing may be skipped, all of
    /// them.
    pub(crate) fn n_forbidden_skips(&self) -> usize {
        if in_ci() { self.skipped.len() } else { 0 }
    }

    /// Success if nothing failed, and nothing was skipped that must not be.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let failed = self.parts.iter().any(|part| part.failure.is_some());
        if failed || self.n_forbidden_skips() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
