//! The file of a simulated cloud: one JSON document, replaced as a whole.
//!
//! A write goes to a second file, which is synced and then renamed over the first, and the directory is synced too. So a
//! crash at any point leaves either the old document or the new one. A lock held for the life of [`File`] keeps a second
//! process out. All calls block.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::simulated::state::State;

/// The name of the document in the directory.
const NAME: &str = "simulated-neutron.json";

/// Rises with every change of the format that an older program could not read.
const FORMAT: u32 = 1;

/// Why a simulated cloud could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file was not written by this program. Move it away to start with an empty cloud.
    #[error("{path} is not the file of a simulated cloud; move it away to start with an empty one")]
    Corrupt {
        /// The path of the document.
        path: PathBuf,
        /// The error of the parser; `None` if every part is readable but they contradict each other.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// A newer program wrote the file.
    #[error("{path} has format {found}, and this program knows formats up to {FORMAT}; use a newer program")]
    Format {
        /// The path of the document.
        path: PathBuf,
        /// The format of the document.
        found: u32,
    },
    /// Another process has it open.
    #[error("another process uses the simulated cloud in {dir}; stop it or choose another directory")]
    Held {
        /// The directory.
        dir: PathBuf,
    },
    /// The file system returned an error.
    #[error("cannot open {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
struct Reading {
    #[serde(flatten)]
    state: State,
}

#[derive(Serialize)]
struct Writing<'a> {
    format: u32,
    #[serde(flatten)]
    state: &'a State,
}

/// An opened document.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    dir: fs::File,
    /// The lock; dropping it lets other processes in.
    _lock: fs::File,
}

impl File {
    /// Opens the document in a directory, making both if they are missing, and reads it.
    pub(crate) fn open(dir: &Path) -> Result<(Self, State), OpenError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        fs::create_dir_all(dir).map_err(io(dir))?;
        let path = dir.join(NAME);
        let lock_path = path.with_extension("lock");
        let lock = fs::File::options().create(true).append(true).open(&lock_path).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OpenError::Held { dir: dir.to_owned() }),
            Err(fs::TryLockError::Error(source)) => return Err(OpenError::Io { path: lock_path, source }),
        }
        let state = match fs::read(&path) {
            Ok(bytes) => decode(&path, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::default(),
            Err(source) => return Err(OpenError::Io { path, source }),
        };
        let dir = fs::File::open(dir).map_err(io(dir))?;
        Ok((Self { path, dir, _lock: lock }, state))
    }

    /// The path of the document.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the document. When this returns, the new one survives a crash.
    pub(crate) fn replace(&self, state: &State) -> io::Result<()> {
        let bytes = serde_json::to_vec(&Writing { format: FORMAT, state })?;
        let temporary = self.path.with_extension("new");
        let mut file = fs::File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        self.dir.sync_all()
    }
}

fn decode(path: &Path, bytes: &[u8]) -> Result<State, OpenError> {
    let corrupt = |source| OpenError::Corrupt { path: path.to_owned(), source };
    let Format { format } = serde_json::from_slice(bytes).map_err(|error| corrupt(Some(error)))?;
    if FORMAT < format {
        return Err(OpenError::Format { path: path.to_owned(), found: format });
    }
    let Reading { state } = serde_json::from_slice(bytes).map_err(|error| corrupt(Some(error)))?;
    if !state.is_consistent() {
        return Err(corrupt(None));
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::{Expect, expect};

    use super::{File, NAME, OpenError};
    use crate::simulated::state::State;

    #[track_caller]
    fn check(document: &str, expected: Expect) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), document).unwrap();
        let answer = match File::open(dir.path()) {
            Ok((_, state)) => format!("{state:?}"),
            Err(error) => error.to_string().replace(&dir.path().display().to_string(), "DIR"),
        };
        expected.assert_eq(&answer);
    }

    #[test]
    fn a_foreign_file_is_refused_and_kept() {
        check(r#"{"format":1,"networks":[],"subnets":[]}"#, expect!["State { networks: {}, subnets: {} }"]);
        check(
            r#"{"format":1,"networks":[],"#,
            expect![
                "DIR/simulated-neutron.json is not the file of a simulated cloud; move it away to start with an empty one"
            ],
        );
        check(
            r#"{"format":2}"#,
            expect![
                "DIR/simulated-neutron.json has format 2, and this program knows formats up to 1; use a newer program"
            ],
        );
        check(
            r#"{"format":1,"networks":[{"id":"82d23501-0d4b-4b2a-9a3e-0a4d3a4c9a10",
                "subnets":["62ec8f07-892e-495a-82a4-21d87c3d857a"]}],"subnets":[]}"#,
            expect![
                "DIR/simulated-neutron.json is not the file of a simulated cloud; move it away to start with an empty one"
            ],
        );
    }

    #[test]
    fn what_a_crash_left_half_written_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        drop(File::open(dir.path()).unwrap().0.replace(&State::default()));
        fs::write(dir.path().join("simulated-neutron.new"), "{\"form").unwrap();
        assert_eq!(File::open(dir.path()).unwrap().1, State::default());
    }

    #[test]
    fn a_second_opener_is_told_who_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let first = File::open(dir.path()).unwrap();
        assert!(matches!(File::open(dir.path()), Err(OpenError::Held { .. })));
        drop(first);
        assert!(File::open(dir.path()).is_ok());
    }
}
