//! The proxies that are connected: what each should have, and what each has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use steersman::ObjectKey;
use steersman_xds::{ProxyReport, Refusal, Source, StreamId, Subscriber, View};
use tokio::sync::watch;

use crate::pilot::caches::Caches;
use crate::pilot::identity::Identities;
use crate::pilot::scope::{Scope, Snapshot};

/// The proxies that are connected. The server of the protocol asks it, and tells it.
pub struct Proxies {
    identities: Identities,
    caches: Caches,
    wanted: Mutex<Wanted>,
    /// A lock of its own: a stream that reports must not wait while views are made.
    reports: Mutex<HashMap<StreamId, ProxyReport>>,
    /// Changes when a proxy or what it should have has changed.
    changed: watch::Sender<()>,
}

/// The views that proxies should have.
#[derive(Default)]
struct Wanted {
    snapshot: Option<Arc<Snapshot>>,
    common: Arc<View>,
    /// The views of scopes with a stream that are not the common one.
    views: BTreeMap<Scope, Arc<View>>,
    streams: HashMap<StreamId, Stream>,
}

struct Stream {
    pod: PodId,
    scope: Scope,
    view: watch::Sender<Option<Arc<View>>>,
}

/// A Pod, and not another of its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PodId {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Option<String>,
}

/// A proxy as it stands.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) pod: PodId,
    /// The view that it should have.
    pub(crate) wanted: Arc<View>,
    /// Its last report; none at the beginning.
    pub(crate) report: Option<ProxyReport>,
}

// === impl Proxies ===

impl Proxies {
    pub(crate) fn new(identities: Identities, caches: Caches) -> Proxies {
        Proxies {
            identities,
            caches,
            wanted: Mutex::default(),
            reports: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Gives every proxy what it should have of a new world. A proxy whose Pod is gone is let go.
    pub(crate) fn publish(&self, snapshot: Arc<Snapshot>) {
        let mut wanted = self.wanted.lock();
        let Wanted { streams, views, common, .. } = &mut *wanted;
        if self.caches.take_rescoped() {
            streams.retain(|_, stream| match self.caches.pod(&stream.pod.key) {
                Ok(pod) if pod.metadata.uid == stream.pod.uid => {
                    stream.scope = self.caches.scope(&pod);
                    true
                }
                _ => false,
            });
        }
        *common = snapshot.view(None, common);
        let mut kept = BTreeMap::new();
        for stream in streams.values() {
            if !snapshot.is_common(&stream.scope) && !kept.contains_key(&stream.scope) {
                let previous = views.get(&stream.scope).unwrap_or(common);
                kept.insert(stream.scope.clone(), snapshot.view(Some(&stream.scope), previous));
            }
        }
        *views = kept;
        for stream in streams.values() {
            let view = if snapshot.is_common(&stream.scope) { &*common } else { &views[&stream.scope] };
            stream.view.send_if_modified(|known| {
                let is_new = !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, view));
                if is_new {
                    *known = Some(Arc::clone(view));
                }
                is_new
            });
        }
        wanted.snapshot = Some(snapshot);
        drop(wanted);
        self.changed.send_replace(());
    }

    /// Follows changes of proxies and of what they should have.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The newest world; none before the caches were filled.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.wanted.lock().snapshot.clone()
    }

    /// Every proxy as it stands.
    pub(crate) fn standings(&self) -> Vec<Standing> {
        let reports = self.reports.lock().clone();
        let wanted = self.wanted.lock();
        let standing = |(id, stream): (&StreamId, &Stream)| Standing {
            pod: stream.pod.clone(),
            wanted: stream.view.borrow().clone().unwrap_or_default(),
            report: reports.get(id).cloned(),
        };
        let mut standings: Vec<(StreamId, Standing)> =
            wanted.streams.iter().map(|entry| (*entry.0, standing(entry))).collect();
        standings.sort_by_key(|(id, _)| *id);
        standings.into_iter().map(|(_, standing)| standing).collect()
    }

    fn add(&self, stream: StreamId, pod: &Pod) -> Result<watch::Receiver<Option<Arc<View>>>, Refusal> {
        let scope = self.caches.scope(pod);
        let mut wanted = self.wanted.lock();
        let Wanted { snapshot, common, views, streams } = &mut *wanted;
        let snapshot = snapshot.as_ref().ok_or(Refusal::NotReady)?;
        let view = if snapshot.is_common(&scope) {
            Arc::clone(common)
        } else {
            let known = views.entry(scope.clone());
            Arc::clone(known.or_insert_with(|| snapshot.view(Some(&scope), common)))
        };
        let (sender, receiver) = watch::channel(Some(view));
        let pod = PodId { key: ObjectKey::of(pod), uid: pod.metadata.uid.clone() };
        streams.insert(stream, Stream { pod, scope, view: sender });
        Ok(receiver)
    }

    /// The newest world, and every proxy as it stands in it: nothing is published in between.
    pub(crate) fn state(&self) -> (Option<Arc<Snapshot>>, Vec<Standing>) {
        let reports = self.reports.lock().clone();
        let wanted = self.wanted.lock();
        let mut streams: Vec<(&StreamId, &Stream)> = wanted.streams.iter().collect();
        streams.sort_by_key(|(id, _)| **id);
        let standing = |(id, stream): (&StreamId, &Stream)| Standing {
            pod: stream.pod.clone(),
            wanted: stream.view.borrow().clone().unwrap_or_default(),
            report: reports.get(id).cloned(),
        };
        (wanted.snapshot.clone(), streams.into_iter().map(standing).collect())
    }
}

impl Source for Proxies {
    async fn subscribe(
        &self,
        stream: StreamId,
        subscriber: &Arc<Subscriber>,
    ) -> Result<watch::Receiver<Option<Arc<View>>>, Refusal> {
        if self.wanted.lock().snapshot.is_none() {
            return Err(Refusal::NotReady);
        }
        let pod = self.identities.pod(subscriber).await?;
        let receiver = self.add(stream, &pod)?;
        self.changed.send_replace(());
        Ok(receiver)
    }

    fn report(&self, stream: StreamId, report: &ProxyReport) {
        self.reports.lock().insert(stream, report.clone());
        self.changed.send_replace(());
    }

    fn ended(&self, stream: StreamId) {
        self.reports.lock().remove(&stream);
        self.wanted.lock().streams.remove(&stream);
        self.changed.send_replace(());
    }
}

// === impl Standing ===

impl Standing {
    /// Whether the proxy has everything that it should have.
    pub(crate) fn is_settled(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| {
            report.rejections.is_empty()
                && report.settled.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, &self.wanted))
        })
    }
}
