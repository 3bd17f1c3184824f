//! A server to measure, with a namespace for the stage: a fresh server of ours, or a part of an existing one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::errors::Errors;
use crate::load::{self, Load, Outcome};
use crate::objects::{self, DEFINITIONS, LABEL};
use crate::own::{Launch, Server};
use crate::results::Sample;
use bench_client::kubeconfig;
use bench_client::process::{self, Processes};
use bench_client::target::{Body, JSON, Target};

/// Workers that fill a server with objects before something is measured.
const FILL_WORKERS: usize = 64;
/// The time limit for each of these objects.
const FILL_MAX_EACH: Duration = Duration::from_millis(5);
/// The time limit for removing a stage's objects from an existing server.
const TIDY_MAX: Duration = Duration::from_secs(600);
/// The pause between checks whether a state is reached.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The server that the stages of a run use.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    /// An existing server. Its processes, if they are known.
    Foreign { kubeconfig: PathBuf, processes: Option<Processes> },
    /// A fresh server for every stage.
    Own(Launch),
}

/// The limits of a stage, and the size of its objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The duration of a measurement per second.
    pub(crate) duration: Duration,
    /// The time limit of everything else.
    pub(crate) limit: Duration,
    /// The size of a custom resource in the server's answer.
    pub(crate) object_bytes: usize,
}

pub(crate) struct Stage {
    pub(crate) target: Arc<Target>,
    pub(crate) errors: Arc<Errors>,
    pub(crate) bounds: Bounds,
    pub(crate) namespace: String,
    /// The processes of the server, if they are known.
    pub(crate) processes: Option<Processes>,
    /// Padding that brings a Widget to its size. Empty until Widgets are defined.
    pub(crate) tag: Arc<str>,
    own: Option<Own>,
}

struct Own {
    launch: Launch,
    data: PathBuf,
    server: Server,
}

/// Measures cost from its creation on.
pub(crate) struct Meter {
    start: Instant,
    server_cpu_s: Option<f64>,
    client_cpu_s: f64,
}

impl Stage {
    /// Starts a server, or connects to the existing one, and creates a namespace.
    ///
    /// # Errors
    ///
    /// If there is no server, or it refuses the namespace.
    pub(crate) async fn open(site: &Site, name: &str, bounds: Bounds, errors: &Arc<Errors>) -> anyhow::Result<Stage> {
        let (kubeconfig, processes, own) = match site {
            Site::Foreign { kubeconfig, processes } => (kubeconfig.clone(), processes.clone(), None),
            Site::Own(launch) => {
                let data = launch.scratch.join(name);
                if data.exists() {
                    std::fs::remove_dir_all(&data).with_context(|| format!("cannot empty {}", data.display()))?;
                }
                let server = launch.start(&data).await?;
                let processes = Processes { ids: vec![server.id] };
                (server.kubeconfig.clone(), Some(processes), Some(Own { launch: launch.clone(), data, server }))
            }
        };
        let target = Arc::new(Target::new(kubeconfig::read(&kubeconfig)?)?);
        let namespace = match &own {
            Some(_) => "bench".to_owned(),
            None => format!("bench-{name}-{}", std::process::id()),
        };
        let stage = Stage { target, errors: Arc::clone(errors), bounds, namespace, processes, tag: "".into(), own };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": stage.namespace, "labels": {LABEL: "true"}}});
        stage.create("/api/v1/namespaces", &namespace.to_string()).await?;
        Ok(stage)
    }

