//! A handler gets every state that a reader can have seen, and the mailbox is full when too many events wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::{Strategy, proptest};
use serde::de::Error;

use super::*;
use crate::cache::cached::Cached;
use crate::cache::outcome::{Arrival, Finality};
use crate::list_watch::delta::Entry;
use crate::shared::decode_error::DecodeError;

/// Any value type will do; the mailbox never looks at values.
type Outcomes = Vec<Outcome<u32>>;

fn key(number: u8) -> ObjectKey {
    ObjectKey::cluster(&number.to_string())
}

fn take_all(mailbox: &Mailbox<u32>) -> Outcomes {
    let mut all = Vec::new();
    loop {
        let mut batch = Vec::new();
        if mailbox.pop_at_most(BATCH_MAX, &mut batch).is_none() {
            return all;
        }
        all.append(&mut batch);
    }
}

fn value(cached: &Cached<u32>) -> u32 {
    **cached.decoded().expect("these tests pack nothing")
}

fn show(outcome: &Outcome<u32>) -> String {
    match outcome {
        Outcome::Added(entry, _) => format!("+{}", value(&entry.object)),
        Outcome::Deleted { object, .. } => {
            object.as_ref().map_or("-?".to_owned(), |object| format!("-{}", value(object)))
        }
        Outcome::Filled => "synced".to_owned(),
        Outcome::Undecodable(_) => "!".to_owned(),
        Outcome::Updated { old, new, .. } => format!("{}>{}", value(old), value(new)),
    }
}

fn added(new: u32) -> Outcome<u32> {
    Outcome::Added(Entry { key: ObjectKey::cluster(""), object: Arc::new(new).into() }, Arrival::Later)
}

fn updated(old: u32, new: u32) -> Outcome<u32> {
    Outcome::Updated { key: ObjectKey::cluster(""), old: Arc::new(old).into(), new: Arc::new(new).into() }
}

fn resync(object: u32) -> Outcome<u32> {
    let object: Cached<u32> = Arc::new(object).into();
    Outcome::Updated { key: ObjectKey::cluster(""), old: object.clone(), new: object }
}

fn deleted(object: u32) -> Outcome<u32> {
    Outcome::Deleted {
        key: ObjectKey::cluster(""),
        object: Some(Arc::new(object).into()),
        finality: Finality::Reported,
    }
}

fn undecodable() -> Outcome<u32> {
    let source = serde_json::Error::custom("broken");
    let error = DecodeError { resource: String::new(), key: None, resource_version: String::new(), source };
    Outcome::Undecodable(Arc::new(error))
}

/// The outcome for the object with this number.
fn about(number: u8, outcome: Outcome<u32>) -> Outcome<u32> {
    let key = key(number);
    match outcome {
        Outcome::Added(entry, arrival) => Outcome::Added(Entry { key, ..entry }, arrival),
        Outcome::Deleted { object, finality, .. } => Outcome::Deleted { key, object, finality },
        Outcome::Filled => Outcome::Filled,
        Outcome::Undecodable(_) => {
            let source = serde_json::Error::custom("broken");
            let (resource, resource_version) = (String::new(), String::new());
            Outcome::Undecodable(Arc::new(DecodeError { resource, key: Some(key), resource_version, source }))
        }
        Outcome::Updated { old, new, .. } => Outcome::Updated { key, old, new },
    }
}

/// Pushes batches of events, each with the number of its object.
fn push_all(mailbox: &Mailbox<u32>, batches: Vec<Vec<(u8, Outcome<u32>)>>) {
    for (number, batch) in (1..).zip(batches) {
        mailbox.push(number, batch.into_iter().map(|(number, outcome)| about(number, outcome)));
    }
}

#[track_caller]
fn check(bound: usize, batches: Vec<Vec<(u8, Outcome<u32>)>>, expected: &[&str]) {
    let mailbox = Mailbox::new(bound);
    push_all(&mailbox, batches);
    assert_eq!(mailbox.n_waiting(), expected.len());
    assert_eq!(take_all(&mailbox).iter().map(show).collect::<Vec<_>>(), expected);
}

#[test]
fn below_the_bound_every_event_is_kept_in_order() {
    let batch = vec![(1, added(1)), (1, updated(1, 2)), (1, deleted(2)), (1, added(3)), (1, resync(3))];
    check(10, vec![batch], &["+1", "1>2", "-2", "+3", "3>3"]);
}

#[test]
fn at_the_bound_states_that_nobody_can_have_read_are_left_out() {
    let first = || vec![(9, added(9))];
    let batch = vec![(1, added(1)), (1, updated(1, 2)), (1, updated(2, 3))];
    check(1, vec![first(), batch], &["+9", "+3"]);
    check(1, vec![first(), vec![(1, updated(1, 2)), (1, updated(2, 3))]], &["+9", "1>3"]);
}

#[test]
fn at_the_bound_a_state_that_was_in_the_cache_is_kept() {
    check(1, vec![vec![(1, updated(1, 2))], vec![(1, updated(2, 3))]], &["1>2", "2>3"]);
    check(1, vec![vec![(1, added(1))], vec![(1, updated(1, 2))], vec![(1, deleted(2))]], &["+1", "1>2", "-2"]);
}

