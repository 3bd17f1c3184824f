//! Reads the file of bbolt, the library in which etcd keeps its data: meta pages, branches, leaves and overflow. The list of free pages is not
//! needed to read.
//!
//! The form is that of bbolt's `internal/common`. Pages have no checksums, so what is read may be anything: every length and every place is
//! checked, a page that does not fit is named, and a file that leads in circles is noticed.

pub(crate) mod page;

use crate::snapshot::bolt::page::{BUCKET, Leaf, Page, PageError};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// The size of a page's header, and of a bucket's.
const HEADER: usize = 16;
/// The bytes of a meta page that its checksum is over.
const SUMMED: usize = 56;
const PAGE_SIZE_MIN: u64 = 512;
const PAGE_SIZE_MAX: u64 = 64 * 1024;
/// The largest page with its overflow. etcd takes requests of a few megabytes.
const PAGE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The greatest depth of a tree: with two keys in a page, more pages than any file has.
const DEPTH_MAX: usize = 64;

/// Bytes that are read at a place.
pub(crate) trait ReadAt {
    /// Fills `out` with the bytes at a place.
    fn read_at(&self, place: u64, out: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_at(&self, place: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, place)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, place: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(place).unwrap_or(usize::MAX);
        let found = start.checked_add(out.len()).and_then(|end| self.get(start..end));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The error of a file of bbolt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoltError {
    /// A page is not as bbolt writes it.
    #[error("page {page} is damaged: {fault}")]
    Damaged {
        /// Its number.
        page: u64,
        /// The fault.
        fault: &'static str,
    },
    /// It cannot be read.
    #[error("it cannot be read")]
    Io(#[source] io::Error),
    /// Both meta pages are damaged, or it is another file.
    #[error("it is no database of etcd, or both of its meta pages are damaged")]
    Meta,
}

/// A file of bbolt.
#[derive(Debug)]
pub(crate) struct Bolt<R> {
    file: R,
    /// The number of pages.
    n_pages: u64,
    page_size: u64,
    root: u64,
}

/// The root of a bucket.
#[derive(Clone, Debug)]
pub(crate) enum Bucket {
    /// A small one, in the entry of the bucket above it.
    Inline(Vec<u8>),
    Page(u64),
}

/// Reads the entries of a bucket in the order of their keys.
#[derive(Debug)]
pub(crate) struct Cursor<'a, R> {
    bolt: &'a Bolt<R>,
    last_key: Option<Vec<u8>>,
    n_visited: u64,
    /// The pages from the root to the present one, each with the number of the next element.
    stack: Vec<(Page, usize)>,
}

struct Meta {
    n_pages: u64,
    page_size: u64,
    root: u64,
    txid: u64,
}

impl<R: ReadAt> Bolt<R> {
    /// Opens a file of this many bytes.
    pub(crate) fn open(file: R, length: u64) -> Result<Bolt<R>, BoltError> {
        let first = meta(&file, 0, length)?;
        let second = match &first {
            Some(first) => meta(&file, first.page_size, length)?.filter(|second| second.page_size == first.page_size),
            None => {
                // The size of a page is not known then.
                let sizes = std::iter::successors(Some(PAGE_SIZE_MIN), |size| Some(size * 2));
                let mut found = None;
                for size in sizes.take_while(|size| *size <= PAGE_SIZE_MAX) {
                    found = found.or(meta(&file, size, length)?.filter(|meta| meta.page_size == size));
                }
                found
            }
        };
        let newest = first.into_iter().chain(second).max_by_key(|meta| meta.txid).ok_or(BoltError::Meta)?;
        let Meta { n_pages, page_size, root, .. } = newest;
        let damaged = |fault| Err(BoltError::Damaged { page: root, fault });
        match n_pages.checked_mul(page_size) {
            Some(bytes) if bytes <= length => {}
            _ => return damaged("the file ends before its last page"),
        }
        if n_pages <= root { damaged("it is not in the file") } else { Ok(Bolt { file, n_pages, page_size, root }) }
    }

    /// A bucket of the uppermost one.
    pub(crate) fn bucket(&self, name: &[u8]) -> Result<Option<Bucket>, BoltError> {
        let mut cursor = self.cursor(&Bucket::Page(self.root))?;
        while let Some(Leaf { flags, key, value }) = cursor.next()? {
            if key == name && flags == BUCKET {
                let Some((header, inline)) = value.split_first_chunk::<HEADER>() else {
                    return Err(BoltError::Damaged { page: self.root, fault: "the header of a bucket is cut" });
                };
                let root = number(header, 0);
                return Ok(Some(if root == 0 { Bucket::Inline(inline.to_vec()) } else { Bucket::Page(root) }));
            }
        }
        Ok(None)
    }

    /// Reads a bucket from its beginning.
    pub(crate) fn cursor(&self, bucket: &Bucket) -> Result<Cursor<'_, R>, BoltError> {
        let mut cursor = Cursor { bolt: self, last_key: None, n_visited: 0, stack: Vec::new() };
        match bucket {
            Bucket::Inline(bytes) => {
                // An inline page has no number of its own.
                let page = Page::parse(bytes.clone()).map_err(|fault| damaged(0, fault))?;
                cursor.stack.push((page, 0));
            }
            Bucket::Page(root) => cursor.descend(*root)?,
        }
        Ok(cursor)
    }

    /// A page with its overflow.
    fn page(&self, number: u64) -> Result<Page, BoltError> {
        if self.n_pages <= number {
            return Err(BoltError::Damaged { page: number, fault: "it is not in the file" });
        }
        let place = number * self.page_size;
        let mut header = [0; HEADER];
        self.file.read_at(place, &mut header).map_err(BoltError::Io)?;
        let [.., a, b, c, d] = header;
        let n_following = u64::from(u32::from_le_bytes([a, b, c, d]));
        if number_of(&header) != number {
            return Err(BoltError::Damaged { page: number, fault: "it has the number of another page" });
        }
        let is_within = n_following < self.n_pages - number && (n_following + 1) * self.page_size <= PAGE_BYTES_MAX;
        if !is_within {
            return Err(BoltError::Damaged {
                page: number,
                fault: "it is longer than the rest of the file, or than any page",
            });
        }
        let length = usize::try_from((n_following + 1) * self.page_size).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        self.file.read_at(place, &mut bytes).map_err(BoltError::Io)?;
        Page::parse(bytes).map_err(|fault| damaged(number, fault))
    }
}

impl<R: ReadAt> Cursor<'_, R> {
    /// The next entry; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Leaf<'_>>, BoltError> {
        loop {
            let Some((page, at)) = self.stack.last_mut() else { return Ok(None) };
            if *at == page.len() {
                self.stack.pop();
                continue;
            }
            *at += 1;
            let (n, number) = (*at - 1, page.number());
            if page.is_leaf() {
                break;
            }
            let child = page.child(n).map_err(|fault| damaged(number, fault))?;
            self.descend(child)?;
        }
        let Some((page, at)) = self.stack.last() else { return Ok(None) };
        let leaf = page.leaf(*at - 1).map_err(|fault| damaged(page.number(), fault))?;
        if self.last_key.as_deref().is_some_and(|last| leaf.key <= last) {
            return Err(BoltError::Damaged { page: page.number(), fault: "its keys are not in order" });
        }
        let last_key = self.last_key.get_or_insert_default();
        last_key.clear();
        last_key.extend_from_slice(leaf.key);
        Ok(Some(leaf))
    }

    fn descend(&mut self, number: u64) -> Result<(), BoltError> {
        if self.bolt.n_pages <= self.n_visited || self.stack.len() == DEPTH_MAX {
            return Err(BoltError::Damaged { page: number, fault: "the pages above it lead in circles" });
        }
        let page = self.bolt.page(number)?;
        // With its overflow, so that no bytes are read more often than they are in the file.
        self.n_visited += page.size() / self.bolt.page_size;
        self.stack.push((page, 0));
        Ok(())
    }
}

