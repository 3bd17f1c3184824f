//! Reconcilers, seen from outside: which keys run, how often, and how failures are handled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use steersman::cache::Change;
use steersman::controller::{ControllerError, ControllerStats};
use steersman::queue::RateLimiter;
use steersman::{
    Action, Controller, InformerFactory, Lister, LookupError, ObjectKey, ReconcileError, Scope, predicates,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::server::{Server, eventually, settle};

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("asked to come back")]
    ComeBack,
    #[error("scripted")]
    Scripted,
    #[error("hopeless")]
    Terminal,
}

impl ReconcileError for Trouble {
    fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal)
    }

    fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::ComeBack).then_some(Duration::from_secs(100))
    }
}

/// The scripts of a reconciler by key, and its runs so far.
#[derive(Clone, Default)]
pub(crate) struct Script {
    runs: Arc<Mutex<Vec<(String, Instant)>>>,
    script: Arc<Mutex<BTreeMap<String, Vec<&'static str>>>>,
}

impl Script {
    fn script(&self, key: &str, answers: &[&'static str]) {
        self.script.lock().insert(key.to_owned(), answers.iter().rev().copied().collect());
    }

    pub(crate) fn runs(&self) -> Vec<String> {
        let mut runs: Vec<String> = self.runs.lock().iter().map(|(key, _)| key.clone()).collect();
        runs.sort();
        runs
    }

    pub(crate) fn take_runs(&self) -> Vec<String> {
        let runs = self.runs();
        self.runs.lock().clear();
        runs
    }

    /// The time between the runs of `key`.
    fn waits(&self, key: &str) -> Vec<Duration> {
        let runs = self.runs.lock();
        let times: Vec<Instant> = runs.iter().filter(|(of, _)| of == key).map(|(_, at)| *at).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

async fn reconcile(key: ObjectKey, scripted: &Script) -> Result<Action, Trouble> {
    scripted.runs.lock().push((key.to_string(), Instant::now()));
    let answer = scripted.script.lock().get_mut(key.as_str()).and_then(Vec::pop).unwrap_or("ok");
    match answer {
        "come back" => Err(Trouble::ComeBack),
        "error" => Err(Trouble::Scripted),
        "jittered" => Ok(Action::RequeueAfter(Duration::from_secs(300)).jittered(0.1)),
        "hang" => {
            tokio::time::sleep(Duration::from_secs(1_000_000)).await;
            Ok(Action::AwaitChange)
        }
        "later" => Ok(Action::RequeueAfter(Duration::from_secs(60))),
        "panic" => panic!("scripted"),
        "requeue" => Ok(Action::Requeue),
        "slow" => {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(Action::AwaitChange)
        }
        "terminal" => Err(Trouble::Terminal),
        _ => Ok(Action::AwaitChange),
    }
}

pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) scripted: Script,
    pub(crate) stats: Arc<ControllerStats>,
    pub(crate) stop: CancellationToken,
    task: JoinHandle<Result<(), ControllerError>>,
}

/// Starts a controller of config maps with the options that `configure` sets.
pub(crate) async fn start(
    scripted: Script,
    server: Server,
    configure: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>,
) -> Rig {
    start_of(scripted, server, Scope::All, configure).await
}

/// As [`start`], for the config maps of `scope`.
pub(crate) async fn start_of(
    scripted: Script,
    server: Server,
    scope: Scope,
    configure: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>,
) -> Rig {
    let controller = configure(
        Controller::<ConfigMap>::of(scope, reconcile, scripted.clone())
            .rate_limiter(RateLimiter::exponential(Duration::from_secs(1), Duration::from_secs(1_000))),
    );
    let (stats, stop) = (controller.stats(), CancellationToken::new());
    let factory = InformerFactory::new(server.client());
    let task = tokio::spawn({
        let stop = stop.clone();
        async move { controller.run(&factory, stop).await }
    });
    settle().await;
    Rig { server, scripted, stats, stop, task }
}

impl Rig {
    pub(crate) async fn finish(self) -> Result<(), ControllerError> {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn every_object_and_every_change_runs_its_key() {
    let server = Server::new();
    server.put("a/x", "1");
    let rig = start(Script::default(), server, |controller| controller).await;
    assert_eq!(rig.scripted.take_runs(), ["a/x"]);
    rig.server.put("a/x", "2");
    rig.server.put("a/y", "1");
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/x", "a/y"]);
    rig.server.delete("a/x");
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/x"]);
    assert_eq!(rig.stats.n_succeeded(), 4);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_success_starts_over() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/x", &["error", "panic", "error", "ok", "error"]);
    server.put("a/x", "1");
    let rig = start(scripted, server, |controller| controller).await;
    eventually("four runs", || rig.scripted.runs().len() == 4).await;
    rig.server.put("a/x", "2");
    eventually("six runs", || rig.scripted.runs().len() == 6).await;
    let waits: Vec<u64> = rig.scripted.waits("a/x").iter().map(Duration::as_secs).collect();
    assert_eq!((&waits[..3], waits[4]), (&[1, 2, 4][..], 1));
    assert_eq!((rig.stats.n_failed(), rig.stats.n_panicked(), rig.stats.n_succeeded()), (4, 1, 2));
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_waits_for_a_change() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/x", &["terminal"]);
    server.put("a/x", "1");
    let rig = start(scripted, server, |controller| controller).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(rig.scripted.take_runs(), ["a/x"]);
    rig.server.put("a/x", "2");
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/x"]);
    assert_eq!(rig.stats.n_terminal(), 1);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_may_say_when_to_come_back() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/x", &["come back"]);
    server.put("a/x", "1");
    let rig = start(scripted, server, |controller| controller).await;
    eventually("two runs", || rig.scripted.runs().len() == 2).await;
    assert_eq!(rig.scripted.waits("a/x")[0].as_secs(), 100);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn actions_say_when_a_key_runs_next() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/later", &["later"]);
    scripted.script("a/requeue", &["requeue", "requeue"]);
    server.put("a/later", "1");
    server.put("a/requeue", "1");
    let rig = start(scripted, server, |controller| controller).await;
    eventually("all runs", || rig.scripted.runs().len() == 5).await;
    assert_eq!(rig.scripted.waits("a/later")[0].as_secs(), 60);
    assert_eq!(rig.scripted.waits("a/requeue").iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_too_long_is_dropped_and_retried() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/x", &["hang"]);
    server.put("a/x", "1");
    let rig = start(scripted, server, |controller| controller.timeout(Duration::from_secs(30))).await;
    eventually("two runs", || rig.scripted.runs().len() == 2).await;
    assert_eq!(rig.scripted.waits("a/x")[0].as_secs(), 31);
    assert_eq!(rig.stats.n_timed_out(), 1);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn workers_process_different_keys_at_once_and_one_key_never() {
    let (scripted, server) = (Script::default(), Server::new());
    for number in 0..4 {
        let key = format!("a/x{number}");
        scripted.script(&key, &["slow", "slow"]);
        server.put(&key, "1");
    }
    let rig = start(scripted, server, |controller| controller.workers(2)).await;
    settle().await;
    assert_eq!(rig.stats.active_workers(), 2);
    let started = rig.scripted.runs()[0].clone();
    rig.server.put(&started, "2");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.scripted.runs().len(), 2);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.scripted.runs().len(), 5);
    assert!(rig.scripted.waits(&started)[0] >= Duration::from_secs(10));
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn objects_that_ask_for_the_same_time_with_a_jitter_do_not_come_back_together() {
    let (scripted, server) = (Script::default(), Server::new());
    let keys: Vec<String> = (0..200).map(|number| format!("a/x{number}")).collect();
    for key in &keys {
        scripted.script(key, &["jittered"]);
        server.put(key, "1");
    }
    let rig = start(scripted, server, |controller| controller.jitter_seed(1)).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    let mut waits: Vec<u64> = keys.iter().map(|key| rig.scripted.waits(key)[0].as_secs()).collect();
    waits.sort_unstable();
    assert!(waits[0] < 303 && waits[199] > 327 && waits[199] <= 330, "{waits:?}");
    waits.dedup();
    assert!(waits.len() >= 29, "{waits:?}");
    assert_eq!(rig.stats.n_requeued(), 200);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_is_given_up_after_so_many_failures_and_reported() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/x", &["error"; 9]);
    server.put("a/x", "1");
    let reports = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&reports);
    let rig = start(scripted, server, |controller| {
        controller.give_up_after(3, move |key, error| reported.lock().push(format!("{key}: {error}")))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(rig.scripted.runs().len(), 4);
    assert_eq!(*reports.lock(), ["a/x: scripted"]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_report_that_panics_costs_no_worker_and_no_key() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/x", &["error", "error"]);
    server.put("a/x", "1");
    let rig = start(scripted, server, |controller| controller.give_up_after(1, |_, _| panic!("scripted"))).await;
    eventually("a third run", || rig.scripted.runs().len() == 3).await;
    rig.server.put("a/y", "1");
    eventually("another key", || rig.scripted.runs().len() == 4).await;
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn owned_objects_run_their_owner_and_only_the_controlling_one() {
    let server = Server::new();
    let rig = start(Script::default(), server, Controller::owns::<Deployment>).await;
    let owned = |kind: &str, owner: &str, is_controller: bool| {
        json!({
            "metadata": {"namespace": "a", "name": "child", "ownerReferences": [
                {"apiVersion": "v1", "kind": kind, "name": owner, "uid": "1", "controller": is_controller},
            ]},
        })
    };
    for (child, expected) in [
        (owned("ConfigMap", "x", true), &["a/x"][..]),
        (owned("ConfigMap", "y", true), &["a/x", "a/y"]),
        (owned("ConfigMap", "z", false), &["a/y"]),
        (owned("Secret", "w", true), &[]),
    ] {
        rig.server.put_raw("/apis/apps/v1/deployments", child);
        settle().await;
        assert_eq!(rig.scripted.take_runs(), expected);
    }
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_predicate_sees_what_happened_and_decides() {
    let server = Server::new();
    server.put("a/x", "1");
    let rig = start(Script::default(), server, |controller| {
        controller.when(|change: &Change<'_, ConfigMap>| matches!(change, Change::Deleted(_)))
    })
    .await;
    rig.server.put("a/x", "2");
    settle().await;
    assert_eq!(rig.scripted.runs(), [""; 0]);
    rig.server.delete("a/x");
    settle().await;
    assert_eq!(rig.scripted.runs(), ["a/x"]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_made_again_while_away_passes_the_predicate_of_generations() {
    let server = Server::new();
    let object = json!({"metadata": {"namespace": "a", "name": "x", "generation": 1}});
    server.put_raw("/api/v1/configmaps", object.clone());
    let rig = start(Script::default(), server, |controller| controller.when(predicates::generation_changed())).await;
    assert_eq!(rig.scripted.take_runs(), ["a/x"]);
    rig.server.end_watches();
    rig.server.delete("a/x");
    rig.server.put_raw("/api/v1/configmaps", object);
    rig.server.compact();
    eventually("a run for the new object", || rig.scripted.runs() == ["a/x"]).await;
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resync_runs_every_key_again() {
    let server = Server::new();
    server.put("a/x", "1");
    let rig = start(Script::default(), server, |controller| controller.resync(Duration::from_secs(60))).await;
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(rig.scripted.runs(), ["a/x", "a/x", "a/x"]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keys_can_be_added_from_elsewhere() {
    let mut queue = None;
    let rig = start(Script::default(), Server::new(), |controller| {
        queue = Some(controller.queue());
        controller.name("renamed")
    })
    .await;
    let queue = queue.unwrap();
    assert_eq!(&*queue.name(), "renamed");
    queue.add(ObjectKey::cluster("drifted"));
    settle().await;
    assert_eq!(rig.scripted.runs(), ["drifted"]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_key_runs_before_the_caches_are_filled_and_the_wait_can_be_limited() {
    let server = Server::new();
    server.serve("/apis/apps/v1/deployments", false);
    server.put("a/x", "1");
    let rig = start(Script::default(), server, |controller| {
        controller.owns::<Deployment>().sync_timeout(Duration::from_secs(120))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(rig.scripted.runs(), [""; 0]);
    let error = rig.task.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), r#"controller "configmap" cannot start"#);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("not synced after 120s: deployments.apps in all namespaces"), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn no_key_runs_before_the_caches_that_only_its_reconciler_knows_are_filled() {
    type Reads = Arc<Mutex<Vec<Result<usize, LookupError>>>>;
    async fn count(_: ObjectKey, (deployments, reads): &(Lister<Deployment>, Reads)) -> Result<Action, Trouble> {
        reads.lock().push(deployments.len());
        Ok(Action::AwaitChange)
    }
    let server = Server::new();
    server.serve("/apis/apps/v1/deployments", false);
    server.put("a/x", "1");
    server.put_raw("/apis/apps/v1/deployments", json!({"metadata": {"namespace": "a", "name": "x"}}));
    let factory = InformerFactory::new(server.client());
    let reads = Reads::default();
    // The controller does not know of this lister.
    let deployments = factory.informer::<Deployment>(Scope::All).lister();
    let controller = Controller::<ConfigMap>::new(count, (deployments, Arc::clone(&reads)));
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (factory, stop) = (factory.clone(), stop.clone());
        async move { controller.run(&factory, stop).await }
    });
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(reads.lock().is_empty());
    server.serve("/apis/apps/v1/deployments", true);
    eventually("a run", || !reads.lock().is_empty()).await;
    assert!(matches!(reads.lock()[..], [Ok(1)]), "{:?}", reads.lock());
    stop.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_running_reconciles_finish_within_the_grace_period() {
    for (answer, is_clean) in [("slow", true), ("hang", false)] {
        let (scripted, server) = (Script::default(), Server::new());
        scripted.script("a/x", &[answer]);
        server.put("a/x", "1");
        server.put("a/y", "1");
        let rig = start(scripted, server, |controller| controller.grace(Duration::from_secs(20))).await;
        let started = Instant::now();
        let scripted = rig.scripted.clone();
        let result = rig.finish().await;
        assert_eq!(result.is_ok(), is_clean, "{result:?}");
        assert!(started.elapsed() >= Duration::from_secs(9) && started.elapsed() <= Duration::from_secs(21));
        assert_eq!(scripted.runs(), ["a/x"], "what waits is dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_watches_one_scope() {
    let server = Server::new();
    server.put("a/x", "1");
    server.put("b/y", "1");
    let rig = start_of(Script::default(), server, Scope::Namespace("b".into()), |controller| controller).await;
    assert_eq!(rig.scripted.runs(), ["b/y"]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rate_limiter_that_panics_costs_no_worker() {
    let (scripted, server) = (Script::default(), Server::new());
    scripted.script("a/x", &["error", "error"]);
    server.put("a/x", "1");
    let limiter = RateLimiter::function(|_| panic!("scripted"));
    let rig = start(scripted, server, |controller| controller.rate_limiter(limiter)).await;
    eventually("a third run", || rig.scripted.runs().len() == 3).await;
    rig.server.put("a/y", "1");
    eventually("another key", || rig.scripted.runs().len() == 4).await;
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn times_may_be_without_end() {
    let (scripted, server) = (Script::default(), Server::new());
    server.put("a/x", "1");
    let never = Duration::MAX;
    let rig =
        start(scripted, server, |controller| controller.resync(never).timeout(never).sync_timeout(never).grace(never))
            .await;
    assert_eq!(rig.scripted.runs(), ["a/x"]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_dropped_leaves_no_handler_in_informers_that_live_on() {
    let (server, scripted) = (Server::new(), Script::default());
    let factory = InformerFactory::new(server.client());
    let _informers_live_on = factory.start();
    let held = Arc::new(());
    let handler = Arc::downgrade(&held);
    let controller =
        Controller::<ConfigMap>::new(reconcile, scripted.clone()).when(move |_| Arc::strong_count(&held) > 0);
    let queue = controller.queue();
    let task = tokio::spawn(async move { controller.run(&factory, CancellationToken::new()).await });
    server.put("a/x", "1");
    eventually("it works", || scripted.runs().len() == 1).await;
    task.abort();
    eventually("the handler is gone", || handler.strong_count() == 0).await;
    server.put("a/y", "1");
    settle().await;
    assert!(queue.is_empty());
}
