//! One member's part in the protocol of [`crate::shard`], as a state machine: no clock, no IO, no waiting.
//!
//! The shell does what the effects say, one request at a time, and tells what came of each. After every step it puts
//! [`Member::permission`] in force before anything else. All times are those of this host's
//! [`HostClock`](crate::clock::HostClock).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::shard::slots::{Slots, share};

/// The most members that get a share. Those whose names come later in the alphabet wait.
pub(crate) const MEMBERS_MAX: usize = 128;

/// How many lease durations a record that nobody renews is kept for people to look at.
const KEPT_LEASES: u32 = 8;

/// The times of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// A member whose record does not change for this long is dead.
    pub(crate) lease: Duration,
    /// A member that could not renew for this long stops. Shorter than the lease.
    pub(crate) renew_deadline: Duration,
    /// Between renewals, and between attempts.
    pub(crate) period: Duration,
    /// How long work may go on for a slot that is being released.
    pub(crate) handover: Duration,
}

/// What a member's Lease says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// Changes with every write.
    pub(crate) version: String,
    /// What the member may be working on.
    pub(crate) claims: Slots,
    /// The member has left and claims nothing.
    pub(crate) is_released: bool,
    /// After how long without a change the member is dead.
    pub(crate) lease: Duration,
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// The record of somebody long gone was deleted, or not; it does not matter.
    Forgot,
    /// Begin nothing new, and leave the group when what was begun has ended.
    Leave,
    ListFailed,
    /// All records of the group, as they were at one moment since they were asked for.
    Listed(Vec<Record>),
    /// The write was not done and never will be.
    Refused,
    /// The write was done, or not, or will be later.
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

/// What is allowed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Permission {
    /// Work on these may begin.
    pub(crate) held: Slots,
    /// The slots on which work may go on: those that are held and those that are being released.
    pub(crate) kept: Slots,
    /// Until then. `None`: nothing is allowed anyway.
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
    /// What our record claims, as last known for certain.
    certain: Slots,
    /// What it claims if one of our writes was done whose answer we never got: what is in all of these.
    doubtful: Slots,
    /// Slots that no other member has claimed since our claim was known to be written. All of these are in `stored()`.
    checked: Slots,
    /// The same at the end of the last step: what the shell may have let begin.
    published: Slots,
    /// When the last successful write was sent. `None`: never, or so long ago that nothing is checked any more.
    renewed: Option<Instant>,
    /// The members that get a share as of the last list, this one included.
    sharers: Vec<String>,
    share: Slots,
    peers: BTreeMap<String, Peer>,
    /// Slots that are being released, and since when.
    yielding: Vec<(Instant, Slots)>,
    /// Those of them whose time is over.
    late: Slots,
    /// What was worked on at the last step.
    in_use: Slots,
    /// Counts how often everything had to stop.
    term: u64,
    must_list: bool,
    /// The group has been seen at least once.
    is_acquainted: bool,
    list_after: Instant,
    write_after: Instant,
    last_write: Option<Instant>,
    /// A record that has outlived its use.
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

/// Another member, as last seen.
#[derive(Debug)]
struct Peer {
    record: Record,
    /// When this version was first seen: its answer had arrived.
    seen: Instant,
    is_dead: bool,
    /// It was in the last list. One that vanished may still be at work until its lease has run out.
    is_present: bool,
}

impl Member {
    /// A member that nobody knows. `term` must differ from that of any permission before.
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

    /// Takes notice of `input`. `in_use`: the slots that are being worked on, read after the last permission was in
    /// force.
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
        // What is no longer held can be let go once the shell knows, if nothing is at work on it.
        self.must_step = !(self.published - self.checked).is_empty();
        self.published = self.checked;
        effect
    }

    /// What the shell has to allow and to stop now.
    pub(crate) fn permission(&self) -> Permission {
        let Some(renewed) = self.renewed else { return Permission { term: self.term, ..Permission::default() } };
        Permission {
            held: self.checked,
            kept: self.stored() - self.late,
            until: Some(renewed + self.times.renew_deadline),
            term: self.term,
        }
    }

    /// When to wake this up if nothing else happens before.
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

    /// What to say when the request under way was not answered in time. The answer must not come later.
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

    /// What our record claims for certain, whichever of our writes were done.
    fn stored(&self) -> Slots {
        let under_way = match self.request {
            Request::Write { claims, .. } => claims,
            Request::Forget | Request::List { .. } | Request::None => Slots::ALL,
        };
        self.certain & self.doubtful & under_way
    }

    /// Nothing may go on until we have renewed and looked around again.
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
        // Of all writes to one version only one is done, so those in doubt never will be.
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

    /// Holds our record against what we think it is.
    fn recognize_own(&mut self, record: Option<&Record>) {
        match record {
            // A first write that was never answered may still be done.
            None if self.own.is_none() => {}
            None => {
                // Somebody deleted it: the others know nothing of our claims.
                self.own = None;
                self.certain = Slots::NONE;
                self.doubtful = Slots::ALL;
                self.stop();
            }
            Some(record) if self.own.as_ref() == Some(&record.version) => {}
            Some(record) => {
                // A write in doubt was done, or somebody else wrote. What was for the version before never will be.
                self.own = Some(record.version.clone());
                self.certain = record.claims;
                self.doubtful = Slots::ALL;
                if record.is_released && self.life == Life::Leaving {
                    self.life = Life::Gone;
                }
            }
        }
    }

    /// Notes who is there. A record counts from when this version of it was first seen; it has run out when a list that
    /// was asked for a lease later still shows it.
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

    /// Keeps account of the slots that we claim and that are no longer ours.
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

    /// What our record is to say: our share, and of what is no longer ours, what may still be worked on.
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
            // Work ends on one slot after the other: not a write for each.
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
    /// Gets a share.
    fn is_alive(&self) -> bool {
        self.is_present && self.is_threat()
    }

    /// May be at work on what it claims.
    fn is_threat(&self) -> bool {
        !self.is_dead && !self.record.is_released
    }
}

#[cfg(test)]
mod rules;
#[cfg(test)]
mod simulation;
