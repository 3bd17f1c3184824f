//! The proxies that are connected: what each should have, and what each has.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use steersman::ObjectKey;
use steersman_xds::{ProxyReport, Refusal, Source, StreamId, Subscriber, Subscription, View};
use tokio::sync::watch;

use crate::pilot::caches::{Caches, Rescoped};
use crate::pilot::identity::Identities;
use crate::pilot::scope::{GroupKey, Groups, Scope, Snapshot, Touched};

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
    groups: Groups,
    streams: HashMap<StreamId, Stream>,
    /// The streams of each Pod.
    by_pod: HashMap<ObjectKey, BTreeSet<StreamId>>,
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
    ///
    /// Views are made before the lock is taken, which every new stream needs. Proxies that the change does not concern cost nothing.
    pub(crate) fn publish(&self, snapshot: &Arc<Snapshot>) {
        let affected = self.wanted.lock().affected(snapshot);
        let made = affected.into_iter().map(|(key, view)| {
            let new = snapshot.view(key.as_ref(), &view);
            (key, (view, new))
        });
        let made: BTreeMap<GroupKey, (Arc<View>, Arc<View>)> = made.collect();
        let mut wanted = self.wanted.lock();
        let rescoped = self.caches.take_rescoped();
        wanted.publish(snapshot, &made);
        for stream in wanted.streams_of(&rescoped) {
            wanted.rescope(stream, snapshot, &self.caches);
        }
        drop(wanted);
        self.changed.send_replace(());
    }

    /// The number of views, and how many were made so far.
    pub(crate) fn views(&self) -> (usize, u64) {
        let wanted = self.wanted.lock();
        (wanted.groups.len(), wanted.groups.n_made())
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

    fn add(&self, stream: StreamId, pod: &Pod) -> Result<Subscription, Refusal> {
        let mut wanted = self.wanted.lock();
        let snapshot = wanted.snapshot.clone().ok_or(Refusal::NotReady)?;
        // The Pod may have changed while its proxy was identified, and the change may have been published: it is looked up under the lock, so
        // that every later change finds the stream.
        let key = ObjectKey::of(pod);
        let now = self.caches.pod(&key).ok().filter(|now| now.metadata.uid == pod.metadata.uid);
        let Some(pod) = now else {
            return Err(Refusal::Unknown(format!("Pod {key} is gone")));
        };
        let scope = self.caches.scope(&pod);
        let (sender, views) = watch::channel(Some(wanted.groups.add(stream, &scope, &snapshot)));
        let pod = PodId { key, uid: pod.metadata.uid.clone() };
        let owner = format!("{}/{}", pod.key, pod.uid.as_deref().unwrap_or_default()).into();
        wanted.by_pod.entry(pod.key.clone()).or_default().insert(stream);
        wanted.streams.insert(stream, Stream { pod, scope, view: sender });
        Ok(Subscription { owner, views })
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
    async fn subscribe(&self, stream: StreamId, subscriber: &Arc<Subscriber>) -> Result<Subscription, Refusal> {
        if self.wanted.lock().snapshot.is_none() {
            return Err(Refusal::NotReady);
        }
        let pod = self.identities.pod(subscriber).await?;
        let subscription = self.add(stream, &pod)?;
        self.changed.send_replace(());
        Ok(subscription)
    }

    fn report(&self, stream: StreamId, report: &ProxyReport) {
        self.reports.lock().insert(stream, report.clone());
        self.changed.send_replace(());
    }

    fn ended(&self, stream: StreamId) {
        self.reports.lock().remove(&stream);
        self.wanted.lock().remove(stream);
        self.changed.send_replace(());
    }
}

// === impl Wanted ===

impl Wanted {
    /// The groups that a snapshot concerns, with their views until now.
    fn affected(&self, snapshot: &Arc<Snapshot>) -> Vec<(GroupKey, Arc<View>)> {
        let is_known = self.snapshot.as_ref().is_some_and(|known| Arc::ptr_eq(known, snapshot));
        match snapshot.touched() {
            Touched::Services { .. } if !is_known => self.groups.affected(snapshot.touched()),
            Touched::All | Touched::Services { .. } => Vec::new(),
        }
    }

    fn publish(&mut self, snapshot: &Arc<Snapshot>, made: &BTreeMap<GroupKey, (Arc<View>, Arc<View>)>) {
        let before = self.snapshot.replace(Arc::clone(snapshot));
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, snapshot)) {
            return;
        }
        let Wanted { groups, streams, .. } = self;
        let tell = |stream: StreamId, view: &Arc<View>| {
            if let Some(stream) = streams.get(&stream) {
                stream.tell(view);
            }
        };
        match snapshot.touched() {
            Touched::Services { .. } => groups.publish(snapshot, made, tell),
            Touched::All => groups.rebuild(snapshot, streams.iter().map(|(id, stream)| (*id, &stream.scope)), tell),
        }
    }

    /// The streams of Pods that have changed so that they may have another scope, or are gone.
    fn streams_of(&self, rescoped: &Rescoped) -> Vec<StreamId> {
        if rescoped.namespaces.is_empty() {
            return rescoped.pods.iter().filter_map(|key| self.by_pod.get(key)).flatten().copied().collect();
        }
        let is_meant = |pod: &ObjectKey| {
            pod.namespace().is_some_and(|namespace| rescoped.namespaces.contains(namespace))
                || rescoped.pods.contains(pod)
        };
        self.streams.iter().filter(|(_, stream)| is_meant(&stream.pod.key)).map(|(id, _)| *id).collect()
    }

    /// Looks a stream's Pod up again. It is let go if that is gone.
    fn rescope(&mut self, id: StreamId, snapshot: &Snapshot, caches: &Caches) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let pod = caches.pod(&stream.pod.key).ok().filter(|pod| pod.metadata.uid == stream.pod.uid);
        let Some(pod) = pod else { return self.remove(id) };
        let scope = caches.scope(&pod);
        if scope == stream.scope {
            return;
        }
        self.groups.remove(id, &std::mem::replace(&mut stream.scope, scope));
        let view = self.groups.add(id, &stream.scope, snapshot);
        stream.tell(&view);
    }

    fn remove(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.groups.remove(id, &stream.scope);
        if let Some(streams) = self.by_pod.get_mut(&stream.pod.key) {
            streams.remove(&id);
            if streams.is_empty() {
                self.by_pod.remove(&stream.pod.key);
            }
        }
    }
}

