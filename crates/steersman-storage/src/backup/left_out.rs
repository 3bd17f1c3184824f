//! The error by which a scan says that it leaves an entry out.

use crate::kv::{Damaged, Error};
use std::sync::Arc;

/// An entry that a [`Scan`](crate::kv::Scan) leaves out because it is damaged. Unlike after other errors of a scan there is a next part: a
/// backup names the entry and goes on, and a reader that does not know this error fails instead of missing the entry.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the entry of {:?} at revision {} is damaged: {}", String::from_utf8_lossy(&.0.key), .0.revision, .0.fault)]
pub(crate) struct LeftOut(pub(crate) Damaged);

impl LeftOut {
    /// The damaged entry, if this is what an error says.
    pub(crate) fn of(error: &Error) -> Option<&Damaged> {
        let Error::Read { source } = error else { return None };
        source.downcast_ref::<LeftOut>().map(|LeftOut(damaged)| damaged)
    }
}

impl From<LeftOut> for Error {
    fn from(left_out: LeftOut) -> Error {
        Error::Read { source: Arc::new(left_out) }
    }
}
