//! A controller by hand: an informer that feeds a work queue, and workers that empty it.
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use steersman::queue::{RateLimiter, WorkQueue};
use steersman::{ClientOptions, InformerFactory, Lister, LookupError, ObjectKey, Scope};

/// The number of workers.
const WORKERS: usize = 4;

fn look(key: &ObjectKey, pods: &Lister<Pod>) -> Result<String, LookupError> {
    let pod = match pods.get(key) {
        Err(LookupError::NotFound { .. }) => return Ok(format!("{key} is gone")),
        pod => pod?,
    };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("new");
    Ok(format!("{key} is {phase}"))
}

/// Calls `report` for every Pod whenever it changes, until `end`.
pub(crate) async fn run(
    client: kube::Client,
    report: impl Fn(String) + Clone + Send + Sync + 'static,
    end: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error>> {
    let factory = InformerFactory::new(client);
    let pods = factory.informer::<Pod>(Scope::All);
    let queue = WorkQueue::new("pods", RateLimiter::default());
    pods.add_handler(queue.enqueuer());
    let running = factory.start();
    pods.wait_synced(Duration::from_secs(30)).await?;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        let (queue, pods, report) = (queue.clone(), pods.lister(), report.clone());
        workers.spawn(async move {
            // No two workers have the same key. Dropping the item marks it as done.
            while let Some(item) = queue.get().await {
                match look(item.key(), &pods) {
                    Ok(text) => {
                        report(text);
                        item.forget();
                    }
                    Err(error) => drop(item.retry(error)),
                }
            }
        });
    }
    end.await;
    // Lets the workers finish the keys in the queue.
    queue.shutdown();
    workers.join_all().await;
    running.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = steersman::client(&ClientOptions::default()).await?;
    run(client, |text| println!("{text}"), steersman::shutdown_signal()).await
}
