//! Events go after an hour: they tell what happened, and nobody deletes them.
//!
//! Upstream gives each Event a lease of its store; here one task looks through them now and then. An Event that is counted
//! up stays as long as it is.

use crate::state::State;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{GroupResource, Value, value};
use steersman_storage::{At, Page, Scope, WriteError};
use tokio::task::JoinHandle;

/// How long an Event stays after it happened last.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(300);
/// Where an Event says when it happened; the latest counts.
const TIMES: [&[&str]; 4] =
    [&["lastTimestamp"], &["eventTime"], &["series", "lastObservedTime"], &["metadata", "creationTimestamp"]];

/// Begins to look; ends when the server stops.
pub(crate) fn start(state: &Arc<State>) -> JoinHandle<()> {
    let state = state.clone();
    tokio::spawn(async move {
        loop {
            // Both arms are cancel-safe: they have no state.
            tokio::select! {
                () = state.stopping() => return,
                () = tokio::time::sleep(INTERVAL) => expire(&state).await,
            }
        }
    })
}

/// Deletes the Events that are over.
async fn expire(state: &State) {
    let events = GroupResource::new("", "events");
    let now = state.now();
    let is_over = |object: &steersman_machinery::Object| {
        serde_json::from_slice(object.json()).is_ok_and(|event| is_over(&event, now))
    };
    let Ok(list) = state.store.list_where(&events, &Scope::All, At::Latest, Page::ALL, is_over) else { return };
    for event in list.objects {
        match state.store.delete(&events, &event.key, event.revision).await {
            // One that was written in between has happened again.
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "old Events could not be deleted; it is tried again later");
                return;
            }
        }
    }
}

/// Whether an Event happened last so long ago. One that does not say when stays.
fn is_over(event: &Value, now: Timestamp) -> bool {
    let times = TIMES.iter().filter_map(|path| value::str_at(event, path)?.parse::<Timestamp>().ok());
    times
        .max()
        .is_some_and(|last| last.duration_until(now) > jiff::SignedDuration::try_from(LIFETIME).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_stays_an_hour_after_it_happened_last() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let created = |time: &str| json!({"metadata": {"creationTimestamp": time}});
        assert!(is_over(&created("2026-01-01T10:59:59Z"), now));
        assert!(!is_over(&created("2026-01-01T11:30:00Z"), now));
        assert!(!is_over(&json!({}), now));
        let mut counted = created("2026-01-01T01:00:00Z");
        counted["lastTimestamp"] = json!("2026-01-01T11:59:00Z");
        assert!(!is_over(&counted, now));
    }
}
