//! Three replicas of an operator that annotates every ConfigMap with the name of the replica that reconciles it.
//!
//! In a cluster, each is a Pod with the same code; here, all are in one process. Run it to see each replica's share.
//!
//! An operator can rely on this: a key is worked on in one replica at a time. It moves to another after its work has
//! ended, or was dropped at an await point. A replica that cannot renew its Lease stops before another takes over, by
//! its own clock, even if its host was suspended. Every key that moves is reconciled by its new owner, whether it has
//! changed or not, so a change in between is not missed.
//!
//! It cannot rely on a write arriving before the successor's first, because code that does not await and a request that
//! was sent cannot be stopped. So a reconcile must be idempotent and not assume that it is the only one:
//! - the same `apply` twice, as here, has the effect of one;
//! - a write that must not happen twice needs a precondition, such as a resource version or a name that only one can
//!   create;
//! - code that blocks a thread belongs in `spawn_blocking`, in steps, with a read of the object between them.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use std::collections::BTreeMap;
use steersman::{Action, Controller, Manager, ObjectKey, ReconcileError, WriteError, patch};
use steersman_testkit::ControlPlane;

const CONFIGS: usize = 30;

struct Context {
    client: kube::Client,
    replica: &'static str,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot stamp the ConfigMap")]
struct Error(#[from] WriteError);

impl ReconcileError for Error {}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let stamp = json!({"data": {"replica": cx.replica}});
    patch::apply::<ConfigMap>(&cx.client, &key, "stamper", patch::Force::Yes, &stamp).await?;
    Ok(Action::AwaitChange)
}

/// The number of ConfigMaps of each replica, once all have their share.
async fn stamp(plane: &ControlPlane, replicas: &'static [&'static str]) -> BTreeMap<String, usize> {
    let stop = tokio_util::sync::CancellationToken::new();
    let mut tasks = Vec::new();
    let mut memberships = Vec::new();
    for replica in replicas {
        let context = Context { client: plane.client(), replica };
        let manager = Manager::new(plane.client())
            .shard("stamper", "kube-system")
            .controller(Controller::<ConfigMap>::new(reconcile, context));
        memberships.extend(manager.shards().map(|shards| shards.membership()));
        tasks.push(tokio::spawn(manager.run(stop.clone().cancelled_owned())));
    }
    for mut membership in memberships {
        // It has learned of the other replicas, and has released their share.
        let share = 1_024 / replicas.len();
        let has_its_share = membership
            .wait_for(|membership| membership.members.len() == replicas.len() && membership.slots.abs_diff(share) < 120)
            .await;
        assert!(has_its_share.is_ok(), "a replica ended");
    }
    let configs: Api<ConfigMap> = Api::default_namespaced(plane.client());
    let stamps = loop {
        let list = configs.list(&ListParams::default()).await.expect("the plane is there");
        let replica_of = |config: ConfigMap| config.data.unwrap_or_default().remove("replica").unwrap_or_default();
        let mut stamps = BTreeMap::<String, usize>::new();
        for config in list {
            *stamps.entry(replica_of(config)).or_default() += 1;
        }
        if replicas.iter().all(|replica| stamps.contains_key(*replica)) && stamps.len() == replicas.len() {
            break stamps;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    stop.cancel();
    for task in tasks {
        task.await.expect("no panic").expect("the replica ends in order");
    }
    stamps
}

async fn fill(plane: &ControlPlane) {
    for number in 0..CONFIGS {
        plane
            .apply(&format!("{{kind: ConfigMap, apiVersion: v1, metadata: {{name: c{number}, namespace: default}}}}"))
            .await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let plane = ControlPlane::start().await;
    fill(&plane).await;
    for (replica, n) in stamp(&plane, &["amsterdam", "berlin", "cairo"]).await {
        println!("{replica} looks after {n} of {CONFIGS} ConfigMaps");
    }
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_replica_gets_a_share() {
    let plane = ControlPlane::start().await;
    fill(&plane).await;
    let stamps = stamp(&plane, &["amsterdam", "berlin", "cairo"]).await;
    assert_eq!(stamps.values().sum::<usize>(), CONFIGS);
}
