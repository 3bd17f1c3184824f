//! One member's part in the protocol of [`crate::leadership::shard`], as a state machine: no clock, no IO, no waiting.
//!
//! The shell carries out the effects, one request at a time, and reports the outcome of each. After every step it puts
//! [`Member::permission`] in force before anything else. All times are those of this host's
//! [`HostClock`](crate::shared::clock::HostClock).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::leadership::shard::slots::{Slots, share};

/// The most members that get a share. Members whose names sort later wait.
pub(crate) const MEMBERS_MAX: usize = 128;

/// A record that nobody renews is kept for this many lease durations, so that people can look at it.
const KEPT_LEASES: u32 = 8;

/// The times of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// A member whose record does not change for this long is dead.
    pub(crate) lease: Duration,
    /// A member that could not renew for this long stops. Shorter than the lease.
    pub(crate) renew_deadline: Duration,
    /// The time between renewals, and between attempts.
    pub(crate) period: Duration,
    /// How long work may go on for a slot that is being released.
    pub(crate) handover: Duration,
}

/// The content of a member's Lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// The resource version, which changes with every write.
    pub(crate) version: String,
    /// The slots that the member may be working on.
    pub(crate) claims: Slots,
    /// The member has left and claims nothing.
    pub(crate) is_released: bool,
    /// Without a change for this long, the member is dead.
    pub(crate) lease: Duration,
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// The request to delete a stale record has ended; its outcome does not matter.
    Forgot,
    /// Begin nothing new, and leave the group when what was begun has ended.
    Leave,
    ListFailed,
    /// All records of the group, as they were at one moment after the request was sent.
    Listed(Vec<Record>),
    /// The write was not done and never will be.
    Refused,
    /// The outcome of the write is unknown: it was done, or not, or will be done later.
    Unanswered,
    /// Time has passed, or work on a slot has ended.
    Wake,
    /// The write was done.
    Written {
        version: String,
    },
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// Delete this version of a record.
    Forget { id: String, version: String },
    /// Read all records of the group, no older than now.
    List,
    /// Replace this version of our record, or create it.
    Write { version: Option<String>, claims: Slots, is_released: bool },
}

/// The slots on which work is allowed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Permission {
    /// The slots on which work may begin.
    pub(crate) held: Slots,
    /// The slots on which work may go on: those that are held and those that are being released.
    pub(crate) kept: Slots,
    /// When the permission ends. `None`: nothing is allowed anyway.
    pub(crate) until: Option<Instant>,
    /// Work that began under another term must not go on, whatever slot it is for.
    pub(crate) term: u64,
}

#[derive(Debug)]
pub(crate) struct Member {
    id: String,
    times: Times,
    request: Request,
    /// Version of our record, as far as we know.
    own: Option<String>,
    /// The slots that our record claims, as last known for certain.
    certain: Slots,
    /// The slots that our record claims whichever of our unanswered writes were done: the intersection of their claims.
    doubtful: Slots,
    /// Slots that no other member has claimed since our claim was known to be written. All of these are in `stored()`.
    checked: Slots,
    /// `checked` at the end of the last step. The shell may have let work on these slots begin.
    published: Slots,
    /// When the last successful write was sent. `None`: never, or so long ago that nothing is checked any more.
    renewed: Option<Instant>,
    /// The members that get a share as of the last list, this one included.
    sharers: Vec<String>,
    share: Slots,
    peers: BTreeMap<String, Peer>,
    /// Slots that are being released, and since when.
    yielding: Vec<(Instant, Slots)>,
    /// The slots in `yielding` whose time is over.
    late: Slots,
    /// The slots that were being worked on at the last step.
    in_use: Slots,
    /// The number of times that all work had to stop.
    term: u64,
    must_list: bool,
    /// The group has been listed at least once.
    is_acquainted: bool,
    list_after: Instant,
    write_after: Instant,
    last_write: Option<Instant>,
    /// The id and version of a record that was not renewed for [`KEPT_LEASES`] and is to be deleted.
    stale: Option<(String, String)>,
    must_step: bool,
    life: Life,
}

