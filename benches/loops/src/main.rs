//! Gives the control loops of a cluster work and prints their durations as one line of JSON.
//!
//! `cargo xtask bench loops` runs it against a fresh `steersman up` with simulated nodes, and with `--idle` against an
//! unused one. It runs against any cluster that a kubeconfig names; the objects it creates are deleted again, as part
//! of the measurement. Each wait ends after `--limit` at the latest.

mod storm;
mod writes;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench_client::process::Processes;
use clap::Parser;
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The number of concurrent requests.
const AT_ONCE: usize = 32;
/// The pause between checks whether a step is over.
const LOOK: Duration = Duration::from_millis(20);
/// The same, where a check is a list.
const LOOK_AT_LIST: Duration = Duration::from_millis(100);
/// The quiet time before the idle measurement.
const SETTLE: Duration = Duration::from_secs(10);
/// Pods of each Deployment.
const REPLICAS: usize = 10;

/// Measures the control loops of a cluster
#[derive(Debug, Parser)]
#[command(name = "bench-loops")]
struct Options {
    /// The cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The process of its control plane, if it runs here: for its memory and time on a processor
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Deployments of ten Pods each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    deployments: u16,
    /// Objects of one owner, to be collected
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    dependents: u32,
    /// Objects in a namespace that ends
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// Gives no work, and measures the idle cluster alone
    #[arg(long)]
    idle: bool,
    /// Creates this many Pods by Deployments and deletes their namespace, and measures only the memory that stays after
    /// a rest
    #[arg(long, value_name = "PODS", conflicts_with = "idle", requires = "pid")]
    storm: Option<u32>,
    /// Seconds of rest at the end, which are measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600), value_name = "SECONDS")]
    rest: u64,
    /// Seconds after which a wait counts as hung
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3_600), value_name = "SECONDS")]
    limit: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(&Options::parse()).await {
        Ok(figures) => {
            println!("{}", json!(figures));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> anyhow::Result<BTreeMap<&'static str, f64>> {
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig).context("cannot read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config).context("cannot make a client")?;
    let mut figures = BTreeMap::new();
    if options.idle {
        rest(&client, options, &mut figures).await.context("rest")?;
        return Ok(figures);
    }
    if let (Some(pods), Some(pid)) = (options.storm, options.pid) {
        let server = Processes { ids: vec![pid] };
        storm::measure(&client, options, pods, &server, &mut figures).await.context("storm")?;
        return Ok(figures);
    }
    deployments(&client, options, &mut figures).await.context("deployments")?;
    dependents(&client, options, &mut figures).await.context("dependents")?;
    namespace(&client, options, &mut figures).await.context("namespace")?;
    rest(&client, options, &mut figures).await.context("rest")?;
    Ok(figures)
}

/// The time until the Pods of many Deployments exist and are ready, and the time until they are gone.
async fn deployments(
    client: &Client,
    options: &Options,
    figures: &mut BTreeMap<&'static str, f64>,
) -> anyhow::Result<()> {
    let api = Api::<Deployment>::namespaced(client.clone(), "bench-deployments");
    make_namespace(client, "bench-deployments").await?;
    let start = Instant::now();
    let all = (0..options.deployments).map(|number| deployment(number.into(), REPLICAS));
    create(&api, all.collect::<anyhow::Result<_>>()?).await?;
    let wanted = usize::from(options.deployments) * REPLICAS;
    let pods = Api::<Pod>::namespaced(client.clone(), "bench-deployments");
    until(options, || async { Ok(count(&pods).await? >= wanted) }).await?;
    figures.insert("pods_created_s", start.elapsed().as_secs_f64());
    until_each(options, LOOK_AT_LIST, || async {
        let list = api.list(&ListParams::default()).await?;
        let available =
            |deployment: &Deployment| deployment.status.as_ref().and_then(|status| status.available_replicas);
        let sum: i64 = list.items.iter().filter_map(available).map(i64::from).sum();
        Ok(usize::try_from(sum).is_ok_and(|sum| sum >= wanted))
    })
    .await?;
    figures.insert("pods_ready_s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    end_namespace(client, options, "bench-deployments").await?;
    figures.insert("pods_deleted_s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The time until all dependents of a deleted owner are collected.
async fn dependents(
    client: &Client,
    options: &Options,
    figures: &mut BTreeMap<&'static str, f64>,
) -> anyhow::Result<()> {
    make_namespace(client, "bench-dependents").await?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "bench-dependents");
    let owner = from_json::<ConfigMap>(json!({"metadata": {"name": "owner"}}))?;
    let owner = api.create(&PostParams::default(), &owner).await?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid});
    let all = (0..options.dependents).map(|number| {
        from_json::<ConfigMap>(json!({"metadata": {"name": format!("d-{number}"), "ownerReferences": [reference]}}))
    });
    create(&api, all.collect::<anyhow::Result<_>>()?).await?;
    let left = count(&api).await?.saturating_sub(usize::try_from(options.dependents)? + 1);
    let start = Instant::now();
    api.delete("owner", &DeleteParams::background()).await?;
    until(options, || async { Ok(count(&api).await? <= left) }).await?;
    figures.insert("dependents_collected_s", start.elapsed().as_secs_f64());
    end_namespace(client, options, "bench-dependents").await
}

/// The time until a namespace full of objects is gone: objects of a kind that owns others, of one that is owned, and of
/// one that a finalizer holds until its loop removes it.
async fn namespace(
    client: &Client,
    options: &Options,
    figures: &mut BTreeMap<&'static str, f64>,
) -> anyhow::Result<()> {
    make_namespace(client, "bench-namespace").await?;
    let owner = from_json::<ConfigMap>(json!({"metadata": {"name": "owner"}}))?;
    let configs = Api::<ConfigMap>::namespaced(client.clone(), "bench-namespace");
    let owner = configs.create(&PostParams::default(), &owner).await?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid});
    let fifth = options.objects / 5;
    let name = |number: u32| format!("o-{number}");
    let free = (0..2 * fifth).map(|number| from_json(json!({"metadata": {"name": name(number)}})));
    let owned = (2 * fifth..4 * fifth)
        .map(|number| from_json(json!({"metadata": {"name": name(number), "ownerReferences": [reference]}})));
    let held = (4 * fifth..options.objects).map(|number| {
        from_json(json!({
            "metadata": {"name": name(number)},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "nobody-makes-this",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
    });
    create(&configs, free.collect::<anyhow::Result<_>>()?).await?;
    create(&Api::<Secret>::namespaced(client.clone(), "bench-namespace"), owned.collect::<anyhow::Result<_>>()?)
        .await?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), "bench-namespace");
    create(&claims, held.collect::<anyhow::Result<_>>()?).await?;
    let start = Instant::now();
    end_namespace(client, options, "bench-namespace").await?;
    figures.insert("namespace_ended_s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The resources that an idle control plane takes.
async fn rest(client: &Client, options: &Options, figures: &mut BTreeMap<&'static str, f64>) -> anyhow::Result<()> {
    sleep(SETTLE).await;
    let before = writes::count(client).await?;
    let server = options.pid.map(|pid| Processes { ids: vec![pid] });
    let (cpu_before, start) = (server.as_ref().map(Processes::cpu_s).transpose()?, Instant::now());
    sleep(Duration::from_secs(options.rest)).await;
    let took = start.elapsed().as_secs_f64();
    if let (Some(server), Some(cpu_before)) = (server, cpu_before) {
        figures.insert("rest_cpu_percent", (server.cpu_s()? - cpu_before) / took * 100.0);
        figures.insert("rest_resident_mb", server.resident_mb()?);
    }
    let written = writes::since(&before, &writes::count(client).await?);
    let is_lease = |what: &str| what.ends_with(" leases");
    for (what, n) in written.iter().filter(|(what, _)| !is_lease(what)) {
        eprintln!("written at rest: {what}, {n} times");
    }
    let counted = |wanted: bool| written.iter().filter(move |(what, _)| is_lease(what) == wanted);
    let sum = |wanted: bool| counted(wanted).fold(0.0, |sum, (_, n)| sum + n);
    figures.insert("rest_leases_per_minute", sum(true) / took * 60.0);
    figures.insert("rest_writes_per_minute", sum(false) / took * 60.0);
    Ok(())
}

fn deployment(number: u32, replicas: usize) -> anyhow::Result<Deployment> {
    let name = format!("web-{number}");
    from_json(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]},
            },
        },
    }))
}

