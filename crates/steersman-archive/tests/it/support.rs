//! Makes dumps, and shows what was found in them.

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use steersman_archive::{Archive, OpenError, Options};
use steersman_machinery::Object;
use tempfile::TempDir;

/// A directory for dumps.
pub(crate) struct Dumps(TempDir);

impl Dumps {
    pub(crate) fn new() -> Dumps {
        Dumps(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("dump");
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn directory(&self, files: &[(&str, &str)]) -> PathBuf {
        let path = self.path("directory");
        for (name, text) in files {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        path
    }

    pub(crate) fn open(&self, path: &Path) -> Result<Archive, OpenError> {
        self.open_with(path, &Options::default())
    }

    pub(crate) fn open_with(&self, path: &Path, options: &Options) -> Result<Archive, OpenError> {
        let scratch = self.path("scratch");
        fs::create_dir_all(&scratch).unwrap();
        let opened = steersman_archive::open(path, &scratch, options);
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "nothing has a name");
        opened
    }

    /// The sentence of a dump that cannot be opened.
    pub(crate) fn refusal(&self, path: &Path) -> String {
        self.refusal_with(path, &Options::default())
    }

    pub(crate) fn refusal_with(&self, path: &Path, options: &Options) -> String {
        let opened = self.open_with(path, options).map(|archive| archive.entries.len());
        opened.unwrap_err().to_string().replace(&*self.0.path().to_string_lossy(), "DIR")
    }
}

pub(crate) fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An object as an API server gives it.
pub(crate) fn object(api_version: &str, kind: &str, namespace: &str, name: &str, version: u64) -> Value {
    let mut object = serde_json::json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": version.to_string()},
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// The keys of all entries, each with its revision.
pub(crate) fn keys(archive: &Archive) -> Vec<String> {
    archive.entries.iter().map(|entry| format!("{} {}", String::from_utf8_lossy(&entry.key), entry.revision)).collect()
}

/// The object under a key, as a server stores it.
pub(crate) fn stored(archive: &Archive, key: &str) -> Value {
    let entry = archive.entries.iter().find(|entry| entry.key == key).unwrap_or_else(|| panic!("{key} is missing"));
    serde_json::from_slice(Object::json_of(&entry.value).unwrap()).unwrap()
}
