//! A model of a level under load: flows with different demand, a simulated clock, and invariants that must always hold.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const QUEUEING: Queueing = Queueing { queues: 64, hand: 6, length_max: 50 };

/// The longest time after which the client of a refused request tries again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Steps between checks of all invariants, which are slow.
const CHECK_INTERVAL: u64 = 37;

/// The behavior of a flow.
#[derive(Clone, Copy, Debug)]
struct Flow {
    hash: u64,
    /// The number of requests that it keeps in flight.
    outstanding: usize,
    seats: u32,
    /// The longest duration of a request; each takes at least half of it.
    took_max: Duration,
    /// The percentage of its requests whose clients disconnect.
    leaves_percent: u32,
}

/// The service that a flow received.
#[derive(Clone, Debug, Default)]
struct Served {
    n_done: u64,
    n_refused: u64,
    seat_seconds: f64,
    longest_wait: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    flow: usize,
    work: WorkEstimate,
    place: QueueIndex,
    id: Option<Id>,
    arrived: Instant,
    began: Option<Instant>,
}

/// An event of the simulation, in the order of time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Happening {
    Arrival(usize),
    /// The client of a request disconnects.
    Departure(u64),
    End(u64),
    Tick,
    /// A request has waited too long.
    TimeOut(u64),
}

struct Simulation {
    queues: Queues<u64>,
    flows: Vec<Flow>,
    served: Vec<Served>,
    requests: HashMap<u64, Request>,
    agenda: BinaryHeap<Reverse<(Instant, u64, Happening)>>,
    n_made: u64,
    n_steps: u64,
    rng: StdRng,
    now: Instant,
    wait_max: Duration,
    /// The highest limit that was set.
    limit: u32,
    largest: u32,
}

impl Simulation {
    fn new(seed: u64, limit: u32, flows: &[Flow]) -> Simulation {
        let now = Instant::now();
        let mut sim = Simulation {
            queues: Queues::new(Policy::Queue(QUEUEING), limit, now),
            flows: flows.to_vec(),
            served: vec![Served::default(); flows.len()],
            requests: HashMap::new(),
            agenda: BinaryHeap::new(),
            n_made: 0,
            n_steps: 0,
            rng: StdRng::seed_from_u64(seed),
            now,
            wait_max: Duration::from_secs(15),
            limit,
            largest: flows.iter().map(|flow| flow.seats).max().unwrap_or(1),
        };
        for (index, flow) in flows.iter().enumerate() {
            for _ in 0..flow.outstanding {
                let delay = sim.up_to(Duration::from_millis(20));
                sim.plan(delay, Happening::Arrival(index));
            }
        }
        sim
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.random_range(0.0..1.0))
    }

    fn plan(&mut self, delay: Duration, happening: Happening) {
        self.n_made += 1;
        self.agenda.push(Reverse((self.now + delay, self.n_made, happening)));
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(Reverse((at, _, happening))) = self.agenda.peek().copied()
            && at <= end
        {
            self.agenda.pop();
            self.now = at;
            self.happen(happening);
            self.settle();
            self.n_steps += 1;
            if self.n_steps.is_multiple_of(CHECK_INTERVAL) {
                self.check();
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival(flow) => self.arrive(flow),
            Happening::Tick => {}
            Happening::Departure(number) | Happening::TimeOut(number) => {
                let Some(request) = self.requests.get(&number).copied() else { return };
                match (request.began, happening) {
                    (None, _) => {
                        let id = request.id.unwrap();
                        assert!(self.queues.cancel(request.place, id, self.now), "it waits, and is found");
                        self.end(number, false);
                    }
                    // The work of a disconnected client ends early.
                    (Some(_), Happening::Departure(_)) => self.finish(number),
                    (Some(_), _) => {}
                }
            }
            Happening::End(number) => self.finish(number),
        }
    }

    fn arrive(&mut self, flow: usize) {
        let Flow { hash, seats, leaves_percent, .. } = self.flows[flow];
        self.n_made += 1;
        let number = self.n_made;
        let work = WorkEstimate { seats, ..WorkEstimate::ONE };
        let arrival = self.queues.arrive(hash, work, self.now, || number);
        let request = Request { flow, work, place: None, id: None, arrived: self.now, began: None };
        match arrival {
            Arrival::Executing(place) => {
                self.requests.insert(number, Request { place, ..request });
                self.begin(number);
            }
            Arrival::Rejected(_) => {
                self.served[flow].n_refused += 1;
                let delay = self.up_to(RETRY_AFTER);
                self.plan(delay, Happening::Arrival(flow));
            }
            Arrival::Waiting(place, id) => {
                self.requests.insert(number, Request { place, id: Some(id), ..request });
                self.plan(self.wait_max, Happening::TimeOut(number));
                if self.rng.random_range(0..100) < leaves_percent {
                    let delay = self.up_to(Duration::from_millis(200));
                    self.plan(delay, Happening::Departure(number));
                }
            }
        }
    }

    fn begin(&mut self, number: u64) {
        let took_max = {
            let request = self.requests.get_mut(&number).unwrap();
            assert!(request.began.is_none(), "a request is started once");
            request.began = Some(self.now);
            let served = &mut self.served[request.flow];
            served.longest_wait = served.longest_wait.max(self.now - request.arrived);
            self.flows[request.flow].took_max
        };
        let took = took_max / 2 + self.up_to(took_max / 2);
        self.plan(took, Happening::End(number));
    }

    fn finish(&mut self, number: u64) {
        let Some(request) = self.requests.get(&number).copied() else { return };
        let began = request.began.unwrap();
        self.queues.finish(request.place, request.work, began, self.now);
        self.served[request.flow].seat_seconds += f64::from(request.work.seats) * (self.now - began).as_secs_f64();
        self.end(number, true);
    }

    /// Ends a request; its client sends the next one.
    fn end(&mut self, number: u64, is_done: bool) {
        let request = self.requests.remove(&number).unwrap();
        self.served[request.flow].n_done += u64::from(is_done);
        self.plan(Duration::from_micros(100), Happening::Arrival(request.flow));
    }

    fn settle(&mut self) {
        while let Some(number) = self.queues.next(self.now) {
            self.begin(number);
        }
        if let Some(at) = self.queues.wake_at() {
            self.plan(at - self.now, Happening::Tick);
        }
    }

    fn check(&self) {
        let executing = self.requests.values().filter(|request| request.began.is_some());
        let seats: u32 = executing.clone().map(|request| request.work.seats).sum();
        assert_eq!(self.queues.n_executing(), executing.count());
        assert_eq!(self.queues.n_waiting(), self.requests.values().filter(|one| one.began.is_none()).count());
        assert!(seats <= self.queues.seats_in_use(), "{seats} seats are in use");
        assert!(self.queues.seats_in_use() <= self.limit.max(self.largest), "the limit is {}", self.limit);
        let idle = self.queues.limit().saturating_sub(self.queues.seats_in_use());
        assert!(self.queues.n_waiting() == 0 || idle < self.largest, "requests wait while {idle} seats are free");
    }

    fn drain(&mut self) {
        self.flows.iter_mut().for_each(|flow| flow.leaves_percent = 0);
        let numbers: Vec<u64> = self.requests.keys().copied().collect();
        for number in numbers {
            let Some(request) = self.requests.remove(&number) else { continue };
            match (request.began, request.id) {
                (Some(began), _) => self.queues.finish(request.place, request.work, began, self.now),
                (None, Some(id)) => assert!(self.queues.cancel(request.place, id, self.now)),
                (None, None) => unreachable!("what does not wait executes"),
            }
        }
    }
}

