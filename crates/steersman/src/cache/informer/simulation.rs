//! A server, a cache, handlers and workers, in an order that a seed decides: every state that a reader could see in the
//! cache reaches a reconcile of every owner concerned, after it appeared and again after it went. That includes objects
//! deleted while the controller stood by.
//!
//!
//! The cache, the mailboxes, a controller's handlers and its queue are the real ones. Simulated are the server, the
//! watch with its faults (cut, expired, relisted to any state since), and the order in which tasks run: a handler may
//! be asleep while hundreds of changes come. `tests/it/converge.rs` tests the real reflector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::de::Error;

use crate::cache::factory::InformerFactory;
use crate::cache::handler::Event;
use crate::cache::informer::task::{Shared, Unserved};
use crate::cache::outcome::Outcome;
use crate::control::controller::{Controller, Prepared};
use crate::control::predicates;
use crate::control::queue::WorkQueue;
use crate::control::reconcile::Action;
use crate::list_watch::delta::{Delta, Entry};
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::Scope;

/// The number of names: few, so that changes meet on one object.
const NAMES: u64 = 6;
/// The number of owners: many, because each is to be forgotten once at most, and not to run later for another reason.
const OWNERS: u64 = 100;
/// The most steps in which something happens, before everything calms down.
const STEPS_MAX: usize = 60;
/// How many events a handler's task takes at once; the real one takes more.
const SERVED_MAX: usize = 3;

/// A state of an object at the server.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct State {
    name: u64,
    uid: u64,
    version: u64,
    generation: i64,
    owner: u64,
    is_broken: bool,
}

/// A change at the server: the state after it, and whether it is the deletion.
#[derive(Clone, Debug)]
struct Happened {
    state: State,
    is_deletion: bool,
}

struct Simulation {
    seed: u64,
    rng: StdRng,
    /// A counter that orders all events that matter.
    now: u64,
    /// The states of the server, by version. The newest is the current one.
    history: Vec<(u64, BTreeMap<u64, State>)>,
    log: Vec<(u64, Happened)>,
    /// The oldest version from which a watch can go on.
    oldest: u64,
    /// The version up to which the watch has read; `None`: a list is due.
    cursor: Option<u64>,
    /// The newest version that any list or watch has shown.
    reached: u64,
    deltas: Vec<Delta<ConfigMap>>,
    informer: Arc<Shared<ConfigMap>>,
    handlers: Vec<Unserved<ConfigMap>>,
    /// How likely each handler is to run, in percent.
    pace: Vec<u32>,
    queue: WorkQueue<ObjectKey>,
    /// The states in the cache, with the time at which each appeared.
    shown: BTreeMap<State, u64>,
    /// The keys that must run, each with the time after which.
    due: BTreeMap<ObjectKey, u64>,
    runs: BTreeMap<ObjectKey, u64>,
    /// Stands by until it is made to work. Keeps the handlers registered.
    controller: Prepared,
}

fn name_of(state: &State) -> String {
    format!("x{}", state.name)
}

fn object(state: &State) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("a".to_owned());
    object.metadata.name = Some(name_of(state));
    object.metadata.uid = Some(state.uid.to_string());
    object.metadata.resource_version = Some(state.version.to_string());
    object.metadata.generation = Some(state.generation);
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: format!("owner{}", state.owner),
        uid: "owner".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    object.data = Some(BTreeMap::from([("owner".to_owned(), state.owner.to_string())]));
    object
}

fn mapped(object: &ConfigMap) -> Vec<ObjectKey> {
    vec![ObjectKey::namespaced("mapped", &object.data.as_ref().expect("every object has data")["owner"])]
}

fn entry(state: &State) -> Result<Entry<ConfigMap>, Arc<DecodeError>> {
    let key = ObjectKey::namespaced("a", &name_of(state));
    if !state.is_broken {
        return Ok(Entry { key, object: Arc::new(object(state)).into() });
    }
    Err(Arc::new(DecodeError {
        resource: "configmaps".to_owned(),
        key: Some(key),
        resource_version: state.version.to_string(),
        source: serde_json::Error::custom("broken"),
    }))
}

