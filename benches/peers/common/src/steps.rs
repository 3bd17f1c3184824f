//! The steps of a measurement, the same for every program.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::{Client, Resource};
use tokio::time::{Instant, sleep};

use crate::server::{Facts, Reference, control};
use crate::types::Indexed;
use crate::{Error, process};

/// The pause between sync and reading the resident memory: memory that was needed only for filling may be freed.
const SETTLE: Duration = Duration::from_secs(1);
/// The pause between checks whether a step is over. Small beside the measured times.
const LOOK: Duration = Duration::from_millis(1);
/// A handler that has not been called for this long has been called for everything.
const QUIET: Duration = Duration::from_millis(200);
/// The time after which a step counts as hung.
const STEP_MAX: Duration = Duration::from_secs(300);
/// The duration for which lookups are counted.
const LOOKUPS: Duration = Duration::from_millis(500);

/// The options of every measured program.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Address of the server
    #[arg(long)]
    pub server: String,
    /// The objects that it serves
    #[arg(long)]
    pub workload: Workload,
}

/// The objects that the server serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Workload {
    Custom,
    Pods,
}

/// The calls that a handler has received so far.
#[derive(Debug, Default)]
pub struct Heard {
    n_events: AtomicU64,
    newest_version: AtomicU64,
}

/// A cache that is kept by a watch.
#[expect(async_fn_in_trait, reason = "the only caller is this crate, on one task")]
pub trait Subject<K> {
    /// Returns when the cache is filled and its handler has been called for all objects.
    async fn synced(&self) -> Result<(), Error>;
    fn get(&self, reference: &Reference) -> Option<Arc<K>>;
    /// The number of objects.
    fn count(&self) -> usize;
    fn list(&self) -> Vec<Arc<K>>;
    /// Whether the handler has been called for everything.
    fn has_told_all(&self) -> bool;
    /// Adds the index, if the program has indexes.
    fn add_index(&self) -> Result<(), Error>;
    /// All objects with this value in the indexed field.
    fn lookup(&self, value: &str) -> Vec<Arc<K>>;
    /// The number of keys with this value in the indexed field; all of them are materialized.
    fn lookup_keys(&self, value: &str) -> usize;
}

