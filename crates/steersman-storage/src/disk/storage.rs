//! The storage of a store's file, shared by redb and the survey before redb opens the file.

use crate::disk::PAGE_CACHE_BYTES;
use crate::disk::open::{OpenError, opening, private};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A storage; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Storage(Arc<dyn StorageBackend>);

impl Storage {
    pub(super) fn new(backend: impl StorageBackend) -> Storage {
        Storage(Arc::new(backend))
    }

    /// The storage of an existing file.
    pub(super) fn file(path: &Path) -> Result<Storage, OpenError> {
        let file = private().read(true).open(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Storage::new(FileBackend::new(file).map_err(opening(path))?))
    }

    /// Opens it with redb.
    pub(super) fn database(&self) -> Result<Database, DatabaseError> {
        Builder::new().set_cache_size(PAGE_CACHE_BYTES).create_with_backend(self.clone())
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
