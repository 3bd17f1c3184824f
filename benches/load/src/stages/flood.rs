//! A flood by one user, and its effect on another one and on the server's own loops.
//!
//! Both users are impersonated, so that any administrator's kubeconfig works. The measured user has a separate thread:
//! otherwise the answers would wait behind those of the flood in the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::load::{self, Load};
use crate::objects;
use crate::results::{IsWanted, Results, Sample};
use crate::stage::Stage;
use bench_client::target::{JSON, Target};

/// The connections of the flood, each with one request in flight.
const CONNECTIONS: usize = 500;
/// The workers of the other user.
const OTHER_WORKERS: usize = 4;
const OBJECTS: u64 = 500;
/// The time until the flood counts as established.
const RISE: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(10);

const FLOODER: &str = "bench-flood";
const OTHER: &str = "bench-other";

/// A flood that continues until it is stopped.
struct Flood {
    tasks: JoinSet<()>,
    is_over: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

pub(super) async fn measure(stage: &mut Stage, is_wanted: &IsWanted<'_>, results: &mut Results) -> anyhow::Result<()> {
    stage.define_widgets().await?;
    stage.fill(0, OBJECTS).await?;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    for user in [FLOODER, OTHER] {
        let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{}-{user}", stage.namespace)}, "roleRef": role, "subjects": [subject]});
        stage.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding.to_string()).await?;
    }
    let list = objects::widgets_path(&stage.namespace);
    let one = format!("{list}/{}", objects::widget_name(0));
    let (flooder, other) = (stage.target.impersonating(FLOODER), stage.target.impersonating(OTHER));
    let (status, answer) = flooder.connect().await?.ask(&flooder.get(&list, JSON)).await?;
    anyhow::ensure!(status == 200, "the flood is not allowed to list: {}", String::from_utf8_lossy(&answer));
    if is_wanted("flood") {
        let flood = Flood::begin(stage, flooder.clone(), &list).await?;
        let (meter, outcome) = (stage.meter()?, ask_meanwhile(stage, other, one)?.await?);
        let outcome = outcome?;
        let (served, refused) = flood.end().await;
        eprintln!("  the flood got {served} lists and {refused} refusals; the other user {} answers", outcome.n);
        let sample = meter.sample(stage, outcome.p99_us / 1e3, served + refused + outcome.n)?;
        results.add("flood", Sample { p50_us: Some(outcome.p50_us), p99_us: Some(outcome.p99_us), ..sample });
    }
    if is_wanted("flood-namespace") {
        let flood = Flood::begin(stage, flooder, &list).await?;
        let value = end_of_namespace_s(stage).await?;
        flood.end().await;
        results.add("flood-namespace", Sample { value, ..Sample::default() });
    }
    Ok(())
}

/// GETs of one object by a user, on a separate thread.
fn ask_meanwhile(
    stage: &Stage,
    target: Target,
    path: String,
) -> anyhow::Result<tokio::sync::oneshot::Receiver<anyhow::Result<load::Outcome>>> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (errors, duration) = (Arc::clone(&stage.errors), stage.bounds.duration);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let work = move || {
        let load = Load { method: "GET", workers: OTHER_WORKERS, duration, count_max: u64::MAX };
        let request = target.get(&path, JSON);
        let write = move |_: u64, out: &mut Vec<u8>| out.extend_from_slice(&request);
        // The run may have been stopped in the meantime.
        let _ = sender.send(runtime.block_on(load::run(&Arc::new(target), &errors, load, write)));
    };
    std::thread::Builder::new().name("other-user".to_owned()).spawn(work).context("no thread for the other user")?;
    Ok(receiver)
}

/// Seconds until a deleted namespace with an object in it is gone, for which its loop must be served.
async fn end_of_namespace_s(stage: &Stage) -> anyhow::Result<f64> {
    let name = format!("{}-doomed", stage.namespace);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    stage.create("/api/v1/namespaces", &namespace.to_string()).await?;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    stage.create(&format!("/api/v1/namespaces/{name}/configmaps"), &config.to_string()).await?;
    let (path, start) = (format!("/api/v1/namespaces/{name}"), Instant::now());
    stage.ask("DELETE", &path, None).await?;
    while stage.ask("GET", &path, None).await?.0 != 404 {
        anyhow::ensure!(start.elapsed() < stage.bounds.limit, "{name} is not gone in {:?}", stage.bounds.limit);
        sleep(ASK_AGAIN).await;
    }
    Ok(start.elapsed().as_secs_f64())
}

// === impl Flood ===

impl Flood {
    async fn begin(stage: &Stage, target: Target, path: &str) -> anyhow::Result<Flood> {
        let mut flood =
            Flood { tasks: JoinSet::new(), is_over: Arc::default(), served: Arc::default(), refused: Arc::default() };
        let request: Arc<[u8]> = target.get(path, JSON).into();
        let target = Arc::new(target);
        for _ in 0..CONNECTIONS {
            let mut connection = target.connect().await?;
            let (is_over, served, refused) =
                (Arc::clone(&flood.is_over), Arc::clone(&flood.served), Arc::clone(&flood.refused));
            let (request, target, errors) = (Arc::clone(&request), Arc::clone(&target), Arc::clone(&stage.errors));
            flood.tasks.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    match connection.exchange(&request, &mut |_| ()).await {
                        Ok(200) => served.fetch_add(1, Ordering::Relaxed),
                        // It retries without a pause, unlike a well-behaved client.
                        Ok(429) => refused.fetch_add(1, Ordering::Relaxed),
                        Ok(status) => {
                            errors.note(format!("the flood was answered {status}"));
                            break;
                        }
                        Err(_) => match target.connect().await {
                            Ok(fresh) => {
                                connection = fresh;
                                continue;
                            }
                            Err(_) => break,
                        },
                    };
                }
            });
        }
        sleep(RISE).await;
        Ok(flood)
    }

    /// Ends the flood, and returns the numbers of its served and refused requests.
    async fn end(mut self) -> (u64, u64) {
        self.is_over.store(true, Ordering::Relaxed);
        self.tasks.shutdown().await;
        (self.served.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}
