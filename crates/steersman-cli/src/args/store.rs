//! Options of the commands on the store.

use crate::args::Output;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Reads everything in the store of a server that does not run, and names what is damaged.
    ///
    /// Nothing is changed. The exit code is 0 if all is as it was written, 1 if something is damaged, 2 if there is no store to be read.
    Check(CheckOptions),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct CheckOptions {
    /// The data directory of the server.
    #[arg(long, default_value = "./.steersman", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// How the result is printed.
    #[arg(long, default_value = "text", value_enum, value_name = "FORMAT")]
    pub(crate) output: Output,
}
