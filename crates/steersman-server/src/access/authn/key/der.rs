//! The parts of DER that keys need: sequences, integers, strings. ring handles everything else about keys.

/// The tag of an INTEGER.
pub(super) const INTEGER: u8 = 0x02;
/// The tag of a BIT STRING.
pub(super) const BIT_STRING: u8 = 0x03;
/// The tag of an OCTET STRING.
pub(super) const OCTET_STRING: u8 = 0x04;
/// The tag of an OBJECT IDENTIFIER.
pub(super) const OBJECT_ID: u8 = 0x06;
/// The tag of a SEQUENCE.
pub(super) const SEQUENCE: u8 = 0x30;

/// Reads one element after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next element: its tag and its contents. `None` at the end, or if it is cut off.
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.rest.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let n_bytes = usize::from(first & 0x7f);
                let bytes = rest.get(..n_bytes)?;
                (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest.get(n_bytes..)?)
            }
            _ => return None,
        };
        let contents = rest.get(..len)?;
        self.rest = rest.get(len..)?;
        Some((tag, contents))
    }

    /// The contents of the next element, which must have this tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }

    /// The next element, an unsigned INTEGER, without leading zeros.
    pub(super) fn unsigned(&mut self) -> Option<&'a [u8]> {
        let bytes = self.take(INTEGER)?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..)
    }

    /// The bits of the next element, a BIT STRING of whole bytes.
    pub(super) fn bits(&mut self) -> Option<&'a [u8]> {
        let (unused, bits) = self.take(BIT_STRING)?.split_first()?;
        (*unused == 0).then_some(bits)
    }
}

/// An element with these contents.
pub(super) fn element(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let len: usize = contents.iter().map(|part| part.len()).sum();
    let mut bytes = vec![tag];
    if len < 0x80 {
        bytes.push(len as u8);
    } else {
        let len_bytes = len.to_be_bytes();
        let significant = &len_bytes[len_bytes.iter().take_while(|byte| **byte == 0).count()..];
        bytes.push(0x80 | significant.len() as u8);
        bytes.extend_from_slice(significant);
    }
    contents.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// An unsigned INTEGER.
pub(super) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    // The first bit is the sign, so a zero byte is prepended if it is set.
    let sign: &[u8] = if bytes.first().is_none_or(|first| *first >= 0x80) { &[0] } else { &[] };
    element(INTEGER, &[sign, bytes])
}

/// A BIT STRING of whole bytes.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(contents in prop::collection::vec(any::<u8>(), 0..700), tag in any::<u8>()) {
            let bytes = element(tag, &[&contents]);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.next(), Some((tag, &*contents)));
            prop_assert_eq!(reader.next(), None);
        }

        #[test]
        fn nonsense_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut reader = Reader::new(&bytes);
            while reader.next().is_some() {}
        }
    }
}
