//! Several replicas of one operator on one control plane, with real Leases: every key in one of them, never in two.

use crate::config;
use crate::line::Line;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use steersman::shard::{Membership, ShardOptions};
use steersman::{Action, Controller, Manager, ManagerError, ObjectKey, Scope};
use steersman_testkit::{ControlPlane, User};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const KEYS: usize = 60;

/// The work of the replicas, seen from outside.
#[derive(Default)]
struct Observer {
    /// The replica that is working on each key.
    busy: BTreeMap<ObjectKey, usize>,
    /// The replica that last began work on each key, and when.
    last: BTreeMap<ObjectKey, (usize, Instant)>,
    /// Violations of the guarantees.
    violations: Vec<String>,
    /// How long one reconcile takes.
    takes: Duration,
    n_cut_off: usize,
}

type Shared = Arc<Mutex<Observer>>;

/// One reconcile, until it is dropped.
struct Busy<'a> {
    key: ObjectKey,
    replica: usize,
    is_done: bool,
    observer: &'a Shared,
}

impl<'a> Busy<'a> {
    fn begin(key: ObjectKey, replica: usize, observer: &'a Shared) -> Self {
        let mut guard = observer.lock();
        if let Some(other) = guard.busy.insert(key.clone(), replica) {
            let violation = format!("{key} is in {other} and in {replica}");
            guard.violations.push(violation);
        }
        guard.last.insert(key.clone(), (replica, Instant::now()));
        drop(guard);
        Self { key, replica, is_done: false, observer }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut observer = self.observer.lock();
        if observer.busy.get(&self.key) == Some(&self.replica) {
            observer.busy.remove(&self.key);
        }
        observer.n_cut_off += usize::from(!self.is_done);
    }
}

async fn reconcile(key: ObjectKey, (replica, observer): &(usize, Shared)) -> Result<Action, Infallible> {
    let takes = observer.lock().takes;
    let mut busy = Busy::begin(key, *replica, observer);
    sleep(takes).await;
    busy.is_done = true;
    Ok(Action::RequeueAfter(Duration::from_secs(1)))
}

struct Replica {
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ManagerError>>,
    line: Line,
    membership: watch::Receiver<Membership>,
}

struct Rig {
    plane: ControlPlane,
    observer: Shared,
    replicas: BTreeMap<usize, Replica>,
}

impl Rig {
    async fn new() -> Self {
        let plane = ControlPlane::start().await;
        let configs: Api<ConfigMap> = Api::default_namespaced(plane.client());
        for number in 0..KEYS {
            configs.create(&PostParams::default(), &config(&format!("c{number}"))).await.unwrap();
        }
        let observer = Observer { takes: Duration::from_millis(300), ..Observer::default() };
        Self { plane, observer: Arc::new(Mutex::new(observer)), replicas: BTreeMap::new() }
    }

    fn start(&mut self, number: usize) {
        let line = Line::new(&self.plane);
        let context = (number, Arc::clone(&self.observer));
        let options = ShardOptions::new("operator", "kube-system")
            .identity(format!("replica-{number}"))
            .handover(Duration::from_secs(5));
        let manager = Manager::new(Client::new(line.clone(), "default"))
            .shard_with(options)
            // Other namespaces have ConfigMaps of the server.
            .controller(
                Controller::<ConfigMap>::of(Scope::Namespace("default".to_owned()), reconcile, context).workers(KEYS),
            );
        let membership = manager.shards().unwrap().membership();
        let (shutdown, asked) = oneshot::channel::<()>();
        let task = tokio::spawn(manager.run(async { drop(asked.await) }));
        self.replicas.insert(number, Replica { shutdown, task, line, membership });
    }

    async fn stop(&mut self, number: usize) {
        let replica = self.replicas.remove(&number).unwrap();
        replica.shutdown.send(()).unwrap();
        replica.task.await.unwrap().unwrap();
    }

