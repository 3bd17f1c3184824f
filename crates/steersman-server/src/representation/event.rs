//! Objects as the events of a watch: frames that all who watch in the same way share.

use crate::negotiate::Form;
use crate::payload::Payload;
use crate::representation::{Included, Representation};
use crate::status::Failure;
use bytes::{BufMut, Bytes, BytesMut};

/// What an event says of its object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Word {
    Added,
    Deleted,
    Modified,
    /// Deleted for this watch: it is no longer among the objects selected. Its object is what it was before.
    Unselected,
}

/// What makes frames of one event equal: who watches with equal keys gets the same bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FrameKey(pub(crate) u64);

impl Word {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Word::Added => "ADDED",
            Word::Deleted | Word::Unselected => "DELETED",
            Word::Modified => "MODIFIED",
        }
    }
}

impl Representation {
    /// Whether the objects of events must be converted before they are written.
    pub(crate) fn converts(&self) -> bool {
        !self.is_stored_form
    }

    /// What the frames of an event are shared by. Tables tell an age, and are shared by those who ask in the same second.
    pub(crate) fn frame_key(&self, word: Word, has_columns: bool) -> FrameKey {
        const SECONDS_BITS: u32 = 20;
        let form = match (self.form, self.included, has_columns) {
            (Form::Object, _, _) => 0,
            (Form::PartialMetadata, _, _) => 1,
            (Form::Table, Included::Metadata, false) => 2,
            (Form::Table, Included::Metadata, true) => 3,
            (Form::Table, Included::Nothing, false) => 4,
            (Form::Table, Included::Nothing, true) => 5,
            (Form::Table, Included::Object, false) => 6,
            (Form::Table, Included::Object, true) => 7,
        };
        let word = match word {
            Word::Added => 0,
            Word::Deleted => 1,
            Word::Modified => 2,
            Word::Unselected => 3,
        };
        // What is cut out of the stored bytes is the same for every version and definition. The rest depends on both.
        let is_cut_out = self.is_stored_form && self.form != Form::Table;
        let (resource, version) = match is_cut_out {
            true => (0, 0),
            false => (u64::from(self.served.resource.id.0), self.served.index() as u64 & 0xff),
        };
        let seconds = if self.form == Form::Table { self.now.as_second() as u64 } else { 0 };
        let seconds = seconds & ((1 << SECONDS_BITS) - 1);
        FrameKey((((resource << SECONDS_BITS | seconds) << 8 | version) << 3 | form) << 2 | word)
    }

    /// The frame of an event.
    ///
    /// # Errors
    /// When a stored object is not readable.
    pub(crate) fn frame(&self, word: Word, payload: &Payload, has_columns: bool) -> Result<Bytes, Failure> {
        let json = match self.form {
            Form::Object | Form::PartialMetadata => self.whole(payload)?,
            Form::Table => self.table_of_one(payload, has_columns)?,
        };
        Ok(frame_of(word.as_str(), &json))
    }
}

/// A frame: what happened, and JSON that tells to what.
pub(crate) fn frame_of(word: &str, json: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(json.len() + 32);
    frame.put_slice(b"{\"type\":\"");
    frame.put_slice(word.as_bytes());
    frame.put_slice(b"\",\"object\":");
    frame.put_slice(json);
    frame.put_slice(b"}\n");
    frame.freeze()
}
