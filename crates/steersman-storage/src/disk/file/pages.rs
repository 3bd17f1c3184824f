//! The pages of redb's file, read and verified without redb.
//!
//! redb keeps a checksum of each page in the page above it, up to the header, and verifies none of them when it reads. It trusts the content
//! of a page, and panics or finds nothing if that is damaged. So every page that the newest commit leads to is verified here before redb
//! gets the file. Nothing here panics, whatever the bytes are. The layout is that of redb's file format 3, which redb documents in
//! `docs/design.md`.
//!
//! A small page, or the record of a commit, of which one bit is flipped is put right (`flipped`): its checksum of 128 bits says which bit.
//! A page that the disk cannot read is damaged like one with wrong bytes; the blocks of it that can be read count.

use crate::disk::file::damage::is_damage;
use crate::disk::flipped;
use parking_lot::Mutex;
use redb::StorageBackend;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use twox_hash::XxHash3_128;

/// The size of the smallest page. Others are larger by a power of two.
pub(in crate::disk) const PAGE: usize = 4_096;
const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
/// The offset of the byte that selects the slot in force.
const GOD_BYTE: u64 = 9;
const PRIMARY: u8 = 1;
/// Set while the file is open: the length in the header may be wrong then, and redb does not use it.
const UNCLEAN: u8 = 2;
const SLOTS: [usize; 2] = [64, 192];
const SLOT: usize = 128;
const SLOT_CHECKSUM: usize = SLOT - 16;
const VERSION: u8 = 3;
/// The most data pages of a region: an index within it has 20 bits.
const REGION_PAGES: u64 = 1 << 20;
/// No page is larger than a region.
const ORDER_MAX: u32 = 20;
pub(in crate::disk) const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// A deeper tree is invalid: branches have at least two children.
const DEPTH_MAX: usize = 64;
/// The kind of a table that is no multimap.
const NORMAL: u8 = 3;

/// A file of redb.
pub(in crate::disk) struct Pages<'a> {
    /// The pages that are damaged and have all their entries: a flipped bit was put right, or the disk cannot read a part that is not in use.
    corrected: Mutex<Vec<Fault>>,
    length: u64,
    /// The number of pages in which a flipped bit was looked for.
    n_tried: AtomicUsize,
    storage: &'a dyn StorageBackend,
}

/// The contents of the file's first page.
#[derive(Debug)]
pub(in crate::disk) struct Header {
    god_byte: u8,
    is_magic: bool,
    /// The length of the file according to the header.
    length: Option<u64>,
    /// The commits with right checksums.
    slots: [Option<Slot>; 2],
    /// Set if the disk cannot read the page.
    unread: Option<Fault>,
}

/// A commit.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk) struct Slot {
    /// A bit of it was flipped, and is put right.
    pub(in crate::disk) is_corrected: bool,
    pub(in crate::disk) system: Option<Root>,
    transaction: u64,
    pub(in crate::disk) user: Option<Root>,
}

/// A page and its expected checksum; for a tree, also its number of entries.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk) struct Root {
    checksum: u128,
    pub(in crate::disk) length: u64,
    page: u64,
}

/// A table of the file.
#[derive(Clone, Debug)]
pub(in crate::disk) struct Table {
    pub(in crate::disk) name: String,
    pub(in crate::disk) root: Option<Root>,
    pub(in crate::disk) widths: Widths,
}

/// The size of each key and each value; `None` if it varies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::disk) struct Widths {
    pub(in crate::disk) key: Option<usize>,
    pub(in crate::disk) value: Option<usize>,
}