fn flow(hash: u64, outstanding: usize, seats: u32, millis: u64) -> Flow {
    Flow { hash, outstanding, seats, took_max: Duration::from_millis(millis), leaves_percent: 0 }
}

/// Hashes of flows, as random as hashes of names.
fn hashes(seed: u64) -> impl Iterator<Item = u64> {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
    std::iter::repeat_with(move || rng.random())
}

#[test]
fn no_flow_starves_beside_a_flood() {
    for seed in 0..3 {
        let mut hashes = hashes(seed);
        let mut hash = || hashes.next().unwrap();
        let flood = flow(hash(), 500, 1, 40);
        let heavy = flow(hash(), 40, 5, 200);
        let modest = flow(hash(), 2, 1, 5);
        let single = flow(hash(), 1, 1, 5);
        let mut sim = Simulation::new(seed, 20, &[flood, heavy, modest, single]);
        sim.run(Duration::from_secs(10));
        let [flood, heavy, modest, single] = &sim.served[..] else { unreachable!() };
        assert!(flood.n_refused > 0 && flood.n_done > 1000, "seed {seed}: {flood:?}");
        // Both flows want far less than their share, so they hardly wait: a seat is free when the next request ends.
        for served in [modest, single] {
            assert!(served.longest_wait < Duration::from_secs(2), "seed {seed}: {served:?}");
            assert_eq!(served.n_refused, 0, "seed {seed}: {served:?}");
        }
        assert!(single.n_done > 50, "seed {seed}: {single:?}");
        assert!(modest.n_done > 100, "seed {seed}: {modest:?}");
        assert!(heavy.n_done > 10, "seed {seed}: {heavy:?}");
    }
}

#[test]
fn flows_that_want_more_than_their_share_get_as_much_as_each_other() {
    for seed in 0..5 {
        // There are so many queues that two flows are unlikely to share one, and hands of one, so that a flow has one
        // queue.
        let mut hashes = hashes(seed);
        let mut numbers = HashSet::new();
        let mut flows = Vec::new();
        // All flows have the same demand in seats, with requests of different widths and durations.
        let shapes = [(200, 1, 20), (30, 1, 100), (40, 2, 50), (20, 4, 60)];
        while flows.len() < shapes.len() {
            let hash: u64 = hashes.next().unwrap();
            if numbers.insert(hash % 64) {
                let (outstanding, seats, millis) = shapes[flows.len()];
                flows.push(flow(hash, outstanding, seats, millis));
            }
        }
        let mut sim = Simulation::new(seed, 16, &flows);
        sim.queues.set_policy(Policy::Queue(Queueing { hand: 1, ..QUEUEING }));
        sim.run(Duration::from_secs(20));
        let shares: Vec<f64> = sim.served.iter().map(|served| served.seat_seconds).collect();
        let (least, most) = shares.iter().fold((f64::MAX, 0.0_f64), |(a, b), one| (a.min(*one), b.max(*one)));
        assert!(most < 1.25 * least, "seed {seed}: {shares:?}");
    }
}

