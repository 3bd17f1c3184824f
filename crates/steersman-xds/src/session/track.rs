//! The subscription of a stream to one type: which names, what the proxy has of them, and what is on the way.

use crate::kind::Kind;
use crate::report::Rejection;
use crate::resource::{Resource, Version};
use crate::session::{Item, Novelty};
use crate::view::Set;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// Stands for every resource of a type.
const WILDCARD: &str = "*";
/// As much of a version as is kept if it is not one of ours.
const FOREIGN_BYTES_MAX: usize = 128;

/// A request of either variant.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// The nonce of the response that it answers; empty if it answers none.
    pub(crate) nonce: String,
    /// Why the proxy rejects that response.
    pub(crate) error: Option<String>,
    pub(crate) change: Change,
}

/// The names that a proxy asks for.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The delta variant. `has` is used in the first request of a type only.
    Delta { subscribe: Vec<String>, unsubscribe: Vec<String>, has: Vec<(String, String)> },
    /// The state-of-the-world variant: all names that it wants from now on.
    Names { names: Vec<String>, version: String },
}

/// Whether a request answers a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    Answer,
    Ask,
}

/// Why a request cannot be served.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the proxy names {names} resources of the type {kind}, and {max} are allowed")]
    TooManyNames { kind: Kind, names: usize, max: usize },
}

/// A response without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    pub(crate) nonce: String,
    pub(crate) sequence: u64,
    pub(crate) items: Vec<Item>,
}

/// The subscription to one type.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// Whether there was a request.
    asked: bool,
    /// Whether there was a response.
    answered: bool,
    /// Whether a request has named anything. Then an empty list means nothing, and before that everything.
    has_named: bool,
    wildcard: bool,
    /// The number of names that the proxy has given.
    n_named: usize,
    /// Whether the proxy may have clusters or listeners from before the stream, and has not said which. Ends with its first answer. A version says
    /// nothing of it: a proxy that has rejected a part of its first response has the rest, and no version.
    pub(crate) inherits: bool,
    pub(crate) entries: BTreeMap<Arc<str>, Entry>,
    /// Names that have to be looked at.
    pub(crate) dirty: BTreeSet<Arc<str>>,
    /// Names that were looked at and must wait for something. Disjoint from `dirty`.
    pub(crate) parked: BTreeSet<Arc<str>>,
    /// Since when a resource could have been sent, but for its clusters.
    pub(crate) waiting: BTreeMap<Arc<str>, Instant>,
    /// Resources that were in a rejected response in which none was named. They are sent one at a time.
    pub(crate) suspects: BTreeSet<Arc<str>>,
    pub(crate) rejections: BTreeMap<Arc<str>, Rejection>,
    nonce: String,
    outstanding: Option<Outstanding>,
    /// Whether a request was ignored, in which the proxy may have stopped to want something that the next one has again.
    in_doubt: bool,
    /// Whether there must be a response, even one without resources.
    must_answer: bool,
}

/// A resource as the proxy has it, by what it has said.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Whether the proxy has given the name.
    named: bool,
    pub(crate) has: Has,
    /// From a rejected response whose rejection was not about it: the proxy may have taken it over.
    pub(crate) perhaps: Option<Arc<Resource>>,
    /// Whether it must be sent although the proxy has it.
    pub(crate) again: bool,
    /// Whether the proxy was told that the resource does not exist.
    pub(crate) told_absent: bool,
    /// Whether a cluster has served with endpoints since it was added. Stays so while the cluster is changed.
    pub(crate) ready: bool,
    /// The number of the last response that carried it as something new, 0 if none did on this stream, and more than any if it was removed.
    pub(crate) sent: u64,
    /// The number of the last acknowledged response that carried it.
    pub(crate) acknowledged: u64,
}

/// The resource that a proxy has under a name.
#[derive(Clone, Debug, Default)]
pub(crate) enum Has {
    #[default]
    Nothing,
    /// A resource that this stream has not carried, in a version of ours.
    Known(Version),
    /// A resource of which the proxy says something else, for example the version of another control plane.
    Foreign(Arc<str>),
    Resource(Arc<Resource>),
}

// === impl Has ===

impl Has {
    fn told(version: &str) -> Has {
        Version::parse(version).map_or_else(|| Has::foreign(version), Has::Known)
    }

