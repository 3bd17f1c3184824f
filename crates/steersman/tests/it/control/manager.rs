//! The order in which the parts of a manager start and end, and its errors.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steersman::cache::{Change, handler_fn};
use steersman::election::ElectionOptions;
use steersman::metrics::MetricsFormat;
use steersman::queue::Stats as QueueStats;
use steersman::shard::ShardOptions;
use steersman::{Action, Controller, InformerFactory, Manager, ManagerError, ObjectKey, ReconcileError, Scope};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::server::{Fault, Server, Verb, eventually, settle};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

#[derive(Debug, thiserror::Error)]
#[error("scripted")]
struct Scripted;

impl ReconcileError for Scripted {}

/// The events of a test, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Writes into the log when it is dropped.
struct Dropped(Log, &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.lock().push(self.1.to_owned());
    }
}

async fn reconcile(_: ObjectKey, log: &Log) -> Result<Action, Scripted> {
    log.lock().push("reconciled".to_owned());
    Ok(Action::AwaitChange)
}

fn holder(server: &Server) -> String {
    let lease = server.get(LEASES, "kube-system/test");
    lease.and_then(|lease| Some(lease["spec"]["holderIdentity"].as_str()?.to_owned())).unwrap_or_default()
}

fn elected(server: &Server, name: &str) -> Manager {
    let options = ElectionOptions::new("test", "kube-system").identity(name.to_owned());
    Manager::new(server.client()).elect_with(options)
}

fn start(manager: Manager) -> (oneshot::Sender<()>, JoinHandle<Result<(), ManagerError>>) {
    let (shutdown, asked) = oneshot::channel::<()>();
    (shutdown, tokio::spawn(manager.run(async { drop(asked.await) })))
}

