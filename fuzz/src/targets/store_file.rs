//! The store's file with damage: three bytes of the input are the place, one is the damage. The file is refused, or
//! reads return only what was written to it.

use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use steersman_storage::Disk;
use steersman_storage::kv::{Kv, Op, Past, Range, Txn};
use tokio::runtime::Runtime;

const DAMAGES_MAX: usize = 8;
const N_KEYS: u64 = 24;

/// A file in memory that outlives the store that is opened on it.
#[derive(Clone, Debug, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().expect("a runtime without IO"));

/// All values that were written under each key.
type Written = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// An undamaged file, and the values that were written to it.
static SOUND: LazyLock<(Vec<u8>, Written)> = LazyLock::new(|| {
    let file = File::default();
    let mut written = Written::new();
    RUNTIME.block_on(async {
        let disk = Disk::open_backend(file.clone(), Path::new("sound")).expect("an empty file is a store");
        for number in 0..3 * N_KEYS {
            let key = format!("k/{}", number % N_KEYS).into_bytes();
            let value = format!("{{\"number\": {number}, \"text\": \"{}\"}}", "abc".repeat(number as usize)).into_bytes();
            written.entry(key.clone()).or_default().push(value.clone());
            let op = Op::Put { key: key.into(), value: value.into() };
            disk.txn(Txn { compares: Vec::new(), ops: vec![op] }).await.expect("the write is sound");
        }
        disk.close().await.expect("the store ends");
    });
    let bytes = file.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (bytes, written)
});

pub fn run(data: &[u8]) {
    let (sound, written) = &*SOUND;
    let mut bytes = sound.clone();
    for damage in data.chunks_exact(4).take(DAMAGES_MAX) {
        let at = usize::from(damage[0]) << 16 | usize::from(damage[1]) << 8 | usize::from(damage[2]);
        match damage[3] {
            0 => bytes.truncate((at % bytes.len().max(1)).max(1)),
            mask => {
                let at = at % bytes.len();
                bytes[at] ^= mask;
            }
        }
    }
    let file = File(Arc::new(Mutex::new(bytes)));
    RUNTIME.block_on(async {
        let Ok(disk) = Disk::open_backend(file, Path::new("damaged")) else { return };
        if let Ok(snapshot) = disk.read().await {
            for entry in snapshot.entries {
                let values = written.get(entry.key.as_ref()).map(Vec::as_slice).unwrap_or_default();
                assert!(values.iter().any(|value| *value == entry.value), "{entry:?} was never written");
            }
        }
        let _ = disk.range(Range { prefix: "k/".into(), ..Range::default() }).await;
        let past = Past { limit: 100, through: steersman_machinery::Revision(u64::MAX), ..Past::default() };
        let _ = disk.history(past).await;
        let _ = disk.close().await;
    });
}

// === impl File ===

impl File {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|bytes| bytes.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|bytes| {
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            let part = from.checked_add(out.len()).and_then(|end| bytes.get(from..end));
            out.copy_from_slice(part.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        const LEN_MAX: u64 = 1 << 30;
        if len > LEN_MAX {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.with(|bytes| bytes.resize(len as usize, 0));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|bytes| {
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            let part = from.checked_add(data.len()).and_then(|end| bytes.get_mut(from..end));
            part.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?.copy_from_slice(data);
            Ok(())
        })
    }
}
