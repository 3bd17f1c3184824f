//! Finds the changes that were written after the commit by which a file is read, because the newer one is damaged.
//!
//! The changes are in pages to which no other page leads. The checksums of a change cover its place in the log, and revisions are consecutive,
//! so a missing change is noticed. Pages that are no longer in use may have changes that a crash kept from being committed, and whose
//! revisions were then given to others: of two different changes at the same place, either may be the right one.
//!
//! The newest revision that is known to be acknowledged may be behind after a power failure. So later changes count as well, if none of them
//! is missing and each names the previous change that its key has; otherwise the file is refused. Without that rule the server would silently
//! go on with an older state. A change that was not acknowledged may count too: its writer has never got an answer.

use crate::disk::file::pages::{PAGE, Pages};
use crate::disk::format::{self, ChangeId, Malformed, Packed};
use crate::disk::index::Index;
use crate::disk::sequence::Sequence;
use crate::disk::survey::leaf_at;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use steersman_machinery::Revision;

/// The newest acknowledged revision, as it is known without the store's file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Acknowledged {
    /// This one or a later one: it was written beside the file and not forced to the disk.
    AtLeast(Revision),
    Exactly(Revision),
    Unknown,
}

/// A change that was found.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Change {
    /// Its head alone: its key is known, its value is lost.
    Head(Vec<u8>),
    Whole(Vec<u8>),
}

/// The reason why the changes are unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Missing {
    /// Two different changes have the same place.
    Ambiguous(Revision),
    /// A change is missing, and its head too.
    Gone {
        /// The newest revision that has changes.
        newest: Revision,
        revision: Revision,
    },
    /// A change that is not known to be acknowledged names another previous change than the one that its key has.
    Stray(Revision),
    /// The newest acknowledged revision is unknown.
    Unknown,
}

/// All changes after those in an index.
pub(super) fn find(
    pages: &Pages<'_>,
    index: &Index,
    acknowledged: Acknowledged,
) -> io::Result<Result<BTreeMap<ChangeId, Change>, Missing>> {
    let after = index.revision();
    let (through, last) = match acknowledged {
        Acknowledged::AtLeast(through) => (through, u64::MAX),
        Acknowledged::Exactly(through) => (through, through.0),
        Acknowledged::Unknown => return Ok(Err(Missing::Unknown)),
    };
    let mut found = StoredChanges { ambiguous: None, changes: BTreeMap::new() };
    let mut offset = PAGE as u64;
    while after.0 < last && offset < pages.length() {
        let page = pages.bytes(offset, PAGE)?;
        for (place, stored) in leaf_at(pages, offset, &page)? {
            if after.0 < place.0 && place.0 <= last {
                found.add(place, &stored);
            }
        }
        offset += PAGE as u64;
    }
    if let Some(revision) = found.ambiguous {
        return Ok(Err(Missing::Ambiguous(revision)));
    }
    let newest = found.changes.keys().next_back().map_or(through, |(newest, _)| through.max(Revision(*newest)));
    let is_complete = check_sequence(&found.changes, after, newest)
        .map_err(|malformed| Missing::Gone { newest, revision: malformed.revision })
        .and_then(|()| check_previous(&found.changes, index, through));
    Ok(is_complete.map(|()| found.changes))
}

/// Checks that no change is missing after one revision and up to another.
fn check_sequence(changes: &BTreeMap<ChangeId, Change>, after: Revision, newest: Revision) -> Result<(), Malformed> {
    let mut sequence = Sequence::after(after);
    for (place, change) in changes {
        sequence.next(*place, change.head(*place)?.position)?;
    }
    sequence.end(newest)
}

