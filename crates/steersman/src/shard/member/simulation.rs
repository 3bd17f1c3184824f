//! Members, a server and a network in simulated time: whatever happens, no slot is in two hands, and once it is quiet,
//! every slot is in one.
//!
//! Clocks of members start anywhere and run up to a tenth fast or slow. Requests take their time, are lost, or are done
//! long after their sender gave up; answers are lost. Members freeze, die, leave and come, all at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use crate::shard::member::{Effect, Input, Member, Permission, Record, Times};
use crate::shard::slots::{SLOTS, Slots, share};

/// True milliseconds of a schedule in which things go wrong.
const CHAOS_MS: u64 = 120_000;

/// In so many more, all is in order: what was delayed has arrived (20 s), the dead are dead (15 s by a slow clock), and
/// work that had to end has been cut (at most 20 s by a slow clock), with requests that time out (14 s) between.
const SETTLED_MS: u64 = 90_000;

#[derive(Clone, Debug)]
enum Event {
    Answer {
        member: usize,
        request: u64,
        input: Input,
    },
    /// A request is at the server.
    Arrive {
        member: usize,
        request: u64,
        effect: Effect,
    },
    /// Something happens to somebody.
    Chance,
    Thaw {
        member: usize,
    },
    Timeout {
        member: usize,
        request: u64,
    },
    Wake {
        member: usize,
    },
    /// Members begin work on some of what they hold.
    Work,
    WorkEnds {
        member: usize,
        work: u64,
    },
}

struct Host {
    id: String,
    machine: Member,
    clock_start: Instant,
    clock_rate: f64,
    permission: Permission,
    /// By number: the slot.
    works: BTreeMap<u64, usize>,
    /// The request whose answer is waited for.
    request: Option<u64>,
    is_frozen: bool,
    is_dead: bool,
    /// Nothing it sends arrives.
    is_cut_off: bool,
    /// What happened while it was frozen.
    missed: VecDeque<Event>,
    /// The earliest wake-up that is planned.
    wake_at: u64,
}

