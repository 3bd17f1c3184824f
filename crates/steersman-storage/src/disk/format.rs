//! The file: two tables, and how a change is written.
//!
//! `meta` holds `format`, `compacted` and `collected`. `events` holds every change that is current or not yet compacted under
//! `(revision, number within the transaction)`:
//!
//! ```text
//! tag u8 | key length u16 | previous u64 | key | payload       payload by tag: 3 deleted: none; 4: the value as it is;
//!                                                              5: length u32, the value as an lz4 block
//! ```
//!
//! Numbers are little endian. `previous` is where the key's change before this one is, or was: `revision * 128 + number`, and
//! zero for a key that held nothing. With it history is removed, and read, without knowing the rest. Format 1 had no previous
//! and tags 0 to 2; such entries are still read.
//!
//! A change to this is a new [`FORMAT`], an upgrade path, and a file of the old one among the tests.

use crate::kv::{Error, Event, TXN_OPS_MAX, VALUE_BYTES_MAX};
use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::sync::Arc;
use steersman_machinery::Revision;

/// The version of the file's format that is read and written.
pub const FORMAT: u64 = 2;
/// The format before, which is upgraded when it is opened.
pub(super) const FORMAT_OLD: u64 = 1;

/// Revision and number within the transaction.
pub(super) type Place = (u64, u32);

pub(super) const EVENTS: TableDefinition<'static, Place, &[u8]> = TableDefinition::new("events");
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
pub(super) const COMPACTED: &str = "compacted";
pub(super) const COLLECTED: &str = "collected";
pub(super) const VERSION: &str = "format";

/// The tags of format 1.
const OLD: [u8; 3] = [0, 1, 2];
const DELETED: u8 = 3;
const PLAIN: u8 = 4;
const LZ4: u8 = 5;
/// Tag and key length.
const HEAD: usize = 3;
const PREVIOUS: usize = 8;

/// A place in one number, in the same order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Packed(u64);

/// A stored change, taken apart.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) key: &'a [u8],
    /// Where the key's change before is.
    pub(super) previous: Option<Packed>,
    /// Tag and payload; `None` for a deletion.
    payload: Option<(u8, &'a [u8])>,
}

/// Bytes in the file that this module did not write.
#[derive(Debug, thiserror::Error)]
#[error("the change at revision {revision} is malformed: {fault}")]
struct Malformed {
    fault: &'static str,
    revision: Revision,
}

/// Makes the tables of an empty file.
pub(super) fn initialize(database: &Database) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(VERSION, FORMAT)?;
        meta.insert(COMPACTED, 0)?;
        meta.insert(COLLECTED, 0)?;
        transaction.open_table(EVENTS)?;
    }
    Ok(transaction.commit()?)
}

/// Upgrades a file of format 1. Entries that are not current are removed, since those of format 1 do not say what they supersede.
pub(super) fn upgrade(database: &Database, newest: Revision, superseded: &[Place]) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    {
        let mut events = transaction.open_table(EVENTS)?;
        for place in superseded {
            events.remove(place)?;
        }
        let mut meta = transaction.open_table(META)?;
        meta.insert(COMPACTED, newest.0)?;
        meta.insert(COLLECTED, newest.0)?;
        meta.insert(VERSION, FORMAT)?;
    }
    Ok(transaction.commit()?)
}

