//! A map over many items on several threads: opening a large store is decoding.

use std::cmp::Ordering;
use std::num::NonZero;
use std::thread;

/// Fewer items than this per thread are not worth one.
const ITEMS_PER_THREAD_MIN: usize = 1_024;
const THREADS_MAX: usize = 8;

/// Maps in order; the first error, in order, ends it. Blocks.
pub(crate) fn try_map<T, U, E, F>(items: Vec<T>, map: F) -> Result<Vec<U>, E>
where
    T: Send,
    U: Send,
    E: Send,
    F: Fn(T) -> Result<U, E> + Sync,
{
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let per_thread = items.len().div_ceil(n_threads).max(ITEMS_PER_THREAD_MIN);
    let map = &map;
    let mut rest = items.into_iter();
    let mut parts = Vec::new();
    while rest.len() > 0 {
        parts.push(rest.by_ref().take(per_thread).collect::<Vec<T>>());
    }
    thread::scope(|scope| {
        let last = parts.pop();
        let spawn = |part: Vec<T>| scope.spawn(move || part.into_iter().map(map).collect::<Result<Vec<U>, E>>());
        let spawned: Vec<_> = parts.into_iter().map(spawn).collect();
        let last = last.map(|part| part.into_iter().map(map).collect::<Result<Vec<U>, E>>());
        let mut mapped = Vec::new();
        for thread in spawned {
            let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            mapped.extend(part?);
        }
        mapped.extend(last.transpose()?.unwrap_or_default());
        Ok(mapped)
    })
}

/// Maps in order. Blocks.
pub(crate) fn map<T: Send, U: Send>(items: Vec<T>, map: impl Fn(T) -> U + Sync) -> Vec<U> {
    match try_map(items, |item| Ok::<U, std::convert::Infallible>(map(item))) {
        Ok(mapped) => mapped,
        Err(never) => match never {},
    }
}

/// Sorts, in two halves at once if that is worth it. Blocks.
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
    // Of two runs that are in order, a stable sort only merges.
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
    fn order_is_kept_and_the_first_error_wins() {
        let items = || (0..10 * ITEMS_PER_THREAD_MIN).collect::<Vec<_>>();
        assert_eq!(try_map(items(), |n| Ok::<_, ()>(n + 1)), Ok((1..=10 * ITEMS_PER_THREAD_MIN).collect()));
        assert_eq!(try_map(items(), |n| if n % 5_000 == 4_999 { Err(n) } else { Ok(n) }), Err(4_999));
        assert_eq!(try_map(Vec::<u8>::new(), Ok::<_, ()>), Ok(Vec::new()));
    }
}
