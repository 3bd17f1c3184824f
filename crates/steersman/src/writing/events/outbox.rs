//! The requests that wait to be sent, by event object: one at a time for each, several objects at once.
//!
//! A request that cannot be sent waits for its next try and does not hold up others. Changes of an event object while a
//! request for it is under way are merged into one further request. This is a state machine: the caller sends, and has
//! the clock.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::writing::events::Effect;

/// The most requests under way at once. Up to this many unanswered events do not hold up others.
pub(crate) const UNDER_WAY_MAX: usize = 16;

/// While this many event objects wait, the recorder's queue is not read.
pub(crate) const WAITING_MAX: usize = 500;

/// Namespace and name of an event object.
pub(crate) type Target = (String, String);

/// All waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    entries: HashMap<Target, Entry>,
    /// In the order in which they are sent. Each is in `entries`, in the state of that name.
    ready: VecDeque<Target>,
    /// By the time of the next try. Each is in `entries`, in the state of that name.
    delayed: BTreeSet<(Instant, Target)>,
    n_under_way: usize,
    /// The number of effects pushed so far.
    n_pushed: u64,
}

#[derive(Debug)]
struct Entry {
    effect: Effect,
    n_tries: u32,
    state: State,
    /// The merged effect of changes that came while the request was under way, and its number.
    newer: Option<(Effect, u64)>,
    /// The number of the oldest effect that is not sent.
    number: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Delayed,
    Ready,
    UnderWay,
}

/// The outcome of a request for its event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Try again at this time.
    Again(Instant),
    /// The server will never accept it.
    GiveUp,
    /// The event object is gone; create it again.
    MakeAnew,
    Sent,
}

impl Outbox {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.n_pushed += 1;
        let number = self.n_pushed;
        let target = (effect.namespace.clone(), effect.name.clone());
        match self.entries.get_mut(&target) {
            None => {
                let entry = Entry { effect, n_tries: 0, state: State::Ready, newer: None, number };
                self.entries.insert(target.clone(), entry);
                self.ready.push_back(target);
            }
            Some(entry) => match entry.state {
                State::Delayed | State::Ready => entry.effect.supersede(effect),
                State::UnderWay => match &mut entry.newer {
                    // It is sent with the first of the effects that wait, and keeps that number, for which a flush
                    // waits.
                    Some((waiting, _)) => waiting.supersede(effect),
                    None => entry.newer = Some((effect, number)),
                },
            },
        }
    }

    /// The next effect to send now, and the number of the try. [`Outbox::answered`] must follow.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Target, Effect, u32)> {
        while let Some((due, target)) = self.delayed.first()
            && *due <= now
        {
            let target = target.clone();
            self.delayed.pop_first();
            self.set_ready(target);
        }
        if self.n_under_way >= UNDER_WAY_MAX {
            return None;
        }
        let target = self.ready.pop_front()?;
        let entry = self.entries.get_mut(&target)?;
        entry.state = State::UnderWay;
        entry.n_tries += 1;
        self.n_under_way += 1;
        let (effect, n_tries) = (entry.effect.clone(), entry.n_tries);
        Some((target, effect, n_tries))
    }

    /// When the next request is due, if nothing else happens before.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let is_busy = self.n_under_way >= UNDER_WAY_MAX;
        self.delayed.first().filter(|_| !is_busy).map(|(due, _)| *due)
    }

    /// Handles the outcome of a request.
    pub(crate) fn answered(&mut self, target: Target, verdict: Verdict) {
        let Some(entry) = self.entries.get_mut(&target) else { return };
        self.n_under_way -= 1;
        let newer = entry.newer.take();
        match (verdict, newer) {
            (Verdict::GiveUp | Verdict::Sent, None) => drop(self.entries.remove(&target)),
            (Verdict::GiveUp | Verdict::Sent, Some((effect, number))) => {
                (entry.effect, entry.number, entry.n_tries) = (effect, number, 0);
                self.set_ready(target);
            }
            (Verdict::Again(due), newer) => {
                if let Some((effect, _)) = newer {
                    entry.effect.supersede(effect);
                }
                entry.state = State::Delayed;
                self.delayed.insert((due, target));
            }
            (Verdict::MakeAnew, newer) => {
                entry.effect.patch = None;
                if let Some((effect, _)) = newer {
                    entry.effect.supersede(effect);
                }
                self.set_ready(target);
            }
        }
    }

    /// Whether no more effects should be pushed.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= WAITING_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of effects pushed so far.
    pub(crate) fn n_pushed(&self) -> u64 {
        self.n_pushed
    }

    /// Whether the first `n` effects were sent or given up.
    pub(crate) fn is_done(&self, n: u64) -> bool {
        self.entries.values().all(|entry| entry.number > n)
    }

    fn set_ready(&mut self, target: Target) {
        if let Some(entry) = self.entries.get_mut(&target) {
            entry.state = State::Ready;
            self.ready.push_back(target);
        }
    }
}

