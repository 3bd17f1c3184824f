//! Tells Pods that their proxy is configured, for those that wait for it with a readiness gate.
//!
//! The condition becomes true once and stays so: a proxy that loses the pilot keeps its configuration, and whether it runs is for its
//! own probes to say. So every replica can write it for the proxies that it serves.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::pilot::caches::Caches;
use crate::pilot::proxies::{PodId, Proxies};

/// The readiness gate, and the condition that it waits for.
pub(crate) const CONFIGURED: &str = "mesh.steersman.dev/configured";

/// How long reports of proxies are gathered before Pods are looked at.
const GATHERED: Duration = Duration::from_millis(50);
/// When a write that failed is made again.
const AGAIN: Duration = Duration::from_secs(1);

/// Writes the condition of Pods.
pub(crate) struct PodConditions {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) proxies: Arc<Proxies>,
}

impl PodConditions {
    /// Writes conditions until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut changes = self.proxies.changes();
        changes.mark_changed();
        let mut done = HashSet::new();
        let mut is_complete = true;
        loop {
            let pause = async {
                if is_complete {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(AGAIN).await;
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = pause => {}
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    // All proxies are looked at: not once more for each of thousands that report.
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        () = tokio::time::sleep(GATHERED) => {}
                    }
                    changes.mark_unchanged();
                }
            }
            is_complete = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                is_complete = self.round(&mut done) => is_complete,
            };
        }
    }

    /// Writes what is missing; `false` if something failed. `done` has the uids of Pods that need nothing any more.
    async fn round(&self, done: &mut HashSet<String>) -> bool {
        let standings = self.proxies.standings();
        let present: HashSet<&String> = standings.iter().filter_map(|standing| standing.pod.uid.as_ref()).collect();
        done.retain(|uid| present.contains(uid));
        let mut is_complete = true;
        for standing in standings.iter().filter(|standing| standing.is_settled()) {
            let Some(uid) = standing.pod.uid.as_ref().filter(|uid| !done.contains(*uid)) else { continue };
            if !self.waits(&standing.pod) {
                done.insert(uid.clone());
                continue;
            }
            match self.write(&standing.pod).await {
                Ok(()) => drop(done.insert(uid.clone())),
                Err(error) => {
                    tracing::debug!(pod = %standing.pod.key, %error, "the condition could not be written; it is written again");
                    is_complete = false;
                }
            }
        }
        is_complete
    }

    /// Whether a Pod has the gate and not yet the condition.
    fn waits(&self, pod: &PodId) -> bool {
        let Ok(pod) = self.caches.pod(&pod.key) else { return false };
        let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
        let has_gate = gates.into_iter().any(|gate| gate.condition_type == CONFIGURED);
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_told =
            conditions.into_iter().any(|condition| condition.type_ == CONFIGURED && condition.status == "True");
        has_gate && !is_told
    }

    async fn write(&self, pod: &PodId) -> Result<(), kube::Error> {
        let namespace = pod.key.namespace().unwrap_or_default();
        let now = Timestamp::now();
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let condition = json!({
            "type": CONFIGURED,
            "status": "True",
            "reason": "Configured",
            "message": "the proxy has acknowledged its whole configuration",
            "lastTransitionTime": now.to_string(),
        });
        // The list is merged by type, so that conditions of others stay.
        let patch = json!({ "metadata": { "uid": pod.uid }, "status": { "conditions": [condition] } });
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        pods.patch_status(pod.key.name(), &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    }
}
