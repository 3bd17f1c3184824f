//! Replicas, a server and a network in paused time: whatever happens, no two replicas work on one key at once, and
//! every change of an object is worked on by a leader afterwards.
//!
//! Requests are slow, are lost, or are done long after their sender gave up. Processes stop in the middle of their work
//! and go on, workers first, so that they begin as much as they can before the election runs. Leaders resign and come
//! back. The election, the fence and the queue are the real ones; the loop around them is a controller's worker in few
//! lines.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::{Method, Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::control::fence::Fence;
use crate::control::queue::{RateLimiter, WorkQueue};
use crate::leadership::election::{Election, ElectionOptions, Leadership};
use crate::shared::clock::{HostClock, SUSPENSION_CHECK};
use crate::shared::key::ObjectKey;

const REPLICAS: usize = 3;
const OBJECTS: usize = 12;
const WORKERS: usize = 3;

/// How long things go wrong, and how much later all is in order again.
const CHAOS: Duration = Duration::from_secs(120);
const SETTLED: Duration = Duration::from_secs(90);

type Shared = Arc<Mutex<Simulation>>;

struct Simulation {
    rng: StdRng,
    lease: Option<Value>,
    version: u64,
    /// The version of each object, and the version that was worked on last.
    objects: BTreeMap<ObjectKey, u64>,
    done: BTreeMap<ObjectKey, u64>,
    replicas: Vec<Replica>,
    is_quiet: bool,
    hostility: f64,
    violations: Vec<String>,
}

/// A process, as seen from outside.
#[derive(Default)]
struct Replica {
    is_frozen: bool,
    thaw: Option<Waker>,
    /// When it last thawed.
    thawed: Option<Instant>,
    leadership: Option<Arc<Leadership>>,
    queue: Option<WorkQueue<ObjectKey>>,
    /// The version of each object in its cache.
    cache: BTreeMap<ObjectKey, u64>,
    /// The keys in work. Excused keys were under way when it thawed with an expired lease.
    busy: BTreeMap<ObjectKey, Excused>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Excused {
    No,
    Yes,
}

impl Simulation {
    fn is_unlucky(&mut self) -> bool {
        let hostility = self.hostility;
        !self.is_quiet && self.rng.random_bool(hostility)
    }

    /// Mostly a moment; sometimes longer than any timeout.
    fn delay(&mut self) -> Duration {
        let ms = if self.is_unlucky() { self.rng.random_range(0..20_000) } else { self.rng.random_range(1..60) };
        Duration::from_millis(ms)
    }

    /// Carries out a request on the server.
    fn serve(&mut self, method: &Method, body: &[u8]) -> (u16, Value) {
        let status = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}))
        };
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (method, &self.lease) {
            (&Method::GET, None) | (&Method::PUT, None) => return status(404, "NotFound"),
            (&Method::GET, Some(lease)) => return (200, lease.clone()),
            (&Method::POST, Some(_)) => return status(409, "AlreadyExists"),
            _ => {}
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        if self.lease.as_ref().is_some_and(|current| version(current) != version(&lease)) {
            return status(409, "Conflict");
        }
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease.clone());
        (200, lease)
    }

    fn begin(&mut self, replica: usize, key: &ObjectKey) -> u64 {
        for (number, other) in self.replicas.iter().enumerate() {
            let is_at_work = other.busy.get(key) == Some(&Excused::No) && !other.is_frozen;
            if number != replica && is_at_work {
                self.violations.push(format!("{key} is in {number} and in {replica}"));
            }
        }
        let replica = &mut self.replicas[replica];
        replica.busy.insert(key.clone(), Excused::No);
        replica.cache.get(key).copied().unwrap_or_default()
    }

    fn end(&mut self, number: usize, key: &ObjectKey) {
        let replica = &mut self.replicas[number];
        let was_excused = replica.busy.remove(key) == Some(Excused::Yes);
        let after = replica.thawed.map(|thawed| thawed.elapsed()).unwrap_or_default();
        if was_excused && after > SUSPENSION_CHECK {
            self.violations.push(format!("{number} goes on with {key} {after:?} after it thawed"));
        }
    }

    fn set_frozen(&mut self, number: usize, is_frozen: bool) {
        let replica = &mut self.replicas[number];
        if is_frozen || !replica.is_frozen {
            replica.is_frozen |= is_frozen;
            return;
        }
        replica.is_frozen = false;
        replica.thawed = Some(Instant::now());
        if !replica.leadership.as_ref().is_some_and(|leadership| leadership.is_leading()) {
            replica.busy.values_mut().for_each(|excused| *excused = Excused::Yes);
        }
        if let Some(thaw) = replica.thaw.take() {
            thaw.wake();
        }
    }
}

