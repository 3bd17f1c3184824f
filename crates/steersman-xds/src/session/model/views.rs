//! Views that change at random, each consistent in itself: every cluster has endpoints, and what is referred to is there.

use crate::kind::Kind;
use crate::resource::Resource;
use crate::session::model::Random;
use crate::view::View;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const CLUSTERS: u64 = 5;
const ROUTES: u64 = 3;
const LISTENERS: u64 = 3;
/// A resource with this number is rejected.
const BAD: u64 = 4;

/// The Services and routes of the model at one time.
#[derive(Debug, Default)]
pub(crate) struct Views {
    clusters: BTreeMap<u64, u64>,
    endpoints: BTreeMap<u64, u64>,
    /// The clusters of a route, and a number.
    routes: BTreeMap<u64, (BTreeSet<u64>, u64)>,
    /// The route and the cluster of a listener, and a number.
    listeners: BTreeMap<u64, (Option<u64>, Option<u64>, u64)>,
    view: Arc<View>,
}

impl Views {
    pub(crate) fn new(random: &mut Random) -> Views {
        let mut views = Views::default();
        for _ in 0..20 {
            views.change(random);
        }
        views
    }

    pub(crate) fn current(&self) -> Arc<View> {
        self.view.clone()
    }

    pub(crate) fn change(&mut self, random: &mut Random) {
        for _ in 0..1 + random.below(3) {
            self.change_one(random);
        }
        self.build();
    }

    fn change_one(&mut self, random: &mut Random) {
        let number = if random.one_in(12) { BAD } else { random.below(BAD) };
        let (cluster, route, listener) = (random.below(CLUSTERS), random.below(ROUTES), random.below(LISTENERS));
        match random.below(10) {
            0..3 => {
                self.clusters.insert(cluster, number);
                self.endpoints.entry(cluster).or_insert(0);
            }
            3 => {
                self.clusters.remove(&cluster);
                self.endpoints.remove(&cluster);
                for (clusters, _) in self.routes.values_mut() {
                    clusters.remove(&cluster);
                }
                for (_, of_listener, _) in self.listeners.values_mut() {
                    of_listener.take_if(|of_listener| *of_listener == cluster);
                }
            }
            4 => {
                if let Some(endpoints) = self.endpoints.get_mut(&cluster) {
                    *endpoints = number;
                }
            }
            5..8 => {
                let clusters = self.clusters.keys().copied().filter(|_| random.one_in(2)).collect();
                self.routes.insert(route, (clusters, number));
            }
            8 if random.one_in(2) => {
                self.listeners.remove(&listener);
            }
            8 => {
                if !self.listeners.values().any(|(of_listener, _, _)| *of_listener == Some(route)) {
                    self.routes.remove(&route);
                }
            }
            _ => {
                let route = self.routes.contains_key(&route).then_some(route);
                let cluster = (self.clusters.contains_key(&cluster) && random.one_in(3)).then_some(cluster);
                self.listeners.insert(listener, (route, cluster, number));
            }
        }
    }

    /// Replaces what is rejected.
    pub(crate) fn make_good(&mut self) {
        let numbers = self.clusters.values_mut().chain(self.endpoints.values_mut());
        let numbers = numbers.chain(self.routes.values_mut().map(|(_, number)| number));
        for number in numbers.chain(self.listeners.values_mut().map(|(_, _, number)| number)) {
            *number %= BAD;
        }
        self.build();
    }

    fn build(&mut self) {
        let clusters = self.clusters.iter().map(|(cluster, number)| {
            resource(Kind::Cluster, format!("c{cluster}"), *number).needing(Kind::Endpoints, [format!("c{cluster}")])
        });
        let endpoints =
            self.endpoints.iter().map(|(cluster, number)| resource(Kind::Endpoints, format!("c{cluster}"), *number));
        let routes = self.routes.iter().map(|(route, (clusters, number))| {
            let clusters = clusters.iter().map(|cluster| format!("c{cluster}"));
            with_needs(Kind::Route, format!("r{route}"), *number, clusters.collect(), None)
        });
        let listeners = self.listeners.iter().map(|(listener, (route, cluster, number))| {
            let clusters = cluster.iter().map(|cluster| format!("c{cluster}")).collect();
            with_needs(
                Kind::Listener,
                format!("l{listener}"),
                *number,
                clusters,
                route.map(|route| format!("r{route}")),
            )
        });
        let view = View::new()
            .with(Kind::Cluster, clusters.map(Arc::new).collect())
            .with(Kind::Endpoints, endpoints.map(Arc::new).collect())
            .with(Kind::Route, routes.map(Arc::new).collect())
            .with(Kind::Listener, listeners.map(Arc::new).collect());
        self.view = Arc::new(view);
    }
}

fn resource(kind: Kind, name: String, number: u64) -> Resource {
    let content = Bytes::from(format!("{name}:{number}"));
    Resource::from_bytes(kind, name, content)
}

fn with_needs(kind: Kind, name: String, number: u64, clusters: Vec<String>, route: Option<String>) -> Resource {
    let content = Bytes::from(format!("{name}:{number} {} {}", clusters.join("+"), route.as_deref().unwrap_or("")));
    Resource::from_bytes(kind, name, content).needing(Kind::Cluster, clusters).needing(Kind::Route, route)
}

pub(crate) fn is_bad(resource: &Resource) -> bool {
    word(resource).split(' ').next().is_some_and(|content| content.ends_with(&format!(":{BAD}")))
}

pub(crate) fn word(resource: &Resource) -> String {
    String::from_utf8(resource.bytes().to_vec()).unwrap()
}

pub(crate) fn words(view: &View) -> String {
    let words = |kind| view.set(kind).iter().map(|resource| word(resource)).collect::<Vec<_>>().join(", ");
    format!("[{}] [{}] [{}]", words(Kind::Cluster), words(Kind::Listener), words(Kind::Route))
}
