//! Measures the store on this machine: `cargo run --release -p steersman-storage --example bench [DIR] [N]`, where DIR
//! is on the disk to be measured and N is the number of objects. With `open STORE` it opens that store instead, in a
//! process that has done nothing else.
//!
//! Durable creates and updates per second from 64 writers and from one, events to 1,000 watchers, the cost of an event
//! for watchers that it does not concern, the time to open the store (after a clean close and after a crash), list
//! times, memory.

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_storage::{At, Disk, Interest, Options, Page, Scope, Store};
use tokio::time::Instant;

const N_OBJECTS: usize = 23_000;
const N_UNCONCERNED: usize = 10_000;
const N_WRITERS: usize = 64;
const N_WATCHERS: usize = 1_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (under, n_objects) = match &arguments[..] {
        [] => (".", N_OBJECTS),
        [dir] => (&**dir, N_OBJECTS),
        [open, store] if open == "open" => return reopen(Path::new(store)).await,
        [dir, n_objects] => (&**dir, n_objects.parse()?),
        _ => return Err("want: bench [DIR] [N], or bench open STORE".into()),
    };
    let scratch = tempfile::tempdir_in(under)?;
    let dir = scratch.path().join("store");
    let resource = GroupResource::new("samplecrd.k8s.io", "networks");

    let started = Instant::now();
    let store = open(&dir).await?;
    println!("open, new                      {:>9.1} ms", millis(started));
    let idle = memory("idle");

    let started = Instant::now();
    write(&store, &resource, 0..n_objects, N_WRITERS).await?;
    rate("creates, 64 writers", n_objects, started);
    let full = memory(&format!("{n_objects} objects"));
    println!("  of it each object            {:>9} B", (full - idle) * 1024 / n_objects as u64);

    // The state after a crash: a copy of the file while it is open.
    let crashed = scratch.path().join("crashed");
    std::fs::create_dir(&crashed)?;
    std::fs::copy(dir.join("store.redb"), crashed.join("store.redb"))?;

    let started = Instant::now();
    write(&store, &resource, n_objects..n_objects + 1_000, 1).await?;
    rate("creates, 1 writer", 1_000, started);

    let started = Instant::now();
    update(&store, &resource, n_objects).await?;
    rate("updates, 64 writers", n_objects, started);
    memory("after as many updates");

    let started = Instant::now();
    let list = store.list(&resource, &Scope::All, At::Latest, Page::ALL)?;
    println!("list of {:<6}                 {:>9.2} ms", list.objects.len(), millis(started));
    let bytes: usize = list.objects.iter().map(|object| object.json().len()).sum();
    println!("  of json                      {:>9.1} MB", bytes as f64 / 1e6);
    let started = Instant::now();
    let kept =
        store.list_where(&resource, &Scope::All, At::Latest, Page::ALL, |object| object.label("n") == Some("7"))?;
    println!("list by label ({:<5} kept)      {:>8.2} ms", kept.objects.len(), millis(started));
    drop((list, kept));

    let other = GroupResource::new("", "idle");
    let idle: Vec<_> =
        (0..10_000).map(|_| store.watch(&other, Scope::All, store.revision())).collect::<Result<_, _>>()?;
    memory("10,000 idle watchers");
    drop(idle);
    watch(&store, &resource, n_objects + 1_000).await?;
    unconcerned(&store, &resource, n_objects + 1_000 + N_WRITERS).await?;

    store.close().await?;
    drop(store);
    println!(
        "file                           {:>9.1} MB",
        std::fs::metadata(dir.join("store.redb"))?.len() as f64 / 1e6
    );
    for (name, dir) in [("after a crash", &crashed), ("with the updates, after a clean close", &dir)] {
        println!("open, {name}:");
        std::process::Command::new(std::env::current_exe()?).arg("open").arg(dir).status()?;
    }
    Ok(())
}

async fn reopen(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let disk = Disk::open(dir)?;
    println!("  engine                       {:>9.1} ms", millis(started));
    let store = Store::open(Arc::new(disk), Options::default()).await?;
    println!("  engine and objects           {:>9.1} ms", millis(started));
    memory("reopened");
    Ok(store.close().await?)
}

async fn open(dir: &Path) -> Result<Store, Box<dyn std::error::Error>> {
    Ok(Store::open(Arc::new(Disk::open(dir)?), Options::default()).await?)
}

