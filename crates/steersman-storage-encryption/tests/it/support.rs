//! Configurations in files, stores over them, and what is stored.

use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_storage::kv::Kv;
use steersman_storage::kv::transformed::Transformed;
use steersman_storage::{Options, Store};
use steersman_storage_encryption::Encryption;

/// A text that must not be found where values are encrypted.
pub(crate) const PLAIN: &str = "correct horse battery staple";

/// A directory with a configuration.
pub(crate) struct File {
    dir: tempfile::TempDir,
}

impl File {
    pub(crate) fn new(entries: &str) -> File {
        let file = File { dir: tempfile::tempdir().unwrap() };
        file.write(entries);
        file
    }

    pub(crate) fn write(&self, entries: &str) {
        let text =
            format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{entries}");
        std::fs::write(self.path(), text).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("encryption.yaml")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) async fn open(&self) -> Arc<Encryption> {
        Arc::new(Encryption::open(&self.path()).await.unwrap())
    }
}

/// An entry for Secrets.
pub(crate) fn secrets(providers: &str) -> String {
    format!("- resources: [secrets]\n  providers: {providers}\n")
}

/// A provider with keys, each a name and a byte that is repeated.
pub(crate) fn provider(name: &str, keys: &[(&str, u8)]) -> String {
    use base64::Engine as _;
    let keys: Vec<String> = keys
        .iter()
        .map(|(name, byte)| {
            let secret = base64::engine::general_purpose::STANDARD.encode([*byte; 32]);
            format!("{{name: {name}, secret: {secret}}}")
        })
        .collect();
    format!("{{{name}: {{keys: [{}]}}}}", keys.join(", "))
}

pub(crate) async fn store(kv: &Arc<dyn Kv>, encryption: &Arc<Encryption>) -> Store {
    let kv = Arc::new(Transformed::new(kv.clone(), encryption.clone()));
    Store::open(kv, Options::default()).await.unwrap()
}

pub(crate) fn resource(name: &str) -> GroupResource {
    GroupResource::new("", name)
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

pub(crate) fn json(name: &str) -> Bytes {
    format!(r#"{{"kind":"Secret","metadata":{{"name":"{name}"}},"data":"{PLAIN}"}}"#).into()
}

pub(crate) async fn create(store: &Store, resource_name: &str, name: &str) {
    store.create(&resource(resource_name), &key(name), json(name)).await.unwrap();
}

/// Whether a read has the object with its content.
pub(crate) async fn has(store: &Store, resource_name: &str, name: &str) -> bool {
    let found = store.get(&resource(resource_name), &key(name)).await;
    found.is_ok_and(|found| found.is_some_and(|object| String::from_utf8_lossy(object.json()).contains(PLAIN)))
}

/// The stored value of a key.
pub(crate) async fn stored(kv: &Arc<dyn Kv>, key: &str) -> Bytes {
    let entries = kv.read().await.unwrap().entries;
    entries.into_iter().find(|entry| entry.key == key).unwrap().value
}
