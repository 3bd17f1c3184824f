//! Controllers of several clusters in one manager.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use steersman::manager::Cluster;
use steersman::metrics::MetricsFormat;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};
use tokio::sync::oneshot;

use crate::server::{Server, eventually, settle};

const CONFIGS: &str = "/api/v1/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

type Runs = Arc<Mutex<Vec<String>>>;

struct Context {
    cluster: Cluster,
    configs: Lister<ConfigMap>,
    /// Reads the manager's own cluster.
    settings: Lister<ConfigMap>,
    runs: Runs,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let config = cx.configs.get(&key)?;
    let value = &config.data.as_ref().unwrap()["value"];
    cx.runs.lock().push(format!("{} {key}={value}, {} settings", cx.cluster.name(), cx.settings.len()?));
    Ok(Action::AwaitChange)
}

fn take(runs: &Runs) -> Vec<String> {
    let mut runs = std::mem::take(&mut *runs.lock());
    runs.sort();
    runs
}

#[tokio::test(start_paused = true)]
async fn each_cluster_has_caches_of_its_own_and_one_that_is_away_holds_up_its_controllers_only() {
    let (home, east, west) = (Server::new(), Server::new(), Server::new());
    home.put("home/settings", "1");
    east.put("a/x", "east");
    west.put("a/x", "west");
    west.serve(CONFIGS, false);
    let runs = Runs::default();
    let mut manager = Manager::new(home.client()).elect("several", "kube-system");
    let settings = manager.informers().informer::<ConfigMap>(Scope::All).lister();
    for (name, server) in [("east", &east), ("west", &west)] {
        let cluster = Cluster::new(name, server.client());
        let configs = cluster.informers().informer::<ConfigMap>(Scope::All);
        let context = Context {
            cluster: cluster.clone(),
            configs: configs.lister(),
            settings: settings.clone(),
            runs: Arc::clone(&runs),
        };
        manager = manager.controller_in(&cluster, Controller::of(&configs, reconcile, context).owns::<Deployment>());
    }
    let metrics = manager.metrics().clone();
    let (shutdown, asked) = oneshot::channel::<()>();
    let running = tokio::spawn(manager.run(async { drop(asked.await) }));
    eventually("a run", || !runs.lock().is_empty()).await;
    settle().await;
    assert_eq!(take(&runs), ["east a/x=east, 1 settings"]);
    west.serve(CONFIGS, true);
    eventually("a run", || !runs.lock().is_empty()).await;
    assert_eq!(take(&runs), ["west a/x=west, 1 settings"]);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": true});
    west.put_raw(DEPLOYMENTS, json!({"metadata": {"namespace": "a", "name": "x", "ownerReferences": [owner]}}));
    settle().await;
    assert_eq!(take(&runs), ["west a/x=west, 1 settings"], "what is owned is watched where the owner is");
    let text = metrics.encode(MetricsFormat::Prometheus);
    for line in [
        r#"controller_runtime_reconcile_total{controller="east/configmap",result="success"} 1"#,
        r#"controller_runtime_reconcile_total{controller="west/configmap",result="success"} 2"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
    shutdown.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap().unwrap();
    assert_eq!([home.n_watches(), east.n_watches(), west.n_watches()], [0, 0, 0]);
}
