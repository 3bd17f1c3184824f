//! The options of the commands on the store.

use crate::args::etcd;
use crate::args::{EtcdOptions, Output, address};
use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Reads everything in the store of a server that is not running, and reports damage.
    ///
    /// Nothing is changed. The exit code is 0 without damage, 1 if something is damaged or cannot be read, 2 if there is no store, another format, or a
    /// server has it open.
    Check(CheckOptions),
    /// Writes all objects at one revision into one file: the same as `steersman backup FILE`.
    Export(ExportOptions),
    /// Makes a store out of a file: the same as `steersman restore FILE`.
    Import(ImportOptions),
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

#[derive(ClapArgs, Debug)]
pub(crate) struct BackupOptions {
    /// The file to write, or with --verify to read. A file that exists is replaced once the new one is complete.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Read FILE, and name what is damaged in it.
    #[arg(long, conflicts_with_all = ["data_dir", "kubeconfig", "etcd_servers"])]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
}

/// The options of `open`.
#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct OpenOptions {
    /// The file or the directory.
    #[arg(value_name = "FILE|DIR")]
    pub(crate) file: PathBuf,
    /// Show the state at this revision, of those that a snapshot of etcd has: the changes of the last minutes, objects that were deleted too.
    #[arg(long, value_name = "REVISION")]
    pub(crate) at: Option<u64>,
    /// Replace the values of Secrets. Their keys stay.
    #[arg(long)]
    pub(crate) redact: bool,
    /// The directory of the certificates and the kubeconfig; without it, a temporary one that is removed at the end.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The address to listen on; port 0 takes any free port.
    #[arg(long, default_value = "127.0.0.1:0", value_parser = address, value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// The format in which it is reported that the dump is shown.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ExportOptions {
    /// The file to write. A file that exists is replaced once the new one is complete.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
}

/// The store that is read.
#[derive(ClapArgs, Debug)]
pub(crate) struct SourceOptions {
    /// The data directory of the server. While the server runs, it is asked for the backup with the kubeconfig of this directory; otherwise
    /// the directory is read.
    #[arg(long, conflicts_with = "etcd_servers", default_value = "./.steersman", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The kubeconfig of a running server, whose user must be in the group system:masters.
    #[arg(long, conflicts_with_all = ["data_dir", "etcd_servers"], value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) etcd: EtcdOptions,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct RestoreOptions {
    /// A backup, or a snapshot of an etcd in which a server kept its objects (`etcdctl snapshot save`).
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ImportOptions {
    /// A backup, or a snapshot of an etcd in which a server kept its objects (`etcdctl snapshot save`).
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// The store that is made.
#[derive(ClapArgs, Debug)]
#[command(group(ArgGroup::new("target").required(true).args(["data_dir", "etcd_servers"])))]
pub(crate) struct TargetOptions {
    /// The data directory of a server that does not run, and that has no objects yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) etcd: EtcdOptions,
    /// How far the store's revision is beyond that of FILE, so that no revision is given twice: more than the changes that the old server has made since.
    /// 100,000 are added for each second since the backup began. In etcd and the layout kubernetes, whose revisions can only be counted up by
    /// writes, nothing is added, and a million takes some minutes [default: 1000000000, or 1000000 in etcd and the layout kubernetes]
    #[arg(long, value_name = "N")]
    pub(crate) bump_revision: Option<u64>,
    /// Restore what is whole in a damaged backup, and name the rest.
    #[arg(long)]
    pub(crate) skip_damaged: bool,
    /// The prefix of the server's keys in a snapshot of etcd [default: /registry or /steersman, whichever it has]
    #[arg(long, value_parser = etcd::prefix, value_name = "PREFIX")]
    pub(crate) snapshot_prefix: Option<String>,
}
