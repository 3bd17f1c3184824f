//! The file format: three tables, and the encoding of a change.
//!
//! `meta` has `format`, `compacted` and `collected`. `events` has every change that is current or not yet compacted,
//! under `(revision, number within the transaction)`, and `heads` has the head of each, a second time and in other
//! pages:
//!
//! ```text
//! event    head | payload
//! head     tag u8 | key length u16 | payload length u32 | previous u64 | payload's checksum u64 | key | head's checksum u64
//! payload  by tag: 6 deleted: none; 7: the value as it is; 8: length u32, the value as an lz4 block
//! ```
//!
//! Numbers are little endian. The tag's highest bit marks the last change of a transaction, so that a missing change is
//! noticed. `previous` is the place of the key's change before this one, even if that has been removed:
//! `revision * 128 + number`, and zero for a key that had no value. With it history is removed and read without the rest of the log.
//! Checksums are XXH3 with 64 bits; that of the head has the place as its seed, so that a change in the wrong place is
//! noticed. Whichever copy of a head is left gives the key of a damaged change. A head without an event is a lost
//! change: its key is known, its value is not.
//!
//! A change of this format needs a new [`FORMAT`], an upgrade path, and a file of the old one among the tests.

pub(super) mod old;

use crate::kv::{Error, Event, KEY_BYTES_MAX, TXN_OPS_MAX, VALUE_BYTES_MAX};
use bytes::Bytes;
use redb::{Database, Durability, TableDefinition};
use std::sync::Arc;
use steersman_machinery::Revision;
use twox_hash::XxHash3_64;

/// The version of the file format that is read and written.
pub const FORMAT: u64 = 3;
/// The oldest format that is upgraded when it is opened.
pub(super) const FORMAT_OLDEST: u64 = 1;

/// The identity of a change: its revision, and its number within the transaction.
pub(super) type ChangeId = (u64, u32);

pub(super) const EVENTS: TableDefinition<'static, ChangeId, &[u8]> = TableDefinition::new("events");
pub(super) const HEADS: TableDefinition<'static, ChangeId, &[u8]> = TableDefinition::new("heads");
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
pub(super) const COMPACTED: &str = "compacted";
pub(super) const COLLECTED: &str = "collected";
pub(super) const VERSION: &str = "format";

const DELETED: u8 = 6;
const PLAIN: u8 = 7;
const LZ4: u8 = 8;
const LAST: u8 = 0x80;
/// The size of a head before its key.
const FIXED: usize = 23;
const CHECKSUM: usize = 8;
const LENGTH_AT: usize = 3;
const PREVIOUS_AT: usize = 7;
const PAYLOAD_CHECKSUM_AT: usize = 15;

/// A place as one number with the same order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Packed(u64);

/// The decoded head of a change, whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) key: &'a [u8],
    payload_checksum: u64,
    pub(super) payload_length: usize,
    pub(super) position: Position,
    /// The place of the key's previous change.
    pub(super) previous: Option<Packed>,
    tag: u8,
}

/// A decoded stored change. The payload is only verified when its value is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) head: Head<'a>,
    payload: &'a [u8],
}

/// A change in the file that is damaged.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the change at revision {revision} is damaged: {fault}")]
pub(super) struct Malformed {
    pub(super) fault: &'static str,
    pub(super) revision: Revision,
}

/// Creates the tables of an empty file.
pub(super) fn initialize(database: &Database) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(VERSION, FORMAT)?;
        meta.insert(COMPACTED, 0)?;
        meta.insert(COLLECTED, 0)?;
        transaction.open_table(EVENTS)?;
        transaction.open_table(HEADS)?;
    }
    Ok(transaction.commit()?)
}

