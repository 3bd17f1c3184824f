//! Reads the bytes of a backup, and finds all damage.

use crate::backup::record::{self, CHECKSUM, END_VALUE, HEAD, Head, HeadError, Kind, MAGIC};
use crate::backup::{FORMAT, Header, Totals};
use crate::kv::{Damaged, Entry};
use bytes::{Buf as _, Bytes, BytesMut};
use steersman_machinery::Revision;
use twox_hash::XxHash3_128;

/// Takes the bytes of a backup in pieces of any size, and gives what is in them: the header first, then entries and lost ones, then
/// the numbers at the end. A damaged place is given as a fault, and reading goes on behind it.
pub struct Decoder {
    buffer: BytesMut,
    /// The place in the file of the first byte of `buffer`.
    place: u64,
    expects: Expects,
    is_cut_off: bool,
    /// Where the damage began, while no record is found again.
    damaged_from: Option<u64>,
    found: Totals,
    revision: Revision,
    whole: XxHash3_128,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expects {
    Magic,
    Header,
    Entries,
    /// Nothing: the end was there.
    Nothing,
    /// Nothing can be read any more.
    Failed,
}

/// A part of a backup.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// The origin of the backup.
    Header(Header),
    /// An entry.
    Entry(Entry),
    /// The key of an entry that the store itself had lost.
    Lost(Damaged),
    /// The end: everything before was there, unless there was a fault.
    End(Totals),
    /// A part that is not as it was written.
    Fault(Fault),
}

/// A fault of a backup.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// It ends too early, or its last part is damaged.
    #[error(
        "nothing can be read from byte {place} on, and its end is missing: the backup or a copy of it was interrupted, or this part is damaged"
    )]
    Cut {
        /// The place behind the last part that was read.
        place: u64,
    },
    /// The value of an entry.
    #[error("the value of {key:?}, at byte {place}, is damaged")]
    Entry {
        /// The key of the entry.
        key: String,
        /// Where the entry begins.
        place: u64,
    },
    /// It has another form.
    #[error("it has format {found}, and this release reads format {FORMAT}: use the release that wrote it")]
    Format {
        /// The form.
        found: u32,
    },
    /// Bytes that are no record.
    #[error("bytes {from} to {to} are damaged, and the keys of the entries in them are unknown")]
    Gap {
        /// The first byte.
        from: u64,
        /// The byte after the last.
        to: u64,
    },
    /// The header.
    #[error("its header is damaged")]
    Header,
    /// Something else.
    #[error("it is no backup of Steersman")]
    Magic,
    /// The numbers at the end are others than were found.
    #[error("it has {found} entries and lost ones, and {written} were written")]
    Number {
        /// The number found.
        found: u64,
        /// The number that was written.
        written: u64,
    },
    /// Bytes behind the end.
    #[error("there are bytes behind its end, from byte {place} on")]
    Trailing {
        /// Where they begin.
        place: u64,
    },
    /// The checksum over all bytes is wrong.
    #[error("the checksum over all of it is wrong")]
    Whole,
}

impl Decoder {
    /// A decoder of a backup from its first byte on.
    #[expect(clippy::new_without_default, reason = "a decoder that has read nothing is no useful default")]
    pub fn new() -> Decoder {
        Decoder {
            buffer: BytesMut::new(),
            place: 0,
            expects: Expects::Magic,
            is_cut_off: false,
            damaged_from: None,
            found: Totals::default(),
            revision: Revision::ZERO,
            whole: XxHash3_128::new(),
        }
    }

    /// Takes further bytes. [`Decoder::next`] should first have said that it needs some.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// There are no further bytes.
    pub fn finish(&mut self) {
        self.is_cut_off = true;
    }

    /// The next part; `None` if further bytes are needed, and after the last part once [`Decoder::finish`] was called.
    #[expect(clippy::should_implement_trait, reason = "`None` is not the end before the bytes are")]
    pub fn next(&mut self) -> Option<Found> {
        match self.expects {
            Expects::Magic => self.magic(),
            Expects::Header | Expects::Entries => self.record(),
            Expects::Nothing if self.buffer.is_empty() => None,
            Expects::Nothing => Some(self.fail(Fault::Trailing { place: self.place })),
            Expects::Failed => {
                self.buffer.clear();
                None
            }
        }
    }

    fn fail(&mut self, fault: Fault) -> Found {
        self.expects = Expects::Failed;
        Found::Fault(fault)
    }

    fn magic(&mut self) -> Option<Found> {
        let n_known = self.buffer.len().min(MAGIC.len());
        if self.buffer[..n_known] != MAGIC[..n_known] {
            return Some(self.fail(Fault::Magic));
        }
        if n_known < MAGIC.len() {
            return self
                .is_cut_off
                .then(|| self.fail(if n_known == 0 { Fault::Magic } else { Fault::Cut { place: n_known as u64 } }));
        }
        self.skip(MAGIC.len());
        self.expects = Expects::Header;
        self.record()
    }

