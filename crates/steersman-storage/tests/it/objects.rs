//! Objects, lists and watches on both engines, one fact at a time.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{Draft, GroupResource, Object, ObjectKey, Revision};
use steersman_storage::kv::Kv;
use steersman_storage::{
    At, Disk, Guard, GuardChange, Kind, Limits, Memory, Options, Page, ReadError, Scope, Store, Visibility, WaitError,
    WatchError, WriteError,
};
use tokio::time::Instant;

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn json(key: &ObjectKey, content: &str) -> Bytes {
    Bytes::from(format!(r#"{{"metadata":{{"name":"{}","labels":{{"c":"{content}"}}}}}}"#, key.name))
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::parse(text)
}

async fn store() -> Store {
    with(Options::default()).await
}

async fn with(options: Options) -> Store {
    Store::open(Arc::new(Memory::new()), options).await.unwrap()
}

async fn create(store: &Store, text: &str) -> Arc<Object> {
    store.create(&pods(), &key(text), json(&key(text), "1")).await.unwrap()
}

fn names(objects: &[Arc<Object>]) -> Vec<String> {
    objects.iter().map(|object| object.key.to_string()).collect()
}

/// The facts below hold for every engine.
async fn writes_are_optimistic(kv: Arc<dyn Kv>) {
    let store = Store::open(kv, Options::default()).await.unwrap();
    let web = key("a/web");
    let first = store.create(&pods(), &web, json(&web, "1")).await.unwrap();
    assert_eq!(first.revision, Revision(1));
    assert!(std::str::from_utf8(first.json()).unwrap().contains(r#""resourceVersion":"1""#));
    let read = store.get(&pods(), &web).await.unwrap().unwrap();
    assert_eq!((read.revision, read.json(), read.meta()), (first.revision, first.json(), first.meta()));

    match store.create(&pods(), &web, json(&web, "2")).await {
        Err(WriteError::AlreadyExists { current }) => assert_eq!(current.json(), first.json()),
        other => panic!("{other:?}"),
    }
    let second = store.update(&pods(), &web, first.revision, json(&web, "2")).await.unwrap();
    match store.update(&pods(), &web, first.revision, json(&web, "3")).await {
        Err(WriteError::Conflict { current: Some(current) }) => assert_eq!(current.json(), second.json()),
        other => panic!("{other:?}"),
    }
    match store.delete(&pods(), &web, first.revision).await {
        Err(WriteError::Conflict { current: Some(current) }) => assert_eq!(current.json(), second.json()),
        other => panic!("{other:?}"),
    }
    let deleted = store.delete(&pods(), &web, second.revision).await.unwrap();
    assert_eq!((deleted.revision, deleted.object.json()), (Revision(3), second.json()));
    assert!(store.get(&pods(), &web).await.unwrap().is_none());
    for gone in [
        store.update(&pods(), &web, second.revision, json(&web, "4")).await.map(drop),
        store.delete(&pods(), &web, second.revision).await.map(drop),
    ] {
        assert!(matches!(gone, Err(WriteError::Conflict { current: None })), "{gone:?}");
    }
    assert_eq!(store.create(&pods(), &web, json(&web, "5")).await.unwrap().revision, Revision(4));
    store.close().await.unwrap();
    assert!(matches!(store.create(&pods(), &key("b"), json(&key("b"), "1")).await, Err(WriteError::Closed)));
}

#[tokio::test]
async fn writes_are_optimistic_on_both_engines() {
    writes_are_optimistic(Arc::new(Memory::new())).await;
    let scratch = tempfile::tempdir().unwrap();
    writes_are_optimistic(Arc::new(Disk::open(scratch.path()).unwrap())).await;
}

/// Two objects race: one is created in a namespace while that changes.
async fn a_guard_that_does_not_hold_stops_the_write(kv: Arc<dyn Kv>) {
    let store = Store::open(kv, Options::default()).await.unwrap();
    let namespaces = GroupResource::new("", "namespaces");
    let home = store.create(&namespaces, &key("a"), json(&key("a"), "1")).await.unwrap();
    let draft = |text: &str| Draft::read(json(&key(text), "1")).unwrap();
    let guard = |expected| {
        let (expected, change) = (Some(expected), GuardChange::Nothing);
        [Guard { resource: namespaces.clone(), key: key("a"), expected, change }]
    };
    let web = store.create_with(&pods(), &key("a/web"), draft("a/web"), &guard(home.revision)).await.unwrap();
    let ends = store.update(&namespaces, &key("a"), home.revision, json(&key("a"), "ends")).await.unwrap();

    match store.create_with(&pods(), &key("a/db"), draft("a/db"), &guard(home.revision)).await {
        Err(WriteError::Guard { resource, key: guarded, current: Some(current) }) => {
            assert_eq!((resource, guarded, current.revision), (namespaces.clone(), key("a"), ends.revision));
        }
        other => panic!("{other:?}"),
    }
    assert!(store.get(&pods(), &key("a/db")).await.unwrap().is_none());
    // The conditions on the object itself are checked before the guards.
    let taken = store.create_with(&pods(), &key("a/web"), draft("a/web"), &guard(home.revision)).await;
    assert!(matches!(taken, Err(WriteError::AlreadyExists { .. })), "{taken:?}");
    let updated = store.update_with(&pods(), &web.key, web.revision, draft("a/web"), &guard(home.revision)).await;
    assert!(matches!(updated, Err(WriteError::Guard { .. })), "{updated:?}");
    let stale = store.update_with(&pods(), &web.key, home.revision, draft("a/web"), &guard(home.revision)).await;
    assert!(matches!(stale, Err(WriteError::Conflict { .. })), "{stale:?}");

    store.delete(&namespaces, &key("a"), ends.revision).await.unwrap();
    let gone = store.create_with(&pods(), &key("a/db"), draft("a/db"), &guard(ends.revision)).await;
    assert!(matches!(gone, Err(WriteError::Guard { current: None, .. })), "{gone:?}");
}

/// A Service and the object of its address are written and deleted together, or neither is.
async fn what_guards_change_is_part_of_the_write(kv: Arc<dyn Kv>) {
    let store = Store::open(kv, Options::default()).await.unwrap();
    let addresses = GroupResource::new("networking.k8s.io", "ipaddresses");
    let draft = |text: &str| Draft::read(json(&key(text), "1")).unwrap();
    let guard = |expected, change| [Guard { resource: addresses.clone(), key: key("10.0.0.1"), expected, change }];
    let claim = guard(None, GuardChange::Put(draft("10.0.0.1")));
    let mut seen = store.watch(&addresses, Scope::All, store.revision()).unwrap();

    let web = store.create_with(&pods(), &key("a/web"), draft("a/web"), &claim).await.unwrap();
    let address = store.get(&addresses, &key("10.0.0.1")).await.unwrap().unwrap();
    assert_eq!(address.revision, web.revision, "one transaction");
    let second = store.create_with(&pods(), &key("a/db"), draft("a/db"), &claim).await;
    assert!(matches!(second, Err(WriteError::Guard { current: Some(_), .. })), "{second:?}");
    assert!(store.get(&pods(), &key("a/db")).await.unwrap().is_none());

    let stale = guard(Some(Revision(web.revision.0 + 1)), GuardChange::Delete);
    let kept = store.delete_with(&pods(), &web.key, web.revision, &stale).await;
    assert!(matches!(kept, Err(WriteError::Guard { .. })), "{kept:?}");
    let release = guard(Some(address.revision), GuardChange::Delete);
    let deleted = store.delete_with(&pods(), &web.key, web.revision, &release).await.unwrap();
    assert!(store.get(&addresses, &key("10.0.0.1")).await.unwrap().is_none());
    let mut kinds = Vec::new();
    while kinds.len() < 2 {
        let events = seen.next_batch(2).await.unwrap();
        kinds.extend(events.iter().map(|event| (event.kind, event.revision)));
    }
    assert_eq!(kinds, [(Kind::Added, web.revision), (Kind::Deleted, deleted.revision)]);
}

#[tokio::test]
async fn what_guards_change_is_part_of_the_write_on_both_engines() {
    what_guards_change_is_part_of_the_write(Arc::new(Memory::new())).await;
    let scratch = tempfile::tempdir().unwrap();
    what_guards_change_is_part_of_the_write(Arc::new(Disk::open(scratch.path()).unwrap())).await;
}

#[tokio::test]
async fn a_guard_that_does_not_hold_stops_the_write_on_both_engines() {
    a_guard_that_does_not_hold_stops_the_write(Arc::new(Memory::new())).await;
    let scratch = tempfile::tempdir().unwrap();
    a_guard_that_does_not_hold_stops_the_write(Arc::new(Disk::open(scratch.path()).unwrap())).await;
}

#[tokio::test]
async fn what_is_no_object_is_not_stored() {
    let store = store().await;
    let web = key("a/web");
    let written = store.create(&pods(), &web, Bytes::from_static(b"[]")).await;
    assert!(matches!(written, Err(WriteError::Object(_))), "{written:?}");
    let written = store.create(&pods(), &ObjectKey::cluster("a/b"), json(&web, "1")).await;
    assert!(matches!(written, Err(WriteError::Key(_))), "{written:?}");
    assert_eq!(store.sync().await.unwrap(), Revision::ZERO);
}

#[tokio::test]
async fn a_list_is_ordered_paged_and_scoped() {
    let store = store().await;
    for name in ["b/x", "a/y", "a-b/x", "a/x", "a0/x", "c/x"] {
        create(&store, name).await;
    }
    store.sync().await.unwrap();
    let list = |scope: Scope, after: Option<&str>, limit: Option<usize>| {
        let after = after.map(key);
        let page = Page { limit, start_after: after.as_ref() };
        let list = store.list(&pods(), &scope, At::Latest, page).unwrap();
        assert_eq!(list.more, list.remaining != Some(0));
        (names(&list.objects), list.remaining.unwrap())
    };
    let all = ["a-b/x", "a/x", "a/y", "a0/x", "b/x", "c/x"];
    assert_eq!(list(Scope::All, None, None), (all.map(String::from).to_vec(), 0));
    assert_eq!(list(Scope::All, None, Some(2)), (vec!["a-b/x".into(), "a/x".into()], 4));
    assert_eq!(list(Scope::All, Some("a/x"), Some(2)), (vec!["a/y".into(), "a0/x".into()], 2));
    assert_eq!(list(Scope::All, Some("c/x"), None), (vec![], 0));
    assert_eq!(list(Scope::namespace("a"), None, None), (vec!["a/x".into(), "a/y".into()], 0));
    assert_eq!(list(Scope::namespace("a"), Some("a/x"), None), (vec!["a/y".into()], 0));
    assert_eq!(list(Scope::namespace("a"), Some("z"), None), (vec![], 0));
    assert_eq!(list(Scope::namespace("a"), Some("a-"), Some(1)), (vec!["a/x".into()], 1));
    assert_eq!(list(Scope::namespace("none"), None, None), (vec![], 0));
}

#[tokio::test]
async fn a_kept_page_is_full_and_knows_whether_more_follow() {
    let store = store().await;
    for n in 0..100 {
        let key = key(&format!("a/{n:03}"));
        store.create(&pods(), &key, json(&key, if n % 10 == 0 { "ten" } else { "other" })).await.unwrap();
    }
    store.sync().await.unwrap();
    let mut looked_at = 0;
    let page = Page { limit: Some(3), start_after: None };
    let kept = store
        .list_where(&pods(), &Scope::All, At::Latest, page, |object| {
            looked_at += 1;
            object.label("c") == Some("ten")
        })
        .unwrap();
    assert_eq!((names(&kept.objects), kept.more), (vec!["a/000".into(), "a/010".into(), "a/020".into()], true));
    assert_eq!(looked_at, 31, "no further than the first one kept behind the page");
    let after = key("a/060");
    let page = Page { limit: Some(3), start_after: Some(&after) };
    let kept = store.list_where(&pods(), &Scope::All, At::Latest, page, |o| o.label("c") == Some("ten")).unwrap();
    assert_eq!((kept.objects.len(), kept.more), (3, false), "no empty last page");
}

#[tokio::test]
async fn revisions_of_the_past_and_the_future() {
    let store = store().await;
    let web = create(&store, "a/web").await;
    create(&store, "a/db").await;
    store.delete(&pods(), &web.key, web.revision).await.unwrap();
    store.sync().await.unwrap();
    let at = |revision: u64| {
        store
            .list(&pods(), &Scope::All, At::Exact(Revision(revision)), Page::ALL)
            .map(|list| (list.revision.0, names(&list.objects)))
    };
    assert_eq!(at(0).unwrap(), (0, vec![]));
    assert_eq!(at(1).unwrap(), (1, vec!["a/web".to_owned()]));
    assert_eq!(at(2).unwrap(), (2, vec!["a/db".to_owned(), "a/web".to_owned()]));
    assert_eq!(at(3).unwrap(), (3, vec!["a/db".to_owned()]));
    assert!(matches!(at(4), Err(ReadError::TooLarge { requested: Revision(4), current: Revision(3) })));
    store.compact(Revision(2)).await.unwrap();
    assert!(matches!(at(1), Err(ReadError::Compacted { requested: Revision(1), oldest: Revision(2) })));
    assert_eq!(at(2).unwrap().1.len(), 2);
    let other = GroupResource::new("x.io", "never");
    let list = |at| store.list(&other, &Scope::All, at, Page::ALL).map(|list| list.revision.0);
    assert!(matches!(list(At::Exact(Revision(1))), Err(ReadError::Compacted { .. })));
    assert_eq!((list(At::Exact(Revision(2))).unwrap(), list(At::Latest).unwrap()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_revision_ends_with_it_or_in_time() {
    let store = store().await;
    let deadline = Instant::now() + Duration::from_secs(3);
    let (waited, created) = tokio::join!(store.wait_for(Revision(1), deadline), create(&store, "a/web"));
    assert_eq!((waited, created.revision), (Ok(()), Revision(1)));
    let error = store.wait_for(Revision(5), deadline).await.unwrap_err();
    assert_eq!(error, WaitError::TooLarge { requested: Revision(5), current: Revision(1) });
    assert_eq!(Instant::now(), deadline);
    let (waited, _) = tokio::join!(store.wait_for(Revision(5), deadline + Duration::from_secs(9)), store.close());
    assert_eq!(waited, Err(WaitError::Closed));
}

#[tokio::test]
async fn a_watch_shows_what_happened_and_what_was_before() {
    let store = store().await;
    let mut watcher = store.watch(&pods(), Scope::namespace("a"), Revision::ZERO).unwrap();
    let web = create(&store, "a/web").await;
    create(&store, "b/web").await;
    let changed = store.update(&pods(), &web.key, web.revision, json(&web.key, "2")).await.unwrap();
    store.delete(&pods(), &web.key, changed.revision).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 3 {
        events.extend(watcher.next_batch(2).await.unwrap());
    }
    let kinds: Vec<_> = events.iter().map(|event| (event.kind, event.revision.0)).collect();
    assert_eq!(kinds, [(Kind::Added, 1), (Kind::Modified, 3), (Kind::Deleted, 4)]);
    let previous: Vec<_> = events.iter().map(|event| event.previous.as_ref().map(|o| o.revision.0)).collect();
    assert_eq!(previous, [None, Some(1), Some(3)]);
    let last = std::str::from_utf8(events[2].object.json()).unwrap();
    assert!(last.contains(r#""resourceVersion":"4""#) && last.contains(r#""c":"2""#), "{last}");
    assert_eq!(watcher.progress(), Revision(4));
}

#[tokio::test]
async fn progress_goes_past_what_others_do_but_not_past_what_is_pending() {
    let store = store().await;
    let other = GroupResource::new("", "nodes");
    let mut idle = store.watch(&pods(), Scope::namespace("a"), Revision::ZERO).unwrap();
    store.create(&other, &key("n"), json(&key("n"), "1")).await.unwrap();
    create(&store, "b/web").await;
    store.sync().await.unwrap();
    assert_eq!(idle.advance(), Revision(2));
    create(&store, "a/web").await;
    create(&store, "b/db").await;
    store.sync().await.unwrap();
    assert_eq!(idle.advance(), Revision(2), "an event is pending");
    assert_eq!(idle.try_next_batch(10).unwrap().len(), 1);
    assert_eq!(idle.progress(), Revision(4));
    assert!(idle.try_next_batch(10).unwrap().is_empty());
}

#[tokio::test]
async fn a_watcher_is_not_woken_by_other_resources() {
    let store = store().await;
    let mut watcher = store.watch(&pods(), Scope::All, Revision::ZERO).unwrap();
    let woken = Arc::new(Flag::default());
    let waker = std::task::Waker::from(woken.clone());
    let mut context = std::task::Context::from_waker(&waker);
    let mut next = Box::pin(watcher.next_batch(1));
    assert!(next.as_mut().poll(&mut context).is_pending());
    let node = key("n");
    store.create(&GroupResource::new("", "nodes"), &node, json(&node, "1")).await.unwrap();
    store.sync().await.unwrap();
    assert!(!woken.0.load(std::sync::atomic::Ordering::SeqCst));
    create(&store, "a/web").await;
    assert_eq!(next.await.unwrap()[0].object.key, key("a/web"));
}

#[derive(Default)]
struct Flag(std::sync::atomic::AtomicBool);

impl std::task::Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_watcher_behind_the_ring_is_cut_off() {
    let ring = Limits { events: 5, ..Limits::default() };
    let store = with(Options { ring, ..Options::default() }).await;
    let mut slow = store.watch(&pods(), Scope::All, Revision::ZERO).unwrap();
    for n in 0..20 {
        create(&store, &format!("a/{n}")).await;
    }
    store.sync().await.unwrap();
    assert_eq!(slow.next_batch(10).await.unwrap_err(), WatchError::Lagged { oldest: Revision(15) });
    // A watch from there reads from the engine what the ring has dropped.
    let mut early = store.watch(&pods(), Scope::All, Revision(2)).unwrap();
    let mut revisions = Vec::new();
    while revisions.len() < 18 {
        revisions.extend(early.next_batch(4).await.unwrap().iter().map(|event| event.revision.0));
    }
    assert_eq!(revisions, (3..=20).collect::<Vec<_>>());
    let mut fresh = store.watch(&pods(), Scope::All, Revision(15)).unwrap();
    assert_eq!(fresh.next_batch(10).await.unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn history_ages_and_resources_nobody_has_are_forgotten() {
    let store = store().await;
    let web = create(&store, "a/web").await;
    store.delete(&pods(), &web.key, web.revision).await.unwrap();
    store.sync().await.unwrap();
    // Time is paused: it advances when everything waits, and so does the feeder's clock.
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(store.watch(&pods(), Scope::All, web.revision).is_ok(), "young enough");
    tokio::time::sleep(Duration::from_secs(200)).await;
    let late = store.watch(&pods(), Scope::All, web.revision).unwrap_err();
    assert!(matches!(late, ReadError::Compacted { oldest: Revision(2), .. }), "{late:?}");
    assert!(store.watch(&pods(), Scope::All, Revision(2)).is_ok());
    assert_eq!(create(&store, "a/web").await.revision, Revision(3), "and may come again");
    store.sync().await.unwrap();
    assert_eq!(store.count(&pods()), 1);
}

#[tokio::test]
async fn closing_ends_watches_after_their_last_event() {
    let store = store().await;
    let mut watcher = store.watch(&pods(), Scope::All, Revision::ZERO).unwrap();
    let mut idle = store.watch(&GroupResource::new("", "nodes"), Scope::All, Revision::ZERO).unwrap();
    create(&store, "a/web").await;
    let (closed, ended) = tokio::join!(store.close(), idle.next_batch(1));
    closed.unwrap();
    assert_eq!(ended.unwrap_err(), WatchError::Closed);
    assert_eq!(watcher.next_batch(9).await.unwrap().len(), 1);
    assert_eq!(watcher.next_batch(9).await.unwrap_err(), WatchError::Closed);
    assert!(store.health().is_err());
}

#[tokio::test]
async fn objects_that_are_not_initialized_are_hidden_from_who_does_not_ask_for_them() {
    let store = with(Options { ring: Limits { events: 4, ..Limits::default() }, ..Options::default() }).await;
    let waiting = Bytes::from_static(br#"{"metadata":{"initializers":{"pending":[{"name":"a.b.c"}]}}}"#);
    create(&store, "a/1").await;
    let hidden = store.create(&pods(), &key("a/2"), waiting).await.unwrap();
    create(&store, "a/3").await;
    create(&store, "a/4").await;
    let before = store.sync().await.unwrap();
    let (scope, page) = (Scope::namespace("a"), Page { limit: Some(1), start_after: Some(&key("a/1")) });
    let all = store.list_visible(&pods(), &scope, At::Latest, page, Visibility::All).unwrap();
    assert_eq!((names(&all.objects), all.remaining), (vec!["a/2".to_owned()], Some(2)));
    let seen = store.list_visible(&pods(), &scope, At::Latest, page, Visibility::Initialized).unwrap();
    assert_eq!((names(&seen.objects), seen.remaining, seen.revision), (vec!["a/3".to_owned()], Some(1), before));
    assert_eq!(store.uninitialized()[0].1.len(), 1);

    store.update(&pods(), &hidden.key, hidden.revision, json(&hidden.key, "2")).await.unwrap();
    store.sync().await.unwrap();
    assert!(store.uninitialized().is_empty());
    let at = |at| store.list_visible(&pods(), &scope, at, Page::ALL, Visibility::Initialized).unwrap().objects.len();
    assert_eq!((at(At::Latest), at(At::Exact(before))), (4, 3), "the past is as it was");
    // History from before the ring is in the engine.
    for n in 5..12 {
        create(&store, &format!("a/{n}")).await;
    }
    store.sync().await.unwrap();
    let past = store.list_visible_at(&pods(), &scope, before, page, Visibility::Initialized).await.unwrap();
    assert_eq!((names(&past.objects), past.more), (vec!["a/3".to_owned()], true));
}