/// The state that a cached object was made from.
fn state(object: &ConfigMap) -> State {
    let meta = &object.metadata;
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).expect("the simulation wrote a number");
    State {
        name: number(meta.name.as_deref().map(|name| &name[1..])),
        uid: number(meta.uid.as_deref()),
        version: number(meta.resource_version.as_deref()),
        generation: meta.generation.unwrap_or_default(),
        owner: number(object.data.as_ref().map(|data| data["owner"].as_str())),
        is_broken: false,
    }
}

async fn reconcile(_: ObjectKey, _: &()) -> Result<Action, std::convert::Infallible> {
    Ok(Action::AwaitChange)
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
            futures::future::ready(Err::<http::Response<kube::client::Body>, _>(std::io::Error::other(
                "nobody is there",
            )))
        });
        let factory = InformerFactory::new(Client::new(nobody, "default"));
        let informer = factory.informer::<ConfigMap>(Scope::All).shared();
        let controller = Controller::<ConfigMap>::new(reconcile, ())
            .when(predicates::generation_changed())
            .owns::<ConfigMap>()
            .watches(Scope::All, mapped);
        let queue = controller.queue();
        let controller = controller.prepare(&factory, Vec::new());
        let handlers: Vec<_> = {
            let mut handlers = informer.handlers.lock();
            let bound = rng.random_range(1..6);
            for registered in &handlers.present {
                registered.mailbox.set_excess_max(bound);
            }
            std::mem::take(&mut handlers.waiting)
        };
        let pace = handlers.iter().map(|_| [2, 20, 80][rng.random_range(0..3)]).collect();
        Self {
            seed,
            rng,
            now: 0,
            history: vec![(0, BTreeMap::new())],
            log: Vec::new(),
            oldest: 0,
            cursor: None,
            reached: 0,
            deltas: Vec::new(),
            informer,
            handlers,
            pace,
            queue,
            shown: BTreeMap::new(),
            due: BTreeMap::new(),
            runs: BTreeMap::new(),
            controller,
        }
    }

    // --- the server

    fn version(&self) -> u64 {
        self.history.last().map_or(0, |(version, _)| *version)
    }

    fn change(&mut self) {
        let version = self.version() + 1;
        let mut objects = self.history.last().map(|(_, objects)| objects.clone()).unwrap_or_default();
        let name = self.rng.random_range(0..NAMES);
        let (owner, is_broken) = (self.rng.random_range(0..OWNERS), self.rng.random_ratio(1, 8));
        let happened = match objects.remove(&name) {
            None => Happened {
                state: State { name, uid: version, version, generation: 1, owner, is_broken },
                is_deletion: false,
            },
            Some(known) if self.rng.random_ratio(1, 3) => {
                // The last state may be decodable again.
                Happened {
                    state: State { version, is_broken: known.is_broken && is_broken, ..known },
                    is_deletion: true,
                }
            }
            Some(known) => {
                let generation = known.generation + i64::from(self.rng.random_ratio(1, 2));
                let owner = if self.rng.random_ratio(1, 2) { owner } else { known.owner };
                Happened { state: State { version, generation, owner, is_broken, ..known }, is_deletion: false }
            }
        };
        if !happened.is_deletion {
            objects.insert(name, happened.state.clone());
        }
        self.history.push((version, objects));
        self.log.push((version, happened));
    }

    // --- the watch

    /// Reads up to `n` events, or lists if it must.
    fn watch(&mut self, n: usize) {
        let Some(cursor) = self.cursor.filter(|cursor| *cursor >= self.oldest) else { return self.list() };
        let news: Vec<(u64, Happened)> = self.log.iter().filter(|(at, _)| *at > cursor).take(n).cloned().collect();
        for (version, Happened { state, is_deletion }) in news {
            self.cursor = Some(version);
            self.reached = version;
            let delta = match (entry(&state), is_deletion) {
                (Ok(entry), false) => Delta::Modified(entry),
                (Ok(Entry { key, object }), true) => Delta::Deleted { key, object: Some(object) },
                (Err(error), false) => Delta::Undecodable(error),
                (Err(error), true) => {
                    let key = error.key.clone().expect("every object here has a name");
                    Delta::Deleted { key, object: None }
                }
            };
            self.deltas.push(delta);
        }
    }

    /// Lists a state that is not older than any that was shown. A list may break off: the next one begins anew.
    fn list(&mut self) {
        let version = self.rng.random_range(self.reached..=self.version()).max(self.oldest);
        let (_, objects) = &self.history[usize::try_from(version).expect("versions are few")];
        let mut deltas: Vec<Delta<ConfigMap>> =
            objects.values().map(|state| entry(state).map_or_else(Delta::Undecodable, Delta::Added)).collect();
        deltas.shuffle(&mut self.rng);
        self.deltas.push(Delta::ListBegun { scope: Scope::All });
        self.reached = version;
        if self.rng.random_ratio(1, 4) {
            let kept = self.rng.random_range(0..=deltas.len());
            self.deltas.extend(deltas.drain(..kept));
            self.cursor = None;
            return;
        }
        self.deltas.extend(deltas);
        self.deltas.push(Delta::ListEnded { scope: Scope::All, resource_version: version.to_string() });
        self.cursor = Some(version);
    }

    // --- the informer

    /// Applies up to `n` deltas, unless a handler is too far behind.
    fn apply(&mut self, n: usize) {
        let is_full = self.handlers.iter().any(|(_, mailbox)| mailbox.is_full());
        if is_full || self.deltas.is_empty() {
            return;
        }
        let (mut batch, mut outcomes) = (self.deltas.drain(..n.min(self.deltas.len())).collect::<Vec<_>>(), Vec::new());
        let n_waiting_max = self.n_waiting_max(&batch);
        self.informer.distribute(&mut batch, &mut outcomes);
        self.now += 1;
        self.see();
        for (_, mailbox) in &self.handlers {
            let n_waiting = mailbox.n_waiting();
            assert!(n_waiting <= n_waiting_max, "seed {}: {n_waiting} events wait, not {n_waiting_max}", self.seed);
        }
    }

    /// The most events that may wait for a handler after `batch`: the bound, an event for each object, and the changes
    /// of the batch.
    fn n_waiting_max(&self, batch: &[Delta<ConfigMap>]) -> usize {
        let names = usize::try_from(NAMES).expect("names are few");
        let of_batch = batch.iter().map(|delta| match delta {
            // Objects that the list does not name are deleted, and the end of the first list is an event of its own.
            Delta::ListEnded { .. } => names + 1,
            // The known object may be deleted and made again, or a state behind an undecodable one may end.
            _ => 2,
        });
        6 + names + of_batch.sum::<usize>()
    }

    /// Compares the states in the cache with those before.
    fn see(&mut self) {
        let present: BTreeSet<State> = self.informer.indexer.list().iter().map(|object| state(object)).collect();
        let gone: Vec<State> = self.shown.keys().filter(|state| !present.contains(state)).cloned().collect();
        let came: Vec<State> = present.into_iter().filter(|state| !self.shown.contains_key(state)).collect();
        let is_same_generation = |a: &State, b: &State| (a.name, a.uid, a.generation) == (b.name, b.uid, b.generation);
        for (states, others) in [(&gone, &came), (&came, &gone)] {
            for state in states {
                let mut concerned = mapped(&object(state));
                concerned.push(ObjectKey::namespaced("a", &format!("owner{}", state.owner)));
                if !others.iter().any(|other| is_same_generation(state, other)) {
                    concerned.push(ObjectKey::namespaced("a", &name_of(state)));
                }
                for key in concerned {
                    self.due.insert(key, self.now);
                }
            }
        }
        for state in gone {
            self.shown.remove(&state);
        }
        for state in came {
            self.shown.insert(state, self.now);
        }
    }

    /// A handler's task gets to run.
    fn serve(&mut self, number: usize) {
        let (handler, mailbox) = &mut self.handlers[number];
        let mut batch = Vec::new();
        mailbox.pop_at_most(SERVED_MAX, &mut batch);
        for outcome in batch {
            if matches!(outcome, Outcome::Filled) {
                continue;
            }
            handler.on_event(&Event::new(&outcome, self.informer.indexer.decoder()));
        }
    }

    // --- the workers

    fn work(&mut self) -> bool {
        // Runs outside the cooperative budget of a task, which a schedule would soon exhaust.
        let Some(Some(item)) = tokio::task::unconstrained(self.queue.get()).now_or_never() else { return false };
        self.now += 1;
        self.runs.insert(item.key().clone(), self.now);
        item.forget();
        true
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..25 => (0..self.rng.random_range(1..8)).for_each(|_| self.change()),
            25..45 => {
                let n = self.rng.random_range(1..20);
                self.watch(n);
            }
            45..48 => self.cursor = None,
            48..51 => self.oldest = self.version(),
            51..71 => {
                let n = self.rng.random_range(1..6);
                self.apply(n);
            }
            // Often empties the queue, so that a later run has a reason of its own.
            71..86 => {
                let n = if self.rng.random_ratio(1, 2) { 2 } else { usize::MAX };
                (0..n).take_while(|_| self.work()).for_each(drop);
            }
            _ => {}
        }
        for number in 0..self.handlers.len() {
            if self.rng.random_ratio(self.pace[number], 100) {
                self.serve(number);
            }
        }
    }

    /// Nothing more goes wrong, and every task runs until nothing is left to do.
    fn calm(&mut self) {
        while self.cursor != Some(self.version()) {
            self.watch(usize::MAX);
        }
        loop {
            self.apply(usize::MAX);
            for number in 0..self.handlers.len() {
                self.serve(number);
            }
            let is_served = self.handlers.iter().all(|(_, mailbox)| mailbox.n_waiting() == 0);
            if !self.work() && is_served && self.deltas.is_empty() {
                return;
            }
        }
    }

    fn check(&self) {
        for (key, due) in &self.due {
            let ran = self.runs.get(key).copied().unwrap_or_default();
            assert!(
                ran > *due,
                "seed {}: {key} last ran at {ran}, and is concerned by what happened at {due}",
                self.seed
            );
        }
        let server: BTreeSet<&State> =
            self.history.last().expect("there is a first state").1.values().filter(|state| !state.is_broken).collect();
        let cached: BTreeSet<&State> = self.shown.keys().collect();
        assert!(server.is_subset(&cached), "seed {}: the cache has {cached:?}, not {server:?}", self.seed);
    }
}

