//! Finds out whether the servers behind APIServices answer, and what they serve.
//!
//! Every server is checked when its APIService, its Service or the EndpointSlices of the Service change, and from time to
//! time. The outcome is the condition `Available` of the APIService, on which it depends whether requests are passed on, and
//! its part of discovery and OpenAPI. Follows upstream's `remote_available_controller.go` and `handler_discovery.go`.

mod availability;
mod served;

use crate::background::upkeep::remotes::availability::Facts;
use crate::background::upkeep::{Changes, api_services, interval};
use crate::shared::aggregation::discovered::{Discovered, RemoteVersion};
use crate::shared::aggregation::remote::Remote;
use crate::shared::aggregation::remotes;
use crate::shared::status::Failure;
use crate::state::State;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::{At, Page, Scope};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The time between checks of a server that answers.
const INTERVAL: Duration = Duration::from_secs(30);
/// The pause after the first failed check. Each further one is twice as long, up to [`INTERVAL`].
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The most servers that are checked at a time.
const CHECKS_AT_A_TIME: usize = 16;

/// A server, and what is known of it.
struct Known {
    remote: Arc<Remote>,
    facts: Facts,
    due: Instant,
    is_under_way: bool,
    /// The number of checks that have failed since the last one that did not.
    n_failures: u32,
    version: Arc<RemoteVersion>,
}

/// The outcome of a check.
struct Checked {
    name: String,
    /// The facts on which the check was based.
    facts: Facts,
    is_answering: bool,
    version: RemoteVersion,
}

/// All servers by the names of their APIServices, and the checks that are under way.
struct Checks {
    state: Arc<State>,
    known: BTreeMap<String, Known>,
    under_way: FuturesUnordered<BoxFuture<'static, Checked>>,
}

/// Starts the task, which ends when the server stops.
pub(crate) fn start(state: &Arc<State>) -> JoinHandle<()> {
    let mut changes = Changes::new(state, &availability::resources());
    let mut catalog_changes = state.catalog_changes();
    let mut checks = Checks { state: state.clone(), known: BTreeMap::new(), under_way: FuturesUnordered::new() };
    tokio::spawn(async move {
        let state = checks.state.clone();
        loop {
            let wait = interval(checks.look(), "servers behind APIServices");
            checks.begin();
            checks.publish();
            let wait = wait.min(checks.next_due());
            let no_checks = checks.under_way.is_empty();
            // Both arms are cancel-safe: events that are not returned are not consumed, and checks go on at the next poll.
            tokio::select! {
                is_running = changes.next(&state, Some(&mut catalog_changes), wait) => if !is_running { return },
                Some(checked) = checks.under_way.next(), if !no_checks => checks.done(checked),
            }
        }
    })
}

impl Checks {
    /// Compares the known servers with the APIServices.
    fn look(&mut self) -> Result<(), Failure> {
        let (state, catalog) = (&self.state, self.state.catalog());
        let listed = state.store.list(&remotes::resource(), &Scope::All, At::Latest, Page::ALL);
        let listed = listed.map_err(|error| Failure::of_read(&error))?.objects;
        let mut names = BTreeSet::new();
        for object in listed {
            let Some(remote) = state.remotes.named(&object.key.name) else { continue };
            if remote.group.is_empty() || remotes::is_local(&catalog, &remote.group, &remote.version) {
                continue;
            }
            names.insert(remote.name.clone());
            let (facts, now) = (Facts::of(state, &remote)?, Instant::now());
            match self.known.get_mut(&remote.name) {
                Some(known) => {
                    if known.facts != facts {
                        (known.facts, known.due, known.n_failures) = (facts, now, 0);
                    }
                    if known.version.priority != remote.priority {
                        Arc::make_mut(&mut known.version).priority = remote.priority;
                    }
                    known.remote = remote;
                }
                None => {
                    let version = Arc::new(stale(&remote));
                    let known = Known { remote, facts, due: now, is_under_way: false, n_failures: 0, version };
                    self.known.insert(known.remote.name.clone(), known);
                }
            }
        }
        self.known.retain(|name, _| names.contains(name));
        Ok(())
    }

    /// Begins the checks that are due.
    fn begin(&mut self) {
        let now = Instant::now();
        for known in self.known.values_mut() {
            if CHECKS_AT_A_TIME <= self.under_way.len() {
                return;
            }
            if known.is_under_way || now < known.due {
                continue;
            }
            known.is_under_way = true;
            let (state, remote, facts) = (self.state.clone(), known.remote.clone(), known.facts.clone());
            self.under_way.push(Box::pin(check(state, remote, facts)));
        }
    }

    fn done(&mut self, checked: Checked) {
        let Some(known) = self.known.get_mut(&checked.name) else { return };
        known.is_under_way = false;
        known.version = Arc::new(RemoteVersion { priority: known.version.priority, ..checked.version });
        if known.facts != checked.facts {
            // Something has changed in the meantime.
            known.due = Instant::now();
            return;
        }
        known.n_failures = if checked.is_answering { 0 } else { known.n_failures.saturating_add(1) };
        let pause = match known.n_failures {
            0 => INTERVAL,
            n => RETRY_INTERVAL.saturating_mul(1 << (n - 1).min(10)).min(INTERVAL),
        };
        known.due = Instant::now() + pause;
    }

    fn publish(&self) {
        let versions = self.known.values().map(|known| known.version.clone()).collect();
        self.state.remotes.publish(Discovered { versions });
    }

    /// The time until the next check is due.
    fn next_due(&self) -> Duration {
        let waiting = self.known.values().filter(|known| !known.is_under_way);
        let now = Instant::now();
        match waiting.map(|known| known.due).min() {
            // The end of one that is under way comes first.
            Some(_) if CHECKS_AT_A_TIME <= self.under_way.len() => INTERVAL,
            Some(due) => due.saturating_duration_since(now),
            None => INTERVAL,
        }
    }
}

/// Checks a server, and writes the outcome into its APIService.
async fn check(state: Arc<State>, remote: Arc<Remote>, facts: Facts) -> Checked {
    let condition = availability::condition(&state, &remote).await;
    let mut is_answering = condition["status"] == "True";
    if let Err(failure) = api_services::set_available(&state, &remote.name, &condition).await {
        let error = failure.status.message;
        tracing::warn!(name = remote.name, error, "the status of an APIService could not be written; trying again");
        is_answering = false;
    }
    let version = if is_answering { served::fetch(&state, &remote).await } else { None };
    let is_answering = is_answering && version.is_some();
    let version = version.unwrap_or_else(|| stale(&remote));
    Checked { name: remote.name.clone(), facts, is_answering, version }
}

/// A server that does not answer, or was not asked yet. As upstream, the version is listed without resources.
fn stale(remote: &Remote) -> RemoteVersion {
    RemoteVersion {
        group: remote.group.clone(),
        version: remote.version.clone(),
        priority: remote.priority,
        entry: json!({"version": remote.version, "freshness": "Stale"}),
        openapi: BTreeMap::new(),
    }
}
