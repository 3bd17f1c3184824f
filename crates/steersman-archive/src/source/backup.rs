//! Backups of Steersman, in either form of its values.

use crate::error::OpenError;
use crate::limits::Limits;
use crate::logs::Logs;
use crate::source::{Found, Source, Stored};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use steersman_storage::backup::{self, Decoder};

/// The size of the pieces in which a backup is read.
const PIECE_BYTES: usize = 256 * 1024;

pub(super) fn read(path: &Path, limits: &Limits) -> Result<Source, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let (mut decoder, mut piece) = (Decoder::new(), vec![0; PIECE_BYTES]);
    let mut stored = Stored { entries: Vec::new(), foreign: Vec::new(), revision: Default::default() };
    let (mut lost, mut n_bytes) = (0_usize, 0);
    loop {
        let n_read = file.read(&mut piece).map_err(io)?;
        if n_read == 0 {
            decoder.finish();
        } else {
            decoder.push(&piece[..n_read]);
        }
        while let Some(found) = decoder.next() {
            match found {
                backup::Found::Header(header) => stored.revision = header.revision,
                backup::Found::Entry(entry) => {
                    n_bytes += (entry.key.len() + entry.value.len()) as u64;
                    if limits.object_bytes < n_bytes || limits.objects <= stored.entries.len() {
                        let (path, limit) = (path.to_owned(), limits.object_bytes);
                        return Err(OpenError::Limit { path, limit, of: "bytes of objects" });
                    }
                    stored.entries.push(entry);
                }
                backup::Found::Lost(_) => lost += 1,
                backup::Found::End(_) => {}
                backup::Found::Fault(fault) => return Err(OpenError::Backup { path: path.to_owned(), fault }),
            }
        }
        if n_read == 0 {
            break;
        }
    }
    let note = (0 < lost).then(|| format!("the store that was backed up had lost {lost} objects"));
    Ok(Source {
        format: "a backup of Steersman",
        found: Found::Stored(stored),
        logs: Logs::default(),
        history: None,
        notes: note.into_iter().collect(),
    })
}