/// Whether a file begins with a meta page.
pub(crate) fn is_meta(beginning: &[u8]) -> bool {
    beginning.get(HEADER..HEADER + 4) == Some(&MAGIC.to_le_bytes())
}

/// A meta page; `None` if it is damaged.
fn meta(file: &impl ReadAt, place: u64, length: u64) -> Result<Option<Meta>, BoltError> {
    let mut bytes = [0; HEADER + SUMMED + 8];
    if length < place + bytes.len() as u64 {
        return Ok(None);
    }
    file.read_at(place, &mut bytes).map_err(BoltError::Io)?;
    let half = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let page_size = u64::from(half(HEADER + 8));
    let is_sound = half(HEADER) == MAGIC
        && half(HEADER + 4) == VERSION
        && number(&bytes, HEADER + SUMMED) == fnv(&bytes[HEADER..HEADER + SUMMED])
        && (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page_size);
    let root = number(&bytes, HEADER + 16);
    let (n_pages, txid) = (number(&bytes, HEADER + 40), number(&bytes, HEADER + 48));
    Ok(is_sound.then_some(Meta { n_pages, page_size, root, txid }))
}

fn damaged(page: u64, PageError(fault): PageError) -> BoltError {
    BoltError::Damaged { page, fault }
}

/// The number of a page, in its header.
fn number_of(header: &[u8]) -> u64 {
    number(header, 0)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// FNV-1a with 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A meta page of a file with pages of the least size.
#[cfg(any(test, feature = "fuzzing"))]
fn meta_page(number: u64, root: u64, n_pages: u64, txid: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend([4, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0, 2, 0, 0, 0, 0, 0, 0]);
    bytes.extend(root.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend(n_pages.to_le_bytes());
    bytes.extend(txid.to_le_bytes());
    bytes.extend(fnv(&bytes[HEADER..]).to_le_bytes());
    bytes.resize(usize::try_from(PAGE_SIZE_MIN).unwrap_or(usize::MAX), 0);
    bytes
}

/// A file of these pages, of which the last one is the uppermost bucket.
#[cfg(feature = "fuzzing")]
pub(crate) fn with_meta(pages: &[u8]) -> Vec<u8> {
    let n_pages = 2 + pages.len() as u64 / PAGE_SIZE_MIN;
    let root = n_pages - 1;
    [&*meta_page(0, root, n_pages, 8), &*meta_page(1, root, n_pages, 7), pages].concat()
}

#[cfg(test)]
mod tests;