/// A task that does nothing until it is stopped, and logs that it was.
fn idle(log: &Log, name: &'static str) -> impl FnOnce(CancellationToken) -> IdleWork + Send + 'static {
    let log = Arc::clone(log);
    move |stop| {
        Box::pin(async move {
            log.lock().push(format!("{name} begins"));
            stop.cancelled().await;
            log.lock().push(format!("{name} ends"));
            Ok(())
        })
    }
}

type IdleWork = futures::future::BoxFuture<'static, Result<(), Infallible>>;

#[tokio::test(start_paused = true)]
async fn what_starts_first_ends_last() {
    let server = Server::new();
    server.put("a/x", "1");
    let log = Log::default();
    let note = {
        let (log, server) = (Arc::clone(&log), server.clone());
        move |what: &str, n_cached: usize| {
            let n_watches = server.n_watches();
            log.lock().push(format!("{what}: {n_cached} cached, {n_watches} watches, led by {:?}", holder(&server)));
        }
    };
    let manager = elected(&server, "one");
    let config_maps = manager.informers().informer::<ConfigMap>(Scope::All).lister();
    let task = |name: &'static str| {
        let (note, config_maps) = (note.clone(), config_maps.clone());
        move |stop: CancellationToken| async move {
            note(&format!("{name} begins"), config_maps.list().unwrap().len());
            stop.cancelled().await;
            // The other tasks must wait for this one.
            tokio::time::sleep(Duration::from_secs(5)).await;
            note(&format!("{name} ends"), config_maps.list().unwrap().len());
            Ok::<_, Infallible>(())
        }
    };
    let controller = Controller::<ConfigMap>::new(reconcile, Arc::clone(&log));
    let manager =
        manager.run_leading("leader", task("leader")).run_always("always", task("always")).controller(controller);
    let (shutdown, running) = start(manager);
    tokio::time::sleep(Duration::from_secs(60)).await;
    shutdown.send(()).unwrap();
    running.await.unwrap().unwrap();
    let log = log.lock().join("\n");
    let expected = [
        r#"always begins: 1 cached, 1 watches, led by """#,
        r#"leader begins: 1 cached, 1 watches, led by "one""#,
        "reconciled",
        r#"leader ends: 1 cached, 1 watches, led by "one""#,
        r#"always ends: 1 cached, 1 watches, led by """#,
    ];
    let mut sorted: Vec<&str> = log.lines().collect();
    // The leader's task and its controllers begin together.
    sorted[1..3].sort_by_key(|line| *line == "reconciled");
    assert_eq!(sorted, expected);
    assert_eq!(server.n_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_works_without_listing_first() {
    let server = Server::new();
    server.put("a/x", "1");
    let (first, second) = (Log::default(), Log::default());
    let with =
        |name, log: &Log| elected(&server, name).controller(Controller::<ConfigMap>::new(reconcile, Arc::clone(log)));
    let (shutdown, one) = start(with("one", &first));
    eventually("one works", || !first.lock().is_empty()).await;
    let (_keep, _two) = start(with("two", &second));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(second.lock().is_empty());
    let n_requests = server.n_seen("/api/v1/configmaps");
    shutdown.send(()).unwrap();
    one.await.unwrap().unwrap();
    eventually("two works", || !second.lock().is_empty()).await;
    assert_eq!((holder(&server).as_str(), server.n_seen("/api/v1/configmaps")), ("two", n_requests));
}

#[tokio::test(start_paused = true)]
async fn a_standby_queues_nothing_and_then_runs_what_exists_and_what_went_meanwhile() {
    type Runs = Arc<Mutex<Vec<ObjectKey>>>;
    async fn record(key: ObjectKey, runs: &Runs) -> Result<Action, Infallible> {
        runs.lock().push(key);
        Ok(Action::AwaitChange)
    }
    let server = Server::new();
    let (shutdown, one) = start(elected(&server, "one"));
    eventually("one leads", || holder(&server) == "one").await;
    let runs = Runs::default();
    let controller = Controller::<ConfigMap>::new(record, Arc::clone(&runs))
        .watches(Scope::All, |config: &ConfigMap| {
            config.data.iter().map(|data| ObjectKey::namespaced("owner", &data["value"])).collect()
        });
    let queue = controller.queue();
    let (_keep, _two) = start(elected(&server, "two").controller(controller));
    server.put("a/stays", "1");
    server.put("a/goes", "2");
    server.put("a/moves", "3");
    settle().await;
    server.delete("a/goes");
    server.put("a/moves", "4");
    for number in 0..100 {
        server.put("a/stays", &(100 + number).to_string());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((queue.stats(), runs.lock().len()), (QueueStats::default(), 0));
    shutdown.send(()).unwrap();
    one.await.unwrap().unwrap();
    eventually("two leads", || holder(&server) == "two").await;
    settle().await;
    let ran: BTreeSet<String> = runs.lock().iter().map(ObjectKey::to_string).collect();
    for key in ["a/stays", "a/moves", "owner/199", "owner/4", "a/goes", "owner/2", "owner/3"] {
        assert!(ran.contains(key), "{key} did not run: {ran:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn caches_that_cannot_fill_hold_tasks_and_election_back_only_for_a_while() {
    let server = Server::new();
    server.serve("/api/v1/configmaps", false);
    let log = Log::default();
    let manager = elected(&server, "one").warm_up(Duration::from_secs(7)).run_leading("leader", idle(&log, "leader"));
    manager.informers().informer::<ConfigMap>(Scope::All);
    let (shutdown, running) = start(manager);
    tokio::time::sleep(Duration::from_millis(6_900)).await;
    assert_eq!((server.n_seen(LEASES), log.lock().len()), (0, 0));
    eventually("it leads", || *log.lock() == ["leader begins"]).await;
    drop(shutdown);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_caches_that_cannot_fill_hold_tasks_and_election_back_and_are_named() {
    let server = Server::new();
    server.serve("/api/v1/configmaps", false);
    let log = Log::default();
    let manager = elected(&server, "one").run_leading("leader", idle(&log, "leader"));
    manager.informers().informer::<ConfigMap>(Scope::All);
    let health = manager.health().clone();
    let (shutdown, running) = start(manager);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((server.n_seen(LEASES), log.lock().len()), (0, 0));
    assert!(!health.is_ready());
    server.serve("/api/v1/configmaps", true);
    eventually("it leads", || *log.lock() == ["leader begins"]).await;
    assert!(health.is_ready());
    drop(shutdown);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_ends_everything_with_its_error() {
    let server = Server::new();
    let log = Log::default();
    let manager = elected(&server, "one")
        .run_leading("leader", idle(&log, "leader"))
        .run_always("bystander", idle(&log, "bystander"))
        .run_always("poller", |_| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Err(Scripted)
        });
    let error = manager.run(std::future::pending()).await.unwrap_err();
    assert_eq!(error.to_string(), r#"task "poller" failed"#);
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "scripted");
    assert_eq!(*log.lock(), ["bystander begins", "leader begins", "leader ends", "bystander ends"]);
    assert_eq!(holder(&server), "");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_while_another_replica_leads_ends_the_manager() {
    let server = Server::new();
    let (_keep, _one) = start(elected(&server, "one"));
    eventually("one leads", || holder(&server) == "one").await;
    let two = elected(&server, "two").run_always("poller", |_| async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        panic!("scripted");
        #[expect(unreachable_code, reason = "the task needs a type of error")]
        Ok::<_, Scripted>(())
    });
    let error = two.run(std::future::pending()).await.unwrap_err();
    assert_eq!(error.to_string(), r#"task "poller" panicked: scripted"#);
    assert_eq!(holder(&server), "one");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_done_early_ends_nothing() {
    let server = Server::new();
    let log = Log::default();
    let manager = Manager::new(server.client())
        .run_always("short", |_| async { Ok::<_, Scripted>(()) })
        .run_leading("long", idle(&log, "long"));
    let (shutdown, running) = start(manager);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*log.lock(), ["long begins"]);
    shutdown.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(*log.lock(), ["long begins", "long ends"]);
}

#[tokio::test(start_paused = true)]
async fn tasks_share_one_grace_period_and_are_dropped_at_its_end() {
    let server = Server::new();
    let log = Log::default();
    let stubborn = |name: &'static str| {
        let dropped = Dropped(Arc::clone(&log), name);
        move |_: CancellationToken| async move {
            let _dropped = dropped;
            std::future::pending::<Result<(), Scripted>>().await
        }
    };
    let manager = elected(&server, "one")
        .grace(Duration::from_secs(7))
        .run_leading("leader", stubborn("leader"))
        .run_always("always", stubborn("always"));
    let (shutdown, running) = start(manager);
    eventually("it leads", || holder(&server) == "one").await;
    settle().await;
    let asked = Instant::now();
    shutdown.send(()).unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), r#"task "leader" was cut off after 7s"#);
    assert_eq!(asked.elapsed().as_secs(), 7);
    assert_eq!(*log.lock(), ["leader", "always"]);
    assert_eq!(holder(&server), "");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_everything_at_once() {
    let server = Server::new();
    let log = Log::default();
    let dropped = Dropped(Arc::clone(&log), "dropped");
    let (interrupt, interrupted) = oneshot::channel::<()>();
    let manager =
        elected(&server, "one").interrupt(async { drop(interrupted.await) }).run_leading("leader", |_| async move {
            let _dropped = dropped;
            std::future::pending::<Result<(), Scripted>>().await
        });
    let (shutdown, running) = start(manager);
    eventually("it leads", || holder(&server) == "one").await;
    shutdown.send(()).unwrap();
    settle().await;
    assert!(log.lock().is_empty() && !running.is_finished());
    let asked = Instant::now();
    interrupt.send(()).unwrap();
    assert!(matches!(running.await.unwrap().unwrap_err(), ManagerError::Interrupted));
    eventually("its work is dropped", || *log.lock() == ["dropped"]).await;
    assert!(asked.elapsed() < Duration::from_secs(1));
    // The work may still be running, so the lease is not released.
    assert_eq!(holder(&server), "one");
}

#[tokio::test(start_paused = true)]
async fn a_leaders_task_is_dropped_before_a_lost_lease_runs_out() {
    let server = Server::new();
    let log = Log::default();
    let dropped = Dropped(Arc::clone(&log), "leader dropped");
    let manager =
        elected(&server, "one").run_always("always", idle(&log, "always")).run_leading("leader", |_| async move {
            let _dropped = dropped;
            std::future::pending::<Result<(), Scripted>>().await
        });
    let (_keep, running) = start(manager);
    eventually("it leads", || holder(&server) == "one").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let renewed = server.seen().iter().rfind(|seen| seen.line.starts_with("PUT")).unwrap().at;
    for _ in 0..20 {
        server.fail(Verb::Write, Fault::Status { code: 500, reason: "InternalError", retry_after: None });
    }
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, ManagerError::LeadershipLost { .. }));
    assert_eq!(*log.lock(), ["always begins", "leader dropped", "always ends"]);
    // The lease lasts fifteen seconds.
    assert!((10..15).contains(&renewed.elapsed().as_secs()), "{:?}", renewed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_manager_is_ready_from_filled_caches_to_the_shutdown() {
    let server = Server::new();
    server.serve("/api/v1/configmaps", false);
    let manager = Manager::new(server.client()).run_always("slow", |stop| async move {
        stop.cancelled().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, Scripted>(())
    });
    manager.informers().informer::<ConfigMap>(Scope::All);
    let health = manager.health().clone();
    let (shutdown, running) = start(manager);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((health.is_live(), health.is_ready()), (true, false));
    server.serve("/api/v1/configmaps", true);
    eventually("it is ready", || health.is_ready()).await;
    shutdown.send(()).unwrap();
    settle().await;
    assert!(!running.is_finished());
    assert_eq!((health.is_live(), health.is_ready()), (true, false));
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn times_may_be_without_end() {
    let (server, log) = (Server::new(), Log::default());
    let shards = ShardOptions::new("test", "kube-system").handover(Duration::MAX);
    let manager = Manager::new(server.client())
        .grace(Duration::MAX)
        .warm_up(Duration::MAX)
        .shard_with(shards)
        .controller(Controller::<ConfigMap>::new(reconcile, Arc::clone(&log)))
        .run_always("poller", idle(&log, "poller"));
    let (shutdown, task) = start(manager);
    server.put("a/x", "1");
    eventually("work", || log.lock().contains(&"reconciled".to_owned())).await;
    shutdown.send(()).unwrap();
    task.await.unwrap().unwrap();
    assert_eq!(log.lock().last().unwrap(), "poller ends");
}

#[tokio::test(start_paused = true)]
async fn a_map_that_panics_costs_a_member_one_object_and_not_its_place() {
    let (server, log) = (Server::new(), Log::default());
    server.put("a/x", "1");
    server.put("a/y", "1");
    let controller = Controller::<ConfigMap>::new(reconcile, Arc::clone(&log))
        .when(|change: &Change<'_, ConfigMap>| matches!(change, Change::Deleted(_)))
        .watches(Scope::All, |config: &ConfigMap| match ObjectKey::of(config) {
            key if key.name() == "x" => panic!("scripted"),
            key => vec![key],
        });
    let manager = Manager::new(server.client()).shard("test", "kube-system").controller(controller);
    let shards = manager.shards().unwrap();
    let (shutdown, task) = start(manager);
    eventually("a run", || *log.lock() == ["reconciled"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(shards.owns(&ObjectKey::namespaced("a", "x")));
    shutdown.send(()).unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_ends_before_it_leads_leaves_no_handler_in_informers_that_live_on() {
    let server = Server::new();
    let (_keep, _one) = start(elected(&server, "one"));
    eventually("one leads", || holder(&server) == "one").await;
    let factory = InformerFactory::new(server.client());
    let _informers_live_on = factory.start();
    let config_maps = factory.informer::<ConfigMap>(Scope::All).lister();
    let held = Arc::new(());
    let handler = Arc::downgrade(&held);
    let controller =
        Controller::<ConfigMap>::new(reconcile, Log::default()).when(move |_| Arc::strong_count(&held) > 0);
    let queue = controller.queue();
    let options = ElectionOptions::new("test", "kube-system").identity("two".to_owned());
    let (shutdown, two) = start(Manager::with_informers(factory).elect_with(options).controller(controller));
    server.put("a/x", "1");
    eventually("the caches of two fill", || config_maps.len().is_ok_and(|len| len == 1)).await;
    shutdown.send(()).unwrap();
    two.await.unwrap().unwrap();
    eventually("the handler is gone", || handler.strong_count() == 0).await;
    server.put("a/y", "1");
    eventually("the cache goes on", || config_maps.len().unwrap() == 2).await;
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_several_interrupts_each_ends_everything() {
    let server = Server::new();
    for number in 0..2 {
        let interrupt = |of: usize| async move {
            if of != number {
                std::future::pending::<()>().await;
            }
        };
        let manager = Manager::new(server.client()).interrupt(interrupt(0)).interrupt(interrupt(1));
        let ended = timeout(Duration::from_secs(60), manager.run(std::future::pending())).await.unwrap();
        assert!(matches!(ended, Err(ManagerError::Interrupted)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_that_blocks_does_not_cost_a_member_its_lease() {
    let (server, log) = (Server::new(), Log::default());
    server.put("a/x", "1");
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (begun, has_begun) = oneshot::channel();
    let blocks = Mutex::new((0, Some(begun), released));
    let controller = Controller::<ConfigMap>::new(reconcile, Arc::clone(&log))
        .when(|change: &Change<'_, ConfigMap>| matches!(change, Change::Deleted(_)))
        .watches(Scope::All, move |config: &ConfigMap| {
            let (n_calls, begun, released) = &mut *blocks.lock();
            *n_calls += 1;
            // The first call is the handler's. The second is the feed's, for gained keys.
            if *n_calls == 2 {
                begun.take().unwrap().send(()).unwrap();
                // Bounded: if the feed had no thread of its own, this would hold up the test too.
                released.recv_timeout(Duration::from_secs(20)).ok();
            }
            vec![ObjectKey::of(config)]
        });
    let manager = Manager::new(server.client()).shard("test", "kube-system").controller(controller);
    let shards = manager.shards().unwrap();
    let (shutdown, task) = start(manager);
    has_begun.await.unwrap();
    assert!(log.lock().is_empty(), "the map has not returned");
    let renewed = |server: &Server| server.n_seen("PUT /apis/coordination.k8s.io");
    let n_before = renewed(&server);
    for _ in 0..3_000 {
        // The clock does not move by itself while a thread is blocked.
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert!(renewed(&server) >= n_before + 10, "{} renewals in 30 s", renewed(&server) - n_before);
    assert!(shards.owns(&ObjectKey::namespaced("a", "x")) && log.lock().is_empty());
    release.send(()).unwrap();
    eventually("the gained key arrives", || *log.lock() == ["reconciled"]).await;
    shutdown.send(()).unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_members_name_that_it_has_not_written_is_left_alone() {
    let (server, log) = (Server::new(), Log::default());
    server.put("a/x", "1");
    let controller = Controller::<ConfigMap>::new(reconcile, Arc::clone(&log));
    let manager = Manager::new(server.client()).shard("test", "kube-system").controller(controller);
    let shards = manager.shards().unwrap();
    let (shutdown, task) = start(manager);
    eventually("a run", || *log.lock() == ["reconciled"]).await;
    let before = shards.membership().borrow().member.clone();
    assert_eq!(before.len(), "test-".len() + 32, "{before}");
    let mut lease = server.get(LEASES, &format!("kube-system/{before}")).unwrap();
    lease["metadata"]["annotations"]["steersman.dev/shard-run"] = "another".into();
    server.put_raw(LEASES, lease.clone());
    let written = server.get(LEASES, &format!("kube-system/{before}")).unwrap();
    eventually("it stops", || !shards.owns(&ObjectKey::namespaced("a", "x"))).await;
    // The old Lease counts for its duration, as every member's does.
    eventually("it works under another name", || log.lock().len() == 2).await;
    let after = shards.membership().borrow().member.clone();
    assert!(after != before && after.starts_with("test-"), "{after}");
    assert_eq!(server.get(LEASES, &format!("kube-system/{before}")), Some(written));
    shutdown.send(()).unwrap();
    task.await.unwrap().unwrap();
}

/// Blocks the thread until it is released.
struct Blocked {
    released: Mutex<std::sync::mpsc::Receiver<()>>,
    begun: Arc<Semaphore>,
}

impl Blocked {
    fn new() -> (Self, std::sync::mpsc::SyncSender<()>, Arc<Semaphore>) {
        let (release, released) = std::sync::mpsc::sync_channel(1);
        let begun = Arc::new(Semaphore::new(0));
        (Self { released: Mutex::new(released), begun: Arc::clone(&begun) }, release, begun)
    }

    fn block(&self) {
        self.begun.add_permits(1);
        // Bounded, so that a failing test ends.
        self.released.lock().recv_timeout(Duration::from_secs(60)).ok();
    }
}

async fn reconcile_blocking(_: ObjectKey, blocked: &Blocked) -> Result<Action, Scripted> {
    // A task that this task woke just before runs only on this thread: it must run before the thread blocks.
    tokio::task::yield_now().await;
    blocked.block();
    Ok(Action::AwaitChange)
}

/// Code that blocks needs a thread of its own, so the clock of these tests is not paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_manager_ends_although_a_reconcile_blocks_and_says_what_still_runs() {
    let server = Server::new();
    server.put("a/x", "1");
    let (blocked, release, begun) = Blocked::new();
    let controller =
        Controller::<ConfigMap>::new(reconcile_blocking, blocked).name("stuck").grace(Duration::from_millis(10));
    let (shutdown, task) = start(elected(&server, "one").controller(controller));
    drop(timeout(Duration::from_secs(30), begun.acquire()).await.expect("it begins").unwrap());
    shutdown.send(()).unwrap();
    let error = timeout(Duration::from_secs(30), task).await.expect("it waits for the reconcile").unwrap().unwrap_err();
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "controller \"stuck\" stopped, and the reconciles of a/x still run after 10ms: they do not return to the runtime"
    );
    // No other replica may take over while the work still runs.
    assert_eq!(holder(&server), "one");
    release.send(()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_manager_ends_although_a_task_blocks_and_says_which() {
    let server = Server::new();
    let (blocked, release, begun) = Blocked::new();
    let manager = elected(&server, "one").grace(Duration::from_millis(10)).run_leading("stuck", |_| async move {
        tokio::task::yield_now().await;
        blocked.block();
        Ok::<_, Scripted>(())
    });
    let (shutdown, task) = start(manager.run_always("fine", idle(&Log::default(), "fine")));
    drop(timeout(Duration::from_secs(30), begun.acquire()).await.expect("it begins").unwrap());
    shutdown.send(()).unwrap();
    let error = timeout(Duration::from_secs(30), task).await.expect("it waits for the task").unwrap().unwrap_err();
    assert_eq!(error.to_string(), r#"tasks ["stuck"] still run after 10ms: they do not return to the runtime"#);
    assert_eq!(holder(&server), "one");
    release.send(()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_slow_handler_has_the_grace_period_to_hear_of_what_was_read() {
    let server = Server::new();
    server.put("a/x", "1");
    let (blocked, release, begun) = Blocked::new();
    let manager = Manager::new(server.client()).grace(Duration::from_secs(60));
    let mut blocked = Some(blocked);
    manager.informers().informer::<ConfigMap>(Scope::All).add_handler(handler_fn(move |_: Change<'_, ConfigMap>| {
        if let Some(blocked) = blocked.take() {
            blocked.block();
        }
    }));
    let (shutdown, mut task) = start(manager);
    drop(timeout(Duration::from_secs(30), begun.acquire()).await.expect("it begins").unwrap());
    shutdown.send(()).unwrap();
    // Longer than the wait for work that returns to the runtime.
    let early = timeout(Duration::from_millis(1_500), &mut task).await;
    assert!(early.is_err(), "the manager ended while a handler was at work: {early:?}");
    release.send(()).unwrap();
    timeout(Duration::from_secs(30), task).await.expect("it ends with the handler").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_member_has_gains_and_loses_is_measured() {
    let server = Server::new();
    let manager = Manager::new(server.client()).shard("test", "kube-system");
    let (metrics, shards) = (manager.metrics().clone(), manager.shards().unwrap());
    let check = |expected: [u64; 6]| {
        let text = metrics.encode(MetricsFormat::Prometheus);
        let names =
            ["slots_held", "members", "slots_gained_total", "slots_lost_total", "renewals_late_total", "stops_total"];
        for (name, expected) in names.into_iter().zip(expected) {
            let line = format!(r#"steersman_shard_{name}{{group="test"}} {expected}"#);
            assert!(text.contains(&line), "{line} in {text}");
        }
    };
    let (shutdown, task) = start(manager);
    let owns = || shards.owns(&ObjectKey::namespaced("a", "x"));
    eventually("it has all keys", owns).await;
    check([1_024, 1, 1_024, 0, 0, 0]);
    // Two renewals fail, and the third comes in time.
    for _ in 0..2 {
        server.fail(Verb::Write, Fault::Status { code: 500, reason: "InternalError", retry_after: None });
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    check([1_024, 1, 1_024, 0, 1, 0]);
    for _ in 0..8 {
        server.fail(Verb::Write, Fault::Status { code: 500, reason: "InternalError", retry_after: None });
    }
    eventually("it has none", || !owns()).await;
    eventually("it has all again", owns).await;
    check([1_024, 1, 2_048, 1_024, 1, 1]);
    shutdown.send(()).unwrap();
    task.await.unwrap().unwrap();
}
