//! Many candidates for one lease, on a bad network: never two leaders at once.
//!
//! Requests are slow, are lost, or are done long after their sender gave up; candidates freeze, die, resign and come
//! back.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use steersman::election::{Election, ElectionOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::Service;

use crate::server::Server;

/// The state that all candidates share.
struct Contest {
    seed: u64,
    rng: StdRng,
    /// The probability that one thing goes wrong.
    hostility: f64,
    candidates: BTreeMap<usize, Candidate>,
    n_terms: usize,
}

#[derive(Default)]
struct Candidate {
    is_leading: bool,
    is_frozen: bool,
    /// Its next step is the first since it was frozen.
    is_thawing: bool,
    /// Woken by the thaw.
    waker: Option<Waker>,
}

type Shared = Arc<Mutex<Contest>>;

/// The connection to the server, with its delays and losses. A request that was sent arrives even if its sender gave
/// up.
#[derive(Clone)]
struct Network {
    server: Server,
    contest: Shared,
}

/// A process that can be frozen.
struct Process {
    number: usize,
    contest: Shared,
    main: BoxFuture<'static, ()>,
}

impl Candidate {
    fn thaw(&mut self) {
        self.is_thawing = self.is_frozen;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Contest {
    fn is_unlucky(&mut self) -> bool {
        self.rng.random_bool(self.hostility)
    }

    fn delay(&mut self) -> Duration {
        let ms_max = if self.is_unlucky() { 20_000 } else { 60 };
        Duration::from_millis(self.rng.random_range(0..ms_max))
    }

    fn set_leading(&mut self, number: usize, is_leading: bool) {
        if let Some(candidate) = self.candidates.get_mut(&number) {
            candidate.is_leading = is_leading;
        }
        self.n_terms += usize::from(is_leading);
        self.check();
    }

    /// Checks that at most one candidate works. A frozen one does nothing; when it thaws, it looks at its clock first.
    fn check(&self) {
        let at_work = self.candidates.iter().filter(|(_, candidate)| candidate.is_leading && !candidate.is_frozen);
        let at_work: Vec<usize> = at_work.map(|(number, _)| *number).collect();
        assert!(at_work.len() < 2, "seed {}: all of {at_work:?} lead", self.seed);
    }
}

impl Service<Request<Body>> for Network {
    type Response = <Server as Service<Request<Body>>>::Response;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (there, back, is_lost, is_unanswered) = {
            let mut contest = self.contest.lock();
            (contest.delay(), contest.delay(), contest.is_unlucky(), contest.is_unlucky())
        };
        let mut server = self.server.clone();
        let (sender, answer) = oneshot::channel();
        tokio::spawn(async move {
            sleep(there).await;
            if is_lost {
                return;
            }
            let answer = server.call(request).await;
            sleep(back).await;
            if !is_unanswered {
                // The receiver may be gone.
                drop(sender.send(answer));
            }
        });
        async move {
            match answer.await {
                Ok(answer) => answer,
                // The request is lost, and its sender never learns of it.
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

impl Future for Process {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let number = self.number;
        if let Some(candidate) = self.contest.lock().candidates.get_mut(&number) {
            candidate.waker = Some(cx.waker().clone());
            if candidate.is_frozen && !candidate.is_thawing {
                return Poll::Pending;
            }
            // The check below sees the candidate as it is after this step.
            (candidate.is_frozen, candidate.is_thawing) = (false, false);
        }
        let polled = self.main.as_mut().poll(cx);
        self.contest.lock().check();
        polled
    }
}

fn start(server: &Server, contest: &Shared, number: usize) -> JoinHandle<()> {
    contest.lock().candidates.insert(number, Candidate::default());
    let client = Client::new(Network { server: server.clone(), contest: Arc::clone(contest) }, "default");
    let options = ElectionOptions::new("test", "kube-system").identity(format!("candidate-{number}"));
    let shared = Arc::clone(contest);
    let main = async move {
        let mut election = Election::new(client, options).expect("the default times are sound");
        loop {
            election.acquire().await;
            shared.lock().set_leading(number, true);
            let term = Duration::from_secs(shared.lock().rng.random_range(1..120));
            let held = timeout(term, election.hold()).await;
            shared.lock().set_leading(number, false);
            if held.is_err() {
                election.release().await;
            }
        }
    };
    tokio::spawn(Process { number, contest: Arc::clone(contest), main: main.boxed() })
}

/// Lets one candidate freeze, thaw or die.
fn strike(server: &Server, contest: &Shared, tasks: &mut BTreeMap<usize, JoinHandle<()>>, next: &mut usize) {
    let mut guard = contest.lock();
    let numbers: Vec<usize> = tasks.keys().copied().collect();
    let number = numbers[guard.rng.random_range(0..numbers.len())];
    match guard.rng.random_range(0..10) {
        0..6 => {
            let Some(candidate) = guard.candidates.get_mut(&number) else { return };
            if candidate.is_frozen {
                candidate.thaw();
            } else {
                candidate.is_frozen = true;
            }
        }
        6 => {
            guard.candidates.remove(&number);
            drop(guard);
            if let Some(task) = tasks.remove(&number) {
                task.abort();
            }
            tasks.insert(*next, start(server, contest, *next));
            *next += 1;
        }
        _ => {}
    }
}

async fn schedule(seed: u64) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let (n, hostility) = (rng.random_range(2..=5), rng.random_range(0.0..0.25));
    let contest = Contest { seed, rng, hostility, candidates: BTreeMap::new(), n_terms: 0 };
    let (server, contest) = (Server::new(), Arc::new(Mutex::new(contest)));
    let mut tasks: BTreeMap<usize, JoinHandle<()>> =
        (0..n).map(|number| (number, start(&server, &contest, number))).collect();
    let mut next = n;
    for _ in 0..60 {
        let wait = Duration::from_millis(contest.lock().rng.random_range(0..10_000));
        sleep(wait).await;
        strike(&server, &contest, &mut tasks, &mut next);
        for task in tasks.values_mut() {
            if let Some(ended) = task.now_or_never() {
                ended.unwrap();
            }
        }
    }
    // Once it is quiet, a candidate leads, for as long as it is willing.
    {
        let mut contest = contest.lock();
        contest.hostility = 0.0;
        for candidate in contest.candidates.values_mut() {
            candidate.thaw();
        }
    }
    let n_terms = contest.lock().n_terms;
    sleep(Duration::from_secs(200)).await;
    assert!(contest.lock().n_terms > n_terms, "seed {seed}: nobody leads");
    for (_, task) in tasks {
        task.abort();
    }
    n_terms
}

/// The seeds of the schedules: as many as `PROPTEST_CASES`, or enough for a quick run. `STEERSMAN_SEED` runs that one
/// alone.
fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    match number("STEERSMAN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("PROPTEST_CASES").unwrap_or(20)).collect(),
    }
}

#[test]
fn there_are_never_two_leaders_at_once_and_soon_one_when_all_is_well() {
    let mut n_terms = 0;
    for seed in seeds() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        n_terms += runtime.block_on(schedule(seed));
    }
    assert!(n_terms >= seeds().len(), "leaders came and went: {n_terms} terms");
}
