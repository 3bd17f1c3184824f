//! The `steersman` binary: command line, configuration, logging, signals, TLS sockets. Nothing imports it.
//!
//! Exit codes: 0 after an orderly end, 1 when something failed during the command, 2 when the command cannot be carried
//! out as given; then one sentence on standard error says what is wrong and what to do, and nothing has changed on
//! disk.

mod access;
mod args;
mod commands;
mod connections;
mod data_dir;
mod plane;
mod process;

use crate::args::{Args, Command};
use crate::commands::development::codegen::new;
use crate::commands::development::{codegen, envtest, explain_denied, run_as, webhooks};
use crate::commands::drop_in::Program;
use crate::commands::node::NodeCommand;
use crate::commands::{forward, mesh, network, node, store, up};
use crate::plane::controllers::Role;
use crate::process::{logging, memory, signals};
use clap::Parser;
use futures::future::LocalBoxFuture;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The most threads for blocking work such as files and the names of hosts.
const BLOCKING_THREADS_MAX: usize = 8;

/// The reason why a command failed.
#[derive(Debug)]
enum Failure {
    /// The command cannot be carried out as given.
    Refused(String),
    /// The command failed while it ran.
    Failed(anyhow::Error),
}

impl Failure {
    /// The failure of a process that a second signal ends at once.
    fn stopped_at_once(signal: &'static str) -> Failure {
        Failure::Failed(anyhow::anyhow!("stopped at once by a second signal ({signal})"))
    }

    /// The failure as an error, for code that runs after the command was accepted.
    fn into_error(self) -> anyhow::Error {
        match self {
            Failure::Refused(sentence) => anyhow::Error::msg(sentence),
            Failure::Failed(error) => error,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Failed(error)
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if let Some(program) = Program::called(arguments.next().as_ref()) {
        return program.run(arguments.map(|argument| argument.to_string_lossy().into_owned()).collect());
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return args::report(&error),
    };
    if let Err(failure) = logging::init(args.log.as_deref()) {
        return report(&failure);
    }
    // The process becomes another program, so it must not have threads.
    if let Command::RunAsMounted(options) = &args.command {
        return run_as::mount::become_command(&options.dir, &options.command);
    }
    // Each controller reads its caches on such a thread when it starts: thirty threads at the same time would leave
    // their memory behind.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).on_thread_park(memory::give_back_now_and_then);
    let runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return report(&Failure::Failed(anyhow::Error::new(error).context("the runtime could not be started")));
        }
    };
    // Boxed, because the runtime compiles the whole future several times.
    let outcome = runtime.block_on(Box::pin(async {
        signals::outlive_file_size_limit();
        match args.command {
            Command::Backup(options) => store::back_up(&options).await,
            Command::Codegen(command) => codegen::run(command).await.map(done),
            Command::Envtest(options) => envtest::run(&options).map(done),
            Command::ExplainDenied(options) => explain_denied::run(&options).map(done),
            Command::Forward(options) => forward::run(options).await.map(done),
            Command::Mesh(command) => mesh::run(command).await.map(done),
            Command::New(options) => new::run(&options).map(done),
            Command::Network(options) => network::run(options).await.map(done),
            Command::Node(NodeCommand::Token(options)) => node::token(&options).await.map(done),
            Command::Open(options) => store::open::run(options).await.map(done),
            Command::Restore(options) => store::restore::run(&options.file, &options.target).await,
            Command::RunAs(options) => run_as::run(options).await,
            Command::RunAsMounted(_) => Ok(ExitCode::FAILURE),
            Command::Server(options) => up::run(options.into(), Role::Server).await.map(done),
            Command::Store(command) => store::run(&command).await,
            Command::Up(options) => up::run(options, Role::Up).await.map(done),
            Command::Webhooks(options) => webhooks::run(options).await.map(done),
        }
    }) as LocalBoxFuture<'_, Result<ExitCode, Failure>>);
    // Blocking work in the background is not waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

/// An error and its causes on one line, `a: b: c`. A cause that the previous error already contains is left out: some
/// libraries print their causes themselves.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error.to_string();
    let mut text = last.clone();
    for cause in std::iter::successors(error.source(), |error| error.source()) {
        let cause = cause.to_string();
        if !last.contains(&cause) {
            text = format!("{text}: {cause}");
            last = cause;
        }
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
            eprintln!("steersman: {}", chain(&**error));
            ExitCode::FAILURE
        }
    }
}
