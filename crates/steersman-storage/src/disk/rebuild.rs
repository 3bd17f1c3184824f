//! Rewrites a damaged store: undamaged current changes go into a new file, and the heads of lost ones, which mark their
//! keys as damaged. History is dropped. The damaged file is kept beside the new one.

use crate::disk::open::{OpenError, damaged, opening, private};
use crate::disk::survey::Survey;
use crate::disk::{FILE, FILE_DAMAGED, FILE_NEW, PAGE_CACHE_BYTES, format, remove};
use redb::Builder;
use std::fs::{self, File};
use std::path::Path;
use steersman_machinery::Revision;

/// The most lost keys that are logged individually.
const LOGGED_MAX: usize = 100;

/// Replaces the file in a directory.
pub(super) fn rebuild(dir: &Path, survey: &Survey, newest: Revision) -> Result<(), OpenError> {
    let (path, new, kept) = (dir.join(FILE), dir.join(FILE_NEW), dir.join(FILE_DAMAGED));
    for fault in survey.faults.iter().take(LOGGED_MAX) {
        tracing::error!(path = %path.display(), "the store is damaged: {fault}");
    }
    let cannot = |source| OpenError::Rebuild { path: path.clone(), source };
    remove(&new).map_err(cannot)?;
    let file = private().create_new(true).read(true).open(&new).map_err(cannot)?;
    let database = Builder::new().set_cache_size(PAGE_CACHE_BYTES).create_file(file).map_err(opening(&new))?;
    format::initialize(&database).map_err(damaged(&new))?;
    let lost = survey.lost.iter().map(|lost| (lost.place, &*lost.head));
    let filled = format::fill(&database, newest, survey.stored.current(), lost);
    filled.map_err(|error| match error {
        redb::Error::Io(source) => cannot(source),
        error => damaged(&new)(error),
    })?;
    drop(database);
    // The file has both names for a moment, so that a store always exists under the right one.
    remove(&kept).map_err(cannot)?;
    fs::hard_link(&path, &kept).or_else(|_| fs::copy(&path, &kept).map(drop)).map_err(cannot)?;
    fs::rename(&new, &path).map_err(cannot)?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(cannot)?;
    for lost in survey.lost.iter().take(LOGGED_MAX) {
        let key = String::from_utf8_lossy(&lost.key);
        tracing::error!(%key, revision = lost.place.0, "the value of a key is lost: delete it, or restore it from a copy");
    }
    tracing::error!(
        n_lost = survey.lost.len() as u64 + survey.n_unknown,
        kept = %kept.display(),
        "the store was damaged and is written anew: everything else is served, history is gone, and the damaged file is kept"
    );
    Ok(())
}