/// One key in work, until it is dropped.
struct Busy<'a> {
    simulation: &'a Shared,
    replica: usize,
    key: ObjectKey,
    version: u64,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.simulation.lock().end(self.replica, &self.key);
    }
}

/// Everything that a process runs, as one future that is not polled while the process is frozen.
struct Process {
    simulation: Shared,
    number: usize,
    program: BoxFuture<'static, ()>,
}

impl Future for Process {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut simulation = self.simulation.lock();
            let replica = &mut simulation.replicas[self.number];
            if replica.is_frozen {
                replica.thaw = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        self.program.poll_unpin(cx)
    }
}

/// The connection to the server.
#[derive(Clone)]
struct Line(Shared);

impl tower::Service<Request<Body>> for Line {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let simulation = Arc::clone(&self.0);
        // On a task of its own: a request that was sent is done, even if its sender gave up.
        let answer = tokio::spawn(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (wait, is_lost) = {
                let mut simulation = simulation.lock();
                (simulation.delay(), simulation.is_unlucky())
            };
            sleep(wait).await;
            if is_lost {
                return std::future::pending().await;
            }
            let (code, answer) = simulation.lock().serve(&parts.method, &body);
            let wait = simulation.lock().delay();
            sleep(wait).await;
            let body = Full::new(bytes::Bytes::from(answer.to_string()));
            Response::builder().status(code).body(body).map_err(std::io::Error::other)
        });
        async move { answer.await.map_err(std::io::Error::other)? }.boxed()
    }
}

async fn work(simulation: Shared, number: usize, fence: Arc<dyn Fence>, queue: WorkQueue<ObjectKey>) {
    while let Some(item) = queue.get().await {
        let Some(pass) = fence.begin(item.key()) else {
            item.forget();
            continue;
        };
        let (takes, busy) = {
            let mut guard = simulation.lock();
            let version = guard.begin(number, item.key());
            let is_long = guard.is_unlucky();
            let ms = guard.rng.random_range(1..if is_long { 30_000 } else { 900 });
            let busy = Busy { simulation: &simulation, replica: number, key: item.key().clone(), version };
            (Duration::from_millis(ms), busy)
        };
        tokio::select! {
            biased;
            _ = pass.revoked() => {}
            () = sleep(takes) => {
                let mut simulation = simulation.lock();
                let done = simulation.done.entry(busy.key.clone()).or_default();
                *done = busy.version.max(*done);
            }
        }
        item.forget();
    }
}

/// Runs a process, which is started again whenever it ends.
async fn run(simulation: Shared, number: usize) {
    loop {
        let (identity, wait) = {
            let mut simulation = simulation.lock();
            (format!("r{number}-{:08x}", simulation.rng.random::<u32>()), simulation.delay())
        };
        sleep(wait).await;
        let options = ElectionOptions { identity, ..ElectionOptions::new("test", "kube-system") };
        let leadership = Arc::new(Leadership::new(&options));
        let client = Client::new(Line(Arc::clone(&simulation)), "default");
        let mut election = Election::with_leadership(client, options, Arc::clone(&leadership)).unwrap();
        let random = Arc::clone(&simulation);
        election.random = Box::new(move || random.lock().rng.random());
        election.acquire().await;
        let queue = WorkQueue::new("simulated", RateLimiter::default());
        let resigns_after = {
            let mut simulation = simulation.lock();
            let objects = simulation.objects.clone();
            objects.keys().for_each(|key| queue.add(key.clone()));
            let replica = &mut simulation.replicas[number];
            (replica.cache, replica.queue) = (objects, Some(queue.clone()));
            replica.leadership = Some(Arc::clone(&leadership));
            let resigns = simulation.is_unlucky();
            Duration::from_secs(if resigns { simulation.rng.random_range(1..40) } else { 100_000 })
        };
        let fence: Arc<dyn Fence> = Arc::new(leadership);
        let workers = (0..WORKERS).map(|_| work(Arc::clone(&simulation), number, Arc::clone(&fence), queue.clone()));
        let resigns = tokio::select! {
            biased;
            _ = join_all(workers) => false,
            () = election.hold() => false,
            () = sleep(resigns_after) => true,
        };
        if resigns {
            election.release().await;
        }
    }
}

