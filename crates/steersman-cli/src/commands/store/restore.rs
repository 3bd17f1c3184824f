//! `steersman restore`: makes a store out of a file.
//!
//! The file is read twice: what is damaged is known before anything is written.

use crate::Failure;
use crate::args::TargetOptions;
use crate::commands::store::backup::now;
use crate::commands::store::input::{Contents, Input, Source, is_snapshot};
use crate::commands::store::name;
use crate::data_dir::DataDir;
use crate::plane::engine::expiring;
use bytes::Bytes;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_server::{EVENT_TTL, RuntimeConfig};
use steersman_storage::backup::{Fault, Header};
use steersman_storage::disk;
use steersman_storage::kv::transformed::SEALED;
use steersman_storage::kv::{Entry, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use steersman_storage_etcd::{
    self as etcd, ConnectError, Keys, REGISTRY_PREFIX, STEERSMAN_PREFIX, Snapshot, SnapshotError,
};
use steersman_storage_kubernetes::{self as kubernetes, Layout, ValueError, Values};

/// The keys of the addresses of servers.
const SERVER_ADDRESSES: &[u8] = b"/masterleases/";

/// A part of the keys under which kube-apiservers tell each other their addresses.
const PEER_ADDRESSES: &[u8] = b"/peerserverleases/";
/// The most objects of kinds that are not known that are named.
const NAMED_MAX: usize = 20;

/// How far a store is beyond the one that it is made of, if nothing else is asked for.
const BUMP: u64 = 1_000_000_000;
/// The same where each revision costs a write.
const BUMP_BY_WRITES: u64 = 1_000_000;

/// More changes than any server makes in a second. So a store that is restored a second time is beyond what the first one has given since.
const CHANGES_PER_SECOND: u64 = 100_000;

pub(crate) async fn run(file: &Path, target: &TargetOptions) -> Result<ExitCode, Failure> {
    let values = Values::new(target.etcd.layout(), &RuntimeConfig::default().with_initializers());
    let made = if is_snapshot(file)? {
        let snapshot = open_snapshot(file, target.snapshot_prefix.as_deref())?;
        let header = Header::new("etcd snapshot", snapshot.revision(), None);
        let mut definitions = snapshot.entries().map_err(anyhow::Error::new)?;
        while let Some(Entry { key, value, .. }) = definitions.next().map_err(anyhow::Error::new)? {
            values.note(&key, &value);
        }
        let mut entries = snapshot.entries().map_err(anyhow::Error::new)?;
        let made = make(&mut entries, values, &header, target).await?;
        let unknown = unknown(&snapshot);
        Made { is_whole: made.is_whole && unknown.is_empty(), said: unknown + &made.said }
    } else {
        let contents = Input::open(file)?.contents(|entry| values.note(&entry.key, &entry.value))?;
        let header = usable(&contents, file, target)?;
        let made = make(&mut Input::open(file)?, values, header, target).await?;
        Made { said: not_restored(&contents) + &made.said, ..made }
    };
    // A closed standard output is no reason to fail.
    let _ = io::stdout().lock().write_all(made.said.as_bytes());
    Ok(if made.is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A store that was made.
struct Made {
    /// Whether it has everything that was read from the file.
    is_whole: bool,
    /// Sentences for whoever restores.
    said: String,
}

/// Opens a snapshot in the layout that it has below a prefix. Without a prefix, that of either layout is looked at.
fn open_snapshot(file: &Path, prefix: Option<&str>) -> Result<Snapshot, Failure> {
    let refused = |error: SnapshotError| Failure::Refused(crate::chain(&error));
    let registry = Keys::Registry(Arc::new(kubernetes::keys()));
    let own = Snapshot::open(file, prefix.unwrap_or(STEERSMAN_PREFIX), &Keys::Steersman);
    if let Some(prefix) = prefix {
        return match own {
            Err(SnapshotError::Foreign { .. } | SnapshotError::KubeApiserver { .. }) => {
                Snapshot::open(file, prefix, &registry).map_err(refused)
            }
            own => own.map_err(refused),
        };
    }
    match (own, Snapshot::open(file, REGISTRY_PREFIX, &registry)) {
        (Ok(_), Ok(_)) => Err(Failure::Refused(format!(
            "{} has objects below {REGISTRY_PREFIX} and below {STEERSMAN_PREFIX}: say which are to be restored (--snapshot-prefix)",
            file.display()
        ))),
        (Err(SnapshotError::Empty { .. }), registry) => registry.map_err(refused),
        (own, _) => own.map_err(refused),
    }
}

/// Makes the store, and says what was made.
async fn make(
    source: &mut dyn Source,
    values: Values,
    header: &Header,
    target: &TargetOptions,
) -> Result<Made, Failure> {
    let (layout, bump) = (target.etcd.layout(), target.bump_revision);
    let revision = match layout {
        Layout::Kubernetes => revision_after(header, bump.unwrap_or(BUMP_BY_WRITES), None)?,
        Layout::Steersman => revision_after(header, bump.unwrap_or(BUMP), now())?,
    };
    let source = &mut Converted { source, values, layout, n_sealed: 0, left_out: Vec::new() };
    let (place, n_restored, revision) = match (&target.data_dir, target.etcd.read()?) {
        (_, Some(options)) => {
            let place = format!("etcd, below {}", options.prefix);
            let (n_restored, revision) = into_etcd(source, options.expiring(expiring(EVENT_TTL)), revision).await?;
            (place, n_restored, revision)
        }
        (Some(data_dir), None) => {
            (data_dir.display().to_string(), into_data_dir(source, data_dir, revision)?, revision)
        }
        (None, None) => return Err(Failure::Refused("name the target: --data-dir or --etcd-servers".to_owned())),
    };
    let mut text = format!("{place}: {n_restored} objects, revisions go on from {revision}, and clients list again\n");
    text.insert_str(0, &source.said());
    if target.data_dir.as_ref().is_some_and(|data_dir| !data_dir.join(DataDir::PKI).exists()) {
        text += "there is no directory pki: put the old server's there, or its kubeconfigs and tokens are refused\n";
    }
    Ok(Made { is_whole: source.left_out.is_empty(), said: text })
}

/// Entries in the form of the store that is made.
struct Converted<'a> {
    source: &'a mut dyn Source,
    values: Values,
    layout: Layout,
    /// The number of encrypted values.
    n_sealed: usize,
    /// Why some entries are not restored.
    left_out: Vec<String>,
}

impl Converted<'_> {
    /// The entry in its new form; `None` if it must not be in the new store.
    fn converted(&mut self, entry: Entry) -> Option<Entry> {
        // The address of a server that was there when the backup was made.
        if entry.key.starts_with(SERVER_ADDRESSES) {
            return None;
        }
        self.n_sealed += usize::from(entry.value.starts_with(SEALED));
        let converted = match self.values.convert(&entry.key, &entry.value) {
            Ok(value) => Entry { value, ..entry },
            // A later release reads it: it has the form of this layout already.
            Err(ValueError::Version { .. }) => entry,
            // Bytes that are no object make lists of a kube-apiserver fail.
            Err(fault) if self.layout == Layout::Kubernetes => {
                let why = format!("because it is no object: {}: {}", name(&entry.key), crate::chain(&fault));
                self.left_out.push(why);
                return None;
            }
            // The server names it.
            Err(_) => entry,
        };
        if KEY_BYTES_MAX < converted.key.len() || VALUE_BYTES_MAX < converted.value.len() {
            let (n_bytes, name) = (converted.value.len(), name(&converted.key));
            self.left_out.push(format!("because its key or its value of {n_bytes} bytes is too long: {name}"));
            return None;
        }
        Some(converted)
    }

    /// Sentences for whoever restores.
    fn said(&self) -> String {
        let mut text = String::new();
        for left_out in &self.left_out {
            text += &format!("not restored, {left_out}\n");
        }
        if 0 < self.n_sealed {
            text += &format!(
                "{} encrypted values are restored as they are: the server needs their keys, and for aesgcm and KMS the prefix that it had\n",
                self.n_sealed
            );
        }
        text
    }
}

impl Source for Converted<'_> {
    fn entries(&mut self) -> anyhow::Result<Vec<Entry>> {
        loop {
            let entries = self.source.entries()?;
            let is_end = entries.is_empty();
            let converted: Vec<Entry> = entries.into_iter().filter_map(|entry| self.converted(entry)).collect();
            if is_end || !converted.is_empty() {
                return Ok(converted);
            }
        }
    }
}

