//! A storage that calls a function before each operation on another storage: tests make a disk slow, full or broken
//! with it.
//!
//! Part of the crate and not of its tests, so that tests of other crates can use it too.

use redb::StorageBackend;
use std::{fmt, io};

/// An operation on a storage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// A read of bytes.
    Read,
    /// A change of the length to this many bytes.
    SetLength(u64),
    /// A sync of all writes.
    Sync,
    /// A write that ends at this offset.
    Write(u64),
}

type Before = dyn Fn(Operation) -> io::Result<()> + Send + Sync;

/// A storage that wraps another one.
pub struct Intercepted<B> {
    before: Box<Before>,
    storage: B,
}

impl<B> Intercepted<B> {
    /// `before` runs before each operation, and may block, panic, or fail instead of it.
    pub fn new(storage: B, before: impl Fn(Operation) -> io::Result<()> + Send + Sync + 'static) -> Intercepted<B> {
        Intercepted { before: Box::new(before), storage }
    }
}

impl<B: StorageBackend> StorageBackend for Intercepted<B> {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        (self.before)(Operation::Read)?;
        self.storage.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        (self.before)(Operation::SetLength(length))?;
        self.storage.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.before)(Operation::Sync)?;
        self.storage.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (self.before)(Operation::Write(offset + data.len() as u64))?;
        self.storage.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.storage.close()
    }
}

impl<B> fmt::Debug for Intercepted<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepted").finish_non_exhaustive()
    }
}
