//! The `steersman` binary: command line, configuration, logging, signals, TLS sockets. Nothing imports it.
//!
//! Exit codes: 0 after an orderly end, 1 when something failed on the way, 2 when the command cannot be carried out as it
//! was given; then one sentence on standard error says what is wrong and what to do, and nothing has changed on disk.

mod accept;
mod args;
mod cloud;
mod controllers;
mod data_dir;
mod files;
mod kubeconfig;
mod logging;
mod network;
mod open_files;
mod output;
mod pki;
mod plane;
mod signals;
mod tasks;
mod up;

use crate::args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a command ended otherwise than it should.
#[derive(Debug)]
enum Failure {
    /// It cannot be carried out as it was given.
    Refused(String),
    /// It failed on the way.
    Failed(anyhow::Error),
}

impl Failure {
    /// What was asked to end was asked once more.
    fn stopped_at_once(signal: &'static str) -> Failure {
        Failure::Failed(anyhow::anyhow!("stopped at once by a second signal ({signal})"))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Failed(error)
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return args::report(&error),
    };
    if let Err(failure) = logging::init(args.log.as_deref()) {
        return report(&failure);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return report(&Failure::Failed(anyhow::Error::new(error).context("the runtime could not be started")));
        }
    };
    let outcome = runtime.block_on(async {
        match args.command {
            Command::Network(options) => network::run(options).await,
            Command::Server(options) => up::run(options.into()).await,
            Command::Up(options) => up::run(options).await,
        }
    });
    // What blocks in the background has nothing more to say.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// An error with what caused it, in one sentence.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn report(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Refused(sentence) => {
            eprintln!("steersman: {sentence}");
            ExitCode::from(2)
        }
        Failure::Failed(error) => {
            eprintln!("steersman: {error:#}");
            ExitCode::FAILURE
        }
    }
}
