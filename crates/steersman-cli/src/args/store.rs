//! The options of the commands on the store.

use crate::args::Output;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Reads everything in the store of a server that is not running, and reports damage.
    ///
    /// Nothing is changed. The exit code is 0 without damage, 1 if something is damaged or cannot be read, 2 if there is no store, another format, or a
    /// server has it open.
    Check(CheckOptions),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct CheckOptions {
    /// The data directory of the server.
    #[arg(long, default_value = "./.steersman", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The format of the result.
    #[arg(long, default_value = "text", value_enum, value_name = "FORMAT")]
    pub(crate) output: Output,
}
