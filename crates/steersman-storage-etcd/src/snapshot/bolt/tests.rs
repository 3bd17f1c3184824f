//! The reader against files that these tests make, sound and damaged ones.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PAGE_SIZE: usize = 512;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The bytes of a page with its overflow.
fn page(number: u64, flags: u16, elements: &[(u32, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut heads = Vec::new();
    let mut contents: Vec<u8> = Vec::new();
    for (n, (flag, key, value)) in elements.iter().enumerate() {
        let place = (elements.len() - n) * 16 + contents.len();
        match flags {
            1 => {
                heads.extend((place as u32).to_le_bytes());
                heads.extend((key.len() as u32).to_le_bytes());
                heads.extend(value);
                contents.extend(key);
            }
            _ => {
                heads.extend(flag.to_le_bytes());
                heads.extend((place as u32).to_le_bytes());
                heads.extend((key.len() as u32).to_le_bytes());
                heads.extend((value.len() as u32).to_le_bytes());
                contents.extend(key);
                contents.extend(value);
            }
        }
    }
    let length = (HEADER + heads.len() + contents.len()).next_multiple_of(PAGE_SIZE);
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(flags.to_le_bytes());
    bytes.extend((elements.len() as u16).to_le_bytes());
    bytes.extend(((length / PAGE_SIZE - 1) as u32).to_le_bytes());
    bytes.extend(heads);
    bytes.extend(contents);
    bytes.resize(length, 0);
    bytes
}

/// A file with a bucket `key` of these entries, so many in a page, and an inline one `meta`.
fn file(entries: &Entries, per_page: usize) -> Vec<u8> {
    let mut pages: Vec<u8> = Vec::new();
    let number_at = |pages: &Vec<u8>| (2 + pages.len() / PAGE_SIZE) as u64;
    let mut level: Vec<(Vec<u8>, u64)> = Vec::new();
    let all: Vec<_> = entries.iter().map(|(key, value)| (0, key.clone(), value.clone())).collect();
    for part in all.chunks(per_page) {
        let number = number_at(&pages);
        level.push((part[0].1.clone(), number));
        pages.extend(page(number, 2, part));
    }
    if level.is_empty() {
        level.push((Vec::new(), number_at(&pages)));
        pages.extend(page(level[0].1, 2, &[]));
    }
    while 1 < level.len() {
        let mut above = Vec::new();
        for part in level.chunks(per_page.max(2)) {
            let number = number_at(&pages);
            above.push((part[0].0.clone(), number));
            let children: Vec<_> =
                part.iter().map(|(key, child)| (0, key.clone(), child.to_le_bytes().to_vec())).collect();
            pages.extend(page(number, 1, &children));
        }
        level = above;
    }
    let bucket = [level[0].1.to_le_bytes(), [0; 8]].concat();
    let mut inline = vec![0; 16];
    inline.extend(page(0, 2, &[meta_entry()]));
    let root = number_at(&pages);
    pages.extend(page(root, 2, &[(1, b"key".to_vec(), bucket), (1, b"meta".to_vec(), inline)]));
    let n_pages = number_at(&pages);
    [meta_page(0, root, n_pages, 8), meta_page(1, root, n_pages, 7), pages].concat()
}

/// The entry of the bucket `meta`: history up to revision 7 was removed.
fn meta_entry() -> (u32, Vec<u8>, Vec<u8>) {
    let value = [&7_u64.to_be_bytes()[..], b"_", &0_u64.to_be_bytes()].concat();
    (0, b"finishedCompactRev".to_vec(), value)
}

#[test]
fn the_revision_of_the_last_compaction_is_read() {
    let bytes = file(&entries(), 3);
    let bolt = Bolt::open(&*bytes, bytes.len() as u64).unwrap();
    assert_eq!(crate::snapshot::compacted(&bolt).unwrap(), 7);
}

/// All entries of a bucket.
fn read(bytes: &[u8], name: &[u8]) -> Result<Option<Entries>, BoltError> {
    let bolt = Bolt::open(bytes, bytes.len() as u64)?;
    let Some(bucket) = bolt.bucket(name)? else { return Ok(None) };
    let mut cursor = bolt.cursor(&bucket)?;
    let mut entries = Entries::new();
    while let Some(Leaf { key, value, .. }) = cursor.next()? {
        entries.insert(key.to_vec(), value.to_vec());
    }
    Ok(Some(entries))
}

fn entries() -> Entries {
    (0..40).map(|n: u8| (vec![b'k', n], vec![n; usize::from(n) * 40])).collect()
}

#[test]
fn an_inline_bucket_is_read_and_an_absent_one_is_none() {
    let bytes = file(&entries(), 3);
    let (_, key, value) = meta_entry();
    assert_eq!(read(&bytes, b"meta").unwrap().unwrap(), Entries::from([(key, value)]));
    assert_eq!(read(&bytes, b"auth").unwrap(), None);
}

#[test]
fn one_damaged_meta_page_costs_nothing() {
    for place in [HEADER, PAGE_SIZE + HEADER] {
        let mut bytes = file(&entries(), 3);
        bytes[place] ^= 1;
        assert_eq!(read(&bytes, b"key").unwrap().unwrap(), entries());
    }
    let mut bytes = file(&entries(), 3);
    bytes[HEADER] ^= 1;
    bytes[PAGE_SIZE + HEADER] ^= 1;
    assert!(matches!(read(&bytes, b"key"), Err(BoltError::Meta)));
    assert!(matches!(read(b"", b"key"), Err(BoltError::Meta)));
}

#[test]
fn damage_is_named_by_its_page() {
    let check = |change: &dyn Fn(&mut Vec<u8>), want: &str| {
        let mut bytes = file(&Entries::from([(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]), 1);
        change(&mut bytes);
        assert_eq!(read(&bytes, b"key").unwrap_err().to_string(), want);
    };
    // Pages 2 and 3 are leaves, 4 is the branch above them, 5 the uppermost bucket.
    let at = |page: usize| page * PAGE_SIZE;
    check(&|bytes| bytes[at(2)] = 3, "page 2 is damaged: it has the number of another page");
    check(&|bytes| bytes[at(3) + 8] = 9, "page 3 is damaged: it is neither a branch nor a leaf");
    check(&|bytes| bytes[at(3) + 10] = 200, "page 3 is damaged: it has more elements than there is room for");
    check(
        &|bytes| bytes[at(3) + 12] = 200,
        "page 3 is damaged: it is longer than the rest of the file, or than any page",
    );
    check(&|bytes| bytes[at(3) + HEADER + 6] = 1, "page 3 is damaged: an entry of it is not within it");
    check(&|bytes| bytes[at(3) + HEADER + 16] = b'A', "page 3 is damaged: its keys are not in order");
    check(&|bytes| bytes[at(4) + HEADER + 8] = 4, "page 4 is damaged: the pages above it lead in circles");
    check(&|bytes| bytes[at(4) + HEADER + 8] = 77, "page 77 is damaged: it is not in the file");
    check(&|bytes| bytes.truncate(at(5)), "page 5 is damaged: the file ends before its last page");
}

proptest! {
    #[test]
    fn what_is_in_a_file_is_read(
        entries in prop::collection::btree_map(
            prop::collection::vec(any::<u8>(), 1..40),
            prop::collection::vec(any::<u8>(), 0..1_500),
            0..60,
        ),
        per_page in 1_usize..9,
    ) {
        prop_assert_eq!(read(&file(&entries, per_page), b"key").unwrap().unwrap(), entries);
    }

    #[test]
    fn no_bytes_make_it_panic_or_go_on_for_ever(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = file(&entries(), 3);
        for (place, value) in changes {
            // Meta pages are compared with their checksums, so most of what they guard is behind them.
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if is_cut {
            bytes.truncate(length.index(bytes.len()));
        }
        let _either = read(&bytes, b"key");
    }
}
