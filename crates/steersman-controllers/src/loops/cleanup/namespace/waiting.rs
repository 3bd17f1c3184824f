//! Watches the remaining content of namespaces that are being deleted, so that they are reconciled when something has
//! gone.

use crate::loops::cleanup::namespace::content::Left;
use futures::StreamExt;
use futures::stream::SelectAll;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use steersman::ObjectKey;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// The most namespaces that are watched. Others are polled.
const NAMESPACES_MAX: usize = 64;
/// The most kinds that are watched for one namespace.
const KINDS_MAX: usize = 8;
/// The most keys queued for the controller.
pub(super) const KEYS_MAX: usize = 2 * NAMESPACES_MAX;
/// The lifetime of a watch, after which the namespace is reconciled in any case.
const WATCH_SECONDS: u32 = 280;
/// The pause after the first change, in which further changes are collected.
const SETTLE: Duration = Duration::from_millis(300);

/// The watched namespaces. Dropping this ends all watches.
pub(super) struct Waiting {
    wake: mpsc::Sender<ObjectKey>,
    watches: Mutex<Watches>,
}

#[derive(Default)]
struct Watches {
    tasks: JoinSet<()>,
    by_namespace: HashMap<ObjectKey, AbortHandle>,
}

// === impl Waiting ===

impl Waiting {
    /// Sends the keys of namespaces whose content has changed to `wake`.
    pub(super) fn new(wake: mpsc::Sender<ObjectKey>) -> Waiting {
        Waiting { wake, watches: Mutex::default() }
    }

    /// Ends the watches of a namespace that is being reconciled, since they are outdated.
    pub(super) fn end(&self, namespace: &ObjectKey) {
        if let Some(task) = self.watches.lock().by_namespace.remove(namespace) {
            task.abort();
        }
    }

    /// Wakes the namespace once an instance of `left` is gone. Returns `false` if it cannot be watched.
    pub(super) fn begin(&self, client: &Client, namespace: &ObjectKey, left: &[Left]) -> bool {
        let can_watch = left.iter().all(|left| left.served.can("watch") && !left.version.is_empty());
        let mut watches = self.watches.lock();
        watches.by_namespace.retain(|_, task| !task.is_finished());
        while watches.tasks.try_join_next().is_some() {}
        if !can_watch || left.len() > KINDS_MAX || watches.by_namespace.len() >= NAMESPACES_MAX {
            return false;
        }
        let (client, key, left, wake) = (client.clone(), namespace.clone(), left.to_vec(), self.wake.clone());
        let task = watches.tasks.spawn(async move {
            until_something_goes(&client, key.name(), &left).await;
            // Sending fails only if the controller, as the receiver, is gone.
            drop(wake.send(key).await);
        });
        if let Some(earlier) = watches.by_namespace.insert(namespace.clone(), task) {
            earlier.abort();
        }
        true
    }
}

/// Returns when all instances are gone, shortly after one is gone or has lost a finalizer, and when a watch ends.
async fn until_something_goes(client: &Client, namespace: &str, left: &[Left]) {
    let mut events = SelectAll::new();
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    for one in left {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &one.served.resource);
        match api.watch_metadata(&params, &one.version).await {
            Ok(watch) => {
                let held = Arc::clone(&one.held);
                // Only a change of the finalizers can affect the namespace.
                let matters = move |event: &kube::Result<WatchEvent<PartialObjectMeta>>| match event {
                    Ok(WatchEvent::Bookmark(_)) => false,
                    Ok(WatchEvent::Modified(object)) => {
                        let name = object.metadata.name.as_deref().unwrap_or_default();
                        held.get(name).map(Vec::as_slice)
                            != Some(object.metadata.finalizers.as_deref().unwrap_or_default())
                    }
                    Ok(WatchEvent::Added(_) | WatchEvent::Deleted(_) | WatchEvent::Error(_)) | Err(_) => true,
                };
                let events_of_kind = watch.filter(move |event| std::future::ready(matters(event)));
                events.push(events_of_kind.map(Some).chain(futures::stream::iter([None])).boxed());
            }
            Err(error) => {
                tracing::debug!(namespace, %error, "cannot watch what remains");
                tokio::time::sleep(SETTLE).await;
                return;
            }
        }
    }
    let mut n_left: usize = left.iter().map(|one| one.n_instances).sum();
    let mut settled = None;
    while n_left > 0 {
        let next = async {
            match settled {
                None => events.next().await,
                Some(settled) => tokio::time::timeout_at(settled, events.next()).await.ok().flatten(),
            }
        };
        match next.await.flatten() {
            Some(Ok(WatchEvent::Deleted(_))) => n_left -= 1,
            Some(Ok(WatchEvent::Added(_) | WatchEvent::Bookmark(_) | WatchEvent::Modified(_))) => {}
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => return,
        }
        settled = settled.or_else(|| tokio::time::Instant::now().checked_add(SETTLE));
    }
}
