//! Defines the kind `Stage` on the server, and watches the Stages.
//!
//! Runs as a task of the simulated nodes. The definition is written at the start, and watched: if somebody deletes it,
//! there are no Stages until it exists again, and nothing waits for it. Stages are watched only while the kind is
//! served. Between changes no requests are sent.

use crate::kubelet::stage::Stages;
use crate::kubelet::stage::api::Stage;
use crate::shared::refusal;
use futures::{FutureExt, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt};
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{Changes, Informer, InformerFactory, Running, Selection};
use steersman::{ObjectKey, Scope};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The field manager of the definition.
const MANAGER: &str = "steersman";
/// The first and the longest pause before a refused definition is written again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The informer of Stages, while they are served.
struct Source {
    informer: Informer<Stage>,
    changes: Changes<Stage>,
    is_synced: bool,
    /// Stops the informer when it is dropped.
    _running: Running,
}

/// The state of the kind on the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Definition {
    Absent,
    /// It exists, and is not served yet.
    Begun,
    Served,
}

/// Sends the current Stages to `stages`, until `stop` is cancelled.
pub(crate) async fn watch(client: Client, stages: watch::Sender<Option<Arc<Stages>>>, stop: CancellationToken) {
    stop.run_until_cancelled(follow(client, stages)).await;
}

async fn follow(client: Client, stages: watch::Sender<Option<Arc<Stages>>>) {
    let definition = Stage::crd();
    let name = Stage::crd_name();
    let factory = InformerFactory::new(client.clone());
    let definitions = factory
        .informer::<CustomResourceDefinition>(Selection::new(Scope::All).fields(format!("metadata.name={name}")));
    let mut changes = definitions.changes();
    let _running = factory.start();
    let mut source: Option<Source> = None;
    let (mut install_at, mut wait) = (Some(Instant::now()), RETRY.0);
    definitions.synced().await;
    if definitions.lister().get(&ObjectKey::cluster(name)).is_err() {
        stages.send_replace(Some(Arc::default()));
    }
    loop {
        // All arms only wait; changes are made after that, without awaiting.
        tokio::select! {
            Some(_) = changes.next() => {
                let found = definitions.lister().get(&ObjectKey::cluster(name)).ok();
                match state(found.as_deref()) {
                    Definition::Absent => {
                        source = None;
                        publish(&stages, Stages::default());
                    }
                    Definition::Begun => {}
                    Definition::Served if source.is_none() => source = Some(Source::start(&client)),
                    Definition::Served => {}
                }
            }
            () = changed(&mut source) => {
                if let Some(source) = &source {
                    publish(&stages, source.read());
                }
            }
            () = until(install_at) => {
                install_at = match install(&client, name, &definition).await {
                    Ok(()) => None,
                    Err(error) => {
                        tracing::warn!(error = refusal::message(&error), "the kind Stage of simulated nodes cannot be defined");
                        let at = Instant::now() + wait;
                        wait = wait.saturating_mul(2).min(RETRY.1);
                        Some(at)
                    }
                };
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn install(client: &Client, name: &str, definition: &CustomResourceDefinition) -> kube::Result<()> {
    let params = PatchParams::apply(MANAGER).force();
    Api::<CustomResourceDefinition>::all(client.clone()).patch(name, &params, &Patch::Apply(definition)).await?;
    Ok(())
}

fn state(definition: Option<&CustomResourceDefinition>) -> Definition {
    let Some(definition) = definition else { return Definition::Absent };
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_established = conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True");
    if is_established { Definition::Served } else { Definition::Begun }
}

/// Waits until the set of Stages has changed.
///
/// # Cancel safety
/// A cancelled call consumes no change.
async fn changed(source: &mut Option<Source>) {
    let Some(source) = source else { return std::future::pending().await };
    if !source.is_synced {
        source.informer.synced().await;
        source.is_synced = true;
    } else if source.changes.next().await.is_none() {
        return std::future::pending().await;
    }
    // Changes that arrived together are handled together.
    while let Some(Some(_)) = source.changes.next().now_or_never() {}
}

/// Sends the Stages if they differ from the previous ones.
fn publish(to: &watch::Sender<Option<Arc<Stages>>>, stages: Stages) {
    to.send_if_modified(|known| {
        let is_new = known.as_deref() != Some(&stages);
        if is_new {
            *known = Some(Arc::new(stages));
        }
        is_new
    });
}

// === impl Source ===

impl Source {
    fn start(client: &Client) -> Source {
        let factory = InformerFactory::new(client.clone());
        let informer = factory.informer::<Stage>(Scope::All);
        let changes = informer.changes();
        Source { informer, changes, is_synced: false, _running: factory.start() }
    }

    fn read(&self) -> Stages {
        let all = self.informer.lister().list().unwrap_or_default();
        let (stages, faults) = Stages::of(all.iter().map(|stage| &**stage));
        for fault in faults {
            tracing::warn!(fault, "a stage says something that cannot be used");
        }
        stages
    }
}
