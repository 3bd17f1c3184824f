//! A store's file on a disk that cannot read some of its blocks, and how the store is opened, checked and read on it.

use crate::disk::file::open_on;
use crate::disk::file::pages::PAGE;
use crate::disk::file::storage::Storage;
use crate::disk::open::{OpenError, private};
use crate::disk::renewal::Renewing;
use crate::disk::renewal::pace::System;
use crate::disk::{Disk, FILE, FILE_DAMAGED, PAGE_CACHE_BYTES, check};
use crate::kv::{Kv, Op, Range, Txn};
use bytes::Bytes;
use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use steersman_machinery::Revision;

/// A file of which the blocks in the list are unreadable.
#[derive(Debug)]
struct Failing {
    file: FileBackend,
    unreadable: Arc<Mutex<BTreeSet<usize>>>,
}

impl Failing {
    fn storage(path: &Path, unreadable: &Arc<Mutex<BTreeSet<usize>>>) -> Storage {
        let file = FileBackend::new(private().read(true).open(path).unwrap()).unwrap();
        Storage::new(Failing { file, unreadable: unreadable.clone() })
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (first, behind) = (offset as usize / PAGE, (offset as usize + out.len()).div_ceil(PAGE));
        if self.unreadable.lock().range(first..behind).next().is_some() {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.file.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

/// Letters that lz4 does not shorten.
fn letters(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'A' + (state >> 40) as u8 % 26
    };
    (0..length).map(letter).collect()
}

async fn write(disk: &Disk, key: &Bytes, value: &Bytes) {
    let op = Op::Put { key: key.clone(), value: value.clone() };
    disk.txn(Txn { compares: Vec::new(), ops: vec![op] }).await.unwrap();
}

/// A closed store: its file, its newest revision, and its entries. The last value takes many blocks.
struct Made {
    entries: BTreeMap<Bytes, Bytes>,
    image: Vec<u8>,
    newest: Revision,
}

async fn make(dir: &Path) -> Made {
    let disk = Disk::open(dir).unwrap();
    let mut entries = BTreeMap::new();
    for n in 0..24 {
        let (key, value) = (Bytes::from(format!("key-{n:02}")), Bytes::from(letters(n, 700)));
        entries.insert(key, value);
    }
    entries.insert("large".into(), letters(99, 60_000).into());
    for (key, value) in &entries {
        write(&disk, key, value).await;
    }
    let newest = disk.revision().await.unwrap();
    disk.close().await.unwrap();
    Made { entries, image: std::fs::read(dir.join(FILE)).unwrap(), newest }
}

/// Checks that each entry is as it was written or named as damaged. Returns the number of the latter.
async fn compare(made: &Made, disk: &Disk, context: &str) -> usize {
    let damaged: BTreeSet<Bytes> = disk.damaged().into_iter().map(|damaged| damaged.key).collect();
    let read = disk.read().await.unwrap().entries;
    let read: BTreeMap<Bytes, Bytes> = read.into_iter().map(|entry| (entry.key, entry.value)).collect();
    let mut want = made.entries.clone();
    want.retain(|key, _| !damaged.contains(key));
    assert!(read == want, "{context}: {damaged:?} are damaged, and there are {:?}", read.keys());
    damaged.len()
}

/// The blocks in which a value begins, also in pages that are no longer in use.
fn blocks_of(made: &Made, key: &str) -> BTreeSet<usize> {
    memchr::memmem::find_iter(&made.image, &made.entries[key.as_bytes()]).map(|at| at / PAGE).collect()
}

#[tokio::test]
async fn a_store_with_a_block_that_cannot_be_read_opens_with_everything_else_or_is_refused_as_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let made = make(dir).await;
    let (mut n_refused, mut n_whole, mut n_lost) = (0, 0, 0);
    for block in 0..made.image.len() / PAGE {
        std::fs::write(dir.join(FILE), &made.image).unwrap();
        let unreadable = Arc::new(Mutex::new(BTreeSet::from([block])));
        let context = format!("block {block}");
        // The file that replaces the damaged one is elsewhere on the disk.
        let opened = open_on(dir, Some(made.newest), |path| {
            if std::fs::read(path).unwrap() == made.image {
                Ok(Failing::storage(path, &unreadable))
            } else {
                Storage::file(path)
            }
        });
        match opened {
            Ok(opened) => {
                let renewing = Renewing { clock: Arc::new(System), dir: Some(dir.to_owned()) };
                let disk = Disk::start(opened, None, renewing, dir).unwrap();
                match compare(&made, &disk, &context).await {
                    0 => n_whole += 1,
                    n => n_lost += n,
                }
                disk.close().await.unwrap();
            }
            Err(OpenError::Damaged { .. } | OpenError::Incomplete { .. }) => n_refused += 1,
            Err(error) => panic!("{context}: {error:?}"),
        }
    }
    println!("{n_whole} without a loss, {n_lost} entries lost, {n_refused} refused");
    assert!(0 < n_whole && 0 < n_lost && 0 < n_refused);
    assert!(
        n_refused <= 3,
        "only the first page and the list of tables are indispensable, and {n_refused} were refused"
    );
}

#[tokio::test]
async fn a_block_that_cannot_be_read_any_more_costs_what_is_in_it_and_the_store_goes_on() {
    let key = "key-07";
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let mut made = make(dir).await;
    let unreadable = Arc::<Mutex<BTreeSet<usize>>>::default();
    let opened = open_on(dir, None, |path| Ok(Failing::storage(path, &unreadable))).unwrap();
    let renewing = Renewing { clock: Arc::new(System), dir: Some(dir.to_owned()) };
    let disk = Disk::start(opened, None, renewing, dir).unwrap();
    // More than redb keeps in memory, so that the page is read from the disk.
    for n in 0..2 {
        let (name, value) = (Bytes::from(format!("filling-{n}")), Bytes::from(letters(n, PAGE_CACHE_BYTES)));
        write(&disk, &name, &value).await;
        made.entries.insert(name, value);
    }
    *unreadable.lock() = blocks_of(&made, key);
    let part = disk.range(Range::default()).await.unwrap();
    let n_lost = compare(&made, &disk, key).await;
    assert!(disk.damaged().iter().any(|damaged| damaged.key == key), "{key}");
    assert_eq!(part.entries.len(), made.entries.len() - n_lost);
    assert!(dir.join(FILE_DAMAGED).exists());
    write(&disk, &"new".into(), &"new".into()).await;
    disk.health().unwrap();
    disk.close().await.unwrap();
}

#[tokio::test]
async fn a_check_names_what_is_in_a_block_that_cannot_be_read() {
    let scratch = tempfile::tempdir().unwrap();
    let made = make(scratch.path()).await;
    let unreadable = blocks_of(&made, "large").into_iter().map(|block| block + 3).collect();
    let unreadable = Arc::new(Mutex::new(unreadable));
    let storage = |path: &Path| Ok(Failing::storage(path, &unreadable));
    let mut n_read = 0;
    let report = check::read_on(scratch.path(), |_| (), |(), _| n_read += 1, storage).unwrap().0;
    assert_eq!(n_read, made.entries.len() - 1);
    assert_eq!((&*report.damaged[0].key, report.damaged.len()), (&b"large"[..], 1));
    let fault = &report.faults[0];
    assert!(fault.starts_with("the page at byte ") && fault.ends_with("the disk cannot read all of it"), "{fault}");
}
