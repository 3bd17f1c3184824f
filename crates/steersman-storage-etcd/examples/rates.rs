//! How many objects a store over etcd creates and reads in a second, with 64 callers at once.
//!
//! `cargo run --release -p steersman-storage-etcd --example rates -- http://127.0.0.1:2379 [SECONDS]`. The keys stay below
//! the prefix `/steersman-rates`. Compare with what etcd alone takes in the same minute: disks and other work decide both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_storage::{Options as StoreOptions, Store};
use steersman_storage_etcd::{Etcd, Options};
use tokio::task::JoinSet;
use tokio::time::Instant;

const N_CALLERS: u64 = 64;
/// About what a small object has.
const TEXT_BYTES: usize = 600;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().ok_or("which endpoint? For example http://127.0.0.1:2379")?;
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let kv = Arc::new(Etcd::connect(Options::new(vec![endpoint]).prefix("/steersman-rates")).await?);
    let store = Store::open(kv, StoreOptions::default()).await?;
    let run = std::process::id();
    let resource = GroupResource::new("", "configmaps");
    let key = move |caller: u64, n: u64| ObjectKey::namespaced("default", format!("{run}-{caller}-{n}"));

    let text = "x".repeat(TEXT_BYTES);
    let created = rate("creates", Duration::from_secs(seconds), {
        let (store, resource) = (store.clone(), resource.clone());
        move |caller, n| {
            let (store, resource, key) = (store.clone(), resource.clone(), key(caller, n));
            let json = format!(r#"{{"metadata":{{"name":"{}"}},"data":{{"text":"{text}"}}}}"#, key.name);
            async move { store.create(&resource, &key, json.into()).await.is_ok() }
        }
    })
    .await;
    let n_each = (created / N_CALLERS).max(1);
    rate("reads", Duration::from_secs(seconds), {
        let (store, resource) = (store.clone(), resource.clone());
        move |caller, n| {
            let (store, resource, key) = (store.clone(), resource.clone(), key(caller, n % n_each));
            async move { store.get(&resource, &key).await.is_ok() }
        }
    })
    .await;
    store.close().await?;
    Ok(())
}

/// Has all callers call until the time is over, and prints how often that succeeded.
async fn rate<F, C>(what: &str, time: Duration, call: C) -> u64
where
    C: Fn(u64, u64) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send,
{
    let (done, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..N_CALLERS {
        let (done, failed, call) = (done.clone(), failed.clone(), call.clone());
        callers.spawn(async move {
            let mut n = 0;
            while start.elapsed() < time {
                let counter = if call(caller, n).await { &done } else { &failed };
                counter.fetch_add(1, Ordering::Relaxed);
                n += 1;
            }
        });
    }
    while callers.join_next().await.is_some() {}
    let (done, failed) = (done.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
    println!("{what}: {:.0}/s, {failed} failed", done as f64 / start.elapsed().as_secs_f64());
    done
}
