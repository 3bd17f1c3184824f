//! The time of the change that makes the endpoints of a Service due for a write, for the annotation
//! `endpoints.kubernetes.io/last-change-trigger-time`.
//!
//! Follows upstream's `trigger_time_tracker.go`: for a new Service, its creation; afterwards the earliest time at which
//! one of its Pods changed its readiness since the last write.

use crate::shared::pods;
use hashbrown::HashMap;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use steersman::ObjectKey;

pub(crate) const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The last observed times of Services. Bounded by the number of Services.
#[derive(Default)]
pub(crate) struct TriggerTimes {
    services: Mutex<HashMap<ObjectKey, Seen>>,
}

#[derive(Default)]
struct Seen {
    service: Option<Timestamp>,
    /// The times of Pods by a hash of their names.
    pods: HashMap<u64, Timestamp>,
}

impl TriggerTimes {
    /// The trigger time to write with the endpoints of a Service, if any. A second call does not return it again.
    pub(crate) fn next(&self, key: &ObjectKey, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut seen = Seen { service: created, pods: HashMap::with_capacity(pods.len()) };
        let old = self.services.lock().remove(key);
        let mut earliest: Option<Timestamp> = None;
        let mut note = |time: Timestamp| earliest = Some(earliest.map_or(time, |known| known.min(time)));
        for pod in pods {
            let ready = pods::condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref());
            let Some(time) = ready.map(|time| time.0) else { continue };
            let mut name = DefaultHasher::new();
            pod.metadata.name.hash(&mut name);
            let name = name.finish();
            if old.as_ref().and_then(|old| old.pods.get(&name)).is_none_or(|known| time > *known) {
                note(time);
            }
            seen.pods.insert(name, time);
        }
        if let Some(created) = created
            && old.as_ref().and_then(|old| old.service).is_none_or(|known| created > known)
        {
            note(created);
        }
        self.services.lock().insert(key.clone(), seen);
        if old.is_none() { created } else { earliest }
    }

    /// Forgets a Service that is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.services.lock().remove(key);
    }
}
