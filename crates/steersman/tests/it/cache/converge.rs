//! Whatever goes wrong, in whatever order: in the end the cache and every handler agree with the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use steersman::cache::{CacheMode, Change, HandlerOptions, Informer, handler_fn};
use steersman::reflector::{BackoffLimits, InitialList, ReflectorOptions};
use steersman::{InformerFactory, ObjectKey, Scope};

use crate::server::{Fault, Server, Verb, eventually};

/// A handler's copy of the objects.
#[derive(Default)]
struct Mirror {
    objects: BTreeMap<String, (String, String)>,
    /// Objects whose newest state could not be decoded.
    undecodable: BTreeSet<String>,
    /// Events that do not fit the earlier ones. A panic in a handler would not leave the informer.
    violations: Vec<String>,
}

#[derive(Clone, Debug)]
enum Step {
    Break,
    Compact,
    Delete(u8),
    End,
    Fail(Verb, Fault),
    Join,
    Put(u8, u8),
    PutBroken(u8),
    Say(&'static str),
    Wait(u16),
}

fn faults() -> impl Strategy<Value = Fault> {
    let code = prop_oneof![
        Just((410, "Expired")),
        Just((429, "TooManyRequests")),
        Just((500, "InternalError")),
        Just((503, "ServiceUnavailable")),
        Just((403, "Forbidden")),
        Just((404, "NotFound")),
        Just((504, "Timeout")),
    ];
    prop_oneof![
        Just(Fault::Cut),
        Just(Fault::Silence),
        prop_oneof![Just(""), Just("garbage\n"), Just("{\"type\":\"ADDED\",\"object\":{}}\n"), Just("{\"items\":[{}")]
            .prop_map(Fault::Garbage),
        (code, prop_oneof![Just(None), Just(Some(3))]).prop_map(|((code, reason), retry_after)| Fault::Status {
            code,
            reason,
            retry_after
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..6_u8, any::<u8>()).prop_map(|(number, value)| Step::Put(number, value)),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => (0..6_u8).prop_map(Step::PutBroken),
        3 => (0..20_000_u16).prop_map(Step::Wait),
        1 => Just(Step::Break),
        1 => Just(Step::End),
        1 => Just(Step::Compact),
        1 => Just(Step::Join),
        1 => Just(Step::Say("nonsense")),
        2 => (prop_oneof![Just(Verb::List), Just(Verb::Watch)], faults()).prop_map(|(verb, fault)| Step::Fail(verb, fault)),
    ];
    proptest::collection::vec(step, 0..60)
}

/// Adds a handler that keeps a copy of the objects from its events, and checks every event against it.
fn join(informer: &Informer<ConfigMap>, events_max: usize) -> Arc<Mutex<Mirror>> {
    let mirror = Arc::<Mutex<Mirror>>::default();
    let seen = Arc::clone(&mirror);
    let summary = |object: &ConfigMap| {
        let value = object.data.as_ref().map(|data| data["value"].clone()).unwrap_or_default();
        (value, object.metadata.resource_version.clone().unwrap())
    };
    let handler = handler_fn(move |change: Change<'_, ConfigMap>| {
        let key = change.key().map(|key| key.to_string()).unwrap_or_default();
        let mut mirror = seen.lock();
        let known = mirror.objects.get(&key).cloned();
        let is_sound = match &change {
            Change::Added(..) => known.is_none() || mirror.undecodable.contains(&key),
            Change::Updated { old, .. } => match old.object() {
                Some(old) => known == Some(summary(old)),
                None => mirror.undecodable.contains(&key),
            },
            Change::Deleted(_) | Change::Undecodable(_) => true,
        };
        if !is_sound {
            mirror.violations.push(format!("{change:?} of {key}, known as {known:?}"));
        }
        match &change {
            Change::Undecodable(_) => drop(mirror.undecodable.insert(key.clone())),
            Change::Added(..) | Change::Deleted(_) | Change::Updated { .. } => drop(mirror.undecodable.remove(&key)),
        }
        match change {
            Change::Added(new, _) | Change::Updated { new, .. } => drop(mirror.objects.insert(key, summary(new))),
            Change::Deleted(_) => drop(mirror.objects.remove(&key)),
            Change::Undecodable(_) => {}
        }
    });
    informer.add_handler_with(handler, HandlerOptions::default().events_max(events_max));
    mirror
}

async fn run(options: ReflectorOptions, steps: Vec<Step>) {
    let server = Server::new();
    let factory = InformerFactory::new(server.client()).options(options);
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let mut mirrors = vec![join(&informer, 2)];
    let running = factory.start();
    for step in steps {
        match step {
            Step::Break => server.break_watches(),
            Step::Compact => server.compact(),
            Step::Delete(number) => server.delete(&format!("a/x{number}")),
            Step::End => server.end_watches(),
            Step::Fail(verb, fault) => server.fail(verb, fault),
            Step::Join => mirrors.push(join(&informer, 100)),
            Step::Put(number, value) => drop(server.put(&format!("a/x{number}"), &value.to_string())),
            Step::PutBroken(number) => {
                let metadata = json!({"namespace": "a", "name": format!("x{number}")});
                drop(server.put_raw("/api/v1/configmaps", json!({"metadata": metadata, "data": 7})));
            }
            Step::Say(line) => server.say(line),
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
        }
    }
    server.heal();
    // An undecodable object shows its last decodable state, which a test cannot know; make all decodable.
    for (key, (value, _)) in server.config_maps() {
        server.put(&key, &value);
    }
    let cached = || -> BTreeMap<String, (String, String)> {
        let objects = informer.lister().list().unwrap_or_default();
        objects
            .iter()
            .map(|object| {
                let value = object.data.as_ref().map(|data| data["value"].clone()).unwrap_or_default();
                (ObjectKey::of(&**object).to_string(), (value, object.metadata.resource_version.clone().unwrap()))
            })
            .collect()
    };
    // A compact cache does not list an object that cannot be decoded, so it may agree before a deletion has come.
    let agrees = |mirror: &Arc<Mutex<Mirror>>| mirror.lock().objects == server.config_maps();
    eventually("the cache and every handler agree", || {
        informer.has_synced() && cached() == server.config_maps() && mirrors.iter().all(agrees)
    })
    .await;
    running.shutdown().await;
    for mirror in mirrors {
        let mirror = mirror.lock();
        assert_eq!(mirror.violations, [""; 0]);
        assert_eq!(mirror.objects, server.config_maps(), "a handler disagrees");
    }
}

fn check(initial: InitialList, cache: CacheMode, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run(ReflectorOptions::default().initial(initial).cache(cache), steps));
}

