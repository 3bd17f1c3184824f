//! Guarantees that other tests check on one thread in paused time, checked on several threads in real time.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::{Condvar, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use steersman::cache::MAILBOX_MAX;
use steersman::{Action, Controller, InformerFactory, Lister, ObjectKey, Scope};
use tokio_util::sync::CancellationToken;

use crate::server::Server;

/// The number of owners: so large that hardly any gets children twice, which would make it run again for another
/// reason.
const OWNERS: u32 = 1_000_000;

/// The children that each owner had when its key ran last.
type Views = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// Owners have keys in a namespace of their own; the value of a config map names its owner.
fn owner(value: &str) -> ObjectKey {
    ObjectKey::namespaced("owner", value)
}

fn value(child: &ConfigMap) -> String {
    child.data.as_ref().map(|data| data["value"].clone()).unwrap_or_default()
}

/// Blocks every thread that passes while it is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        self.opened.wait_while(&mut self.is_closed.lock(), |is_closed| *is_closed);
    }

    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock() = is_closed;
        self.opened.notify_all();
    }
}

async fn look(key: ObjectKey, (children, views): &(Lister<ConfigMap>, Views)) -> Result<Action, Infallible> {
    if key.namespace() == Some("owner") {
        // No other worker has the key until this returns, so the last entry is from the last run.
        let children = children.list().expect("a controller starts with filled caches");
        let own = children.iter().filter(|child| value(child) == key.name());
        let view = own.map(|child| ObjectKey::of(&**child).to_string()).collect();
        views.lock().insert(key.name().to_owned(), view);
    }
    Ok(Action::AwaitChange)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_saw_a_state_runs_again_however_far_the_handler_is_behind() {
    let mut rng = StdRng::seed_from_u64(1);
    let (server, views) = (Server::new(), Views::default());
    let factory = InformerFactory::new(server.client());
    let children = factory.informer::<ConfigMap>(Scope::All).lister();
    let gate = Arc::<Gate>::default();
    let passed = Arc::clone(&gate);
    let controller = Controller::<ConfigMap>::new(look, (children.clone(), Arc::clone(&views))).workers(3).watches(
        Scope::All,
        move |child: &ConfigMap| {
            passed.pass();
            vec![owner(&value(child))]
        },
    );
    let (queue, stop) = (controller.queue(), CancellationToken::new());
    let running = tokio::spawn({
        let (factory, stop) = (factory.clone(), stop.clone());
        async move { controller.run(&factory, stop).await }
    });
    let shown = || -> BTreeSet<String> { children.list().unwrap().iter().map(|child| value(child)).collect() };
    server.put("a/first", "0");
    until("it works", || views.lock().contains_key("0")).await;

    // Children move, come and go while the handler stands still.
    gate.set_closed(true);
    let mut version = String::new();
    for _ in 0..3 {
        for _ in 0..MAILBOX_MAX / 2 {
            let child = format!("a/x{}", rng.random_range(0..60));
            match rng.random_ratio(1, 8) {
                true => server.delete_if_there(&child),
                false => version = server.put(&child, &rng.random_range(0..OWNERS).to_string()),
            }
        }
        // Every owner reads the current cache, and must run again after it changes.
        let seen = || children.has_seen(&owner("nobody"), &version);
        let waiting = async { until("the cache has it, or waits", seen).await };
        // At some point the cache waits for the handler.
        drop(tokio::time::timeout(Duration::from_millis(300), waiting).await);
        let owners = shown();
        owners.iter().for_each(|number| queue.add(owner(number)));
        until("all owners looked", || owners.iter().all(|number| views.lock().contains_key(number))).await;
    }
    gate.set_closed(false);

    let expected = || {
        let mut expected: BTreeMap<String, BTreeSet<String>> =
            views.lock().keys().map(|number| (number.clone(), BTreeSet::new())).collect();
        for (key, (value, _)) in server.config_maps() {
            expected.entry(value).or_default().insert(key);
        }
        expected
    };
    until("the last look of every owner shows what is", || {
        let expected = expected();
        *views.lock() == expected
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
}
