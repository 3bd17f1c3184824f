//! One stream of a proxy, without IO and without a clock: what it has asked for, what it has, and what is sent to it next.
//!
//! [`Session::request`] takes in what the proxy sends, [`Session::wanted`] what it should have, and [`Session::next`] says what is
//! to be sent now. The caller asks for the next response when the last one was taken off its hands, so that a slow proxy gets the newest state
//! and never a queue. `track` has the rules of a subscription to one type, `stage` the order of changes over types.
//!
//! # One response of a type at a time
//! A type's next response waits for the answer to the last one. So it is always known what a proxy has, and a rejection
//! can be about one response only. Envoy answers at once, but for clusters, whose answer it holds back while they wait for endpoints.
//!
//! # Order
//! 1. New and changed clusters are sent at once, and the endpoints of each are sent after it, even if they have not changed: Envoy waits
//!    for them, and if none come, it goes on with the old cluster for 15 s.
//! 2. A route or listener is sent when the proxy has acknowledged endpoints of every cluster that it refers to. One that still waits after
//!    [`PATIENCE`] is sent all the same, and reported. A cluster that is being changed serves as it did before, so that it counts as ready.
//! 3. A cluster is removed when no listener or route that the proxy has, or is being sent, refers to it, and none of the proxy's is unknown.
//!
//! # What a rejection does
//! The version is not sent again on this stream. What was sent with it, and is not named in the proxy's words, is sent again; if nothing is
//! named, one resource at a time. The exception is the first response of clusters or listeners to a state-of-the-world proxy that has some already: what is
//! left out would be deleted, so that everything in it is taken to be rejected.
//!
//! # Limits
//! In the state-of-the-world variant a proxy does not say which clusters and listeners it has. What went out of the view while it was not connected is
//! therefore removed with the first response, before routes that refer to it are replaced. The delta variant has no such gap.

mod nack;
mod report;
mod stage;
mod track;

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod tests;

use crate::kind::Kind;
use crate::report::{Hurried, Variant};
use crate::resource::Resource;
use crate::session::track::{Outstanding, Purpose, Track};
use crate::transport::Response;
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use crate::session::track::{Change, Request, RequestError};

/// How long a route or listener waits for its clusters.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// A delta response ends with the resource that makes it this large.
const RESPONSE_BYTES: usize = 2 * 1024 * 1024;

/// The time, for rules and for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    pub(crate) time: SystemTime,
}

/// One stream of a proxy.
#[derive(Debug)]
pub(crate) struct Session {
    variant: Variant,
    view: Option<Arc<View>>,
    tracks: [Track; Kind::ALL.len()],
    /// The number of responses so far, of all types: later ones have larger numbers.
    sequence: u64,
    /// From when on a proxy that has not asked for listeners or routes is taken to have none.
    settles_at: Option<Instant>,
    hurried: BTreeMap<(Kind, Arc<str>), Hurried>,
    /// Clusters and listeners that were taken over, whose endpoints or routes may still be missing.
    unmet: BTreeSet<(Kind, Arc<str>)>,
    settled: Option<Arc<View>>,
    /// Whether something that waited has to be looked at again.
    woken: bool,
    /// Counts what a report would show.
    changes: u64,
}

// === impl Session ===

impl Session {
    pub(crate) fn new(variant: Variant) -> Session {
        Session {
            variant,
            view: None,
            tracks: Default::default(),
            sequence: 0,
            settles_at: None,
            hurried: BTreeMap::new(),
            unmet: BTreeSet::new(),
            settled: None,
            woken: false,
            changes: 0,
        }
    }

    /// Sets what the proxy should have.
    pub(crate) fn wanted(&mut self, view: Arc<View>) {
        let empty = View::new();
        let old = self.view.as_deref().unwrap_or(&empty);
        for kind in Kind::ALL {
            let track = &mut self.tracks[kind.index()];
            old.set(kind).compare(view.set(kind), |name| track.touch(name));
        }
        self.view = Some(view);
        self.changes += 1;
    }

    /// Takes in a request of the proxy.
    ///
    /// # Errors
    /// If it has more than `names_max` names of a type. The stream is over then.
    pub(crate) fn request(&mut self, now: Now, request: Request, names_max: usize) -> Result<(), RequestError> {
        self.settles_at.get_or_insert(now.instant + PATIENCE);
        let kind = request.kind;
        let track = &mut self.tracks[kind.index()];
        if track.is_stale(&request) {
            return Ok(());
        }
        track.check_size(kind, &request.change, names_max)?;
        let answered = track.answered_by(&request.nonce);
        let purpose = if answered.is_some() { Purpose::Answer } else { Purpose::Ask };
        if let Some(outstanding) = answered {
            match request.error {
                Some(error) => self.rejected(now, kind, outstanding, &error),
                None => self.acknowledged(kind, outstanding),
            }
            self.track_mut(kind).inherits = false;
        }
        let set = self.view.as_ref().map(|view| view.set(kind));
        let track = &mut self.tracks[kind.index()];
        let forgotten = track.subscribe(kind, request.change, purpose, set);
        for name in &forgotten {
            self.hurried.remove(&(kind, name.clone()));
        }
        if matches!(kind, Kind::Listener | Kind::Route) {
            self.recheck_removals();
        }
        Ok(())
    }

