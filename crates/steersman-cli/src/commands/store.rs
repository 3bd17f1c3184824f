//! `steersman store check`: checks the store for damage.

use crate::Failure;
use crate::args::{CheckOptions, Output, StoreCommand};
use crate::data_dir::DataDir;
use serde::Serialize;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use steersman_storage::disk;
use steersman_storage::{Check, Unreadable};

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

pub(crate) fn run(command: &StoreCommand) -> Result<ExitCode, Failure> {
    match command {
        StoreCommand::Check(options) => check(options),
    }
}

fn check(options: &CheckOptions) -> Result<ExitCode, Failure> {
    let dir = options.data_dir.join(DataDir::STORE);
    let check = match steersman_storage::check(&dir) {
        Ok(check) => check,
        Err(disk::OpenError::Io { path, source }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::Refused(format!(
                "there is no store at {}: name the server's data directory with --data-dir",
                path.display()
            )));
        }
        Err(error @ (disk::OpenError::Held { .. } | disk::OpenError::Format { .. })) => {
            return Err(Failure::Refused(error.to_string()));
        }
        Err(error) => return Err(Failure::Failed(anyhow::Error::new(error))),
    };
    let Check { report, n_objects, unreadable } = check;
    let is_sound =
        unreadable.is_empty() && report.faults.is_empty() && report.n_unknown == 0 && report.acknowledged.is_none();
    let report = Report {
        store: &dir,
        format: report.format,
        revision: report.revision.0,
        objects: n_objects,
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
        let Report { store, format, revision, objects, acknowledged, damaged, faults, unknown, is_sound } = self;
        let mut text = format!("{}: format {format}, revision {revision}, {objects} objects\n", store.display());
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
