//! The file goes bad while the store is open: what is lost is named, and reads, watches, writes and compactions of everything else go on.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::kv::{self, Kv, Op, Outcome, Past, Range, Txn};
use steersman_storage::{At, Disk, Options, Page, ReadError, Scope, Store};

/// More than redb keeps in memory.
const LARGE: usize = 3 * 1024 * 1024;

/// Letters that lz4 does not shorten.
fn letters(seed: u64, length: usize) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    (0..length).map(|_| char::from(random.random_range(b'A'..=b'Z'))).collect()
}

fn put(key: &str, value: impl Into<Bytes>) -> Txn {
    let op = Op::Put { key: Bytes::copy_from_slice(key.as_bytes()), value: value.into() };
    Txn { compares: Vec::new(), ops: vec![op] }
}

async fn write(disk: &Disk, txn: Txn) -> Revision {
    match disk.txn(txn).await.unwrap() {
        Outcome::Committed { revision } => revision,
        failed @ Outcome::Failed { .. } => panic!("{failed:?}"),
    }
}

/// Overwrites every copy of a text in the file with as many other bytes.
fn overwrite(dir: &Path, text: &str) {
    let path = dir.join("store.redb");
    let mut image = std::fs::read(&path).unwrap();
    let places: Vec<usize> = memchr::memmem::find_iter(&image, text.as_bytes()).collect();
    assert!(!places.is_empty(), "the file does not have the text");
    for place in places {
        image[place..place + text.len()].fill(b'#');
    }
    write_at(&path, 0, &image);
}

/// Into the file that is there, not into another one in its place.
fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = std::fs::File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

fn object(name: &str, text: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}},"data":{{"text":"{text}"}}}}"#)
}

#[tokio::test]
async fn a_value_that_goes_bad_is_named_and_everything_else_goes_on() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    let text = letters(1, 500);
    write(&disk, put("a", "a")).await;
    let bad = write(&disk, put("bad", text.clone())).await;
    for n in 0..4 {
        write(&disk, put(&format!("large-{n}"), letters(100 + n, LARGE))).await;
    }
    let mut watch = disk.watch(disk.revision().await.unwrap());
    overwrite(scratch.path(), &text);

    let part = disk.range(Range::default()).await.unwrap();
    let keys: Vec<&[u8]> = part.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, [&b"a"[..], b"large-0", b"large-1", b"large-2", b"large-3"]);
    let damaged = disk.damaged();
    assert_eq!(damaged.len(), 1);
    assert_eq!((&*damaged[0].key, damaged[0].revision), (&b"bad"[..], bad));
    assert!(scratch.path().join("store.redb.damaged").exists());
    // History is left behind, and says so.
    let past = Past { after: bad, limit: 9, prefix: Bytes::new(), through: part.revision };
    assert!(matches!(disk.history(past).await, Err(kv::Error::Compacted { .. })));

    let written = write(&disk, put("b", "b")).await;
    // A watch is woken because of the damage, and goes on.
    let mut batch = watch.next().await.unwrap();
    while batch.events.is_empty() {
        batch = watch.next().await.unwrap();
    }
    assert_eq!((batch.events[0].revision, batch.events.len()), (written, 1));
    disk.compact(written).await.unwrap();
    disk.health().unwrap();
    let delete = Txn::single(kv::Expect::At(bad), Op::Delete { key: "bad".into() });
    write(&disk, delete).await;
    assert_eq!(disk.damaged(), []);
    write(&disk, put("bad", "good")).await;
    disk.close().await.unwrap();
    drop(disk);
    let disk = Disk::open(scratch.path()).unwrap();
    assert_eq!((disk.read().await.unwrap().entries.len(), disk.damaged().len()), (7, 0));
}

#[tokio::test]
async fn an_object_that_is_whole_in_memory_is_written_again() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::open(scratch.path()).unwrap());
    let store = Store::open(disk.clone(), Options::default()).await.unwrap();
    let (secrets, key) = (GroupResource::new("", "secrets"), ObjectKey::namespaced("default", "bad"));
    let text = letters(1, 500);
    let before = store.create(&secrets, &key, object("bad", &text).into()).await.unwrap();
    for n in 0..4 {
        write(&disk, put(&format!("large-{n}"), letters(100 + n, LARGE))).await;
    }
    let mut watch = store.watch(&secrets, Scope::All, before.revision).unwrap();
    overwrite(scratch.path(), &text);
    disk.range(Range::default()).await.unwrap();
    // It comes back at a later revision, with the same content.
    let events = watch.next_batch(9).await.unwrap();
    let after = store.get(&secrets, &key).await.unwrap().unwrap();
    assert_eq!((events[0].revision, events.len()), (after.revision, 1));
    assert!(before.revision < after.revision);
    assert_eq!(after.stored(), before.stored());
    assert_eq!(disk.damaged(), []);
    store.close().await.unwrap();
    drop((store, disk));
    let store = Store::open(Arc::new(Disk::open(scratch.path()).unwrap()), Options::default()).await.unwrap();
    assert_eq!(store.get(&secrets, &key).await.unwrap().unwrap().stored(), before.stored());
}

#[tokio::test]
async fn a_change_that_goes_bad_before_the_cache_has_it_is_an_error_by_name_and_left_out_of_lists() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::open(scratch.path()).unwrap());
    let store = Store::open(disk.clone(), Options::default()).await.unwrap();
    let secrets = GroupResource::new("", "secrets");
    let key = |name: &str| ObjectKey::namespaced("default", name);
    for name in ["a", "bad", "gone", "z"] {
        store.create(&secrets, &key(name), object(name, "first").into()).await.unwrap();
    }
    let text = letters(1, 500);
    let (writing, value) = (disk.clone(), object("bad", &text));
    // This thread, on which the cache is fed, waits: the cache is so far behind that it must read the file.
    let bad = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bad = write(&writing, put("/secrets/default/bad", value)).await;
            write(&writing, put("/secrets/default/z", object("z", "second"))).await;
            let delete = Op::Delete { key: "/secrets/default/gone".into() };
            write(&writing, Txn { compares: Vec::new(), ops: vec![delete] }).await;
            for n in 0..4 {
                write(&writing, put(&format!("large-{n}"), letters(100 + n, LARGE))).await;
            }
            bad
        })
    });
    let bad = bad.join().unwrap();
    overwrite(scratch.path(), &text);

    let read = store.get(&secrets, &key("bad")).await;
    assert!(matches!(&read, Err(ReadError::Unreadable { revision, .. }) if *revision == bad), "{read:?}");
    let list = store.list(&secrets, &Scope::All, At::Latest, Page::ALL).unwrap();
    assert_eq!(list.objects.iter().map(|object| &*object.key.name).collect::<Vec<_>>(), ["a", "z"]);
    let z = store.get(&secrets, &key("z")).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(z.json()).contains("second"));
    let named: Vec<_> = store.unreadable().into_iter().filter(|one| one.revision == bad).collect();
    assert_eq!(named[0].object, Some((secrets.clone(), key("bad"))));
    let mut watch = store.watch(&secrets, Scope::All, list.revision).unwrap();
    store.delete_unreadable(&secrets, &key("bad")).await.unwrap().unwrap();
    let again = store.create(&secrets, &key("bad"), object("bad", "third").into()).await.unwrap();
    assert_eq!(watch.next_batch(9).await.unwrap().last().unwrap().revision, again.revision);
    store.health().unwrap();
}