/// Names the objects in a snapshot whose kind is not served here.
fn unknown(snapshot: &Snapshot) -> String {
    let is_object = |key: &&Bytes| !key.windows(PEER_ADDRESSES.len()).any(|part| part == PEER_ADDRESSES);
    let keys: Vec<&Bytes> = snapshot.foreign_keys().filter(is_object).collect();
    let mut text = String::new();
    for key in keys.iter().take(NAMED_MAX) {
        text += &format!("not restored, because this release has no such kind: {}\n", name(key));
    }
    if NAMED_MAX < keys.len() {
        text += &format!("not restored, because this release has no such kinds: {} more\n", keys.len() - NAMED_MAX);
    }
    text
}

/// Names the objects that a backup lacks, or has in part.
fn not_restored(contents: &Contents) -> String {
    let mut text = String::new();
    for lost in &contents.lost {
        text += &format!("not restored, because the store had lost it when the backup was made: {}\n", name(&lost.key));
    }
    for fault in &contents.faults {
        text += &format!("not restored: {fault}\n");
    }
    if 0 < contents.n_more_faults() {
        text += &format!("not restored: {} more places are damaged\n", contents.n_more_faults());
    }
    text
}

/// The header of a backup that can be restored.
fn usable<'a>(contents: &'a Contents, file: &Path, target: &TargetOptions) -> Result<&'a Header, Failure> {
    let Some(header) = &contents.header else {
        let refused = |fault: &str| Failure::Refused(format!("{} cannot be restored: {fault}", file.display()));
        return Err(match contents.faults.first() {
            // Nothing says what the entries are and at which revision, so that not even --skip-damaged helps.
            Some(fault @ (Fault::Cut { .. } | Fault::Header)) => {
                Failure::Failed(anyhow::anyhow!("{} cannot be restored: {fault}; use another backup", file.display()))
            }
            Some(fault) => refused(&fault.to_string()),
            None => refused("it is empty"),
        });
    };
    match contents.faults.first() {
        Some(fault) if !target.skip_damaged => Err(Failure::Failed(anyhow::anyhow!(
            "{} is damaged in {} places, of which one is: {fault}; use another backup, or restore what is whole with --skip-damaged",
            file.display(),
            contents.n_faults
        ))),
        _ => Ok(header),
    }
}

