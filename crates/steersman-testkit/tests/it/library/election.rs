//! Two replicas of which one works, on one control plane, with a real Lease.

use crate::line::Line;
use crate::{configs, create};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use steersman::election::{ElectionOptions, Leadership};
use steersman::{Action, Controller, Manager, ManagerError, ObjectKey};
use steersman_testkit::ControlPlane;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The replicas at work now, and when the last one was dropped.
#[derive(Default)]
struct Replicas {
    at_work: Vec<usize>,
    n_at_once_max: usize,
    last_end: Option<Instant>,
}

struct Work<'a>(usize, &'a Mutex<Replicas>);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let mut replicas = self.1.lock();
        replicas.at_work.retain(|number| *number != self.0);
        replicas.last_end = Some(Instant::now());
    }
}

/// A reconcile that never ends by itself.
async fn reconcile(_: ObjectKey, (number, replicas): &(usize, Arc<Mutex<Replicas>>)) -> Result<Action, Infallible> {
    let _work = Work(*number, replicas);
    {
        let mut replicas = replicas.lock();
        replicas.at_work.push(*number);
        replicas.n_at_once_max = replicas.n_at_once_max.max(replicas.at_work.len());
    }
    std::future::pending().await
}

fn start(
    line: &Line,
    number: usize,
    replicas: &Arc<Mutex<Replicas>>,
) -> (JoinHandle<Result<(), ManagerError>>, Arc<Leadership>) {
    let options = ElectionOptions::new("operator", "kube-system").identity(format!("replica-{number}"));
    let manager =
        Manager::new(Client::new(line.clone(), "default"))
            .elect_with(options)
            .controller(Controller::<ConfigMap>::new(reconcile, (number, Arc::clone(replicas))));
    let leadership = manager.leadership().unwrap();
    (tokio::spawn(manager.run(std::future::pending())), leadership)
}

#[tokio::test(start_paused = true)]
async fn work_that_never_ends_is_dropped_before_the_lease_could_expire() {
    let plane = ControlPlane::start().await;
    create(&configs(&plane), "c").await;
    let replicas = Arc::<Mutex<Replicas>>::default();
    let lines = [Line::new(&plane), Line::new(&plane)];
    let (one, first) = start(&lines[0], 1, &replicas);
    let until = async |number: usize| {
        while replicas.lock().at_work != [number] {
            sleep(Duration::from_millis(10)).await;
        }
    };
    until(1).await;
    let (_two, second) = start(&lines[1], 2, &replicas);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((first.is_leading(), second.leader().as_deref()), (true, Some("replica-1")));
    lines[0].cut();
    let cut = Instant::now();
    until(2).await;
    let stopped = replicas.lock().last_end.unwrap() - cut;
    assert!((8_000..=10_000).contains(&stopped.as_millis()), "{stopped:?}");
    // The last renewal was up to 2 s before the cut. The other replica sees it up to 4.4 s after it was made, waits 15
    // s, and reads the Lease again up to 4.4 s later.
    assert!((13..24).contains(&cut.elapsed().as_secs()), "{:?}", cut.elapsed());
    assert_eq!(replicas.lock().n_at_once_max, 1);
    assert!(matches!(one.await.unwrap(), Err(ManagerError::LeadershipLost { .. })));
    assert_eq!((first.is_leading(), second.leader().as_deref()), (false, Some("replica-2")));
    let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-system");
    let spec = leases.get("operator").await.unwrap().spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("replica-2"), Some(1)));
}
