//! JSON in its stored form.

use crate::http::representation::encoding::{Encoder, Envelope};
use steersman_kinds::protobuf::NotJson;

#[derive(Debug)]
pub(super) struct Json;

impl Encoder for Json {
    fn document(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
        out.extend_from_slice(json);
        Ok(())
    }

    fn open(&self, envelope: &Envelope, _items_bytes: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        out.push(b'{');
        for (name, json) in &envelope.fields {
            key(name, out);
            out.extend_from_slice(json);
            out.push(b',');
        }
        key(envelope.items, out);
        Ok(())
    }

    fn item(&self, json: &[u8], index: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        out.push(if index == 0 { b'[' } else { b',' });
        out.extend_from_slice(json);
        Ok(())
    }

    fn close(&self, envelope: &Envelope, items: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        out.extend_from_slice(if items == 0 { envelope.nothing.as_bytes() } else { b"]" });
        out.push(b'}');
        Ok(())
    }

    fn is_identity(&self) -> bool {
        true
    }
}

fn key(name: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}
