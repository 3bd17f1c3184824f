//! Many concurrent writers and watchers, on all cores.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::kv::Kv;
use steersman_storage::{At, Disk, Event, Kind, Memory, Options, Page, Scope, Store, WriteError};
use tokio::task::JoinSet;

const N_WRITERS: usize = 24;
const N_ROUNDS: usize = 30;
const N_KEYS: usize = 8;

fn resource(n: usize) -> GroupResource {
    GroupResource::new("x.io", format!("r{}", n % 2))
}

/// Writers compete for a few keys by create, update and delete; returns the revisions of the acknowledged writes.
async fn write(store: Store, writer: usize) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for round in 0..N_ROUNDS {
        let resource = resource(writer);
        let key = ObjectKey::namespaced(format!("n{}", round % 2), format!("k{}", (writer * 7 + round) % N_KEYS));
        let json = Bytes::from(format!(r#"{{"metadata":{{"labels":{{"w":"{writer}-{round}"}}}}}}"#));
        let written = match store.get(&resource, &key).await.unwrap() {
            None => store.create(&resource, &key, json).await.map(|object| object.revision),
            Some(current) if round % 5 == 4 => {
                store.delete(&resource, &key, current.revision).await.map(|deleted| deleted.revision)
            }
            Some(current) => store.update(&resource, &key, current.revision, json).await.map(|object| object.revision),
        };
        match written {
            Ok(revision) => {
                let read = store.get(&resource, &key).await.unwrap();
                assert!(revision <= store.revision(), "a read after a write has seen it");
                assert!(read.is_none_or(|read| read.key == key));
                revisions.push(revision);
            }
            Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    revisions
}

/// Replays the events of a watch; every event must fit the state before it.
fn replay(events: &[Arc<Event>]) -> BTreeMap<String, Revision> {
    let mut state = BTreeMap::new();
    assert!(events.is_sorted_by(|a, b| a.revision < b.revision), "in order, each once");
    for event in events {
        let held = match event.kind {
            Kind::Deleted => state.remove(&event.object.key.to_string()),
            Kind::Added | Kind::Modified => state.insert(event.object.key.to_string(), event.revision),
        };
        assert_eq!(held, event.previous.as_ref().map(|previous| previous.revision));
        assert_eq!(event.kind == Kind::Added, held.is_none());
    }
    state
}

async fn check(kv: Arc<dyn Kv>) {
    let store = Store::open(kv, Options::default()).await.unwrap();
    let mut watchers = JoinSet::new();
    for n in 0..12 {
        let mut watcher = store.watch(&resource(n), Scope::All, Revision::ZERO).unwrap();
        watchers.spawn(async move {
            let mut events = Vec::new();
            // Until the store is closed, with a different batch size for each watcher, so that batches end everywhere.
            while let Ok(batch) = watcher.next_batch(1 + n).await {
                assert!(batch.len() <= 1 + n);
                events.extend(batch);
            }
            (n, events)
        });
    }
    // Lists again and again: each list and a watch from it must agree.
    let lister = tokio::spawn({
        let store = store.clone();
        async move {
            let mut n_lists = 0;
            while store.health().is_ok() {
                let list = store.list(&resource(0), &Scope::All, At::Latest, Page::ALL).unwrap();
                let again = store.list(&resource(0), &Scope::All, At::Exact(list.revision), Page::ALL).unwrap();
                let revisions =
                    |list: &steersman_storage::List| list.objects.iter().map(|o| o.revision).collect::<Vec<_>>();
                assert_eq!(revisions(&list), revisions(&again), "at {}", list.revision);
                n_lists += 1;
                tokio::task::yield_now().await;
            }
            n_lists
        }
    });
    let mut writers = JoinSet::new();
    for writer in 0..N_WRITERS {
        writers.spawn(write(store.clone(), writer));
    }
    let mut acknowledged: Vec<u64> =
        writers.join_all().await.into_iter().flatten().map(|revision| revision.0).collect();
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, (1..=acknowledged.len() as u64).collect::<Vec<_>>(), "each revision is one write's");
    store.sync().await.unwrap();
    let now = |n| {
        let list = store.list(&resource(n), &Scope::All, At::Latest, Page::ALL).unwrap();
        list.objects.iter().map(|object| (object.key.to_string(), object.revision)).collect::<BTreeMap<_, _>>()
    };
    let want = [now(0), now(1)];
    store.close().await.unwrap();
    assert!(0 < lister.await.unwrap());
    let mut seen = [0, 0];
    for (n, events) in watchers.join_all().await {
        assert_eq!(replay(&events), want[n % 2]);
        seen[n % 2] = events.len();
    }
    assert_eq!(seen[0] + seen[1], acknowledged.len(), "every write is seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_watcher_sees_every_write_once_in_order_in_memory() {
    check(Arc::new(Memory::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_watcher_sees_every_write_once_in_order_on_disk() {
    let scratch = tempfile::tempdir().unwrap();
    check(Arc::new(Disk::open(scratch.path()).unwrap())).await;
}
