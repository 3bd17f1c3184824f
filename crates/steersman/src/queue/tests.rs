//! The rules by example and against a model; the shell under paused time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use super::*;

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new("test", RateLimiter::exponential(Duration::from_millis(5), Duration::from_secs(1_000)))
}

/// Takes everything that is ready, in order.
async fn drain(queue: &WorkQueue<&'static str>) -> Vec<&'static str> {
    let mut keys = Vec::new();
    while !queue.is_empty() {
        keys.push(*queue.get().await.unwrap().key());
    }
    keys
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_while_waiting_runs_once() {
    let queue = queue();
    for key in ["a", "b", "a"] {
        queue.add(key);
    }
    assert_eq!(drain(&queue).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_processed_runs_once_more_and_not_at_the_same_time() {
    let queue = queue();
    queue.add("a");
    let item = queue.get().await.unwrap();
    queue.add("a");
    queue.add("a");
    assert_eq!(queue.len(), 0);
    drop(item);
    assert_eq!(drain(&queue).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_not_retained_are_gone_wherever_they_wait() {
    let queue = queue();
    for key in ["a", "x", "b", "y"] {
        queue.add(key);
    }
    let (a, x) = (queue.get().await.unwrap(), queue.get().await.unwrap());
    // To run once more; to run later; failed.
    for key in ["a", "x"] {
        queue.add(key);
    }
    for key in ["c", "z"] {
        queue.add_after(key, Duration::from_secs(1));
        queue.add_rate_limited(key);
    }
    queue.retain(|key| *key < "m");
    assert_eq!((queue.n_requeues(&"c"), queue.n_requeues(&"z")), (1, 0));
    drop((a, x));
    assert_eq!(drain(&queue).await, ["b", "a"]);
    assert_eq!((queue.stats().depth, queue.stats().delayed), (0, 1));
    queue.add("z");
    assert_eq!(drain(&queue).await, ["z"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_comes_when_due_and_a_second_delay_only_moves_it_forward() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(10));
    queue.add_after("b", Duration::from_secs(3));
    queue.add_after("a", Duration::from_secs(5));
    queue.add_after("a", Duration::from_secs(7));
    for (key, seconds) in [("b", 3), ("a", 5)] {
        assert_eq!(*queue.get().await.unwrap().key(), key);
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
    assert_eq!(queue.stats().delayed, 0);
}

#[tokio::test(start_paused = true)]
async fn an_add_consumes_the_delayed_add_of_its_key() {
    let queue = queue();
    queue.add_after("a", Duration::from_secs(10));
    queue.add("a");
    assert_eq!(drain(&queue).await, ["a"]);
    assert_eq!(queue.stats().delayed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_learns_of_a_sooner_key_even_if_the_one_told_first_is_cancelled() {
    let queue = queue();
    let spawn = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.map(|item| *item.key()) })
    };
    let (first, second) = (spawn(), spawn());
    tokio::task::yield_now().await;
    queue.add_after("a", Duration::from_secs(1));
    tokio::task::yield_now().await;
    first.abort();
    assert_eq!(second.await.unwrap(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_forget_starts_over() {
    let queue = queue();
    let mut waits = Vec::new();
    queue.add("a");
    for _ in 0..4 {
        let item = queue.get().await.unwrap();
        waits.push(item.retry(fmt::Error).as_millis());
    }
    assert_eq!(waits, [5, 10, 20, 40]);
    assert_eq!(queue.n_requeues(&"a"), 4);
    queue.get().await.unwrap().forget();
    assert_eq!(queue.n_requeues(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_once_per_backoff_window_however_many_events_come() {
    let queue = WorkQueue::new("test", RateLimiter::exponential(Duration::from_secs(10), Duration::from_secs(1_000)));
    queue.add("a");
    let first = queue.get().await.unwrap().retry(fmt::Error);
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(1)).await;
        queue.add("a");
        queue.get().await.unwrap().retry(fmt::Error);
    }
    assert_eq!((first.as_secs(), queue.n_requeues(&"a")), (10, 1));
    let item = queue.get().await.unwrap();
    assert_eq!(item.retry(fmt::Error).as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn higher_priorities_come_first_and_none_starves() {
    let queue = WorkQueue::new("test", RateLimiter::default());
    queue.add_with(1_000, Priority::Low);
    queue.add_with(2_000, Priority::Low);
    queue.add_with(2_000, Priority::High);
    for key in 0..40 {
        queue.add(key);
    }
    let mut keys = Vec::new();
    while !queue.is_empty() {
        keys.push(*queue.get().await.unwrap().key());
    }
    assert_eq!(keys[0], 2_000);
    let low = keys.iter().position(|key| *key == 1_000).unwrap();
    assert!((10..20).contains(&low), "low came at {low}");
    let normal: Vec<i32> = keys.iter().copied().filter(|key| *key < 1_000).collect();
    assert_eq!(normal, (0..40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_out_what_is_ready_and_then_ends_the_workers() {
    let queue = queue();
    queue.add("a");
    queue.add_after("late", Duration::from_secs(1));
    queue.shutdown();
    queue.add("b");
    assert_eq!(*queue.get().await.unwrap().key(), "a");
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_immediate_shutdown_wakes_waiters_and_drops_what_is_ready() {
    let queue = queue();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.is_none() }
    });
    tokio::task::yield_now().await;
    queue.shutdown_now();
    assert!(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_key_in_processing_and_for_its_second_run() {
    let queue = queue();
    queue.add("a");
    let item = queue.get().await.unwrap();
    queue.add("a");
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shutdown_with_drain().await }
    });
    tokio::task::yield_now().await;
    drop(item);
    tokio::task::yield_now().await;
    assert!(!draining.is_finished());
    drop(queue.get().await.unwrap());
    draining.await.unwrap();
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn every_add_is_followed_by_a_run_with_many_producers_and_workers() {
    let queue = WorkQueue::new("test", RateLimiter::default());
    let running = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let latest = Arc::new(Mutex::new(BTreeMap::new()));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (queue, running, seen, latest) =
                (queue.clone(), Arc::clone(&running), Arc::clone(&seen), Arc::clone(&latest));
            tokio::spawn(async move {
                while let Some(item) = queue.get().await {
                    assert!(running.lock().insert(*item.key()), "{} is in two workers", item.key());
                    let value: Option<u32> = latest.lock().get(item.key()).copied();
                    tokio::task::yield_now().await;
                    seen.lock().insert(*item.key(), value);
                    running.lock().remove(item.key());
                }
            })
        })
        .collect();
    let producers = (0..8_u32).map(|producer| {
        let (queue, latest) = (queue.clone(), Arc::clone(&latest));
        tokio::spawn(async move {
            for round in 0..100 {
                let key = (producer + round) % 10;
                *latest.lock().entry(key).or_insert(0) += 1;
                queue.add(key);
                if round % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        })
    });
    for producer in producers.collect::<Vec<_>>() {
        producer.await.unwrap();
    }
    queue.shutdown_with_drain().await;
    for worker in workers {
        worker.await.unwrap();
    }
    let latest = latest.lock().iter().map(|(key, value)| (*key, Some(*value))).collect();
    assert_eq!(*seen.lock(), latest, "a worker's last look at each key is at its last state");
}

// === The rules against a model ===

#[derive(Clone, Debug)]
enum Step {
    Add(u8, Priority),
    AddAfter(u8, u64),
    Advance(u64),
    /// Ends the n-th of the keys in processing: done, failed, or forgotten.
    Done(u8, u8),
    Fail(u8),
    Forget(u8),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop_oneof![
        proptest::strategy::Just(Priority::Low),
        proptest::strategy::Just(Priority::Normal),
        proptest::strategy::Just(Priority::High)
    ];
    let step = prop_oneof![
        (0..5_u8, priority).prop_map(|(key, priority)| Step::Add(key, priority)),
        (0..5_u8, 0..50_u64).prop_map(|(key, ms)| Step::AddAfter(key, ms)),
        (0..30_u64).prop_map(Step::Advance),
        (any::<u8>(), 0..3_u8).prop_map(|(which, how)| Step::Done(which, how)),
        (0..5_u8).prop_map(Step::Fail),
        (0..5_u8).prop_map(Step::Forget),
        proptest::strategy::Just(Step::Take),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Runs `steps` and then the queue to its end; checks that no key is in two hands, that nothing asked for is lost, and
/// that nothing is kept of keys that are done.
fn check(steps: Vec<Step>) {
    let mut core = Core::new(RateLimiter::exponential(Duration::from_millis(5), Duration::from_millis(40)));
    let mut now = Instant::now();
    let mut held: Vec<(u8, u32)> = Vec::new();
    // Keys that must be handed out once more.
    let mut owed: BTreeSet<u8> = BTreeSet::new();
    let take = |core: &mut Core<u8>, held: &mut Vec<(u8, u32)>, owed: &mut BTreeSet<u8>, now| match core.take(Some(now))
    {
        Taken::Key(key, place) => {
            assert!(held.iter().all(|(other, _)| *other != key), "{key} was handed out twice");
            held.push((key, place));
            owed.remove(&key);
            None
        }
        Taken::Empty { next_due } => {
            assert!(next_due.is_none_or(|due| due > now), "a due key was not handed out");
            next_due
        }
        Taken::Closed => unreachable!("nobody closes this queue"),
    };
    for step in steps {
        match step {
            Step::Add(key, priority) => {
                core.add(key, priority);
                owed.insert(key);
            }
            Step::AddAfter(key, ms) => {
                core.add_at(key, now + Duration::from_millis(ms));
                owed.insert(key);
            }
            Step::Advance(ms) => now += Duration::from_millis(ms),
            Step::Done(which, how) if !held.is_empty() => {
                let (key, place) = held.swap_remove(which as usize % held.len());
                match how {
                    0 => core.forget_at(place),
                    1 => {
                        core.fail_at(place, now, Duration::ZERO);
                        owed.insert(key);
                    }
                    _ => {}
                }
                core.done(place);
            }
            Step::Done(..) => {}
            Step::Fail(key) => {
                core.fail_key(key, now);
                owed.insert(key);
            }
            Step::Forget(key) => core.forget_key(&key),
            Step::Take => drop(take(&mut core, &mut held, &mut owed, now)),
        }
    }
    loop {
        for (_, place) in held.drain(..) {
            core.forget_at(place);
            core.done(place);
        }
        let next_due = take(&mut core, &mut held, &mut owed, now);
        if held.is_empty() {
            match next_due {
                Some(due) => now = due,
                None => break,
            }
        }
    }
    assert_eq!(owed, BTreeSet::new(), "keys were lost");
    for key in 0..5 {
        core.forget_key(&key);
    }
    assert_eq!(core.stats().depth + core.stats().delayed + core.stats().processing, 0);
    assert_eq!(core.n_entries(), 0, "entries of finished keys are kept");
}

proptest! {
    #[test]
    fn nothing_is_lost_and_no_key_is_in_two_hands(steps in steps()) {
        check(steps);
    }
}
