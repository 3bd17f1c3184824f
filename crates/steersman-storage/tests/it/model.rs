//! The store against a model that remembers every state: lists at every revision, watches from every revision.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision};
use steersman_storage::kv::Kv;
use steersman_storage::{
    At, Disk, Kind, Limits, Memory, Options, Page, ReadError, Scope, Store, WatchError, WriteError,
};

#[derive(Clone, Debug)]
enum Step {
    Compact(u64),
    Create { resource: usize, key: usize, content: u8 },
    Delete { resource: usize, key: usize, stale: bool },
    Update { resource: usize, key: usize, content: u8, stale: bool },
}

const RESOURCES: [(&str, &str); 3] = [("", "pods"), ("", "podsx"), ("x.io", "pods")];
const KEYS: [&str; 6] = ["a/x", "a/y", "a-/x", "a0/x", "b/x", "b/xx"];

type State = BTreeMap<ObjectKey, (Revision, u8)>;

/// Every state of every resource.
#[derive(Default)]
struct Model {
    /// `states[r]` is the state at revision r, by resource.
    states: Vec<[State; 3]>,
    /// The change of each revision: resource, key, new value.
    changes: Vec<(usize, ObjectKey, Option<u8>)>,
    compacted: u64,
}

impl Model {
    fn now(&self) -> &[State; 3] {
        self.states.last().unwrap()
    }

    fn revision(&self) -> u64 {
        self.changes.len() as u64
    }

    fn change(&mut self, resource: usize, key: &ObjectKey, content: Option<u8>) -> Revision {
        let mut state = self.now().clone();
        let revision = Revision(self.revision() + 1);
        match content {
            Some(content) => state[resource].insert(key.clone(), (revision, content)),
            None => state[resource].remove(key),
        };
        self.states.push(state);
        self.changes.push((resource, key.clone(), content));
        revision
    }
}

fn resource(at: usize) -> GroupResource {
    GroupResource::new(RESOURCES[at].0, RESOURCES[at].1)
}

