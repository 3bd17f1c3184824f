//! The threads that heavy requests are computed on: they yield to all others, and give their memory back.

use crate::process::memory;
use std::io;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;
use steersman_server::Compute;
use tokio::runtime::{Builder, Runtime};

/// The niceness of the threads, from 0 to 19: on a busy machine they get a tenth of the time of a thread that answers
/// small requests.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;
/// The time for which an idle thread is kept.
const IDLE: Duration = Duration::from_secs(5);

/// A runtime of which only the threads for blocking work are used. Dropping it does not wait for them.
#[derive(Debug)]
pub(crate) struct ComputeThreads(Option<Runtime>);

impl ComputeThreads {
    /// Starts no thread yet: each starts when it is needed.
    pub(crate) fn new() -> io::Result<ComputeThreads> {
        // One more than compute at a time, for work that only frees memory.
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(threads).thread_keep_alive(IDLE).thread_name("steersman-compute");
        Ok(ComputeThreads(Some(builder.on_thread_start(yield_to_others).build()?)))
    }

    /// The server's options for heavy requests.
    pub(crate) fn compute(&self) -> Compute {
        let compute = Compute::default().freed(memory::give_back);
        match self.0.as_ref().map(Runtime::handle).cloned() {
            Some(threads) => compute.on(threads),
            None => compute,
        }
    }
}

impl Drop for ComputeThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of the thread. Only on Linux does this call affect a thread; elsewhere it affects the process.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "the priority of a thread stays as it is");
    }
}