/// Upgrades a file of an older format: current changes are rewritten, and the rest is removed, in one transaction.
pub(super) fn upgrade<'a>(
    database: &Database,
    newest: Revision,
    superseded: &[ChangeId],
    current: impl Iterator<Item = (ChangeId, &'a [u8])>,
) -> Result<(), redb::Error> {
    let damaged = |error: Malformed| redb::Error::Corrupted(error.to_string());
    let transaction = begin(database)?;
    {
        let mut events = transaction.open_table(EVENTS)?;
        let mut heads = transaction.open_table(HEADS)?;
        for place in superseded {
            events.remove(place)?;
        }
        for (place, stored) in current {
            let revision = Revision(place.0);
            let parts = old::split(revision, stored).map_err(damaged)?;
            let mut renewed = encode(parts.key, parts.value(revision).map_err(damaged)?.as_deref());
            seal(&mut renewed, place, None, Position::Last);
            events.insert(place, renewed.as_slice())?;
            heads.insert(place, head_of(&renewed))?;
        }
        finish_history(&mut transaction.open_table(META)?, newest)?;
    }
    Ok(transaction.commit()?)
}

/// Fills a new file with current changes, and the heads of lost ones. Not in one transaction: the file has no meaning
/// until it is complete.
pub(super) fn fill<'a>(
    database: &Database,
    newest: Revision,
    changes: impl Iterator<Item = (ChangeId, &'a [u8])>,
    lost: impl Iterator<Item = (ChangeId, &'a [u8])>,
) -> Result<(), redb::Error> {
    let mut changes = changes.peekable();
    loop {
        let transaction = begin(database)?;
        {
            let mut events = transaction.open_table(EVENTS)?;
            let mut heads = transaction.open_table(HEADS)?;
            let mut n_bytes = 0;
            while n_bytes < FILL_BYTES
                && let Some((place, stored)) = changes.next()
            {
                events.insert(place, stored)?;
                heads.insert(place, head_of(stored))?;
                n_bytes += stored.len();
            }
        }
        if changes.peek().is_some() {
            transaction.commit()?;
            continue;
        }
        {
            let mut heads = transaction.open_table(HEADS)?;
            for (place, head) in lost {
                heads.insert(place, head)?;
            }
            finish_history(&mut transaction.open_table(META)?, newest)?;
        }
        return Ok(transaction.commit()?);
    }
}

/// The approximate size of one transaction that fills a new file.
pub(super) const FILL_BYTES: usize = 8 * 1024 * 1024;

/// Records that the file has no history and has this format.
pub(super) fn finish_history(
    meta: &mut redb::Table<'_, &'static str, u64>,
    newest: Revision,
) -> Result<(), redb::Error> {
    meta.insert(COMPACTED, newest.0)?;
    meta.insert(COLLECTED, newest.0)?;
    meta.insert(VERSION, FORMAT)?;
    Ok(())
}

/// Begins a write transaction with the settings of this engine: two-phase, and on the disk when `commit` returns.
pub(super) fn begin(database: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_two_phase_commit(true);
    // A file opens after a crash without a scan by redb.
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// The effect of a change on its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Action {
    Delete,
    Put,
}

/// The position of a change in its transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Position {
    Before,
    Last,
}

