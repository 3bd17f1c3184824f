//! Changes in formats 1 and 2, without checksums. They are only read for the upgrade.
//!
//! ```text
//! tag u8 | key length u16 | previous u64 (not in format 1) | key | payload
//! ```

use crate::disk::format::{Action, Malformed, expand};
use bytes::Bytes;
use steersman_machinery::Revision;

/// The tags of format 1: deleted, uncompressed, lz4. Format 2 has the next three.
const OLD: [u8; 3] = [0, 1, 2];
const DELETED: u8 = 3;
const PLAIN: u8 = 4;
const LZ4: u8 = 5;
const HEAD: usize = 3;
const PREVIOUS: usize = 8;

/// A decoded stored change.
#[derive(Clone, Copy)]
pub(in crate::disk) struct Parts<'a> {
    pub(in crate::disk) key: &'a [u8],
    /// Tag and payload; `None` for a deletion.
    payload: Option<(u8, &'a [u8])>,
}

/// Decodes a stored change.
pub(in crate::disk) fn split(revision: Revision, stored: &[u8]) -> Result<Parts<'_>, Malformed> {
    let malformed = |fault| Malformed { fault, revision };
    let (head, mut rest) = stored.split_first_chunk::<HEAD>().ok_or_else(|| malformed("it is too short"))?;
    let [mut tag, low, high] = *head;
    if OLD.contains(&tag) {
        tag += DELETED;
    } else {
        rest = rest.get(PREVIOUS..).ok_or_else(|| malformed("it is too short"))?;
    }
    let (key, payload) = rest
        .split_at_checked(usize::from(u16::from_le_bytes([low, high])))
        .ok_or_else(|| malformed("its key is cut"))?;
    match tag {
        DELETED => Ok(Parts { key, payload: None }),
        PLAIN | LZ4 => Ok(Parts { key, payload: Some((tag, payload)) }),
        _ => Err(malformed("its tag is unknown")),
    }
}

impl Parts<'_> {
    pub(in crate::disk) fn action(&self) -> Action {
        if self.payload.is_some() { Action::Put } else { Action::Delete }
    }

    /// The new value of the key; `None` if it was deleted.
    pub(in crate::disk) fn value(&self, revision: Revision) -> Result<Option<Bytes>, Malformed> {
        let Some((tag, payload)) = self.payload else { return Ok(None) };
        let value = if tag == PLAIN { Ok(Bytes::copy_from_slice(payload)) } else { expand(payload) };
        value.map(Some).map_err(|fault| Malformed { fault, revision })
    }
}
