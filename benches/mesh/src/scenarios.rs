//! The measured scenarios, in turn, on one pilot.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{Cluster, NAMESPACE, Shape, pod_object, resource};
use crate::fleet::Fleet;
use crate::messages::{Kind, request};
use crate::pilot::{Launch, Pilot};
use crate::proxy;

/// The pause between changes, so that each is alone.
const PAUSE: Duration = Duration::from_millis(300);
/// The Pods of a rollout.
const ROLLOUT: usize = 100;
/// The time in which a proxy that reads nothing must be cut off: half a minute, found out every half minute.
const STALL_MAX: Duration = Duration::from_secs(75);
/// The counter of views that were made.
const VIEWS: &str = "mesh_pilot_views_made_total";

/// The bench of one shape.
pub(crate) struct Bench {
    pub(crate) shape: Shape,
    pub(crate) n_changes: usize,
    pub(crate) cluster: Cluster,
    pub(crate) launch: Launch,
}

/// The figures so far: a name with its samples.
#[derive(Default)]
struct Figures(BTreeMap<String, Vec<f64>>);

/// The pilot's counters before a step.
struct Before {
    cpu_s: f64,
    bytes: usize,
    messages: Vec<usize>,
    views: Option<f64>,
    start: Instant,
}

impl Figures {
    fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.entry(name.into()).or_default().push(value);
    }
}

impl Before {
    async fn of(fleet: &Fleet, pilot: &Pilot) -> anyhow::Result<Before> {
        Ok(Before {
            cpu_s: pilot.process.cpu_s()?,
            bytes: fleet.bytes_down.load(Ordering::Relaxed),
            messages: fleet.messages(),
            views: pilot.metric(VIEWS).await?,
            start: Instant::now(),
        })
    }

    /// Notes what the pilot did since, for each of `n` changes.
    async fn note(
        &self,
        fleet: &Fleet,
        pilot: &Pilot,
        step: &str,
        n: usize,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        let n = n as f64;
        figures.add(format!("{step}_cpu_ms"), (pilot.process.cpu_s()? - self.cpu_s) * 1e3 / n);
        let bytes = fleet.bytes_down.load(Ordering::Relaxed) - self.bytes;
        figures.add(format!("{step}_bytes"), bytes as f64 / n);
        if let (Some(before), Some(now)) = (self.views, pilot.metric(VIEWS).await?) {
            figures.add(format!("{step}_views"), (now - before) / n);
        }
        Ok(())
    }

    /// How many messages came to proxies after the first `n`.
    fn messages_beyond(&self, fleet: &Fleet, n: usize) -> usize {
        fleet.messages().iter().zip(&self.messages).skip(n).map(|(now, before)| now - before).sum()
    }
}

impl Bench {
    /// Measures everything. What was measured before a failure is said too.
    pub(crate) async fn run(mut self) -> anyhow::Result<Value> {
        let mut figures = Figures::default();
        let measured = self.measure(&mut figures).await;
        measured.with_context(|| format!("until then {}", json!(figures.0)))?;
        Ok(json!(figures.0))
    }

