//! The storage of a store's file, shared by redb and the survey before redb opens the file.

use crate::disk::PAGE_CACHE_BYTES;
use crate::disk::file::blocks::Blocks;
use crate::disk::open::{OpenError, opening, private};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;

/// A storage; clones are one. A block that is read and is no longer as it was is an error.
#[derive(Clone, Debug)]
pub(in crate::disk) struct Storage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    backend: Box<dyn StorageBackend>,
    blocks: Blocks,
    /// The first block that was found damaged.
    damaged: OnceLock<u64>,
}

/// The cause of an error when a block is damaged.
#[derive(Debug, thiserror::Error)]
#[error("the block at byte {offset} of the file is no longer what was written")]
struct Damaged {
    offset: u64,
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

    /// Where a damaged block was found. redb reads nothing more then.
    pub(in crate::disk) fn damage(&self) -> Option<u64> {
        self.0.damaged.get().copied()
    }

    /// The file as it is, damaged or not.
    pub(in crate::disk) fn as_it_is(&self) -> &dyn StorageBackend {
        &*self.0.backend
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.0.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let read = self.0.backend.read(offset, out);
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            self.0.damaged.get_or_init(|| offset);
        }
        read?;
        self.0.blocks.compare(offset, out).map_err(|offset| {
            self.0.damaged.get_or_init(|| offset);
            io::Error::new(io::ErrorKind::InvalidData, Damaged { offset })
        })
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