/// The request under way. There is never more than one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Request {
    Forget,
    List { sent: Instant },
    None,
    Write { sent: Instant, claims: Slots, is_released: bool },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Life {
    Gone,
    Leaving,
    Taking,
}

/// Another member, as last listed.
#[derive(Debug)]
struct Peer {
    record: Record,
    /// When this version was first seen: its answer had arrived.
    seen: Instant,
    is_dead: bool,
    /// It was in the last list. A member that vanished may still be at work until its lease has run out.
    is_present: bool,
}

impl Member {
    /// A member that is in no group yet. `term` must differ from that of any permission before.
    pub(crate) fn new(id: String, times: Times, term: u64, now: Instant) -> Self {
        Self {
            id,
            times,
            request: Request::None,
            own: None,
            certain: Slots::NONE,
            doubtful: Slots::ALL,
            checked: Slots::NONE,
            published: Slots::NONE,
            renewed: None,
            sharers: Vec::new(),
            share: Slots::NONE,
            peers: BTreeMap::new(),
            yielding: Vec::new(),
            late: Slots::NONE,
            in_use: Slots::NONE,
            term,
            must_list: true,
            is_acquainted: false,
            list_after: now,
            write_after: now,
            last_write: None,
            stale: None,
            must_step: false,
            life: Life::Taking,
        }
    }

    /// Handles `input`. `in_use`: the slots that are being worked on, read after the last permission was put in force.
    pub(crate) fn step(&mut self, now: Instant, in_use: Slots, input: Input) -> Option<Effect> {
        if self.renewed.is_some_and(|renewed| now >= renewed + self.times.renew_deadline) {
            self.stop();
        }
        self.in_use = in_use;
        match input {
            Input::Forgot => self.request = Request::None,
            Input::Leave => {
                self.life = Life::Leaving;
                self.share = Slots::NONE;
                self.write_after = now;
            }
            Input::ListFailed => {
                self.request = Request::None;
                self.list_after = now + self.times.period;
            }
            Input::Listed(records) => self.listed(now, records),
            Input::Refused => self.failed(now),
            Input::Unanswered => {
                if let Request::Write { claims, .. } = self.request {
                    self.doubtful = self.doubtful & claims;
                }
                self.failed(now);
            }
            Input::Wake => {}
            Input::Written { version } => self.written(now, version),
        }
        self.note_yielding(now);
        let effect = self.next_request(now);
        self.checked = self.checked & self.stored() & self.share;
        // Slots that are no longer held are released in a further step, after the shell has put the new permission in
        // force.
        self.must_step = !(self.published - self.checked).is_empty();
        self.published = self.checked;
        effect
    }

    /// The permission that the shell has to put in force now.
    pub(crate) fn permission(&self) -> Permission {
        let Some(renewed) = self.renewed else { return Permission { term: self.term, ..Permission::default() } };
        Permission {
            held: self.checked,
            kept: self.stored() - self.late,
            until: Some(renewed + self.times.renew_deadline),
            term: self.term,
        }
    }

    /// When the shell has to call [`Member::step`] if nothing else happens before.
    pub(crate) fn next_wake(&self, now: Instant) -> Instant {
        if self.must_step {
            return now;
        }
        let mut next = now + self.times.lease;
        if let Some(renewed) = self.renewed {
            next = next.min(renewed + self.times.renew_deadline);
        }
        for (since, slots) in &self.yielding {
            if !(*slots - self.late).is_empty() {
                next = next.min(*since + self.times.handover);
            }
        }
        if self.request == Request::None && self.life != Life::Gone {
            if self.must_list {
                next = next.min(self.list_after);
            }
            if self.is_acquainted {
                next = next.min(self.write_due(now));
            }
        }
        next
    }

