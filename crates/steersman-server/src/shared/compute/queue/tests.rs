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
    assert_eq!(queue.enter("b", 1), Err(Full::Server { waiting_max: 6 }));
    for user in ["c", "d", "e", "f", "g", "h"] {
        assert!(queue.enter(user, 1).is_ok(), "who has none that waits is not kept out by others");
        assert_eq!(queue.enter(user, 1), Err(Full::Server { waiting_max: 6 }));
    }
    assert_eq!(queue.enter("i", 1), Err(Full::Server { waiting_max: 6 }), "all together are bounded too");
    queue.leave(first);
    assert!(queue.enter("i", 1).is_ok());
}

#[test]
fn requests_that_have_begun_are_bounded_by_bytes_for_each_user_and_for_all() {
    let mut queue = queue(9);
    let (large, granted) = enter(&mut queue, "a", 500);
    assert_eq!(granted, [large], "a request that is larger than everything takes the share of its user");
    let (waits, granted) = enter(&mut queue, "b", 50);
    assert_eq!(granted, NOBODY);
    let (small, granted) = enter(&mut queue, "c", 1);
    assert_eq!(granted, NOBODY, "what becomes free is for b");
    assert_eq!(queue.leave(large), [waits, small]);
    assert_eq!((queue.leave(waits), queue.leave(small)), (Vec::new(), Vec::new()));
    let (half, _) = enter(&mut queue, "b", 50);
    let (more, granted) = enter(&mut queue, "b", 20);
    assert_eq!(granted, NOBODY, "the share of the user is full");
    let (other, granted) = enter(&mut queue, "c", 40);
    assert_eq!(granted, [other]);
    assert_eq!(queue.leave(half), [more]);
}

#[test]
fn a_request_that_turns_out_to_be_larger_leaves_less_room_for_others() {
    let mut queue = queue(9);
    let (grows, _) = enter(&mut queue, "a", 1);
    queue.grow(grows, 50);
    queue.grow(grows, 2);
    let (same, granted) = enter(&mut queue, "a", 20);
    assert_eq!(granted, NOBODY, "the share of the user is full");
    let (other, granted) = enter(&mut queue, "b", 50);
    assert_eq!(granted, [other]);
    queue.grow(grows, 500);
    let (third, granted) = enter(&mut queue, "c", 1);
    assert_eq!(granted, NOBODY, "all have begun to read more than the bound");
    assert_eq!(queue.leave(grows), [same, third]);
    let waits = queue.enter("d", 1).unwrap();
    queue.grow(waits, 50);
    assert_eq!(queue.wait(waits, waits), NOBODY, "it grew before it began");
    for id in [same, other, third, waits] {
        queue.leave(id);
    }
    assert_eq!(queue.bytes, 0);
}

#[test]
fn parts_of_answers_keep_out_no_requests_however_many_wait() {
    let mut queue = queue(1);
    let parts: Vec<u64> = (0..100).map(|_| queue.admit("a", 1)).collect();
    for part in &parts {
        queue.wait(*part, *part);
    }
    assert_eq!(queue.figures(), Figures { computing: 1, waiting: 99, away: 0 });
    for user in ["a", "a", "a", "b", "b", "b"] {
        queue.enter(user, 1).unwrap();
    }
    assert_eq!(queue.enter("b", 1), Err(Full::Server { waiting_max: 6 }));
    let (other, _) = (queue.enter("c", 1).unwrap(), ());
    queue.wait(other, other);
    assert_eq!(queue.leave(parts[0]), [parts[1]]);
    assert_eq!(queue.leave(parts[1]), [other], "users take turns");
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

/// The state of a request in the random test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// It holds no slot, and wants none for now.
    Away,
    Running,
    Waiting,
}

/// A request of the random test, as its client sees it.
#[derive(Debug)]
struct Request {
    user: usize,
    bytes: usize,
    state: State,
    has_begun: bool,
    /// When it came, and when it asked for the slot that it waits for.
    entered: usize,
    asked: usize,
}

