//! From a file or a directory to objects, in the form in which the dump has them, and to the places of logs.

mod backup;
pub(crate) mod documents;
mod etcd;
pub(crate) mod layout;
pub(crate) mod recognized;
pub(crate) mod tree;

use crate::error::OpenError;
use crate::limits::Limits;
use crate::logs::Logs;
use crate::options::Options;
use crate::source::documents::Raw;
use crate::source::recognized::{Recognized, recognize};
use crate::source::tree::Tree;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use steersman_machinery::Revision;
use steersman_storage::kv::Entry;

/// The bytes by which a file is recognized.
const BEGINNING_BYTES: u64 = 4096;

/// A dump as it was read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) format: &'static str,
    pub(crate) found: Found,
    pub(crate) logs: Logs,
    pub(crate) history: Option<(Revision, Revision)>,
    pub(crate) notes: Vec<String>,
}

/// The objects of a dump.
#[derive(Debug)]
pub(crate) enum Found {
    /// As kube-apiserver or Steersman store them, under the keys of Steersman.
    Stored(Stored),
    /// As an API server has served them.
    Served(Served),
}

/// Objects as they were served.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) objects: Vec<Raw>,
    /// The newest revision of a list, zero if none has one.
    pub(crate) revision: u64,
}

/// Objects as they are stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) entries: Vec<Entry>,
    /// Entries whose keys are not those of a kind that is known: the key without its prefix, and the value.
    pub(crate) foreign: Vec<Entry>,
    pub(crate) revision: Revision,
}

impl Source {
    pub(crate) fn read(path: &Path, scratch: &Path, options: &Options) -> Result<Source, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(io)?;
        let limits = &options.limits;
        let source = if metadata.is_dir() {
            let tree = Tree::of_directory(path, limits)?;
            Source::of_tree(tree, path)?
        } else if !metadata.is_file() {
            return Err(OpenError::NoFile { path: path.to_owned() });
        } else {
            let mut beginning = Vec::new();
            let read = File::open(path).and_then(|file| file.take(BEGINNING_BYTES).read_to_end(&mut beginning));
            read.map_err(io)?;
            match recognize(&beginning) {
                Recognized::Backup => backup::read(path, limits)?,
                Recognized::Empty => return Err(OpenError::Empty { path: path.to_owned() }),
                Recognized::Gzip => Source::of_gzip(path, scratch, limits)?,
                Recognized::Snapshot => return etcd::read(path, options.at),
                Recognized::Tar => {
                    Source::of_tree(Tree::of_tar(path, File::open(path).map_err(io)?, scratch, limits)?, path)?
                }
                Recognized::Text => Source::of_documents(path, File::open(path).map_err(io)?, limits)?,
                Recognized::Unknown => return Err(OpenError::Unknown { path: path.to_owned() }),
            }
        };
        match options.at {
            Some(requested) => {
                let (path, format) = (path.to_owned(), source.format);
                Err(OpenError::Revision { path, format, requested })
            }
            None => Ok(source),
        }
    }

    /// A compressed tar, or compressed documents.
    fn of_gzip(path: &Path, scratch: &Path, limits: &Limits) -> Result<Source, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let unpacked = || File::open(path).map(flate2::read::MultiGzDecoder::new).map_err(io);
        let mut beginning = Vec::new();
        let read = unpacked()?.take(BEGINNING_BYTES).read_to_end(&mut beginning);
        // A file that is cut may have enough to be recognized.
        if let Err(source) = read
            && beginning.is_empty()
        {
            return Err(OpenError::Truncated { path: path.to_owned(), at: "at its beginning".to_owned(), source });
        }
        match recognize(&beginning) {
            Recognized::Tar => Source::of_tree(Tree::of_tar(path, unpacked()?, scratch, limits)?, path),
            Recognized::Text => Source::of_documents(path, unpacked()?, limits),
            Recognized::Empty => Err(OpenError::Empty { path: path.to_owned() }),
            Recognized::Backup | Recognized::Gzip | Recognized::Snapshot => {
                Err(OpenError::Packed { path: path.to_owned() })
            }
            Recognized::Unknown => Err(OpenError::Unknown { path: path.to_owned() }),
        }
    }

    fn of_documents(path: &Path, file: impl std::io::Read, limits: &Limits) -> Result<Source, OpenError> {
        let limit = limits.file_bytes;
        let mut text = Vec::new();
        file.take(limit + 1).read_to_end(&mut text).map_err(|source| OpenError::Truncated {
            path: path.to_owned(),
            at: format!("after {} bytes of text", text.len()),
            source,
        })?;
        if limit < text.len() as u64 {
            return Err(OpenError::Limit { path: path.to_owned(), limit, of: "bytes" });
        }
        let mut found = documents::Documents::new(limits);
        let read = found.read(&text, &documents::Hint::default());
        read.map_err(|source| OpenError::Document { path: path.to_owned(), source })?;
        let documents::Documents { objects, revision, .. } = found;
        if objects.is_empty() {
            return Err(OpenError::NoObjects { path: path.to_owned() });
        }
        let (format, logs) = ("the output of kubectl get", Logs::default());
        Ok(Source {
            format,
            found: Found::Served(Served { objects, revision }),
            logs,
            history: None,
            notes: Vec::new(),
        })
    }

    fn of_tree(tree: Tree, path: &Path) -> Result<Source, OpenError> {
        let Tree { format, objects, logs, n_unreadable, revision, unreadable } = tree;
        if objects.is_empty() {
            return match unreadable {
                Some((name, source)) => Err(OpenError::Document { path: path.join(name), source }),
                None => Err(OpenError::NoObjects { path: path.to_owned() }),
            };
        }
        let note =
            unreadable.map(|(name, error)| format!("{n_unreadable} files cannot be read, such as {name}: {error}"));
        let found = Found::Served(Served { objects, revision });
        Ok(Source { format, found, logs, history: None, notes: note.into_iter().collect() })
    }
}
