//! The commands on what is stored: `backup`, `restore`, `open`, and `store check`, which checks the store for damage.

pub(crate) mod backup;
mod destination;
mod input;
pub(crate) mod open;
pub(crate) mod restore;
pub(crate) mod verify;

use crate::Failure;
use crate::args::{BackupOptions, CheckOptions, Output, StoreCommand};
use crate::data_dir::DataDir;
use serde::Serialize;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use steersman_storage::disk;
use steersman_storage::{Check, Unreadable, locate};

/// The result in its printed form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    /// The directory of the store.
    store: &'a Path,
    format: u64,
    revision: u64,
    /// The number of readable objects.
    objects: usize,
    /// The number of encrypted values, which are as they were written. Whether there are keys for them is not tried.
    encrypted: usize,
    /// The newest acknowledged revision, if the file ends before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged: Option<u64>,
    damaged: Vec<Damaged>,
    /// Damage of the file itself, which is usually the cause of the damaged entries.
    faults: Vec<String>,
    /// The number of lost entries whose keys are unknown.
    unknown: u64,
    is_sound: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Damaged {
    /// Its resource and key, such as `configmaps default/a`.
    key: String,
    revision: u64,
}

pub(crate) async fn run(command: &StoreCommand) -> Result<ExitCode, Failure> {
    match command {
        StoreCommand::Check(options) => check(options),
        StoreCommand::Export(options) => backup::run(&options.source, &options.to).await,
        StoreCommand::Import(options) => restore::run(&options.from, &options.target).await,
    }
}

/// `backup FILE`, and `backup --verify FILE`.
pub(crate) async fn back_up(options: &BackupOptions) -> Result<ExitCode, Failure> {
    if options.verify { verify::run(&options.file) } else { backup::run(&options.source, &options.file).await }
}

/// The name of a stored object for a person. Whoever wrote it may have put anything into it, which a terminal must not obey.
fn name(key: &[u8]) -> String {
    match locate(key) {
        Some((resource, key)) => format!("{resource} {key}").escape_debug().to_string(),
        None => format!("the key {:?}, which is not of an object", String::from_utf8_lossy(key)),
    }
}

/// The failure of a store that cannot be read.
fn unreadable(error: disk::OpenError) -> Failure {
    match error {
        disk::OpenError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => Failure::Refused(format!(
            "there is no store at {}: name the data directory of a server that keeps its objects in it with --data-dir; for one in etcd, make a backup with \
             --etcd-servers and read that with `steersman backup --verify`",
            path.display()
        )),
        error @ (disk::OpenError::Held { .. } | disk::OpenError::Format { .. }) => Failure::Refused(error.to_string()),
        error => Failure::Failed(anyhow::Error::new(error)),
    }
}

fn check(options: &CheckOptions) -> Result<ExitCode, Failure> {
    let dir = options.data_dir.join(DataDir::STORE);
    let check = steersman_storage::check(&dir).map_err(unreadable)?;
    let Check { report, n_objects, n_sealed, unreadable } = check;
    let is_sound =
        unreadable.is_empty() && report.faults.is_empty() && report.n_unknown == 0 && report.acknowledged.is_none();
    let report = Report {
        store: &dir,
        format: report.format,
        revision: report.revision.0,
        objects: n_objects,
        encrypted: n_sealed,
        acknowledged: report.acknowledged.map(|revision| revision.0),
        damaged: unreadable.iter().map(named).collect(),
        faults: report.faults,
        unknown: report.n_unknown,
        is_sound,
    };
    let text = match options.output {
        Output::Json => serde_json::to_string(&report).unwrap_or_default() + "\n",
        Output::Text => report.text(),
    };
    // A closed standard output is no reason to fail.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn named(unreadable: &Unreadable) -> Damaged {
    let key = match &unreadable.object {
        Some((resource, key)) => format!("{resource} {key}"),
        None => "a key of no object".to_owned(),
    };
    Damaged { key, revision: unreadable.revision.0 }
}

impl Report<'_> {
    fn text(&self) -> String {
        let Report { store, format, revision, objects, encrypted, acknowledged, damaged, faults, unknown, is_sound } =
            self;
        let encrypted = if 0 < *encrypted { format!(", and {encrypted} that are encrypted") } else { String::new() };
        let mut text =
            format!("{}: format {format}, revision {revision}, {objects} objects{encrypted}\n", store.display());
        for Damaged { key, revision } in damaged {
            text += &format!("damaged: {key}, written at revision {revision}\n");
        }
        for fault in faults {
            text += &format!("fault: {fault}\n");
        }
        if 0 < *unknown {
            text += &format!("lost: {unknown} entries, of which not even the keys are known\n");
        }
        if let Some(acknowledged) = acknowledged {
            text += &format!(
                "lost: the changes behind revision {revision}; changes up to revision {acknowledged} were acknowledged\n"
            );
        }
        text + match is_sound {
            true => "everything is as it was written\n",
            false if acknowledged.is_some() => {
                "the server does not start with this file: restore a newer copy, or remove store.newest to go on without these changes\n"
            }
            false if damaged.is_empty() && *unknown == 0 => {
                "start the server: no object is lost, and it writes anew what is damaged\n"
            }
            false => {
                "restore it from a copy, or start the server: it serves everything else, and damaged objects can be deleted \
                 with the parameter ignoreStoreReadErrorWithClusterBreakingPotential=true\n"
            }
        }
    }
}