const USERS: [&str; 4] = ["a", "b", "c", "d"];

/// Requests at random, and what they see of the queue.
struct RandomRequests {
    queue: Queue<u64>,
    requests: BTreeMap<u64, Request>,
    /// How often another user's request has begun since a user has had one that could.
    passed: [usize; USERS.len()],
    n_steps: usize,
}

impl RandomRequests {
    /// The ids of requests in a state.
    fn in_state(&self, state: State) -> Vec<u64> {
        self.requests.iter().filter(|(_, request)| request.state == state).map(|(id, _)| *id).collect()
    }

    fn wait(&mut self, id: u64) {
        let request = self.requests.get_mut(&id).unwrap();
        (request.state, request.asked) = (State::Waiting, self.n_steps);
        let granted = self.queue.wait(id, id);
        self.grant(granted);
    }

    /// It gives up its slot, or waits no more.
    fn release(&mut self, id: u64) {
        self.requests.get_mut(&id).unwrap().state = State::Away;
        let granted = self.queue.release(id);
        self.grant(granted);
    }

    fn leave(&mut self, id: u64) {
        self.requests.remove(&id).unwrap();
        let granted = self.queue.leave(id);
        self.grant(granted);
    }

    fn grant(&mut self, granted: Vec<u64>) {
        for id in granted {
            let (user, asked, has_begun, entered) = {
                let request = &self.requests[&id];
                assert_eq!(request.state, State::Waiting, "{id} was given a slot that it did not want");
                (request.user, request.asked, request.has_begun, request.entered)
            };
            let waiting = self.requests.values().filter(|other| other.state == State::Waiting);
            if has_begun {
                let is_first = waiting.filter(|other| other.has_begun).all(|other| asked <= other.asked);
                assert!(is_first, "{id} goes on before one that waits for longer");
            } else {
                let (of_user, others): (Vec<_>, Vec<_>) = waiting.partition(|other| other.user == user);
                assert!(others.iter().chain(&of_user).all(|other| !other.has_begun), "{id} begins before one goes on");
                let is_first = of_user.iter().all(|other| asked <= other.asked);
                assert!(is_first, "{id}, which came at {entered}, begins before one of its user that waits for longer");
                for (other, passed) in self.passed.iter_mut().enumerate() {
                    *passed = if other == user { 0 } else { *passed + 1 };
                }
            }
            if !has_begun {
                let Bounds { bytes_max, bytes_of_user_max, .. } = self.queue.bounds;
                let bytes = self.requests[&id].bytes;
                let has_room =
                    self.begun(None) + bytes <= bytes_max && self.begun(Some(user)) + bytes <= bytes_of_user_max;
                assert!(has_room, "{id} begins although there is no room");
            }
            let request = self.requests.get_mut(&id).unwrap();
            (request.state, request.has_begun) = (State::Running, true);
        }
    }

    /// The bytes that requests that have begun read: of all users, or of one.
    fn begun(&self, user: Option<usize>) -> usize {
        let of = self.requests.values().filter(|one| one.has_begun && user.is_none_or(|user| one.user == user));
        of.map(|one| one.bytes).sum()
    }

    /// It turns out to read this many bytes.
    fn grow(&mut self, id: u64, bytes: usize) {
        let request = self.requests.get_mut(&id).unwrap();
        request.bytes = request.bytes.max(bytes.min(60));
        self.queue.grow(id, bytes);
    }

