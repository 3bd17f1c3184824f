//! A disk that loses power: writes are volatile until synced, and a crash keeps any part of the unsynced ones.
//!
//! The power fails at a chosen operation: that operation fails, and so do all after it. The image afterwards has all
//! synced writes, plus an arbitrary selection of the unsynced ones, each whole, torn at a byte, or lost, in any order.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::StorageBackend;
use std::io;
use std::sync::Arc;

/// The injected fault, and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    None,
    /// Every operation from this one on fails.
    Power {
        at_operation: u64,
    },
    /// This sync fails and drops the writes that it should save; everything before and after works, as after a failed
    /// fsync on Linux.
    Sync {
        at_sync: u64,
    },
}

/// The storage; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Faulty(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    durable: Vec<u8>,
    fault: Fault,
    is_panicking: bool,
    n_operations: u64,
    n_syncs: u64,
    unsynced: Vec<Unsynced>,
    /// The content that reads return.
    volatile: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Unsynced {
    Length(usize),
    Write(usize, Vec<u8>),
}

impl Faulty {
    pub(crate) fn new(image: Vec<u8>, fault: Fault) -> Faulty {
        let volatile = image.clone();
        let state = State {
            durable: image,
            fault,
            is_panicking: false,
            n_operations: 0,
            n_syncs: 0,
            unsynced: Vec::new(),
            volatile,
        };
        Faulty(Arc::new(Mutex::new(state)))
    }

    /// Makes every operation from now on panic, as a bug below the engine would.
    pub(crate) fn panic_from_now_on(&self) {
        self.0.lock().is_panicking = true;
    }

    /// The numbers of operations and syncs so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.n_operations, state.n_syncs)
    }

    /// The content after the power is back.
    pub(crate) fn image_after_crash(&self, seed: u64) -> Vec<u8> {
        let state = self.0.lock();
        let mut random = StdRng::seed_from_u64(seed);
        let mut image = state.durable.clone();
        let mut order: Vec<&Unsynced> = state.unsynced.iter().collect();
        // Some crashes keep everything, some nothing, most a part.
        let kept = [0.0, 0.1, 0.5, 0.9, 1.0][random.random_range(0..5)];
        let torn = if kept == 1.0 { 0.0 } else { 0.2 };
        if random.random_bool(0.5) {
            for at in (1..order.len()).rev() {
                order.swap(at, random.random_range(0..=at));
            }
        }
        for unsynced in order {
            if !random.random_bool(kept) {
                continue;
            }
            match unsynced {
                Unsynced::Length(length) => image.resize((*length).max(state.durable.len()), 0),
                Unsynced::Write(offset, data) => {
                    let length =
                        if random.random_bool(torn) { random.random_range(0..=data.len()) } else { data.len() };
                    // A file grows with writes after its end, up to the size that it was given.
                    if image.len() < offset + length {
                        image.resize(offset + length, 0);
                    }
                    image[*offset..offset + length].copy_from_slice(&data[..length]);
                }
            }
        }
        image
    }
}

impl State {
    fn operate(&mut self) -> io::Result<()> {
        self.n_operations += 1;
        assert!(!self.is_panicking, "told to panic");
        match self.fault {
            Fault::Power { at_operation } if at_operation <= self.n_operations => {
                Err(io::Error::other("the power is gone"))
            }
            _ => Ok(()),
        }
    }
}

impl StorageBackend for Faulty {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().volatile.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock();
        let start = offset as usize;
        let end = start + out.len();
        let found = state.volatile.get(start..end).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        let length = length as usize;
        state.volatile.resize(length, 0);
        state.unsynced.push(Unsynced::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        state.n_syncs += 1;
        if matches!(state.fault, Fault::Sync { at_sync } if at_sync == state.n_syncs) {
            // The pages are marked clean although they were not written: no later sync saves them.
            state.unsynced.clear();
            return Err(io::Error::other("the sync failed"));
        }
        let state = &mut *state;
        for unsynced in state.unsynced.drain(..) {
            match unsynced {
                Unsynced::Length(length) => state.durable.resize(length, 0),
                Unsynced::Write(offset, data) => {
                    let end = offset + data.len();
                    if state.durable.len() < end {
                        state.durable.resize(end, 0);
                    }
                    state.durable[offset..end].copy_from_slice(&data);
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        let start = offset as usize;
        let end = start + data.len();
        if state.volatile.len() < end {
            state.volatile.resize(end, 0);
        }
        state.volatile[start..end].copy_from_slice(data);
        state.unsynced.push(Unsynced::Write(start, data.to_vec()));
        Ok(())
    }
}
