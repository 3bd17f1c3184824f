//! Fields of protobuf messages, written by hand where prost would copy what is encoded already.

use crate::kind::Kind;
use bytes::{BufMut, Bytes, BytesMut};

/// A resource as the field 2 of a delta response, of which the field 2 is the resource as the field 2 of a state-of-the-world response.
///
/// Returns the bytes, and where in them the inner field and the content begin.
pub(crate) fn encode_resource(kind: Kind, name: &str, version: &str, content: &[u8]) -> (Bytes, usize, usize) {
    let any = field_bytes(kind.type_url().len()) + field_bytes(content.len());
    let whole = field_bytes(version.len()) + field_bytes(any) + field_bytes(name.len());
    let mut buffer = BytesMut::with_capacity(field_bytes(whole));
    put_head(&mut buffer, 2, whole);
    put_string(&mut buffer, 1, version);
    // The name comes before the resource, which then ends where the whole ends. The order of fields does not matter to a reader.
    put_string(&mut buffer, 3, name);
    let inner = buffer.len();
    put_head(&mut buffer, 2, any);
    put_string(&mut buffer, 1, kind.type_url());
    put_head(&mut buffer, 2, content.len());
    let start = buffer.len();
    buffer.extend_from_slice(content);
    (buffer.freeze(), inner, start)
}

/// The size of a field whose number is below 16.
pub(crate) fn field_bytes(length: usize) -> usize {
    1 + prost::encoding::encoded_len_varint(length as u64) + length
}

/// The head of a field that holds bytes.
pub(crate) fn put_head(buffer: &mut BytesMut, number: u8, length: usize) {
    buffer.put_u8(number << 3 | 2);
    prost::encoding::encode_varint(length as u64, buffer);
}

/// A field with a text.
pub(crate) fn put_string(buffer: &mut BytesMut, number: u8, text: &str) {
    put_head(buffer, number, text.len());
    buffer.extend_from_slice(text.as_bytes());
}
