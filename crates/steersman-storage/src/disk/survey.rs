//! Surveys the file before redb opens it: verifies every page and every change, and finds the current change of each
//! key.
//!
//! A file without damage costs one pass. Everything that is known to be right is saved from a damaged one: a change counts if its own
//! checksum and those of the pages that lead to it are right; failing that, if the other copy of its head says that it belongs into the
//! log. A change of which only the head is left is lost: its key is known, so no older value passes for the current one. The file is refused
//! if the lost changes are unknown.
//!
//! The file has the last two commits. If the record of the newer one or its list of tables is damaged, the older one is used, and the
//! changes since then are looked for in the pages of the file (`newer`).

use crate::disk::FILE_NEWEST;
use crate::disk::file::pages::{
    BadPage, Fault, Found, Header, LEAF, PAGE, Pages, Root, Slot, Table, Widths, leaf_end, pairs,
};
use crate::disk::flipped;
use crate::disk::format::{
    self, Action, COLLECTED, COMPACTED, ChangeId, FORMAT, FORMAT_OLDEST, Malformed, Packed, VERSION, old,
};
use crate::disk::index::{Change, Index, Stored};
use crate::disk::newer::{self, Acknowledged, Missing};
use crate::parallel;
use bytes::Bytes;
use redb::StorageBackend;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::OnceLock;
use steersman_machinery::Revision;

/// The approximate number of parts in which the log is read: enough that threads end at about the same time.
const PARTS: usize = 32;
/// The log: places, and changes of varying length.
const CHANGES: Widths = Widths { key: Some(12), value: None };
const NUMBERS: Widths = Widths { key: None, value: Some(8) };
/// The largest page of changes that is searched for: a page is about as large as its largest change.
const CHANGES_PAGE_MAX: usize = 16 * 1024 * 1024;

/// The result of a survey.
pub(super) struct Survey {
    /// The damage that was found. A file without any need not be rewritten.
    pub(super) faults: Vec<String>,
    pub(super) format: u64,
    pub(super) index: Index,
    /// Whether the newest commit is not the one in force by the header.
    pub(super) is_behind: bool,
    /// Whether the numbers beside the log are lost, among them the newest revision.
    pub(super) is_meta_lost: bool,
    /// The lost current changes.
    pub(super) lost: Vec<Lost>,
    pub(super) n_events: u64,
    /// The number of lost changes without a head. They were lost earlier, and the file has no older changes of their
    /// keys.
    pub(super) n_unknown: u64,
    pub(super) stored: Stored,
    /// For a file of an older format: the superseded changes, each deletion after the change that it deletes.
    pub(super) superseded: Vec<ChangeId>,
}