#[test]
fn what_appears_and_is_gone_again_is_told_even_if_nobody_can_have_read_it() {
    let first = || vec![(9, added(9))];
    check(1, vec![first(), vec![(1, added(1)), (1, deleted(1))]], &["+9", "+1", "-1"]);
    check(1, vec![first(), vec![(1, updated(1, 2)), (1, deleted(2)), (1, added(3))]], &["+9", "1>2", "-2", "+3"]);
    check(
        1,
        vec![first(), vec![(1, updated(1, 2)), (1, undecodable()), (1, updated(2, 3))]],
        &["+9", "1>2", "!", "2>3"],
    );
}

#[test]
fn a_resync_of_what_waits_anyway_is_left_out_at_the_bound() {
    check(1, vec![vec![(1, updated(1, 2))], vec![(1, resync(2)), (2, resync(7))]], &["1>2", "7>7"]);
}

#[test]
fn one_event_for_each_object_that_exists_is_never_too_much() {
    let mailbox = Mailbox::new(2);
    push_all(&mailbox, vec![(0..100).map(|number| (number, added(1))).collect()]);
    assert!(!mailbox.is_full());
    mailbox.push(2, std::iter::once(about(1, updated(1, 2))));
    assert!(!mailbox.is_full());
    mailbox.push(3, std::iter::once(about(1, updated(2, 3))));
    assert!(mailbox.is_full(), "two states that the cache no longer has");
    take_all(&mailbox);
    assert!(!mailbox.is_full());
    let gone = (0..2).flat_map(|number| [(number, added(1)), (number, deleted(1))]).collect();
    push_all(&mailbox, vec![gone]);
    assert!(mailbox.is_full(), "two objects that are gone");
}

#[test]
fn a_handler_that_is_stuck_and_gone_holds_up_nobody() {
    let mailbox = Mailbox::new(1);
    push_all(&mailbox, vec![vec![(1, added(1))], vec![(1, updated(1, 2))]]);
    assert!(mailbox.is_full());
    mailbox.discard();
    assert!(!mailbox.is_full());
    push_all(&mailbox, vec![vec![(1, added(1))], vec![(1, updated(1, 2))]]);
    assert!(!mailbox.is_full() && mailbox.n_waiting() == 0);
}

/// Changes at the server with their batches, and now and then the handler takes some.
fn world() -> impl Strategy<Value = Vec<(u8, u8)>> {
    proptest::collection::vec((0..5_u8, 0..6_u8), 0..300)
}

proptest! {
    #[test]
    fn a_handler_hears_a_true_story_of_every_state_that_ended_a_batch(steps in world(), bound in 1_usize..40) {
        let mailbox = Mailbox::new(bound);
        let mut world: BTreeMap<u8, u32> = BTreeMap::new();
        let mut mirror: BTreeMap<u32, u32> = BTreeMap::new();
        let mut heard: BTreeSet<u32> = BTreeSet::new();
        // Values contain their object: 1000 * number + version.
        let mut hear = |outcomes: Outcomes| {
            for outcome in outcomes {
                match outcome {
                    Outcome::Added(entry, _) => {
                        let new = value(&entry.object);
                        heard.insert(new);
                        assert_eq!(mirror.insert(new / 1000, new), None, "heard of it before");
                    }
                    Outcome::Updated { old, new, .. } => {
                        let (old, new) = (value(&old), value(&new));
                        heard.insert(new);
                        assert_eq!(mirror.insert(new / 1000, new), Some(old), "old is not what was heard last");
                    }
                    Outcome::Deleted { object, .. } => {
                        let object = object.as_ref().map(value);
                        assert!(object.is_some_and(|object| mirror.remove(&(object / 1000)).is_some()), "never heard of it");
                    }
                    _ => {}
                }
            }
        };
        let (mut version, mut batch, mut number, mut shown) = (0, Vec::new(), 0, BTreeSet::new());
        for (object, what) in steps {
            version += 1;
            let value = 1000 * u32::from(object) + version;
            let present = world.get(&object).copied();
            let outcome = match (what, present) {
                (0 | 1, None) => {
                    world.insert(object, value);
                    added(value)
                }
                (0 | 1, Some(old)) => {
                    world.insert(object, value);
                    updated(old, value)
                }
                (2, Some(old)) => {
                    world.remove(&object);
                    deleted(old)
                }
                (3, Some(_)) => undecodable(),
                (4, _) => {
                    let mut taken = Vec::new();
                    mailbox.pop_at_most(BATCH_MAX, &mut taken);
                    hear(taken);
                    continue;
                }
                (5, _) => {
                    number += 1;
                    mailbox.push(number, batch.drain(..));
                    shown.extend(world.values().copied());
                    continue;
                }
                _ => continue,
            };
            batch.push(about(object, outcome));
        }
        mailbox.push(number + 1, batch.drain(..));
        shown.extend(world.values().copied());
        hear(take_all(&mailbox));
        let world: BTreeMap<u32, u32> = world.into_iter().map(|(number, value)| (u32::from(number), value)).collect();
        assert_eq!(mirror, world);
        assert!(shown.is_subset(&heard), "never told of {:?}", shown.difference(&heard).collect::<Vec<_>>());
    }
}

#[test]
fn a_mailbox_that_was_full_gives_its_room_back() {
    let mailbox = Mailbox::new(usize::MAX);
    mailbox.push(1, (0..100_000).map(added));
    assert_eq!(take_all(&mailbox).len(), 100_000);
    let room = mailbox.state.lock().events.capacity();
    assert!(room <= 2_048, "{room} places for no event");
}
