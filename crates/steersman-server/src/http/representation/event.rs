//! Objects as the events of a watch: frames that watches with the same options share.

use crate::http::representation::{Columns, Included, Representation};
use crate::shared::request::negotiate::{Encoding, Form, MetaVersion};
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::json;
use steersman_kinds::protobuf;
use steersman_machinery::Value;

/// Objects with at least this many bytes of JSON are not copied into the frames of a watch.
const SHARED_BYTES_MIN: usize = 16 * 1024;

/// The type of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EventType {
    Added,
    Deleted,
    Modified,
    /// DELETED for this watch, since the object no longer matches. The frame has its last matching state.
    Unselected,
}

/// Watches with equal keys get the same bytes for an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FrameKey(pub(crate) u64);

impl EventType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Deleted | EventType::Unselected => "DELETED",
            EventType::Modified => "MODIFIED",
        }
    }
}

impl Representation {
    /// Whether the objects of events must be converted before they are written.
    pub(crate) fn converts(&self) -> bool {
        !self.is_stored_form
    }

    /// Whether a conversion may call a webhook.
    pub(crate) fn may_call(&self) -> bool {
        self.converts() && self.resource().strategy.converter().is_some()
    }

    /// The key by which the frames of an event are shared; `None` if it does not fit into its bits, which takes a
    /// definition with more than 256 versions. Tables contain an age, so they are shared within one second only.
    pub(crate) fn frame_key(&self, word: EventType, columns: Columns) -> Option<FrameKey> {
        const RESOURCE_BITS: u32 = 30;
        const VARIANT_BITS: u32 = 20;
        const VERSION_BITS: u32 = 8;
        let form = match (self.form, self.included, columns) {
            (Form::Object, _, _) => 0,
            (Form::PartialMetadata, _, _) => 1,
            (Form::Table, Included::Metadata, Columns::Known) => 2,
            (Form::Table, Included::Metadata, Columns::Described) => 3,
            (Form::Table, Included::Nothing, Columns::Known) => 4,
            (Form::Table, Included::Nothing, Columns::Described) => 5,
            (Form::Table, Included::Object, Columns::Known) => 6,
            (Form::Table, Included::Object, Columns::Described) => 7,
        };
        let meta_version = match (self.form, self.meta_version) {
            (Form::Object, _) | (_, MetaVersion::V1) => 0,
            (_, MetaVersion::V1beta1) => 1,
        };
        let word = match word {
            EventType::Added => 0,
            EventType::Deleted => 1,
            EventType::Modified => 2,
            EventType::Unselected => 3,
        };
        // Frames cut from the stored bytes are the same for every version and definition. Others depend on both.
        let is_cut_out = self.is_stored_form && self.form != Form::Table;
        let (resource, version) = match is_cut_out {
            true => (0, 0),
            false => (u64::from(self.served.resource.id.0), self.served.index() as u64),
        };
        if resource >> RESOURCE_BITS != 0 || version >> VERSION_BITS != 0 {
            return None;
        }
        // Tables depend on the time and are always JSON; other forms depend on the serialisation.
        let variant = match (self.form, self.encoding) {
            (Form::Table, _) => self.now.as_second() as u64 & ((1 << VARIANT_BITS) - 1),
            (_, Encoding::Protobuf) => 1,
            (_, Encoding::Json | Encoding::Yaml) => 0,
        };
        let what = ((resource << VARIANT_BITS | variant) << VERSION_BITS) | version;
        Some(FrameKey(((what << 1 | meta_version) << 3 | form) << 2 | word))
    }

    /// The frame of an event.
    ///
    /// # Errors
    /// When a stored object is not readable.
    pub(crate) fn frame(&self, word: EventType, payload: &Payload, columns: Columns) -> Result<Bytes, Failure> {
        let json = match self.form {
            Form::Object | Form::PartialMetadata => self.whole(payload)?,
            Form::Table => self.table_of_one(payload, columns)?,
        };
        self.frame_of(word.as_str(), &json)
    }

    /// The frame of an event, in pieces if the object is large: its JSON is then the stored bytes, shared by everything
    /// that sends the object.
    ///
    /// # Errors
    /// When a stored object is not readable.
    pub(crate) fn frame_pieces(
        &self,
        word: EventType,
        payload: &Payload,
        columns: Columns,
    ) -> Result<Vec<Bytes>, Failure> {
        let is_large = matches!(payload, Payload::Stored(object) if SHARED_BYTES_MIN <= object.json().len());
        if !is_large || self.form != Form::Object || self.protobuf.is_some() {
            return Ok(vec![self.frame(word, payload, columns)?]);
        }
        let json = self.whole(payload)?;
        let head = format!("{{\"type\":\"{}\",\"object\":", word.as_str());
        Ok(vec![head.into(), json, Bytes::from_static(b"}\n")])
    }

    /// The frame of a bookmark, an object with metadata only.
    ///
    /// # Errors
    /// Never.
    pub(crate) fn bookmark(&self, metadata: &Value) -> Result<Bytes, Failure> {
        let kind = self.served.kind();
        let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        self.frame_of("BOOKMARK", object.to_string().as_bytes())
    }

    /// A frame: the type of an event and its object as JSON.
    fn frame_of(&self, word: &str, json: &[u8]) -> Result<Bytes, Failure> {
        let Some(protobuf) = &self.protobuf else { return Ok(json_frame(word, json)) };
        let frame = protobuf::frame(word, |out| protobuf.one.document(json, out));
        frame.map(Bytes::from).map_err(|error| Failure::internal(error.to_string()))
    }
}

/// The frame of an ERROR event.
pub(crate) fn error_frame(failure: &Failure, encoding: Encoding) -> Bytes {
    let status = json!(&*failure.status).to_string();
    let message = (encoding == Encoding::Protobuf).then(|| protobuf::document(status.as_bytes())).flatten();
    let frame = message.map(|message| {
        protobuf::frame("ERROR", |out| {
            out.extend_from_slice(&message);
            Ok(())
        })
    });
    match frame {
        Some(Ok(frame)) => frame.into(),
        _ => json_frame("ERROR", status.as_bytes()),
    }
}

fn json_frame(word: &str, json: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(json.len() + 32);
    frame.put_slice(b"{\"type\":\"");
    frame.put_slice(word.as_bytes());
    frame.put_slice(b"\",\"object\":");
    frame.put_slice(json);
    frame.put_slice(b"}\n");
    frame.freeze()
}
