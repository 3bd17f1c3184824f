//! A cache without a controller: which Pods use a ConfigMap? The answer takes a lookup in an index, no request.
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use steersman::{ClientOptions, InformerFactory, ObjectKey, Scope};

/// The ConfigMaps that a Pod mounts.
fn mounted_configs(pod: &Pod) -> Vec<ObjectKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(ObjectKey::namespaced(namespace, &volume.config_map.as_ref()?.name))).collect()
}

/// The names of the Pods that mount `config`.
pub(crate) async fn users(client: kube::Client, config: &ObjectKey) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let factory = InformerFactory::new(client);
    let pods = factory.informer::<Pod>(Scope::All);
    // The index is added before the start, so that the first list is indexed as it arrives.
    let by_config = pods.add_index(mounted_configs);
    let running = factory.start();
    pods.wait_synced(Duration::from_secs(30)).await?;
    let mut names: Vec<String> = by_config.get(config)?.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    names.sort();
    running.shutdown().await;
    Ok(names)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = std::env::args().nth(1).ok_or("usage: informer_index NAMESPACE/NAME")?.parse()?;
    let client = steersman::client(&ClientOptions::default()).await?;
    for name in users(client, &config).await? {
        println!("{name}");
    }
    Ok(())
}
