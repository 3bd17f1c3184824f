//! One leader at a time, whatever happens to it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steersman::{Action, Controller, ElectionOptions, Manager, ManagerError, ObjectKey, ReconcileError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::server::{Fault, Server, Verb, eventually};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl ReconcileError for Never {}

/// Who worked, and when.
type Work = Arc<Mutex<Vec<(&'static str, Instant)>>>;

struct Replica {
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Replica {
    /// How it ends by itself, which it does within the hour.
    async fn end(&mut self) -> Result<(), ManagerError> {
        tokio::time::timeout(Duration::from_secs(3_600), &mut self.task).await.expect("it goes on").unwrap()
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

/// A manager whose only controller notes every second that it works.
fn start(server: &Server, name: &'static str, work: &Work) -> Replica {
    start_with(server, name, Controller::<ConfigMap>::new(reconcile, (name, Arc::clone(work))))
}

fn start_with(server: &Server, name: &'static str, controller: Controller<ConfigMap>) -> Replica {
    let options = ElectionOptions { identity: name.to_owned(), ..ElectionOptions::new("test", "kube-system") };
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
    // Nobody can write until the leader has given up; the lease expires soon after.
    for _ in 0..6 {
        server.fail(Verb::Write, Fault::Status { code: 500, reason: "InternalError", retry_after: None });
    }
    eventually("two works", || work.lock().last().is_some_and(|(name, _)| *name == "two")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let error = one.end().await.unwrap_err();
    assert_eq!(error.to_string(), r#"leader election "test" was lost; all work was stopped"#);
    let work = work.lock();
    // What was running was dropped where it waited, without a grace period.
    let last_of_one = work.iter().rev().find(|(name, _)| *name == "one").unwrap().1;
    let first_of_two = work.iter().find(|(name, _)| *name == "two").unwrap().1;
    assert!(last_of_one + Duration::from_secs(1) < first_of_two);
    drop((one.shutdown, two));
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
    let options = ElectionOptions { lease: Duration::from_secs(10), ..ElectionOptions::new("test", "kube-system") };
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
