//! The file: two tables, and how a change is written.
//!
//! `meta` holds `format` and `compacted`. `events` holds every change that is current or not yet compacted under
//! `(revision, number within the transaction)`:
//!
//! ```text
//! tag u8 | key length u16 little endian | key | payload        payload by tag: 0 deleted: none; 1: the value as it is;
//!                                                              2: length u32 little endian, the value as an lz4 block
//! ```
//!
//! A change to this is a new [`FORMAT`], an upgrade path, and a file of the old one among the tests.

use crate::kv::{Error, Event, VALUE_BYTES_MAX};
use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::sync::Arc;
use steersman_machinery::Revision;

/// The version of the file's format that is read and written.
pub const FORMAT: u64 = 1;

/// Revision and number within the transaction.
pub(super) type Place = (u64, u32);

pub(super) const EVENTS: TableDefinition<'static, Place, &[u8]> = TableDefinition::new("events");
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
pub(super) const COMPACTED: &str = "compacted";
const VERSION: &str = "format";

const DELETED: u8 = 0;
const PLAIN: u8 = 1;
const LZ4: u8 = 2;
const HEAD: usize = 3;

type Parts<'a> = (&'a [u8], Option<(u8, &'a [u8])>);

/// Bytes in the file that are not what this module writes.
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
        transaction.open_table(EVENTS)?;
    }
    Ok(transaction.commit()?)
}

/// A write transaction as this engine makes all of them: two-phase, on the disk when `commit` returns.
pub(super) fn begin(database: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

/// The format a file says it has.
pub(super) fn version(database: &Database) -> Result<u64, redb::Error> {
    let meta = database.begin_read()?.open_table(META)?;
    let version = redb::ReadableTable::get(&meta, VERSION)?;
    version.map(|version| version.value()).ok_or_else(|| redb::Error::Corrupted("it names no format".to_owned()))
}

/// A change as it is stored. A value that lz4 does not shorten is stored as it is.
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

fn head(tag: u8, key: &[u8], payload: usize) -> Vec<u8> {
    let mut stored = Vec::with_capacity(HEAD + key.len() + payload);
    stored.push(tag);
    // Keys are checked to be shorter than `KEY_BYTES_MAX` before they get here.
    stored.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    stored.extend_from_slice(key);
    stored
}

/// The key of a stored change, and its tag and payload; `None` for a deletion.
pub(super) fn split(revision: Revision, stored: &[u8]) -> Result<Parts<'_>, Error> {
    let malformed = |fault| Error::Read { source: Arc::new(Malformed { fault, revision }) };
    let (head, rest) = stored.split_first_chunk::<HEAD>().ok_or_else(|| malformed("it is too short"))?;
    let [tag, low, high] = *head;
    let (key, payload) = rest
        .split_at_checked(usize::from(u16::from_le_bytes([low, high])))
        .ok_or_else(|| malformed("its key is cut"))?;
    match tag {
        DELETED => Ok((key, None)),
        PLAIN | LZ4 => Ok((key, Some((tag, payload)))),
        _ => Err(malformed("its tag is unknown")),
    }
}

/// The value in a payload.
pub(super) fn value(revision: Revision, tag: u8, payload: &[u8]) -> Result<Bytes, Error> {
    let malformed = |fault| Error::Read { source: Arc::new(Malformed { fault, revision }) };
    if tag == PLAIN {
        return Ok(Bytes::copy_from_slice(payload));
    }
    let (length, block) = payload.split_first_chunk::<4>().ok_or_else(|| malformed("its value is cut"))?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if VALUE_BYTES_MAX < length {
        return Err(malformed("its value is too large"));
    }
    match lz4_flex::block::decompress(block, length) {
        Ok(value) if value.len() == length => Ok(value.into()),
        _ => Err(malformed("its value is not lz4")),
    }
}

/// A stored change.
pub(super) fn decode(revision: Revision, stored: &[u8]) -> Result<Event, Error> {
    let (key, payload) = split(revision, stored)?;
    let value = payload.map(|(tag, payload)| value(revision, tag, payload)).transpose()?;
    Ok(Event { key: Bytes::copy_from_slice(key), revision, value })
}

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
