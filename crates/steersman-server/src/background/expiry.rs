//! Deletes Events some time after they happened, an hour by default: no other component deletes them.
//!
//! Upstream attaches an etcd lease to each Event; here one task examines all Events every few minutes. An Event whose
//! count goes on rising is kept for as long as it does.

use crate::state::State;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::time as times;
use steersman_machinery::{GroupResource, Value, value};
use steersman_storage::{At, Page, Scope, WriteError};
use tokio::task::JoinHandle;

/// The default lifetime of an Event after its last occurrence.
pub const EVENT_TTL: Duration = Duration::from_secs(3600);
/// The Events are examined this many times during their lifetime, within these bounds.
const LOOKS: u32 = 12;
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// The times of an Event; the latest counts.
const TIMES: [&[&str]; 4] =
    [&["lastTimestamp"], &["eventTime"], &["series", "lastObservedTime"], &["metadata", "creationTimestamp"]];

/// Starts the task. It ends when the server stops, or at once if Events are kept for ever.
pub(crate) fn start(state: &Arc<State>, ttl: Duration) -> JoinHandle<()> {
    let state = state.clone();
    let interval = (ttl / LOOKS).clamp(INTERVAL_MIN, INTERVAL_MAX);
    tokio::spawn(async move {
        while !ttl.is_zero() {
            // Both arms are cancel-safe: they have no state.
            tokio::select! {
                () = state.stopping() => return,
                () = tokio::time::sleep(interval) => expire(&state, ttl).await,
            }
        }
    })
}

/// Deletes the Events whose last occurrence is older than `ttl`.
async fn expire(state: &State, ttl: Duration) {
    let events = GroupResource::new("", "events");
    let now = state.now();
    let is_over = |object: &steersman_machinery::Object| {
        serde_json::from_slice(object.json()).is_ok_and(|event| is_over(&event, now, ttl))
    };
    let Ok(list) = state.store.list_where(&events, &Scope::All, At::Latest, Page::ALL, is_over) else { return };
    for event in list.objects {
        if state.is_stopping() {
            return;
        }
        match state.store.delete(&events, &event.key, event.revision).await {
            // A conflict means that the Event was written in the meantime: it has happened again and is kept.
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "old Events could not be deleted; it is tried again later");
                return;
            }
        }
    }
}

/// Whether an Event's last occurrence is older than `ttl`. An Event without a time is kept.
fn is_over(event: &Value, now: Timestamp, ttl: Duration) -> bool {
    let times = TIMES.iter().filter_map(|path| times::parse(value::str_at(event, path)?));
    times.max().is_some_and(|last| {
        last.duration_until(now) > jiff::SignedDuration::try_from(ttl).unwrap_or(jiff::SignedDuration::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authn;
    use crate::access::authz::Authorization;
    use serde_json::json;
    use steersman_machinery::ObjectKey;
    use steersman_storage::{Memory, Options, Store};

    #[test]
    fn an_event_stays_an_hour_after_it_happened_last() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let created = |time: &str| json!({"metadata": {"creationTimestamp": time}});
        assert!(is_over(&created("2026-01-01T10:59:59Z"), now, EVENT_TTL));
        assert!(!is_over(&created("2026-01-01T11:30:00Z"), now, EVENT_TTL));
        assert!(!is_over(&json!({}), now, EVENT_TTL));
        let mut counted = created("2026-01-01T01:00:00Z");
        counted["lastTimestamp"] = json!("2026-01-01T11:59:00Z");
        assert!(!is_over(&counted, now, EVENT_TTL));
        assert!(is_over(&counted, now, Duration::from_secs(59)));
        assert!(!is_over(&created("2000-01-01T10:59:59Z"), now, Duration::MAX));
    }

    #[tokio::test]
    async fn a_server_that_stops_does_not_wait_for_old_events_to_be_deleted() {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let now = || "2026-01-01T12:00:00Z".parse().unwrap();
        let serve = |store: Store| {
            let (authentication, authorization) = (authn::Options::default(), Authorization::default());
            State::new(
                store,
                authentication,
                authorization,
                crate::write::admission::Plugins::default().asked(),
                crate::background::definitions::built_in(),
                now,
            )
        };
        let state = serve(store);
        let events = GroupResource::new("", "events");
        let old = json!({"metadata": {"creationTimestamp": "2026-01-01T01:00:00Z"}});
        state.store.create(&events, &ObjectKey::namespaced("default", "e"), old.to_string().into()).await.unwrap();
        let left = async |state: &State| {
            expire(state, EVENT_TTL).await;
            state.sync().await.unwrap();
            state.store.count(&events)
        };
        state.begin_stop();
        assert_eq!(left(&state).await, 1);
        let running = serve(state.store.clone());
        assert_eq!(left(&running).await, 0);
    }
}