/// Encodes a change, which must then be sealed. A value that lz4 does not shorten is stored uncompressed.
pub(super) fn encode(key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let mut stored = match value {
        None => head(DELETED, key, 0),
        Some(value) => with_payload(key, value),
    };
    let start = FIXED + key.len() + CHECKSUM;
    let length = u32::try_from(stored.len() - start).unwrap_or(u32::MAX);
    let checksum = XxHash3_64::oneshot(&stored[start..]);
    stored[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_le_bytes());
    stored[PAYLOAD_CHECKSUM_AT..PAYLOAD_CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
    stored
}

fn with_payload(key: &[u8], value: &[u8]) -> Vec<u8> {
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

/// Sets the place of a change that [`encode`] made, the place of its predecessor, and the checksum of its head.
pub(super) fn seal(stored: &mut [u8], place: ChangeId, previous: Option<Packed>, position: Position) {
    let previous = previous.map_or(0, |Packed(place)| place);
    if position == Position::Last {
        stored[0] |= LAST;
    }
    stored[PREVIOUS_AT..PREVIOUS_AT + 8].copy_from_slice(&previous.to_le_bytes());
    let end = head_of(stored).len() - CHECKSUM;
    let checksum = head_checksum(place, &stored[..end]);
    stored[end..end + CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// The head of an encoded or stored change.
pub(super) fn head_of(stored: &[u8]) -> &[u8] {
    let key = usize::from(u16::from_le_bytes([stored[1], stored[2]]));
    &stored[..FIXED + key + CHECKSUM]
}

fn head_checksum(place: ChangeId, head: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(Packed::new(place).0, head)
}

fn head(tag: u8, key: &[u8], payload: usize) -> Vec<u8> {
    let mut stored = Vec::with_capacity(FIXED + key.len() + CHECKSUM + payload);
    stored.push(tag);
    // Longer keys than `KEY_BYTES_MAX` have already been refused.
    stored.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    stored.resize(FIXED, 0);
    stored.extend_from_slice(key);
    stored.extend_from_slice(&[0; CHECKSUM]);
    stored
}

/// The head at the beginning of some bytes, and the rest, if they were written as a change at this place.
pub(super) fn split_head(place: ChangeId, stored: &[u8]) -> Result<(Head<'_>, &[u8]), Malformed> {
    let malformed = |fault| Malformed { fault, revision: Revision(place.0) };
    let fixed = stored.first_chunk::<FIXED>().ok_or_else(|| malformed("it is too short"))?;
    let position = if fixed[0] & LAST == 0 { Position::Before } else { Position::Last };
    let tag = fixed[0] & !LAST;
    if !(DELETED..=LZ4).contains(&tag) {
        return Err(malformed("its tag is unknown"));
    }
    let number = |at: usize| fixed[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let key_length = usize::from(u16::from_le_bytes([fixed[1], fixed[2]]));
    let payload_length = u32::from_le_bytes([fixed[3], fixed[4], fixed[5], fixed[6]]) as usize;
    let (bytes, rest) =
        stored.split_at_checked(FIXED + key_length + CHECKSUM).ok_or_else(|| malformed("its key is cut"))?;
    let (summed, checksum) = bytes.split_at(FIXED + key_length);
    if KEY_BYTES_MAX < key_length || *checksum != head_checksum(place, summed).to_le_bytes() {
        return Err(malformed("the checksum of its key is wrong"));
    }
    let previous = Some(Packed(number(PREVIOUS_AT))).filter(|place| place.0 != 0);
    let key = &bytes[FIXED..FIXED + key_length];
    let payload_checksum = number(PAYLOAD_CHECKSUM_AT);
    Ok((Head { key, payload_checksum, payload_length, position, previous, tag }, rest))
}

/// Decodes the head of a stored change, and splits off its payload.
pub(super) fn split(place: ChangeId, stored: &[u8]) -> Result<Parts<'_>, Malformed> {
    let (head, payload) = split_head(place, stored)?;
    if payload.len() != head.payload_length {
        return Err(Malformed { fault: "its value is cut", revision: Revision(place.0) });
    }
    Ok(Parts { head, payload })
}

/// Decodes a stored change.
pub(super) fn decode(place: ChangeId, stored: &[u8]) -> Result<Event, Malformed> {
    let parts = split(place, stored)?;
    let revision = Revision(place.0);
    Ok(Event { key: Bytes::copy_from_slice(parts.head.key), revision, value: parts.value(revision)? })
}

/// Decompresses a value from its length and its lz4 block.
fn expand(payload: &[u8]) -> Result<Bytes, &'static str> {
    let (length, block) = payload.split_first_chunk::<4>().ok_or("its value is cut")?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if VALUE_BYTES_MAX < length {
        return Err("its value is too large");
    }
    match lz4_flex::block::decompress(block, length) {
        Ok(value) if value.len() == length => Ok(value.into()),
        _ => Err("its value is not lz4"),
    }
}

/// The place of the fuzz targets' entries.
#[cfg(feature = "fuzzing")]
const FUZZED: ChangeId = (7, 0);

/// Encodes a change for the log, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) fn encode_sealed(key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let mut stored = encode(key, value);
    seal(&mut stored, FUZZED, None, Position::Last);
    stored
}

/// Reads a change of the log, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_sealed(stored: &[u8]) -> Result<Event, String> {
    decode(FUZZED, stored).map_err(|error| error.to_string())
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        Error::Read { source: Arc::new(malformed) }
    }
}

impl Head<'_> {
    pub(super) fn action(&self) -> Action {
        if self.tag == DELETED { Action::Delete } else { Action::Put }
    }

    pub(super) fn is_deletion(&self) -> bool {
        self.action() == Action::Delete
    }

    /// Whether some bytes are the payload of this head.
    pub(super) fn is_of(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_length && XxHash3_64::oneshot(payload) == self.payload_checksum
    }
}

