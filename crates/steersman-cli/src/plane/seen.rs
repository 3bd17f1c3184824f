//! The newest revision that this server has seen in etcd, in a file of its data directory, so that a store that went back while no server ran
//! is noticed by the next start.
//!
//! It says nothing about what other servers have seen. It is not forced to the disk: after a loss of power it may be behind, or unreadable, and is never
//! ahead. The file of the embedded engine has a file of its own for this.

use crate::Failure;
use crate::args::InEtcd;
use crate::data_dir::DataDir;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use steersman_machinery::Revision;

const FILE: &str = "etcd.newest";

/// The file.
#[derive(Debug)]
pub(crate) struct Seen {
    path: PathBuf,
    prefix: String,
    /// The revision in the file; `None` if it could not be written last time.
    noted: Option<Revision>,
}

#[derive(Deserialize, Serialize)]
struct Note {
    prefix: String,
    revision: u64,
}

impl Seen {
    /// Refuses a store that is at an earlier revision than the one in the file.
    pub(crate) fn check(data_dir: &DataDir, place: &InEtcd, found: Revision) -> Result<Seen, Failure> {
        let path = data_dir.path().join(FILE);
        let note: Option<Note> = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(Failure::Refused(format!(
                    "cannot read {}: {error}; make it readable, or remove it",
                    path.display()
                )));
            }
            Ok(bytes) => {
                let note = serde_json::from_slice(&bytes);
                note.inspect_err(|error| {
                    tracing::warn!(path = %path.display(), "the file is damaged ({error}): an etcd that went back would not be noticed");
                })
                .ok()
            }
        };
        let seen = note.filter(|note| note.prefix == place.prefix).map(|note| Revision(note.revision));
        if let Some(seen) = seen.filter(|seen| found < *seen) {
            return Err(Failure::Refused(format!(
                "etcd is at revision {found} below {}, and this server has seen revision {seen}: etcd was restored or exchanged, and clients that \
                 know later revisions would miss changes; restore it with a larger revision (`etcdutl snapshot restore --bump-revision`, or `steersman \
                 restore`), or remove {} to go on and restart all clients",
                place.prefix,
                path.display()
            )));
        }
        let mut seen = Seen { path, prefix: place.prefix.clone(), noted: None };
        seen.note(found);
        Ok(seen)
    }

    /// Notes a revision that exists.
    pub(crate) fn note(&mut self, revision: Revision) {
        if self.noted == Some(revision) {
            return;
        }
        self.noted = match self.write(revision) {
            Ok(()) => Some(revision),
            Err(error) => {
                tracing::debug!(path = %self.path.display(), "the newest revision cannot be noted: {error}");
                None
            }
        };
    }

    fn write(&self, revision: Revision) -> io::Result<()> {
        let note = Note { prefix: self.prefix.clone(), revision: revision.0 };
        let new = self.path.with_added_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&note)?)?;
        fs::rename(new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(prefix: &str) -> InEtcd {
        InEtcd { servers: vec!["http://127.0.0.1:2379".to_owned()], prefix: prefix.to_owned() }
    }

    #[test]
    fn a_store_that_went_back_is_refused_with_the_file_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::take(dir.path()).unwrap();
        let mut seen = Seen::check(&data_dir, &place("/steersman"), Revision(10)).unwrap();
        seen.note(Revision(500));
        for found in [500, 501] {
            drop(Seen::check(&data_dir, &place("/steersman"), Revision(found)).unwrap());
        }
        let Err(Failure::Refused(sentence)) = Seen::check(&data_dir, &place("/steersman"), Revision(500)) else {
            panic!("an earlier revision is used");
        };
        assert!(sentence.contains("is at revision 500") && sentence.contains("has seen revision 501"), "{sentence}");
        assert!(sentence.contains("etcd.newest to go on"), "{sentence}");
        drop(Seen::check(&data_dir, &place("/other"), Revision(3)).unwrap());
    }

    #[test]
    fn a_file_that_a_loss_of_power_has_emptied_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::take(dir.path()).unwrap();
        fs::write(dir.path().join(FILE), "").unwrap();
        drop(Seen::check(&data_dir, &place("/steersman"), Revision(10)).unwrap());
        assert!(Seen::check(&data_dir, &place("/steersman"), Revision(9)).is_err());
    }
}
