//! The order of changes: which resources of a type may be sent now, and which must wait for other types.

use crate::kind::Kind;
use crate::report::{Hurried, Variant};
use crate::resource::Resource;
use crate::session::track::{Entry, Has, Outstanding};
use crate::session::{Item, Novelty, Now, PATIENCE, RESPONSE_BYTES, Session};
use crate::transport::Response;
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The next step for one name.
#[derive(Debug)]
enum Decision {
    /// Nobody wants or has it.
    Forget,
    /// Its time to wait is over; these clusters are not ready.
    Hurry(Arc<Resource>, Arc<[Arc<str>]>),
    Nothing,
    Remove,
    Send(Arc<Resource>),
    Wait,
}

/// The references of the proxy's resources.
#[derive(Debug, Default)]
struct References {
    names: BTreeSet<(Kind, Arc<str>)>,
    /// Types of which the proxy has, or may have, resources whose references are not known.
    opaque: BTreeSet<Kind>,
}

// === impl References ===

impl References {
    fn has(&self, kind: Kind, name: &Arc<str>) -> bool {
        let referring: &[Kind] = match kind {
            Kind::Cluster => &[Kind::Listener, Kind::Route],
            Kind::Endpoints => &[Kind::Cluster],
            Kind::Route => &[Kind::Listener],
            Kind::Listener | Kind::Secret => &[],
        };
        referring.iter().any(|kind| self.opaque.contains(kind)) || self.names.contains(&(kind, name.clone()))
    }
}

// === impl Session ===

impl Session {
    /// The next response of a type, if there is one.
    pub(crate) fn respond(&mut self, now: Now, kind: Kind, view: &View) -> Option<Response> {
        let track = self.track(kind);
        let has_work = !track.dirty.is_empty() || track.must_answer();
        if !track.was_asked() || track.outstanding().is_some() || !has_work {
            return None;
        }
        let items = self.collect(now, kind, view);
        let is_complete = self.variant == Variant::StateOfTheWorld && kind.is_complete();
        let track = self.track_mut(kind);
        let must_answer = track.must_answer();
        // A response that has to be complete would delete a listener that the proxy may have and that must wait. And a first response
        // without what must wait would let the proxy start before it is complete.
        let is_partial = !track.waiting.is_empty();
        let is_held = is_partial && (must_answer && items.is_empty() || is_complete && !track.was_answered());
        if is_held || items.is_empty() && !must_answer {
            track.dirty.extend(items.into_iter().map(|item| item.name));
            return None;
        }
        let items = if is_complete { self.completed(kind, items) } else { items };
        Some(self.send(kind, items))
    }

