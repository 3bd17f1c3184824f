//! Two users with few rights attack the built server while another client reads: every request is answered, no client
//! is kept from reading, and the process stays within its bounds. Times are measured by `cargo xtask bench hostile`,
//! not here.

mod attacks;
mod watches;

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use steersman_hostile::attack::{self, Results};
use steersman_hostile::client::{Connection, Outcome, Protocol, Request, Target};
use steersman_hostile::process::Process;
use steersman_hostile::report::{self, GROWN_MB};
use steersman_hostile::requests::{self, Material};
use steersman_hostile::schema::{self, List};
use steersman_hostile::stage::{self, ADMIN, USERS};

use crate::support::plane::Plane;

/// The generator's seed in a short run.
const SEED: u64 = 20;
/// Requests of each kind and user in a long run.
const LONG_EACH: usize = 10;

/// A server under attack.
pub(crate) struct Attacked {
    plane: Plane,
    pub(crate) target: Target,
    pub(crate) server: Process,
}

impl Attacked {
    pub(crate) fn start(home: &Path) -> Attacked {
        let tokens = home.join("tokens.csv");
        std::fs::write(&tokens, stage::tokens()).unwrap();
        let plane = Plane::server(home, &["--token-auth-file", &tokens.to_string_lossy(), "--controllers=-*"]);
        let target = Target::new(plane.listen(), &home.join("data/pki/ca.crt")).unwrap();
        let server = Process(plane.process.id());
        Attacked { plane, target, server }
    }

    pub(crate) fn admin(&self) -> Connection {
        self.target.user(ADMIN, Protocol::Http1)
    }

    pub(crate) fn user(&self) -> Connection {
        self.target.user(USERS[0].1, Protocol::Http1)
    }

    /// Stops the server, which must not have panicked and must end cleanly.
    pub(crate) fn stop(self) {
        self.plane.stop();
    }
}

fn material(lists: &[List], user: usize, seed: u64) -> Material<'_> {
    Material { lists, namespace: USERS[user].0, rng: StdRng::seed_from_u64(seed) }
}

#[track_caller]
pub(crate) fn check(results: &Results) {
    let faults = results.faults();
    assert!(faults.is_empty(), "{}\n{}", faults.join("\n"), report::families(results));
    let grown = results.grown_mb();
    assert!(grown < GROWN_MB, "the server took {grown:.0} MB more\n{}", report::families(results));
    assert!(!results.reads.is_empty());
}

/// The answer to a request that the server must refuse.
#[track_caller]
pub(crate) fn refusal(outcome: &Outcome) -> (u16, String) {
    let answer = outcome.answer.as_ref().unwrap_or_else(|error| panic!("no answer: {error}"));
    assert!(answer.status >= 400, "it is granted: {}", answer.said());
    (answer.status, answer.said())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_requests_are_answered_while_others_read_and_take_bounded_memory() {
    let is_long = std::env::var_os("STEERSMAN_LONG").is_some();
    let (n_each, seed) = if is_long { (LONG_EACH, rand::rng().random_range(0..1_000_000)) } else { (1, SEED) };
    eprintln!("seed {seed}");
    let home = tempfile::tempdir().unwrap();
    let attacked = Attacked::start(home.path());
    let mut admin = attacked.admin();
    stage::set(&mut admin).await.unwrap();
    let lists = schema::lists(&mut admin).await.unwrap();
    assert!(lists.len() > 100, "{} lists in the schemas", lists.len());
    let mut sent = Vec::new();
    for user in 0..USERS.len() {
        let made = requests::all(&mut material(&lists, user, seed + user as u64), n_each);
        // In a short run each user sends a part of the kinds.
        let mine = made.into_iter().enumerate().filter(|(index, _)| is_long || index % USERS.len() == user);
        sent.extend(mine.map(|(_, request)| (user, request)));
    }
    let results = attack::run(&attacked.target, attacked.server, sent).await.unwrap();
    check(&results);
    let metrics = String::from_utf8(admin.ok(&Request::get("/metrics")).await.unwrap()).unwrap();
    assert!(metrics.contains("\napiserver_request_panics_total 0\n"), "a request has made the code panic");
    attacked.stop();
}
