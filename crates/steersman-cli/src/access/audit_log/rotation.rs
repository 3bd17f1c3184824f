//! A log file that is rotated by size; rotated files are compressed, and removed by age and number.
//!
//! Rotated files are named like the log with the time in UTC, `audit-2026-01-31T12-00-00.000.log`, as kube-apiserver
//! names them. A log that another program has moved or removed is reopened.

use crate::args::AuditOptions;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use jiff::tz::Offset;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The limits of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The size of the current file.
    bytes_max: u64,
    /// The number of rotated files; `None` for all.
    backups_max: Option<usize>,
    age_max: Option<Duration>,
    compresses: bool,
}

/// The log.
#[derive(Debug)]
pub(super) struct Rotating {
    path: PathBuf,
    limits: Limits,
    /// `None` after it could not be reopened.
    file: Option<File>,
    size: u64,
    /// Whether the last write ended within a line.
    is_torn: bool,
    clock: fn() -> Timestamp,
    /// The thread that compresses and removes rotated files. At most one at a time.
    upkeep: Option<JoinHandle<()>>,
}

impl Limits {
    pub(super) fn new(options: &AuditOptions) -> Limits {
        let some = |n: u32| (n > 0).then_some(n);
        Limits {
            bytes_max: u64::from(options.audit_log_maxsize) * MEGABYTE,
            backups_max: some(options.audit_log_maxbackup).map(|n| n as usize),
            age_max: some(options.audit_log_maxage).map(|days| DAY * days),
            compresses: options.audit_log_compress,
        }
    }
}

// === impl Rotating ===

impl Rotating {
    pub(super) fn open(path: &Path, limits: Limits) -> io::Result<Rotating> {
        let mut log = Rotating {
            path: path.to_owned(),
            limits,
            file: None,
            size: 0,
            is_torn: false,
            clock: Timestamp::now,
            upkeep: None,
        };
        log.reopen()?;
        Ok(log)
    }

    /// Appends lines. On an error some of them may be in the file.
    pub(super) fn write(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        if !self.is_in_place() {
            self.reopen()?;
        }
        let mut piece = Vec::new();
        for line in lines {
            let grown = self.size + piece.len() as u64 + line.len() as u64;
            if self.limits.bytes_max < grown && self.size + piece.len() as u64 > 0 {
                self.append(&piece)?;
                piece.clear();
                self.rotate()?;
            }
            piece.extend_from_slice(line);
        }
        self.append(&piece)
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if piece.is_empty() {
            return Ok(());
        }
        if self.is_torn {
            file.write_all(b"\n")?;
            self.size += 1;
        }
        self.is_torn = true;
        file.write_all(piece)?;
        self.is_torn = false;
        self.size += piece.len() as u64;
        Ok(())
    }

