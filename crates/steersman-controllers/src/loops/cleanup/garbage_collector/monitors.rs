//! One metadata informer for each resource that can be listed, watched and deleted, started and stopped as discovery
//! changes.
//!
//! An informer keeps the name, uid, owners and finalizers of each object, as bytes.

use crate::loops::cleanup::garbage_collector::Collector;
use crate::loops::cleanup::garbage_collector::identity::Kind;
use crate::loops::cleanup::garbage_collector::requests::kind_of;
use crate::shared::served::{Catalog, Served};
use futures::future::join_all;
use kube::Client;
use kube::core::PartialObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use steersman::InformerFactory;
use steersman::cache::{CacheMode, Event, EventHandler, EventKind, Registration, Running, Scope, Selection};
use steersman::reflector::ReflectorOptions;

/// Fields that the graph does not use.
const PRUNED: [&[&str]; 8] = [
    &["metadata", "annotations"],
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionGracePeriodSeconds"],
    &["metadata", "generateName"],
    &["metadata", "generation"],
    &["metadata", "labels"],
    &["metadata", "managedFields"],
    &["metadata", "selfLink"],
];

/// Resources that are not monitored: Events are only records, and have no dependents.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
/// Resources whose objects define other resources.
const DEFINITIONS: [(&str, &str); 2] =
    [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];

pub(super) struct Monitors {
    client: Client,
    /// Keyed by `apiVersion`, resource, kind, and whether it is namespaced.
    running: BTreeMap<(String, String, String, bool), Monitor>,
}

struct Monitor {
    kind: Arc<Kind>,
    group_version: (String, String),
    registration: Registration<PartialObjectMeta>,
    /// Stops the informer when it is dropped.
    _running: Running,
}

/// The treatment of informers whose resources are no longer served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gone {
    /// They keep running, because the last events of a resource may not have arrived.
    Keep,
    Stop,
}

/// Passes the events of an informer to the graph.
struct Observer {
    collector: Arc<Collector>,
    kind: Arc<Kind>,
    is_definition: bool,
}

// === impl Monitors ===

impl Monitors {
    pub(super) fn new(client: Client) -> Monitors {
        Monitors { client, running: BTreeMap::new() }
    }

    /// Starts and stops informers, so that each served resource has one. Returns whether an informer of an unserved
    /// resource is left.
    pub(super) fn follow(&mut self, collector: &Arc<Collector>, catalog: &Catalog, gone: Gone) -> bool {
        let wanted: BTreeMap<_, _> = catalog
            .resources
            .iter()
            .filter(|served| is_monitored(served))
            .map(|served| (key(served), served))
            .collect();
        for (key, served) in &wanted {
            if !self.running.contains_key(key) {
                tracing::debug!(resource = %key.1, api_version = %key.0, "watching for owners and dependents");
                self.running.insert(key.clone(), Monitor::start(&self.client, collector, served));
            }
        }
        let is_left =
            |key: &_, monitor: &Monitor| !wanted.contains_key(key) && !catalog.stale.contains(&monitor.group_version);
        if gone == Gone::Keep {
            return self.running.iter().any(|(key, monitor)| is_left(key, monitor));
        }
        let stopped = self.running.extract_if(.., |key, monitor| is_left(key, monitor));
        for (key, monitor) in stopped.collect::<Vec<_>>() {
            tracing::debug!(resource = %key.1, api_version = %key.0, "not served any more");
            let kind = Arc::clone(&monitor.kind);
            drop(monitor);
            collector.graph.lock().unwatch(&kind);
        }
        false
    }

    /// Waits until the graph has all objects that existed when the informers started. Returns `false` if `deadline`
    /// passes first.
    pub(super) async fn synced(&self, deadline: Duration) -> bool {
        let all = join_all(self.running.values().map(|monitor| monitor.registration.synced()));
        tokio::time::timeout(deadline, all).await.is_ok()
    }
}

fn key(served: &Served) -> (String, String, String, bool) {
    let resource = &served.resource;
    (resource.api_version.clone(), resource.plural.clone(), resource.kind.clone(), served.is_namespaced())
}

fn is_monitored(served: &Served) -> bool {
    let name = (served.resource.group.as_str(), served.resource.plural.as_str());
    served.is_preferred && ["delete", "list", "watch"].iter().all(|verb| served.can(verb)) && !IGNORED.contains(&name)
}

// === impl Monitor ===

impl Monitor {
    fn start(client: &Client, collector: &Arc<Collector>, served: &Served) -> Monitor {
        let resource = &served.resource;
        let prune = PRUNED.iter().map(|path| path.iter().map(|&part| part.to_owned()).collect()).collect();
        let options = ReflectorOptions::default().cache(CacheMode::Compact { decoded_max: 0 }).prune(prune);
        let factory = InformerFactory::new(client.clone()).options(options);
        let selection = Selection::new(Scope::All).include_uninitialized();
        let informer = factory.informer_with::<PartialObjectMeta>(resource, selection);
        let Kind { api_version, kind } = kind_of(resource);
        let kind = collector.graph.lock().names().kind(&api_version, &kind);
        let is_definition = DEFINITIONS.contains(&(resource.group.as_str(), resource.plural.as_str()));
        let observer = Observer { collector: Arc::clone(collector), kind: Arc::clone(&kind), is_definition };
        let registration = informer.add_handler(observer);
        let group_version = (resource.group.clone(), resource.version.clone());
        Monitor { kind, group_version, registration, _running: factory.start() }
    }
}

// === impl Observer ===

impl EventHandler<PartialObjectMeta> for Observer {
    fn on_event(&mut self, event: &Event<'_, PartialObjectMeta>) {
        let kind = event.kind();
        let Some(Ok(metadata)) = event.object().map(|object| object.metadata()) else { return };
        let effects = match kind {
            EventKind::Added(_) | EventKind::Updated => self.collector.graph.lock().observe(&self.kind, &metadata),
            EventKind::Deleted => self.collector.graph.lock().gone(&self.kind, &metadata),
            EventKind::Resync | EventKind::Undecodable => return,
        };
        self.collector.apply(effects);
        if self.is_definition {
            self.collector.redefined.notify_one();
        }
    }
}
