//! A handler's view stays true, whatever is merged.

use std::collections::BTreeMap;

use proptest::prelude::{Strategy, proptest};
use serde::de::Error;

use super::*;

/// Any value will do; the mailbox never looks at it.
type Notices = Vec<Notice<u32>>;

fn key(number: u8) -> ObjectKey {
    ObjectKey::cluster(&number.to_string())
}

fn take_all(mailbox: &Mailbox<u32>) -> Notices {
    let mut all = Vec::new();
    loop {
        let mut batch = Vec::new();
        mailbox.state.lock().pop(&mut batch);
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.into_iter().map(|waiting| waiting.notice));
    }
}

fn value(cached: &Cached<u32>) -> u32 {
    **cached.decoded().expect("these tests pack nothing")
}

fn show(notice: &Notice<u32>) -> String {
    match notice {
        Notice::Added(new, _) => format!("+{}", value(new)),
        Notice::Deleted { object, .. } => {
            object.as_ref().map_or("-?".to_owned(), |object| format!("-{}", value(object)))
        }
        Notice::Synced => "synced".to_owned(),
        Notice::Undecodable(_) => "!".to_owned(),
        Notice::Updated { old, new } => format!("{}>{}", value(old), value(new)),
    }
}

fn added(new: u32) -> Notice<u32> {
    Notice::Added(Arc::new(new).into(), Arrival::Later)
}

fn updated(old: u32, new: u32) -> Notice<u32> {
    Notice::Updated { old: Arc::new(old).into(), new: Arc::new(new).into() }
}

fn deleted(object: u32) -> Notice<u32> {
    Notice::Deleted { object: Some(Arc::new(object).into()), finality: Finality::Reported }
}

fn undecodable() -> Notice<u32> {
    let source = serde_json::Error::custom("broken");
    let error = DecodeError { resource: String::new(), key: None, resource_version: String::new(), source };
    Notice::Undecodable(Arc::new(error))
}

#[track_caller]
fn check(bound: usize, notices: Vec<(u8, Notice<u32>)>, expected: &[&str]) {
    let mailbox = Mailbox::new(bound);
    for (number, notice) in notices {
        mailbox.push(Some(key(number)), notice);
    }
    assert_eq!(mailbox.n_waiting(), expected.len());
    assert_eq!(take_all(&mailbox).iter().map(show).collect::<Vec<_>>(), expected);
}

#[test]
fn below_the_bound_every_event_is_kept_in_order() {
    check(10, vec![(1, added(1)), (1, updated(1, 2)), (1, deleted(2)), (1, added(3))], &["+1", "1>2", "-2", "+3"]);
}

#[test]
fn at_the_bound_the_events_of_one_object_become_one() {
    check(1, vec![(1, added(1)), (1, updated(1, 2)), (1, updated(2, 3))], &["+3"]);
    check(1, vec![(1, updated(1, 2)), (1, updated(2, 3)), (1, updated(3, 3))], &["1>3"]);
    check(1, vec![(1, updated(1, 2)), (1, deleted(3))], &["-3"]);
    check(1, vec![(1, deleted(1)), (1, added(2)), (1, updated(2, 3))], &["-1", "+3"]);
    check(1, vec![(2, added(9)), (1, added(1)), (1, deleted(1))], &["+9"]);
    check(1, vec![(1, updated(1, 2)), (1, undecodable())], &["1>2"]);
    check(1, vec![(1, undecodable()), (1, undecodable()), (1, updated(2, 3))], &["2>3"]);
}

#[test]
fn a_stuck_handler_costs_memory_for_objects_and_not_for_events() {
    let mailbox = Mailbox::new(4);
    for round in 0..10_000 {
        let number = (round % 3) as u8;
        mailbox.push(Some(key(number)), added(round));
        mailbox.push(Some(key(number)), updated(round, round + 1));
        mailbox.push(Some(key(number)), deleted(round + 1));
    }
    let state = mailbox.state.lock();
    assert!(state.n_waiting <= 4 + 2 * 3 && state.slots.len() < 100, "{} of {}", state.n_waiting, state.slots.len());
}

/// What the world does, and now and then the handler takes a batch.
fn world() -> impl Strategy<Value = Vec<(u8, u8)>> {
    proptest::collection::vec((0..5_u8, 0..5_u8), 0..300)
}

proptest! {
    #[test]
    fn a_handler_that_mirrors_what_it_hears_ends_with_what_is(steps in world(), bound in 1_usize..40) {
        let mailbox = Mailbox::new(bound);
        let mut world: BTreeMap<u8, u32> = BTreeMap::new();
        let mut mirror: BTreeMap<u32, u32> = BTreeMap::new();
        // Values carry their object: 1000 * number + version.
        let mut hear = |notices: Notices| {
            for notice in notices {
                match notice {
                    Notice::Added(new, _) => {
                        let new = value(&new);
                        assert_eq!(mirror.insert(new / 1000, new), None, "heard of it before");
                    }
                    Notice::Updated { old, new } => {
                        let (old, new) = (value(&old), value(&new));
                        assert_eq!(mirror.insert(new / 1000, new), Some(old), "old is not what was heard last");
                    }
                    Notice::Deleted { object, .. } => {
                        let object = object.as_ref().map(value);
                        assert!(object.is_some_and(|object| mirror.remove(&(object / 1000)).is_some()), "never heard of it");
                    }
                    _ => {}
                }
            }
        };
        let mut version = 0;
        for (number, what) in steps {
            version += 1;
            let value = 1000 * u32::from(number) + version;
            let present = world.get(&number).copied();
            let notice = match (what, present) {
                (0 | 1, None) => {
                    world.insert(number, value);
                    added(value)
                }
                (0 | 1, Some(old)) => {
                    world.insert(number, value);
                    updated(old, value)
                }
                (2, Some(old)) => {
                    world.remove(&number);
                    deleted(old)
                }
                (3, Some(_)) => undecodable(),
                (4, _) => {
                    let mut batch = Vec::new();
                    mailbox.state.lock().pop(&mut batch);
                    hear(batch.into_iter().map(|waiting| waiting.notice).collect());
                    continue;
                }
                _ => continue,
            };
            mailbox.push(Some(key(number)), notice);
        }
        hear(take_all(&mailbox));
        let world: BTreeMap<u32, u32> = world.into_iter().map(|(number, value)| (u32::from(number), value)).collect();
        assert_eq!(mirror, world);
    }
}