/// Takes all steps and prints the figures as one line of JSON.
///
/// # Errors
///
/// If a step fails or hangs, or the cache does not hold what it should.
pub async fn measure<K, S>(
    options: &Options,
    start: impl FnOnce(Client, Arc<Heard>) -> Result<S, Error>,
) -> Result<(), Error>
where
    K: Indexed + Resource,
    S: Subject<K>,
{
    let server = options.server.as_str();
    let facts = control(server, "reset").await?;
    let mut figures = BTreeMap::new();

    let started = Instant::now();
    let client = Client::try_from(kube::Config::new(format!("http://{server}").parse()?))?;
    let heard = Arc::new(Heard::default());
    let subject = start(client, Arc::clone(&heard))?;
    tokio::time::timeout(STEP_MAX, subject.synced()).await??;
    figures.insert("synced_s", started.elapsed().as_secs_f64());
    figures.insert("synced_cpu_s", process::cpu_s()?);
    figures.insert("peak_list_mb", process::peak_mb()?);
    sleep(SETTLE).await;
    figures.insert("resident_mb", process::resident_mb()?);
    require_equal("objects in the cache", subject.count(), facts.objects)?;

    figures.insert("peak_relist_mb", relist(server, "the relist", &subject, &facts.last_changed).await?);
    let peak_mb = relist(server, "the relist of changed objects", &subject, &facts.last_replaced).await?;
    figures.insert("peak_full_relist_mb", peak_mb);
    require_equal("changed objects", n_changed(&subject, &facts), facts.objects)?;

    control(server, "watching").await?;
    let n_before = heard.once_quiet().await;
    let (started, cpu_before_s) = (Instant::now(), process::cpu_s()?);
    control(server, "updates").await?;
    until("the updates", || {
        heard.newest_version.load(Ordering::Relaxed) == facts.last_updated.version
            && is_at(&subject, &facts.last_updated)
            && subject.has_told_all()
    })
    .await?;
    figures.insert("updates_per_s", facts.updates as f64 / started.elapsed().as_secs_f64());
    let cpu_s = process::cpu_s()? - cpu_before_s;
    figures.insert("update_cpu_us", cpu_s / facts.updates as f64 * 1e6);
    let n_heard = heard.n_events.load(Ordering::Relaxed) - n_before;
    figures.insert("updates_heard_percent", n_heard as f64 / facts.updates as f64 * 100.0);
    require_equal("updated objects", n_changed(&subject, &facts), facts.objects)?;

    subject.add_index()?;
    let mut by_value: HashMap<String, Vec<Arc<K>>> = HashMap::new();
    for object in subject.list() {
        let value = object.index_value().ok_or("an object without the indexed field")?;
        by_value.entry(value.to_owned()).or_default().push(object);
    }
    let values: Vec<String> = by_value.keys().cloned().collect();
    for value in &values {
        require_equal(value, subject.lookup(value).len(), by_value[value].len())?;
        require_equal(value, subject.lookup_keys(value), by_value[value].len())?;
    }
    figures.insert("lookups_per_s", lookups_per_s(&values, |value| subject.lookup(value)));
    figures.insert("key_lookups_per_s", lookups_per_s(&values, |value| subject.lookup_keys(value)));
    let hash_map = |value: &str| by_value.get(value).cloned().unwrap_or_default();
    figures.insert("hash_map_lookups_per_s", lookups_per_s(&values, hash_map));
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// Makes the server end the watch with 410, and returns the peak of memory until the cache has reached `last`.
async fn relist<K: Resource>(
    server: &str,
    what: &str,
    subject: &impl Subject<K>,
    last: &Reference,
) -> Result<f64, Error> {
    control(server, "watching").await?;
    process::reset_peak()?;
    control(server, "expire").await?;
    until(what, || is_at(subject, last)).await?;
    Ok(process::peak_mb()?)
}

async fn until(what: &str, is_done: impl Fn() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + STEP_MAX;
    while !is_done() {
        if Instant::now() > deadline {
            return Err(format!("{what} did not end within {} s", STEP_MAX.as_secs()).into());
        }
        sleep(LOOK).await;
    }
    Ok(())
}

fn is_at<K: Resource>(subject: &impl Subject<K>, reference: &Reference) -> bool {
    subject.get(reference).is_some_and(|object| version(&*object) == reference.version)
}

fn n_changed<K: Resource>(subject: &impl Subject<K>, facts: &Facts) -> usize {
    subject.list().iter().filter(|object| version(&***object) > facts.listed_version).count()
}

fn version(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn require_equal(what: &str, found: usize, expected: usize) -> Result<(), Error> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found} where {expected} should be").into()),
    }
}

fn lookups_per_s<T>(values: &[String], lookup: impl Fn(&str) -> T) -> f64 {
    let started = Instant::now();
    let mut n_lookups = 0_u64;
    let mut values = values.iter().cycle();
    while started.elapsed() < LOOKUPS {
        if let Some(value) = values.next() {
            black_box(lookup(black_box(value)));
        }
        n_lookups += 1;
    }
    n_lookups as f64 / started.elapsed().as_secs_f64()
}

// === impl Heard ===

impl Heard {
    /// Called by the handler for an object at this version.
    pub fn tell(&self, resource_version: &str) {
        self.n_events.fetch_add(1, Ordering::Relaxed);
        self.newest_version.fetch_max(resource_version.parse().unwrap_or_default(), Ordering::Relaxed);
    }

    /// Waits until the handler has also been called for the relist, which is no update, and returns the number of
    /// calls.
    async fn once_quiet(&self) -> u64 {
        let mut n_events = self.n_events.load(Ordering::Relaxed);
        loop {
            sleep(QUIET).await;
            let n_now = self.n_events.load(Ordering::Relaxed);
            if n_now == n_events {
                return n_events;
            }
            n_events = n_now;
        }
    }
}
