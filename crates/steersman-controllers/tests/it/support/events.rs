//! Waits for Events, whose names are generated.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use std::time::Duration;
use steersman_testkit::ControlPlane;

/// The timeout. It costs nothing where time is paused.
const PATIENCE: Duration = Duration::from_mins(10);

/// The first Event in the namespace `default` about the object with this name, and with this reason.
pub(crate) async fn until(plane: &ControlPlane, of: &str, reason: &str) -> Event {
    let is_it =
        |event: &Event| event.involved_object.name.as_deref() == Some(of) && event.reason.as_deref() == Some(reason);
    let api = Api::<Event>::namespaced(plane.client(), "default");
    let found = async {
        loop {
            let list = api.list(&ListParams::default()).await.expect("events are listed");
            if let Some(event) = list.items.into_iter().find(is_it) {
                return event;
            }
            let version = list.metadata.resource_version.unwrap_or_default();
            let mut changes = api.watch(&WatchParams::default(), &version).await.expect("events are watched").boxed();
            // A watch that ends is started again.
            while let Ok(Some(change)) = changes.try_next().await {
                match change {
                    WatchEvent::Added(event) | WatchEvent::Modified(event) if is_it(&event) => return event,
                    _ => {}
                }
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("no Event {reason} of {of}"))
}
