//! The keys of ServiceAccount tokens in the data directory: a file for each, named by its creation time.

use crate::Failure;
use crate::data_dir::files::{self, Rights};
use anyhow::Context as _;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steersman_server::authn::{Algorithm, Keeper, Keyring, PublicKey, StoredKey};
use steersman_storage::Store;

/// Upstream's servers issue tokens of this kind, and some clients accept no other.
const ALGORITHM: Algorithm = Algorithm::Rs256;
const ENDING: &str = "key";

/// A directory of keys.
#[derive(Debug)]
struct Directory(PathBuf);

/// The place of the keys that the server makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewKeys<'a> {
    /// A key ends with the process. Accounts are objects: if objects end with the process, their tokens end too. Keys of this
    /// directory are used as well.
    InMemory(&'a Path),
    /// The keys are in the store, where other servers find them.
    Shared(&'a Store),
    /// The keys are in the directory.
    Stored(&'a Path),
}

/// The keys that the server makes or has made, together with the given ones.
pub(crate) fn made(new: NewKeys<'_>, trusted: Vec<PublicKey>) -> Result<Keyring, Failure> {
    let dir = match new {
        NewKeys::InMemory(dir) | NewKeys::Stored(dir) => dir,
        NewKeys::Shared(store) => {
            let shared = Keyring::in_store(ALGORITHM, store, trusted);
            return Ok(shared.context("the keys of service account tokens cannot be read from the store")?);
        }
    };
    let directory = Directory(dir.to_owned());
    let stored = directory.read()?;
    let keeper: Option<Arc<dyn Keeper>> = match new {
        NewKeys::Stored(_) => Some(Arc::new(directory)),
        NewKeys::InMemory(_) | NewKeys::Shared(_) => None,
    };
    Keyring::made(ALGORITHM, stored, keeper, trusted)
        .map_err(|error| Failure::Refused(format!("a key in {} cannot be used: {error}", dir.display())))
}

impl Directory {
    fn read(&self) -> Result<Vec<StoredKey>, Failure> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let error = anyhow::Error::new(error);
                return Err(error.context(format!("the directory {} cannot be read", self.0.display())).into());
            }
        };
        let mut stored = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("the directory {} cannot be read", self.0.display()))?.path();
            if path.extension().is_none_or(|extension| extension != ENDING) {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            stored.push(StoredKey::parse(&text).map_err(|error| {
                Failure::Refused(format!(
                    "the key {} cannot be used, for {error}: put back what was there, or remove it, which ends the tokens that it signed",
                    path.display()
                ))
            })?);
        }
        Ok(stored)
    }

    fn path(&self, key: &StoredKey) -> PathBuf {
        self.0.join(format!("{}.{ENDING}", key.created.as_second()))
    }
}

impl Keeper for Directory {
    fn save(&self, key: &StoredKey) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        files::write(&self.path(key), key.to_text().as_bytes(), Rights::Secret)
    }

    fn remove(&self, key: &StoredKey) -> io::Result<()> {
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use steersman_server::authn::SigningKey;

    #[test]
    fn a_key_is_kept_as_its_owners_secret_and_found_again() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let directory = Directory(home.path().join("keys"));
        assert!(directory.read().unwrap().is_empty());
        let (_, pem) = SigningKey::generate(Algorithm::Es256).unwrap();
        let mut key = StoredKey { created: Timestamp::from_second(7).unwrap(), needed_until: None, pem };
        directory.save(&key).unwrap();
        key.needed_until = Some(Timestamp::from_second(9).unwrap());
        directory.save(&key).unwrap();
        assert_eq!(directory.read().unwrap(), [key.clone()]);
        assert_eq!(fs::metadata(directory.path(&key)).unwrap().permissions().mode() & 0o777, 0o600);
        directory.remove(&key).unwrap();
        directory.remove(&key).unwrap();
        assert!(directory.read().unwrap().is_empty());
    }

    #[test]
    fn a_damaged_key_is_refused_by_its_name_and_stays() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("1.key");
        fs::write(&path, "created: yesterday\n").unwrap();
        let Err(Failure::Refused(why)) = made(NewKeys::Stored(home.path()), Vec::new()) else { panic!("it was taken") };
        assert!(why.contains("1.key") && why.contains("its line 1"), "{why}");
        assert!(path.exists());
    }
}
