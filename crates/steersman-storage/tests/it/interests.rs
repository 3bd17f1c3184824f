//! Watchers that are not woken by events of others, against a model: every watcher that an event concerns is woken, no
//! other is; none loses an event, and none is cut off because history has dropped events of others.
//!
//! A watcher is polled only when it was woken, as in a runtime, so a lost wake-up shows as a missing event.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use steersman_machinery::{Draft, GroupResource, Header, ObjectKey, Revision, Value};
use steersman_storage::kv::Kv;
use steersman_storage::{Disk, Event, Interest, Limits, Memory, Options, Scope, Store, WatchError, Watcher};

const N_STEPS: usize = 160;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const NAMESPACES: [&str; 2] = ["x", "y"];
const TEXTS: [&str; 3] = ["1", "2", "3"];

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Next = Pin<Box<dyn Future<Output = (Watcher, Result<Vec<Arc<Event>>, WatchError>)>>>;

/// A watcher with its task.
struct Task {
    after: Revision,
    interest: Interest,
    is_cut_off: bool,
    next: Option<Next>,
    scope: Scope,
    seen: Vec<Revision>,
    woken: Arc<Flag>,
}

/// The field and the label of an object.
type Shown = (Option<String>, Option<String>);

/// The watchers that a change concerns: by its key, and by the fields and labels before and after. `None` if there was
/// no object, or no field in its header.
struct Change {
    revision: Revision,
    key: ObjectKey,
    states: Vec<Shown>,
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn next(mut watcher: Watcher, n_events: usize) -> Next {
    Box::pin(async move {
        let events = watcher.next_batch(n_events).await;
        (watcher, events)
    })
}

impl Task {
    fn new(store: &Store, random: &mut StdRng, after: Revision) -> Option<Task> {
        let text = |random: &mut StdRng| Box::<str>::from(TEXTS[random.random_range(0..TEXTS.len())]);
        let mut interest = Interest::ALL;
        match random.random_range(0..5) {
            0 => interest.name = Some(NAMES[random.random_range(0..NAMES.len())].into()),
            1 => interest.field = Some(("spec.f".into(), text(random))),
            2 => interest.label = Some(("l".into(), text(random))),
            _ => {}
        }
        let scope = match random.random_range(0..2) {
            0 => Scope::All,
            _ => Scope::namespace(NAMESPACES[random.random_range(0..2)]),
        };
        let watcher = store.watch_for(&pods(), scope.clone(), &interest, after).ok()?;
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let next = Some(next(watcher, random.random_range(1..4)));
        Some(Task { after, interest, is_cut_off: false, next, scope, seen: Vec::new(), woken })
    }

    fn concerns(&self, change: &Change) -> bool {
        let Interest { name, field, label } = &self.interest;
        if !self.scope.contains(&change.key) || change.revision <= self.after {
            return false;
        }
        let state = |(held_field, held_label): &Shown| match (field, label) {
            (Some((_, text)), _) => held_field.as_ref().is_none_or(|held| **held == **text),
            (None, Some((_, value))) => held_label.as_ref().is_some_and(|held| **held == **value),
            (None, None) => true,
        };
        name.as_ref().is_none_or(|name| *name == change.key.name) && change.states.iter().any(state)
    }

    /// If it was woken, runs until it waits.
    fn run(&mut self, random: &mut StdRng) {
        if !self.woken.0.swap(false, Ordering::SeqCst) {
            return;
        }
        let waker = Waker::from(self.woken.clone());
        while let Some(mut future) = self.next.take() {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => {
                    self.next = Some(future);
                    return;
                }
                Poll::Ready((watcher, Ok(events))) => {
                    self.seen.extend(events.iter().map(|event| event.revision));
                    self.next = Some(next(watcher, random.random_range(1..4)));
                }
                Poll::Ready((_, Err(WatchError::Lagged { .. }))) => self.is_cut_off = true,
                Poll::Ready((_, Err(error))) => panic!("{error}"),
            }
        }
    }
}

