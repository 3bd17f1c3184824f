//! The bytes of one object, with a small header in front, in one allocation.

use std::fmt;
use std::sync::Arc;

use crate::wire::meta::Spans;

/// Length of the header: six positions of four bytes each.
pub(crate) const HEADER: usize = 24;

/// The JSON of one object and where in it the members stand that are read without decoding. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Packed {
    /// The header, then the JSON. Positions count from the beginning of the JSON and lie within it, on the borders of
    /// characters.
    bytes: Arc<[u8]>,
}

impl Packed {
    /// Packs the JSON that follows the first [`HEADER`] bytes of `buffer`, which are overwritten.
    pub(crate) fn new(buffer: &mut [u8], spans: &Spans) -> Self {
        let positions = [&spans.metadata, &spans.resource_version, &spans.uid];
        let positions = positions.into_iter().flat_map(|span| [span.start, span.end]);
        for (place, position) in buffer[..HEADER].chunks_exact_mut(4).zip(positions) {
            // Larger objects are refused long before.
            place.copy_from_slice(&u32::try_from(position).unwrap_or_default().to_le_bytes());
        }
        Self { bytes: Arc::from(&*buffer) }
    }

    pub(crate) fn json(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    /// The value of `metadata`.
    pub(crate) fn metadata(&self) -> &[u8] {
        self.span(0)
    }

    pub(crate) fn resource_version(&self) -> &str {
        std::str::from_utf8(self.span(1)).unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        std::str::from_utf8(self.span(2)).unwrap_or_default()
    }

    pub(crate) fn ptr_eq(a: &Self, b: &Self) -> bool {
        Arc::ptr_eq(&a.bytes, &b.bytes)
    }

    fn span(&self, number: usize) -> &[u8] {
        let position = |number: usize| {
            let bytes = self.bytes.get(4 * number..4 * number + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes) as usize
        };
        self.json().get(position(2 * number)..position(2 * number + 1)).unwrap_or_default()
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.json().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::meta;

    #[test]
    fn the_header_points_into_the_json() {
        let json = br#"{"metadata":{"name":"a","resourceVersion":"7","uid":"u"},"spec":1}"#;
        let mut buffer = [vec![0; HEADER], json.to_vec()].concat();
        let packed = Packed::new(&mut buffer, &meta::spans(json).unwrap());
        assert_eq!(packed.json(), json);
        assert_eq!(packed.metadata(), br#"{"name":"a","resourceVersion":"7","uid":"u"}"#);
        assert_eq!((packed.resource_version(), packed.uid()), ("7", "u"));
        assert!(!Packed::ptr_eq(&packed, &Packed::new(&mut buffer, &Spans::default())));
        assert_eq!(Packed::new(&mut buffer, &Spans::default()).resource_version(), "");
    }
}