impl Parts<'_> {
    /// Whether the payload is undamaged.
    pub(super) fn is_sound(&self) -> bool {
        self.head.is_of(self.payload)
    }

    /// The new value of the key; `None` if it was deleted.
    pub(super) fn value(&self, revision: Revision) -> Result<Option<Bytes>, Malformed> {
        let malformed = |fault| Malformed { fault, revision };
        if !self.is_sound() {
            return Err(malformed("the checksum of its value is wrong"));
        }
        match self.head.tag {
            DELETED => Ok(None),
            PLAIN => Ok(Some(Bytes::copy_from_slice(self.payload))),
            _ => expand(self.payload).map(Some).map_err(malformed),
        }
    }
}

impl Packed {
    /// Transactions have at most [`TXN_OPS_MAX`] changes, so seven bits number them.
    pub(super) fn new((revision, number): ChangeId) -> Packed {
        Packed(revision << 7 | u64::from(number))
    }

    pub(super) fn place(self) -> ChangeId {
        (self.0 >> 7, (self.0 & 0x7f) as u32)
    }

    pub(super) fn revision(self) -> Revision {
        Revision(self.0 >> 7)
    }
}

const _: () = assert!(TXN_OPS_MAX <= 128);

/// Reads bytes as a stored change, as this engine reads its file: the result must be a written change or an error. For
/// fuzzing.
#[doc(hidden)]
pub fn fuzz_change(revision: u64, number: u32, stored: &[u8]) -> bool {
    let place = (revision & (u64::MAX >> 7), number % 128);
    let is_old = old::split(Revision(place.0), stored).is_ok_and(|parts| parts.value(Revision(place.0)).is_ok());
    decode(place, stored).is_ok() || is_old
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: ChangeId = (7, 1);

    fn sealed(key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
        let mut stored = encode(key, value);
        seal(&mut stored, PLACE, None, Position::Last);
        stored
    }

    proptest! {
        #[test]
        fn a_change_comes_back(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::option::of(prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                proptest::collection::vec(0u8..2, 0..2_000),
            ]),
        ) {
            let event = decode(PLACE, &sealed(&key, value.as_deref())).unwrap();
            prop_assert_eq!(event, Event { key: key.into(), revision: Revision(7), value: value.map(Bytes::from) });
        }

        #[test]
        fn a_previous_place_comes_back(revision in 1u64..1 << 57, number in 0u32..128) {
            let mut stored = encode(b"key", Some(b"value"));
            prop_assert!(split(PLACE, &sealed(b"key", None)).unwrap().head.previous.is_none());
            seal(&mut stored, PLACE, Some(Packed::new((revision, number))), Position::Before);
            let head = split(PLACE, &stored).unwrap().head;
            let previous = head.previous.unwrap();
            prop_assert_eq!((previous.place(), previous.revision()), ((revision, number), Revision(revision)));
            prop_assert_eq!(head.position, Position::Before);
            prop_assert_eq!(split_head(PLACE, head_of(&stored)).unwrap().0.key, b"key");
            prop_assert_eq!(decode(PLACE, &stored).unwrap().key, "key");
        }

        #[test]
        fn a_change_with_any_bit_flipped_is_refused(
            value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60)),
            bit in any::<proptest::sample::Index>(),
        ) {
            let mut stored = sealed(b"/pods/default/web", value.as_deref());
            let bit = bit.index(stored.len() * 8);
            stored[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(PLACE, &stored).is_err());
        }

        #[test]
        fn a_change_in_the_place_of_another_is_refused(revision in 1u64..99, number in 0u32..9) {
            let stored = sealed(b"key", Some(b"value"));
            prop_assert_eq!(decode((revision, number), &stored).is_ok(), (revision, number) == PLACE);
        }

        #[test]
        fn other_bytes_are_refused_or_read_but_never_panic(stored in proptest::collection::vec(any::<u8>(), 0..60)) {
            fuzz_change(7, 1, &stored);
        }
    }

    #[test]
    fn values_are_compressed_when_that_shortens_them() {
        let json = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}"#.repeat(4);
        assert!(encode(b"k", Some(&json)).len() < json.len() / 2);
    }
}
