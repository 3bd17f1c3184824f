//! The part of a log that is wanted: by its end, by time, by size, with or without the times of its lines.

use crate::logs::{Lines, LogError, LogOptions, READ_BYTES_MAX};
use jiff::Timestamp;
use std::io::{Read, Seek, SeekFrom};

/// The longest time at the beginning of a line.
const TIME_BYTES_MAX: usize = 40;

pub(super) struct Part<'a> {
    pub(super) lines: Lines,
    pub(super) options: &'a LogOptions,
}

impl Part<'_> {
    /// The wanted part of a log of so many bytes.
    pub(super) fn of_log(&self, log: &mut (impl Read + Seek), length: u64) -> Result<Vec<u8>, LogError> {
        let LogOptions { limit_bytes, tail_lines, .. } = *self.options;
        let mut read = Vec::new();
        let is_long = READ_BYTES_MAX < length;
        if is_long && tail_lines.is_some() {
            log.seek(SeekFrom::Start(length - READ_BYTES_MAX)).map_err(LogError::Io)?;
        } else if is_long && limit_bytes.is_none_or(|limit| READ_BYTES_MAX < limit) {
            return Err(LogError::TooLong { length });
        }
        log.take(READ_BYTES_MAX).read_to_end(&mut read).map_err(LogError::Io)?;
        if is_long && tail_lines.is_some() {
            // It begins within a line.
            let first = read.iter().position(|byte| *byte == b'\n').map_or(read.len(), |at| at + 1);
            read.drain(..first);
        }
        self.of(&read)
    }

    fn of(&self, log: &[u8]) -> Result<Vec<u8>, LogError> {
        let LogOptions { limit_bytes, since, tail_lines, timestamps } = *self.options;
        let mut lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
        let has_times = lines.first().is_some_and(|line| time_of(line).is_some());
        if !has_times && !lines.is_empty() && (since.is_some() || timestamps) {
            return Err(LogError::NoTimes);
        }
        if let Some(since) = since {
            let is_before = |line: &&[u8]| time_of(line).is_none_or(|(time, _)| time < since);
            let first = lines.iter().position(|line| !is_before(line)).unwrap_or(lines.len());
            lines.drain(..first);
        }
        if let Some(tail) = tail_lines {
            let n_left_out = lines.len().saturating_sub(usize::try_from(tail).unwrap_or(usize::MAX));
            lines.drain(..n_left_out);
        }
        let is_cut = self.lines == Lines::Timed && !timestamps;
        let shown = lines.into_iter().map(|line| match time_of(line).filter(|_| is_cut) {
            Some((_, text)) => text,
            None => line,
        });
        let mut shown = shown.collect::<Vec<_>>().concat();
        if let Some(limit) = limit_bytes {
            shown.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok(shown)
    }
}

/// The time at the beginning of a line, and what follows it.
fn time_of(line: &[u8]) -> Option<(Timestamp, &[u8])> {
    let end = line.iter().take(TIME_BYTES_MAX).position(|byte| *byte == b' ')?;
    let time = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((time, &line[end + 1..]))
}
