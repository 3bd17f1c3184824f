//! Memory that the allocator keeps for threads, and gives back to the system when they are idle.
//!
//! Each thread has pages of its own. What another thread frees in them is only noticed when the owner allocates again, so after a storm of
//! requests hundreds of megabytes would stay with threads that have nothing to do.

use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two collections of a thread. One takes milliseconds if the thread has owned much.
const INTERVAL: Duration = Duration::from_secs(10);

#[expect(unsafe_code, reason = "the crate of the allocator has no function for it")]
// SAFETY: the allocator of this program defines the function with this signature, and allows calls on any thread at any time.
unsafe extern "C" {
    safe fn mi_collect(force: bool);
}

/// Returns the memory that was freed in the pages of this thread.
pub(crate) fn give_back() {
    mi_collect(true);
}

/// The same, if the last time is a while ago. A worker calls it before it waits for work.
pub(crate) fn give_back_now_and_then() {
    thread_local! {
        static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    LAST.with(|last| {
        if last.get().is_none_or(|last| INTERVAL <= now.duration_since(last)) {
            last.set(Some(now));
            give_back();
        }
    });
}
