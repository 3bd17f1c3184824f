//! A tree of files: a directory, or a tar. Each file is looked at once, and what it is follows from its path (`layout`).
//!
//! A directory is walked without following links, so that nothing outside of it is read. Of a tar nothing gets a name on the disk: paths
//! only say what is in a file.

use crate::error::{DocumentError, OpenError};
use crate::limits::Limits;
use crate::logs::{Logs, UnpackError, Unpacked};
use crate::source::documents::{Documents, Hint, Raw};
use crate::source::layout::{LAYOUTS, Place, plain_place};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tar::EntryType;

/// The deepest directory that is looked into.
const DEPTH_MAX: usize = 48;
/// The longest name of a file in a tar.
const NAME_BYTES_MAX: u64 = 64 * 1024;
/// A tree whose files no layout knows.
const PLAIN: &str = "a directory of objects";

/// The findings in a tree.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The format: the layout of most files that one knows.
    pub(crate) format: &'static str,
    pub(crate) objects: Vec<Raw>,
    pub(crate) logs: Logs,
    /// The number of files that should have objects and cannot be read, and the first of them.
    pub(crate) n_unreadable: usize,
    /// The newest revision of a list.
    pub(crate) revision: u64,
    pub(crate) unreadable: Option<(String, DocumentError)>,
}

/// A tree while it is read.
struct Reading<'a> {
    path: &'a Path,
    limits: &'a Limits,
    documents: Documents,
    logs: Logs,
    /// The number of files that each layout knows.
    known: [usize; LAYOUTS.len()],
    n_files: usize,
    n_unreadable: usize,
    unreadable: Option<(String, DocumentError)>,
}

impl Tree {
    pub(crate) fn of_directory(path: &Path, limits: &Limits) -> Result<Tree, OpenError> {
        let mut reading = Reading::new(path, limits);
        let mut directories = vec![(path.to_owned(), Vec::<String>::new())];
        while let Some((directory, names)) = directories.pop() {
            let io = |source| OpenError::Io { path: directory.clone(), source };
            let mut children = Vec::new();
            for child in fs::read_dir(&directory).map_err(io)? {
                let child = child.map_err(io)?;
                reading.count()?;
                // Names that are no text are those of no objects.
                if let Ok(name) = child.file_name().into_string() {
                    children.push((name, child.file_type().map_err(io)?));
                }
            }
            // In a fixed order, so that a dump is the same each time.
            children.sort_by(|(a, _), (b, _)| b.cmp(a));
            let mut below = Vec::new();
            for (name, of) in children.into_iter().rev() {
                let path = directory.join(&name);
                let names = [names.as_slice(), &[name]].concat();
                if of.is_dir() && names.len() < DEPTH_MAX {
                    below.push((path, names));
                } else if of.is_file() {
                    reading.file(&names, &path)?;
                }
            }
            directories.extend(below.into_iter().rev());
        }
        Ok(reading.finish())
    }

    pub(crate) fn of_tar(path: &Path, tar: impl Read, scratch: &Path, limits: &Limits) -> Result<Tree, OpenError> {
        let mut reading = Reading::new(path, limits);
        let mut archive = tar::Archive::new(Counted { from: tar, left: limits.unpacked_bytes });
        let truncated = |n_files: usize, source: io::Error| match source.get_ref() {
            Some(source) if source.is::<TooLarge>() => {
                OpenError::Limit { path: path.to_owned(), limit: limits.unpacked_bytes, of: "bytes after unpacking" }
            }
            _ => OpenError::Truncated { path: path.to_owned(), at: format!("after {n_files} files"), source },
        };
        let mut long_name: Option<String> = None;
        let entries = archive.entries().map_err(|source| truncated(0, source))?.raw(true);
        for entry in entries {
            let mut entry = entry.map_err(|source| truncated(reading.n_files, source))?;
            let of = entry.header().entry_type();
            if of.is_gnu_longname() || of.is_pax_local_extensions() {
                let mut bytes = Vec::new();
                let read = entry.by_ref().take(NAME_BYTES_MAX).read_to_end(&mut bytes);
                read.map_err(|source| truncated(reading.n_files, source))?;
                long_name = if of.is_gnu_longname() { text_of(&bytes) } else { pax_path(&bytes).or(long_name) };
                continue;
            }
            reading.count()?;
            let named = || text_of(&entry.path_bytes());
            let name = long_name.take().or_else(named).unwrap_or_default();
            if matches!(of, EntryType::Regular | EntryType::Continuous) {
                let names: Vec<String> =
                    name.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect();
                reading.packed(&names, &mut entry, scratch).map_err(|failed| match failed {
                    Failed::Read(source) => truncated(reading.n_files, source),
                    Failed::Refused(error) => error,
                })?;
            }
        }
        // Read to its end, where a compressed file has its checksum.
        let rest = io::copy(&mut archive.into_inner(), &mut io::sink());
        rest.map_err(|source| truncated(reading.n_files, source))?;
        Ok(reading.finish())
    }
}

/// Why a file of a tar is not read.
enum Failed {
    Read(io::Error),
    Refused(OpenError),
}

impl From<OpenError> for Failed {
    fn from(error: OpenError) -> Failed {
        Failed::Refused(error)
    }
}

