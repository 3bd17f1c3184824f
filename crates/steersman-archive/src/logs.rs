//! The logs of containers in a dump: where each is, and the part of it that somebody asks for.
//!
//! Logs are not read when a dump is opened. Those of a directory stay where they are; those of a tar are unpacked one behind the other into a
//! file that has no name any more.

mod part;

use crate::logs::part::Part;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The most bytes of a log that are read for one request.
const READ_BYTES_MAX: u64 = 32 << 20;
/// The size of the pieces in which logs are unpacked.
const PIECE_BYTES: usize = 256 * 1024;
/// The name that the file of unpacked logs has for a moment.
const SCRATCH: &str = "unpacked-logs";

/// A container of a Pod, or all of them.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Container {
    /// The namespace of the Pod.
    pub namespace: Box<str>,
    /// The Pod.
    pub pod: Box<str>,
    /// The container; `None` if the logs of all are in one file, with marks between them.
    pub name: Option<Box<str>>,
    /// Which of its runs.
    pub run: Run,
}

/// A run of a container.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Run {
    /// The one that the log of a container is of.
    Current,
    /// The one before it.
    Previous,
}

/// The beginnings of the lines of a log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lines {
    /// The program's own output.
    Plain,
    /// Times that the tool has put there.
    Timed,
}

/// The part of a log that is wanted, and its form.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct LogOptions {
    /// The most bytes.
    pub limit_bytes: Option<u64>,
    /// Only lines since this time.
    pub since: Option<Timestamp>,
    /// Only the last lines.
    pub tail_lines: Option<u64>,
    /// Whether lines begin with their times.
    pub timestamps: bool,
}

/// Why a log cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It cannot be read any more.
    #[error("the log of the container cannot be read from the dump: {0}")]
    Io(#[source] io::Error),
    /// The dump does not have it.
    #[error("the dump has no {}log of container {name:?} of pod {namespace}/{pod}", if *run == Run::Previous { "previous " } else { "" })]
    Missing {
        /// The namespace of the Pod.
        namespace: Box<str>,
        /// The Pod.
        pod: Box<str>,
        /// The container.
        name: Box<str>,
        /// Which run.
        run: Run,
    },
    /// Its lines have no times.
    #[error("the lines of this log have no times in the dump: leave out --since, --since-time and --timestamps")]
    NoTimes,
    /// It is too long.
    #[error("the log has {length} bytes, which are too many at once: ask for a part with --tail or --limit-bytes")]
    TooLong {
        /// Its size.
        length: u64,
    },
}

/// The logs of a dump.
#[derive(Debug, Default)]
pub struct Logs {
    places: BTreeMap<Container, (Lines, Place)>,
    /// The unpacked logs, and how many bytes there are.
    scratch: Option<(File, u64)>,
}

/// The place of a log.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Scratch { from: u64, length: u64 },
}

impl Container {
    /// A container of a Pod.
    pub fn new(namespace: &str, pod: &str, name: &str, run: Run) -> Container {
        Container { namespace: namespace.into(), pod: pod.into(), name: Some(name.into()), run }
    }

    /// All containers of a Pod.
    pub(crate) fn all_of(namespace: &str, pod: &str) -> Container {
        Container { namespace: namespace.into(), pod: pod.into(), name: None, run: Run::Current }
    }
}

impl LogOptions {
    /// The whole log, without times.
    pub fn new() -> LogOptions {
        LogOptions::default()
    }
}

impl Logs {
    /// The number of logs.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A log that is in a file of its own. Of several logs of one container the first counts.
    pub(crate) fn add_file(&mut self, container: Container, lines: Lines, path: PathBuf) {
        self.places.entry(container).or_insert((lines, Place::File(path)));
    }

    /// Unpacks a log, if there is room for it. Of several logs of one container the first counts.
    pub(crate) fn unpack(
        &mut self,
        (container, lines): (Container, Lines),
        log: &mut dyn Read,
        scratch: &Path,
        bytes_max: u64,
    ) -> Result<Unpacked, UnpackError> {
        let (file, end) = match &mut self.scratch {
            Some((file, end)) => (file, end),
            none => {
                let (file, end) = none.insert((unnamed(scratch).map_err(UnpackError::Write)?, 0));
                (file, end)
            }
        };
        let (from, mut piece) = (*end, vec![0; PIECE_BYTES]);
        loop {
            let n_read = log.read(&mut piece).map_err(UnpackError::Read)?;
            if n_read == 0 {
                break;
            }
            *end += n_read as u64;
            if bytes_max < *end {
                return Ok(Unpacked::TooMuch);
            }
            file.write_all(&piece[..n_read]).map_err(UnpackError::Write)?;
        }
        let length = *end - from;
        self.places.entry(container).or_insert((lines, Place::Scratch { from, length }));
        Ok(Unpacked::Whole)
    }