    /// Ends the server, or removes the stage's objects from it.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Some(own) = self.own {
            own.server.kill().await?;
            return std::fs::remove_dir_all(&own.data).context("cannot remove the server's data");
        }
        if !self.tag.is_empty() {
            self.delete_all(&objects::widgets_path(&self.namespace), TIDY_MAX).await?;
        }
        let definitions = format!("{DEFINITIONS}?labelSelector={LABEL}=true");
        self.delete_all(&definitions, TIDY_MAX).await?;
        self.ask("DELETE", &format!("/api/v1/namespaces/{}", self.namespace), None).await?;
        Ok(())
    }

    /// Kills the server's process as a power failure would, and starts a new one on the same data. `None` if the server
    /// is not ours.
    pub(crate) async fn kill_and_start(&mut self) -> anyhow::Result<Option<Duration>> {
        let Some(Own { launch, data, server }) = self.own.take() else { return Ok(None) };
        server.kill().await?;
        let server = launch.start(&data).await?;
        let took = server.took;
        self.processes = Some(Processes { ids: vec![server.id] });
        self.target = Arc::new(Target::new(kubeconfig::read(&server.kubeconfig)?)?);
        self.own = Some(Own { launch, data, server });
        Ok(Some(took))
    }

    /// Defines Widgets, and finds how much padding gives them the requested size.
    pub(crate) async fn define_widgets(&mut self) -> anyhow::Result<()> {
        let definition = objects::widget_definition();
        self.create(DEFINITIONS, &definition).await?;
        self.wait_established(&format!("widgets.{}", objects::GROUP)).await?;
        let path = format!("{}?dryRun=All", objects::widgets_path(&self.namespace));
        let bare = self.create(&path, &objects::widget(0, 1, "t")).await?;
        // The tag already has one byte.
        let n = self.bounds.object_bytes.saturating_sub(bare.len()) + 1;
        if bare.len() > self.bounds.object_bytes {
            eprintln!("  an object takes {} bytes here", bare.len());
        }
        self.tag = "t".repeat(n).into();
        Ok(())
    }

    /// Creates Widgets from number `from` up to `to`, all of which must succeed.
    pub(crate) async fn fill(&self, from: u64, to: u64) -> anyhow::Result<Outcome> {
        let count_max = to.saturating_sub(from);
        // A slow server or a busy machine may take longer to create many objects than a measurement lasts.
        let duration = self.bounds.limit.max(FILL_MAX_EACH.saturating_mul(u32::try_from(count_max)?));
        let load = Load { method: "POST", workers: FILL_WORKERS, duration, count_max };
        let outcome = self.create_widgets(load, from).await?;
        anyhow::ensure!(outcome.n == count_max, "of {count_max} objects {} were created", outcome.n);
        Ok(outcome)
    }

    pub(crate) async fn create_widgets(&self, load: Load, from: u64) -> anyhow::Result<Outcome> {
        let (target, tag) = (Arc::clone(&self.target), Arc::clone(&self.tag));
        let path = objects::widgets_path(&self.namespace);
        let write = move |n: u64, out: &mut Vec<u8>| {
            let body = objects::widget(from + n, 1, &tag);
            target.request(out, "POST", &path, JSON, Some(Body { media_type: JSON, bytes: body.as_bytes() }));
        };
        load::run(&self.target, &self.errors, load, write).await
    }

    /// Waits until a definition is in force.
    pub(crate) async fn wait_established(&self, name: &str) -> anyhow::Result<()> {
        let path = format!("{DEFINITIONS}/{name}");
        let deadline = Instant::now() + self.bounds.limit;
        while Instant::now() < deadline {
            let (_, definition) = self.ask("GET", &path, None).await?;
            let definition: Value = serde_json::from_slice(&definition).context("a definition is no JSON")?;
            let conditions = definition["status"]["conditions"].as_array();
            let is_established =
                |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
            if conditions.is_some_and(|conditions| conditions.iter().any(is_established)) {
                return Ok(());
            }
            sleep(ASK_AGAIN).await;
        }
        anyhow::bail!("{name} was not established in {} s", self.bounds.limit.as_secs())
    }

    /// The current version of a collection, to watch from.
    pub(crate) async fn version(&self, path: &str) -> anyhow::Result<String> {
        let (status, list) = self.ask("GET", &format!("{path}?limit=1"), None).await?;
        let list: Value = serde_json::from_slice(&list).context("a list is no JSON")?;
        let version = list["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        version.with_context(|| format!("the list of {path} was answered {status} and has no version"))
    }

    /// Creates an object and returns the answer.
    ///
    /// # Errors
    ///
    /// If the answer is no success.
    pub(crate) async fn create(&self, path: &str, body: &str) -> anyhow::Result<Vec<u8>> {
        let (status, answer) = self.ask("POST", path, Some((JSON, body))).await?;
        let text = || String::from_utf8_lossy(&answer).into_owned();
        anyhow::ensure!(status < 300, "POST {path} was answered {status}: {}", text());
        Ok(answer)
    }

    /// Deletes a collection until it is empty: some servers give up after a minute.
    pub(crate) async fn delete_all(&self, path: &str, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        let separator = if path.contains('?') { '&' } else { '?' };
        loop {
            let (status, answer) = self.ask_within(limit, "DELETE", path, None).await?;
            if status >= 300 {
                self.errors.note_answer("DELETE of a collection", status, &answer);
            }
            let (_, rest) = self.ask("GET", &format!("{path}{separator}limit=1"), None).await?;
            let rest: Value = serde_json::from_slice(&rest).context("a list is no JSON")?;
            if rest["items"].as_array().is_none_or(Vec::is_empty) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "{path} is not empty after {} s", limit.as_secs());
            sleep(ASK_AGAIN).await;
        }
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<(&'static str, &str)>,
    ) -> anyhow::Result<(u16, Vec<u8>)> {
        self.ask_within(self.bounds.limit, method, path, body).await
    }

    async fn ask_within(
        &self,
        limit: Duration,
        method: &str,
        path: &str,
        body: Option<(&'static str, &str)>,
    ) -> anyhow::Result<(u16, Vec<u8>)> {
        let mut request = Vec::new();
        let body = body.map(|(media_type, text)| Body { media_type, bytes: text.as_bytes() });
        self.target.request(&mut request, method, path, JSON, body);
        let asked = async { Ok(self.target.connect().await?.ask(&request).await?) };
        let answered: Result<anyhow::Result<_>, _> = timeout(limit, asked).await;
        answered.with_context(|| format!("{method} {path} was not answered in {} s", limit.as_secs()))?
    }

    /// Waits until the server is idle, if its processes are known.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        match &self.processes {
            Some(processes) => processes.settle().await.context("cannot read what the server takes"),
            None => Ok(()),
        }
    }

    /// The resident memory once the server is idle.
    pub(crate) async fn resident_mb(&self) -> anyhow::Result<Option<f64>> {
        self.settle().await?;
        self.processes.as_ref().map(Processes::resident_mb).transpose().context("cannot read what is resident")
    }

    pub(crate) fn meter(&self) -> anyhow::Result<Meter> {
        Ok(Meter { start: Instant::now(), server_cpu_s: self.cpu_s()?, client_cpu_s: process::cpu_s("self")? })
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        self.processes.as_ref().map(Processes::cpu_s).transpose().context("cannot read what the server takes")
    }
}