fn from_json<K: serde::de::DeserializeOwned>(value: Value) -> anyhow::Result<K> {
    serde_json::from_value(value).context("an object of the bench is none")
}

async fn create<K>(api: &Api<K>, objects: Vec<K>) -> anyhow::Result<()>
where
    K: Clone + Debug + serde::de::DeserializeOwned + serde::Serialize + Resource<Scope = NamespaceResourceScope>,
{
    let params = PostParams::default();
    let mut created = stream::iter(&objects).map(|object| api.create(&params, object)).buffer_unordered(AT_ONCE);
    while let Some(created) = created.next().await {
        created?;
    }
    Ok(())
}

async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespace = from_json(json!({"metadata": {"name": name}}))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

async fn end_namespace(client: &Client, options: &Options, name: &str) -> anyhow::Result<()> {
    let api = Api::<Namespace>::all(client.clone());
    api.delete(name, &DeleteParams::default()).await?;
    until(options, || async { Ok(api.get_metadata_opt(name).await?.is_none()) }).await
}

/// The number of objects, without reading them all.
async fn count<K: Clone + Debug + Resource + serde::de::DeserializeOwned>(api: &Api<K>) -> anyhow::Result<usize> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let remaining = list.metadata.remaining_item_count.unwrap_or(0);
    Ok(list.items.len() + usize::try_from(remaining).unwrap_or(0))
}

/// Waits until a condition holds.
async fn until<F: Future<Output = anyhow::Result<bool>>>(
    options: &Options,
    is_so: impl Fn() -> F,
) -> anyhow::Result<()> {
    until_each(options, LOOK, is_so).await
}

/// The same, with a check every `look`.
async fn until_each<F: Future<Output = anyhow::Result<bool>>>(
    options: &Options,
    look: Duration,
    is_so: impl Fn() -> F,
) -> anyhow::Result<()> {
    let limit = Duration::from_secs(options.limit);
    let waited = tokio::time::timeout(limit, async {
        while !is_so().await? {
            sleep(look).await;
        }
        anyhow::Ok(())
    });
    waited.await.with_context(|| format!("not within {limit:?}"))?
}