    /// A version that is not compared. Its beginning is enough for a report, and clones share it.
    pub(crate) fn foreign(version: &str) -> Has {
        Has::Foreign(version[..version.floor_char_boundary(FOREIGN_BYTES_MAX)].into())
    }

    pub(crate) fn is(&self, version: Version) -> bool {
        match self {
            Has::Nothing | Has::Foreign(_) => false,
            Has::Known(known) => *known == version,
            Has::Resource(resource) => resource.version() == version,
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Has::Nothing)
    }

    pub(crate) fn resource(&self) -> Option<&Arc<Resource>> {
        match self {
            Has::Resource(resource) => Some(resource),
            Has::Nothing | Has::Known(_) | Has::Foreign(_) => None,
        }
    }

    /// Whether it is something of which is not known what it refers to.
    pub(crate) fn is_opaque(&self) -> bool {
        matches!(self, Has::Known(_) | Has::Foreign(_))
    }
}

// === impl Entry ===

impl Entry {
    /// Whether the proxy has this version and no other.
    pub(crate) fn is(&self, version: Version) -> bool {
        self.has.is(version) && self.perhaps.is_none()
    }

    /// Whether the proxy certainly has nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.has.is_nothing() && self.perhaps.is_none()
    }

    /// The resources that the proxy has or may have, as far as they are known.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.has.resource().into_iter().chain(&self.perhaps)
    }
}

// === impl Track ===

impl Track {
    pub(crate) fn was_asked(&self) -> bool {
        self.asked
    }

    pub(crate) fn was_answered(&self) -> bool {
        self.answered
    }

    pub(crate) fn must_answer(&self) -> bool {
        self.must_answer
    }

    /// Whether the proxy has, or may have, resources of which is not known what they refer to.
    pub(crate) fn is_opaque(&self) -> bool {
        let is_opaque = |entry: &Entry| entry.has.is_opaque() || entry.has.is_nothing() && entry.perhaps.is_some();
        self.inherits || self.entries.values().any(is_opaque)
    }

    pub(crate) fn outstanding(&self) -> Option<&Outstanding> {
        self.outstanding.as_ref()
    }