/// A change with only its head left.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) head: Box<[u8]>,
    pub(super) key: Bytes,
    pub(super) place: ChangeId,
}

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SurveyError {
    /// Acknowledged changes are missing, and not even all of their keys are known.
    #[error("its newest commit is damaged, the one before it ends at revision {before}, and {missing}")]
    Commit { before: Revision, missing: Missing },
    #[error("it has format {found}")]
    Format { found: u64 },
    #[error("it cannot be read")]
    Io(#[source] io::Error),
    /// The lost changes cannot be determined.
    #[error("{n_unknown} of its changes are lost, and nothing says which: {fault}")]
    LostUnknown { fault: String, n_unknown: u64 },
    #[error("{0}")]
    NoStore(&'static str),
    /// The first page has the records of both commits.
    #[error("nothing of it can be found without its first page: {0}")]
    FirstPage(Fault),
    /// A file of an older format does not show which change was damaged.
    #[error("it is of an older format, whose changes have no checksums: {fault}")]
    Old { fault: String },
    /// Neither of the two commits has its list of tables.
    #[error("the list of its tables is lost: {0}")]
    Tables(Fault),
}

/// The commit that a file is read by.
struct Commit {
    /// Whether it is the one before the newest, which is damaged.
    is_older: bool,
    slot: Slot,
    tables: Vec<Table>,
}

impl From<io::Error> for SurveyError {
    fn from(error: io::Error) -> SurveyError {
        SurveyError::Io(error)
    }
}

/// A part of the log.
#[derive(Default)]
struct Part {
    /// Damaged pages, with their bytes.
    bad: Vec<BadPage>,
    changes: Vec<Change>,
    /// The first damaged change in an undamaged page.
    malformed: Option<Malformed>,
    stored: Stored,
}

/// The heads in undamaged pages.
type Heads = BTreeMap<ChangeId, Box<[u8]>>;

/// The changes that are not in the commit by which a file is read.
struct Since {
    /// Whether there are more than was known to be acknowledged.
    fault: Option<String>,
    /// The changes of which only the head is left.
    lost: Vec<Lost>,
    part: Part,
}

/// Surveys a file.
pub(super) fn survey(storage: &dyn StorageBackend, acknowledged: Acknowledged) -> Result<Survey, SurveyError> {
    let pages = Pages::new(storage)?;
    let mut faults = Vec::new();
    let header = pages.header()?.ok_or(SurveyError::NoStore("it is too short"))?;
    let newer = match header.newer() {
        // A complete commit that a crash kept from coming into force is as good as the one in force. One that is not complete was not
        // acknowledged: pages that a crash kept from being written are not corrected, even if they differ in one bit only.
        Some(newer) if newer.is_corrected => None,
        Some(newer) => Some(newer).filter(|newer| is_written(storage, *newer)),
        None => None,
    };
    let is_behind = newer.is_some();
    faults.extend(header.fault(pages.length()).map(|fault| fault.to_string()));
    let Commit { is_older, slot, tables } = commit(&pages, &header, newer, &mut faults)?;
    let table = |name: &str| tables.iter().find(|table| table.name == name);
    faults.extend(check_system(&pages, slot)?);
    let meta = table("meta").ok_or(SurveyError::NoStore("it is no store of Steersman"))?;
    let events = table("events").ok_or(SurveyError::NoStore("it is no store of Steersman"))?;
    let heads = table("heads");
    let (numbers, meta_fault) = numbers(&pages, meta)?;
    let format = match (numbers.get(VERSION), &meta_fault) {
        (Some(format), _) => *format,
        (None, Some(_)) if heads.is_some() => FORMAT,
        (None, _) => return Err(SurveyError::NoStore("it names no format")),
    };
    if !(FORMAT_OLDEST..=FORMAT).contains(&format) {
        return Err(SurveyError::Format { found: format });
    }
    let is_meta_lost = meta_fault.is_some();
    faults.extend(meta_fault.map(|fault| fault.to_string()));
    let compacted = Revision(numbers.get(COMPACTED).copied().unwrap_or_default());
    let collected = Revision(numbers.get(COLLECTED).copied().unwrap_or_default());
    let mut index = Index::new(compacted, collected);
    let mut parts = log(&pages, events, format, &index)?;
    let bad: Vec<BadPage> = parts.iter_mut().flat_map(|part| part.bad.drain(..)).collect();
    let malformed = parts.iter().find_map(|part| part.malformed.clone());
    let n_found: u64 = parts.iter().map(|part| part.changes.len() as u64).sum();
    let n_events = length(Some(events));
    let n_heads = length(heads);
    faults.extend(bad.iter().map(|(fault, _)| fault.to_string()));
    faults.extend(malformed.map(|malformed| malformed.to_string()));
    if format < FORMAT
        && let Some(fault) = faults.first().cloned().or(pages.corrected().first().map(ToString::to_string))
    {
        return Err(SurveyError::Old { fault });
    }
    let is_log_whole = n_found == n_events;
    let mut markers = Vec::new();
    let mut n_unknown = 0;
    if format == FORMAT {
        if is_log_whole && n_events == n_heads {
            faults.extend(heads.map(|heads| check(&pages, heads)).transpose()?.into_iter().flatten());
        } else {
            let (mut missing, head_faults) =
                heads.map(|table| self::heads(&pages, table)).transpose()?.unwrap_or_default();
            faults.extend(head_faults);
            let known: HashSet<Packed> =
                parts.iter().flat_map(|part| &part.changes).map(|change| change.place).collect();
            missing.retain(|place, _| !known.contains(&Packed::new(*place)));
            let n_missing = missing.len() as u64;
            if !is_log_whole {
                parts.push(recover(&pages, &mut missing, &bad, &index)?);
            }
            n_unknown = n_heads.saturating_sub(n_found + n_missing);
            if 0 < n_unknown && !is_log_whole {
                return Err(SurveyError::LostUnknown { fault: faults.first().cloned().unwrap_or_default(), n_unknown });
            }
            markers = missing.into_iter().filter_map(|(place, head)| Lost::of(place, head)).collect();
        }
    } else if is_older {
        return Err(SurveyError::Old { fault: faults.first().cloned().unwrap_or_default() });
    }
    let mut stored = Stored::default();
    let superseded = put_together(&mut index, &mut stored, parts, &markers);
    if is_older {
        let Since { fault, lost, part } = since(&pages, &index, acknowledged)?;
        faults.extend(fault);
        put_together(&mut index, &mut stored, vec![part], &lost);
        markers.extend(lost);
    }
    faults.extend(pages.corrected().iter().map(ToString::to_string));
    let superseded = if format < FORMAT { superseded } else { Vec::new() };
    let lost = markers.into_iter().filter(|lost| index.is_at(&lost.key, lost.place)).collect();
    Ok(Survey { faults, format, index, is_behind, is_meta_lost, lost, n_events, n_unknown, stored, superseded })
}

/// Whether every page of a commit is as it was written.
fn is_written(storage: &dyn StorageBackend, slot: Slot) -> bool {
    Pages::uncorrected(storage).and_then(|pages| is_whole(&pages, slot)).unwrap_or(false)
}

/// The newest commit whose list of tables is whole.
fn commit(
    pages: &Pages<'_>,
    header: &Header,
    newer: Option<Slot>,
    faults: &mut Vec<String>,
) -> Result<Commit, SurveyError> {
    let no_record = SurveyError::NoStore("the records of its commits are damaged, or this is no store");
    let mut lost = header.unread().cloned().map_or(no_record, SurveyError::FirstPage);
    let newest = newer.or(header.primary());
    match newest {
        Some(slot) => match pages.tables(slot.user)? {
            Ok(tables) => {
                if slot.is_corrected {
                    faults.push("one bit of the record of the newest commit was flipped, and is put right".to_owned());
                }
                return Ok(Commit { is_older: false, slot, tables });
            }
            Err(fault) => {
                faults.push(format!("the list of tables of the newest commit is lost: {fault}"));
                lost = SurveyError::Tables(fault);
            }
        },
        None => faults.push("the record of the newest commit is damaged".to_owned()),
    }
    let older = if newer.is_some() { header.primary() } else { header.secondary() };
    let Some(slot) = older else { return Err(lost) };
    match pages.tables(slot.user)? {
        Ok(tables) => Ok(Commit { is_older: true, slot, tables }),
        Err(_) => Err(lost),
    }
}

/// Looks in all pages for the changes after those of the commit that the file is read by, which are in the index.
fn since(pages: &Pages<'_>, index: &Index, acknowledged: Acknowledged) -> Result<Since, SurveyError> {
    let before = index.revision();
    let found = newer::find(pages, index, acknowledged)?.map_err(|missing| SurveyError::Commit { before, missing })?;
    let newest = found.keys().next_back().map(|(newest, _)| Revision(*newest));
    let fault = match (acknowledged, newest) {
        (Acknowledged::AtLeast(known), Some(newest)) if known < newest => Some(format!(
            "{FILE_NEWEST} has revision {known}, and there are changes up to revision {newest}: all of them are taken up"
        )),
        _ => None,
    };
    let (mut part, mut lost) = (Part::default(), Vec::new());
    for (place, change) in found {
        match change {
            newer::Change::Head(head) => lost.extend(Lost::of(place, head.into())),
            newer::Change::Whole(stored) => {
                if let Err(malformed) = part.push(place, &stored, FORMAT, index) {
                    part.malformed.get_or_insert(malformed);
                }
            }
        }
    }
    Ok(Since { fault, lost, part })
}

/// Makes the newest commit the one in force.
pub(super) fn catch_up(storage: &dyn StorageBackend) -> io::Result<()> {
    let pages = Pages::new(storage)?;
    match pages.header()? {
        Some(header) => match header.unread() {
            // The byte to write is derived from the page, which was not read.
            Some(fault) => Err(io::Error::other(fault.clone())),
            None => pages.swap_slots(&header),
        },
        None => Ok(()),
    }
}

fn length(table: Option<&Table>) -> u64 {
    table.and_then(|table| table.root).map_or(0, |root| root.length)
}

/// Whether every page of a commit is undamaged.
fn is_whole(pages: &Pages<'_>, slot: Slot) -> io::Result<bool> {
    let mut is_whole = check_system(pages, slot)?.is_empty();
    match pages.tables(slot.user)? {
        Ok(tables) => {
            for table in tables {
                is_whole &= check(pages, &table)?.is_empty();
            }
            Ok(is_whole)
        }
        Err(_) => Ok(false),
    }
}

/// The faults of the tables in which redb records free pages.
fn check_system(pages: &Pages<'_>, slot: Slot) -> io::Result<Vec<String>> {
    let mut faults = Vec::new();
    match pages.tables(slot.system)? {
        Ok(tables) => {
            for table in tables {
                faults.extend(check(pages, &table)?);
            }
        }
        Err(fault) => faults.push(fault.to_string()),
    }
    Ok(faults)
}

fn check(pages: &Pages<'_>, table: &Table) -> io::Result<Vec<String>> {
    let mut faults = Vec::new();
    if let Some(root) = table.root {
        pages.walk(root, table.widths, &mut |found| {
            if let Found::Damaged(fault, _) = found {
                faults.push(fault.to_string());
            }
        })?;
    }
    Ok(faults)
}

fn numbers(pages: &Pages<'_>, meta: &Table) -> io::Result<(HashMap<String, u64>, Option<Fault>)> {
    let (mut numbers, mut damaged) = (HashMap::new(), None);
    if let Some(root) = meta.root {
        pages.walk(root, NUMBERS, &mut |found| match found {
            Found::Leaf(page) => numbers.extend(pairs(page, NUMBERS).filter_map(|(name, number)| {
                Some((String::from_utf8_lossy(name).into_owned(), u64::from_le_bytes(number.try_into().ok()?)))
            })),
            Found::Damaged(fault, _) => damaged = Some(fault),
        })?;
    }
    Ok((numbers, damaged))
}

/// Reads the log, in parts on several threads.
fn log(pages: &Pages<'_>, events: &Table, format: u64, index: &Index) -> Result<Vec<Part>, SurveyError> {
    let Some(root) = events.root else { return Ok(Vec::new()) };
    let roots = pages.parts(root, CHANGES, PARTS)?;
    let parts: Vec<OnceLock<Part>> = roots.iter().map(|_| OnceLock::new()).collect();
    parallel::try_each(roots.into_iter().zip(&parts).collect(), |(root, part)| {
        let read = read_part(pages, root, format, index)?;
        part.get_or_init(|| read);
        Ok::<(), io::Error>(())
    })?;
    Ok(parts.into_iter().filter_map(OnceLock::into_inner).collect())
}

fn read_part(pages: &Pages<'_>, root: Root, format: u64, index: &Index) -> io::Result<Part> {
    let mut part = Part::default();
    pages.walk(root, CHANGES, &mut |found| match found {
        Found::Leaf(page) => {
            for (place, stored) in pairs(page, CHANGES) {
                let Some(place) = place_of(place) else { continue };
                if let Err(malformed) = part.push(place, stored, format, index) {
                    part.malformed.get_or_insert(malformed);
                }
            }
        }
        Found::Damaged(fault, bytes) => part.bad.push((fault, bytes.to_vec())),
    })?;
    Ok(part)
}

/// The place in a key of the log, if it is a valid one.
fn place_of(bytes: &[u8]) -> Option<ChangeId> {
    let (revision, number) = bytes.split_first_chunk()?;
    let place = (u64::from_le_bytes(*revision), u32::from_le_bytes(number.try_into().ok()?));
    (Packed::new(place).place() == place).then_some(place)
}

impl Part {
    fn push(&mut self, place: ChangeId, stored: &[u8], format: u64, index: &Index) -> Result<(), Malformed> {
        let change = if format == FORMAT {
            let parts = format::split(place, stored)?;
            index.change(parts.head.key, place, parts.head.action(), stored.len())
        } else {
            let parts = old::split(Revision(place.0), stored)?;
            index.change(parts.key, place, parts.action(), stored.len())
        };
        if change.action == Action::Put {
            self.stored.push(stored, change.place);
        }
        self.changes.push(change);
        Ok(())
    }
}

/// Reads every head; returns those in undamaged pages, and the faults.
fn heads(pages: &Pages<'_>, table: &Table) -> io::Result<(Heads, Vec<String>)> {
    let (mut heads, mut faults) = (Heads::new(), Vec::new());
    let Some(root) = table.root else { return Ok((heads, faults)) };
    pages.walk(root, CHANGES, &mut |found| match found {
        Found::Leaf(page) => {
            for (place, head) in pairs(page, CHANGES) {
                let Some(place) = place_of(place) else { continue };
                match format::split_head(place, head) {
                    Ok(_) => drop(heads.insert(place, head.into())),
                    Err(malformed) => faults.push(malformed.to_string()),
                }
            }
        }
        Found::Damaged(fault, _) => faults.push(fault.to_string()),
    })?;
    Ok((heads, faults))
}

/// Searches for changes of which the log has only the heads: in the damaged pages, then in all pages of the file, since
/// pages below a damaged one may be undamaged. A change is the right one if it begins with exactly the bytes of the
/// head, and its payload has the checksum in it. Found changes are removed from `missing`.
fn recover(pages: &Pages<'_>, missing: &mut Heads, bad: &[BadPage], index: &Index) -> Result<Part, SurveyError> {
    let mut recovered: BTreeMap<ChangeId, Vec<u8>> = BTreeMap::new();
    // A deletion consists of its head only.
    let deletions = missing.iter().filter(|(place, head)| payload(**place, head, head).is_some_and(<[u8]>::is_empty));
    recovered.extend(deletions.map(|(place, head)| (*place, head.to_vec())));
    missing.retain(|place, _| !recovered.contains_key(place));
    let mut n_tried = 0;
    for (_, page) in bad {
        for (place, head) in missing.iter() {
            let at = memchr::memmem::find(page, head);
            if let Some(stored) = at.and_then(|at| whole_or_corrected(*place, head, &page[at..], &mut n_tried)) {
                recovered.insert(*place, stored);
            }
        }
        missing.retain(|place, _| !recovered.contains_key(place));
    }
    let mut offset = PAGE as u64;
    while offset < pages.length() && !missing.is_empty() {
        let page = pages.bytes(offset, PAGE)?;
        for (place, stored) in leaf_at(pages, offset, &page)? {
            if let Some(head) = missing.get(&place)
                && let Some(stored) = whole(place, head, &stored)
            {
                recovered.insert(place, stored.to_vec());
                missing.remove(&place);
            }
        }
        offset += PAGE as u64;
    }
    let mut part = Part::default();
    for (place, stored) in recovered {
        if let Err(malformed) = part.push(place, &stored, FORMAT, index) {
            part.malformed.get_or_insert(malformed);
        }
    }
    Ok(part)
}

/// The changes in a page of the file, if it looks like one of the log. The bytes of the first page are given.
pub(super) fn leaf_at(pages: &Pages<'_>, offset: u64, first: &[u8]) -> io::Result<Vec<(ChangeId, Vec<u8>)>> {
    let owned = |(place, stored): (&[u8], &[u8])| Some((place_of(place)?, stored.to_vec()));
    let found = match leaf_end(first, CHANGES) {
        Some(end) if first.first() == Some(&LEAF) && end <= first.len() => {
            pairs(first, CHANGES).filter_map(owned).collect()
        }
        Some(end) if first.first() == Some(&LEAF) && end <= CHANGES_PAGE_MAX => {
            pairs(&pages.bytes(offset, end)?, CHANGES).filter_map(owned).collect()
        }
        _ => Vec::new(),
    };
    Ok(found)
}

/// The change with this head at the beginning of some bytes, if it is undamaged.
fn whole<'b>(place: ChangeId, head: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
    let payload = payload(place, head, bytes)?;
    Some(&bytes[..head.len() + payload.len()])
}

/// As [`whole`], and if a bit of a small payload is flipped, the change with that put right.
fn whole_or_corrected(place: ChangeId, head: &[u8], bytes: &[u8], n_tried: &mut usize) -> Option<Vec<u8>> {
    if let Some(stored) = whole(place, head, bytes) {
        return Some(stored.to_vec());
    }
    let (parsed, _) = format::split_head(place, head).ok()?;
    let mut stored = bytes.get(..head.len() + parsed.payload_length)?.to_vec();
    if flipped::BYTES_MAX < parsed.payload_length || flipped::TRIES_MAX <= *n_tried {
        return None;
    }
    *n_tried += 1;
    flipped::correct(&mut stored[head.len()..], <[u8]>::len, |payload| parsed.is_of(payload)).then_some(stored)
}

fn payload<'b>(place: ChangeId, head: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
    let behind = bytes.strip_prefix(head)?;
    let (head, _) = format::split_head(place, head).ok()?;
    behind.get(..head.payload_length).filter(|payload| head.is_of(payload))
}

