//! The statuses of Pods that nodes have written, until the informer delivers them.
//!
//! A client that sees in a watch that a Pod is ready may request its log before the event has reached the node itself.
//! A kubelet answers from the status that it has written, as kubernetes' `pkg/kubelet/status` keeps it.

use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::RwLock;
use std::sync::Arc;
use steersman::ObjectKey;

/// Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    statuses: Arc<RwLock<HashMap<ObjectKey, Status>>>,
}

/// A status, and the uid of its Pod.
#[derive(Clone, Debug)]
struct Status {
    uid: String,
    status: Arc<PodStatus>,
}

// === impl Written ===

impl Written {
    /// Keeps a status that is about to be written.
    pub(crate) fn keep(&self, key: &ObjectKey, uid: &str, status: Arc<PodStatus>) {
        self.statuses.write().insert(key.clone(), Status { uid: uid.to_owned(), status });
    }

    /// Drops the status of a Pod. To be called when the event of the write has arrived, or the Pod is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        // There is nearly always nothing to drop, and readers need not wait for that.
        if self.statuses.read().contains_key(key) {
            self.statuses.write().remove(key);
        }
    }

    /// A Pod with the status that its node has written, given its lookup in a cache. A dropped status is in the cache
    /// already, so the cache is read last.
    pub(crate) fn or(&self, key: &ObjectKey, find: impl FnOnce() -> Option<Arc<Pod>>) -> Option<Arc<Pod>> {
        let known = self.statuses.read().get(key).cloned();
        let pod = find()?;
        let known = known.filter(|known| pod.metadata.uid.as_deref() == Some(&*known.uid));
        Some(match known {
            Some(known) => Arc::new(Pod { status: Some(PodStatus::clone(&known.status)), ..Pod::clone(&pod) }),
            None => pod,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn pod(uid: &str) -> Arc<Pod> {
        let metadata = ObjectMeta {
            name: Some("p".to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    fn phase(pod: &Pod) -> Option<&str> {
        pod.status.as_ref()?.phase.as_deref()
    }

    #[test]
    fn what_was_written_holds_until_it_is_heard_of_and_for_no_other_pod_of_the_name() {
        let written = Written::default();
        let key = ObjectKey::namespaced("default", "p");
        let known = |uid: &str| phase(&written.or(&key, || Some(pod(uid))).unwrap()).map(str::to_owned);
        assert_eq!(known("1"), None);
        let running = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
        written.keep(&key, "1", Arc::new(running));
        assert_eq!(known("1").as_deref(), Some("Running"));
        assert_eq!(known("2"), None);
        let late = written.or(&key, || {
            // The event arrives during the request for the log.
            written.forget(&key);
            Some(pod("1"))
        });
        assert_eq!(phase(&late.unwrap()), Some("Running"));
        assert_eq!(known("1"), None);
    }
}