/// Changes objects, and delivers the changes to caches late.
async fn change(simulation: Shared) {
    while !simulation.lock().is_quiet {
        let (key, version, wait) = {
            let mut guard = simulation.lock();
            let number = guard.rng.random_range(0..OBJECTS);
            let Some((key, version)) = guard.objects.iter_mut().nth(number) else { return };
            *version += 1;
            let (key, version) = (key.clone(), *version);
            (key, version, Duration::from_millis(guard.rng.random_range(0..1_500)))
        };
        for number in 0..REPLICAS {
            let (simulation, key) = (Arc::clone(&simulation), key.clone());
            let delay = Duration::from_millis(simulation.lock().rng.random_range(0..2_000));
            tokio::spawn(async move {
                sleep(delay).await;
                let replica = &mut simulation.lock().replicas[number];
                let known = replica.cache.entry(key.clone()).or_default();
                *known = version.max(*known);
                if let Some(queue) = &replica.queue {
                    queue.add(key);
                }
            });
        }
        sleep(wait).await;
    }
}

async fn freeze(simulation: Shared) {
    loop {
        let (number, wait, takes) = {
            let mut simulation = simulation.lock();
            let mut ms = |most| Duration::from_millis(simulation.rng.random_range(0..most));
            let (wait, takes) = (ms(8_000), ms(30_000));
            (simulation.rng.random_range(0..REPLICAS), wait, takes)
        };
        sleep(wait).await;
        if simulation.lock().is_quiet {
            return;
        }
        simulation.lock().set_frozen(number, true);
        let simulation = Arc::clone(&simulation);
        tokio::spawn(async move {
            sleep(takes).await;
            simulation.lock().set_frozen(number, false);
        });
    }
}

async fn schedule(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let hostility = rng.random_range(0.02..0.3);
    let objects = (0..OBJECTS).map(|number| (ObjectKey::namespaced("default", &format!("k{number}")), 1));
    let simulation = Arc::new(Mutex::new(Simulation {
        rng,
        lease: None,
        version: 0,
        objects: objects.collect(),
        done: BTreeMap::new(),
        replicas: (0..REPLICAS).map(|_| Replica::default()).collect(),
        is_quiet: false,
        hostility,
        violations: Vec::new(),
    }));
    let processes = (0..REPLICAS).map(|number| Process {
        simulation: Arc::clone(&simulation),
        number,
        program: run(Arc::clone(&simulation), number).boxed(),
    });
    let mut running: Vec<BoxFuture<'static, ()>> = processes.map(FutureExt::boxed).collect();
    running.push(change(Arc::clone(&simulation)).boxed());
    running.push(freeze(Arc::clone(&simulation)).boxed());
    let tasks: tokio::task::JoinSet<()> = running.into_iter().collect();
    sleep(CHAOS).await;
    {
        let mut simulation = simulation.lock();
        simulation.is_quiet = true;
        (0..REPLICAS).for_each(|number| simulation.set_frozen(number, false));
    }
    sleep(SETTLED).await;
    let simulation = simulation.lock();
    assert_eq!(simulation.violations, [""; 0], "seed {seed}");
    assert_eq!(simulation.done, simulation.objects, "seed {seed}: what was worked on last is not what there is");
    let is_leading = |replica: &&Replica| replica.leadership.as_ref().is_some_and(|leadership| leadership.is_leading());
    assert_eq!(simulation.replicas.iter().filter(is_leading).count(), 1, "seed {seed}: leaders");
    drop(tasks);
}

/// The seeds of the schedules: as many as `PROPTEST_CASES`, or enough for a quick run. `STEERSMAN_SEED` runs that one
/// alone.
fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    match number("STEERSMAN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("PROPTEST_CASES").unwrap_or(40)).collect(),
    }
}

fn in_paused_time(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future);
}

#[test]
fn no_key_is_ever_in_two_hands_and_once_quiet_every_change_is_done_by_the_only_leader() {
    for seed in seeds() {
        in_paused_time(schedule(seed));
    }
}

#[test]
fn a_leader_whose_host_was_suspended_hears_of_it_within_a_second() {
    in_paused_time(async {
        let simulation = Arc::new(Mutex::new(Simulation {
            rng: StdRng::seed_from_u64(1),
            lease: None,
            version: 0,
            objects: BTreeMap::new(),
            done: BTreeMap::new(),
            replicas: Vec::new(),
            is_quiet: true,
            hostility: 0.5,
            violations: Vec::new(),
        }));
        let suspended = Arc::<Mutex<Duration>>::default();
        let options = ElectionOptions::new("test", "kube-system");
        let leadership = Arc::new(Leadership::with_clock(&options, HostClock::suspended(&suspended)));
        let client = Client::new(Line(simulation), "default");
        let mut election = Election::with_leadership(client, options, leadership).unwrap();
        election.acquire().await;
        assert!(tokio::time::timeout(Duration::from_secs(60), election.hold()).await.is_err());
        let resumed = Instant::now();
        *suspended.lock() = Duration::from_secs(3_600);
        election.hold().await;
        assert!(resumed.elapsed() <= SUSPENSION_CHECK, "{:?}", resumed.elapsed());
    });
}