    fn record(&mut self) -> Option<Found> {
        loop {
            match record::head(self.place, &self.buffer) {
                Ok(head) if !self.is_expected(head) => {}
                Ok(head) => {
                    if self.buffer.len() < head.record_length() {
                        if !self.is_cut_off {
                            return None;
                        }
                    } else if let Some(from) = self.damaged_from.take() {
                        return Some(Found::Fault(Fault::Gap { from, to: self.place }));
                    } else {
                        return Some(self.whole_record());
                    }
                }
                Err(HeadError::Cut) if !self.is_cut_off => return None,
                Err(HeadError::Cut | HeadError::Damaged) => {}
            }
            if self.expects == Expects::Header {
                let is_cut = self.is_cut_off && self.buffer.len() < HEAD;
                return Some(self.fail(if is_cut { Fault::Cut { place: self.place } } else { Fault::Header }));
            }
            if self.buffer.is_empty() {
                let place = self.damaged_from.take().unwrap_or(self.place);
                return Some(self.fail(Fault::Cut { place }));
            }
            self.damaged_from.get_or_insert(self.place);
            self.skip(1);
        }
    }

    fn is_expected(&self, head: Head<'_>) -> bool {
        match head.kind {
            Kind::Header => self.expects == Expects::Header,
            Kind::Entry | Kind::Lost => self.expects == Expects::Entries && !head.key.is_empty(),
            Kind::End => self.expects == Expects::Entries && head.value_length == END_VALUE,
        }
    }

    /// Passes over bytes that count for the checksum of the whole.
    fn skip(&mut self, n: usize) {
        self.whole.write(&self.buffer[..n]);
        self.buffer.advance(n);
        self.place += n as u64;
    }

    /// Decodes the record at the beginning of the buffer, which has all of it.
    fn whole_record(&mut self) -> Found {
        let place = self.place;
        let before = self.whole.finish_128();
        let Ok(Head { kind, key, revision, value_length }) = record::head(place, &self.buffer) else {
            return self.fail(Fault::Header);
        };
        let key = Bytes::copy_from_slice(key);
        let start = HEAD + key.len();
        let value = Bytes::copy_from_slice(&self.buffer[start..start + value_length]);
        let checksum = &self.buffer[start + value_length..][..CHECKSUM];
        let is_sound = checksum == record::value_checksum(place, &value).to_le_bytes();
        self.skip(start + value_length + CHECKSUM);
        match kind {
            Kind::Header => match serde_json::from_slice::<Header>(&value) {
                Ok(header) if is_sound && header.format == FORMAT => {
                    self.expects = Expects::Entries;
                    self.revision = revision;
                    Found::Header(Header { revision, ..header })
                }
                Ok(header) if is_sound => self.fail(Fault::Format { found: header.format }),
                _ => self.fail(Fault::Header),
            },
            Kind::End => self.ended(is_sound, before, &value),
            Kind::Entry | Kind::Lost if !is_sound => {
                Found::Fault(Fault::Entry { key: String::from_utf8_lossy(&key).into_owned(), place })
            }
            Kind::Entry => {
                self.found.entries += 1;
                Found::Entry(Entry { key, revision, value })
            }
            Kind::Lost => {
                self.found.lost += 1;
                Found::Lost(Damaged { key, revision, fault: String::from_utf8_lossy(&value).into_owned() })
            }
        }
    }

