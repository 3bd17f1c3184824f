//! Runs many similar tasks without failing many times.

use futures::stream::{FuturesUnordered, StreamExt};

/// Runs `n` similar tasks in batches of 1, 2, 4 and so on, each batch at once, and stops after a batch with a failure.
///
/// So tasks that must fail (a quota, a webhook that is down) fail once and not `n` times. Returns how many succeeded,
/// and the first error.
///
/// ```
/// # use steersman::write::slow_start;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let create = |number| async move { if number < 2 { Ok(()) } else { Err("quota") } };
/// let (n_created, error) = slow_start(100, create).await;
/// assert_eq!((n_created, error), (2, Some("quota")));
/// # }
/// ```
pub async fn slow_start<E, F>(n: usize, task: impl Fn(usize) -> F) -> (usize, Option<E>)
where
    F: Future<Output = Result<(), E>>,
{
    let (mut n_done, mut n_started, mut batch) = (0, 0, 1);
    while n_started < n {
        let end = n.min(n_started + batch);
        let mut running: FuturesUnordered<_> = (n_started..end).map(&task).collect();
        let mut first_error = None;
        while let Some(result) = running.next().await {
            match result {
                Ok(()) => n_done += 1,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if first_error.is_some() {
            return (n_done, first_error);
        }
        n_started = end;
        batch *= 2;
    }
    (n_done, None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn batches_double_run_at_once_and_stop_after_one_with_a_failure() {
        let batches = Mutex::new(Vec::new());
        let started = Instant::now();
        let task = |number: usize| {
            batches.lock().push((number, started.elapsed().as_secs()));
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if number == 4 { Err("scripted") } else { Ok(()) }
            }
        };
        assert_eq!(slow_start(100, &task).await, (6, Some("scripted")));
        assert_eq!(*batches.lock(), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)]);
        assert_eq!(slow_start(4, task).await, (4, None));
        assert_eq!(slow_start(0, task).await, (0, None));
    }
}
