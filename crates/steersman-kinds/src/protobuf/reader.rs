//! Splits the bytes of one message into its fields.

/// Reads field after field; the first `None` means that the rest is damaged.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    is_damaged: bool,
}

/// The value of a field, as far as the wire format shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    Bytes(&'a [u8]),
    Fixed32(u32),
    Fixed64(u64),
    Integer(u64),
}

/// A sequence of numbers; `None` if the last is cut off.
pub(super) fn numbers(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut reader = Reader::new(bytes);
    let mut numbers = Vec::new();
    while !reader.rest.is_empty() {
        numbers.push(reader.varint()?);
    }
    Some(numbers)
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, is_damaged: false }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            // The tenth byte may contain only one bit.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, Field<'a>)> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
        let field = match tag & 7 {
            0 => Field::Integer(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            // Groups are deprecated, and no kind uses them.
            _ => return None,
        };
        Some((number, field))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Option<(u32, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_damaged || self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        self.is_damaged = field.is_none();
        Some(field)
    }
}
