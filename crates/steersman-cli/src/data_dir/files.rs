//! Writes files atomically, with the right permissions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The permissions of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rights {
    /// Everyone may read it.
    Public,
    /// Only its owner may read it.
    Secret,
}

/// Replaces a file, durably: a reader sees the old one or the new one.
pub(crate) fn write(path: &Path, contents: &[u8], rights: Rights) -> io::Result<()> {
    let new = path.with_added_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mode = match rights {
        Rights::Public => 0o644,
        Rights::Secret => 0o600,
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
}