    /// The input for a request that was not answered in time. Its answer must not be passed in later.
    pub(crate) fn unanswered(&self) -> Input {
        match self.request {
            Request::Forget => Input::Forgot,
            Request::List { .. } => Input::ListFailed,
            Request::None | Request::Write { .. } => Input::Unanswered,
        }
    }

    /// When the last successful write was sent, if that is no longer ago than the renew deadline.
    pub(crate) fn renewed(&self) -> Option<Instant> {
        self.renewed
    }

    /// Whether the group has been left, so that nothing remains to be done.
    pub(crate) fn is_gone(&self) -> bool {
        self.life == Life::Gone
    }

    /// The members that are alive as of the last list, this one included.
    pub(crate) fn members(&self) -> Vec<&str> {
        let alive = self.peers.values().filter(|peer| peer.is_alive()).map(|peer| peer.record.id.as_str());
        let mut members: Vec<&str> = alive.chain((self.life == Life::Taking).then_some(self.id.as_str())).collect();
        members.sort_unstable();
        members
    }

    /// The slots that our record claims for certain, whichever of our writes were done.
    fn stored(&self) -> Slots {
        let under_way = match self.request {
            Request::Write { claims, .. } => claims,
            Request::Forget | Request::List { .. } | Request::None => Slots::ALL,
        };
        self.certain & self.doubtful & under_way
    }

    /// Stops all work until our record has been renewed and the others have been listed again.
    fn stop(&mut self) {
        self.renewed = None;
        self.checked = Slots::NONE;
        self.term += 1;
    }

    fn failed(&mut self, now: Instant) {
        self.request = Request::None;
        self.must_list = true;
        self.write_after = now + self.times.period;
    }

    fn written(&mut self, now: Instant, version: String) {
        let Request::Write { sent, claims, is_released } = self.request else { return };
        self.request = Request::None;
        // Only one of all writes to a version is done, so earlier writes without an answer never will be.
        self.own = Some(version);
        self.certain = claims;
        self.doubtful = Slots::ALL;
        self.must_list = true;
        if now < sent + self.times.renew_deadline {
            self.renewed = Some(sent);
        }
        if is_released {
            self.life = Life::Gone;
        }
    }

    fn listed(&mut self, now: Instant, records: Vec<Record>) {
        let Request::List { sent } = self.request else { return };
        self.request = Request::None;
        self.must_list = false;
        self.is_acquainted = true;
        self.recognize_own(records.iter().find(|record| record.id == self.id));
        self.observe(sent, now, records);
        if self.life != Life::Taking {
            return;
        }
        let mut members: Vec<String> = self.members().into_iter().map(str::to_owned).collect();
        members.truncate(MEMBERS_MAX);
        if self.sharers != members {
            self.share = share(&self.id, &members);
            self.sharers = members;
        }
        if self.renewed.is_some() {
            let threats = self.peers.values().filter(|peer| peer.is_threat());
            let taken = threats.fold(Slots::NONE, |taken, peer| taken | peer.record.claims);
            self.checked = self.checked | (self.stored() - taken);
        }
    }

    /// Compares our record in a list with the version and claims that we know.
    fn recognize_own(&mut self, record: Option<&Record>) {
        match record {
            // A first write that was never answered may still be done.
            None if self.own.is_none() => {}
            None => {
                // Somebody deleted our record, so the other members cannot see our claims.
                self.own = None;
                self.certain = Slots::NONE;
                self.doubtful = Slots::ALL;
                self.stop();
            }
            Some(record) if self.own.as_ref() == Some(&record.version) => {}
            Some(record) => {
                // An unanswered write was done, or somebody else wrote. Other writes to the previous version never will
                // be done.
                self.own = Some(record.version.clone());
                self.certain = record.claims;
                self.doubtful = Slots::ALL;
                if record.is_released && self.life == Life::Leaving {
                    self.life = Life::Gone;
                }
            }
        }
    }

