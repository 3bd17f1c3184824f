//! A model of Envoy: clusters and listeners that warm, subscriptions that follow from them, and the messages of both variants.

use crate::kind::Kind;
use crate::report::Variant;
use crate::resource::{Resource, Version};
use crate::session::model::{Random, views};
use crate::session::{Change, Request};
use crate::transport::Response;
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a cluster waits for endpoints.
const INITIAL_FETCH_TIMEOUT: Duration = Duration::from_secs(15);
const KINDS: [Kind; 4] = [Kind::Cluster, Kind::Endpoints, Kind::Listener, Kind::Route];

#[derive(Debug)]
pub(crate) struct Envoy {
    variant: Variant,
    /// Whether the answer to clusters is held back while they warm.
    holds_cluster_answers: bool,
    held_answer: Option<Request>,
    /// The resources that were taken over, by type. For a cluster it is the last definition, in force or warming.
    accepted: [BTreeMap<Arc<str>, Arc<Resource>>; 5],
    /// Clusters in force that have endpoints.
    serving: BTreeSet<Arc<str>>,
    /// Since when clusters warm. One that is serving too serves with its old definition.
    warming: BTreeMap<Arc<str>, Duration>,
    /// Names of endpoints and routes that it is interested in.
    interest: [BTreeSet<Arc<str>>; 5],
    /// Changes of interest that are not sent yet.
    subscribe: [BTreeSet<Arc<str>>; 5],
    unsubscribe: [BTreeSet<Arc<str>>; 5],
    changed: [bool; 5],
    nonces: [String; 5],
    versions: [String; 5],
    /// Listeners and routes in versions that came too early, by the session's own account.
    excused: BTreeSet<(Kind, Arc<str>, Version)>,
    /// Whether this stream has brought clusters.
    has_clusters: bool,
    /// Clusters that a first state-of-the-world response removed.
    removed_blindly: BTreeSet<Arc<str>>,
}

impl Envoy {
    pub(crate) fn new(variant: Variant, random: &mut Random) -> Envoy {
        Envoy {
            variant,
            holds_cluster_answers: random.one_in(2),
            held_answer: None,
            accepted: Default::default(),
            serving: BTreeSet::new(),
            warming: BTreeMap::new(),
            interest: Default::default(),
            subscribe: Default::default(),
            unsubscribe: Default::default(),
            changed: [false; 5],
            nonces: Default::default(),
            versions: Default::default(),
            excused: BTreeSet::new(),
            has_clusters: false,
            removed_blindly: BTreeSet::new(),
        }
    }

    pub(crate) fn excuse(&mut self, resource: &Resource) {
        self.excused.insert((resource.kind(), resource.name().clone(), resource.version()));
    }

    pub(crate) fn is_warming(&self) -> bool {
        !self.warming.is_empty()
    }

    /// The first requests of a stream, in any order.
    pub(crate) fn connect(&mut self, random: &mut Random) -> Vec<Request> {
        self.has_clusters = false;
        self.held_answer = None;
        self.nonces = Default::default();
        let mut kinds: Vec<Kind> = KINDS.to_vec();
        for place in (1..kinds.len()).rev() {
            kinds.swap(place, usize::try_from(random.below(place as u64 + 1)).unwrap());
        }
        kinds.retain(|kind| kind.is_complete() || !self.interest[kind.index()].is_empty());
        kinds.into_iter().map(|kind| self.first_request(kind)).collect()
    }

    fn first_request(&mut self, kind: Kind) -> Request {
        let index = kind.index();
        let names = self.interest[index].iter().map(ToString::to_string).collect();
        self.subscribe[index].clear();
        self.unsubscribe[index].clear();
        self.changed[index] = false;
        let change = match self.variant {
            Variant::Delta => {
                let has = self.accepted[index].values();
                let has = has.map(|resource| (resource.name().to_string(), resource.version().to_string())).collect();
                Change::Delta { subscribe: names, unsubscribe: Vec::new(), has }
            }
            Variant::StateOfTheWorld => Change::Names { names, version: self.versions[index].clone() },
        };
        Request { kind, nonce: String::new(), error: None, change }
    }

