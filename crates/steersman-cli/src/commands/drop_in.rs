//! Programs that stand in for those of Kubernetes, by the name under which the binary is called: `kube-apiserver` and `etcd`.
//!
//! Programs that start the two and wait for them, above all envtest, find what they expect: the flags, the health
//! checks, the exit codes. [`crate::commands::development::envtest`] makes a folder with both names.

mod api_server;
mod etcd;
mod flags;

use crate::commands::drop_in::flags::Problem;
use crate::{Failure, chain};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// The program by whose name this one was called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Program {
    ApiServer,
    Etcd,
}

impl Program {
    pub(crate) const ALL: [Program; 2] = [Program::ApiServer, Program::Etcd];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::ApiServer => "kube-apiserver",
            Program::Etcd => "etcd",
        }
    }

    /// The program by the first argument, which is the name under which the binary was called; `None` for its own name.
    pub(crate) fn called(first: Option<&OsString>) -> Option<Program> {
        let name = Path::new(first?).file_name()?;
        Program::ALL.into_iter().find(|program| name == program.name())
    }

    /// Runs the program with the other arguments.
    pub(crate) fn run(self, arguments: Vec<String>) -> ExitCode {
        let outcome = match self {
            Program::ApiServer => api_server::run(&arguments),
            Program::Etcd => etcd::run(&arguments),
        };
        let said = match outcome {
            Ok(()) => return ExitCode::SUCCESS,
            Err(Ended::Asked(text)) => {
                // A closed standard output is not an error.
                let _ = io::stdout().lock().write_all(text.as_bytes());
                return ExitCode::SUCCESS;
            }
            Err(Ended::Flags(problem)) => problem,
            Err(Ended::Failed(Failure::Refused(sentence))) => sentence,
            Err(Ended::Failed(Failure::Failed(error))) => chain(&*error),
        };
        eprintln!("Error: {said}");
        ExitCode::FAILURE
    }
}

/// The reason why a program did not run to its normal end.
#[derive(Debug)]
enum Ended {
    /// It was only asked to print this.
    Asked(String),
    Failed(Failure),
    /// Its flags are invalid.
    Flags(String),
}

impl Ended {
    /// Turns a problem with the flags into the end of a program with this help text and version.
    fn of(problem: Problem, help: impl FnOnce() -> String, version: &str) -> Ended {
        match problem {
            Problem::Help => Ended::Asked(help()),
            Problem::Version => Ended::Asked(format!("{version}\n")),
            Problem::Wrong(text) => Ended::Flags(text),
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

impl From<anyhow::Error> for Ended {
    fn from(error: anyhow::Error) -> Ended {
        Ended::Failed(Failure::Failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_goes_by_the_last_part_of_its_path() {
        for (first, want) in [
            ("kube-apiserver", Some(Program::ApiServer)),
            ("/a/b/etcd", Some(Program::Etcd)),
            ("/etcd/steersman", None),
            ("etcdctl", None),
        ] {
            assert_eq!(Program::called(Some(&OsString::from(first))), want, "{first}");
        }
        assert_eq!(Program::called(None), None);
    }
}
