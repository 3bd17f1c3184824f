//! The work that a request announces before it computes, and the interruption that ends it.

use futures::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use steersman_machinery::budget::{Interrupt, Limits};

/// A request that reads at least this many bytes of objects is heavy. Parsing, checking and writing them takes about a
/// millisecond, a hundred times as long as passing the request to another thread.
pub(crate) const HEAVY_BYTES: usize = 64 * 1024;

/// The cost of comparing an object with a requirement of a selector, in bytes of objects that are read in the same time.
pub(crate) const REQUIREMENT_BYTES: usize = 16;

/// The bytes of JSON that a byte of protobuf may expand to: an empty message takes two bytes, and its JSON a few dozen.
const PROTOBUF_FACTOR: usize = 16;

/// The bytes that a value costs at least, however few characters it has: an empty object takes three, and then a place in the tree, a walk of
/// the schema, and a few lines of validation.
const VALUE_BYTES: usize = 32;

/// The assumed size of a request that turned out to need more than [`LIGHT`].
const UNFORESEEN_BYTES: usize = 1 << 20;

/// The limits within which a request stays on the worker that polls it: a millisecond or two.
pub(crate) const LIGHT: Limits = Limits { bytes_max: 2 << 20, items_max: 20_000, steps_max: 100_000 };

/// The size of JSON or YAML for the bounds of heavy requests: at least [`VALUE_BYTES`] for each value.
pub(crate) fn text_bytes(text: &[u8]) -> usize {
    // Values are not counted in a text whose length alone makes it heavy.
    if HEAVY_BYTES <= text.len() {
        return text.len();
    }
    let n_values = memchr::memchr2_iter(b',', b'\n', text).count();
    text.len().max(n_values.saturating_mul(VALUE_BYTES))
}

/// About how many bytes of JSON a body stands for.
pub(crate) fn body_bytes(content_type: &str, body: &[u8]) -> usize {
    if content_type.contains("protobuf") {
        return body.len().saturating_mul(PROTOBUF_FACTOR);
    }
    // A few aliases of aliases expand to as much as the budget allows.
    let has_aliases = content_type.contains("yaml") && memchr::memchr(b'&', body).is_some() && body.contains(&b'*');
    if has_aliases { body.len().max(HEAVY_BYTES) } else { text_bytes(body) }
}

/// The work of one request; clones share it. The default belongs to no request: the server's own work stays on its
/// thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    /// The bytes that the request reads; zero while it is not heavy.
    bytes: AtomicUsize,
    /// Whether it is being carried out on the threads for heavy requests.
    has_begun: AtomicBool,
    /// Whether it has stored something, so that it must go on to its end: it counts an eviction before it deletes the Pod, and takes an
    /// amount from a quota back if it fails.
    has_written: AtomicBool,
    interrupt: Interrupt,
}

/// Interrupts a request when it is dropped, because nobody waits for the answer any more.
#[must_use]
pub(crate) struct Interrupts(Option<Load>);

impl Load {
    /// The load of a request that begins with this many bytes to read, and ends when `interrupt` is set.
    pub(crate) fn of_request(bytes: usize, interrupt: Interrupt) -> Load {
        let shared = Shared { interrupt, ..Shared::default() };
        if HEAVY_BYTES <= bytes {
            shared.bytes.store(bytes, Ordering::Relaxed);
        }
        Load(Some(Arc::new(shared)))
    }

    /// To be awaited before so many bytes of objects are read. If that is much, the request goes on behind this on another thread, when it is
    /// its turn.
    pub(crate) async fn expect(&self, bytes: usize) {
        let Some(shared) = self.0.as_ref().filter(|_| HEAVY_BYTES <= bytes) else { return };
        shared.bytes.fetch_max(bytes, Ordering::Relaxed);
        poll_fn(|cx| {
            if shared.has_begun.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            // The poller of the request finds that it is heavy, and polls it on another thread next.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// To be awaited before something is computed that takes as long as reading so many bytes of objects, but not their memory.
    pub(crate) async fn expect_work(&self, bytes: usize) {
        self.expect(bytes.min(HEAVY_BYTES)).await;
    }

    /// To be awaited by a request that turned out to be heavy.
    pub(crate) async fn expect_more(&self) {
        self.expect(UNFORESEEN_BYTES).await;
    }

    /// Whether it is polled where small requests are, and may leave that place.
    pub(crate) fn is_light(&self) -> bool {
        self.0.is_some() && !self.is_heavy()
    }

    /// Records that the request is about to store something. From then on no full queue refuses it, and no deadline drops it before its turn.
    pub(crate) fn write(&self) {
        if let Some(shared) = &self.0 {
            shared.has_written.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn has_written(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.has_written.load(Ordering::Relaxed))
    }

    /// Whether nobody waits for the result any more, or its time is over.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.interrupt.is_set())
    }

    /// Interrupts the request. False if it was already interrupted.
    pub(crate) fn interrupt(&self) -> bool {
        let Some(shared) = self.0.as_ref().filter(|shared| !shared.interrupt.is_set()) else { return false };
        shared.interrupt.set();
        true
    }

    /// The interrupt of the request, for its budget.
    pub(crate) fn interruption(&self) -> Interrupt {
        self.0.as_ref().map(|shared| shared.interrupt.clone()).unwrap_or_default()
    }

    /// Interrupts the request when the returned guard is dropped.
    pub(crate) fn interrupting(self) -> Interrupts {
        Interrupts(Some(self))
    }

    pub(super) fn is_heavy(&self) -> bool {
        self.bytes() > 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |shared| shared.bytes.load(Ordering::Relaxed))
    }

    /// Records that the request is now polled on the threads for heavy requests.
    pub(super) fn begin(&self) {
        if let Some(shared) = &self.0 {
            shared.has_begun.store(true, Ordering::Release);
        }
    }
}

impl Interrupts {
    /// Ends the guard without an interruption: the request has ended.
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        if let Some(load) = &self.0 {
            load.interrupt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_as_much_as_it_may_stand_for() {
        let yaml = "application/apply-patch+yaml";
        assert_eq!(body_bytes("application/json", b"{\"a\": \"&*\"}"), 11);
        assert_eq!(body_bytes(yaml, b"a: b"), 4);
        let dense = format!("[{}0]", "{},".repeat(10_000));
        assert_eq!(body_bytes("application/json", dense.as_bytes()), 320_000, "by its values, and not by its length");
        assert_eq!(body_bytes(yaml, b"{a: &a [1], b: *a}"), HEAVY_BYTES);
        assert_eq!(body_bytes("application/vnd.kubernetes.protobuf", &[0; 5_000]), 80_000);
    }
}
