//! The file of a backup while it is written. It gets its name when all of it is on the disk and was found whole.

use crate::Failure;
use anyhow::Context as _;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::mem;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use steersman_machinery::Revision;
use steersman_storage::backup::{Decoder, Found, Header, Totals};
use steersman_storage::kv::Damaged;

/// The size of the writes to the file.
const BUFFER_BYTES: usize = 256 * 1024;

/// A backup that is being written.
pub(super) struct Destination {
    /// Reads what is written, so that a source that breaks off or sends something else is noticed.
    decoder: Decoder,
    /// `None` once it is complete.
    file: Option<BufWriter<File>>,
    path: PathBuf,
    new: PathBuf,
    read: Read,
}

/// The contents of the written bytes, as they were read back.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) header: Option<Header>,
    pub(super) lost: Vec<Damaged>,
    /// The number of entries of which the store has lost even the keys.
    pub(super) n_unknown: u64,
    pub(super) totals: Option<Totals>,
}

impl Destination {
    pub(super) fn create(path: &Path) -> Result<Destination, Failure> {
        let refused = |error: io::Error| {
            Failure::Refused(format!(
                "cannot write {}: {error}; name a file in a directory that exists",
                path.display()
            ))
        };
        if path.file_name().is_none() || path.is_dir() {
            return Err(Failure::Refused(format!("cannot write {}: it is a directory; name a file", path.display())));
        }
        let new = path.with_added_extension("new");
        let file = claim(&new).map_err(refused)?.ok_or_else(|| {
            Failure::Refused(format!(
                "cannot write {}: another backup into this file is under way; wait for it, or name another file",
                path.display()
            ))
        })?;
        let file = Some(BufWriter::with_capacity(BUFFER_BYTES, file));
        Ok(Destination { decoder: Decoder::new(), file, path: path.to_owned(), new, read: Read::default() })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).with_context(|| format!("cannot write {}", self.new.display()))?;
        self.decoder.push(bytes);
        self.look()
    }

    /// Reads what was written so far.
    fn look(&mut self) -> anyhow::Result<()> {
        while let Some(found) = self.decoder.next() {
            match found {
                Found::Header(header) => self.read.header = Some(header),
                Found::Entry(_) => {}
                Found::Lost(lost) => self.read.lost.push(lost),
                Found::End(totals) => self.read.totals = Some(totals),
                Found::Fault(fault) => anyhow::bail!("what was read is not as it was written: {fault}; try again"),
            }
        }
        Ok(())
    }

    /// Gives the file its name, durably.
    pub(super) fn finish(mut self) -> anyhow::Result<Read> {
        self.decoder.finish();
        self.look()?;
        let Some(file) = self.file.take() else { return Ok(Read::default()) };
        let placed = file.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| {
            file.sync_all()?;
            // While the file is open, it is locked.
            fs::rename(&self.new, &self.path)
        });
        if let Err(error) = placed {
            let _left = fs::remove_file(&self.new);
            return Err(error).with_context(|| format!("cannot write {}", self.path.display()));
        }
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced
            .with_context(|| format!("{} is written, but {} cannot be synced", self.path.display(), dir.display()))?;
        Ok(mem::take(&mut self.read))
    }
}

impl Drop for Destination {
    /// Removes a part of a backup, which is of no use.
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _left = fs::remove_file(&self.new);
        }
    }
}

/// Creates a file for this process alone; `None` while another process writes it. What a process that was killed has left is removed.
fn claim(path: &Path) -> io::Result<Option<File>> {
    loop {
        // Secrets are in it.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            // A process that found the file before it was locked may have taken it for one that was left.
            Ok(file) => match file.try_lock() {
                Ok(()) if is_at(&file, path) => return Ok(Some(file)),
                Ok(()) | Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            },
        }
        let left = match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            left => left?,
        };
        match left.try_lock() {
            Ok(()) if is_at(&left, path) => fs::remove_file(path)?,
            // The other process has given it its name, or removed it.
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Whether the path still leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |(open, named): (Metadata, Metadata)| (open.dev(), open.ino()) == (named.dev(), named.ino());
    file.metadata().and_then(|open| Ok(same((open, fs::metadata(path)?)))).unwrap_or(false)
}

impl Read {
    pub(super) fn revision(&self) -> Revision {
        self.header.as_ref().map_or(Revision::ZERO, |header| header.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_storage::backup::Encoder;
    use steersman_storage::kv::Entry;

    fn backup() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::begin(&Header::new("memory", Revision(9), None), &mut bytes);
        let entry = Entry { key: "/configmaps/default/a".into(), revision: Revision(2), value: "value".into() };
        encoder.entry(&entry, &mut bytes);
        encoder.end(&mut bytes);
        bytes
    }

    #[test]
    fn only_a_whole_backup_replaces_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        fs::write(&path, "the one before").unwrap();
        let bytes = backup();
        for length in 0..bytes.len() {
            let mut destination = Destination::create(&path).unwrap();
            destination.write(&bytes[..length]).unwrap();
            assert!(destination.finish().is_err(), "{length}");
            assert_eq!(fs::read(&path).unwrap(), b"the one before");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        }
        let mut flipped = bytes.clone();
        flipped[60] ^= 1;
        let mut destination = Destination::create(&path).unwrap();
        assert!(destination.write(&flipped).and_then(|()| destination.finish().map(drop)).is_err());
        // The file that a killed process has left is replaced.
        fs::write(path.with_added_extension("new"), "half").unwrap();
        let mut destination = Destination::create(&path).unwrap();
        destination.write(&bytes).unwrap();
        let read = destination.finish().unwrap();
        assert_eq!((read.revision(), read.totals), (Revision(9), Some(Totals { entries: 1, lost: 0 })));
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn two_backups_into_one_file_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        let mut first = Destination::create(&path).unwrap();
        let bytes = backup();
        first.write(&bytes[..bytes.len() / 2]).unwrap();
        let second = Destination::create(&path).err();
        let Some(Failure::Refused(message)) = second else { panic!("a second one was begun") };
        assert!(message.contains("another backup into this file is under way"), "{message}");
        first.write(&bytes[bytes.len() / 2..]).unwrap();
        first.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        Destination::create(&path).unwrap();
    }

    #[test]
    fn a_directory_is_no_file_to_write() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("absent/backup")] {
            assert!(matches!(Destination::create(&path), Err(Failure::Refused(_))), "{path:?}");
        }
    }
}