    /// The response that is to be sent now, if any.
    pub(crate) fn next(&mut self, now: Now) -> Option<Response> {
        let view = self.view.clone()?;
        self.pass_time(now.instant);
        loop {
            self.woken = false;
            if let Some(response) = Kind::ALL.into_iter().find_map(|kind| self.respond(now, kind, &view)) {
                return Some(response);
            }
            if !self.woken {
                break;
            }
        }
        self.settle(view);
        None
    }

    /// When [`Session::next`] may have something although nothing happened.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waiting =
            [Kind::Listener, Kind::Route].into_iter().filter_map(|kind| self.tracks[kind.index()].oldest_wait());
        let removals =
            self.settles_at.filter(|_| Kind::ALL.into_iter().any(|kind| self.tracks[kind.index()].has_parked()));
        waiting.map(|since| since + PATIENCE).chain(removals).min()
    }

    fn track(&self, kind: Kind) -> &Track {
        &self.tracks[kind.index()]
    }

    fn track_mut(&mut self, kind: Kind) -> &mut Track {
        &mut self.tracks[kind.index()]
    }

    /// Looks again at everything whose time to wait is over.
    fn pass_time(&mut self, now: Instant) {
        for kind in [Kind::Listener, Kind::Route] {
            let track = self.track_mut(kind);
            if track.oldest_wait().is_some_and(|since| since + PATIENCE <= now) {
                track.unpark();
            }
        }
        if self.settles_at.is_some_and(|at| at <= now) {
            self.settles_at = None;
            self.recheck_removals();
        }
    }

    /// Looks again at removals that wait, since the references of listeners or routes may have changed.
    fn recheck_removals(&mut self) {
        for kind in [Kind::Cluster, Kind::Endpoints, Kind::Route] {
            self.track_mut(kind).unpark();
        }
        self.woken = true;
    }

    fn acknowledged(&mut self, kind: Kind, outstanding: Outstanding) {
        for item in outstanding.items {
            if item.resource.is_some() && matches!(kind, Kind::Cluster | Kind::Listener) {
                self.unmet.insert((kind, item.name.clone()));
            }
            let ended = self.track_mut(kind).taken_over(&item, outstanding.sequence);
            self.changes += u64::from(ended);
            if matches!(kind, Kind::Cluster | Kind::Endpoints) {
                self.keep_ready(&item.name);
            }
        }
        self.progressed(kind);
    }

    /// Looks again at what may have waited for a resource of this type.
    fn progressed(&mut self, kind: Kind) {
        match kind {
            Kind::Cluster | Kind::Endpoints => {
                for kind in [Kind::Listener, Kind::Route] {
                    self.track_mut(kind).unpark();
                }
                self.end_hurries();
                if kind == Kind::Cluster {
                    self.recheck_removals();
                }
            }
            Kind::Listener | Kind::Route => self.recheck_removals(),
            Kind::Secret => {}
        }
    }

    fn end_hurries(&mut self) {
        if self.hurried.is_empty() {
            return;
        }
        let mut hurried = std::mem::take(&mut self.hurried);
        let before = hurried.len();
        hurried.retain(|_, hurry| !hurry.clusters.iter().all(|cluster| self.is_ready(cluster)));
        self.changes += u64::from(hurried.len() != before);
        self.hurried = hurried;
    }

    /// Nothing is to be sent now. If nothing is under way either, the proxy has what it should have.
    fn settle(&mut self, view: Arc<View>) {
        if self.settled.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, &view)) {
            return;
        }
        let is_idle = self.tracks.iter().all(Track::is_idle);
        let has_asked = [Kind::Cluster, Kind::Listener].into_iter().all(|kind| self.track(kind).was_answered());
        if !is_idle || !has_asked {
            return;
        }
        let mut unmet = std::mem::take(&mut self.unmet);
        unmet.retain(|(kind, name)| !self.is_met(*kind, name, &view));
        self.unmet = unmet;
        if self.unmet.is_empty() {
            self.settled = Some(view);
            self.changes += 1;
        }
    }

    /// Whether the proxy has what this resource of it refers to.
    fn is_met(&self, kind: Kind, name: &str, view: &View) -> bool {
        let Some(resource) = self.track(kind).has(name) else { return true };
        let mut needs = resource.needs().iter().filter(|need| matches!(need.kind, Kind::Endpoints | Kind::Route));
        needs.all(|need| {
            let is_known = view.get(need.kind, &need.name).is_some();
            !is_known || self.track(need.kind).has_some_or_rejects(&need.name)
        })
    }
}

/// A resource of a response, or the removal of one.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: Arc<str>,
    /// `None` for a removal.
    pub(crate) resource: Option<Arc<Resource>>,
    pub(crate) novelty: Novelty,
}

/// Whether a resource is in a response for its own sake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Novelty {
    /// The proxy has it, but the response must be complete.
    Known,
    New,
}
