//! The storage of a store's file, shared by redb and the survey before redb opens the file.

use crate::disk::PAGE_CACHE_BYTES;
use crate::disk::file::blocks::Blocks;
use crate::disk::file::damage::{Changed, is_damage};
use crate::disk::open::{OpenError, opening, private};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;

/// A storage; clones are one. A read fails if a block is no longer what it was, or if the disk cannot read it.
#[derive(Clone, Debug)]
pub(in crate::disk) struct Storage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    backend: Box<dyn StorageBackend>,
    blocks: Blocks,
    /// The offset of the first damage that a read has found.
    damaged: OnceLock<u64>,
}

impl Storage {
    pub(in crate::disk) fn new(backend: impl StorageBackend) -> Storage {
        let (blocks, damaged) = (Blocks::default(), OnceLock::new());
        Storage(Arc::new(Inner { backend: Box::new(backend), blocks, damaged }))
    }

    /// The storage of an existing file.
    pub(in crate::disk) fn file(path: &Path) -> Result<Storage, OpenError> {
        let file = private().read(true).open(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Storage::new(FileBackend::new(file).map_err(opening(path))?))
    }

    /// Opens it with redb.
    pub(in crate::disk) fn database(&self) -> Result<Database, DatabaseError> {
        Builder::new().set_cache_size(PAGE_CACHE_BYTES).create_with_backend(self.clone())
    }

    /// The offset at which a read has found damage. redb reads nothing more after that.
    pub(in crate::disk) fn damage(&self) -> Option<u64> {
        self.0.damaged.get().copied()
    }

    /// The file without the comparison of its blocks, so that the rest of a damaged file can be read.
    pub(in crate::disk) fn as_it_is(&self) -> &dyn StorageBackend {
        &*self.0.backend
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.0.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = |offset| io::Error::new(io::ErrorKind::InvalidData, Changed { offset });
        let read = self.0.backend.read(offset, out);
        let read = read.and_then(|()| self.0.blocks.compare(offset, out).map_err(changed));
        if let Err(error) = &read
            && is_damage(error)
        {
            let changed = error.get_ref().and_then(|source| source.downcast_ref::<Changed>());
            self.0.damaged.get_or_init(|| changed.map_or(offset, |changed| changed.offset));
        }
        read
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.blocks.set_length(length);
        self.0.backend.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.blocks.forget(offset, data.len());
        self.0.backend.write(offset, data)?;
        self.0.blocks.written(offset, data);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.0.backend.close()
    }
}