/// A revision that the server of a backup cannot have reached since.
fn revision_after(header: &Header, bump: u64, now: Option<u64>) -> Result<Revision, Failure> {
    let age = now.zip(header.seconds).map_or(0, |(now, then)| now.saturating_sub(then));
    let jump = age.checked_mul(CHANGES_PER_SECOND).and_then(|since| since.checked_add(bump));
    let revision = jump.and_then(|jump| jump.checked_add(header.revision.0)).map(Revision);
    revision.ok_or_else(|| Failure::Refused(format!("--bump-revision {bump} is too large: choose a smaller jump")))
}

fn into_data_dir(source: &mut dyn Source, data_dir: &Path, revision: Revision) -> Result<usize, Failure> {
    let data_dir = DataDir::take(data_dir)?;
    let mut restore = disk::Restore::begin(&data_dir.store(), revision).map_err(of_disk)?;
    let mut n_restored = 0;
    loop {
        let entries = source.entries()?;
        if entries.is_empty() {
            break;
        }
        n_restored += entries.len();
        restore.put(entries).map_err(of_disk)?;
    }
    restore.finish().map_err(of_disk)?;
    Ok(n_restored)
}

fn of_disk(error: disk::RestoreError) -> Failure {
    match error {
        disk::RestoreError::Write { .. } | disk::RestoreError::Unsynced { .. } | disk::RestoreError::Entry { .. } => {
            Failure::Failed(anyhow::Error::new(error))
        }
        error => Failure::Refused(crate::chain(&error)),
    }
}

/// Returns how many objects were restored, and the revision from which on the store gives new ones.
async fn into_etcd(
    source: &mut dyn Source,
    options: etcd::Options,
    revision: Revision,
) -> Result<(usize, Revision), Failure> {
    let mut restore = etcd::Restore::begin(options, revision).await.map_err(of_etcd)?;
    match fill(source, &mut restore).await {
        Ok(n_restored) => Ok((n_restored, restore.revision())),
        Err(failure) => {
            if let Err(error) = restore.discard().await {
                tracing::warn!(
                    "what was restored cannot be removed, and the next restore does it: {}",
                    crate::chain(&error)
                );
            }
            Err(failure)
        }
    }
}

async fn fill(source: &mut dyn Source, restore: &mut etcd::Restore) -> Result<usize, Failure> {
    let mut n_restored = 0;
    loop {
        let entries = source.entries()?;
        if entries.is_empty() {
            restore.finish().await.map_err(of_etcd)?;
            return Ok(n_restored);
        }
        n_restored += entries.len();
        restore.put(entries).await.map_err(of_etcd)?;
    }
}

fn of_etcd(error: etcd::RestoreError) -> Failure {
    use etcd::RestoreError;
    match error {
        RestoreError::Connect(ConnectError::Kv(_) | ConnectError::Unreachable { .. }) | RestoreError::Write(_) => {
            Failure::Failed(anyhow::Error::new(error))
        }
        error => Failure::Refused(crate::chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_restore_is_beyond_what_an_earlier_one_has_given_since() {
        let header = Header::new("embedded", Revision(500), Some(1_000));
        let after = |bump, now| revision_after(&header, bump, now).ok().map(|revision| revision.0);
        assert_eq!(after(1_000, Some(1_000)), Some(1_500));
        assert_eq!(after(1_000, Some(1_010)), Some(1_001_500));
        assert_eq!(after(1_000, Some(10)), Some(1_500), "a clock that went back");
        assert_eq!(after(1_000, None), Some(1_500));
        assert_eq!(after(u64::MAX, Some(1_000)), None);
    }

    #[test]
    fn faults_that_are_only_counted_are_said_too() {
        let contents = |n_faults| Contents { faults: vec![Fault::Whole], n_faults, ..Contents::default() };
        let first = "not restored: the checksum over all of it is wrong\n";
        assert_eq!(not_restored(&contents(1)), first);
        assert_eq!(not_restored(&contents(8)), format!("{first}not restored: 7 more places are damaged\n"));
    }
}
