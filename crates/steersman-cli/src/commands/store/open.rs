//! `steersman open`: a dump of a cluster as an API server that only reads.
//!
//! The objects are in memory. No control loops run, nothing is stored, and nobody is called whom the dump names. The certificates and the
//! kubeconfig are in a directory that goes with the process, unless one is given.

use crate::Failure;
use crate::args::{OpenOptions, ServerOptions};
use crate::data_dir::DataDir;
use crate::plane::Plan;
use crate::plane::controllers::{Controllers, Role};
use crate::plane::nodes::{Joining, Nodes};
use crate::plane::shown::{DumpedLogs, Shown};
use crate::process::output;
use crate::process::signals::Signals;
use anyhow::Context as _;
use clap::Parser;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steersman_archive::{self as archive, Archive, Redaction};
use steersman_machinery::Revision;
use steersman_server::builtin;
use steersman_storage::Memory;
use tempfile::TempDir;

/// Everything that this release knows is served: a dump may be of a server with more than the stable versions.
const SERVED: &str = "api/all=true";
/// The most made-up definitions that are named.
const NAMED_MAX: usize = 10;

/// The options of the server below, with their defaults.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Defaults {
    #[command(flatten)]
    server: ServerOptions,
}

/// The facts about a dump that is shown, for whoever opened it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Opened<'a> {
    file: &'a Path,
    format: &'static str,
    url: String,
    kubeconfig: PathBuf,
    objects: usize,
    revision: u64,
    /// The oldest and the newest revision whose states the file has.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<(u64, u64)>,
    /// The number of containers whose logs there are.
    logs: usize,
    /// The kinds whose definitions are made up.
    made_up: &'a [String],
    /// The number of objects that are not shown, by reason.
    left_out: Vec<(String, usize)>,
    notes: Vec<String>,
    version: &'static str,
}

/// Runs until a signal arrives. A second signal ends the process at once.
pub(crate) async fn run(options: OpenOptions) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let temporary = match &options.data_dir {
        Some(_) => None,
        None => Some(
            TempDir::with_prefix("steersman-open-")
                .context("no temporary directory can be made (--data-dir names another one)")?,
        ),
    };
    let given = options.data_dir.as_deref();
    let dir = given.or(temporary.as_ref().map(TempDir::path)).unwrap_or(Path::new(".")).to_owned();
    let nodes = Nodes::new(0, Joining::Refused);
    let controllers = Controllers::parse(&["-*".to_owned()], Role::Server, &nodes)?;
    let plan = Plan::new(server_options(&dir, &options)?, &controllers, &nodes)?;
    // Logs are unpacked into it. The plan has found that no other process holds it.
    drop(DataDir::take(&dir)?);
    let opened = tokio::select! {
        opened = read(options.clone(), dir) => opened?,
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            return Ok(());
        }
    };
    let Archive { format, entries, revision, history, logs, made_up, left_out, notes, .. } = opened;
    let (n_objects, n_logs) = (entries.len(), logs.len());
    let file = options.file.display();
    let why = format!("{file} is {format}, opened to be read: nothing can be changed in it, or run");
    let kv = Arc::new(Memory::filled(entries, revision));
    let plan = plan.showing(Shown { kv, logs: DumpedLogs(Arc::new(logs)), why: why.into() });
    let plane = tokio::select! {
        plane = plan.start(&nodes) => plane?,
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            return Ok(());
        }
    };
    plane.check_ready().await?;
    let shown = Opened {
        file: &options.file,
        format,
        url: plane.url(),
        kubeconfig: plane.data_dir.kubeconfig(),
        objects: n_objects,
        revision: revision.0,
        history: history.map(|(oldest, newest)| (oldest.0, newest.0)),
        logs: n_logs,
        made_up: &made_up,
        left_out: left_out.reasons().map(|(why, n)| (plain(why), n)).collect(),
        notes: notes.iter().map(|note| plain(note)).collect(),
        version: env!("CARGO_PKG_VERSION"),
    };
    output::say(&shown, options.output, Opened::text);
    let signal = signals.next().await;
    tracing::info!(signal, "stopping");
    let stop = async {
        plane.withdraw().await;
        plane.stop().await
    };
    tokio::select! {
        stopped = stop => stopped?,
        signal = signals.next() => return Err(Failure::stopped_at_once(signal)),
    }
    drop(temporary);
    Ok(())
}

/// Reads the dump. A signal does not wait for it.
async fn read(options: OpenOptions, scratch: PathBuf) -> Result<Archive, Failure> {
    let mut wanted = archive::Options::default();
    wanted.at = options.at.map(Revision);
    wanted.redaction = if options.redact { Redaction::Redact } else { Redaction::Keep };
    wanted.runtime_config = builtin::runtime_config([SERVED]).context("the built-in kinds cannot all be served")?;
    let read = tokio::task::spawn_blocking(move || archive::open(&options.file, &scratch, &wanted)).await;
    let opened = read.context("the dump cannot be read")?;
    opened.map_err(|error| Failure::Refused(crate::chain(&error)))
}

fn server_options(dir: &Path, options: &OpenOptions) -> Result<ServerOptions, Failure> {
    let listen = options.listen.to_string();
    let given: [&OsStr; 8] = [
        "--data-dir".as_ref(),
        dir.as_ref(),
        "--listen".as_ref(),
        listen.as_ref(),
        "--in-memory".as_ref(),
        // Its objects are made by the server.
        "--enable-priority-and-fairness=false".as_ref(),
        "--runtime-config".as_ref(),
        SERVED.as_ref(),
    ];
    let parsed = Defaults::try_parse_from(given.map(OsString::from));
    Ok(parsed.map_err(|error| Failure::Refused(error.to_string()))?.server)
}

/// A text without what a terminal would obey: kinds and names are those of the dump.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

impl Opened<'_> {
    fn text(&self) -> String {
        let Opened { objects, revision, .. } = self;
        let mut text = format!("Steersman {} shows {}, {}\n", self.version, self.file.display(), self.format);
        text += &format!("  at           {}, read-only\n", self.url);
        text += &format!("  objects      {objects} at revision {revision}\n");
        if let Some((oldest, newest)) = self.history {
            text += &format!("  history      revisions {oldest} to {newest} (--at)\n");
        }
        if 0 < self.logs {
            text += &format!("  logs         of {} containers\n", self.logs);
        }
        if !self.made_up.is_empty() {
            let named: Vec<&str> = self.made_up.iter().take(NAMED_MAX).map(String::as_str).collect();
            let more = self.made_up.len() - named.len();
            let more = if 0 < more { format!(" and {more} more") } else { String::new() };
            text += &format!("  made up      the definitions of {}{more}\n", named.join(", "));
        }
        for (why, n) in &self.left_out {
            text += &format!("  left out     {n} {why}\n");
        }
        for note in &self.notes {
            text += &format!("  note         {note}\n");
        }
        text += &format!("\nIn another terminal:\n  export KUBECONFIG={}\n", self.kubeconfig.display());
        text + "  kubectl get pods --all-namespaces\n\nCtrl-C stops it.\n"
    }
}
