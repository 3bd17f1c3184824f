//! Gives the control loops of a cluster work and says how long they take, as one line of JSON.
//!
//! `cargo xtask bench loops` runs it against a fresh `steersman up` with simulated nodes. Any cluster that a kubeconfig leads to will do;
//! what is made there is deleted again, as part of what is measured. Each wait ends after `--limit` at the latest.

mod process;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Requests that are under way at the same time.
const AT_ONCE: usize = 32;
/// How often is looked whether something is over.
const LOOK: Duration = Duration::from_millis(20);
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
    /// Seconds of rest after all that
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600), value_name = "SECONDS")]
    rest: u64,
    /// Seconds after which what is waited for counts as hung
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
    deployments(&client, options, &mut figures).await.context("deployments")?;
    dependents(&client, options, &mut figures).await.context("dependents")?;
    namespace(&client, options, &mut figures).await.context("namespace")?;
    rest(&client, options, &mut figures).await.context("rest")?;
    Ok(figures)
}

/// How long it takes until the Pods of many Deployments are there and ready, and how long until they are gone.
async fn deployments(
    client: &Client,
    options: &Options,
    figures: &mut BTreeMap<&'static str, f64>,
) -> anyhow::Result<()> {
    let api = Api::<Deployment>::namespaced(client.clone(), "bench-deployments");
    make_namespace(client, "bench-deployments").await?;
    let start = Instant::now();
    let all = (0..options.deployments).map(|number| {
        let name = format!("web-{number}");
        from_json::<Deployment>(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": REPLICAS, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]},
                },
            },
        }))
    });
    create(&api, all.collect::<anyhow::Result<_>>()?).await?;
    let wanted = usize::from(options.deployments) * REPLICAS;
    let pods = Api::<Pod>::namespaced(client.clone(), "bench-deployments");
    until(options, || async { Ok(count(&pods).await? >= wanted) }).await?;
    figures.insert("pods_created_s", start.elapsed().as_secs_f64());
    until(options, || async {
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

/// How long it takes until all that an owner leaves behind is collected.
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

/// How long it takes until a namespace full of objects of two kinds is gone.
async fn namespace(
    client: &Client,
    options: &Options,
    figures: &mut BTreeMap<&'static str, f64>,
) -> anyhow::Result<()> {
    make_namespace(client, "bench-namespace").await?;
    let half = options.objects / 2;
    let configs = (0..half).map(|number| from_json(json!({"metadata": {"name": format!("o-{number}")}})));
    let secrets = (half..options.objects).map(|number| from_json(json!({"metadata": {"name": format!("o-{number}")}})));
    let (configs, secrets) = (configs.collect::<anyhow::Result<_>>()?, secrets.collect::<anyhow::Result<_>>()?);
    create::<ConfigMap>(&Api::namespaced(client.clone(), "bench-namespace"), configs).await?;
    create::<Secret>(&Api::namespaced(client.clone(), "bench-namespace"), secrets).await?;
    let start = Instant::now();
    end_namespace(client, options, "bench-namespace").await?;
    figures.insert("namespace_ended_s", start.elapsed().as_secs_f64());
    Ok(())
}

/// What the control plane takes when nothing is to be done.
async fn rest(client: &Client, options: &Options, figures: &mut BTreeMap<&'static str, f64>) -> anyhow::Result<()> {
    sleep(Duration::from_secs(2)).await;
    let (before, start) = (version(client).await?, Instant::now());
    let cpu_before = options.pid.map(process::cpu_s).transpose()?;
    sleep(Duration::from_secs(options.rest)).await;
    if let (Some(pid), Some(cpu_before)) = (options.pid, cpu_before) {
        let share = (process::cpu_s(pid)? - cpu_before) / start.elapsed().as_secs_f64();
        figures.insert("rest_cpu_percent", share * 100.0);
        figures.insert("rest_resident_mb", process::resident_mb(pid)?);
    }
    let writes = version(client).await?.saturating_sub(before);
    // What is counted is far from where an f64 loses units.
    figures.insert("rest_writes_per_minute", writes as f64 / start.elapsed().as_secs_f64() * 60.0);
    Ok(())
}

/// The version of the whole store, which each write moves by one.
async fn version(client: &Client) -> anyhow::Result<u64> {
    let list = Api::<Namespace>::all(client.clone()).list_metadata(&ListParams::default().limit(1)).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    version.parse().with_context(|| format!("the version {version:?} is no number"))
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

/// How many objects there are, without reading them all.
async fn count<K: Clone + Debug + Resource + serde::de::DeserializeOwned>(api: &Api<K>) -> anyhow::Result<usize> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let remaining = list.metadata.remaining_item_count.unwrap_or(0);
    Ok(list.items.len() + usize::try_from(remaining).unwrap_or(0))
}

/// Waits until something is so.
async fn until<F: Future<Output = anyhow::Result<bool>>>(
    options: &Options,
    is_so: impl Fn() -> F,
) -> anyhow::Result<()> {
    let limit = Duration::from_secs(options.limit);
    let waited = tokio::time::timeout(limit, async {
        while !is_so().await? {
            sleep(LOOK).await;
        }
        anyhow::Ok(())
    });
    waited.await.with_context(|| format!("not within {limit:?}"))?
}