/// About 650 bytes, like a small custom resource with its managed fields.
fn json(n: usize) -> Bytes {
    let managed = r#"[{"manager":"bench","operation":"Update","apiVersion":"samplecrd.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:n":{}}},"f:spec":{".":{},"f:cidr":{},"f:gateway":{}}}}]"#;
    Bytes::from(format!(
        r#"{{"apiVersion":"samplecrd.k8s.io/v1","kind":"Network","metadata":{{"name":"network-{n}","namespace":"default","uid":"00000000-0000-4000-8000-{n:012}","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"n":"{}"}},"managedFields":{managed}}},"spec":{{"cidr":"10.{}.{}.0/24","gateway":"10.0.0.1"}}}}"#,
        n % 100,
        n / 256 % 256,
        n % 256
    ))
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::namespaced("default", format!("network-{n}"))
}

async fn write(
    store: &Store,
    resource: &GroupResource,
    numbers: std::ops::Range<usize>,
    n_writers: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..n_writers {
        let (store, resource, next) = (store.clone(), resource.clone(), next.clone());
        writers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if numbers.end <= n {
                    return Ok::<_, steersman_storage::WriteError>(());
                }
                store.create(&resource, &key(n), json(n)).await?;
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

async fn update(store: &Store, resource: &GroupResource, n_objects: usize) -> Result<(), Box<dyn std::error::Error>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..N_WRITERS {
        let (store, resource, next) = (store.clone(), resource.clone(), next.clone());
        writers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n_objects <= n {
                    return Ok::<_, steersman_storage::WriteError>(());
                }
                if let Some(current) = store.get(&resource, &key(n)).await? {
                    store.update(&resource, &key(n), current.revision, json(n)).await?;
                }
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

async fn watch(store: &Store, resource: &GroupResource, first: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut watchers = tokio::task::JoinSet::new();
    for _ in 0..N_WATCHERS {
        let mut watcher = store.watch(resource, Scope::All, store.revision())?;
        watchers.spawn(async move {
            let mut n_seen = 0;
            while n_seen < N_WRITERS {
                n_seen += watcher.next_batch(128).await?.len();
            }
            Ok::<_, steersman_storage::WatchError>(n_seen)
        });
    }
    let started = Instant::now();
    write(store, resource, first..first + N_WRITERS, N_WRITERS).await?;
    let mut n_events = 0;
    while let Some(seen) = watchers.join_next().await {
        n_events += seen??;
    }
    rate("events to 1,000 watchers", n_events, started);
    Ok(())
}

/// The cost of an event for watchers of other objects: the difference with and without them.
async fn unconcerned(store: &Store, resource: &GroupResource, first: usize) -> Result<(), Box<dyn std::error::Error>> {
    const N_EVENTS: usize = 256;
    let started = Instant::now();
    write(store, resource, first..first + N_EVENTS, N_WRITERS).await?;
    let without = started.elapsed();
    let mut watchers = tokio::task::JoinSet::new();
    for n in 0..N_UNCONCERNED {
        let interest = Interest { label: Some(("n".into(), format!("none-{n}").into())), ..Interest::ALL };
        let mut watcher = store.watch_for(resource, Scope::All, &interest, store.revision())?;
        watchers.spawn(async move { watcher.next_batch(1).await.map(|_| ()) });
    }
    tokio::task::yield_now().await;
    let started = Instant::now();
    write(store, resource, first + N_EVENTS..first + 2 * N_EVENTS, N_WRITERS).await?;
    let extra = started.elapsed().as_secs_f64() - without.as_secs_f64();
    let each = extra.max(0.0) * 1e9 / (N_EVENTS * N_UNCONCERNED) as f64;
    println!("an event for an unconcerned watcher {each:>4.1} ns");
    Ok(())
}

fn millis(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

fn rate(what: &str, n: usize, started: Instant) {
    let seconds = started.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
    println!("{what:<30} {:>9.0} /s", n as f64 / seconds);
}

/// Prints and returns the resident memory in kB.
fn memory(when: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or(" unknown").trim();
    println!("resident, {when:<20} {resident:>9}");
    resident.trim_end_matches(" kB").parse().unwrap_or_default()
}