fn json(content: u8) -> Bytes {
    Bytes::from(format!(r#"{{"metadata":{{"labels":{{"c":"{content}"}}}},"spec":{content}}}"#))
}

fn shown(object: &Object) -> (ObjectKey, (Revision, u8)) {
    let revision = object.revision;
    let stamp = format!(r#""resourceVersion":"{revision}""#);
    assert!(std::str::from_utf8(object.json()).unwrap().contains(&stamp));
    (object.key.clone(), (revision, object.label("c").unwrap().parse().unwrap()))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let target = (0..RESOURCES.len(), 0..KEYS.len());
    let step = prop_oneof![
        4 => (target.clone(), any::<u8>()).prop_map(|((resource, key), content)| Step::Create { resource, key, content }),
        4 => (target.clone(), any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|((resource, key), content, stale)| Step::Update { resource, key, content, stale }),
        3 => (target, prop::bool::weighted(0.1)).prop_map(|((resource, key), stale)| Step::Delete { resource, key, stale }),
        1 => (0..60u64).prop_map(Step::Compact),
    ];
    proptest::collection::vec(step, 1..60)
}

async fn take(store: &Store, model: &mut Model, step: Step) {
    match step {
        Step::Compact(through) => {
            store.sync().await.unwrap();
            store.compact(Revision(through)).await.unwrap();
            model.compacted = model.compacted.max(through.min(model.revision()));
        }
        Step::Create { resource: at, key, content } => {
            let key = ObjectKey::parse(KEYS[key]);
            let written = store.create(&resource(at), &key, json(content)).await;
            match (written, model.now()[at].get(&key).copied()) {
                (Ok(object), None) => {
                    let revision = model.change(at, &key, Some(content));
                    assert_eq!(shown(&object), (key, (revision, content)));
                }
                (Err(WriteError::AlreadyExists { current }), Some(held)) => assert_eq!(shown(&current), (key, held)),
                other => panic!("{other:?}"),
            }
        }
        Step::Delete { resource: at, key, stale } => {
            let key = ObjectKey::parse(KEYS[key]);
            let held = model.now()[at].get(&key).copied();
            let expected = held.map_or(Revision(1), |(revision, _)| revision);
            let expected = if stale { Revision(expected.0 - 1) } else { expected };
            match (store.delete(&resource(at), &key, expected).await, held) {
                (Ok(deleted), Some(held)) if !stale => {
                    assert_eq!(deleted.revision, model.change(at, &key, None));
                    assert_eq!(shown(&deleted.object), (key, held));
                }
                (Err(WriteError::Conflict { current }), held) => {
                    assert!(stale || held.is_none());
                    assert_eq!(current.map(|current| shown(&current).1), held);
                }
                other => panic!("{other:?}"),
            }
        }
        Step::Update { resource: at, key, content, stale } => {
            let key = ObjectKey::parse(KEYS[key]);
            let held = model.now()[at].get(&key).copied();
            let expected = held.map_or(Revision(1), |(revision, _)| revision);
            let expected = if stale { Revision(expected.0 - 1) } else { expected };
            match (store.update(&resource(at), &key, expected, json(content)).await, held) {
                (Ok(object), Some(_)) if !stale => {
                    let revision = model.change(at, &key, Some(content));
                    assert_eq!(shown(&object), (key, (revision, content)));
                }
                (Err(WriteError::Conflict { current }), held) => {
                    assert!(stale || held.is_none());
                    assert_eq!(current.map(|current| shown(&current).1), held);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Checks lists at every revision: whole, by namespace and in pages.
fn check_lists(store: &Store, model: &Model) {
    for at in 0..RESOURCES.len() {
        for revision in 0..=model.revision() {
            let list =
                |scope: &Scope, page: Page<'_>| store.list(&resource(at), scope, At::Exact(Revision(revision)), page);
            if revision < model.compacted {
                assert!(matches!(list(&Scope::All, Page::ALL), Err(ReadError::Compacted { .. })));
                continue;
            }
            let want: Vec<_> = model.states[revision as usize][at].clone().into_iter().collect();
            for scope in [Scope::All, Scope::namespace("a"), Scope::namespace("b")] {
                let want: Vec<_> = want.iter().filter(|(key, _)| scope.contains(key)).cloned().collect();
                let whole = list(&scope, Page::ALL).unwrap();
                assert_eq!(whole.objects.iter().map(|object| shown(object)).collect::<Vec<_>>(), want);
                let mut paged = Vec::new();
                loop {
                    let after = paged.last().map(|(key, _): &(ObjectKey, _)| key.clone());
                    let page = list(&scope, Page { limit: Some(2), start_after: after.as_ref() }).unwrap();
                    paged.extend(page.objects.iter().map(|object| shown(object)));
                    assert_eq!(page.remaining, Some(want.len() - paged.len()));
                    if !page.more {
                        break;
                    }
                }
                assert_eq!(paged, want);
            }
        }
    }
}

/// Checks that watches from every revision return exactly the later changes.
fn check_watches(store: &Store, model: &Model) {
    for at in 0..RESOURCES.len() {
        for after in 0..=model.revision() {
            for scope in [Scope::All, Scope::namespace("a")] {
                let watcher = store.watch(&resource(at), scope.clone(), Revision(after));
                if after < model.compacted {
                    assert!(matches!(watcher, Err(ReadError::Compacted { .. })));
                    continue;
                }
                let mut watcher = watcher.unwrap();
                let mut state = model.states[after as usize][at].clone();
                let since = (after + 1..).map(Revision).zip(&model.changes[after as usize..]);
                for (revision, (_, key, content)) in
                    since.filter(|(_, (resource, key, _))| *resource == at && scope.contains(key))
                {
                    let events = watcher.try_next_batch(1).unwrap();
                    let [event] = &events[..] else { panic!("{events:?}") };
                    let held = state.get(key).copied();
                    let want_kind = match (held, content) {
                        (_, None) => Kind::Deleted,
                        (None, Some(_)) => Kind::Added,
                        (Some(_), Some(_)) => Kind::Modified,
                    };
                    let last = content.or(held.map(|(_, content)| content)).unwrap();
                    assert_eq!((event.kind, event.revision), (want_kind, revision));
                    assert_eq!(shown(&event.object), (key.clone(), (revision, last)));
                    assert_eq!(event.previous.as_ref().map(|previous| shown(previous).1), held);
                    assert!(watcher.progress() >= revision && after <= watcher.progress().0);
                    match content {
                        Some(content) => state.insert(key.clone(), (revision, *content)),
                        None => state.remove(key),
                    };
                }
                assert!(watcher.try_next_batch(1).unwrap().is_empty());
                assert_eq!(watcher.progress(), Revision(model.revision()));
            }
        }
    }
}

/// With a short ring, answers of the cache are right, other reads are refused as compacted, and the log has the rest.
async fn check_bounded(store: &Store, model: &Model) {
    check_log(store, model).await;
    for revision in model.compacted..=model.revision() {
        let listed = store.list(&resource(0), &Scope::All, At::Exact(Revision(revision)), Page::ALL);
        let watched = store.watch(&resource(0), Scope::All, Revision(revision));
        match (listed, watched) {
            (Ok(list), Ok(mut watcher)) => {
                let want: Vec<_> = model.states[revision as usize][0].clone().into_iter().collect();
                assert_eq!(list.objects.iter().map(|object| shown(object)).collect::<Vec<_>>(), want);
                let n_since = model.changes[revision as usize..].iter().filter(|change| change.0 == 0).count();
                assert_eq!(watcher.try_next_batch(100).unwrap().len(), n_since);
            }
            (Err(ReadError::Compacted { oldest, .. }), Ok(_)) => {
                assert!(revision < oldest.0 && oldest.0 <= model.revision());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Checks lists and watches at every revision with history, wherever that is kept.
async fn check_log(store: &Store, model: &Model) {
    for at in 0..RESOURCES.len() {
        for revision in 0..=model.revision() {
            let scope = if revision % 2 == 0 { Scope::All } else { Scope::namespace("a") };
            let list = async |after: Option<&ObjectKey>| {
                let page = Page { limit: Some(2), start_after: after };
                store.list_at(&resource(at), &scope, Revision(revision), page).await
            };
            if revision < model.compacted {
                assert!(matches!(list(None).await, Err(ReadError::Compacted { .. })));
                let watcher = store.watch(&resource(at), scope.clone(), Revision(revision));
                assert!(matches!(watcher, Err(ReadError::Compacted { .. })));
                continue;
            }
            let want: Vec<_> = model.states[revision as usize][at]
                .clone()
                .into_iter()
                .filter(|(key, _)| scope.contains(key))
                .collect();
            let mut paged = Vec::new();
            loop {
                let after = paged.last().map(|(key, _): &(ObjectKey, _)| key.clone());
                let page = list(after.as_ref()).await.unwrap();
                paged.extend(page.objects.iter().map(|object| shown(object)));
                if !page.more {
                    break;
                }
            }
            assert_eq!(paged, want, "at revision {revision}");
            let is_odd = |object: &Object| shown(object).1.1 % 2 == 1;
            let odd = store.list_where_at(&resource(at), &scope, Revision(revision), Page::ALL, is_odd).await.unwrap();
            assert_eq!(odd.objects.len(), want.iter().filter(|(_, (_, content))| content % 2 == 1).count());

            let mut watcher = store.watch(&resource(at), scope.clone(), Revision(revision)).unwrap();
            let mut state = model.states[revision as usize][at].clone();
            for (n, (_, key, content)) in (revision + 1..)
                .zip(&model.changes[revision as usize..])
                .filter(|(_, (resource, key, _))| *resource == at && scope.contains(key))
            {
                let events = watcher.next_batch(1).await.unwrap();
                let [event] = &events[..] else { panic!("{events:?}") };
                let held = state.get(key).copied();
                let want_kind = match (held, content) {
                    (_, None) => Kind::Deleted,
                    (None, Some(_)) => Kind::Added,
                    (Some(_), Some(_)) => Kind::Modified,
                };
                let last = content.or(held.map(|(_, content)| content)).unwrap();
                assert_eq!((event.kind, event.revision), (want_kind, Revision(n)));
                assert_eq!(shown(&event.object), (key.clone(), (Revision(n), last)));
                assert_eq!(event.previous.as_ref().map(|previous| shown(previous).1), held);
                assert!(n <= watcher.progress().0 && watcher.progress().0 <= model.revision());
                match content {
                    Some(content) => state.insert(key.clone(), (Revision(n), *content)),
                    None => state.remove(key),
                };
            }
        }
    }
}

async fn check(kv: Arc<dyn Kv>, steps: Vec<Step>, ring: Limits) {
    let is_bounded = ring != Limits::default();
    let store = Store::open(kv, Options { ring, ..Options::default() }).await.unwrap();
    let mut model = Model { states: vec![Default::default()], ..Model::default() };
    let mut watchers: Vec<_> =
        (0..3).map(|at| (store.watch(&resource(at), Scope::All, Revision::ZERO).unwrap(), State::new())).collect();
    for step in steps {
        take(&store, &mut model, step).await;
        // Read continuously: a watcher that keeps up gets every state, compacted or not.
        store.sync().await.unwrap();
        for (at, (watcher, state)) in watchers.iter_mut().enumerate() {
            match watcher.try_next_batch(100) {
                Ok(events) => {
                    for event in events {
                        let (key, held) = shown(&event.object);
                        match event.kind {
                            Kind::Deleted => state.remove(&key),
                            Kind::Added | Kind::Modified => state.insert(key, held),
                        };
                    }
                }
                Err(WatchError::Lagged { .. }) => panic!("a watcher that keeps up never lags"),
                Err(WatchError::Closed) => panic!("closed"),
            }
            assert_eq!(&*state, &model.now()[at]);
        }
    }
    assert_eq!(store.revision().0, model.revision());
    if is_bounded {
        check_bounded(&store, &model).await;
    } else {
        check_lists(&store, &model);
        check_watches(&store, &model);
    }
    store.close().await.unwrap();
}

fn on_runtime(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_store_in_memory_is_its_model(steps in steps()) {
        on_runtime(check(Arc::new(Memory::new()), steps, Limits::default()));
    }

    #[test]
    fn a_store_with_little_history_is_its_model_or_says_compacted(steps in steps(), events in 1usize..6, bytes in 1_000usize..3_000) {
        on_runtime(check(Arc::new(Memory::new()), steps, Limits { bytes, events, ..Limits::default() }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_store_on_disk_is_its_model(steps in steps()) {
        let scratch = tempfile::tempdir().unwrap();
        on_runtime(check(Arc::new(Disk::open(scratch.path()).unwrap()), steps, Limits::default()));
    }

    #[test]
    fn a_store_on_disk_with_little_history_in_memory_is_its_model(steps in steps(), events in 1usize..6) {
        let scratch = tempfile::tempdir().unwrap();
        let limits = Limits { events, ..Limits::default() };
        on_runtime(check(Arc::new(Disk::open(scratch.path()).unwrap()), steps, limits));
    }
}
