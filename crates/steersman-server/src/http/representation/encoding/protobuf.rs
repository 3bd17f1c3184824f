//! Protobuf, for typed clients.

use crate::http::representation::encoding::{Encoder, Envelope};
use steersman_kinds::protobuf::Envelope as Kind;
use steersman_kinds::protobuf::NotJson;

/// The kinds of the documents: an object, and a list of these objects.
#[derive(Debug)]
pub(crate) struct Protobuf {
    pub(crate) one: Kind,
    pub(crate) list: Kind,
}

impl Encoder for Protobuf {
    fn document(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
        self.one.document(json, out)
    }

    fn is_prefixed(&self) -> bool {
        true
    }

    fn open(&self, envelope: &Envelope, items_bytes: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        let metadata = envelope.fields.iter().find(|(name, _)| *name == "metadata");
        self.list.open(metadata.map_or(b"{}", |(_, json)| json), items_bytes, out)
    }

    fn item(&self, json: &[u8], _index: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        self.list.item(json, out)
    }

    fn close(&self, _envelope: &Envelope, _items: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        Kind::close(out);
        Ok(())
    }
}
