//! Finds the changes that were written after the commit by which a file is read, because the newer one is damaged.
//!
//! They are in pages to which nothing leads. Each has checksums that are of its place in the log too, and in a log revisions follow on
//! each other, so it can be told whether all are there. Pages that are no longer in use may have changes which a crash kept from being
//! committed, and whose revisions were then given to others: with two different ones at the same place it cannot be told which counts.

use crate::disk::format::{self, Place};
use crate::disk::pages::{PAGE, Pages};
use crate::disk::sequence::Sequence;
use crate::disk::survey::leaf_at;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use steersman_machinery::Revision;

/// A change that was found.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Change {
    /// Its head alone: its key is known, its value is lost.
    Head(Vec<u8>),
    Whole(Vec<u8>),
}

/// Why it is not known what the changes were.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Missing {
    /// There are two at the same place.
    Ambiguous(Revision),
    /// Not even the head of one is left.
    Gone(Revision),
    /// Nothing says up to which revision there were some.
    Unknown,
}

/// The changes after a revision up to another one, all of them.
pub(super) fn find(
    pages: &Pages<'_>,
    after: Revision,
    through: Revision,
) -> io::Result<Result<BTreeMap<Place, Change>, Missing>> {
    let mut found = Found { ambiguous: None, changes: BTreeMap::new() };
    let mut offset = PAGE as u64;
    while after < through && offset < pages.length() {
        let page = pages.bytes(offset, PAGE)?;
        for (place, stored) in leaf_at(pages, offset, &page)? {
            if (after.0 + 1..=through.0).contains(&place.0) {
                found.add(place, &stored);
            }
        }
        offset += PAGE as u64;
    }
    if let Some(revision) = found.ambiguous {
        return Ok(Err(Missing::Ambiguous(revision)));
    }
    let mut sequence = Sequence::after(after);
    let mut is_complete = Ok(());
    for (place, change) in &found.changes {
        let (Change::Head(head) | Change::Whole(head)) = change;
        let is_last = format::split_head(*place, head).is_ok_and(|(head, _)| head.is_last);
        is_complete = is_complete.and_then(|()| sequence.next(*place, is_last));
    }
    let is_complete = is_complete.and_then(|()| sequence.end(through));
    Ok(is_complete.map(|()| found.changes).map_err(|malformed| Missing::Gone(malformed.revision)))
}

struct Found {
    ambiguous: Option<Revision>,
    changes: BTreeMap<Place, Change>,
}

impl Found {
    /// Adds what is stored at a place, if it is what was written there.
    fn add(&mut self, place: Place, stored: &[u8]) {
        let Ok((head, behind)) = format::split_head(place, stored) else { return };
        let head_bytes = format::head_of(stored);
        // A deletion is all in its head.
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
            Missing::Ambiguous(revision) => write!(f, "there are two different ones at revision {revision}"),
            Missing::Gone(revision) => write!(f, "the one at revision {revision} is gone"),
            Missing::Unknown => f.write_str("nothing says which there were, since store.newest is missing or damaged"),
        }
    }
}