/// A page that a walk visits.
pub(in crate::disk) enum Found<'p> {
    /// An undamaged page of entries.
    Leaf(&'p [u8]),
    /// A damaged page with its readable bytes: pages below it are not visited.
    Damaged(Fault, &'p [u8]),
}

/// The fault of a damaged page.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the page at byte {offset} is damaged: {what}")]
pub(in crate::disk) struct Fault {
    pub(in crate::disk) offset: u64,
    pub(in crate::disk) what: &'static str,
}

/// The fault of a page, and its bytes.
pub(in crate::disk) type BadPage = (Fault, Vec<u8>);

/// The list of tables: names and values, both of varying length.
const TABLES: Widths = Widths { key: None, value: None };

impl<'a> Pages<'a> {
    pub(in crate::disk) fn new(storage: &'a dyn StorageBackend) -> io::Result<Pages<'a>> {
        let (corrected, n_tried) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Pages { corrected, length: storage.len()?, n_tried, storage })
    }

    /// The same, without looking for flipped bits.
    pub(in crate::disk) fn uncorrected(storage: &'a dyn StorageBackend) -> io::Result<Pages<'a>> {
        Ok(Pages { n_tried: AtomicUsize::new(flipped::TRIES_MAX), ..Pages::new(storage)? })
    }

    /// The pages so far that are damaged and have all their entries.
    pub(in crate::disk) fn corrected(&self) -> Vec<Fault> {
        let mut corrected = self.corrected.lock().clone();
        corrected.sort_by_key(|fault| fault.offset);
        // A branch page is read twice.
        corrected.dedup();
        corrected
    }

    pub(in crate::disk) fn length(&self) -> u64 {
        self.length
    }

    /// The first page; `None` if the file is shorter.
    pub(in crate::disk) fn header(&self) -> io::Result<Option<Header>> {
        if self.length < PAGE as u64 {
            return Ok(None);
        }
        let mut page = vec![0; PAGE];
        let unread = self.fill(0, &mut page)?;
        Ok(Some(Header { unread, ..Header::parse(&page) }))
    }

    /// Puts the other slot in force, durably.
    pub(in crate::disk) fn swap_slots(&self, header: &Header) -> io::Result<()> {
        self.storage.write(GOD_BYTE, &[header.god_byte ^ PRIMARY])?;
        self.storage.sync_data()
    }

    /// The tables of a commit, or the fault of a damaged page.
    pub(in crate::disk) fn tables(&self, root: Option<Root>) -> io::Result<Result<Vec<Table>, Fault>> {
        let mut tables = Ok(Vec::new());
        if let Some(root) = root {
            self.walk(root, TABLES, &mut |found| match found {
                Found::Leaf(page) => {
                    if let Ok(tables) = &mut tables {
                        tables.extend(pairs(page, TABLES).filter_map(|(name, value)| Table::parse(name, value)));
                    }
                }
                Found::Damaged(fault, _) => tables = Err(fault),
            })?;
        }
        Ok(tables)
    }

    /// Parts of a tree, in order, for separate walks: enough of them to be shared among threads.
    pub(in crate::disk) fn parts(&self, root: Root, widths: Widths, n_wanted: usize) -> io::Result<Vec<Root>> {
        let mut parts = vec![root];
        for _ in 0..DEPTH_MAX {
            if n_wanted <= parts.len() {
                break;
            }
            let mut below = Vec::new();
            for part in &parts {
                match self.read(*part, widths)? {
                    Ok(page) if page[0] == BRANCH => below.extend(children(&page)),
                    // The walk of this part will find the damage.
                    Ok(_) | Err(_) => below.push(*part),
                }
            }
            if below.len() == parts.len() {
                break;
            }
            parts = below;
        }
        Ok(parts)
    }

    /// Visits the pages of entries below a page, in order.
    pub(in crate::disk) fn walk(&self, root: Root, widths: Widths, visit: &mut dyn FnMut(Found<'_>)) -> io::Result<()> {
        self.walk_below(root, widths, DEPTH_MAX, visit)
    }

    fn walk_below(&self, root: Root, widths: Widths, depth: usize, visit: &mut dyn FnMut(Found<'_>)) -> io::Result<()> {
        match self.read(root, widths)? {
            Err((fault, page)) => visit(Found::Damaged(fault, &page)),
            Ok(page) if page[0] == LEAF => visit(Found::Leaf(&page)),
            Ok(page) => {
                // Each page contains the checksums of those below it, so cycles are impossible.
                for child in children(&page).into_iter().filter(|_| 0 < depth) {
                    self.walk_below(child, widths, depth - 1, visit)?;
                }
            }
        }
        Ok(())
    }

    /// The bytes of a page if it is undamaged; otherwise the fault and the bytes in its place.
    fn read(&self, root: Root, widths: Widths) -> io::Result<Result<Vec<u8>, BadPage>> {
        let Some((offset, length)) = self.place(root.page) else {
            return Ok(Err((Fault { offset: 0, what: "it leads beyond the end of the file" }, Vec::new())));
        };
        let mut page = vec![0; length];
        let unread = self.fill(offset, &mut page)?;
        if summed(&page, widths).is_some_and(|part| XxHash3_128::oneshot(part) == root.checksum) {
            self.corrected.lock().extend(unread);
            return Ok(Ok(page));
        }
        if let Some(fault) = unread {
            return Ok(Err((fault, page)));
        }
        if length <= flipped::BYTES_MAX
            && self.n_tried.fetch_add(1, Ordering::Relaxed) < flipped::TRIES_MAX
            && flipped::correct(
                &mut page,
                |page| summed(page, widths).map_or(0, <[u8]>::len),
                |part| XxHash3_128::oneshot(part) == root.checksum,
            )
        {
            self.corrected.lock().push(Fault { offset, what: "one bit of it was flipped, and is put right" });
            return Ok(Ok(page));
        }
        Ok(Err((Fault { offset, what: "its bytes are not those that were written" }, page)))
    }

    /// The offset and the length of a page; `None` if it is beyond the end of the file.
    fn place(&self, page: u64) -> Option<(u64, usize)> {
        let order = (page >> 59) as u32;
        if ORDER_MAX < order {
            return None;
        }
        let index = page & (0x000f_ffff >> order);
        let region = (page >> 20) & 0x000f_ffff;
        let length = PAGE << order;
        let offset = PAGE as u64 + region * REGION_PAGES * PAGE as u64 + index * length as u64;
        (offset.checked_add(length as u64)? <= self.length).then_some((offset, length))
    }

    /// Reads bytes from an offset on. If the disk cannot read all of them, returns the fault, and zeros in the place of each block that it
    /// cannot read.
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> io::Result<Option<Fault>> {
        match self.storage.read(offset, bytes) {
            Err(error) if is_damage(&error) => {}
            read => return read.map(|()| None),
        }
        for (n, block) in bytes.chunks_mut(PAGE).enumerate() {
            match self.storage.read(offset + (n * PAGE) as u64, block) {
                Err(error) if is_damage(&error) => block.fill(0),
                read => read?,
            }
        }
        Ok(Some(Fault { offset, what: "the disk cannot read all of it" }))
    }

    /// Bytes of the file, at most `length`, with zeros in the place of blocks that the disk cannot read.
    pub(in crate::disk) fn bytes(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX).min(length);
        let mut bytes = vec![0; length];
        if 0 < length {
            // The caller looks for entries: there are none in zeros.
            let _unread = self.fill(offset, &mut bytes)?;
        }
        Ok(bytes)
    }
}

impl Header {
    fn parse(page: &[u8]) -> Header {
        let slot = |at: usize| page.get(at..at + SLOT).and_then(Slot::parse);
        let number = |at: usize| half(page, at).map(|number| number as u64);
        let is_usual = (number(12), number(16), number(20)) == (Some(PAGE as u64), Some(0), Some(REGION_PAGES));
        let length = match (number(24), number(28)) {
            (Some(full), Some(rest)) if is_usual => Some(PAGE as u64 * (1 + full * REGION_PAGES + rest)),
            _ => None,
        };
        let is_magic = page.starts_with(&MAGIC);
        Header { god_byte: page[9], is_magic, length, slots: SLOTS.map(slot), unread: None }
    }

    /// The fault if the disk cannot read the page.
    pub(in crate::disk) fn unread(&self) -> Option<&Fault> {
        self.unread.as_ref()
    }

    /// The fault of the page, for a file of this length: the disk cannot read it, or the part of it that has no checksum is wrong.
    pub(in crate::disk) fn fault(&self, length: u64) -> Option<Fault> {
        if let Some(fault) = &self.unread {
            return Some(fault.clone());
        }
        let is_unclean = self.god_byte & UNCLEAN != 0;
        let what = match self.length {
            _ if !self.is_magic => "it does not begin as a store does",
            None => "it has pages of another size",
            Some(told) if told != length && !is_unclean => "it is of a file of another length",
            Some(_) => return None,
        };
        Some(Fault { offset: 0, what })
    }

    /// The commit in force.
    pub(in crate::disk) fn primary(&self) -> Option<Slot> {
        self.slots[usize::from(self.god_byte & PRIMARY)]
    }

    /// The other one.
    pub(in crate::disk) fn secondary(&self) -> Option<Slot> {
        self.slots[usize::from(self.god_byte & PRIMARY ^ PRIMARY)]
    }

    /// The other one, if it is newer.
    pub(in crate::disk) fn newer(&self) -> Option<Slot> {
        let other = self.secondary()?;
        // If the one in force is damaged, nothing says that the other one is not older.
        (self.primary()?.transaction < other.transaction).then_some(other)
    }
}

impl Slot {
    fn parse(bytes: &[u8]) -> Option<Slot> {
        let is_right = |bytes: &[u8]| {
            let (summed, checksum) = bytes.split_at(SLOT_CHECKSUM);
            *checksum == XxHash3_128::oneshot(summed).to_le_bytes()
        };
        let mut corrected = [0; SLOT];
        corrected.copy_from_slice(bytes.get(..SLOT)?);
        let is_corrected = !is_right(bytes);
        if is_corrected && !flipped::correct(&mut corrected, <[u8]>::len, is_right) {
            return None;
        }
        let bytes = &corrected[..];
        if bytes[0] != VERSION {
            return None;
        }
        let root = |is_there: u8, at: usize| if is_there == 0 { None } else { Root::parse(bytes.get(at..)?) };
        let (user, system) = (root(bytes[1], 8), root(bytes[2], 40));
        Some(Slot { is_corrected, system, transaction: number(bytes, 104)?, user })
    }
}

impl Root {
    const BYTES: usize = 32;

    fn parse(bytes: &[u8]) -> Option<Root> {
        let checksum = u128::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        Some(Root { page: number(bytes, 0)?, checksum, length: number(bytes, 24)? })
    }
}

impl Table {
    /// Layout: kind u8 | length u64 | root's presence u8 | root | key width's presence u8, u32 | value width's presence
    /// u8, u32 | types
    fn parse(name: &[u8], value: &[u8]) -> Option<Table> {
        let name = String::from_utf8_lossy(name).into_owned();
        let root = match value.get(9)? {
            0 => None,
            _ => Root::parse(value.get(10..)?),
        };
        let width = |at: usize| -> Option<Option<usize>> {
            let width = u32::from_le_bytes(*value.get(at + 1..)?.first_chunk()?);
            Some((*value.get(at)? != 0).then_some(width as usize))
        };
        let at = 10 + Root::BYTES;
        let widths = Widths { key: width(at)?, value: width(at + 5)? };
        (value[0] == NORMAL).then_some(Table { name, root, widths })
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize)
}

fn count(page: &[u8]) -> usize {
    page.get(2..4).map_or(0, |count| usize::from(u16::from_le_bytes([count[0], count[1]])))
}

/// The pages below a branch page.
fn children(page: &[u8]) -> Vec<Root> {
    let n_children = count(page) + 1;
    let child = |n: usize| {
        let checksum = u128::from_le_bytes(*page.get(8 + 16 * n..)?.first_chunk()?);
        Some(Root { page: number(page, 8 + 16 * n_children + 8 * n)?, checksum, length: 0 })
    };
    (0..n_children).map_while(child).collect()
}

/// The checksummed part of a page.
fn summed(page: &[u8], widths: Widths) -> Option<&[u8]> {
    let end = match *page.first()? {
        LEAF => leaf_end(page, widths),
        BRANCH => branch_end(page, widths),
        _ => None,
    };
    page.get(..end?)
}

/// The end of the checksummed part of a branch page.
fn branch_end(page: &[u8], widths: Widths) -> Option<usize> {
    let n_keys = count(page);
    let last = n_keys.checked_sub(1)?;
    let behind = 8 + 24 * (n_keys + 1);
    match widths.key {
        Some(width) => Some(behind + width * n_keys),
        None => half(page, behind + 4 * last),
    }
}

/// The end of the checksummed part of a leaf page.
pub(in crate::disk) fn leaf_end(page: &[u8], widths: Widths) -> Option<usize> {
    let n_pairs = count(page);
    Leaf { n_pairs, page, widths }.value_end(n_pairs.checked_sub(1)?)
}

/// The keys and values of a page, as far as they are within it. Those of a damaged page may be arbitrary.
pub(in crate::disk) fn pairs(page: &[u8], widths: Widths) -> impl Iterator<Item = (&[u8], &[u8])> {
    let n_pairs = if page.first() == Some(&LEAF) { count(page) } else { 0 };
    let leaf = Leaf { n_pairs, page, widths };
    (0..n_pairs).filter_map(move |n| leaf.pair(n))
}

#[derive(Clone, Copy)]
struct Leaf<'p> {
    n_pairs: usize,
    page: &'p [u8],
    widths: Widths,
}

impl<'p> Leaf<'p> {
    fn pair(self, n: usize) -> Option<(&'p [u8], &'p [u8])> {
        let key_start = if n == 0 { self.keys_start() } else { self.key_end(n - 1)? };
        let value_start = if n == 0 { self.key_end(self.n_pairs - 1)? } else { self.value_end(n - 1)? };
        Some((self.page.get(key_start..self.key_end(n)?)?, self.page.get(value_start..self.value_end(n)?)?))
    }

    fn keys_start(self) -> usize {
        let n_ends = usize::from(self.widths.key.is_none()) + usize::from(self.widths.value.is_none());
        4 + 4 * n_ends * self.n_pairs
    }

    fn key_end(self, n: usize) -> Option<usize> {
        match self.widths.key {
            Some(width) => self.keys_start().checked_add(width.checked_mul(n + 1)?),
            None => half(self.page, 4 + 4 * n),
        }
    }

    fn value_end(self, n: usize) -> Option<usize> {
        match self.widths.value {
            Some(width) => self.key_end(self.n_pairs.checked_sub(1)?)?.checked_add(width.checked_mul(n + 1)?),
            None if self.widths.key.is_none() => half(self.page, 4 + 4 * (self.n_pairs + n)),
            None => half(self.page, 4 + 4 * n),
        }
    }
}
