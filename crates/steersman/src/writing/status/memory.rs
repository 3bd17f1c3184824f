//! The statuses that a writer has written and that a cache may not have yet.
//!
//! Bounded: [`OBJECTS_MAX`] objects, each with the last answered write and at most [`UNANSWERED_MAX`] later ones. An
//! entry is removed when the object is read with that write. Beyond the bound the oldest entry is dropped: the next
//! write of that object is compared with the state that was read, as if nothing had been written.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde_json::Value;

use crate::control::consistency::{is_at_least, is_version};
use crate::shared::key::ObjectKey;

const OBJECTS_MAX: usize = 10_000;
const UNANSWERED_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_key: HashMap<ObjectKey, Entry>,
    /// The same keys by the numbers of their entries.
    by_number: BTreeMap<u64, ObjectKey>,
    next_number: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    /// The uid of the written object.
    uid: String,
    /// The status after the last write that was answered, with its version.
    answered: Option<Answered>,
    /// The statuses sent since: the server may have each of them or not.
    unanswered: VecDeque<Value>,
}

/// The server's answer to a write.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) version: String,
    pub(super) status: Value,
}

/// The object that the writer has read.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRead<'a> {
    pub(super) uid: &'a str,
    pub(super) version: &'a str,
    pub(super) status: &'a Value,
}

impl Memory {
    /// Every status that the server may have, if `known` was read of the object at `key`.
    pub(super) fn possible(&self, key: &ObjectKey, known: LastRead<'_>) -> Vec<Value> {
        let mut state = self.state.lock();
        let Some(entry) = state.by_key.get_mut(key) else { return vec![known.status.clone()] };
        let mut possible = Vec::new();
        let includes_answered = entry
            .answered
            .as_ref()
            .is_none_or(|answered| known.version == answered.version || is_at_least(known.version, &answered.version));
        let is_comparable =
            entry.answered.as_ref().is_some_and(|answered| is_version(known.version) && is_version(&answered.version));
        if entry.uid != known.uid || (includes_answered && entry.unanswered.is_empty()) {
            state.remove(key);
            return vec![known.status.clone()];
        }
        if includes_answered {
            entry.answered = None;
        }
        if includes_answered || !is_comparable {
            possible.push(known.status.clone());
        }
        possible.extend(entry.answered.iter().map(|answered| answered.status.clone()));
        possible.extend(entry.unanswered.iter().cloned());
        possible
    }

    /// Records that `status` is about to be sent. It counts as unanswered until `done` or `refused` is called.
    pub(super) fn sending(&self, key: &ObjectKey, uid: &str, status: Value) {
        let mut state = self.state.lock();
        let entry = state.entry(key, uid);
        entry.unanswered.push_back(status);
        if entry.unanswered.len() > UNANSWERED_MAX {
            entry.unanswered.pop_front();
        }
    }

    /// Records that the last write was done.
    pub(super) fn done(&self, key: &ObjectKey, uid: &str, answered: Answered) {
        let mut state = self.state.lock();
        let entry = state.entry(key, uid);
        // Earlier writes without an answer can no longer be done.
        entry.unanswered.clear();
        entry.answered = Some(answered);
    }

    /// Records that the last write was refused.
    pub(super) fn refused(&self, key: &ObjectKey) {
        let mut state = self.state.lock();
        let Some(entry) = state.by_key.get_mut(key) else { return };
        entry.unanswered.pop_back();
        if entry.answered.is_none() && entry.unanswered.is_empty() {
            state.remove(key);
        }
    }
}

impl State {
    /// The entry of the object with this uid, a new one if need be.
    fn entry(&mut self, key: &ObjectKey, uid: &str) -> &mut Entry {
        if self.by_key.get(key).is_some_and(|entry| entry.uid != uid) {
            self.remove(key);
        }
        if !self.by_key.contains_key(key) {
            if self.by_key.len() >= OBJECTS_MAX
                && let Some((_, oldest)) = self.by_number.pop_first()
            {
                self.by_key.remove(&oldest);
            }
            self.by_number.insert(self.next_number, key.clone());
        }
        let number = self.next_number;
        self.next_number += 1;
        self.by_key.entry(key.clone()).or_insert_with(|| Entry {
            number,
            uid: uid.to_owned(),
            answered: None,
            unanswered: VecDeque::new(),
        })
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.by_key.remove(key) {
            self.by_number.remove(&entry.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known<'a>(version: &'a str, status: &'a Value) -> LastRead<'a> {
        LastRead { uid: "u", version, status }
    }

    #[test]
    fn objects_beyond_the_bound_are_forgotten_and_the_oldest_first() {
        let memory = Memory::default();
        let key = |number: usize| ObjectKey::cluster(&number.to_string());
        for number in 0..=OBJECTS_MAX {
            memory.done(&key(number), "u", Answered { version: "9".to_owned(), status: json!(number) });
        }
        assert_eq!(memory.possible(&key(0), known("1", &json!("read"))), [json!("read")]);
        assert_eq!(memory.possible(&key(1), known("1", &json!("read"))), [json!(1)]);
        // The entry is dropped when the object is read with the write.
        assert_eq!(memory.possible(&key(1), known("9", &json!("read"))), [json!("read")]);
        let state = memory.state.lock();
        assert_eq!((state.by_key.len(), state.by_number.len()), (OBJECTS_MAX - 1, OBJECTS_MAX - 1));
    }

    #[test]
    fn versions_that_are_no_numbers_tell_nothing_but_equality() {
        let (memory, key) = (Memory::default(), ObjectKey::cluster("a"));
        memory.done(&key, "u", Answered { version: "b".to_owned(), status: json!("written") });
        assert_eq!(memory.possible(&key, known("c", &json!("read"))), [json!("read"), json!("written")]);
        assert_eq!(memory.possible(&key, known("b", &json!("read"))), [json!("read")]);
        assert_eq!(memory.possible(&key, known("c", &json!("read"))), [json!("read")]);
    }
}