    /// A request with the changes of interest that were not sent.
    fn request(&mut self, kind: Kind, nonce: String, error: Option<String>) -> Request {
        let index = kind.index();
        // In the state-of-the-world variant, an answer does not take the place of a request for a name.
        self.changed[index] &= self.variant == Variant::StateOfTheWorld;
        let text = |names: &BTreeSet<Arc<str>>| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let change = match self.variant {
            Variant::Delta => Change::Delta {
                subscribe: text(&std::mem::take(&mut self.subscribe[index])),
                unsubscribe: text(&std::mem::take(&mut self.unsubscribe[index])),
                has: Vec::new(),
            },
            Variant::StateOfTheWorld => {
                Change::Names { names: text(&self.interest[index]), version: self.versions[index].clone() }
            }
        };
        Request { kind, nonce, error, change }
    }

    /// Sends changes of interest.
    pub(crate) fn flush(&mut self) -> Vec<Request> {
        let kinds = [Kind::Endpoints, Kind::Route].into_iter().filter(|kind| self.changed[kind.index()]);
        let kinds: Vec<Kind> = kinds.collect();
        kinds
            .into_iter()
            .map(|kind| {
                self.changed[kind.index()] = false;
                let nonce = match self.variant {
                    Variant::Delta => String::new(),
                    Variant::StateOfTheWorld => self.nonces[kind.index()].clone(),
                };
                self.request(kind, nonce, None)
            })
            .collect()
    }

