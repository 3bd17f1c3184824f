//! The rules by example and against a model; the shell under paused time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use super::*;

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new("test", RateLimiter::exponential(Duration::from_millis(5), Duration::from_secs(1_000)))
}

/// Takes all keys that are ready, in order.
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
    // One key is to run once more, one to run later, one has failed.
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
async fn all_keys_can_be_dropped_in_the_order_in_which_they_have_come_to_be_free() {
    let queue = queue();
    let keys = ["a", "b", "c", "d"];
    keys.iter().for_each(|key| queue.add(*key));
    // The last two places are free when the keys before them are dropped.
    let items = [queue.get().await.unwrap(), queue.get().await.unwrap()];
    queue.retain(|key| *key == "c");
    assert_eq!(drain(&queue).await, ["c"]);
    queue.retain(|_| false);
    drop(items);
    assert_eq!((queue.len(), queue.stats().delayed), (0, 0));
    queue.add("e");
    queue.retain(|_| false);
    assert_eq!(queue.len(), 0);
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
async fn a_low_key_has_its_turn_however_many_high_ones_come_back_at_once() {
    let queue = WorkQueue::new("test", RateLimiter::default());
    queue.add_with("normal", Priority::Normal);
    queue.add_with("low", Priority::Low);
    queue.add_with("high", Priority::High);
    let mut keys = Vec::new();
    for _ in 0..100 {
        let item = queue.get().await.unwrap();
        keys.push(*item.key());
        queue.add_with(item.key(), item.priority());
    }
    for key in ["normal", "low"] {
        let turns: Vec<usize> = (0..keys.len()).filter(|turn| keys[*turn] == key).collect();
        assert!(turns.windows(2).all(|pair| pair[1] - pair[0] <= 18), "{key} had the turns {turns:?}");
        assert!((5..=6).contains(&turns.len()), "{key} had the turns {turns:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_requeued_key_runs_with_the_priority_it_asked_for_also_when_something_makes_it_run_sooner() {
    let queue = WorkQueue::new("test", RateLimiter::default());
    for (asked, sooner, expected) in [
        (Some(Priority::High), None, Priority::High),
        (Some(Priority::Low), None, Priority::Low),
        (None, None, Priority::Normal),
        (Some(Priority::High), Some(Priority::Low), Priority::High),
        (Some(Priority::Low), Some(Priority::Normal), Priority::Normal),
        (None, Some(Priority::Low), Priority::Low),
    ] {
        queue.add("a");
        let requeue = Requeue::after(Duration::from_secs(60));
        queue.get().await.unwrap().requeue(asked.map_or(requeue, |priority| requeue.with_priority(priority)));
        if let Some(priority) = sooner {
            queue.add_with("a", priority);
        }
        assert_eq!(queue.get().await.unwrap().priority(), expected, "{asked:?} {sooner:?}");
    }
    queue.add("a");
    queue.get().await.unwrap().requeue(Requeue::rate_limited().with_priority(Priority::High));
    assert_eq!(queue.n_requeues(&"a"), 1);
    assert_eq!(queue.get().await.unwrap().priority(), Priority::High);
    queue.add_after_with("b", Duration::ZERO, Priority::High);
    assert_eq!(queue.get().await.unwrap().priority(), Priority::High);
}

#[tokio::test(start_paused = true)]
async fn keys_requeued_together_come_back_spread_and_a_seed_repeats_it() {
    let run = async |seed: u64| {
        let queue = WorkQueue::new("test", RateLimiter::default());
        queue.seed_jitter(seed);
        (0..1_000).for_each(|key| queue.add(key));
        for _ in 0..1_000 {
            queue.get().await.unwrap().requeue(Requeue::after(Duration::from_secs(300)).jittered(0.1));
        }
        let started = Instant::now();
        let mut seconds = Vec::new();
        for _ in 0..1_000 {
            drop(queue.get().await);
            seconds.push(started.elapsed().as_secs());
        }
        seconds
    };
    let seconds = run(7).await;
    assert!(seconds.iter().all(|second| (300..=330).contains(second)));
    for second in 300..330 {
        let n = seconds.iter().filter(|other| **other == second).count();
        assert!((10..=60).contains(&n), "{n} of 1000 in second {second}");
    }
    assert_eq!(run(7).await, seconds);
    assert_ne!(run(8).await, seconds);
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
    AddAfter(u8, u64, Option<Priority>),
    Advance(u64),
    /// Ends the processing of the n-th key: done, failed, or forgotten.
    Done(u8, u8),
    Fail(u8),
    Forget(u8),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = || proptest::sample::select(vec![Priority::Low, Priority::Normal, Priority::High]);
    let step = prop_oneof![
        (0..5_u8, priority()).prop_map(|(key, priority)| Step::Add(key, priority)),
        (0..5_u8, 0..50_u64, proptest::option::of(priority()))
            .prop_map(|(key, ms, priority)| Step::AddAfter(key, ms, priority)),
        (0..30_u64).prop_map(Step::Advance),
        (any::<u8>(), 0..3_u8).prop_map(|(which, how)| Step::Done(which, how)),
        (0..5_u8).prop_map(Step::Fail),
        (0..5_u8).prop_map(Step::Forget),
        proptest::strategy::Just(Step::Take),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Runs `steps` and then the queue to its end; checks that no key is given to two workers, that no add is lost, and
/// that no state is kept for keys that are done.
fn check(steps: Vec<Step>) {
    let mut core = Core::new(RateLimiter::exponential(Duration::from_millis(5), Duration::from_millis(40)));
    let mut now = Instant::now();
    let mut held: Vec<(u8, u32)> = Vec::new();
    // Keys that must be given out once more.
    let mut owed: BTreeSet<u8> = BTreeSet::new();
    let take = |core: &mut Core<u8>, held: &mut Vec<(u8, u32)>, owed: &mut BTreeSet<u8>, now| match core.take(Some(now))
    {
        Taken::Key(key, place, _) => {
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
            Step::AddAfter(key, ms, priority) => {
                core.add_at(key, now + Duration::from_millis(ms), priority);
                owed.insert(key);
            }
            Step::Advance(ms) => now += Duration::from_millis(ms),
            Step::Done(which, how) if !held.is_empty() => {
                let (key, place) = held.swap_remove(which as usize % held.len());
                match how {
                    0 => core.forget_at(place),
                    1 => {
                        core.fail_at(place, now, Duration::ZERO, None);
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

// === Against a queue that is written for reading ===

/// The rules as lists, without redundant state.
struct Plain {
    keys: BTreeMap<u8, PlainKey>,
    /// By priority, lowest first; within each, in the order of the adds.
    ready: [Vec<u8>; 3],
    passes: [u32; 3],
    is_closed: bool,
}

#[derive(Clone, Debug, Default)]
struct PlainKey {
    is_ready: bool,
    is_held: bool,
    /// The key is being processed, and must run again.
    is_dirty: bool,
    priority: Priority,
    due: Option<Instant>,
    /// The priority that the delayed add set.
    asked: Option<Priority>,
    n_failures: u32,
    window_end: Option<Instant>,
}

impl Plain {
    fn add(&mut self, key: u8, priority: Priority) {
        let known = self.keys.entry(key).or_default();
        known.due = None;
        let priority = known.asked.take().map_or(priority, |asked| asked.max(priority));
        match (known.is_ready, known.is_held && known.is_dirty) {
            (false, true) => known.priority = known.priority.max(priority),
            (true, _) if priority <= known.priority => {}
            (true, _) => {
                self.ready[known.priority as usize].retain(|other| *other != key);
                known.priority = priority;
                self.ready[priority as usize].push(key);
            }
            (false, false) => {
                known.priority = priority;
                known.is_dirty = known.is_held;
                known.is_ready = !known.is_held;
                if known.is_ready {
                    self.ready[priority as usize].push(key);
                }
            }
        }
    }

    fn add_at(&mut self, key: u8, due: Instant, priority: Option<Priority>) {
        let known = self.keys.entry(key).or_default();
        if !known.is_ready && !known.is_dirty {
            known.asked = match (known.due, priority) {
                (None, priority) => priority,
                (Some(_), None) => known.asked,
                (Some(_), Some(priority)) => Some(known.asked.unwrap_or(known.priority).max(priority)),
            };
            known.due = Some(known.due.map_or(due, |earlier| earlier.min(due)));
        }
    }

    fn fail(&mut self, key: u8, now: Instant) {
        let known = self.keys.entry(key).or_default();
        let due = match known.window_end {
            Some(end) if now < end => end,
            _ => {
                let wait = Duration::from_millis(5 << known.n_failures.min(10)).min(Duration::from_millis(40));
                known.n_failures += 1;
                now + wait
            }
        };
        known.window_end = Some(due);
        self.add_at(key, due, None);
    }

    fn forget(&mut self, key: u8) {
        if let Some(known) = self.keys.get_mut(&key) {
            (known.n_failures, known.window_end) = (0, None);
        }
    }

    fn take(&mut self, now: Instant) -> Option<u8> {
        let mut due: Vec<(Instant, u8)> = self
            .keys
            .iter()
            .filter_map(|(key, known)| Some((known.due?, *key)))
            .filter(|(due, _)| *due <= now)
            .collect();
        due.sort();
        for (_, key) in due {
            self.add(key, self.keys[&key].asked.unwrap_or(self.keys[&key].priority));
        }
        let waiting: Vec<usize> = (0..3).rev().filter(|class| !self.ready[*class].is_empty()).collect();
        let (highest, others) = waiting.split_first()?;
        others.iter().for_each(|class| self.passes[*class] += 1);
        let turn = others.iter().find(|class| self.passes[**class] > 16).unwrap_or(highest);
        self.passes[*turn] = 0;
        let key = self.ready[*turn].remove(0);
        let known = self.keys.entry(key).or_default();
        (known.is_ready, known.is_held) = (false, true);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        let known = self.keys.entry(key).or_default();
        known.is_held = false;
        if std::mem::take(&mut known.is_dirty) {
            let priority = known.priority;
            let due = known.due;
            self.add(key, priority);
            // An add while the key was processed has consumed the delayed one.
            assert_eq!(due, None);
        }
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.keys.values_mut().for_each(|known| (known.due, known.asked) = (None, None));
    }

    fn drop_ready(&mut self) {
        for key in self.ready.iter_mut().flat_map(std::mem::take) {
            self.keys.entry(key).or_default().is_ready = false;
        }
        self.keys.values_mut().for_each(|known| known.is_dirty = false);
    }

    /// Drops the priority of keys without other state.
    fn tidy(&mut self) {
        self.keys.retain(|_, known| known.is_ready || known.is_held || known.due.is_some() || known.n_failures > 0);
    }
}

/// Runs the same steps on both queues; `end` is the step after which they are closed, and how.
fn compare(steps: Vec<Step>, end: (usize, bool)) {
    let mut core = Core::new(RateLimiter::exponential(Duration::from_millis(5), Duration::from_millis(40)));
    let mut plain = Plain { keys: BTreeMap::new(), ready: [const { Vec::new() }; 3], passes: [0; 3], is_closed: false };
    let mut now = Instant::now();
    let mut held: Vec<(u8, u32)> = Vec::new();
    for (at, step) in steps.into_iter().enumerate() {
        // No two keys become due at the same time, because then either may come first.
        now += Duration::from_nanos(1);
        let is_open = !plain.is_closed;
        match step {
            Step::Add(key, priority) => {
                core.add(key, priority);
                if is_open {
                    plain.add(key, priority);
                }
            }
            Step::AddAfter(key, ms, priority) => {
                let due = now + Duration::from_millis(ms);
                core.add_at(key, due, priority);
                if is_open {
                    plain.add_at(key, due, priority);
                }
            }
            Step::Advance(ms) => now += Duration::from_millis(ms),
            Step::Done(which, how) if !held.is_empty() => {
                let (key, place) = held.swap_remove(which as usize % held.len());
                match how {
                    0 => {
                        core.forget_at(place);
                        plain.forget(key);
                    }
                    1 => {
                        core.fail_at(place, now, Duration::ZERO, None);
                        if is_open {
                            plain.fail(key, now);
                        }
                    }
                    _ => {}
                }
                core.done(place);
                plain.done(key);
            }
            Step::Done(..) => {}
            Step::Fail(key) => {
                core.fail_key(key, now);
                if is_open {
                    plain.fail(key, now);
                }
            }
            Step::Forget(key) => {
                core.forget_key(&key);
                plain.forget(key);
            }
            Step::Take => {
                let expected = plain.take(now);
                let next_due = plain.keys.values().filter_map(|known| known.due).min();
                match core.take(Some(now)) {
                    Taken::Key(key, place, _) => {
                        assert_eq!(Some(key), expected, "step {at}");
                        held.push((key, place));
                    }
                    Taken::Empty { next_due: due } => assert_eq!((None, next_due), (expected, due), "step {at}"),
                    Taken::Closed => assert_eq!((expected, is_open), (None, false), "step {at}"),
                }
            }
        }
        if at == end.0 {
            core.close();
            plain.close();
            if end.1 {
                core.drop_ready();
                plain.drop_ready();
            }
        }
        plain.tidy();
        let stats = core.stats();
        let n_ready = plain.ready.iter().map(Vec::len).sum::<usize>();
        let n_delayed = plain.keys.values().filter(|known| known.due.is_some()).count();
        assert_eq!((stats.depth, stats.delayed, stats.processing), (n_ready, n_delayed, held.len()), "step {at}");
        assert_eq!(core.is_drained(), plain.is_closed && n_ready == 0 && held.is_empty(), "step {at}");
        for key in 0..5 {
            let n_failures = plain.keys.get(&key).map_or(0, |known| known.n_failures);
            assert_eq!(core.n_failures(&key), n_failures, "step {at}");
        }
        assert_eq!(core.n_entries(), plain.keys.len(), "step {at}");
    }
}

proptest! {
    #[test]
    fn the_queue_does_what_the_written_rules_say(steps in steps(), end in (0..400_usize, any::<bool>())) {
        compare(steps, end);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_may_be_for_ever() {
    let queue = WorkQueue::new("test", RateLimiter::fast_slow(Duration::ZERO, Duration::MAX, 0));
    queue.add_after("a", Duration::MAX);
    queue.add_rate_limited("b");
    queue.add("c");
    queue.get().await.unwrap().retry_after(Duration::MAX);
    queue.add("d");
    queue.get().await.unwrap().fail_for(Duration::MAX);
    tokio::time::sleep(Duration::from_secs(365 * 24 * 3_600)).await;
    assert_eq!((queue.len(), queue.stats().delayed), (0, 4));
    queue.add("a");
    assert_eq!(drain(&queue).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_panics_waits_as_the_default_does() {
    let queue = WorkQueue::new("test", RateLimiter::function(|_| panic!("scripted")));
    assert_eq!(queue.add_rate_limited("a"), Duration::from_millis(5));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(queue.add_rate_limited("a"), Duration::from_millis(10));
}
