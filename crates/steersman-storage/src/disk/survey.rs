//! Surveys the file before redb opens it: verifies every page and every change, and finds the current change of each
//! key.
//!
//! An undamaged file takes one pass. From a damaged one, everything is saved that is certainly right: a change counts
//! if its own checksum is right and the page that leads to it is undamaged; otherwise, if the other copy of its head
//! shows that it belongs in the log. A change with only a head left is lost: its key is known, so that no older value
//! is taken for the current one. If the lost changes cannot be determined, the file is refused.

use crate::disk::format::{self, COLLECTED, COMPACTED, FORMAT, FORMAT_OLDEST, Malformed, Packed, Place, VERSION, old};
use crate::disk::index::{Change, Index, Stored};
use crate::disk::pages::{BadPage, Fault, Found, LEAF, PAGE, Pages, Root, Slot, Table, Widths, leaf_end, pairs};
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
    /// The damage that was found. Without any, the file need not be rewritten.
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
    pub(super) superseded: Vec<Place>,
}

/// A change with only its head left.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) head: Box<[u8]>,
    pub(super) key: Bytes,
    pub(super) place: Place,
}

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SurveyError {
    #[error("it has format {found}")]
    Format { found: u64 },
    #[error("it cannot be read")]
    Io(#[source] io::Error),
    /// The lost changes cannot be determined.
    #[error("{n_unknown} of its changes are lost, and nothing says which: {fault}")]
    LostUnknown { fault: String, n_unknown: u64 },
    #[error("{0}")]
    NoStore(&'static str),
    /// A file of an older format does not show which change was damaged.
    #[error("it is of an older format, whose changes have no checksums: {fault}")]
    Old { fault: String },
    #[error("the list of its tables is lost: {0}")]
    Tables(Fault),
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
type Heads = BTreeMap<Place, Box<[u8]>>;

/// Surveys a file.
pub(super) fn survey(storage: &dyn StorageBackend) -> Result<Survey, SurveyError> {
    let pages = Pages::new(storage)?;
    let mut faults = Vec::new();
    let header = pages.header()?.ok_or(SurveyError::NoStore("it is too short"))?;
    let newer = match header.newer() {
        // A complete commit that a crash kept from coming into force is as good as the one in force.
        Some(newer) => Some(newer).filter(|_| is_whole(&pages, newer).unwrap_or(false)),
        None => None,
    };
    let is_behind = newer.is_some();
    let lost = SurveyError::NoStore("the commit in force is damaged, or this is no store");
    let slot = newer.or(header.primary()).ok_or(lost)?;
    faults.extend(header.fault(pages.length()).map(|fault| fault.to_string()));
    let tables = pages.tables(slot.user)?.map_err(SurveyError::Tables)?;
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
        && let Some(fault) = faults.first()
    {
        return Err(SurveyError::Old { fault: fault.clone() });
    }
    let is_log_whole = n_found == n_events;
    let mut markers = Vec::new();
    let mut n_unknown = 0;
    if format == FORMAT {
        let is_wanted = !is_log_whole || n_events != n_heads;
        let (heads, head_faults) = self::heads(&pages, heads, is_wanted)?;
        faults.extend(head_faults);
        if is_wanted {
            let known: HashSet<Packed> =
                parts.iter().flat_map(|part| &part.changes).map(|change| change.place).collect();
            let mut missing = heads;
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
    }
    let (stored, superseded) = put_together(&mut index, parts, &markers, format);
    let lost = markers.into_iter().filter(|lost| index.is_at(&lost.key, lost.place)).collect();
    Ok(Survey { faults, format, index, is_behind, is_meta_lost, lost, n_events, n_unknown, stored, superseded })
}

/// Puts the newest commit in force.
pub(super) fn catch_up(storage: &dyn StorageBackend) -> io::Result<()> {
    let pages = Pages::new(storage)?;
    match pages.header()? {
        Some(header) => pages.swap_slots(&header),
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
fn place_of(bytes: &[u8]) -> Option<Place> {
    let (revision, number) = bytes.split_first_chunk()?;
    let place = (u64::from_le_bytes(*revision), u32::from_le_bytes(number.try_into().ok()?));
    (Packed::new(place).place() == place).then_some(place)
}

impl Part {
    fn push(&mut self, place: Place, stored: &[u8], format: u64, index: &Index) -> Result<(), Malformed> {
        let change = if format == FORMAT {
            let parts = format::split(place, stored)?;
            index.change(parts.head.key, place, parts.head.is_deletion(), stored.len())
        } else {
            let parts = old::split(Revision(place.0), stored)?;
            index.change(parts.key, place, parts.is_deletion(), stored.len())
        };
        if !change.is_deletion {
            self.stored.push(stored, change.place);
        }
        self.changes.push(change);
        Ok(())
    }
}

/// Reads every head; returns those in undamaged pages, if they are wanted, and the faults.
fn heads(pages: &Pages<'_>, table: Option<&Table>, is_wanted: bool) -> io::Result<(Heads, Vec<String>)> {
    let (mut heads, mut faults) = (Heads::new(), Vec::new());
    let Some(root) = table.and_then(|table| table.root) else { return Ok((heads, faults)) };
    pages.walk(root, CHANGES, &mut |found| match found {
        Found::Leaf(page) if is_wanted => {
            for (place, head) in pairs(page, CHANGES) {
                let Some(place) = place_of(place) else { continue };
                match format::split_head(place, head) {
                    Ok(_) => drop(heads.insert(place, head.into())),
                    Err(malformed) => faults.push(malformed.to_string()),
                }
            }
        }
        Found::Leaf(_) => {}
        Found::Damaged(fault, _) => faults.push(fault.to_string()),
    })?;
    Ok((heads, faults))
}

/// Searches for changes of which the log has only the heads: in the damaged pages, then in all pages of the file, since
/// pages below a damaged one may be undamaged. A change is the right one if it begins with exactly the bytes of the
/// head, and its payload has the checksum in it. Found changes are removed from `missing`.
fn recover(pages: &Pages<'_>, missing: &mut Heads, bad: &[BadPage], index: &Index) -> Result<Part, SurveyError> {
    let mut recovered: BTreeMap<Place, Vec<u8>> = BTreeMap::new();
    // A deletion consists of its head only.
    let deletions = missing.iter().filter(|(place, head)| payload(**place, head, head).is_some_and(<[u8]>::is_empty));
    recovered.extend(deletions.map(|(place, head)| (*place, head.to_vec())));
    missing.retain(|place, _| !recovered.contains_key(place));
    for (_, page) in bad {
        for (place, head) in missing.iter() {
            let at = memchr::memmem::find(page, head);
            if let Some(stored) = at.and_then(|at| whole(*place, head, &page[at..])) {
                recovered.insert(*place, stored.to_vec());
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

/// The changes in a page of the file, if it looks like a page of the log. `first` has its first `PAGE` bytes.
fn leaf_at(pages: &Pages<'_>, offset: u64, first: &[u8]) -> io::Result<Vec<(Place, Vec<u8>)>> {
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
fn whole<'b>(place: Place, head: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
    let payload = payload(place, head, bytes)?;
    Some(&bytes[..head.len() + payload.len()])
}

fn payload<'b>(place: Place, head: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
    let behind = bytes.strip_prefix(head)?;
    let (head, _) = format::split_head(place, head).ok()?;
    behind.get(..head.payload_length).filter(|payload| head.is_of(payload))
}

impl Lost {
    fn of(place: Place, head: Box<[u8]>) -> Option<Lost> {
        let key = Bytes::copy_from_slice(format::split_head(place, &head).ok()?.0.key);
        Some(Lost { head, key, place })
    }
}

/// Adds every change to the index in the order of the log, lost ones included.
fn put_together(index: &mut Index, parts: Vec<Part>, markers: &[Lost], format: u64) -> (Stored, Vec<Place>) {
    let mut stored = Stored::default();
    let mut changes = Vec::with_capacity(parts.iter().map(|part| part.changes.len()).sum::<usize>() + markers.len());
    for part in parts {
        stored.append(part.stored);
        changes.extend(part.changes);
    }
    changes.extend(markers.iter().map(|lost| index.change(&lost.key, lost.place, false, lost.head.len())));
    if !changes.is_sorted_by_key(|change| change.place) {
        changes.sort_by_key(|change| change.place);
        stored.sort();
    }
    let superseded = index.take_up(changes, &mut stored);
    (stored, if format < FORMAT { superseded } else { Vec::new() })
}

/// Reads bytes as the file of a store. For fuzzing.
#[doc(hidden)]
pub fn fuzz_file(file: &[u8]) -> bool {
    let storage = redb::backends::InMemoryBackend::new();
    let written = storage.set_len(file.len() as u64).and_then(|()| storage.write(0, file));
    written.is_ok() && survey(&storage).is_ok()
}