impl Effect {
    /// Becomes `newer`, which contains this effect; but an event object that must still be created is created.
    fn supersede(&mut self, newer: Self) {
        let must_create = self.patch.is_none();
        *self = newer;
        if must_create {
            self.patch = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn effect(name: &str, count: u32) -> Effect {
        let patch = (count > 1).then(|| json!({"count": count}));
        Effect { namespace: "a".to_owned(), name: name.to_owned(), event: json!({"count": count}), patch }
    }

    /// The requests that are due now, as text.
    fn sent(outbox: &mut Outbox, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| outbox.next(now))
            .map(|((_, name), effect, n_tries)| {
                let verb = if effect.patch.is_some() { "patch" } else { "create" };
                format!("{verb} {name} {} try {n_tries}", effect.event["count"])
            })
            .collect()
    }

    fn target(name: &str) -> Target {
        ("a".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_waits_beside_the_others_and_grows_meanwhile() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        let later = now + Duration::from_secs(10);
        outbox.push(effect("x", 1));
        outbox.push(effect("y", 1));
        assert_eq!(sent(&mut outbox, now), ["create x 1 try 1", "create y 1 try 1"]);
        outbox.push(effect("x", 2));
        assert_eq!(sent(&mut outbox, now), [""; 0], "one request for each object");
        outbox.answered(target("y"), Verdict::Sent);
        outbox.answered(target("x"), Verdict::Again(later));
        outbox.push(effect("x", 3));
        outbox.push(effect("y", 2));
        assert_eq!(sent(&mut outbox, now), ["patch y 2 try 1"]);
        assert_eq!((outbox.next_due(), outbox.is_done(1), outbox.is_empty()), (Some(later), false, false));
        assert_eq!(sent(&mut outbox, later), ["create x 3 try 2"]);
        outbox.push(effect("x", 4));
        outbox.answered(target("x"), Verdict::Sent);
        assert!(outbox.is_done(1));
        assert_eq!(sent(&mut outbox, later), ["patch x 4 try 1"]);
        outbox.answered(target("x"), Verdict::MakeAnew);
        assert_eq!(sent(&mut outbox, later), ["create x 4 try 2"]);
        outbox.answered(target("x"), Verdict::GiveUp);
        outbox.answered(target("y"), Verdict::Sent);
        assert!(outbox.is_empty() && outbox.is_done(u64::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_behind_a_request_is_done_when_it_is_sent_however_often_it_grew() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        outbox.push(effect("x", 1));
        assert_eq!(sent(&mut outbox, now), ["create x 1 try 1"]);
        outbox.push(effect("x", 2));
        outbox.push(effect("x", 3));
        outbox.answered(target("x"), Verdict::Sent);
        assert!(outbox.is_done(1) && !outbox.is_done(2), "the second is still to be sent");
        assert_eq!(sent(&mut outbox, now), ["patch x 3 try 1"]);
        outbox.answered(target("x"), Verdict::Sent);
        assert!(outbox.is_done(3));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_under_way_and_events_that_wait_are_bounded() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        for number in 0..WAITING_MAX {
            assert!(!outbox.is_full());
            outbox.push(effect(&number.to_string(), 1));
        }
        assert!(outbox.is_full());
        assert_eq!(sent(&mut outbox, now).len(), UNDER_WAY_MAX);
        outbox.answered(target("0"), Verdict::Sent);
        assert_eq!(sent(&mut outbox, now), [format!("create {UNDER_WAY_MAX} 1 try 1")]);
    }
}