/// The seeds of the schedules: as many as `PROPTEST_CASES`, 10,000 in a long run, or enough for a quick one.
/// `STEERSMAN_SEED` runs that one alone.
fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    let n_default = if std::env::var_os("STEERSMAN_LONG").is_some() { 10_000 } else { 500 };
    match number("STEERSMAN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("PROPTEST_CASES").unwrap_or(n_default).max(n_default)).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_state_that_the_cache_showed_reaches_a_reconcile_afterwards() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed);
        let n_steps = simulation.rng.random_range(5..STEPS_MAX);
        // Half of the controllers work from the beginning.
        let works_from = simulation.rng.random_range(0..2 * n_steps).saturating_sub(n_steps);
        for step in 0..n_steps {
            if step == works_from {
                assert!(simulation.queue.is_empty(), "seed {seed}: keys wait for a controller that stands by");
                simulation.controller.standby.end().await;
            }
            simulation.step();
        }
        simulation.calm();
        simulation.check();
    }
}

/// The schedules are worth something only if handlers fall behind.
#[tokio::test(start_paused = true)]
async fn the_schedules_reach_the_bounds_of_mailboxes() {
    let mut n_full = 0;
    for seed in 0..50 {
        let mut simulation = Simulation::new(seed);
        simulation.controller.standby.end().await;
        for _ in 0..STEPS_MAX {
            simulation.step();
            n_full += usize::from(simulation.handlers.iter().any(|(_, mailbox)| mailbox.is_full()));
        }
    }
    assert!(n_full > 500, "{n_full} of {} steps", 50 * STEPS_MAX);
}
