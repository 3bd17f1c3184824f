//! The queue of heavy requests, step by step and at random.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;

const NOBODY: [u64; 0] = [];

fn queue(slots: usize) -> Queue<u64> {
    Queue::new(Bounds { slots, bytes_max: 100, bytes_of_user_max: 60, waiting_max: 6, waiting_of_user_max: 4 })
}

/// Adds a request that waits. Returns its id, and the requests that have a slot now.
fn enter(queue: &mut Queue<u64>, user: &str, bytes: usize) -> (u64, Vec<u64>) {
    let id = queue.enter(user, bytes).unwrap();
    (id, queue.wait(id, id))
}

#[test]
fn users_take_turns() {
    let mut queue = queue(2);
    let (first, granted) = enter(&mut queue, "a", 1);
    assert_eq!(granted, [first]);
    let (second, granted) = enter(&mut queue, "a", 1);
    assert_eq!(granted, [second]);
    let (third, granted) = enter(&mut queue, "a", 1);
    assert_eq!(granted, NOBODY);
    let (fourth, _) = enter(&mut queue, "a", 1);
    let (other, granted) = enter(&mut queue, "b", 1);
    assert_eq!(granted, NOBODY);
    assert_eq!(queue.leave(first), [third], "it came first");
    assert_eq!(queue.leave(second), [other], "b has waited for less time, but it is its turn");
    assert_eq!(queue.leave(third), [fourth]);
    assert_eq!(queue.figures(), Figures { computing: 2, waiting: 0, away: 0 });
}

#[test]
fn a_request_that_waits_for_something_else_holds_no_slot_and_goes_on_before_others_begin() {
    let mut queue = queue(1);
    let (first, _) = enter(&mut queue, "a", 1);
    let (second, _) = enter(&mut queue, "b", 1);
    let (third, _) = enter(&mut queue, "c", 1);
    assert_eq!(queue.release(first), [second]);
    assert_eq!(queue.figures(), Figures { computing: 1, waiting: 1, away: 1 });
    assert_eq!(queue.wait(first, first), NOBODY);
    assert_eq!(queue.leave(second), [first]);
    assert_eq!(queue.leave(first), [third]);
}

#[test]
fn the_number_of_those_that_wait_is_bounded_for_each_user_and_for_all() {
    let mut queue = queue(1);
    let (first, _) = enter(&mut queue, "a", 1);
    for _ in 0..4 {
        enter(&mut queue, "a", 1);
    }
    assert_eq!(queue.enter("a", 1), Err(Full::User { waiting_max: 4 }));
    enter(&mut queue, "b", 1);
    enter(&mut queue, "b", 1);
    assert_eq!(queue.enter("c", 1), Err(Full::Server { waiting_max: 6 }));
    queue.leave(first);
    assert!(queue.enter("c", 1).is_ok());
}

#[test]
fn requests_that_have_begun_are_bounded_by_bytes_for_each_user_and_for_all() {
    let mut queue = queue(9);
    let (alone, granted) = enter(&mut queue, "a", 500);
    assert_eq!(granted, [alone], "a request that is larger than everything begins alone");
    let (waits, granted) = enter(&mut queue, "b", 1);
    assert_eq!(granted, NOBODY);
    assert_eq!(queue.leave(alone), [waits]);
    let (half, _) = enter(&mut queue, "b", 50);
    let (more, granted) = enter(&mut queue, "b", 20);
    assert_eq!(granted, NOBODY, "the share of the user is full");
    let (other, granted) = enter(&mut queue, "c", 40);
    assert_eq!(granted, [other]);
    assert_eq!(queue.leave(half), [more]);
}

#[test]
fn a_request_that_is_given_up_gives_back_what_it_has() {
    let mut queue = queue(1);
    let (first, _) = enter(&mut queue, "a", 1);
    let (second, _) = enter(&mut queue, "a", 1);
    let (third, _) = enter(&mut queue, "b", 1);
    assert_eq!(queue.leave(second), NOBODY);
    assert_eq!(queue.leave(first), [third]);
    assert_eq!(queue.leave(third), NOBODY);
    assert_eq!(queue.figures(), Figures::default());
    assert!(queue.users.is_empty() && queue.turns.is_empty() && queue.jobs.is_empty());
}

/// Random requests never exceed a bound, none is forgotten, and in the end none is left.
#[test]
fn random_requests_keep_the_bounds_and_all_get_a_slot_at_last() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let slots = random.random_range(1..4);
        let mut queue = queue(slots);
        // The requests by their state, each with the number of slots that it still needs.
        let mut running: BTreeMap<u64, u32> = BTreeMap::new();
        let mut waiting: BTreeMap<u64, u32> = BTreeMap::new();
        let mut away: BTreeMap<u64, u32> = BTreeMap::new();
        let mut n_left = 300;
        while n_left > 0 || !(running.is_empty() && waiting.is_empty() && away.is_empty()) {
            let pick = |from: &BTreeMap<u64, u32>, random: &mut StdRng| {
                from.keys().nth(random.random_range(0..from.len().max(1))).copied()
            };
            let granted = match random.random_range(0..6) {
                0 if n_left > 0 => {
                    n_left -= 1;
                    let user = ["a", "b", "c"][random.random_range(0..3)];
                    let Ok(id) = queue.enter(user, random.random_range(1..70)) else { continue };
                    waiting.insert(id, random.random_range(0..3));
                    queue.wait(id, id)
                }
                1 => match pick(&away, &mut random) {
                    Some(id) => {
                        waiting.insert(id, away.remove(&id).unwrap());
                        queue.wait(id, id)
                    }
                    None => continue,
                },
                // One in ten of the waiting requests gives up.
                2 if random.random_range(0..10) == 0 => match pick(&waiting, &mut random) {
                    Some(id) => {
                        waiting.remove(&id);
                        queue.leave(id)
                    }
                    None => continue,
                },
                _ => match pick(&running, &mut random) {
                    Some(id) => match running.remove(&id).unwrap() {
                        0 => queue.leave(id),
                        wants => {
                            away.insert(id, wants - 1);
                            queue.release(id)
                        }
                    },
                    None => {
                        // Nothing runs, so requests can wait only because others that are away hold memory.
                        assert!(waiting.is_empty() || !away.is_empty(), "seed {seed}: {queue:?}");
                        continue;
                    }
                },
            };
            for id in granted {
                let wants = waiting.remove(&id);
                running.insert(id, wants.unwrap_or_else(|| panic!("seed {seed}: {id} does not wait")));
            }
            assert!(running.len() <= slots, "seed {seed}");
            let one = queue.jobs.values().filter(|job| job.has_begun).count() == 1;
            assert!(one || queue.bytes <= 100, "seed {seed}");
            assert!(queue.n_waiting <= 6, "seed {seed}");
        }
        assert_eq!(queue.figures(), Figures::default(), "seed {seed}");
        assert!(queue.users.is_empty() && queue.turns.is_empty() && queue.bytes == 0, "seed {seed}");
    }
}