#[test]
fn an_object_that_is_deleted_while_it_cannot_be_decoded_is_gone_for_handlers() {
    let steps = [Step::Put(4, 0), Step::Wait(1), Step::PutBroken(4), Step::Wait(1), Step::Delete(4)];
    for cache in [CacheMode::Typed, CacheMode::COMPACT] {
        for initial in [InitialList::Paged, InitialList::Streaming] {
            check(initial, cache, steps.to_vec());
        }
    }
}

/// The steps without those that only a long wait ends, for real time.
fn without_waits(steps: Vec<Step>) -> Vec<Step> {
    let bounded = steps.into_iter().filter_map(|step| match step {
        Step::Fail(_, Fault::Silence) => None,
        Step::Fail(verb, Fault::Status { code, reason, .. }) => {
            Some(Step::Fail(verb, Fault::Status { code, reason, retry_after: None }))
        }
        Step::Wait(ms) => Some(Step::Wait(ms % 4)),
        step => Some(step),
    });
    bounded.collect()
}

#[test]
fn on_several_threads_cache_and_handlers_agree_with_the_server_too() {
    let backoff =
        BackoffLimits { initial: Duration::from_millis(1), max: Duration::from_millis(5), ..BackoffLimits::default() };
    let mut runner = TestRunner::deterministic();
    for number in 0..(cases() / 20).min(50) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
        let initial = if number % 2 == 0 { InitialList::Paged } else { InitialList::Streaming };
        let cache = cache_modes().new_tree(&mut runner).unwrap().current();
        let steps = without_waits(steps().new_tree(&mut runner).unwrap().current());
        runtime.block_on(run(ReflectorOptions::default().backoff(backoff).initial(initial).cache(cache), steps));
    }
}

fn cache_modes() -> impl Strategy<Value = CacheMode> {
    prop_oneof![Just(CacheMode::Typed), Just(CacheMode::COMPACT), Just(CacheMode::Compact { decoded_max: 0 })]
}

proptest! {
    #![proptest_config(Config { cases: cases(), ..Config::default() })]

    #[test]
    fn after_any_faults_cache_and_handlers_agree_with_the_server_listing(cache in cache_modes(), steps in steps()) {
        check(InitialList::Paged, cache, steps);
    }

    #[test]
    fn after_any_faults_cache_and_handlers_agree_with_the_server_streaming(cache in cache_modes(), steps in steps()) {
        check(InitialList::Streaming, cache, steps);
    }
}

/// The number of schedules: `PROPTEST_CASES`, or enough for a quick run.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}