impl<'a> Reading<'a> {
    fn new(path: &'a Path, limits: &'a Limits) -> Reading<'a> {
        Reading {
            path,
            limits,
            documents: Documents::new(limits),
            logs: Logs::default(),
            known: [0; LAYOUTS.len()],
            n_files: 0,
            n_unreadable: 0,
            unreadable: None,
        }
    }

    /// Counts a file.
    fn count(&mut self) -> Result<(), OpenError> {
        self.n_files += 1;
        if self.n_files <= self.limits.files {
            return Ok(());
        }
        Err(OpenError::Limit { path: self.path.to_owned(), limit: self.limits.files as u64, of: "files" })
    }

    /// The place of a file.
    fn place(&mut self, names: &[String]) -> Option<Place> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (n, layout) in LAYOUTS.iter().enumerate() {
            if let Some(place) = layout.place(&names) {
                self.known[n] += 1;
                return Some(place);
            }
        }
        plain_place(&names)
    }

    /// A file of a directory. One that cannot be read is passed over: the others are still worth it.
    fn file(&mut self, names: &[String], path: &PathBuf) -> Result<(), OpenError> {
        match self.place(names) {
            None => Ok(()),
            Some(Place::Log(container, lines)) => {
                self.logs.add_file(container, lines, path.clone());
                Ok(())
            }
            Some(Place::Objects(hint)) => {
                let mut text = Vec::new();
                let limit = self.limits.file_bytes;
                let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut text));
                match read {
                    Ok(_) => self.objects(names, &text, &hint),
                    Err(source) => Err(OpenError::Io { path: path.clone(), source }),
                }
            }
        }
    }

    /// A file of a tar.
    fn packed(&mut self, names: &[String], file: &mut dyn Read, scratch: &Path) -> Result<(), Failed> {
        match self.place(names) {
            None => Ok(()),
            Some(Place::Log(container, lines)) => {
                let limit = self.limits.log_bytes;
                match self.logs.unpack((container, lines), file, scratch, limit) {
                    Ok(Unpacked::Whole) => Ok(()),
                    Ok(Unpacked::TooMuch) => {
                        let path = self.path.to_owned();
                        Err(Failed::Refused(OpenError::Limit { path, limit, of: "bytes of logs" }))
                    }
                    Err(UnpackError::Read(source)) => Err(Failed::Read(source)),
                    Err(UnpackError::Write(source)) => {
                        Err(Failed::Refused(OpenError::Io { path: scratch.to_owned(), source }))
                    }
                }
            }
            Some(Place::Objects(hint)) => {
                let mut text = Vec::new();
                file.take(self.limits.file_bytes + 1).read_to_end(&mut text).map_err(Failed::Read)?;
                Ok(self.objects(names, &text, &hint)?)
            }
        }
    }

    fn objects(&mut self, names: &[String], text: &[u8], hint: &Hint) -> Result<(), OpenError> {
        let path = || self.path.join(names.join("/"));
        let limit = self.limits.file_bytes;
        if limit < text.len() as u64 {
            return Err(OpenError::Limit { path: path(), limit, of: "bytes" });
        }
        match self.documents.read(text, hint) {
            Ok(()) => Ok(()),
            Err(DocumentError::Limit { limit, of }) => Err(OpenError::Limit { path: path(), limit, of }),
            Err(error) => {
                self.n_unreadable += 1;
                self.unreadable.get_or_insert((names.join("/"), error));
                Ok(())
            }
        }
    }

    fn finish(self) -> Tree {
        let Reading { documents, logs, known, n_unreadable, unreadable, .. } = self;
        let most = known.iter().enumerate().filter(|(_, n)| 0 < **n).max_by_key(|(at, n)| (**n, usize::MAX - at));
        let format = most.map_or(PLAIN, |(at, _)| LAYOUTS[at].name());
        let Documents { objects, revision, .. } = documents;
        Tree { format, objects, logs, n_unreadable, revision, unreadable }
    }
}

/// A name that ends with a zero, or with its bytes.
fn text_of(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).ok()
}

/// The path in the extensions of a header.
fn pax_path(bytes: &[u8]) -> Option<String> {
    let mut extensions = tar::PaxExtensions::new(bytes).filter_map(Result::ok);
    extensions.find(|extension| extension.key_bytes() == b"path").and_then(|extension| text_of(extension.value_bytes()))
}

/// A reader that fails when it has given too much.
struct Counted<R> {
    from: R,
    left: u64,
}

/// The limit of the bytes after unpacking was reached.
#[derive(Debug, thiserror::Error)]
#[error("there is more than is read")]
struct TooLarge;

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n_read = self.from.read(out)?;
        self.left = self.left.checked_sub(n_read as u64).ok_or_else(|| io::Error::other(TooLarge))?;
        Ok(n_read)
    }
}

/// Reads a tar, for the fuzz target. Returns the number of objects.
#[cfg(feature = "fuzzing")]
pub fn fuzz_tar(tar: &[u8], scratch: &Path) -> Option<usize> {
    let limits =
        Limits { files: 100, file_bytes: 1 << 16, log_bytes: 1 << 16, unpacked_bytes: 1 << 20, ..Limits::default() };
    let tree = Tree::of_tar(Path::new("fuzzed"), tar, scratch, &limits).ok()?;
    Some(tree.objects.len())
}