    pub(crate) fn pass_time(&mut self, now: Duration) -> Vec<Request> {
        let over = self.warming.iter().filter(|(_, since)| **since + INITIAL_FETCH_TIMEOUT <= now);
        let over: Vec<Arc<str>> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.warming.remove(&name);
            if self.accepted[Kind::Endpoints.index()].contains_key(&name) {
                self.serving.insert(name);
            }
        }
        self.release()
    }

    /// The answer to clusters that was held back.
    fn release(&mut self) -> Vec<Request> {
        if self.warming.is_empty() { self.held_answer.take().into_iter().collect() } else { Vec::new() }
    }

    pub(crate) fn receive(&mut self, response: &Response, now: Duration, random: &mut Random) -> Vec<Request> {
        let kind = response.kind;
        let index = kind.index();
        let (mut bad, mut taken) = (Vec::new(), Vec::new());
        for resource in &response.resources {
            if views::is_bad(resource) {
                bad.push(resource.name().to_string());
            } else if bad.is_empty() || kind.is_complete() {
                taken.push(resource.clone());
            }
        }
        let mut removed: Vec<Arc<str>> = response.removed.clone();
        if self.variant == Variant::StateOfTheWorld {
            removed.clear();
            if kind.is_complete() {
                let is_there = |name: &&Arc<str>| response.resources.iter().any(|resource| resource.name() == *name);
                removed.extend(self.accepted[index].keys().filter(|name| !is_there(name)).cloned());
            }
        }
        match kind {
            Kind::Cluster => self.take_clusters(taken, &removed, now),
            Kind::Endpoints => self.take_endpoints(taken, &removed),
            Kind::Listener => self.take_listeners(taken, &removed),
            Kind::Route => self.take_routes(taken),
            Kind::Secret => unreachable!("views have no secrets"),
        }
        let mut requests = Vec::new();
        // Changes of interest go out before the answer, with it, or later.
        if random.one_in(2) {
            requests.extend(self.flush());
        }
        // Envoy names clusters and listeners.
        let always_names = kind.is_complete() && self.variant == Variant::StateOfTheWorld;
        let error = (!bad.is_empty()).then(|| match random.below(3) {
            0 if !always_names => "invalid".to_owned(),
            _ => format!("Error adding/updating cluster(s) {}: invalid", bad.join(": invalid, ")),
        });
        if error.is_none() {
            self.versions[index].clone_from(&response.version);
        }
        // Every request from here on has the new nonce, and the first one is the answer.
        self.nonces[index].clone_from(&response.nonce);
        let answer = self.request(kind, response.nonce.clone(), error);
        if kind == Kind::Cluster && self.holds_cluster_answers && !self.warming.is_empty() {
            self.held_answer = Some(answer);
        } else {
            requests.push(answer);
        }
        requests.extend(self.release());
        requests
    }

    fn take_clusters(&mut self, taken: Vec<Arc<Resource>>, removed: &[Arc<str>], now: Duration) {
        let index = Kind::Cluster.index();
        let is_blind = self.variant == Variant::StateOfTheWorld && !self.has_clusters;
        self.has_clusters = true;
        for name in removed {
            self.accepted[index].remove(name);
            self.serving.remove(name);
            self.warming.remove(name);
            self.lose_interest(Kind::Endpoints, name);
            if is_blind {
                self.removed_blindly.insert(name.clone());
            }
        }
        for resource in taken {
            let name = resource.name().clone();
            let old = self.accepted[index].insert(name.clone(), resource.clone());
            if old.is_none_or(|old| old.version() != resource.version()) {
                self.warming.insert(name.clone(), now);
                self.gain_interest(Kind::Endpoints, name);
            }
        }
    }

    fn take_endpoints(&mut self, taken: Vec<Arc<Resource>>, removed: &[Arc<str>]) {
        let index = Kind::Endpoints.index();
        for resource in taken {
            let name = resource.name().clone();
            if self.interest[index].contains(&name) {
                self.accepted[index].insert(name.clone(), resource);
                self.warming.remove(&name);
                self.serving.insert(name.clone());
                self.removed_blindly.remove(&name);
            }
        }
        for name in removed {
            self.accepted[index].remove(name);
            self.warming.remove(name);
        }
    }

    fn take_listeners(&mut self, taken: Vec<Arc<Resource>>, removed: &[Arc<str>]) {
        let index = Kind::Listener.index();
        for name in removed {
            self.accepted[index].remove(name);
        }
        for resource in taken {
            self.accepted[index].insert(resource.name().clone(), resource);
        }
        let routes = self.accepted[index].values().flat_map(|listener| listener.needed(Kind::Route).cloned());
        let routes: BTreeSet<Arc<str>> = routes.collect();
        let old = self.interest[Kind::Route.index()].clone();
        for name in old.difference(&routes) {
            self.lose_interest(Kind::Route, name);
        }
        for name in routes.difference(&old) {
            self.gain_interest(Kind::Route, name.clone());
        }
    }

    /// Removals are ignored, as Envoy does.
    fn take_routes(&mut self, taken: Vec<Arc<Resource>>) {
        let index = Kind::Route.index();
        for resource in taken {
            if self.interest[index].contains(resource.name()) {
                self.accepted[index].insert(resource.name().clone(), resource);
            }
        }
    }

    fn gain_interest(&mut self, kind: Kind, name: Arc<str>) {
        let index = kind.index();
        if self.interest[index].insert(name.clone()) {
            self.unsubscribe[index].remove(&name);
            self.subscribe[index].insert(name);
            self.changed[index] = true;
        }
    }

    fn lose_interest(&mut self, kind: Kind, name: &Arc<str>) {
        let index = kind.index();
        if self.interest[index].remove(name) {
            self.accepted[index].remove(name);
            self.subscribe[index].remove(name);
            self.unsubscribe[index].insert(name.clone());
            self.changed[index] = true;
        }
    }

    /// A route or listener in force whose cluster does not serve.
    pub(crate) fn fault(&self) -> Option<String> {
        let routes = self.accepted[Kind::Route.index()].values();
        for resource in routes.chain(self.accepted[Kind::Listener.index()].values()) {
            let key = (resource.kind(), resource.name().clone(), resource.version());
            if self.excused.contains(&key) {
                continue;
            }
            let mut clusters = resource.needed(Kind::Cluster);
            let lost = clusters.find(|name| !self.serving.contains(*name) && !self.removed_blindly.contains(*name));
            if let Some(cluster) = lost {
                return Some(format!("{} {} refers to {cluster}, which does not serve", key.0, key.1));
            }
        }
        None
    }

    /// Says how the proxy differs from a view, if it does.
    pub(crate) fn difference(&self, view: &View) -> Option<String> {
        let versions = |kind: Kind| -> BTreeMap<Arc<str>, Version> {
            let accepted = self.accepted[kind.index()].values();
            accepted.map(|resource| (resource.name().clone(), resource.version())).collect()
        };
        for kind in KINDS {
            let is_wanted = |name: &Arc<str>| kind.is_complete() || self.interest[kind.index()].contains(name);
            let wanted = view.set(kind).iter().filter(|resource| is_wanted(resource.name()));
            let wanted: BTreeMap<_, _> = wanted.map(|resource| (resource.name().clone(), resource.version())).collect();
            if versions(kind) != wanted {
                return Some(format!("{kind}: {:?}, not {wanted:?}", versions(kind)));
            }
        }
        let clusters: BTreeSet<_> = view.set(Kind::Cluster).iter().map(|resource| resource.name().clone()).collect();
        (self.serving != clusters).then(|| format!("serving {:?}, not {clusters:?}", self.serving))
    }
}
