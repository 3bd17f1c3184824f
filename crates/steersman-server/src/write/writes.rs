//! Whether a server takes writes. One that shows a copy of a cluster takes none, and calls nobody whom the copy names.

use std::sync::Arc;

/// Whether a server takes writes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Writes {
    /// It takes them, and makes and keeps the objects that every cluster has.
    #[default]
    Accepted,
    /// It stores nothing, for clients and for itself: no status, no object of its own, and Events do not expire. It calls neither
    /// webhooks nor the servers behind APIServices.
    Refused {
        /// One sentence for whoever tries to write, without a full stop.
        why: Arc<str>,
    },
}

impl Writes {
    /// The sentence for whoever tries to write; `None` if writes are accepted.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match self {
            Writes::Accepted => None,
            Writes::Refused { why } => Some(why),
        }
    }
}