    /// The replica that worked on each key in the last three seconds, if every key was worked on.
    fn owners(&self) -> Option<BTreeMap<ObjectKey, usize>> {
        let observer = self.observer.lock();
        let now = Instant::now();
        let recent = observer.last.iter().filter(|(_, (_, at))| now - *at < Duration::from_secs(3));
        let owners: BTreeMap<ObjectKey, usize> = recent.map(|(key, (replica, _))| (key.clone(), *replica)).collect();
        (owners.len() == KEYS).then_some(owners)
    }

    /// Waits until every key is worked on by the replicas that run, each of which has some, and stays so; returns the
    /// owners and the time it took.
    #[track_caller]
    fn settled(&self) -> impl Future<Output = (BTreeMap<ObjectKey, usize>, Duration)> {
        let start = Instant::now();
        async move {
            for _ in 0..600 {
                sleep(Duration::from_millis(100)).await;
                let n_slots: usize = self.replicas.values().map(|replica| replica.membership.borrow().slots).sum();
                let Some(owners) = self.owners() else { continue };
                let who: std::collections::BTreeSet<usize> = owners.values().copied().collect();
                if n_slots == 1_024 && who.iter().eq(self.replicas.keys()) {
                    let took = start.elapsed();
                    sleep(Duration::from_secs(4)).await;
                    return (self.owners().unwrap(), took);
                }
            }
            panic!("not settled: {:?}", self.owners());
        }
    }

    #[track_caller]
    fn check(&self) {
        assert_eq!(self.observer.lock().violations, [""; 0]);
    }

