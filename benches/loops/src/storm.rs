//! A storm: many Pods are created at once and all of them are deleted, and then memory is measured until it has had time
//! to return.

use std::collections::BTreeMap;
use std::time::Duration;

use bench_client::process::Processes;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use crate::{Options, SETTLE, count, create, deployment, end_namespace, make_namespace, until};

const NAMESPACE: &str = "bench-storm";
/// Pods of each Deployment.
const REPLICAS: u32 = 1_000;
/// The pause between two lines of output about memory.
const STEP: Duration = Duration::from_secs(30);

/// Measures memory before a storm, at its peak, and after the rest.
pub(crate) async fn measure(
    client: &Client,
    options: &Options,
    pods: u32,
    server: &Processes,
    figures: &mut BTreeMap<&'static str, f64>,
) -> anyhow::Result<()> {
    sleep(SETTLE).await;
    let before = server.resident_mb()?;
    make_namespace(client, NAMESPACE).await?;
    let start = Instant::now();
    let deployments = (0..pods.div_ceil(REPLICAS)).map(|number| {
        let replicas = REPLICAS.min(pods - number * REPLICAS);
        deployment(number, usize::try_from(replicas)?)
    });
    let api = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    create(&api, deployments.collect::<anyhow::Result<_>>()?).await?;
    let api = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let wanted = usize::try_from(pods)?;
    until(options, || async { Ok(count(&api).await? >= wanted) }).await?;
    figures.insert("storm_created_s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    end_namespace(client, options, NAMESPACE).await?;
    figures.insert("storm_deleted_s", start.elapsed().as_secs_f64());
    figures.insert("storm_peak_mb", server.peak_mb()?);
    let (start, rest) = (Instant::now(), Duration::from_secs(options.rest));
    while start.elapsed() < rest {
        eprintln!("{:.0} s after the storm: {:.1} MB", start.elapsed().as_secs_f64(), server.resident_mb()?);
        sleep(STEP.min(rest.saturating_sub(start.elapsed()))).await;
    }
    figures.insert("storm_kept_mb", server.resident_mb()? - before);
    Ok(())
}
