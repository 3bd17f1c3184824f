//! Makes the bytes of a backup.

use crate::backup::record::{self, END_VALUE, Kind, MAGIC};
use crate::backup::{Header, Totals};
use crate::kv::{Damaged, Entry};
use steersman_machinery::Revision;
use twox_hash::XxHash3_128;

/// Appends the parts of a backup to the bytes of its caller, who writes them in this order: all that [`Encoder::begin`] made, entries and
/// lost ones, the end.
#[derive(Clone)]
pub struct Encoder {
    /// The number of bytes so far.
    place: u64,
    totals: Totals,
    whole: XxHash3_128,
}

impl Encoder {
    /// Begins a backup.
    pub fn begin(header: &Header, out: &mut Vec<u8>) -> Encoder {
        let mut encoder = Encoder { place: 0, totals: Totals::default(), whole: XxHash3_128::new() };
        out.extend_from_slice(MAGIC);
        encoder.whole.write(MAGIC);
        encoder.place = MAGIC.len() as u64;
        // A struct of numbers and strings is always JSON.
        let value = serde_json::to_vec(header).unwrap_or_default();
        encoder.record(Kind::Header, b"", header.revision, &value, out);
        encoder
    }

    /// Adds an entry.
    pub fn entry(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        self.totals.entries += 1;
        self.record(Kind::Entry, &entry.key, entry.revision, &entry.value, out);
    }

    /// Adds the key of an entry that the store has lost.
    pub fn lost(&mut self, damaged: &Damaged, out: &mut Vec<u8>) {
        self.totals.lost += 1;
        self.record(Kind::Lost, &damaged.key, damaged.revision, damaged.fault.as_bytes(), out);
    }

    /// Ends the backup. Without these bytes it is incomplete.
    pub fn end(mut self, out: &mut Vec<u8>) -> Totals {
        let mut value = Vec::with_capacity(END_VALUE);
        value.extend_from_slice(&self.totals.entries.to_le_bytes());
        value.extend_from_slice(&self.totals.lost.to_le_bytes());
        value.extend_from_slice(&self.whole.finish_128().to_le_bytes());
        self.record(Kind::End, b"", Revision::ZERO, &value, out);
        self.totals
    }

    fn record(&mut self, kind: Kind, key: &[u8], revision: Revision, value: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        record::encode(out, self.place, kind, key, revision, value);
        self.whole.write(&out[start..]);
        self.place += (out.len() - start) as u64;
    }
}