/// Checks that each change after a revision names the previous change that its key has, by the index or by the changes themselves.
fn check_previous(changes: &BTreeMap<ChangeId, Change>, index: &Index, through: Revision) -> Result<(), Missing> {
    let mut written: HashMap<&[u8], Option<Packed>> = HashMap::new();
    for (place, change) in changes {
        let stray = Missing::Stray(Revision(place.0));
        let head = change.head(*place).map_err(|_| stray)?;
        let previous = written.get(head.key).copied().unwrap_or_else(|| index.place(head.key));
        if through.0 < place.0 && head.previous != previous {
            return Err(stray);
        }
        written.insert(head.key, (!head.is_deletion()).then(|| Packed::new(*place)));
    }
    Ok(())
}

impl From<Option<Revision>> for Acknowledged {
    /// Takes the revision that was written beside the file, if it can be read.
    fn from(read: Option<Revision>) -> Acknowledged {
        read.map_or(Acknowledged::Unknown, Acknowledged::AtLeast)
    }
}

impl Change {
    fn head(&self, place: ChangeId) -> Result<format::Head<'_>, Malformed> {
        let (Change::Head(stored) | Change::Whole(stored)) = self;
        format::split_head(place, stored).map(|(head, _)| head)
    }
}

struct StoredChanges {
    ambiguous: Option<Revision>,
    changes: BTreeMap<ChangeId, Change>,
}

impl StoredChanges {
    /// Adds a stored change, if its checksum says that it was written at this place.
    fn add(&mut self, place: ChangeId, stored: &[u8]) {
        let Ok((head, behind)) = format::split_head(place, stored) else { return };
        let head_bytes = format::head_of(stored);
        // A deletion consists of its head only.
        let is_whole = head.is_of(behind);
        let change = if is_whole { Change::Whole(stored.to_vec()) } else { Change::Head(head_bytes.to_vec()) };
        match self.changes.get(&place) {
            // A head has the checksum of the payload in it, so that changes with the same head are the same.
            Some(Change::Head(known) | Change::Whole(known)) if format::head_of(known) != head_bytes => {
                self.ambiguous.get_or_insert(Revision(place.0));
            }
            Some(Change::Whole(_)) => {}
            Some(Change::Head(_)) | None => drop(self.changes.insert(place, change)),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Ambiguous(revision) => {
                write!(f, "two different changes at revision {revision} were written since then")
            }
            Missing::Gone { newest, revision } => {
                write!(f, "the changes since then end at revision {newest}, but the one at revision {revision} is gone")
            }
            Missing::Stray(revision) => write!(
                f,
                "the change at revision {revision} names a previous change that its key does not have, so it may never have been committed"
            ),
            Missing::Unknown => {
                f.write_str("the changes since then are unknown, because store.newest is missing or damaged")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::format::Position;

    /// A change of a key, which names the place of the one before it.
    fn change(key: &[u8], place: ChangeId, previous: Option<ChangeId>) -> (ChangeId, Change) {
        let mut stored = format::encode(key, Some(b"value"));
        format::seal(&mut stored, place, previous.map(Packed::new), Position::Last);
        (place, Change::Whole(stored))
    }

    #[test]
    fn a_change_that_does_not_follow_on_what_its_key_had_counts_only_if_it_is_known_to_be_acknowledged() {
        let mut index = Index::new(Revision::ZERO, Revision::ZERO);
        index.put(b"a", (4, 0), 9);
        let follows =
            [change(b"a", (5, 0), Some((4, 0))), change(b"b", (6, 0), None), change(b"a", (7, 0), Some((5, 0)))];
        assert_eq!(check_previous(&follows.into(), &index, Revision(4)), Ok(()));
        for stray in
            [change(b"a", (6, 0), Some((4, 0))), change(b"a", (6, 0), None), change(b"b", (6, 0), Some((3, 0)))]
        {
            let changes = BTreeMap::from([change(b"a", (5, 0), Some((4, 0))), stray]);
            assert_eq!(check_previous(&changes, &index, Revision(5)), Err(Missing::Stray(Revision(6))));
            assert_eq!(check_previous(&changes, &index, Revision(6)), Ok(()));
        }
    }
}