struct World {
    seed: u64,
    rng: StdRng,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
    /// The records, and the server's counter of versions.
    store: BTreeMap<String, Record>,
    version: u64,
    hosts: Vec<Host>,
    times: Times,
    /// How long an answer is waited for, by the clock of who waits.
    timeout: Duration,
    epoch: Instant,
    is_quiet: bool,
    /// How likely it is that one thing goes wrong.
    hostility: f64,
    /// The longest time between two blows of fate.
    pause_ms_max: u64,
    n_writes: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let times = Times {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            period: Duration::from_secs(2),
            handover: Duration::from_secs(rng.random_range(1..=18)),
        };
        let timeout = Duration::from_secs(rng.random_range(2..=12));
        let hostility = rng.random_range(0.02..0.3);
        let pause_ms_max = rng.random_range(1_000..8_000);
        Self {
            seed,
            rng,
            now: 0,
            events: BTreeMap::new(),
            next: 0,
            store: BTreeMap::new(),
            version: 0,
            hosts: Vec::new(),
            times,
            timeout,
            epoch: Instant::now(),
            is_quiet: false,
            hostility,
            pause_ms_max,
            n_writes: 0,
        }
    }

    fn plan(&mut self, after_ms: u64, event: Event) {
        self.next += 1;
        self.events.insert((self.now + after_ms, self.next), event);
    }

    fn join(&mut self) -> usize {
        let member = self.hosts.len();
        let id = format!("m{member}-{:04x}", self.rng.random::<u16>());
        let clock_start = self.epoch + Duration::from_secs(self.rng.random_range(0..100_000));
        let clock_rate = self.rng.random_range(0.9..1.1);
        let mut host = Host {
            id: id.clone(),
            machine: Member::new(id, self.times, 1, self.epoch),
            clock_start,
            clock_rate,
            permission: Permission::default(),
            works: BTreeMap::new(),
            request: None,
            is_frozen: false,
            is_dead: false,
            is_cut_off: false,
            missed: VecDeque::new(),
            wake_at: u64::MAX,
        };
        host.machine = Member::new(host.id.clone(), self.times, 1, host.clock(self.now));
        self.hosts.push(host);
        self.step(member, Input::Wake);
        member
    }

    /// One step of a member's shell.
    fn step(&mut self, member: usize, input: Input) {
        let (now_ms, host) = (self.now, &mut self.hosts[member]);
        let now = host.clock(now_ms);
        let mut effects = Vec::new();
        let mut input = Some(input);
        // As the shell does: the permission is in force before anything else happens.
        loop {
            let effect = host.machine.step(now, host.in_use(), input.take().unwrap_or(Input::Wake));
            effects.extend(effect);
            let permission = host.machine.permission();
            let is_new_term = permission.term != host.permission.term;
            host.works.retain(|_, slot| !is_new_term && permission.kept.contains(*slot));
            host.permission = permission;
            if host.machine.next_wake(now) > now {
                break;
            }
        }
        // No sooner than a millisecond from now, by the slowest clock.
        let wait = host.machine.next_wake(now) - now;
        let wake_ms = (wait.as_secs_f64() * 1_000.0 / host.clock_rate) as u64 + 1;
        if now_ms + wake_ms < host.wake_at || host.wake_at <= now_ms {
            host.wake_at = now_ms + wake_ms;
            self.plan(wake_ms, Event::Wake { member });
        }
        assert!(effects.len() <= 1, "seed {}: one request at a time", self.seed);
        for effect in effects {
            self.send(member, effect);
        }
    }

    fn send(&mut self, member: usize, effect: Effect) {
        self.next += 1;
        let request = self.next;
        self.n_writes += u64::from(matches!(effect, Effect::Write { .. }));
        self.hosts[member].request = Some(request);
        let timeout_ms = (self.timeout.as_secs_f64() * 1_000.0 / self.hosts[member].clock_rate) as u64;
        self.plan(timeout_ms, Event::Timeout { member, request });
        let is_lost = self.hosts[member].is_cut_off || self.is_unlucky();
        if !is_lost {
            let delay_ms = self.delay_ms();
            self.plan(delay_ms, Event::Arrive { member, request, effect });
        }
    }

    fn is_unlucky(&mut self) -> bool {
        !self.is_quiet && self.rng.random_bool(self.hostility)
    }

    /// Mostly a moment; sometimes longer than anybody waits.
    fn delay_ms(&mut self) -> u64 {
        if self.is_unlucky() { self.rng.random_range(0..20_000) } else { self.rng.random_range(1..60) }
    }

    /// What the server does with a request, and its answer.
    fn serve(&mut self, member: usize, effect: Effect) -> Input {
        match effect {
            Effect::Forget { id, version } => {
                if self.store.get(&id).is_some_and(|record| record.version == version) {
                    self.store.remove(&id);
                }
                Input::Forgot
            }
            Effect::List => Input::Listed(self.store.values().cloned().collect()),
            Effect::Write { version, claims, is_released } => {
                let id = self.hosts[member].id.clone();
                if self.store.get(&id).map(|record| &record.version) != version.as_ref() || self.is_unlucky() {
                    return Input::Refused;
                }
                self.version += 1;
                let version = self.version.to_string();
                let lease = self.times.lease;
                let record = Record { id: id.clone(), version: version.clone(), claims, is_released, lease };
                self.store.insert(id, record);
                Input::Written { version }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some(member) = event.member() {
            let host = &mut self.hosts[member];
            if host.is_dead {
                return;
            }
            if host.is_frozen {
                return host.missed.push_back(event);
            }
        }
        match event {
            Event::Answer { member, request, input } => {
                if self.hosts[member].request == Some(request) {
                    self.hosts[member].request = None;
                    self.step(member, input);
                }
            }
            Event::Arrive { member, request, effect } => {
                let input = self.serve(member, effect);
                if !self.is_unlucky() {
                    let delay_ms = self.delay_ms();
                    self.plan(delay_ms, Event::Answer { member, request, input });
                }
            }
            Event::Chance => self.chance(),
            Event::Thaw { member } => self.thaw(member),
            Event::Timeout { member, request } => {
                if self.hosts[member].request == Some(request) {
                    self.hosts[member].request = None;
                    let input = self.hosts[member].machine.unanswered();
                    self.step(member, input);
                }
            }
            Event::Wake { member } => self.step(member, Input::Wake),
            Event::Work => self.begin_works(),
            Event::WorkEnds { member, work } => {
                if self.hosts[member].works.remove(&work).is_some() {
                    self.step(member, Input::Wake);
                }
            }
        }
    }

    fn begin_works(&mut self) {
        for member in 0..self.hosts.len() {
            for _ in 0..4 {
                let slot = self.rng.random_range(0..SLOTS);
                let is_long = self.rng.random_bool(0.05);
                let ms = self.rng.random_range(1..if is_long { 60_000 } else { 900 });
                self.next += 1;
                let work = self.next;
                let now = self.now;
                let host = &mut self.hosts[member];
                let may = host.may_begin(now).contains(slot);
                if may {
                    host.works.insert(work, slot);
                    self.plan(ms, Event::WorkEnds { member, work });
                }
            }
        }
        self.plan(397, Event::Work);
    }

    fn chance(&mut self) {
        if self.is_quiet {
            return;
        }
        let member = self.rng.random_range(0..self.hosts.len());
        let n_alive = self.hosts.iter().filter(|host| !host.is_dead).count();
        match self.rng.random_range(0..100) {
            0..25 if n_alive < 6 => drop(self.join()),
            25..45 => self.freeze(member),
            45..60 => {
                let host = &mut self.hosts[member];
                host.is_cut_off = !host.is_cut_off;
            }
            60..66 => self.hosts[member].is_dead = true,
            66..76 if !self.hosts[member].is_frozen && !self.hosts[member].is_dead => {
                self.hosts[member].works.clear();
                self.step(member, Input::Leave);
            }
            _ => {}
        }
        let wait_ms = self.rng.random_range(0..self.pause_ms_max);
        self.plan(wait_ms, Event::Chance);
    }

    fn freeze(&mut self, member: usize) {
        if !self.hosts[member].is_frozen {
            self.hosts[member].is_frozen = true;
            let ms = self.rng.random_range(1..30_000);
            self.plan(ms, Event::Thaw { member });
        }
    }

    fn thaw(&mut self, member: usize) {
        self.hosts[member].is_frozen = false;
        // What was waiting comes in the order in which it would have come.
        while let Some(event) = self.hosts[member].missed.pop_front() {
            self.handle(event);
        }
        if !self.hosts[member].is_dead {
            self.step(member, Input::Wake);
        }
    }

    fn run_until(&mut self, end_ms: u64) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end_ms {
                break;
            }
            let ((now, _), event) = entry.remove_entry();
            self.now = now;
            self.handle(event);
            self.check_safety();
        }
        self.now = end_ms;
    }

    #[track_caller]
    fn check_safety(&self) {
        let mut taken = Slots::NONE;
        for host in &self.hosts {
            let active = host.active(self.now);
            assert!((taken & active).is_empty(), "seed {}: a slot is in two hands at {} ms", self.seed, self.now);
            taken = taken | active;
        }
    }

    /// From now on, nothing goes wrong any more.
    fn settle(&mut self) {
        self.is_quiet = true;
        for member in 0..self.hosts.len() {
            self.hosts[member].is_cut_off = false;
            if self.hosts[member].is_frozen && !self.hosts[member].is_dead {
                self.thaw(member);
            }
        }
    }

    #[track_caller]
    fn check_settled(&self) {
        let alive: Vec<&Host> = self.hosts.iter().filter(|host| !host.is_dead && !host.machine.is_gone()).collect();
        let members: Vec<String> = alive.iter().map(|host| host.id.clone()).collect();
        let mut held = Slots::NONE;
        for host in &alive {
            let expected = share(&host.id, &members);
            let holds = host.may_begin(self.now);
            assert!(
                holds == expected,
                "seed {}: {} holds {holds:?} instead of {expected:?}: {:?}",
                self.seed,
                host.id,
                host.machine
            );
            held = held | holds;
        }
        assert!(held == Slots::ALL || alive.is_empty(), "seed {}: slots are in nobody's hands", self.seed);
    }

    fn schedule(seed: u64) {
        let mut world = Self::new(seed);
        for _ in 0..world.rng.random_range(1..=4) {
            world.join();
        }
        world.plan(0, Event::Work);
        let first_ms = world.rng.random_range(0..20_000);
        world.plan(first_ms, Event::Chance);
        world.run_until(CHAOS_MS);
        world.settle();
        world.run_until(CHAOS_MS + SETTLED_MS);
        world.check_settled();
        world.run_until(CHAOS_MS + SETTLED_MS + 30_000);
        world.check_settled();
    }
}

