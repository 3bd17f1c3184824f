//! The log: on standard error, so that standard output is the program's own words.

use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;

const DEFAULT: &str = "warn,steersman=info,steersman_server=info,steersman_network=info,steersman_cli=info";

/// Begins to log what the filter lets through. A filter that cannot be read is told and replaced by the default.
pub(crate) fn init(filter: Option<&str>) {
    let parsed = EnvFilter::try_new(filter.unwrap_or(DEFAULT));
    let is_readable = parsed.is_ok();
    let filter_used = parsed.unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    tracing_subscriber::fmt()
        .with_env_filter(filter_used)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(true)
        .init();
    if !is_readable {
        tracing::warn!(filter = filter.unwrap_or(""), "the log filter cannot be read; the default is used");
    }
}
