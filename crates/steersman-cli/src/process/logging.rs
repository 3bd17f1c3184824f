//! The log, on standard error, so that standard output only has the program's output.

use crate::Failure;
use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Excludes the line about the start of each controller: a control plane has forty of them, and all start in its first
/// second.
const DEFAULT: &str = "warn,steersman=info,steersman::control::controller::life=warn,steersman_server=info,steersman_network=info,steersman_cli=info";

/// Starts logging with a filter.
pub(crate) fn init(filter: Option<&str>) -> Result<(), Failure> {
    let filter = filter.unwrap_or(DEFAULT);
    let refused = |why: &str| {
        let way = "--log (or $STEERSMAN_LOG) takes a level such as debug, or a filter such as steersman_server=debug";
        Failure::Refused(format!("cannot read the log filter {filter:?}: {why}; {way}"))
    };
    // `EnvFilter` takes a misspelled level for the name of a crate, and then logs nothing else.
    let is_word = !filter.is_empty() && filter.chars().all(char::is_alphanumeric);
    if is_word && filter.parse::<LevelFilter>().is_err() {
        return Err(refused("it is none of the levels off, error, warn, info, debug and trace"));
    }
    let parsed = EnvFilter::try_new(filter).map_err(|error| refused(&error.to_string()))?;
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(true)
        // A closed standard error is no reason to end: a line that cannot be written is lost, without a report that cannot be written either.
        .log_internal_errors(false)
        .init();
    Ok(())
}