impl Host {
    fn clock(&self, now_ms: u64) -> Instant {
        self.clock_start + Duration::from_secs_f64(now_ms as f64 / 1_000.0 * self.clock_rate)
    }

    fn in_use(&self) -> Slots {
        let mut slots = Slots::NONE;
        for slot in self.works.values() {
            slots.insert(*slot);
        }
        slots
    }

    fn may_begin(&self, now_ms: u64) -> Slots {
        let is_in_time = self.permission.until.is_some_and(|until| self.clock(now_ms) < until);
        if is_in_time && !self.is_dead && !self.is_frozen { self.permission.held } else { Slots::NONE }
    }

    /// What it works on, or might any moment. One that is frozen does nothing; when it thaws, it looks at its clock first.
    fn active(&self, now_ms: u64) -> Slots {
        let is_in_time = self.permission.until.is_some_and(|until| self.clock(now_ms) < until);
        if is_in_time && !self.is_dead && !self.is_frozen { self.permission.held | self.in_use() } else { Slots::NONE }
    }
}

impl Event {
    /// Whose program has to run for it.
    fn member(&self) -> Option<usize> {
        match self {
            Self::Answer { member, .. }
            | Self::Timeout { member, .. }
            | Self::Wake { member }
            | Self::WorkEnds { member, .. } => Some(*member),
            Self::Arrive { .. } | Self::Chance | Self::Thaw { .. } | Self::Work => None,
        }
    }
}