    /// Asserts the invariants, after each step.
    fn check(&mut self) {
        let Bounds { slots, bytes_max, bytes_of_user_max, waiting_max, waiting_of_user_max } = self.queue.bounds;
        let n = |state| self.in_state(state).len();
        assert!(n(State::Running) <= slots);
        assert_eq!(self.queue.slots_free, slots - n(State::Running));
        let begun = |user| self.begun(user);
        assert_eq!(begun(None), self.queue.bytes);
        let not_begun = |user: usize| self.requests.values().filter(|one| !one.has_begun && one.user == user).count();
        assert!((0..USERS.len()).map(not_begun).sum::<usize>() <= 2 * waiting_max);
        for (user, name) in USERS.iter().enumerate() {
            assert!(not_begun(user) <= waiting_of_user_max);
            let of = self.queue.users.get(*name);
            assert_eq!(of.map_or((0, 0), |of| (of.bytes, of.n_waiting)), (begun(Some(user)), not_begun(user)));
        }
        // The users whose next request fits into their share.
        let next = |user: usize| {
            let waiting = self.requests.values().filter(|one| one.state == State::Waiting && !one.has_begun);
            waiting.filter(|one| one.user == user).min_by_key(|one| one.asked)
        };
        let fits = |user: &usize| next(*user).is_some_and(|one| begun(Some(*user)) + one.bytes <= bytes_of_user_max);
        let candidates: Vec<usize> = (0..USERS.len()).filter(fits).collect();
        if self.queue.slots_free > 0 {
            let resuming = self.requests.values().any(|one| one.has_begun && one.state == State::Waiting);
            assert!(!resuming, "one that has begun waits beside a free slot");
            // One that does not fit beside those that have begun holds up all who come after it.
            let room = bytes_max.saturating_sub(begun(None));
            let is_held_up = candidates.iter().filter_map(|user| next(*user)).any(|one| room < one.bytes);
            assert!(candidates.is_empty() || is_held_up, "{candidates:?} wait beside a free slot");
        }
        for (user, passed) in self.passed.iter_mut().enumerate() {
            if !candidates.contains(&user) {
                *passed = 0;
            }
            assert!(*passed < USERS.len(), "{} was passed over {passed} times", USERS[user]);
        }
    }
}

#[test]
fn random_requests_keep_the_bounds_and_the_order_and_nobody_waits_beside_a_free_slot() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let queue = queue(random.random_range(1..4));
        let mut random_requests =
            RandomRequests { queue, requests: BTreeMap::new(), passed: [0; USERS.len()], n_steps: 0 };
        let (mut n_left, mut n_refused) = (200, 0);
        while n_left > 0 || !random_requests.requests.is_empty() {
            random_requests.n_steps += 1;
            let step = random.random_range(0..10);
            let from = match step {
                0..3 if n_left > 0 => {
                    n_left -= 1;
                    let (user, bytes) = (random.random_range(0..USERS.len()), random.random_range(1..90));
                    let Ok(id) = random_requests.queue.enter(USERS[user], bytes) else {
                        n_refused += 1;
                        continue;
                    };
                    let (bytes, entered) = (bytes.min(60), random_requests.n_steps);
                    let request = Request { user, bytes, state: State::Away, has_begun: false, entered, asked: 0 };
                    random_requests.requests.insert(id, request);
                    // Not all ask at once.
                    if random.random_bool(0.8) {
                        random_requests.wait(id);
                    }
                    random_requests.check();
                    continue;
                }
                0..5 => State::Away,
                5..9 => State::Running,
                // Some give up.
                _ => State::Waiting,
            };
            let ids = random_requests.in_state(from);
            let Some(id) = ids.get(random.random_range(0..ids.len().max(1))).copied() else { continue };
            if from == State::Running && random.random_bool(0.2) {
                random_requests.grow(id, random.random_range(1..90));
            }
            match (from, random.random_range(0..3)) {
                (State::Away, 0) | (State::Running, 0) | (State::Waiting, 0 | 1) => random_requests.leave(id),
                (State::Away, _) => random_requests.wait(id),
                (State::Running | State::Waiting, _) => random_requests.release(id),
            }
            random_requests.check();
        }
        assert!(n_refused < 200, "seed {seed}");
        let Queue { users, turns, resuming, jobs, bytes, n_waiting, .. } = &random_requests.queue;
        assert_eq!(random_requests.queue.figures(), Figures::default(), "seed {seed}");
        assert!(users.is_empty() && turns.is_empty() && resuming.is_empty() && jobs.is_empty(), "seed {seed}");
        assert_eq!((*bytes, *n_waiting), (0, 0), "seed {seed}");
    }
}