    /// Whether the path still leads to the open file.
    fn is_in_place(&self) -> bool {
        let open = self.file.as_ref().and_then(|file| file.metadata().ok());
        let there = fs::metadata(&self.path).ok();
        open.zip(there).is_some_and(|(open, there)| (open.dev(), open.ino()) == (there.dev(), there.ino()))
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = None;
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Rotates the file. If it is no regular file, such as a pipe, it stays and its size counts as zero.
    fn rotate(&mut self) -> io::Result<()> {
        if !fs::metadata(&self.path)?.is_file() {
            self.size = 0;
            return Ok(());
        }
        fs::rename(&self.path, self.aside())?;
        self.reopen()?;
        if self.upkeep.as_ref().is_none_or(JoinHandle::is_finished) {
            let (path, limits, now) = (self.path.clone(), self.limits, (self.clock)());
            let work = move || {
                if let Err(error) = tidy(&path, limits, now) {
                    tracing::warn!(%error, "older audit logs cannot be compressed or removed");
                }
            };
            self.upkeep = std::thread::Builder::new().name("audit-log-upkeep".to_owned()).spawn(work).ok();
        }
        Ok(())
    }

    /// A name that no file has yet.
    fn aside(&self) -> PathBuf {
        let (stem, extension) = parts(&self.path);
        let mut time = (self.clock)();
        loop {
            let mut name = stem.clone();
            name.push(stamp(time));
            name.push(&extension);
            let aside = self.path.with_file_name(name);
            if !aside.exists() {
                return aside;
            }
            time += Duration::from_millis(1);
        }
    }
}

impl Drop for Rotating {
    fn drop(&mut self) {
        if let Some(upkeep) = self.upkeep.take() {
            // The thread has logged its error.
            let _ = upkeep.join();
        }
    }
}

/// The parts of a rotated name around the time: `audit-` and `.log`.
fn parts(path: &Path) -> (OsString, OsString) {
    let mut stem = path.file_stem().unwrap_or_default().to_owned();
    stem.push("-");
    let mut extension = OsString::new();
    if let Some(text) = path.extension() {
        extension.push(".");
        extension.push(text);
    }
    (stem, extension)
}

fn stamp(time: Timestamp) -> String {
    let millis = time.subsec_millisecond().rem_euclid(1000);
    let time = Offset::UTC.to_datetime(time);
    let (date, time) = (time.date(), time.time());
    let (year, month, day) = (date.year(), date.month(), date.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}-{:02}-{:02}.{millis:03}", time.hour(), time.minute(), time.second())
}

/// Compresses rotated files, and removes those that are too old or too many.
fn tidy(path: &Path, limits: Limits, now: Timestamp) -> io::Result<()> {
    let (stem, extension) = parts(path);
    let (stem, extension) = (stem.to_string_lossy().into_owned(), extension.to_string_lossy().into_owned());
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut aside = Vec::new();
    for entry in fs::read_dir(parent)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let bare = name.strip_suffix(".gz").unwrap_or(&name);
        let time = bare.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(&extension));
        // The length of a time is checked because other files may begin like the log.
        if let Some(time) = time.filter(|time| time.len() == stamp(now).len()) {
            aside.push((time.to_owned(), parent.join(&name), name.ends_with(".gz")));
        }
    }
    // The newest first: the text of a time sorts like the time.
    aside.sort_by(|(a, ..), (b, ..)| b.cmp(a));
    let oldest = limits.age_max.and_then(|age| now.checked_sub(age).ok()).map(stamp);
    for (index, (time, path, is_compressed)) in aside.iter().enumerate() {
        let is_too_many = limits.backups_max.is_some_and(|max| max <= index);
        let is_too_old = oldest.as_ref().is_some_and(|oldest| time < oldest);
        if is_too_many || is_too_old {
            fs::remove_file(path)?;
        } else if limits.compresses && !is_compressed {
            compress(path)?;
        }
    }
    Ok(())
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    // Written under another name until it is complete.
    let mut partial = name.clone();
    partial.push(".partial");
    let output = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    let mut encoder = GzEncoder::new(output, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&partial, &name)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    const LIMITS: Limits = Limits { bytes_max: 20, backups_max: None, age_max: None, compresses: false };

    fn clock() -> Timestamp {
        "2026-01-31T12:00:00.5Z".parse().unwrap()
    }

    fn open(path: &Path, limits: Limits) -> Rotating {
        let mut log = Rotating::open(path, limits).unwrap();
        log.clock = clock;
        log
    }

    fn lines(lines: &[&str]) -> Vec<Vec<u8>> {
        lines.iter().map(|line| format!("{line}\n").into_bytes()).collect()
    }

    /// Names and contents, in the order of the names.
    fn files(dir: &Path) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let bytes = fs::read(&path).unwrap();
                let mut text = String::new();
                match name.ends_with(".gz") {
                    true => flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap(),
                    false => (&*bytes).read_to_string(&mut text).unwrap(),
                };
                (name, text)
            })
            .collect();
        files.sort();
        files
    }

    #[track_caller]
    fn check(dir: &Path, want: &[(&str, &str)]) {
        let files = files(dir);
        let found: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn a_log_that_would_grow_too_large_is_put_aside_between_two_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(&dir.path().join("audit.log"), LIMITS);
        log.write(&lines(&["one-8901", "two-8901", "three-890"])).unwrap();
        log.write(&lines(&["a line longer than all of it", "x"])).unwrap();
        drop(log);
        check(
            dir.path(),
            &[
                ("audit-2026-01-31T12-00-00.500.log", "one-8901\ntwo-8901\n"),
                ("audit-2026-01-31T12-00-00.501.log", "three-890\n"),
                ("audit-2026-01-31T12-00-00.502.log", "a line longer than all of it\n"),
                ("audit.log", "x\n"),
            ],
        );
        // An existing file is appended to.
        open(&dir.path().join("audit.log"), LIMITS).write(&lines(&["y"])).unwrap();
        assert_eq!(files(dir.path())[3].1, "x\ny\n");
    }

    #[test]
    fn what_is_too_old_or_too_much_is_removed_and_the_rest_compressed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["audit-2026-01-29T12-00-00.000.log", "audit-2025-12-31T12-00-00.000.log.gz", "audit-other.log"] {
            fs::write(dir.path().join(name), "old").unwrap();
        }
        let limits = Limits { age_max: Some(DAY * 3), compresses: true, ..LIMITS };
        let path = dir.path().join("audit.log");
        fs::write(&path, "new").unwrap();
        let mut log = open(&path, limits);
        log.rotate().unwrap();
        drop(log);
        let kept = ("audit-2026-01-31T12-00-00.500.log.gz", "new");
        let others = [("audit-other.log", "old"), ("audit.log", "")];
        check(dir.path(), &[("audit-2026-01-29T12-00-00.000.log.gz", "old"), kept, others[0], others[1]]);
        let limits = Limits { backups_max: Some(1), ..limits };
        tidy(&path, limits, clock()).unwrap();
        check(dir.path(), &[kept, others[0], others[1]]);
    }

    #[test]
    fn a_log_that_was_moved_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut log = open(&path, LIMITS);
        log.write(&lines(&["a"])).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        log.write(&lines(&["b"])).unwrap();
        check(dir.path(), &[("audit.log", "b\n"), ("moved", "a\n")]);
    }

    #[test]
    fn a_full_disk_is_an_error_of_each_write_and_no_more() {
        let mut log = open(Path::new("/dev/full"), LIMITS);
        for _ in 0..3 {
            assert_eq!(log.write(&lines(&["a", "b"])).unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
    }
}