/// A write transaction as this engine makes all of them: two-phase, on the disk when `commit` returns.
pub(super) fn begin(database: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_two_phase_commit(true);
    // After a crash the file opens without a walk through it.
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// The format a file says it has.
pub(super) fn version(database: &Database) -> Result<u64, redb::Error> {
    let meta = database.begin_read()?.open_table(META)?;
    let version = redb::ReadableTable::get(&meta, VERSION)?;
    version.map(|version| version.value()).ok_or_else(|| redb::Error::Corrupted("it names no format".to_owned()))
}

/// A change as it is stored, its previous place yet to be set. A value that lz4 does not shorten is stored as it is.
pub(super) fn encode(key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let Some(value) = value else { return head(DELETED, key, 0) };
    let mut stored = head(LZ4, key, 4 + lz4_flex::block::get_maximum_output_size(value.len()));
    let start = stored.len();
    stored.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    let body = stored.len();
    stored.resize(stored.capacity(), 0);
    match lz4_flex::block::compress_into(value, &mut stored[body..]) {
        Ok(length) if length + 4 < value.len() => stored.truncate(body + length),
        _ => {
            stored.truncate(start);
            stored[0] = PLAIN;
            stored.extend_from_slice(value);
        }
    }
    stored.shrink_to_fit();
    stored
}

/// Sets the previous place of a change that [`encode`] made.
pub(super) fn set_previous(stored: &mut [u8], previous: Option<Packed>) {
    let previous = previous.map_or(0, |Packed(place)| place);
    stored[HEAD..HEAD + PREVIOUS].copy_from_slice(&previous.to_le_bytes());
}

fn head(tag: u8, key: &[u8], payload: usize) -> Vec<u8> {
    let mut stored = Vec::with_capacity(HEAD + PREVIOUS + key.len() + payload);
    stored.push(tag);
    // Keys are checked to be shorter than `KEY_BYTES_MAX` before they get here.
    stored.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    stored.extend_from_slice(&[0; PREVIOUS]);
    stored.extend_from_slice(key);
    stored
}

fn malformed(revision: Revision, fault: &'static str) -> Error {
    Error::Read { source: Arc::new(Malformed { fault, revision }) }
}

/// Takes a stored change apart.
pub(super) fn split(revision: Revision, stored: &[u8]) -> Result<Parts<'_>, Error> {
    let malformed = |fault| malformed(revision, fault);
    let (head, mut rest) = stored.split_first_chunk::<HEAD>().ok_or_else(|| malformed("it is too short"))?;
    let [mut tag, low, high] = *head;
    let mut previous = None;
    if OLD.contains(&tag) {
        tag += DELETED;
    } else {
        let (place, behind) = rest.split_first_chunk::<PREVIOUS>().ok_or_else(|| malformed("it is too short"))?;
        previous = Some(Packed(u64::from_le_bytes(*place))).filter(|place| place.0 != 0);
        rest = behind;
    }
    let (key, payload) = rest
        .split_at_checked(usize::from(u16::from_le_bytes([low, high])))
        .ok_or_else(|| malformed("its key is cut"))?;
    match tag {
        DELETED => Ok(Parts { key, previous, payload: None }),
        PLAIN | LZ4 => Ok(Parts { key, previous, payload: Some((tag, payload)) }),
        _ => Err(malformed("its tag is unknown")),
    }
}

/// A stored change.
pub(super) fn decode(revision: Revision, stored: &[u8]) -> Result<Event, Error> {
    let parts = split(revision, stored)?;
    Ok(Event { key: Bytes::copy_from_slice(parts.key), revision, value: parts.value(revision)? })
}

impl Parts<'_> {
    pub(super) fn is_deletion(&self) -> bool {
        self.payload.is_none()
    }

    /// What the key holds since; `None` when it is gone.
    pub(super) fn value(&self, revision: Revision) -> Result<Option<Bytes>, Error> {
        let malformed = |fault| malformed(revision, fault);
        let Some((tag, payload)) = self.payload else { return Ok(None) };
        if tag == PLAIN {
            return Ok(Some(Bytes::copy_from_slice(payload)));
        }
        let (length, block) = payload.split_first_chunk::<4>().ok_or_else(|| malformed("its value is cut"))?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if VALUE_BYTES_MAX < length {
            return Err(malformed("its value is too large"));
        }
        match lz4_flex::block::decompress(block, length) {
            Ok(value) if value.len() == length => Ok(Some(value.into())),
            _ => Err(malformed("its value is not lz4")),
        }
    }
}

impl Packed {
    /// Transactions have at most [`TXN_OPS_MAX`] changes, so seven bits number them.
    pub(super) fn new((revision, number): Place) -> Packed {
        Packed(revision << 7 | u64::from(number))
    }

    pub(super) fn place(self) -> Place {
        (self.0 >> 7, (self.0 & 0x7f) as u32)
    }

    pub(super) fn revision(self) -> Revision {
        Revision(self.0 >> 7)
    }
}

const _: () = assert!(TXN_OPS_MAX <= 128);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_change_comes_back(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::option::of(prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                proptest::collection::vec(0u8..2, 0..2_000),
            ]),
        ) {
            let event = decode(Revision(7), &encode(&key, value.as_deref())).unwrap();
            prop_assert_eq!(event, Event { key: key.into(), revision: Revision(7), value: value.map(Bytes::from) });
        }

        #[test]
        fn a_previous_place_comes_back(revision in 1u64..1 << 57, number in 0u32..128) {
            let mut stored = encode(b"key", Some(b"value"));
            prop_assert!(split(Revision(7), &stored).unwrap().previous.is_none());
            set_previous(&mut stored, Some(Packed::new((revision, number))));
            let previous = split(Revision(7), &stored).unwrap().previous.unwrap();
            prop_assert_eq!((previous.place(), previous.revision()), ((revision, number), Revision(revision)));
            prop_assert_eq!(decode(Revision(7), &stored).unwrap().key, "key");
        }

        #[test]
        fn other_bytes_are_refused_or_read_but_never_panic(stored in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _either = decode(Revision(7), &stored);
        }
    }

    #[test]
    fn values_are_compressed_when_that_shortens_them() {
        let json = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}"#.repeat(4);
        assert!(encode(b"k", Some(&json)).len() < json.len() / 2);
    }
}
