//! Notices missing changes of the log. Revisions that are not compacted are consecutive, and so are the changes of
//! each, up to the one marked as the last.

use crate::disk::format::{ChangeId, Malformed, Position};
use steersman_machinery::Revision;

/// The place of the next change, if none is missing.
pub(super) struct Sequence {
    expected: ChangeId,
}

impl Sequence {
    /// Expects the changes after a revision.
    pub(super) fn after(revision: Revision) -> Sequence {
        Sequence { expected: (revision.0 + 1, 0) }
    }

    /// Checks the next change that was found.
    pub(super) fn next(&mut self, place: ChangeId, position: Position) -> Result<(), Malformed> {
        if place != self.expected {
            return Err(self.missing());
        }
        self.expected = match position {
            Position::Before => (place.0, place.1 + 1),
            Position::Last => (place.0 + 1, 0),
        };
        Ok(())
    }

    /// Checks that no further change is expected up to a revision.
    pub(super) fn end(&self, through: Revision) -> Result<(), Malformed> {
        if self.expected.0 <= through.0 { Err(self.missing()) } else { Ok(()) }
    }

    fn missing(&self) -> Malformed {
        Malformed { fault: "it is missing", revision: Revision(self.expected.0) }
    }
}