    async fn leases(&self) -> Vec<(String, String)> {
        let leases: Api<Lease> = Api::namespaced(self.plane.client(), "kube-system");
        let list = leases.list(&ListParams::default().labels("steersman.dev/shard-group=operator")).await.unwrap();
        list.items
            .into_iter()
            .map(|lease| (lease.metadata.name.unwrap(), lease.spec.unwrap().holder_identity.unwrap()))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_come_and_go_and_every_key_is_in_one_of_them_and_never_in_two() {
    let mut rig = Rig::new().await;
    rig.start(0);
    let (_, took) = rig.settled().await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    for number in 1..5 {
        rig.start(number);
    }
    let (five, took) = rig.settled().await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    for number in 0..5 {
        assert!(five.values().filter(|owner| **owner == number).count() > 1);
    }
    assert_eq!(rig.leases().await.len(), 5);
    for number in [0, 3, 4] {
        rig.stop(number).await;
    }
    let (two, took) = rig.settled().await;
    assert!(took < Duration::from_secs(12), "{took:?}");
    let moved = five.iter().filter(|(key, owner)| [1, 2].contains(*owner) && two[*key] != **owner).count();
    assert_eq!(moved, 0, "keys of those who stayed have moved");
    for number in [1, 2] {
        rig.stop(number).await;
    }
    assert!(rig.leases().await.iter().all(|(_, holder)| holder.is_empty()), "all have left");
    // All come back. Replicas that left in order are not waited for.
    for number in [5, 6] {
        rig.start(number);
    }
    let (_, took) = rig.settled().await;
    assert!(took < Duration::from_secs(12), "{took:?}");
    sleep(Duration::from_secs(180)).await;
    let holders: Vec<String> = rig.leases().await.into_iter().map(|(_, holder)| holder).collect();
    assert_eq!(holders.len(), 2, "the Leases of those who left long ago are gone: {holders:?}");
    assert_eq!(rig.observer.lock().n_cut_off, 0);
    rig.check();
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_replica_that_dies_move_when_its_lease_has_run_out() {
    let mut rig = Rig::new().await;
    for number in 0..3 {
        rig.start(number);
    }
    let (before, _) = rig.settled().await;
    let dead = rig.replicas.remove(&1).unwrap();
    dead.task.abort();
    drop(dead.task.await);
    rig.observer.lock().busy.retain(|_, replica| *replica != 1);
    let died = Instant::now();
    let (after, took) = rig.settled().await;
    assert!((12..=25).contains(&took.as_secs()), "{took:?}");
    let moved = before.iter().filter(|(key, owner)| **owner != 1 && after[*key] != **owner).count();
    assert_eq!(moved, 0);
    let observer = rig.observer.lock();
    let first = observer.last.values().map(|(_, at)| *at).min();
    assert!(first > Some(died));
    drop(observer);
    rig.check();
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_cut_off_stops_before_others_take_its_keys_and_comes_back() {
    let mut rig = Rig::new().await;
    // Work that never ends by itself has to be stopped.
    rig.observer.lock().takes = Duration::from_secs(1_000_000);
    for number in 0..3 {
        rig.start(number);
    }
    let all_busy = async |rig: &Rig| {
        for _ in 0..600 {
            sleep(Duration::from_millis(100)).await;
            if rig.observer.lock().busy.len() == KEYS {
                return;
            }
        }
        panic!("{} of {KEYS} keys are worked on", rig.observer.lock().busy.len());
    };
    sleep(Duration::from_secs(30)).await;
    all_busy(&rig).await;
    let before = rig.observer.lock().busy.clone();
    assert!(before.values().any(|owner| *owner == 1));
    rig.replicas[&1].line.cut();
    let cut = Instant::now();
    while rig.observer.lock().busy.values().any(|owner| *owner == 1) {
        sleep(Duration::from_millis(50)).await;
    }
    assert!((7_500..=10_100).contains(&cut.elapsed().as_millis()), "{:?}", cut.elapsed());
    assert_eq!(rig.replicas[&1].membership.borrow().slots, 0);
    all_busy(&rig).await;
    assert!((12..=25).contains(&cut.elapsed().as_secs()), "{:?}", cut.elapsed());
    rig.replicas[&1].line.mend();
    sleep(Duration::from_secs(30)).await;
    all_busy(&rig).await;
    assert_eq!(rig.observer.lock().busy, before, "it has its keys again");
    rig.check();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_stops_its_member_which_joins_anew() {
    let mut rig = Rig::new().await;
    for number in 0..2 {
        rig.start(number);
    }
    let (before, _) = rig.settled().await;
    let leases: Api<Lease> = Api::namespaced(rig.plane.client(), "kube-system");
    let name = rig.replicas[&0].membership.borrow().member.clone();
    leases.delete(&name, &Default::default()).await.unwrap();
    let mut membership = rig.replicas[&0].membership.clone();
    membership.wait_for(|membership| membership.slots == 0).await.unwrap();
    let (after, took) = rig.settled().await;
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert_eq!(before, after);
    rig.check();
}

const MAY_NOT_DELETE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [list, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
";

#[tokio::test(start_paused = true)]
async fn a_replica_that_may_not_delete_leases_says_once_that_they_stay() {
    let plane = ControlPlane::start().await;
    plane.apply(MAY_NOT_DELETE).await;
    let log = Log::default();
    // The subscriber is set for this thread only, on which all of this test runs.
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let replica = || {
        let manager = Manager::new(plane.client_as(User::authenticated("operator", Vec::<String>::new())))
            .shard("operator", "kube-system")
            .controller(Controller::<ConfigMap>::new(nothing, ()));
        let (shutdown, asked) = oneshot::channel::<()>();
        (tokio::spawn(manager.run(async { drop(asked.await) })), shutdown)
    };
    let (stays, goes) = (replica(), replica());
    sleep(Duration::from_secs(30)).await;
    goes.1.send(()).unwrap();
    goes.0.await.unwrap().unwrap();
    sleep(Duration::from_secs(300)).await;

    let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-system");
    let of_group = ListParams::default().labels("steersman.dev/shard-group=operator");
    assert_eq!(leases.list(&of_group).await.unwrap().items.len(), 2);
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let said = "allow the verb delete on leases in the namespace kube-system";
    assert_eq!(text.matches(said).count(), 1, "{text}");
    stays.1.send(()).unwrap();
    stays.0.await.unwrap().unwrap();
}

async fn nothing(_: ObjectKey, (): &()) -> Result<Action, Infallible> {
    Ok(Action::AwaitChange)
}

/// The captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