    /// Updates the other members from a list. The lease of a record begins when this version was first seen; it has run
    /// out when a list that was requested a lease later still has this version.
    fn observe(&mut self, sent: Instant, now: Instant, records: Vec<Record>) {
        for peer in self.peers.values_mut() {
            peer.is_present = false;
        }
        for record in records {
            if record.id == self.id {
                continue;
            }
            match self.peers.get_mut(&record.id) {
                Some(peer) if peer.record.version == record.version => peer.is_present = true,
                _ => {
                    let peer = Peer { record, seen: now, is_dead: false, is_present: true };
                    self.peers.insert(peer.record.id.clone(), peer);
                }
            }
        }
        for peer in self.peers.values_mut() {
            peer.is_dead = sent >= peer.seen + peer.record.lease;
        }
        self.peers.retain(|_, peer| peer.is_present || peer.is_threat());
        let is_first = self.members().first() == Some(&self.id.as_str());
        let kept = self.times.lease * KEPT_LEASES;
        let stale = self.peers.values().find(|peer| !peer.is_alive() && peer.is_present && sent >= peer.seen + kept);
        self.stale = stale.filter(|_| is_first).map(|peer| (peer.record.id.clone(), peer.record.version.clone()));
    }

    /// Tracks the slots that we claim and that are no longer in our share.
    fn note_yielding(&mut self, now: Instant) {
        let lost = self.certain - self.share;
        let mut fresh = lost;
        for (_, slots) in &mut self.yielding {
            *slots = *slots & lost;
            fresh = fresh - *slots;
        }
        self.yielding.retain(|(_, slots)| !slots.is_empty());
        if !fresh.is_empty() {
            self.yielding.push((now, fresh));
        }
        let late = self.yielding.iter().filter(|(since, _)| now >= *since + self.times.handover);
        self.late = late.fold(Slots::NONE, |late, (_, slots)| late | *slots);
    }

    /// The slots that our record has to claim: our share, and the lost slots on which work may still be under way.
    fn wanted(&self) -> Slots {
        self.share | ((self.certain - self.share) & (self.in_use | self.published))
    }

    /// When the next write is due.
    fn write_due(&self, now: Instant) -> Instant {
        let wanted = self.wanted();
        let Some(last_write) = self.last_write else { return self.write_after };
        let is_leaving = self.life == Life::Leaving && wanted.is_empty();
        let due = if self.own.is_none() || is_leaving {
            now
        } else if wanted == self.certain {
            last_write + self.times.period
        } else if (wanted - self.share).is_empty() {
            now
        } else {
            // Work ends on one slot after the other: this avoids a write for each.
            last_write + self.times.period / 4
        };
        due.max(self.write_after)
    }

    fn next_request(&mut self, now: Instant) -> Option<Effect> {
        if self.life == Life::Leaving && self.own.is_none() && self.request == Request::None {
            self.life = Life::Gone;
        }
        if self.request != Request::None || self.life == Life::Gone {
            return None;
        }
        if self.must_list && now >= self.list_after {
            self.request = Request::List { sent: now };
            return Some(Effect::List);
        }
        if self.is_acquainted && now >= self.write_due(now) {
            let claims = self.wanted();
            let is_released = self.life == Life::Leaving && claims.is_empty();
            self.request = Request::Write { sent: now, claims, is_released };
            self.last_write = Some(now);
            return Some(Effect::Write { version: self.own.clone(), claims, is_released });
        }
        let (id, version) = self.stale.take()?;
        self.request = Request::Forget;
        Some(Effect::Forget { id, version })
    }
}

// === impl Peer ===

impl Peer {
    /// Whether the member gets a share.
    fn is_alive(&self) -> bool {
        self.is_present && self.is_threat()
    }

    /// Whether it may be at work on the slots that it claims.
    fn is_threat(&self) -> bool {
        !self.is_dead && !self.record.is_released
    }
}

#[cfg(test)]
mod rules;
#[cfg(test)]
mod simulation;