impl Lost {
    fn of(place: ChangeId, head: Box<[u8]>) -> Option<Lost> {
        let key = Bytes::copy_from_slice(format::split_head(place, &head).ok()?.0.key);
        Some(Lost { head, key, place })
    }

    /// The key, and the fault of its change.
    pub(super) fn malformed(self) -> (Bytes, Malformed) {
        (self.key, Malformed { fault: "its value is lost", revision: Revision(self.place.0) })
    }
}

/// Adds every change to the index in the order of the log, lost ones included. Returns the places of the superseded ones.
fn put_together(index: &mut Index, stored: &mut Stored, parts: Vec<Part>, markers: &[Lost]) -> Vec<ChangeId> {
    let mut changes = Vec::with_capacity(parts.iter().map(|part| part.changes.len()).sum::<usize>() + markers.len());
    for part in parts {
        stored.append(part.stored);
        changes.extend(part.changes);
    }
    changes.extend(markers.iter().map(|lost| index.change(&lost.key, lost.place, Action::Put, lost.head.len())));
    if !changes.is_sorted_by_key(|change| change.place) {
        changes.sort_by_key(|change| change.place);
        stored.sort();
    }
    index.take_up(changes, stored)
}

/// Reads bytes as the file of a store. For fuzzing.
#[doc(hidden)]
pub fn fuzz_file(file: &[u8]) -> bool {
    let storage = redb::backends::InMemoryBackend::new();
    let written = storage.set_len(file.len() as u64).and_then(|()| storage.write(0, file));
    let acknowledged = written.is_ok().then_some(Revision(9));
    survey(&storage, acknowledged.into()).is_ok()
}
