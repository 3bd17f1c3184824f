//! Writes files atomically, with the right permissions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The permissions of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rights {
    /// Everyone may read it.
    Public,
    /// Only its owner may read it.
    Secret,
}

/// Replaces a file, durably: a reader sees the old one or the new one. One that has these contents already stays as it is, which needs no room
/// on the disk.
pub(crate) fn write(path: &Path, contents: &[u8], rights: Rights) -> io::Result<()> {
    let mode = match rights {
        Rights::Public => 0o644,
        Rights::Secret => 0o600,
    };
    if has(path, contents, mode) {
        return Ok(());
    }
    let new = path.with_added_extension("new");
    let written = replace(path, &new, contents, mode);
    if written.is_err() {
        // A part of a file is of no use.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Whether a file has these contents and these rights, or fewer.
fn has(path: &Path, contents: &[u8], mode: u32) -> bool {
    let is_private = || fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o777 & !mode == 0);
    fs::read(path).is_ok_and(|found| found == contents) && is_private()
}

fn replace(path: &Path, new: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(new)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(new, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_secret_is_its_owners_alone_even_in_place_of_a_public_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        write(&path, b"public", Rights::Public).unwrap();
        write(&path, b"secret", Rights::Secret).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_with_the_same_contents_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        write(&path, b"same", Rights::Secret).unwrap();
        let written = fs::metadata(&path).unwrap().ino();
        write(&path, b"same", Rights::Secret).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), written);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, b"same", Rights::Secret).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_half_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        fs::create_dir_all(path.join("in-use")).unwrap();
        write(&path, b"text", Rights::Secret).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
