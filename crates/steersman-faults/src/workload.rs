//! Clients that write and read a few objects at all servers, and watches of them, until they are told to stop.

use crate::client::{Client, Message};
use crate::history::{Action, Event, Listing, Operation, Outcome, State, Version, Watched};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The objects. Few, so that clients get in each other's way.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// The object that is created when all clients have stopped: a watch that has seen it has seen everything.
const END: &str = "end";
/// A watch that says nothing for so long is opened again.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// The state that all clients share.
pub(crate) struct Workload {
    pub(crate) client: Client,
    epoch: Instant,
    is_over: AtomicBool,
    n_values: AtomicU64,
    /// How often a watch had to begin anew, because the history did not reach back so far.
    pub(crate) n_gone: AtomicU64,
}

impl Workload {
    pub(crate) fn new(client: Client) -> Arc<Workload> {
        Arc::new(Workload {
            client,
            epoch: Instant::now(),
            is_over: AtomicBool::new(false),
            n_values: AtomicU64::new(0),
            n_gone: AtomicU64::new(0),
        })
    }

    /// The time of this run, as operations have it.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Clients begin no more operations.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn value(&self) -> String {
        format!("v{}", self.n_values.fetch_add(1, Ordering::SeqCst))
    }

    async fn operation(&self, server: usize, key: &str, action: Action) -> Operation {
        let began = self.epoch.elapsed();
        let outcome = self.client.carry_out(server, key, &action).await;
        Operation { began, ended: self.epoch.elapsed(), key: key.to_owned(), action, outcome, server }
    }

    /// Creates the object that marks the end, at whichever server answers, and returns its version.
    pub(crate) async fn mark_end(&self) -> anyhow::Result<(Operation, Version)> {
        for attempt in 0..60 {
            let server = attempt % self.client.n_servers();
            let operation = self.operation(server, END, Action::Create(self.value())).await;
            match &operation.outcome {
                Outcome::Done(state) => {
                    let version = state.version;
                    return Ok((operation, version));
                }
                Outcome::Conflict => {
                    let read = self.operation(server, END, Action::Get).await;
                    if let Outcome::Done(State { version, .. }) = read.outcome {
                        return Ok((operation, version));
                    }
                }
                _ => sleep(Duration::from_secs(1)).await,
            }
        }
        anyhow::bail!("no server took a write within a minute after everything was mended")
    }
}

/// A client: operations on random objects at random servers.
pub(crate) async fn work(load: Arc<Workload>, seed: u64) -> Vec<Operation> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut operations: Vec<Operation> = Vec::new();
    let mut known: Vec<Option<State>> = vec![None; KEYS.len()];
    let mut server = random.random_range(0..load.client.n_servers());
    while !load.is_over() {
        if random.random_bool(0.2) {
            server = random.random_range(0..load.client.n_servers());
        }
        let index = random.random_range(0..KEYS.len());
        let action = match (&known[index], random.random_range(0..10)) {
            (_, 0..=3) => Action::Get,
            (None, _) => Action::Create(load.value()),
            (Some(state), 4) => Action::Delete(state.clone()),
            (Some(_), 5 | 6) => Action::Patch(load.value()),
            (Some(state), _) => Action::Update(load.value(), state.version),
        };
        let operation = load.operation(server, KEYS[index], action).await;
        known[index] = match &operation.outcome {
            Outcome::Done(state) => Some(state.clone()),
            Outcome::Absent | Outcome::Deleted => None,
            // The client must read the object to learn its state.
            Outcome::Conflict => match (&operation.action, &known[index]) {
                (Action::Create(_), None) => Some(State { version: 1, value: String::new() }),
                (_, known) => known.clone(),
            },
            Outcome::Unknown => {
                server = (server + 1) % load.client.n_servers();
                known[index].clone()
            }
        };
        operations.push(operation);
        sleep(Duration::from_millis(random.random_range(1..20))).await;
    }
    operations
}

/// A client that lists everything.
pub(crate) async fn list(load: Arc<Workload>, seed: u64) -> Vec<Listing> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut listings = Vec::new();
    while !load.is_over() {
        let server = random.random_range(0..load.client.n_servers());
        let began = load.epoch.elapsed();
        if let Some((version, mut states)) = load.client.list(server).await {
            states.retain(|(key, _)| key != END);
            listings.push(Listing { began, ended: load.epoch.elapsed(), version, states, server });
        }
        sleep(Duration::from_millis(random.random_range(20..100))).await;
    }
    listings
}

/// A watch that begins after a version, moves to another server when one ends it, and ends with the version of the end.
pub(crate) async fn watch(load: Arc<Workload>, first: usize, after: Version) -> Vec<Watched> {
    let mut all = Vec::new();
    let (mut server, mut watched) = (first, Watched { after, ..Watched::default() });
    loop {
        let from = watched.events.last().map_or(watched.after, |event: &Event| event.version);
        if let Some(mut stream) = load.client.watch(server, from).await {
            loop {
                match timeout(SILENCE_MAX, stream.next()).await {
                    Ok(Some(Message::Event(event))) if event.key == END => {
                        watched.through = Some(event.version);
                        all.push(watched);
                        return all;
                    }
                    Ok(Some(Message::Event(event))) => watched.events.push(event),
                    Ok(Some(Message::Gone)) => {
                        load.n_gone.fetch_add(1, Ordering::SeqCst);
                        let Some((version, _)) = load.client.list(server).await else { break };
                        all.push(std::mem::replace(&mut watched, Watched { after: version, ..Watched::default() }));
                        break;
                    }
                    Ok(None) | Err(_) => break,
                }
            }
        }
        server = (server + 1) % load.client.n_servers();
        sleep(Duration::from_millis(50)).await;
    }
}

/// Starts clients of all kinds.
pub(crate) fn start(load: &Arc<Workload>, seed: u64, n_clients: u64, after: Version) -> Clients {
    let (mut workers, mut listers, mut watchers) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    for number in 0..n_clients {
        workers.spawn(work(load.clone(), seed ^ (number + 1)));
    }
    listers.spawn(list(load.clone(), seed));
    for server in 0..load.client.n_servers() {
        watchers.spawn(watch(load.clone(), server, after));
    }
    Clients { workers, listers, watchers }
}

/// Running clients.
pub(crate) struct Clients {
    pub(crate) workers: JoinSet<Vec<Operation>>,
    pub(crate) listers: JoinSet<Vec<Listing>>,
    pub(crate) watchers: JoinSet<Vec<Watched>>,
}
