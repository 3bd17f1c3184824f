//! The same work on many objects, on all processors.

use std::num::NonZero;
use std::thread;

const THREADS_MAX: usize = 8;
/// With fewer items another thread is not worth it.
const ITEMS_PER_THREAD_MIN: usize = 256;

/// The results for items, in their order. Blocks.
pub(super) fn map<T: Send, U: Send>(items: Vec<T>, of: impl Fn(T) -> U + Sync) -> Vec<U> {
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let n_threads = n_threads.min(items.len() / ITEMS_PER_THREAD_MIN).max(1);
    let n_each = items.len().div_ceil(n_threads).max(1);
    let mut items = items.into_iter();
    let mut parts: Vec<Vec<T>> = (1..n_threads).map(|_| items.by_ref().take(n_each).collect()).collect();
    parts.push(items.collect());
    thread::scope(|scope| {
        let own = parts.pop().unwrap_or_default();
        let others: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(|| part.into_iter().map(&of).collect::<Vec<U>>())).collect();
        let own: Vec<U> = own.into_iter().map(&of).collect();
        let mut results = Vec::new();
        for other in others {
            results.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results.extend(own);
        results
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_have_the_order_of_the_items() {
        for n in [0, 1, 300, 1_000, 5_001] {
            let want: Vec<usize> = (0..n).map(|n| n * 2).collect();
            assert_eq!(super::map((0..n).collect(), |n| n * 2), want);
        }
    }
}
