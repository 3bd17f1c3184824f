//! Measures rounds of add, get and done per second, alone and with concurrent producers.

use std::time::Duration;

use steersman::ObjectKey;
use steersman::metrics::Metrics;
use steersman::queue::{RateLimiter, WorkQueue};
use tokio::time::Instant;

const ROUNDS: u32 = 2_000_000;
const KEYS: u32 = 1_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let Ok(runtime) = runtime else {
        println!("no runtime");
        return;
    };
    let keys: Vec<ObjectKey> = (0..KEYS).map(|i| ObjectKey::namespaced("default", &format!("object-{i}"))).collect();
    report("1 thread, add + get + done", runtime.block_on(alone(&keys, None)));
    report("1 thread, the same with metrics", runtime.block_on(alone(&keys, Some(Metrics::new()))));
    report("8 producers, 1 consumer, adds", runtime.block_on(beside(&keys, None)));
    report("8 producers, the same with metrics", runtime.block_on(beside(&keys, Some(Metrics::new()))));
}

async fn alone(keys: &[ObjectKey], metrics: Option<Metrics>) -> Duration {
    let queue = queue(metrics);
    let started = Instant::now();
    for round in 0..ROUNDS {
        queue.add(keys[(round % KEYS) as usize].clone());
        drop(queue.get().await);
    }
    started.elapsed()
}

async fn beside(keys: &[ObjectKey], metrics: Option<Metrics>) -> Duration {
    let queue = queue(metrics);
    let started = Instant::now();
    let producers: Vec<_> = (0..8)
        .map(|producer| {
            let (queue, keys) = (queue.clone(), keys.to_vec());
            tokio::spawn(async move {
                for round in 0..ROUNDS / 8 {
                    queue.add(keys[((round * 8 + producer) % KEYS) as usize].clone());
                    if round % 64 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    let consumer = tokio::spawn({
        let queue = queue.clone();
        async move { while queue.get().await.is_some() {} }
    });
    for producer in producers {
        drop(producer.await);
    }
    queue.shutdown_with_drain().await;
    drop(consumer.await);
    started.elapsed()
}

/// Metrics measure only the queue that was made with them.
fn queue(metrics: Option<Metrics>) -> WorkQueue {
    let queue = WorkQueue::new("bench", RateLimiter::default());
    if let Some(metrics) = metrics {
        metrics.observe_queue(&queue);
    }
    queue
}

fn report(what: &str, took: Duration) {
    println!("{what}: {:.2} million/s", f64::from(ROUNDS) / took.as_secs_f64() / 1e6);
}