    async fn measure(&mut self, figures: &mut Figures) -> anyhow::Result<()> {
        let all = self.shape.n_proxies;
        let mut pilot = self.launch.start("127.0.0.1:0").await?;
        sleep(PAUSE).await;
        let idle_mb = pilot.process.resident_mb()?;
        figures.add("idle_mb", idle_mb);

        let fleet = Fleet::new(all);
        let before = Before::of(&fleet, &pilot).await?;
        let _tasks = fleet.start(&pilot);
        fleet.until_whole().await.context("connect")?;
        figures.add("connect_s", before.start.elapsed().as_secs_f64());
        figures.add("connect_retries", fleet.n_retries.load(Ordering::Relaxed) as f64);
        fleet.until_quiet().await?;
        figures.add("connect_cpu_s", pilot.process.cpu_s()? - before.cpu_s);
        let bytes = fleet.bytes_down.load(Ordering::Relaxed);
        figures.add("view_kb", bytes as f64 / 1e3 / all as f64);
        sleep(Duration::from_secs(2)).await;
        self.resident(&pilot, idle_mb, "connected", figures)?;

        self.weights(&fleet, &pilot, "weight", figures).await.context("weights")?;
        self.endpoints(&fleet, &pilot, "endpoint_all", 0, all, figures).await.context("endpoints of all")?;
        if self.shape.n_calls.is_some() {
            let lonely = self.shape.n_services - 1;
            self.endpoints(&fleet, &pilot, "endpoint_one", lonely, 1, figures).await.context("of one")?;
        }
        self.rollout(&fleet, &pilot, figures).await.context("rollout")?;
        self.stalled(&fleet, &pilot, figures).await.context("proxies that read nothing")?;
        sleep(Duration::from_secs(1)).await;
        self.resident(&pilot, idle_mb, "after", figures)?;

        fleet.allow_ends();
        let address = pilot.address;
        pilot.kill().await?;
        sleep(PAUSE).await;
        let down = fleet.bytes_down.load(Ordering::Relaxed);
        let up = fleet.bytes_up.load(Ordering::Relaxed);
        let start = Instant::now();
        pilot = self.launch.start(&address.to_string()).await?;
        figures.add("restart_ready_s", start.elapsed().as_secs_f64());
        fleet.until_whole().await.context("restart")?;
        figures.add("restart_s", start.elapsed().as_secs_f64());
        fleet.until_quiet().await?;
        figures.add("restart_down_kb", (fleet.bytes_down.load(Ordering::Relaxed) - down) as f64 / 1e3 / all as f64);
        figures.add("restart_up_kb", (fleet.bytes_up.load(Ordering::Relaxed) - up) as f64 / 1e3 / all as f64);
        figures.add("restart_cpu_s", pilot.process.cpu_s()?);
        sleep(Duration::from_secs(2)).await;
        self.resident(&pilot, idle_mb, "restarted", figures)?;
        pilot.kill().await
    }

    fn resident(&self, pilot: &Pilot, idle_mb: f64, when: &str, figures: &mut Figures) -> anyhow::Result<()> {
        let resident_mb = pilot.process.resident_mb()?;
        figures.add(format!("{when}_mb"), resident_mb);
        figures.add(format!("{when}_stream_kb"), (resident_mb - idle_mb) * 1e3 / self.shape.n_proxies as f64);
        Ok(())
    }

    async fn weights(&mut self, fleet: &Fleet, pilot: &Pilot, step: &str, figures: &mut Figures) -> anyhow::Result<()> {
        let before = Before::of(fleet, pilot).await?;
        let mut times = Vec::new();
        for change in 0..self.n_changes {
            fleet.expect(Kind::Route, &resource(0), self.shape.n_proxies);
            // Another one than before, also when weights change for a second time.
            self.cluster.weigh(1 + (change + figures.0.len()) % 98).await?;
            times.push(fleet.until_acknowledged().await?);
            sleep(PAUSE).await;
        }
        latencies(step, &times, figures);
        before.note(fleet, pilot, step, self.n_changes, figures).await
    }

    async fn endpoints(
        &mut self,
        fleet: &Fleet,
        pilot: &Pilot,
        step: &str,
        service: usize,
        n_proxies: usize,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        let before = Before::of(fleet, pilot).await?;
        let mut times = Vec::new();
        for change in 0..self.n_changes {
            fleet.expect(Kind::Endpoints, &resource(service), n_proxies);
            // One is replaced by another.
            self.cluster.endpoints(service, &[0, 1, 3 + change]).await?;
            times.push(fleet.until_acknowledged().await?);
            sleep(PAUSE).await;
        }
        let beyond = before.messages_beyond(fleet, n_proxies);
        anyhow::ensure!(beyond == 0, "{beyond} responses went to proxies that do not see the Service");
        latencies(step, &times, figures);
        before.note(fleet, pilot, step, self.n_changes, figures).await
    }