impl Meter {
    /// The cost of each of `n` operations, with `value` as the figure.
    pub(crate) fn sample(&self, stage: &Stage, value: f64, n: u64) -> anyhow::Result<Sample> {
        // An f64 holds the counts and seconds of one run exactly.
        let each_us = |seconds: f64| seconds / n.max(1) as f64 * 1e6;
        let server_cpu_us = self.server_cpu_s(stage)?.map(each_us);
        let client_cpu_us = Some(each_us(process::cpu_s("self")? - self.client_cpu_s));
        Ok(Sample { value, server_cpu_us, client_cpu_us, ..Sample::default() })
    }

    /// The requests per second of a load, with the cost of each.
    pub(crate) fn rate(&self, stage: &Stage, outcome: &Outcome) -> anyhow::Result<Sample> {
        let sample = self.sample(stage, outcome.n as f64 / outcome.elapsed.as_secs_f64(), outcome.n)?;
        Ok(Sample { p50_us: Some(outcome.p50_us), p99_us: Some(outcome.p99_us), ..sample })
    }

    pub(crate) fn server_cpu_s(&self, stage: &Stage) -> anyhow::Result<Option<f64>> {
        Ok(stage.cpu_s()?.zip(self.server_cpu_s).map(|(now, before)| now - before))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
