//! Backups: all entries of a store at one revision, in one file that says what it is and of which every byte has a checksum.
//!
//! [`Encoder`] makes the bytes and [`Decoder`] reads them; both are without IO, so that a file and the body of an answer are the same to them.
//! Neither holds more than one entry. [`Backup`] makes one of an engine.
//!
//! ```text
//! file     "steersman backup" | header | entries and lost ones | end
//! record   kind u8 | key length u16 | value length u32 | revision u64 | checksum of the head u64 | key | value | checksum of the value u64
//! header   kind 1: the revision of the state; the value is JSON
//! entry    kind 2: the revision that wrote it
//! lost     kind 3: the key of an entry that the store itself has lost; the value is the fault
//! end      kind 4: the value is the number of entries u64 | the number of lost ones u64 | checksum of all bytes before this record u128
//! ```
//!
//! Numbers are little endian. Checksums are XXH3: of a head (with the key) and of a value with 64 bits and the place of the record in the file
//! as the seed, of the whole with 128 bits. So a record is found again behind a damaged one, and damage is named by its key where
//! the head can be read.
//!
//! A change of this form needs a new [`FORMAT`], and a file of the old one among the tests.

mod decoder;
mod encoder;
mod left_out;
mod making;
mod record;

pub use crate::backup::decoder::{Decoder, Fault, Found};
pub use crate::backup::encoder::Encoder;
pub(crate) use crate::backup::left_out::LeftOut;
pub use crate::backup::making::Backup;
pub use crate::backup::record::{HeadError, MAGIC};
use serde::{Deserialize, Serialize};
use steersman_machinery::Revision;

/// The version of the form that is written and read.
pub const FORMAT: u32 = 1;

/// The latest revision of a restored store: what is added to it still fits into all numbers that hold revisions.
pub const RESTORED_REVISION_MAX: Revision = Revision(1 << 53);

/// The origin of a backup.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Header {
    /// The form of the file.
    pub format: u32,
    /// The engine that the entries were read from, such as `embedded`.
    pub engine: String,
    /// When it was begun, in seconds since 1970; `None` if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// The revision of the state.
    #[serde(skip)]
    pub revision: Revision,
}

/// The numbers at the end of a backup.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// The number of entries.
    pub entries: u64,
    /// The number of entries that the store itself has lost.
    pub lost: u64,
}

impl Header {
    /// The header of a backup of an engine at a revision.
    pub fn new(engine: impl Into<String>, revision: Revision, seconds: Option<u64>) -> Header {
        Header { format: FORMAT, engine: engine.into(), seconds, revision }
    }
}