impl Stream {
    fn tell(&self, view: &Arc<View>) {
        self.view.send_if_modified(|known| {
            let is_new = !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, view));
            if is_new {
                *known = Some(Arc::clone(view));
            }
            is_new
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pilot::scope::{CALLS, Calls};
    use crate::pilot::{Options, add_to};
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;
    use steersman::Manager;
    use steersman_testkit::ControlPlane;
    use tokio_util::sync::CancellationToken;

    /// Without the definitions of routes the pilot publishes nothing by itself, so that the test says when.
    #[tokio::test]
    async fn a_stream_begins_with_the_pod_as_it_is_now() {
        let plane = ControlPlane::start().await;
        let (manager, proxies) = add_to(Manager::new(plane.client()), &Options::default());
        let stop = CancellationToken::new();
        let task = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
        let created = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
        });
        plane.apply(&created.to_string()).await;
        let key = ObjectKey::namespaced("default", "client");
        let identified = loop {
            match proxies.caches.pod(&key) {
                Ok(pod) => break pod,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        proxies.publish(&Arc::default());
        // While its proxy shows who it is, the Pod changes, and that is published.
        let patch = json!({"metadata": {"annotations": {CALLS: "web"}}});
        let pods = Api::<Pod>::namespaced(plane.client(), "default");
        pods.patch("client", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        while proxies.caches.take_rescoped() == Rescoped::default() {
            tokio::task::yield_now().await;
        }
        proxies.publish(&Arc::default());
        assert_eq!(proxies.caches.take_rescoped(), Rescoped::default(), "nothing will look at the Pod again");
        let subscription = proxies.add(StreamId(1), &identified).unwrap();
        assert_eq!(*subscription.owner, *format!("default/client/{}", identified.metadata.uid.as_deref().unwrap()));
        let calls = proxies.wanted.lock().streams[&StreamId(1)].scope.calls.clone();
        assert_eq!(calls, Calls::parse("web", "default").unwrap());

        let mut another = Pod::clone(&identified);
        another.metadata.uid = Some("another".to_owned());
        let refused = proxies.add(StreamId(2), &another).map(|_| ());
        assert_eq!(refused, Err(Refusal::Unknown("Pod default/client is gone".to_owned())));
        stop.cancel();
        task.await.unwrap().unwrap();
        plane.stop().await;
    }
}