    /// Looks at the names that may have changed, and returns what is new for the proxy.
    fn collect(&mut self, now: Now, kind: Kind, view: &View) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(name) = self.track(kind).suspects.first().cloned() {
            self.track_mut(kind).dirty.remove(&name);
            self.handle(now, kind, view, name.clone(), &mut None, &mut items);
            if !items.is_empty() {
                return items;
            }
            self.track_mut(kind).suspects.remove(&name);
        }
        let is_complete = self.variant == Variant::StateOfTheWorld && kind.is_complete();
        let mut names = std::mem::take(&mut self.track_mut(kind).dirty);
        let (mut bytes, mut references) = (0, None);
        while let Some(name) = names.pop_first() {
            self.handle(now, kind, view, name, &mut references, &mut items);
            bytes += items.last().and_then(|item| item.resource.as_ref()).map_or(0, |resource| resource.size());
            if bytes > RESPONSE_BYTES && !is_complete {
                break;
            }
        }
        self.track_mut(kind).dirty.append(&mut names);
        items
    }

    fn handle(
        &mut self,
        now: Now,
        kind: Kind,
        view: &View,
        name: Arc<str>,
        references: &mut Option<References>,
        items: &mut Vec<Item>,
    ) {
        let decision = self.decide(now, kind, view, &name, references);
        let track = self.track_mut(kind);
        if !matches!(decision, Decision::Wait) {
            track.waiting.remove(&name);
        }
        match decision {
            Decision::Forget => {
                track.forget(&name);
                self.changes += 1;
            }
            Decision::Hurry(resource, clusters) => {
                let hurried = Hurried { resource: resource.clone(), clusters, at: now.time };
                self.hurried.insert((kind, name.clone()), hurried);
                self.changes += 1;
                items.push(Item { name, resource: Some(resource), novelty: Novelty::New });
            }
            Decision::Nothing => {
                if let Some(entry) = track.entries.get_mut(&name) {
                    entry.again = false;
                }
            }
            Decision::Remove => items.push(Item { name, resource: None, novelty: Novelty::New }),
            Decision::Send(resource) => {
                self.changes += u64::from(self.hurried.remove(&(kind, name.clone())).is_some());
                items.push(Item { name, resource: Some(resource), novelty: Novelty::New });
            }
            Decision::Wait => {
                track.parked.insert(name);
            }
        }
    }

    fn decide(
        &mut self,
        now: Now,
        kind: Kind,
        view: &View,
        name: &Arc<str>,
        references: &mut Option<References>,
    ) -> Decision {
        let target = if self.track(kind).wants(name) { view.get(kind, name) } else { None };
        match target {
            Some(resource) => self.decide_present(now, kind, view, resource),
            None => self.decide_absent(kind, name, references),
        }
    }

    fn decide_present(&mut self, now: Now, kind: Kind, view: &View, resource: &Arc<Resource>) -> Decision {
        let name = resource.name();
        let track = self.track_mut(kind);
        let (mut has_it, mut again, mut has) = (false, false, None);
        let mut was_opaque = false;
        if let Some(entry) = track.entries.get_mut(name) {
            has_it = entry.is(resource.version());
            again = entry.again;
            if has_it {
                was_opaque = entry.has.is_opaque();
                entry.has = Has::Resource(resource.clone());
            }
            has = entry.has.resource().cloned();
        }
        if has_it {
            // A version that was rejected is not wanted any more.
            let ended = track.rejections.remove(name).is_some();
            self.changes += u64::from(ended);
            if was_opaque {
                self.identified(kind, name);
            }
            return if again { Decision::Send(resource.clone()) } else { Decision::Nothing };
        }
        if track.rejections.get(name).is_some_and(|rejection| rejection.resource.version() == resource.version()) {
            return has.filter(|_| again).map_or(Decision::Nothing, Decision::Send);
        }
        if !matches!(kind, Kind::Listener | Kind::Route) {
            return Decision::Send(resource.clone());
        }
        let is_missing = |cluster: &&Arc<str>| view.get(Kind::Cluster, cluster).is_some() && !self.is_ready(cluster);
        let missing: Arc<[Arc<str>]> = resource.needed(Kind::Cluster).filter(is_missing).cloned().collect();
        if missing.is_empty() {
            return Decision::Send(resource.clone());
        }
        let since = *self.track_mut(kind).waiting.entry(name.clone()).or_insert(now.instant);
        if since + PATIENCE <= now.instant { Decision::Hurry(resource.clone(), missing) } else { Decision::Wait }
    }

    fn decide_absent(&self, kind: Kind, name: &Arc<str>, references: &mut Option<References>) -> Decision {
        let track = self.track(kind);
        let Some(entry) = track.entries.get(name) else { return Decision::Nothing };
        let is_delta = self.variant == Variant::Delta;
        if entry.is_nothing() {
            let must_tell = is_delta && !entry.told_absent && (track.is_named(name) || entry.again);
            return match must_tell {
                true => Decision::Remove,
                false if track.is_named(name) => Decision::Nothing,
                false => Decision::Forget,
            };
        }
        // Proxies drop resources of the other types when nothing refers to them any more.
        if !is_delta && !kind.is_complete() {
            return Decision::Nothing;
        }
        let references = references.get_or_insert_with(|| self.references());
        if references.has(kind, name) { Decision::Wait } else { Decision::Remove }
    }

    /// The resource of which the proxy has told a version is the view's, so that its references are known.
    fn identified(&mut self, kind: Kind, name: &Arc<str>) {
        match kind {
            Kind::Cluster | Kind::Listener => {
                self.unmet.insert((kind, name.clone()));
                self.recheck_removals();
            }
            Kind::Route => self.recheck_removals(),
            Kind::Endpoints | Kind::Secret => {}
        }
    }

    /// Whether the proxy serves a cluster: it has acknowledged endpoints that were sent after the cluster was added.
    pub(crate) fn is_ready(&self, cluster: &str) -> bool {
        let Some(entry) = self.track(Kind::Cluster).entries.get(cluster) else { return false };
        if entry.ready {
            return true;
        }
        let resource = self.view.as_ref().and_then(|view| view.get(Kind::Cluster, cluster));
        let Some(resource) = resource else { return false };
        let mut endpoints =
            resource.needed(Kind::Endpoints).map(|name| self.track(Kind::Endpoints).entries.get(name)).peekable();
        if entry.sent == 0 {
            // It was there before this stream.
            return !entry.has.is_nothing()
                && endpoints.all(|entry| entry.is_some_and(|entry| !entry.has.is_nothing()));
        }
        if endpoints.peek().is_none() {
            return !entry.has.is_nothing() && entry.acknowledged >= entry.sent;
        }
        let mut endpoints = endpoints;
        endpoints.all(|endpoints| endpoints.is_some_and(|endpoints| endpoints.acknowledged > entry.sent))
    }

    /// Keeps that a cluster is ready, before what shows it changes.
    pub(crate) fn keep_ready(&mut self, cluster: &str) {
        if self.is_ready(cluster)
            && let Some(entry) = self.track_mut(Kind::Cluster).entries.get_mut(cluster)
        {
            entry.ready = true;
        }
    }

    fn references(&self) -> References {
        let mut references = References::default();
        for kind in [Kind::Cluster, Kind::Listener, Kind::Route] {
            let track = self.track(kind);
            let on_the_way = track.outstanding().into_iter().flat_map(|outstanding| &outstanding.items);
            let on_the_way = on_the_way.filter_map(|item| item.resource.as_ref());
            let has = track.entries.values().flat_map(Entry::resources);
            for resource in on_the_way.chain(has) {
                references.names.extend(resource.needs().iter().map(|need| (need.kind, need.name.clone())));
            }
            let may_ask = !track.was_asked() && self.settles_at.is_some();
            if may_ask || track.is_opaque() {
                references.opaque.insert(kind);
            }
        }
        references
    }

    /// All that a response must have that is taken for the whole: with what is new, also what the proxy keeps. That includes what it may
    /// have although it has rejected the response: left out, it would be deleted.
    fn completed(&self, kind: Kind, items: Vec<Item>) -> Vec<Item> {
        let mut all: BTreeMap<Arc<str>, Item> = items.into_iter().map(|item| (item.name.clone(), item)).collect();
        for (name, entry) in &self.track(kind).entries {
            if let Some(resource) = entry.resources().next() {
                let resource = Some(resource.clone());
                let known = || Item { name: name.clone(), resource, novelty: Novelty::Known };
                all.entry(name.clone()).or_insert_with(known);
            }
        }
        all.into_values().collect()
    }

    fn send(&mut self, kind: Kind, items: Vec<Item>) -> Response {
        self.sequence += 1;
        let sequence = self.sequence;
        let (mut resources, mut removed) = (Vec::new(), Vec::new());
        let mut version = 0_u128;
        for item in &items {
            if let Some(resource) = &item.resource {
                version = version.wrapping_add(resource.version().number());
                resources.push(resource.clone());
            } else {
                removed.push(item.name.clone());
            }
            let may_change = self.track(kind).entries.get(&item.name).is_some_and(|entry| entry.perhaps.is_some());
            if item.novelty == Novelty::Known && !may_change {
                continue;
            }
            if kind == Kind::Cluster {
                self.keep_ready(&item.name);
                for endpoints in item.resource.iter().flat_map(|resource| resource.needed(Kind::Endpoints)) {
                    self.track_mut(Kind::Endpoints).send_again(endpoints);
                }
            }
            if item.novelty == Novelty::Known {
                continue;
            }
            let entry = self.track_mut(kind).entries.entry(item.name.clone()).or_default();
            entry.again = false;
            entry.told_absent = item.resource.is_none();
            entry.ready &= item.resource.is_some();
            // No endpoints make a cluster ready that is being removed.
            entry.sent = if item.resource.is_some() { sequence } else { u64::MAX };
        }
        let nonce = sequence.to_string();
        self.track_mut(kind).sent(Outstanding { nonce: nonce.clone(), sequence, items });
        Response { kind, variant: self.variant, version: format!("{version:032x}"), nonce, resources, removed }
    }
}
