//! One record of a backup.

use crate::kv::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::hash::Hasher as _;
use steersman_machinery::Revision;
use twox_hash::XxHash3_64;

/// The first bytes of a backup.
pub const MAGIC: &[u8; 16] = b"steersman backup";

/// The size of a head before its checksum.
const FIXED: usize = 15;
pub(super) const CHECKSUM: usize = 8;
/// The size of a head before the key.
pub(super) const HEAD: usize = FIXED + CHECKSUM;
/// The size of the value of the last record.
pub(super) const END_VALUE: usize = 32;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Header,
    Entry,
    Lost,
    End,
}

/// The decoded head of a record, whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
    pub(super) revision: Revision,
    pub(super) value_length: usize,
}

/// The error of a head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// It may be right, but more bytes are needed.
    #[error("it is cut")]
    Cut,
    /// There is no head of a record here.
    #[error("it is damaged")]
    Damaged,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Header => 1,
            Kind::Entry => 2,
            Kind::Lost => 3,
            Kind::End => 4,
        }
    }

    fn of(code: u8) -> Option<Kind> {
        [Kind::Header, Kind::Entry, Kind::Lost, Kind::End].into_iter().find(|kind| kind.code() == code)
    }
}

/// Appends a record that begins at a place of the file.
pub(super) fn encode(out: &mut Vec<u8>, place: u64, kind: Kind, key: &[u8], revision: Revision, value: &[u8]) {
    let start = out.len();
    out.push(kind.code());
    // Longer keys and values are never stored.
    out.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&revision.0.to_le_bytes());
    let checksum = head_checksum(place, &out[start..], key);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    out.extend_from_slice(&value_checksum(place, value).to_le_bytes());
}

/// The head of the record at the beginning of some bytes, which are at a place of the file.
pub(super) fn head(place: u64, bytes: &[u8]) -> Result<Head<'_>, HeadError> {
    let Some(kind) = bytes.first() else { return Err(HeadError::Cut) };
    let kind = Kind::of(*kind).ok_or(HeadError::Damaged)?;
    let fixed = bytes.first_chunk::<HEAD>().ok_or(HeadError::Cut)?;
    let key_length = usize::from(u16::from_le_bytes([fixed[1], fixed[2]]));
    let value_length = u32::from_le_bytes([fixed[3], fixed[4], fixed[5], fixed[6]]) as usize;
    if KEY_BYTES_MAX < key_length || VALUE_BYTES_MAX < value_length {
        return Err(HeadError::Damaged);
    }
    let number = |at: usize| fixed[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let key = bytes.get(HEAD..HEAD + key_length).ok_or(HeadError::Cut)?;
    if number(FIXED) != head_checksum(place, &fixed[..FIXED], key) {
        return Err(HeadError::Damaged);
    }
    Ok(Head { kind, key, revision: Revision(number(FIXED - 8)), value_length })
}

impl Head<'_> {
    /// The size of the record.
    pub(super) fn record_length(&self) -> usize {
        HEAD + self.key.len() + self.value_length + CHECKSUM
    }
}

fn head_checksum(place: u64, fixed: &[u8], key: &[u8]) -> u64 {
    let mut hasher = XxHash3_64::with_seed(place);
    hasher.write(fixed);
    hasher.write(key);
    hasher.finish()
}

pub(super) fn value_checksum(place: u64, value: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(place, value)
}
