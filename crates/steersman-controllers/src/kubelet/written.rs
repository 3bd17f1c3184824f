//! The statuses that nodes have written of their Pods and not heard back yet.
//!
//! Whoever reads in a watch that a Pod is ready may ask for its log before the event has come to the node itself. A kubelet answers
//! from what it has written, as kubernetes' `pkg/kubelet/status` keeps it.

use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::RwLock;
use std::sync::Arc;
use steersman::ObjectKey;

/// Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    statuses: Arc<RwLock<HashMap<ObjectKey, Status>>>,
}

/// A status, and the uid of the Pod that has it.
#[derive(Clone, Debug)]
struct Status {
    uid: String,
    status: Arc<PodStatus>,
}

// === impl Written ===

impl Written {
    /// Keeps what is about to be written.
    pub(crate) fn keep(&self, key: &ObjectKey, uid: &str, status: Arc<PodStatus>) {
        self.statuses.write().insert(key.clone(), Status { uid: uid.to_owned(), status });
    }

    /// To be called when the event of what was written has come, or the Pod has gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        // Nearly always there is nothing to forget, and those who read need not wait for that.
        if self.statuses.read().contains_key(key) {
            self.statuses.write().remove(key);
        }
    }

    /// A Pod as its node knows it, given how it is found in a cache. What is forgotten is in the cache already, so the cache is asked last.
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
            // The event comes while the log is asked for.
            written.forget(&key);
            Some(pod("1"))
        });
        assert_eq!(phase(&late.unwrap()), Some("Running"));
        assert_eq!(known("1"), None);
    }
}
