//! A session against a model of Envoy, in random orders from a seed: views change, messages are late or lost with their stream, versions are
//! rejected, endpoints come late. Two facts must hold: no route or listener that is in force refers to a cluster that does not serve, unless
//! the session has said that it sent it too early; and in the end the proxy has what it should have.

mod envoy;
pub(crate) mod views;

use crate::report::Variant;
use crate::session::model::envoy::Envoy;
use crate::session::model::views::Views;
use crate::session::{Now, Request, Session};
use crate::transport::Response;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Random numbers of a seed (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A session, a proxy, and what is on the way between them.
struct World {
    random: Random,
    variant: Variant,
    start: Instant,
    elapsed: Duration,
    views: Views,
    session: Session,
    envoy: Envoy,
    to_envoy: VecDeque<Response>,
    to_session: VecDeque<Request>,
    log: Vec<String>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let variant = if random.one_in(3) { Variant::StateOfTheWorld } else { Variant::Delta };
        let views = Views::new(&mut random);
        let envoy = Envoy::new(variant, &mut random);
        let mut world = World {
            random,
            variant,
            start: tokio::time::Instant::now().into_std(),
            elapsed: Duration::ZERO,
            views,
            session: Session::new(variant),
            envoy,
            to_envoy: VecDeque::new(),
            to_session: VecDeque::new(),
            log: Vec::new(),
        };
        world.connect();
        world
    }

    fn now(&self) -> Now {
        Now { instant: self.start + self.elapsed, time: SystemTime::UNIX_EPOCH + self.elapsed }
    }

    fn note(&mut self, text: String) {
        self.log.push(format!("{:>6} ms  {text}", self.elapsed.as_millis()));
    }

    /// A new stream: what was on the way is lost.
    fn connect(&mut self) {
        self.note("connect".to_owned());
        self.to_envoy.clear();
        self.to_session.clear();
        self.session = Session::new(self.variant);
        if !self.random.one_in(4) {
            self.session.wanted(self.views.current());
        }
        self.to_session.extend(self.envoy.connect(&mut self.random));
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..7 => self.deliver_to_session(),
            7..14 => self.deliver_to_envoy(),
            14..16 => {
                self.views.change(&mut self.random);
                let view = self.views.current();
                self.note(format!("view {}", views::words(&view)));
                self.session.wanted(view);
            }
            16 => {
                let requests = self.envoy.flush();
                self.to_session.extend(requests);
            }
            17 if self.random.one_in(4) => self.connect(),
            18 if self.random.one_in(3) => {
                let milliseconds = 1 + self.random.below(1600);
                self.pass(Duration::from_millis(milliseconds));
            }
            _ => {
                let milliseconds = 1 + self.random.below(50);
                self.pass(Duration::from_millis(milliseconds));
            }
        }
        self.check();
    }

    fn pass(&mut self, time: Duration) {
        self.elapsed += time;
        let requests = self.envoy.pass_time(self.elapsed);
        self.to_session.extend(requests);
    }

    fn deliver_to_session(&mut self) {
        if let Some(request) = self.to_session.pop_front() {
            self.note(format!("request {request:?}"));
            let now = self.now();
            self.session.request(now, request, 100).unwrap();
        }
        // A slow proxy takes responses now and then.
        while self.random.below(4) > 0 {
            let now = self.now();
            let Some(response) = self.session.next(now) else { break };
            self.note(format!("response {}", words(&response)));
            for hurried in self.session.hurried().iter() {
                self.envoy.excuse(&hurried.resource);
            }
            self.to_envoy.push_back(response);
        }
    }

    fn deliver_to_envoy(&mut self) {
        if let Some(response) = self.to_envoy.pop_front() {
            self.note(format!("arrives {}", words(&response)));
            let requests = self.envoy.receive(&response, self.elapsed, &mut self.random);
            self.to_session.extend(requests);
        }
    }

    #[track_caller]
    fn check(&mut self) {
        if let Some(fault) = self.envoy.fault() {
            self.fail(&fault);
        }
    }

    #[track_caller]
    fn fail(&self, fault: &str) -> ! {
        let from = self.log.len().saturating_sub(60);
        panic!("{fault}\n{}", self.log[from..].join("\n"));
    }

    /// Nothing changes any more, and messages arrive.
    fn converge(&mut self) {
        self.views.make_good();
        let view = self.views.current();
        self.note(format!("last view {}", views::words(&view)));
        self.session.wanted(view.clone());
        let mut idle = 0;
        for _ in 0..2000 {
            let before = self.log.len();
            self.deliver_to_session();
            self.deliver_to_envoy();
            let requests = self.envoy.flush();
            self.to_session.extend(requests);
            self.check();
            let is_quiet = self.log.len() == before && self.to_session.is_empty() && self.to_envoy.is_empty();
            idle = if is_quiet { idle + 1 } else { 0 };
            if idle > 10 {
                if self.session.settled().is_some_and(|settled| Arc::ptr_eq(settled, &view)) && !self.envoy.is_warming()
                {
                    break;
                }
                self.pass(Duration::from_millis(500));
            }
        }
        if !self.session.settled().is_some_and(|settled| Arc::ptr_eq(settled, &view)) {
            self.fail(&format!("not settled: {:#?}", self.session));
        }
        if let Some(difference) = self.envoy.difference(&view) {
            self.fail(&format!("not the view: {difference}"));
        }
        assert!(self.session.rejections().is_empty(), "the last view has nothing bad");
        for report in self.session.resources() {
            let wanted = report.wanted.map(|version| version.to_string());
            assert_eq!(report.in_force, wanted, "{report:?}");
            assert!(report.sent.is_none(), "{report:?}");
        }
    }
}

fn words(response: &Response) -> String {
    let resources: Vec<_> = response.resources.iter().map(|resource| views::word(resource)).collect();
    format!("{} {} {resources:?} removed {:?}", response.nonce, response.kind, response.removed)
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..200 + world.random.below(200) {
        world.step();
    }
    world.converge();
    // And once more over a new stream, at which everything is there already.
    world.connect();
    world.converge();
}

/// Prints the seed of a failure, so that `STEERSMAN_XDS_SEED` repeats it.
fn run_all(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        if outcome.is_err() {
            panic!("seed {seed}: see above; STEERSMAN_XDS_SEED={seed} repeats it");
        }
    }
}

#[test]
fn no_order_of_events_makes_a_route_to_a_cluster_that_does_not_serve() {
    if let Some(seed) = std::env::var("STEERSMAN_XDS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run_all(std::iter::once(seed));
    }
    let is_long = std::env::var("STEERSMAN_LONG").is_ok_and(|long| long == "1");
    run_all(0..if is_long { 10_000 } else { 200 });
}
