//! How many requests are under way at a time; more are told to come back.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Requests that read, carried out at a time.
const READS_MAX: usize = 400;
/// Requests that write, carried out at a time.
const WRITES_MAX: usize = 200;
/// Requests whose bodies are on their way at a time.
const RECEIVING_MAX: usize = 1000;

/// The places that requests take while they are under way.
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
    /// A place among the requests that are carried out, if there is one.
    pub(crate) fn try_carry_out(&self, access: Access) -> Option<OwnedSemaphorePermit> {
        let places = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        places.clone().try_acquire_owned().ok()
    }

    /// A place among the requests whose bodies are on their way, if there is one.
    pub(crate) fn try_receive(&self) -> Option<SemaphorePermit<'_>> {
        self.receiving.try_acquire().ok()
    }

    /// How many requests are carried out now.
    pub(crate) fn under_way(&self, access: Access) -> usize {
        match access {
            Access::Read => READS_MAX - self.reads.available_permits(),
            Access::Write => WRITES_MAX - self.writes.available_permits(),
        }
    }
}