    /// Whether there is nothing to do, to wait for, or to be answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding.is_none() && self.dirty.is_empty() && self.parked.is_empty() && !self.must_answer
    }

    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Since when the first of those that wait for clusters waits.
    pub(crate) fn oldest_wait(&self) -> Option<Instant> {
        let parked = self.waiting.iter().filter(|(name, _)| self.parked.contains(*name));
        parked.map(|(_, since)| *since).min()
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.wildcard || self.entries.get(name).is_some_and(|entry| entry.named)
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.named)
    }

    /// The resource that the proxy has, if it is one that is known here.
    pub(crate) fn has(&self, name: &str) -> Option<&Arc<Resource>> {
        self.entries.get(name)?.has.resource()
    }

    pub(crate) fn has_some_or_rejects(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| !entry.has.is_nothing()) || self.rejections.contains_key(name)
    }

    /// Notes that the resource of this name has changed in the view.
    pub(crate) fn touch(&mut self, name: &Arc<str>) {
        if self.asked && (self.wildcard || self.entries.contains_key(name)) {
            self.look_at(name.clone());
        }
    }

    pub(crate) fn look_at(&mut self, name: Arc<str>) {
        self.parked.remove(&name);
        self.dirty.insert(name);
    }

    /// Looks again at everything that waits.
    pub(crate) fn unpark(&mut self) {
        self.dirty.append(&mut self.parked);
    }

    /// A resource that the proxy knows must be sent again, if it wants it.
    pub(crate) fn send_again(&mut self, name: &Arc<str>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.again = true;
            self.look_at(name.clone());
        }
    }

    /// Whether a request must be ignored. In the state-of-the-world variant, one that does not answer the last response is followed by one
    /// that does, and only that one has the proxy's names. In the delta variant names are changes, and always count.
    pub(crate) fn is_stale(&mut self, request: &Request) -> bool {
        let is_stale = self.asked && matches!(request.change, Change::Names { .. }) && request.nonce != self.nonce;
        self.in_doubt |= is_stale;
        is_stale
    }

    /// The response that a request answers.
    pub(crate) fn answered_by(&mut self, nonce: &str) -> Option<Outstanding> {
        self.outstanding.take_if(|outstanding| outstanding.nonce == nonce)
    }

    pub(crate) fn sent(&mut self, outstanding: Outstanding) {
        assert!(self.outstanding.is_none(), "a response of a type without an answer is the only one");
        self.nonce.clone_from(&outstanding.nonce);
        self.outstanding = Some(outstanding);
        self.answered = true;
        self.must_answer = false;
    }

    /// The proxy has acknowledged this. True if a rejection ended.
    pub(crate) fn taken_over(&mut self, item: &Item, sequence: u64) -> bool {
        self.suspects.remove(&item.name);
        let is_same = |rejection: &Rejection| {
            item.resource.as_ref().is_some_and(|resource| resource.version() == rejection.resource.version())
        };
        let ends = item.novelty == Novelty::New || self.rejections.get(&item.name).is_some_and(is_same);
        let ended = ends && self.rejections.remove(&item.name).is_some();
        // A name that was unsubscribed in the meantime has no entry.
        let Some(entry) = self.entries.get_mut(&item.name) else { return ended };
        // Endpoints that are removed make no cluster ready.
        entry.acknowledged = if item.resource.is_some() { sequence } else { 0 };
        entry.perhaps = None;
        match &item.resource {
            Some(resource) => entry.has = Has::Resource(resource.clone()),
            None => {
                entry.has = Has::Nothing;
                if !entry.named {
                    self.entries.remove(&item.name);
                }
            }
        }
        ended
    }

    /// Makes the change of a request, with the resources of the view. Returns the names that are forgotten.
    ///
    /// `purpose` says whether the request was sent to answer a response.
    pub(crate) fn subscribe(
        &mut self,
        kind: Kind,
        change: Change,
        purpose: Purpose,
        set: Option<&Set>,
    ) -> Vec<Arc<str>> {
        let is_first = !std::mem::replace(&mut self.asked, true);
        match change {
            Change::Delta { subscribe, unsubscribe, has } => {
                let has = if is_first { has } else { Vec::new() };
                for (name, version) in has {
                    let entry = Entry { has: Has::told(&version), ..Entry::default() };
                    self.entries.insert(intern(&name, set), entry);
                }
                self.subscribe_delta(kind, is_first, &subscribe, &unsubscribe, set)
            }
            Change::Names { names, version } => {
                let has_some = is_first && !version.is_empty();
                self.inherits |= is_first && kind.is_complete();
                let has = if has_some && !kind.is_complete() { Has::foreign(&version) } else { Has::Nothing };
                let before = self.n_named;
                let forgotten = self.subscribe_names(kind, names, &has, set);
                // A proxy that stops and begins to want a name sends the same names as before.
                let is_repeated = forgotten.is_empty() && self.n_named == before && purpose == Purpose::Ask;
                let in_doubt = std::mem::take(&mut self.in_doubt);
                if (is_repeated || in_doubt) && !is_first && !kind.is_complete() {
                    self.send_all_again();
                }
                forgotten
            }
        }
    }

    fn subscribe_delta(
        &mut self,
        kind: Kind,
        is_first: bool,
        subscribe: &[String],
        unsubscribe: &[String],
        set: Option<&Set>,
    ) -> Vec<Arc<str>> {
        let mut forgotten = Vec::new();
        for name in unsubscribe {
            if name == WILDCARD {
                self.wildcard = false;
                forgotten.append(&mut self.drop_unnamed());
            } else {
                forgotten.extend(self.unsubscribe(name));
            }
        }
        let is_legacy = is_first && kind.is_complete() && subscribe.is_empty();
        if is_legacy || subscribe.iter().any(|name| name == WILDCARD) {
            self.subscribe_all(set);
        }
        for name in subscribe.iter().filter(|name| *name != WILDCARD) {
            self.subscribe_name(intern(name, set));
            let entry = self.entries.get_mut(name.as_str());
            // A version that the proxy has told is compared. Everything else that it asks for is sent.
            if let Some(entry) = entry {
                entry.again = !is_first || entry.has.is_nothing();
            }
        }
        if is_first {
            // A version of what it does not ask for says nothing.
            forgotten.append(&mut self.drop_unnamed());
            self.dirty.extend(self.entries.keys().cloned());
        }
        forgotten
    }

    fn subscribe_names(&mut self, kind: Kind, names: Vec<String>, has: &Has, set: Option<&Set>) -> Vec<Arc<str>> {
        let wildcard = names.iter().any(|name| name == WILDCARD);
        let is_legacy = kind.is_complete() && names.is_empty() && !self.has_named;
        self.has_named |= !names.is_empty();
        let names: BTreeSet<Arc<str>> =
            names.into_iter().filter(|name| name != WILDCARD).map(|name| intern(&name, set)).collect();
        if wildcard || is_legacy {
            if !self.wildcard {
                self.subscribe_all(set);
            }
        } else {
            self.wildcard = false;
        }
        let gone: Vec<Arc<str>> = self
            .entries
            .iter()
            .filter(|(name, entry)| entry.named && !names.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.n_named -= 1;
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.named = false;
            }
        }
        for name in names {
            if !self.is_named(&name) {
                self.subscribe_name(name.clone());
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.again = true;
                    if entry.has.is_nothing() {
                        entry.has = has.clone();
                    }
                }
            }
        }
        self.drop_unnamed()
    }

    fn send_all_again(&mut self) {
        for (name, entry) in &mut self.entries {
            entry.again = true;
            self.parked.remove(name);
            self.dirty.insert(name.clone());
        }
    }

    fn subscribe_all(&mut self, set: Option<&Set>) {
        self.wildcard = true;
        self.must_answer = true;
        let names = set.into_iter().flat_map(Set::iter).map(|resource| resource.name().clone());
        self.dirty.extend(names);
        self.parked.clear();
        self.dirty.extend(self.entries.keys().cloned());
    }

    fn subscribe_name(&mut self, name: Arc<str>) {
        let entry = self.entries.entry(name.clone()).or_default();
        self.n_named += usize::from(!entry.named);
        entry.named = true;
        entry.told_absent = false;
        self.look_at(name);
    }

    fn unsubscribe(&mut self, name: &str) -> Option<Arc<str>> {
        let (name, entry) = self.entries.get_key_value(name)?;
        let name = name.clone();
        if !entry.named {
            return None;
        }
        self.n_named -= 1;
        if !self.wildcard {
            self.forget(&name);
            return Some(name);
        }
        // The proxy has forgotten the resource, and does not know whether the wildcard has it too.
        let entry = self.entries.get_mut(&name)?;
        entry.named = false;
        entry.again = true;
        entry.told_absent = false;
        self.look_at(name);
        None
    }

    /// Forgets what the proxy does not ask for.
    fn drop_unnamed(&mut self) -> Vec<Arc<str>> {
        if self.wildcard {
            return Vec::new();
        }
        let names: Vec<Arc<str>> =
            self.entries.iter().filter(|(_, entry)| !entry.named).map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.forget(name);
        }
        names
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.entries.remove(name);
        self.dirty.remove(name);
        self.parked.remove(name);
        self.waiting.remove(name);
        self.suspects.remove(name);
        self.rejections.remove(name);
    }

    /// Refuses a change after which the proxy would have more than `max` names, before anything is made of them.
    pub(crate) fn check_size(&self, kind: Kind, change: &Change, max: usize) -> Result<(), RequestError> {
        let n_told = match change {
            Change::Delta { has, .. } if !self.asked => has.len(),
            Change::Delta { .. } | Change::Names { .. } => 0,
        };
        let at_most = match change {
            Change::Delta { subscribe, .. } => self.n_named + subscribe.len(),
            Change::Names { names, .. } => names.len(),
        };
        // Counting takes memory, and is rarely needed.
        let n_named = if at_most > max { self.count_after(change) } else { at_most };
        let names = n_told.max(n_named);
        if names > max { Err(RequestError::TooManyNames { kind, names, max }) } else { Ok(()) }
    }

    /// The number of names that the proxy will have given.
    fn count_after(&self, change: &Change) -> usize {
        match change {
            Change::Delta { subscribe, unsubscribe, .. } => {
                let subscribed = distinct(subscribe);
                let mut lost = distinct(unsubscribe);
                lost.retain(|name| self.is_named(name) && !subscribed.contains(name));
                let n_new = subscribed.iter().filter(|name| !self.is_named(name)).count();
                self.n_named + n_new - lost.len()
            }
            Change::Names { names, .. } => distinct(names).len(),
        }
    }
}

/// The names of a request, each once.
fn distinct(names: &[String]) -> HashSet<&str> {
    names.iter().map(String::as_str).filter(|name| *name != WILDCARD).collect()
}

/// The name as the view has it, so that it is in memory once.
fn intern(name: &str, set: Option<&Set>) -> Arc<str> {
    set.and_then(|set| set.get(name)).map_or_else(|| name.into(), |resource| resource.name().clone())
}
