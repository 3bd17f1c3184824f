//! One leader at a time, whatever happens to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use steersman::election::{Election, ElectionOptions};
use steersman::metrics::{Metrics, MetricsFormat};
use steersman::{Action, Controller, Manager, ManagerError, ObjectKey, ReconcileError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::server::{Fault, Server, Verb, eventually};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl ReconcileError for Never {}

/// The name of the worker and the time, for each piece of work.
type Work = Arc<Mutex<Vec<(&'static str, Instant)>>>;

struct Replica {
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Replica {
    /// The result with which the replica ends by itself, within the hour.
    async fn end(&mut self) -> Result<(), ManagerError> {
        timeout(Duration::from_secs(3_600), &mut self.task).await.expect("it goes on").unwrap()
    }
}

/// As `reconcile`, in one run that never ends.
async fn reconcile_for_ever(_: ObjectKey, (name, work): &(&'static str, Work)) -> Result<Action, Never> {
    loop {
        work.lock().push((name, Instant::now()));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn reconcile(_: ObjectKey, (name, work): &(&'static str, Work)) -> Result<Action, Never> {
    work.lock().push((name, Instant::now()));
    Ok(Action::RequeueAfter(Duration::from_secs(1)))
}

/// A manager whose only controller records every second that it works.
fn start(server: &Server, name: &'static str, work: &Work) -> Replica {
    start_with(server, name, Controller::<ConfigMap>::new(reconcile, (name, Arc::clone(work))))
}

fn start_with(server: &Server, name: &'static str, controller: Controller<ConfigMap>) -> Replica {
    let options = ElectionOptions::new("test", "kube-system").identity(name.to_owned());
    let manager = Manager::new(server.client()).elect_with(options).controller(controller);
    let (shutdown, asked) = oneshot::channel::<()>();
    let task = tokio::spawn(manager.run(async { drop(asked.await) }));
    Replica { shutdown, task }
}

fn holder(server: &Server) -> String {
    let lease = server.get(LEASES, "kube-system/test");
    lease.and_then(|lease| Some(lease["spec"]["holderIdentity"].as_str()?.to_owned())).unwrap_or_default()
}

fn transitions(server: &Server) -> i64 {
    server.get(LEASES, "kube-system/test").unwrap()["spec"]["leaseTransitions"].as_i64().unwrap()
}

fn rig() -> (Server, Work) {
    let server = Server::new();
    server.put("a/x", "1");
    (server, Work::default())
}

#[tokio::test(start_paused = true)]
async fn one_replica_works_and_another_takes_over_at_once_when_it_leaves() {
    let (server, work) = rig();
    let one = start(&server, "one", &work);
    eventually("one leads", || holder(&server) == "one").await;
    let two = start(&server, "two", &work);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(work.lock().iter().all(|(name, _)| *name == "one") && work.lock().len() > 100);
    let left = Instant::now();
    one.shutdown.send(()).unwrap();
    one.task.await.unwrap().unwrap();
    eventually("two works", || work.lock().last().is_some_and(|(name, _)| *name == "two")).await;
    assert!(left.elapsed() <= Duration::from_secs(6), "{:?}", left.elapsed());
    assert_eq!((holder(&server).as_str(), transitions(&server)), ("two", 1));
    two.shutdown.send(()).unwrap();
    two.task.await.unwrap().unwrap();
    assert_eq!(holder(&server), "");
}

#[tokio::test(start_paused = true)]
async fn managers_under_one_election_work_while_it_is_held() {
    let (server, work) = rig();
    let options = ElectionOptions::new("test", "kube-system").identity("one".to_owned());
    let mut election = Election::new(server.client(), options).unwrap();
    election.acquire().await;
    let running: Vec<Replica> = ["first", "second"]
        .into_iter()
        .map(|name| {
            let controller = Controller::<ConfigMap>::new(reconcile, (name, Arc::clone(&work)));
            let manager = Manager::new(server.client()).under(election.leadership()).controller(controller);
            let (shutdown, asked) = oneshot::channel::<()>();
            Replica { shutdown, task: tokio::spawn(manager.run(async { drop(asked.await) })) }
        })
        .collect();
    let held = timeout(Duration::from_secs(60), election.hold()).await;
    assert!(held.is_err(), "the lease is renewed");
    let names = |work: &Work| work.lock().iter().map(|(name, _)| *name).collect::<BTreeSet<_>>();
    assert_eq!(names(&work), BTreeSet::from(["first", "second"]));
    election.release().await;
    let before = work.lock().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(work.lock().len() <= before + 2, "nobody leads any more");
    for replica in running {
        replica.shutdown.send(()).unwrap();
        replica.task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_when_its_lease_has_run_out() {
    let (server, work) = rig();
    let one = start(&server, "one", &work);
    eventually("one works", || !work.lock().is_empty()).await;
    let two = start(&server, "two", &work);
    tokio::time::sleep(Duration::from_secs(30)).await;
    one.task.abort();
    let died = Instant::now();
    eventually("two works", || work.lock().last().is_some_and(|(name, _)| *name == "two")).await;
    assert!((14..=22).contains(&died.elapsed().as_secs()), "{:?}", died.elapsed());
    drop(two);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_working_before_another_may_start() {
    let (server, work) = rig();
    let endless = Controller::<ConfigMap>::new(reconcile_for_ever, ("one", Arc::clone(&work)));
    let mut one = start_with(&server, "one", endless);
    eventually("one works", || !work.lock().is_empty()).await;
    let two = start(&server, "two", &work);
    tokio::time::sleep(Duration::from_secs(30)).await;
    // All writes fail until the leader has given up; the lease expires soon after.
    for _ in 0..6 {
        server.fail(Verb::Write, Fault::Status { code: 500, reason: "InternalError", retry_after: None });
    }
    eventually("two works", || work.lock().last().is_some_and(|(name, _)| *name == "two")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let error = one.end().await.unwrap_err();
    assert_eq!(error.to_string(), r#"leader election "test" was lost; all work was stopped"#);
    let work = work.lock();
    // The work that was running was dropped at an await point, without a grace period.
    let last_of_one = work.iter().rev().find(|(name, _)| *name == "one").unwrap().1;
    let first_of_two = work.iter().find(|(name, _)| *name == "two").unwrap().1;
    assert!(last_of_one + Duration::from_secs(1) < first_of_two);
    drop((one.shutdown, two));
}

/// The election of the leader is no longer polled, as when its thread is busy, while its workers go on.
#[tokio::test(start_paused = true)]
async fn no_work_begins_or_goes_on_after_the_deadline_although_the_manager_does_not_notice() {
    let (server, work) = rig();
    let mut managers = Vec::new();
    for (name, endless) in [("steps", false), ("endless", true)] {
        let context = (name, Arc::clone(&work));
        let controller = match endless {
            true => Controller::<ConfigMap>::new(reconcile_for_ever, context),
            false => Controller::<ConfigMap>::new(reconcile, context),
        };
        managers.push(controller);
    }
    let tasks = Arc::clone(&work);
    let mut manager = Manager::new(server.client()).elect("test", "kube-system").run_leading("task", |_| async move {
        loop {
            tasks.lock().push(("task", Instant::now()));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        #[expect(unreachable_code, reason = "the task needs a type of error")]
        Ok::<_, Never>(())
    });
    for (number, controller) in managers.into_iter().enumerate() {
        manager = manager.controller(controller.name(&format!("c{number}")));
    }
    let mut running = Box::pin(manager.run(std::future::pending()));
    tokio::select! {
        ended = &mut running => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_secs(30)) => {}
    }
    let renewed = server.seen().iter().rfind(|seen| seen.line.starts_with("PUT")).unwrap().at;
    work.lock().clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    for name in ["steps", "endless", "task"] {
        let last = work.lock().iter().rfind(|(who, _)| *who == name).map(|(_, at)| *at).unwrap();
        let after = last - renewed;
        assert!((8.5..10.0).contains(&after.as_secs_f64()), "{name} works {after:?} after the last renewal");
    }
    let error = running.await.unwrap_err();
    assert!(matches!(error, ManagerError::LeadershipLost { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_stolen_lease_ends_the_work() {
    let (server, work) = rig();
    let mut one = start(&server, "one", &work);
    eventually("one works", || !work.lock().is_empty()).await;
    let mut lease = server.get(LEASES, "kube-system/test").unwrap();
    lease["spec"]["holderIdentity"] = "thief".into();
    server.put_raw(LEASES, lease);
    let error = one.end().await.unwrap_err();
    assert!(matches!(error, ManagerError::LeadershipLost { .. }));
    drop(one.shutdown);
}

#[tokio::test(start_paused = true)]
async fn times_that_allow_two_leaders_are_refused() {
    let options = ElectionOptions::new("test", "kube-system").lease(Duration::from_secs(10));
    let error = Manager::new(Server::new().client()).elect_with(options).run(async {}).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.starts_with(r#"election "test": the lease (10s) must be longer than the renew deadline (10s)"#),
        "{cause}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_manager_stops_in_order_and_without_an_election() {
    let (server, work) = rig();
    let controller = Controller::<ConfigMap>::new(reconcile, ("one", Arc::clone(&work)));
    let manager = Manager::new(server.client()).controller(controller);
    let worked = Arc::clone(&work);
    manager.run(async move { eventually("work", || worked.lock().len() > 3).await }).await.unwrap();
    assert_eq!(server.n_watches(), 0);
    let n_runs = work.lock().len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(work.lock().len(), n_runs);
}

// === One election by itself ===

fn candidate(server: &Server, name: &str) -> Election {
    let options = ElectionOptions::new("test", "kube-system").identity(name.to_owned());
    Election::new(server.client(), options).expect("the default times are sound")
}

fn lease(server: &Server) -> serde_json::Value {
    server.get(LEASES, "kube-system/test").expect("there is a lease")
}

/// A lease as client-go writes it, long ago by its own clock.
fn put_lease(server: &Server, holder: &str, seconds: u32) {
    let time = "2020-01-01T00:00:00.000000Z";
    let spec = json!({
        "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 4,
        "acquireTime": time, "renewTime": time,
    });
    let metadata = json!({"namespace": "kube-system", "name": "test", "labels": {"team": "a"}});
    server.put_raw(LEASES, json!({"metadata": metadata, "spec": spec}));
}

/// How long `name` takes to lead.
async fn time_to_lead(server: &Server, name: &str) -> Duration {
    let start = Instant::now();
    candidate(server, name).acquire().await;
    assert_eq!(holder(server), name);
    start.elapsed()
}

fn conflict() -> Fault {
    Fault::Status { code: 409, reason: "Conflict", retry_after: None }
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_created_as_client_go_does() {
    let server = Server::new();
    assert_eq!(time_to_lead(&server, "one").await, Duration::ZERO);
    let spec = &lease(&server)["spec"];
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    // client-go reads exactly six digits.
    let time = spec["renewTime"].as_str().unwrap();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_is_taken_when_it_did_not_change_for_its_duration_whatever_its_times_say() {
    for (seconds, expected) in [(15, 15..=20), (60, 60..=65), (3, 3..=8)] {
        let server = Server::new();
        put_lease(&server, "other", seconds);
        let took = time_to_lead(&server, "one").await.as_secs();
        assert!(expected.contains(&took), "{took} s for a lease of {seconds}");
        let lease = lease(&server);
        assert_eq!(lease["spec"]["leaseTransitions"], 5);
        assert_ne!(lease["spec"]["acquireTime"], "2020-01-01T00:00:00.000000Z");
        assert_eq!(lease["metadata"]["labels"]["team"], "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_keeps_changing_is_not_taken() {
    let server = Server::new();
    put_lease(&server, "other", 15);
    let mut one = candidate(&server, "one");
    let renew = async {
        for number in 0..20 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let mut lease = lease(&server);
            lease["spec"]["renewTime"] = format!("2020-01-01T00:00:00.{:06}Z", number + 1).into();
            server.put_raw(LEASES, lease);
        }
    };
    tokio::select! {
        () = one.acquire() => panic!("it leads"),
        () = renew => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_nobody_or_our_own_is_taken_at_once() {
    for (holder, transitions, is_renewal) in [("", 5, false), ("one", 4, true)] {
        let server = Server::new();
        put_lease(&server, holder, 15);
        assert_eq!(time_to_lead(&server, "one").await, Duration::ZERO);
        let spec = &lease(&server)["spec"];
        assert_eq!(spec["leaseTransitions"], transitions);
        assert_eq!(spec["acquireTime"] == "2020-01-01T00:00:00.000000Z", is_renewal);
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_until_we_lead() {
    let server = Server::new();
    for fault in [Fault::Status { code: 403, reason: "Forbidden", retry_after: None }, Fault::Cut, Fault::Silence] {
        server.fail(Verb::Write, fault);
    }
    // Two waits of 2 to 4.4 s, then ten seconds of silence and another wait.
    let took = time_to_lead(&server, "one").await.as_secs_f64();
    assert!((16.0..=23.3).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_one_write_every_two_seconds_and_no_read() {
    let server = Server::new();
    let mut one = candidate(&server, "one");
    one.acquire().await;
    let acquired = lease(&server)["spec"]["acquireTime"].clone();
    let (n_reads, n_writes) = (server.n_seen("GET "), server.n_seen("PUT "));
    assert!(timeout(Duration::from_secs(61), one.hold()).await.is_err());
    assert_eq!((server.n_seen("GET ") - n_reads, server.n_seen("PUT ") - n_writes), (0, 30));
    let spec = &lease(&server)["spec"];
    assert_eq!((&spec["acquireTime"], &spec["leaseTransitions"]), (&acquired, &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn renewals_that_have_to_read_the_lease_are_counted() {
    let server = Server::new();
    let mut one = candidate(&server, "one");
    one.acquire().await;
    let metrics = Metrics::new();
    metrics.observe_leadership(one.leadership());
    for _ in 0..2 {
        server.fail(Verb::Write, conflict());
    }
    assert!(timeout(Duration::from_secs(60), one.hold()).await.is_err());
    let text = metrics.encode(MetricsFormat::Prometheus);
    assert!(text.contains(r#"leader_election_slowpath_total{name="test"} 2"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_falls_silent_once_does_not_cost_the_lease() {
    let server = Server::new();
    let mut one = candidate(&server, "one");
    one.acquire().await;
    server.fail(Verb::Write, Fault::Silence);
    assert!(timeout(Duration::from_secs(60), one.hold()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_sending_of_the_last_renewal() {
    let server = Server::new();
    let mut one = candidate(&server, "one");
    one.acquire().await;
    let start = Instant::now();
    for _ in 0..10 {
        server.fail(Verb::Write, Fault::Silence);
    }
    one.hold().await;
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_tried_again_on_conflict_and_keeps_count_of_the_leaders() {
    let server = Server::new();
    put_lease(&server, "", 15);
    let mut one = candidate(&server, "one");
    one.acquire().await;
    for _ in 0..3 {
        server.fail(Verb::Write, conflict());
    }
    one.release().await;
    let spec = &lease(&server)["spec"];
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"], &spec["leaseTransitions"]),
        (&json!(""), &json!(1), &json!(5))
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_gives_up_in_time_and_leaves_the_lease_of_another_alone() {
    let server = Server::new();
    let mut one = candidate(&server, "one");
    one.acquire().await;
    for _ in 0..1_000 {
        server.fail(Verb::Write, conflict());
    }
    let start = Instant::now();
    one.release().await;
    assert_eq!((start.elapsed().as_secs(), holder(&server).as_str()), (10, "one"));
    server.heal();
    put_lease(&server, "other", 15);
    one.release().await;
    assert_eq!(holder(&server), "other");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_never_tried_asks_for_nothing_when_it_goes() {
    let server = Server::new();
    put_lease(&server, "other", 15);
    let mut one = candidate(&server, "one");
    assert!(timeout(Duration::from_secs(10), one.acquire()).await.is_err());
    let n_seen = server.seen().len();
    one.release().await;
    assert_eq!(server.seen().len(), n_seen);
}

#[tokio::test(start_paused = true)]
async fn what_a_cancelled_attempt_has_got_is_given_back() {
    let server = Server::new();
    let mut one = candidate(&server, "one");
    server.fail(Verb::Write, Fault::Silence);
    assert!(timeout(Duration::from_secs(1), one.acquire()).await.is_err());
    // The write was done, though its answer was lost.
    put_lease(&server, "one", 15);
    one.release().await;
    assert_eq!(holder(&server), "");
}

#[tokio::test(start_paused = true)]
async fn everybody_sees_who_leads() {
    let server = Server::new();
    let (mut one, mut two) = (candidate(&server, "one"), candidate(&server, "two"));
    let (first, second) = (Arc::clone(one.leadership()), Arc::clone(two.leadership()));
    assert_eq!((first.leader(), first.is_leading()), (None, false));
    one.acquire().await;
    assert_eq!((first.leader().as_deref(), first.is_leading()), (Some("one"), true));
    let mut seen = second.watch();
    let waiting = tokio::spawn(async move {
        two.acquire().await;
        two
    });
    seen.wait_for(|leader| leader.as_deref() == Some("one")).await.unwrap();
    assert!(!second.is_leading());
    one.release().await;
    assert_eq!((first.leader(), first.is_leading()), (None, false));
    seen.wait_for(|leader| leader.as_deref() == Some("two")).await.unwrap();
    assert!(second.is_leading());
    drop(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hangs_is_unhealthy_once_its_lease_and_the_tolerance_are_over() {
    let server = Server::new();
    let mut one = candidate(&server, "one");
    let leadership = Arc::clone(one.leadership());
    let tolerance = Duration::from_secs(20);
    tokio::time::sleep(Duration::from_secs(100)).await;
    leadership.check(tolerance).unwrap();
    one.acquire().await;
    tokio::time::sleep(Duration::from_secs(35)).await;
    leadership.check(tolerance).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = leadership.check(tolerance).unwrap_err();
    assert_eq!(error.to_string(), r#"leading "test", but the lease was last renewed 36s ago"#);
    one.hold().await;
    leadership.check(tolerance).unwrap();
}

#[tokio::test(start_paused = true)]
async fn options_that_make_no_election_are_refused() {
    let server = Server::new();
    let refused = |edit: &dyn Fn(&mut ElectionOptions)| {
        let mut options = ElectionOptions::new("test", "kube-system");
        edit(&mut options);
        Election::new(server.client(), options).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&|_| {}), "");
    assert_eq!(refused(&|options| options.identity.clear()), "an election needs an identity");
    assert_eq!(refused(&|options| options.name.clear()), "an election needs a name");
    assert_eq!(refused(&|options| options.namespace.clear()), "an election needs a namespace");
    let times = r#"election "test": the lease ("#;
    assert!(refused(&|options| options.retry = Duration::ZERO).starts_with(times));
    assert!(refused(&|options| options.retry = Duration::from_secs(9)).starts_with(times));
    assert!(refused(&|options| options.renew_deadline = options.lease).starts_with(times));
    assert!(refused(&|options| options.lease = Duration::MAX).starts_with(times));
    assert!(refused(&|options| options.retry = Duration::MAX).starts_with(times));
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_broken_seconds_is_written_rounded_up() {
    let server = Server::new();
    let options = ElectionOptions::new("test", "kube-system").lease(Duration::from_millis(10_001));
    Election::new(server.client(), options).unwrap().acquire().await;
    assert_eq!(lease(&server)["spec"]["leaseDurationSeconds"], 11);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_deleted_makes_it_anew_and_works_on() {
    let (server, work) = rig();
    let one = start(&server, "one", &work);
    eventually("one works", || !work.lock().is_empty()).await;
    for _ in 0..2 {
        server.delete_from(LEASES, "kube-system/test");
        eventually("the lease is back", || holder(&server) == "one").await;
        let n_runs = work.lock().len();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(work.lock().len() > n_runs + 30);
    }
    // Another replica has taken the lease in the meantime, so it is lost.
    server.delete_from(LEASES, "kube-system/test");
    put_lease(&server, "two", 15);
    let Replica { task, shutdown } = one;
    let error = task.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), r#"leader election "test" was lost; all work was stopped"#);
    drop(shutdown);
}
