//! The limits of requests in flight. Requests beyond them get 429.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The most reading requests in flight.
const READS_MAX: usize = 400;
/// The most writing requests in flight.
const WRITES_MAX: usize = 200;
/// The most requests whose bodies are being received.
const RECEIVING_MAX: usize = 1000;

/// The permits that requests hold while they are in flight.
#[derive(Debug)]
pub(crate) struct Limits {
    reads: Arc<Semaphore>,
    receiving: Semaphore,
    writes: Arc<Semaphore>,
}

/// Whether a request changes something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            reads: Arc::new(Semaphore::new(READS_MAX)),
            receiving: Semaphore::new(RECEIVING_MAX),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
        }
    }
}

impl Limits {
    /// A permit to carry out a request, if one is left.
    pub(crate) fn try_carry_out(&self, access: Access) -> Option<OwnedSemaphorePermit> {
        let places = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        places.clone().try_acquire_owned().ok()
    }

    /// A permit to receive the body of a request, if one is left.
    pub(crate) fn try_receive(&self) -> Option<SemaphorePermit<'_>> {
        self.receiving.try_acquire().ok()
    }

    /// The number of requests in flight.
    pub(crate) fn under_way(&self, access: Access) -> usize {
        match access {
            Access::Read => READS_MAX - self.reads.available_permits(),
            Access::Write => WRITES_MAX - self.writes.available_permits(),
        }
    }
}