    /// Reads the wanted part of a log. Blocks.
    ///
    /// # Errors
    /// When the dump does not have it, or it cannot be given in this form.
    pub fn read(&self, container: &Container, options: &LogOptions) -> Result<Vec<u8>, LogError> {
        if let Some((lines, place)) = self.places.get(container) {
            let (mut log, length) = self.open(place)?;
            return Part { lines: *lines, options }.of_log(&mut log, length);
        }
        let all = Container { name: None, ..container.clone() };
        let found = self.places.get(&all).filter(|_| container.name.is_some());
        let Some((lines, place)) = found else { return Err(missing(container)) };
        let (log, length) = self.open(place)?;
        let within = within_marks(container, log.take(length)).map_err(LogError::Io)?;
        let log = within.ok_or_else(|| missing(container))?;
        let length = log.len() as u64;
        Part { lines: *lines, options }.of_log(&mut io::Cursor::new(log), length)
    }

    /// A log, at its beginning.
    fn open(&self, place: &Place) -> Result<(Log<'_>, u64), LogError> {
        match (place, &self.scratch) {
            (Place::File(path), _) => {
                // It may have been exchanged since the dump was opened.
                let is_file = std::fs::symlink_metadata(path).map_err(LogError::Io)?.is_file();
                if !is_file {
                    return Err(LogError::Io(io::ErrorKind::InvalidInput.into()));
                }
                let file = File::open(path).map_err(LogError::Io)?;
                let length = file.metadata().map_err(LogError::Io)?.len();
                Ok((Log::File(file), length))
            }
            (Place::Scratch { from, length }, Some((file, _))) => {
                Ok((Log::Scratch { file, from: *from, at: 0, length: *length }, *length))
            }
            (Place::Scratch { .. }, None) => Err(LogError::Io(io::ErrorKind::NotFound.into())),
        }
    }
}

/// The outcome of unpacking a log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unpacked {
    TooMuch,
    Whole,
}

/// Why a log was not unpacked.
#[derive(Debug)]
pub(crate) enum UnpackError {
    Read(io::Error),
    Write(io::Error),
}

/// A log that is read.
enum Log<'a> {
    File(File),
    /// Several requests read the file at the same time, so it has no position.
    Scratch {
        file: &'a File,
        from: u64,
        at: u64,
        length: u64,
    },
}

impl Read for Log<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Log::File(file) => file.read(out),
            Log::Scratch { file, from, at, length } => {
                let left = usize::try_from(length.saturating_sub(*at)).unwrap_or(usize::MAX).min(out.len());
                let n_read = std::os::unix::fs::FileExt::read_at(*file, &mut out[..left], *from + *at)?;
                *at += n_read as u64;
                Ok(n_read)
            }
        }
    }
}

impl io::Seek for Log<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Log::File(file) => file.seek(to),
            Log::Scratch { at, length, .. } => {
                *at = match to {
                    SeekFrom::Start(place) => place,
                    SeekFrom::End(by) => length.saturating_add_signed(by),
                    SeekFrom::Current(by) => at.saturating_add_signed(by),
                };
                Ok(*at)
            }
        }
    }
}

/// A file of this process alone that has no name any more.
fn unnamed(dir: &Path) -> io::Result<File> {
    let path = dir.join(SCRATCH);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn missing(container: &Container) -> LogError {
    let Container { namespace, pod, name, run } = container.clone();
    LogError::Missing { namespace, pod, name: name.unwrap_or_default(), run }
}

/// The log of one container between the marks of kubectl; `None` if it is not there. Of a log that is too long, what comes first.
fn within_marks(container: &Container, log: impl Read) -> io::Result<Option<Vec<u8>>> {
    let Container { namespace, pod, name, .. } = container;
    let name = name.as_deref().unwrap_or_default();
    let mark = |word: &str| format!("==== {word} logs for container {name} of pod {namespace}/{pod} ====");
    let (start, end) = (mark("START"), mark("END"));
    let (mut found, mut line) = (None::<Vec<u8>>, Vec::new());
    let mut log = BufReader::new(log);
    loop {
        line.clear();
        // A line may be as long as the file.
        if log.by_ref().take(READ_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        let text = line.trim_ascii_end();
        match &mut found {
            None if text == start.as_bytes() => found = Some(Vec::new()),
            None => {}
            Some(_) if text == end.as_bytes() => return Ok(found),
            Some(found) if READ_BYTES_MAX < (found.len() + line.len()) as u64 => {
                return Ok(Some(std::mem::take(found)));
            }
            Some(found) => found.extend_from_slice(&line),
        }
    }
}

#[cfg(test)]
mod tests;