/// How many schedules are tried: `PROPTEST_CASES`, or enough for a quick run. `STEERSMAN_SEED` tries that one alone.
fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    match number("STEERSMAN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("PROPTEST_CASES").unwrap_or(40)).collect(),
    }
}

#[test]
fn no_slot_is_ever_in_two_hands_and_once_quiet_every_slot_is_in_one() {
    for seed in seeds() {
        World::schedule(seed);
    }
}

/// A world in which nothing goes wrong and clocks differ.
fn quiet(seed: u64, n: usize) -> World {
    let mut world = World::new(seed);
    world.is_quiet = true;
    for _ in 0..n {
        world.join();
    }
    world
}

fn held(world: &World) -> Vec<Slots> {
    world.hosts.iter().map(|host| host.may_begin(world.now)).collect()
}

#[test]
fn the_first_member_works_at_once() {
    let mut world = quiet(1, 1);
    world.run_until(400);
    assert!(held(&world)[0] == Slots::ALL);
}

#[test]
fn a_newcomer_has_its_share_within_two_periods_and_nothing_else_moves() {
    for n in 1..8 {
        let mut world = quiet(n as u64, n);
        world.run_until(60_000);
        let before = held(&world);
        world.join();
        world.run_until(65_000);
        world.check_settled();
        for (before, after) in before.iter().zip(&held(&world)) {
            assert!((*after - *before).is_empty());
        }
    }
}

#[test]
fn the_slots_of_one_that_leaves_are_in_other_hands_within_two_periods() {
    let mut world = quiet(3, 4);
    world.run_until(60_000);
    let before = held(&world);
    world.step(1, Input::Leave);
    world.run_until(65_000);
    world.check_settled();
    for (member, (before, after)) in before.iter().zip(&held(&world)).enumerate() {
        assert!(member == 1 || (*before - *after).is_empty(), "those who stay lose nothing");
    }
}

#[test]
fn the_slots_of_one_that_dies_are_in_other_hands_when_its_lease_has_run_out_and_not_sooner() {
    let mut world = quiet(4, 3);
    world.run_until(60_000);
    let before = held(&world)[0];
    world.hosts[0].is_dead = true;
    world.run_until(71_000);
    assert!((held(&world)[1] & before).is_empty() && (held(&world)[2] & before).is_empty());
    world.run_until(60_000 + 23_000);
    world.check_settled();
}

#[test]
fn a_member_writes_once_in_a_period() {
    let mut world = quiet(5, 10);
    world.run_until(60_000);
    let before = world.n_writes;
    world.run_until(160_000);
    // Ten members, a hundred seconds, a period of two; a fast clock writes a tenth more often.
    let n_writes = world.n_writes - before;
    assert!((400..=550).contains(&n_writes), "{n_writes}");
}

/// A member with work on everything, and a newcomer; returns when the last work of the first on the newcomer's share ended,
/// and when the newcomer held all of it.
fn hand_over(works_end_ms: u64) -> (u64, u64) {
    let mut world = quiet(6, 1);
    world.times.handover = Duration::from_secs(10);
    world.hosts[0].machine = Member::new(world.hosts[0].id.clone(), world.times, 1, world.hosts[0].clock(0));
    world.run_until(10_000);
    for slot in 0..SLOTS {
        world.next += 1;
        let work = world.next;
        world.hosts[0].works.insert(work, slot);
        world.plan(works_end_ms, Event::WorkEnds { member: 0, work });
    }
    world.join();
    let (mut ended_ms, mut held_ms) = (None, None);
    for ms in (10_000..60_000).step_by(10) {
        world.run_until(ms);
        let members = world.hosts.iter().map(|host| host.id.clone()).collect::<Vec<_>>();
        let moves = share(&world.hosts[1].id, &members);
        if ended_ms.is_none() && (world.hosts[0].in_use() & moves).is_empty() {
            ended_ms = Some(ms);
        }
        if held_ms.is_none() && held(&world)[1] == moves {
            held_ms = Some(ms);
        }
    }
    (ended_ms.unwrap() - 10_000, held_ms.unwrap() - 10_000)
}

#[test]
fn work_that_has_begun_ends_before_its_slot_moves_and_is_not_cut_off_within_the_handover() {
    let (ended_ms, held_ms) = hand_over(8_000);
    assert!((7_990..=8_010).contains(&ended_ms), "{ended_ms}");
    assert!((8_000..=11_000).contains(&held_ms), "{held_ms}");
}

#[test]
fn work_that_does_not_end_is_cut_off_when_the_handover_is_over() {
    let (ended_ms, held_ms) = hand_over(300_000);
    // Noticed within a period, cut ten seconds later.
    assert!((9_000..=14_000).contains(&ended_ms), "{ended_ms}");
    assert!((ended_ms..=17_000).contains(&held_ms), "{held_ms}");
}
