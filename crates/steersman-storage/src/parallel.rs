//! Parallel work on many items: opening a large store mostly decodes and sorts.

use parking_lot::Mutex;
use std::cmp::Ordering;
use std::num::NonZero;
use std::thread;

/// With fewer items than this per thread, sorting on another thread is not worth it.
const ITEMS_PER_THREAD_MIN: usize = 1_024;
const THREADS_MAX: usize = 8;

/// Visits items on several threads, each taking the next item; the first error ends it. Blocks.
pub(crate) fn try_each<T, E, F>(items: Vec<T>, visit: F) -> Result<(), E>
where
    T: Send,
    E: Send,
    F: Fn(T) -> Result<(), E> + Sync,
{
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(items.len());
    let items = Mutex::new(items.into_iter());
    let work = || {
        loop {
            // A separate statement, so that the lock is not held during the visit.
            let next = items.lock().next();
            let Some(item) = next else { return Ok(()) };
            if let Err(error) = visit(item) {
                items.lock().by_ref().for_each(drop);
                return Err(error);
            }
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..n_threads).map(|_| scope.spawn(work)).collect();
        let mut visited = work();
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            visited = visited.and(other);
        }
        visited
    })
}

/// Visits items on several threads, each taking the next item. Blocks.
pub(crate) fn each<T: Send>(items: Vec<T>, visit: impl Fn(T) + Sync) {
    let visited: Result<(), std::convert::Infallible> = try_each(items, |item| {
        visit(item);
        Ok(())
    });
    match visited {
        Ok(()) => {}
    }
}

/// Sorts, in two concurrent halves if that is worth it. Blocks.
pub(crate) fn sort<T: Send>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering + Copy + Send) {
    if items.len() < 2 * ITEMS_PER_THREAD_MIN {
        items.sort_by(compare);
        return;
    }
    let (left, right) = items.split_at_mut(items.len() / 2);
    thread::scope(|scope| {
        scope.spawn(move || left.sort_by(compare));
        right.sort_by(compare);
    });
    // A stable sort of two sorted runs only merges them.
    items.sort_by(compare);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sorted_in_halves_is_in_order() {
        for n in [0, 1, 100, 5_001] {
            let mut items: Vec<u64> = (0..n).map(|n| n * 7_919 % 5_003).collect();
            let mut want = items.clone();
            want.sort_unstable();
            sort(&mut items, u64::cmp);
            assert_eq!(items, want);
        }
    }

    #[test]
    fn each_is_visited_once_and_an_error_ends_it() {
        let seen = Mutex::new(Vec::new());
        let visit = |n: u64| {
            seen.lock().push(n);
            if n == 700 { Err(n) } else { Ok(()) }
        };
        assert_eq!(try_each((0..700).collect(), visit), Ok(()));
        seen.lock().sort_unstable();
        assert_eq!(*seen.lock(), (0..700).collect::<Vec<_>>());
        assert_eq!(try_each((0..100_000).collect(), visit), Err(700));
        assert!(seen.lock().len() < 100_000);
        assert_eq!(try_each(Vec::new(), visit), Ok(()));
    }
}
