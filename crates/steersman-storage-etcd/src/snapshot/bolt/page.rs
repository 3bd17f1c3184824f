//! One page of a file of bbolt: a branch or a leaf.
//!
//! ```text
//! page    number u64 | flags u16 | number of elements u16 | number of pages that follow it u32 | elements | keys and values
//! branch  place of the key u32 | its length u32 | page u64
//! leaf    flags u32 | place of the key u32 | its length u32 | length of the value, which follows it, u32
//! ```
//!
//! A place counts from the beginning of its element.

use crate::snapshot::bolt::{HEADER, number_of};

const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const ELEMENT: usize = 16;
/// The flag of an entry that is a bucket.
pub(super) const BUCKET: u32 = 1;

/// The fault of a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PageError(pub(super) &'static str);

/// The bytes of a page with its overflow, whose header is checked.
#[derive(Debug)]
pub(super) struct Page {
    bytes: Vec<u8>,
    is_leaf: bool,
    n_elements: usize,
}

/// An entry of a leaf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Leaf<'a> {
    pub(crate) flags: u32,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Page {
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Page, PageError> {
        let header = bytes.first_chunk::<HEADER>().ok_or(PageError("its header is cut"))?;
        let flags = u16::from_le_bytes([header[8], header[9]]);
        let n_elements = usize::from(u16::from_le_bytes([header[10], header[11]]));
        let is_leaf = match flags {
            BRANCH => false,
            LEAF => true,
            _ => return Err(PageError("it is neither a branch nor a leaf")),
        };
        if bytes.len() < HEADER + n_elements * ELEMENT {
            return Err(PageError("it has more elements than there is room for"));
        }
        Ok(Page { bytes, is_leaf, n_elements })
    }

    pub(super) fn number(&self) -> u64 {
        number_of(&self.bytes)
    }

    /// The number of its bytes, with its overflow.
    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    pub(super) fn len(&self) -> usize {
        self.n_elements
    }

    /// The page to which an element of a branch leads.
    pub(super) fn child(&self, n: usize) -> Result<u64, PageError> {
        let (_, element) = self.element(n)?;
        Ok(number_of(&element[8..]))
    }

    /// An element of a leaf.
    pub(super) fn leaf(&self, n: usize) -> Result<Leaf<'_>, PageError> {
        let (place, element) = self.element(n)?;
        let half = |at: usize| u32::from_le_bytes([element[at], element[at + 1], element[at + 2], element[at + 3]]);
        let length = |at: usize| usize::try_from(half(at)).unwrap_or(usize::MAX);
        let (start, key_length, value_length) = (place.saturating_add(length(4)), length(8), length(12));
        let part = |start: usize, length: usize| {
            let end = start.checked_add(length).ok_or(PageError("an entry of it is too long"))?;
            self.bytes.get(start..end).ok_or(PageError("an entry of it is not within it"))
        };
        let key = part(start, key_length)?;
        let value = part(start.saturating_add(key_length), value_length)?;
        Ok(Leaf { flags: half(0), key, value })
    }

    /// An element, and its place.
    fn element(&self, n: usize) -> Result<(usize, &[u8; ELEMENT]), PageError> {
        let place = HEADER + n * ELEMENT;
        let element = self.bytes.get(place..).and_then(<[u8]>::first_chunk);
        Ok((place, element.ok_or(PageError("an element of it is not within it"))?))
    }
}