#[test]
fn every_seat_comes_back() {
    for seed in 0..10 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut hashes = hashes(seed);
        let flows: Vec<Flow> = (0..rng.random_range(1..8))
            .map(|_| Flow {
                hash: hashes.next().unwrap(),
                outstanding: rng.random_range(1..200),
                seats: rng.random_range(1..12),
                took_max: Duration::from_millis(rng.random_range(1..300)),
                leaves_percent: rng.random_range(0..60),
            })
            .collect();
        let mut sim = Simulation::new(seed, rng.random_range(1..30), &flows);
        sim.wait_max = Duration::from_millis(rng.random_range(50..1000));
        for _ in 0..4 {
            sim.run(Duration::from_secs(1));
            let limit = rng.random_range(1..30);
            sim.limit = sim.limit.max(limit);
            sim.queues.set_limit(limit, sim.now);
            sim.settle();
        }
        for served in &sim.served {
            assert!(served.longest_wait <= sim.wait_max, "seed {seed}: {served:?}");
        }
        sim.drain();
        assert!(sim.queues.next(sim.now).is_none());
        let Queues { seats_in_use, seats_waiting, n_executing, n_waiting, .. } = sim.queues;
        assert_eq!((seats_in_use, seats_waiting, n_executing, n_waiting), (0, 0, 0, 0), "seed {seed}");
        assert!(sim.queues.active.is_empty(), "seed {seed}");
    }
}

#[test]
fn seats_are_kept_after_a_write_and_then_given_to_who_waits() {
    let start = Instant::now();
    let mut queues = Queues::new(Policy::Queue(QUEUEING), 2, start);
    let write = WorkEstimate { final_seats: 2, final_duration: Duration::from_millis(10), ..WorkEstimate::ONE };
    let Arrival::Executing(place) = queues.arrive(1, write, start, || 0) else { panic!("there is room") };
    queues.finish(place, write, start, start);
    assert_eq!(queues.seats_in_use(), 2);
    assert_eq!(queues.wake_at(), None, "nobody waits");
    let Arrival::Waiting(..) = queues.arrive(2, WorkEstimate::ONE, start, || 7) else { panic!("there is no room") };
    assert_eq!(queues.next(start), None);
    let end = queues.wake_at().unwrap();
    assert_eq!(end, start + Duration::from_millis(10));
    assert_eq!(queues.next(end), Some(7));
    assert_eq!(queues.seats_in_use(), 1);
}

#[test]
fn a_level_without_queues_rejects_and_the_exempt_one_takes_all() {
    let now = Instant::now();
    let mut rejects = Queues::<()>::new(Policy::Reject, 2, now);
    let arrivals = [1, 2, 3].map(|flow| rejects.arrive(flow, WorkEstimate::ONE, now, || ()));
    let executing = Arrival::Executing(None);
    assert_eq!(arrivals, [executing, executing, Arrival::Rejected(Reason::ConcurrencyLimit)]);
    let mut exempt = Queues::<()>::new(Policy::Exempt, 0, now);
    assert!((0..1000).all(|flow| exempt.arrive(flow, WorkEstimate::ONE, now, || ()) == executing));
}

#[test]
fn a_request_for_more_seats_than_there_are_executes_alone() {
    let now = Instant::now();
    let mut queues = Queues::new(Policy::Queue(QUEUEING), 3, now);
    let wide = WorkEstimate { seats: 10, ..WorkEstimate::ONE };
    let Arrival::Executing(place) = queues.arrive(1, wide, now, || 1) else { panic!("nothing executes") };
    assert!(matches!(queues.arrive(2, WorkEstimate::ONE, now, || 2), Arrival::Waiting(..)));
    assert_eq!(queues.next(now), None);
    queues.finish(place, wide, now, now);
    assert_eq!(queues.next(now), Some(2));
}

#[test]
fn a_hand_has_different_cards_and_all_queues_are_dealt() {
    let mut seen = [0_u32; 16];
    for hash in hashes(7).take(4000) {
        let mut hand = Vec::new();
        deal(hash, 16, 4, |card| hand.push(card));
        let different: HashSet<u32> = hand.iter().copied().collect();
        assert_eq!((hand.len(), different.len()), (4, 4), "{hand:?}");
        hand.iter().for_each(|card| seen[*card as usize] += 1);
    }
    // About a thousand each.
    assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
    let mut all = Vec::new();
    deal(u64::MAX, 3, 8, |card| all.push(card));
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
}