/// Makes a random write and returns its change.
async fn write(store: &Store, random: &mut StdRng, held: &mut BTreeMap<ObjectKey, (Revision, Shown)>) -> Change {
    let key = ObjectKey::namespaced(NAMESPACES[random.random_range(0..2)], NAMES[random.random_range(0..NAMES.len())]);
    let before = held.get(&key).cloned();
    if let Some((revision, state)) = &before
        && random.random_bool(0.3)
    {
        let deleted = store.delete(&pods(), &key, *revision).await.unwrap();
        held.remove(&key);
        return Change { revision: deleted.revision, key, states: vec![state.clone()] };
    }
    let text = |random: &mut StdRng| TEXTS[random.random_range(0..TEXTS.len())].to_owned();
    let (field, label) = (text(random), random.random_bool(0.7).then(|| text(random)));
    let labels = label.as_ref().map(|label| serde_json::json!({"l": label}));
    let tree: Value = serde_json::json!({"metadata": {"name": key.name, "labels": labels}, "spec": {"f": field}});
    // Some objects lack the field in their headers, like those stored before the kind had the field.
    let knows_field = random.random_bool(0.9);
    let fields: Vec<(&str, &str)> = if knows_field { vec![("spec.f", &field)] } else { Vec::new() };
    let header = Header::of(&tree, &fields);
    let draft = Draft::new(header, Bytes::from(tree.to_string())).unwrap();
    let written = match &before {
        None => store.create_with(&pods(), &key, draft, &[]).await.unwrap(),
        Some((revision, _)) => store.update_with(&pods(), &key, *revision, draft, &[]).await.unwrap(),
    };
    let state = (knows_field.then_some(field), label);
    held.insert(key.clone(), (written.revision, state.clone()));
    let states = before.into_iter().map(|(_, state)| state).chain([state]).collect();
    Change { revision: written.revision, key, states }
}

async fn check(kv: Arc<dyn Kv>, seed: u64, ring: Limits) {
    let mut random = StdRng::seed_from_u64(seed);
    let store = Store::open(kv, Options { ring, ..Options::default() }).await.unwrap();
    let (mut tasks, mut changes, mut held) = (Vec::new(), Vec::<Change>::new(), BTreeMap::new());
    for step in 0..N_STEPS {
        if random.random_bool(0.15) {
            let after = Revision(changes.len() as u64 - random.random_range(0..=changes.len().min(6)) as u64);
            tasks.extend(Task::new(&store, &mut random, after));
        }
        if 12 < tasks.len() {
            tasks.swap_remove(random.random_range(0..tasks.len()));
        }
        // All have read every event, or are late.
        let is_late: Vec<bool> = tasks.iter().map(|_| random.random_bool(0.2)).collect();
        let was_woken: Vec<bool> = tasks.iter().map(|task| task.woken.0.load(Ordering::SeqCst)).collect();
        let change = write(&store, &mut random, &mut held).await;
        store.sync().await.unwrap();
        for (task, was_woken) in tasks.iter().zip(was_woken) {
            let is_woken = task.woken.0.load(Ordering::SeqCst);
            if !was_woken && !task.is_cut_off {
                assert_eq!(
                    is_woken,
                    task.concerns(&change),
                    "seed {seed}, step {step}: woken by what concerns it alone"
                );
            }
        }
        changes.push(change);
        for (task, is_late) in tasks.iter_mut().zip(is_late) {
            if is_late {
                continue;
            }
            task.run(&mut random);
            let want: Vec<Revision> =
                changes.iter().filter(|change| task.concerns(change)).map(|change| change.revision).collect();
            if task.is_cut_off {
                assert_eq!(task.seen, want[..task.seen.len()], "seed {seed}, step {step}");
                let next = want[task.seen.len()];
                assert!(
                    ring.events < changes.len() - next.0 as usize + 1,
                    "seed {seed}, step {step}: cut off for {next}"
                );
            } else {
                assert_eq!(
                    task.seen, want,
                    "seed {seed}, step {step}: {:?} in {:?} after {}",
                    task.interest, task.scope, task.after
                );
            }
        }
    }
    assert!(!tasks.is_empty());
}

fn n_seeds(short: u64) -> u64 {
    if std::env::var_os("STEERSMAN_LONG").is_some() { 100 * short } else { short }
}

#[tokio::test]
async fn a_watcher_is_woken_by_what_concerns_it_and_sees_all_of_it() {
    for seed in 0..n_seeds(40) {
        check(Arc::new(Memory::new()), seed, Limits::default()).await;
    }
}

#[tokio::test]
async fn a_watcher_is_not_cut_off_for_events_of_others() {
    for seed in 0..n_seeds(40) {
        check(Arc::new(Memory::new()), seed, Limits { events: 4, ..Limits::default() }).await;
    }
}

#[tokio::test]
async fn a_watcher_is_woken_by_what_concerns_it_on_disk() {
    for seed in 0..n_seeds(2) {
        let scratch = tempfile::tempdir().unwrap();
        check(Arc::new(Disk::open(scratch.path()).unwrap()), seed, Limits { events: 8, ..Limits::default() }).await;
    }
}