    /// The Pods of the Service that all see are replaced one by one, as fast as the API server writes it.
    async fn rollout(&mut self, fleet: &Fleet, pilot: &Pilot, figures: &mut Figures) -> anyhow::Result<()> {
        let old: Vec<usize> = (0..ROLLOUT).collect();
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        for pod in &old {
            self.cluster.create(&pods, &pod_object(&format!("old-{pod}"), None)).await?;
        }
        self.cluster.endpoints(0, &old).await?;
        fleet.until_quiet().await?;
        let before = Before::of(fleet, pilot).await?;
        let mut hosts = old;
        for pod in 0..ROLLOUT {
            self.cluster.create(&pods, &pod_object(&format!("new-{pod}"), None)).await?;
            hosts.push(ROLLOUT + pod);
            self.cluster.endpoints(0, &hosts).await?;
            hosts.remove(0);
            self.cluster.endpoints(0, &hosts).await?;
            self.cluster.delete(&format!("{pods}/old-{pod}")).await?;
        }
        let written = Instant::now();
        let last = fleet.until_quiet().await?;
        figures.add("rollout_write_s", (written - before.start).as_secs_f64());
        figures.add("rollout_lag_ms", last.saturating_duration_since(written).as_secs_f64() * 1e3);
        let n_messages = before.messages_beyond(fleet, 0);
        figures.add("rollout_messages", n_messages as f64 / self.shape.n_proxies as f64);
        before.note(fleet, pilot, "rollout", 1, figures).await
    }

    /// One more connects for each hundred proxies, and reads nothing. The others notice nothing, and it is cut off.
    async fn stalled(&mut self, fleet: &Fleet, pilot: &Pilot, figures: &mut Figures) -> anyhow::Result<()> {
        let n_stalled = self.shape.n_proxies.div_ceil(100);
        let mut stalled = Vec::new();
        for number in 0..n_stalled {
            let (mut sender, body) = proxy::open(pilot.address).await?;
            let id = format!("sidecar~127.0.0.1~p-{number}.{NAMESPACE}");
            for kind in Kind::ALL {
                let node = (kind == Kind::Cluster).then_some(id.as_str());
                let names: Vec<String> = match kind {
                    Kind::Cluster | Kind::Listener => Vec::new(),
                    Kind::Endpoints | Kind::Route => (0..self.shape.n_services).map(resource).collect(),
                };
                let names = names.iter().map(String::as_bytes);
                sender.send_data(request(kind, node, b"", names, []), false)?;
            }
            stalled.push((sender, body));
        }
        let start = Instant::now();
        self.weights(fleet, pilot, "beside_stalled", figures).await?;
        figures.add("stalled_mb", pilot.process.resident_mb()?);
        if self.shape.n_calls.is_some() {
            // A small view fits into the window: nothing waits for such a proxy, and it may stay.
            return Ok(());
        }
        for (sender, _) in &mut stalled {
            let reset = std::future::poll_fn(|cx| sender.poll_reset(cx));
            let _ = timeout(STALL_MAX, reset).await.context("a proxy that reads nothing is not cut off")?;
        }
        figures.add("cut_off_s", start.elapsed().as_secs_f64());
        Ok(())
    }
}

/// The distribution over all proxies and changes, and the last acknowledgement of each change.
fn latencies(step: &str, changes: &[Vec<Duration>], figures: &mut Figures) {
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    for times in changes {
        figures.add(format!("{step}_last_ms"), times.iter().map(ms).fold(0.0, f64::max));
    }
    let mut all: Vec<f64> = changes.iter().flatten().map(ms).collect();
    all.sort_by(f64::total_cmp);
    let at = |share: usize| all.get((all.len().saturating_sub(1)) * share / 100).copied().unwrap_or(f64::NAN);
    figures.add(format!("{step}_p50_ms"), at(50));
    figures.add(format!("{step}_p99_ms"), at(99));
}