    fn ended(&mut self, is_sound: bool, before: u128, value: &[u8]) -> Found {
        let number = |at: usize| value[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let written = Totals { entries: number(0), lost: number(8) };
        if !is_sound || value[16..] != before.to_le_bytes() {
            return self.fail(Fault::Whole);
        }
        if written != self.found {
            let sum = |totals: Totals| totals.entries.saturating_add(totals.lost);
            return self.fail(Fault::Number { found: sum(self.found), written: sum(written) });
        }
        self.expects = Expects::Nothing;
        Found::End(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Encoder;
    use proptest::prelude::*;

    fn header() -> Header {
        Header::new("embedded", Revision(900), Some(1_700_000_000))
    }

    fn entry(n: u64, bytes: usize) -> Entry {
        let value: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_mul(n as u8)).collect();
        Entry { key: format!("/configmaps/default/c{n}").into(), revision: Revision(n + 1), value: value.into() }
    }

    fn lost() -> Damaged {
        Damaged { key: "/secrets/default/s".into(), revision: Revision(17), fault: "its value is lost".to_owned() }
    }

    fn encoded(entries: &[Entry]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = Encoder::begin(&header(), &mut out);
        entries.iter().for_each(|entry| encoder.entry(entry, &mut out));
        encoder.lost(&lost(), &mut out);
        assert_eq!(encoder.end(&mut out), Totals { entries: entries.len() as u64, lost: 1 });
        out
    }

    /// All that is found in bytes that come in pieces.
    fn found(bytes: &[u8], piece: usize) -> Vec<Found> {
        let mut decoder = Decoder::new();
        let mut found = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.push(piece);
            found.extend(std::iter::from_fn(|| decoder.next()));
        }
        decoder.finish();
        found.extend(std::iter::from_fn(|| decoder.next()));
        found
    }

    fn faults(found: &[Found]) -> Vec<String> {
        let fault = |found: &Found| if let Found::Fault(fault) = found { Some(fault.to_string()) } else { None };
        found.iter().filter_map(fault).collect()
    }

    fn entries() -> Vec<Entry> {
        (0..6).map(|n| entry(n, 40 * n as usize)).collect()
    }

    #[test]
    fn what_was_written_is_found_in_pieces_of_any_size() {
        let bytes = encoded(&entries());
        let mut want = vec![Found::Header(header())];
        want.extend(entries().into_iter().map(Found::Entry));
        want.extend([Found::Lost(lost()), Found::End(Totals { entries: 6, lost: 1 })]);
        for piece in [1, 7, 100, bytes.len()] {
            assert_eq!(found(&bytes, piece), want, "{piece}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found_and_costs_one_entry_at_most() {
        let bytes = encoded(&entries());
        let n_whole = found(&bytes, 64).len();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = found(&flipped, 64);
            assert!(!faults(&found).is_empty(), "bit {bit}");
            assert!(!found.iter().any(|found| matches!(found, Found::End(_))), "bit {bit}");
            let is_of_entries = found.iter().any(|found| matches!(found, Found::Header(_)));
            let n_found = found.iter().filter(|found| !matches!(found, Found::Fault(_))).count();
            // The end is not given for a backup with a fault.
            assert!(!is_of_entries || n_whole <= n_found + 2, "bit {bit}: {n_found} of {n_whole}");
        }
    }

    #[test]
    fn every_end_that_is_missing_is_found() {
        let bytes = encoded(&entries());
        for length in 0..bytes.len() {
            let found = found(&bytes[..length], 64);
            assert_eq!(faults(&found).len(), 1, "{length}: {found:?}");
            assert!(!found.iter().any(|found| matches!(found, Found::End(_))), "{length}");
        }
    }

    #[test]
    fn faults_are_named() {
        let entries = entries();
        let bytes = encoded(&entries);
        let at = bytes.windows(23).position(|window| window == b"/configmaps/default/c4\x00").unwrap();
        let check = |change: &dyn Fn(&mut Vec<u8>), want: &[&str]| {
            let mut changed = bytes.clone();
            change(&mut changed);
            assert_eq!(faults(&found(&changed, 64)), want);
        };
        let start = at - HEAD;
        let value = format!("the value of \"/configmaps/default/c4\", at byte {start}, is damaged");
        check(&|bytes| bytes[at + 40] ^= 1, &[&value, "the checksum over all of it is wrong"]);
        let end = start + HEAD + 22 + 160 + CHECKSUM;
        let gap = format!("bytes {start} to {end} are damaged, and the keys of the entries in them are unknown");
        check(&|bytes| bytes[at] ^= 1, &[&gap, "the checksum over all of it is wrong"]);
        check(&|bytes| bytes.push(0), &[&format!("there are bytes behind its end, from byte {} on", bytes.len())]);
        check(&|bytes| bytes[0] ^= 1, &["it is no backup of Steersman"]);
        check(&|bytes| bytes.clear(), &["it is no backup of Steersman"]);
        check(&|bytes| bytes[MAGIC.len() + HEAD + 3] ^= 1, &["its header is damaged"]);
        // An entry that is there as a whole, but not where it was written.
        let moved = |bytes: &mut Vec<u8>| drop(bytes.drain(start..end));
        assert!(
            !faults(&{
                let mut bytes = bytes.clone();
                moved(&mut bytes);
                found(&bytes, 64)
            })
            .is_empty()
        );
    }

    #[test]
    fn another_form_is_refused_by_number() {
        let mut out = Vec::new();
        let later = Header { format: 2, ..header() };
        Encoder::begin(&later, &mut out).end(&mut out);
        assert_eq!(
            faults(&found(&out, 64)),
            ["it has format 2, and this release reads format 1: use the release that wrote it"]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_fault_or_are_as_written(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
            prop_assert!(!faults(&found(&bytes, piece)).is_empty());
            let mut behind = encoded(&entries());
            let length = behind.len();
            behind.truncate(length / 2);
            behind.extend(&bytes);
            prop_assert!(!faults(&found(&behind, piece)).is_empty());
        }
    }
}
