//! Opens the file of a directory with redb, after the survey has verified it. A damaged file is written anew first, and a file of an older
//! format is upgraded. The writer uses this too, when a block turns out to be damaged while the store is open.

mod blocks;
pub(super) mod damage;
#[cfg(test)]
mod failing;
pub(super) mod intercepted;
pub(super) mod pages;
pub(super) mod restore;
pub(super) mod scan;
pub(super) mod storage;

use crate::disk::file::storage::Storage;
use crate::disk::format::{self, EVENTS, FORMAT};
use crate::disk::newer::Acknowledged;
use crate::disk::open::{OpenError, behind, damaged, opening, refused};
use crate::disk::renewal::rebuild;
use crate::disk::survey::{self, Survey};
use crate::disk::{FILE, FILE_NEWEST, guarded};
use redb::{Database, ReadableDatabase, ReadableTableMetadata};
use std::path::Path;
use std::sync::Arc;
use steersman_machinery::Revision;

/// A file that redb has open, and what was found in it.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) storage: Storage,
    pub(super) survey: Survey,
}

/// The reason why a surveyed file is not used.
pub(super) enum Unusable {
    /// It can be written anew.
    AsItIs(OpenError, Box<Survey>),
    Never(OpenError),
}

/// Opens the file in a directory. Changes up to a revision were acknowledged.
pub(super) fn open(dir: &Path, acknowledged: Option<Revision>) -> Result<Opened, OpenError> {
    open_on(dir, acknowledged, Storage::file)
}

/// [`open`] with a storage that `storage` makes of a path, so that a test can make it fail.
fn open_on(
    dir: &Path,
    acknowledged: Option<Revision>,
    mut storage: impl FnMut(&Path) -> Result<Storage, OpenError>,
) -> Result<Opened, OpenError> {
    let path = dir.join(FILE);
    let mut is_renewed = false;
    loop {
        let storage = storage(&path)?;
        let survey = survey::survey(&storage, acknowledged.into()).map_err(refused(&path))?;
        let revision = survey.index.revision();
        if let Some(acknowledged) = acknowledged
            && revision < acknowledged
            && !survey.is_meta_lost
        {
            return Err(behind(&path, &dir.join(FILE_NEWEST), revision, acknowledged));
        }
        let survey = if survey.faults.is_empty() || is_renewed {
            match use_file(storage, survey, &path) {
                Ok(opened) => return Ok(opened),
                Err(Unusable::Never(error)) => return Err(error),
                Err(Unusable::AsItIs(error, _)) if is_renewed => return Err(error),
                Err(Unusable::AsItIs(error, mut survey)) => {
                    survey.faults.push(format!("redb cannot use it: {error}"));
                    *survey
                }
            }
        } else {
            survey
        };
        rebuild::rebuild(dir, &survey, revision.max(acknowledged.unwrap_or_default()))?;
        is_renewed = true;
    }
}

/// Writes the file of an open store anew, because a block of it was found damaged, and opens what was written. Changes up to a revision
/// were acknowledged.
pub(super) fn renew(dir: &Path, storage: &Storage, acknowledged: Revision) -> Result<Opened, OpenError> {
    let path = dir.join(FILE);
    // Nobody else writes now. A commit that failed may have left some of its pages, and its writes are decided again.
    let mut survey = survey::survey(storage.as_it_is(), Acknowledged::Exactly(acknowledged)).map_err(refused(&path))?;
    let revision = survey.index.revision();
    if revision < acknowledged && !survey.is_meta_lost {
        return Err(behind(&path, &dir.join(FILE_NEWEST), revision, acknowledged));
    }
    if survey.faults.is_empty() {
        // The block can be read now. redb has given this file up, so another is needed all the same.
        let offset = storage.damage().unwrap_or_default();
        survey.faults.push(format!("the block at byte {offset} could not be read once, or was read as something else"));
    }
    rebuild::rebuild(dir, &survey, revision.max(acknowledged))?;
    drop(survey);
    open(dir, Some(acknowledged))
}

/// Opens a surveyed file with redb, and upgrades it to this format.
pub(super) fn use_file(storage: Storage, mut survey: Survey, path: &Path) -> Result<Opened, Unusable> {
    let io = |source| Unusable::Never(OpenError::Io { path: path.to_owned(), source });
    if survey.is_behind {
        survey::catch_up(&storage).map_err(io)?;
    }
    let opened = guarded(|| {
        let database = storage.database().map_err(opening(path))?;
        let transaction = database.begin_read().map_err(damaged(path))?;
        let n_events = transaction.open_table(EVENTS).map_err(damaged(path))?.len().map_err(damaged(path))?;
        if n_events != survey.n_events {
            let what = format!("redb finds {n_events} changes where there are {}", survey.n_events);
            return Err(damaged(path)(redb::Error::Corrupted(what)));
        }
        Ok(database)
    });
    let database = match opened {
        Ok(Ok(database)) => database,
        Ok(Err(error @ (OpenError::Io { .. } | OpenError::Held { .. }))) => return Err(Unusable::Never(error)),
        Ok(Err(error)) => return Err(Unusable::AsItIs(error, Box::new(survey))),
        Err(panicked) => {
            let error = OpenError::Damaged { path: path.to_owned(), source: Arc::new(panicked) };
            return Err(Unusable::AsItIs(error, Box::new(survey)));
        }
    };
    if survey.format == FORMAT {
        return Ok(Opened { database, storage, survey });
    }
    let newest = survey.index.revision();
    let upgraded = format::upgrade(&database, newest, &survey.superseded, survey.stored.current());
    upgraded.map_err(|error| Unusable::Never(damaged(path)(error)))?;
    drop(database);
    survey = survey::survey(&storage, Acknowledged::Unknown).map_err(|error| Unusable::Never(refused(path)(error)))?;
    if survey.format != FORMAT {
        let error = redb::Error::Corrupted("it keeps its old format".to_owned());
        return Err(Unusable::Never(damaged(path)(error)));
    }
    use_file(storage, survey, path)
}
