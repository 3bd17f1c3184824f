//! Recent and running conversions: a stored object is converted once for all requests that need it at about the same
//! time.
//!
//! An object is identified by a digest of its content: its resourceVersion does not suffice, since a watch may show a
//! former state at the revision of a later one. Results are dropped after a few seconds, so that a repaired webhook is
//! called again, and earlier when they take too much memory.

use crate::shared::identity::digest_cache::{Digest, digest};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::converter::ConversionError;
use steersman_machinery::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// The maximum time for which a conversion is cached.
const KEPT: Duration = Duration::from_secs(10);
/// The maximum size of the cache: conversions, and the approximate bytes of their JSON together.
const KEPT_MAX: usize = 4096;
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The result of a conversion; `None` while it is running.
type Outcome = Option<Result<Arc<Value>, ConversionError>>;

/// Recent conversions of one definition.
#[derive(Default)]
pub(super) struct Recent(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    known: HashMap<Key, CachedConversion>,
    /// The keys in the order of their insertion, the oldest first.
    order: VecDeque<(Instant, Key)>,
    bytes: usize,
    under_way: HashMap<Key, watch::Receiver<Outcome>>,
}

struct CachedConversion {
    value: Arc<Value>,
    bytes: usize,
}

/// An object, and the version to which it is converted.
#[derive(Clone, Eq, Hash, PartialEq)]
struct Key {
    content: Digest,
    api_version: Box<str>,
}

/// How a caller gets a conversion.
pub(super) enum Lookup {
    Known(Arc<Value>),
    /// Another caller is converting the object: wait for the outcome.
    UnderWay(watch::Receiver<Outcome>),
    /// The caller must convert the object, and report the outcome.
    Yours(InFlight),
}

/// The obligation to report the outcome of a conversion. If it is dropped, the waiting callers start again.
pub(super) struct InFlight {
    recent: Arc<Mutex<State>>,
    key: Key,
    sender: watch::Sender<Outcome>,
}

impl Recent {
    pub(super) fn lookup(&self, object: &Value, api_version: &str) -> Lookup {
        // Serializing a tree cannot fail.
        let json = serde_json::to_vec(object).unwrap_or_default();
        let key = Key { content: digest(&json), api_version: api_version.into() };
        let mut state = self.0.lock();
        state.forget_old(Instant::now());
        if let Some(known) = state.known.get(&key) {
            return Lookup::Known(known.value.clone());
        }
        if let Some(receiver) = state.under_way.get(&key) {
            return Lookup::UnderWay(receiver.clone());
        }
        let (sender, receiver) = watch::channel(None);
        state.under_way.insert(key.clone(), receiver);
        Lookup::Yours(InFlight { recent: self.0.clone(), key, sender })
    }
}

impl InFlight {
    /// Reports the converted object, and caches it.
    pub(super) fn complete(self, value: &Value) {
        let value = Arc::new(value.clone());
        let known = CachedConversion { value: value.clone(), bytes: weight(&value) };
        self.recent.lock().insert(self.key.clone(), known, Instant::now());
        self.sender.send_replace(Some(Ok(value)));
    }

    /// Reports that the conversion failed.
    pub(super) fn fail(self, error: &ConversionError) {
        self.sender.send_replace(Some(Err(error.clone())));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.recent.lock().under_way.remove(&self.key);
    }
}

impl State {
    fn insert(&mut self, key: Key, known: CachedConversion, now: Instant) {
        self.bytes += known.bytes;
        self.order.push_back((now, key.clone()));
        if let Some(before) = self.known.insert(key, known) {
            self.bytes -= before.bytes;
        }
        while self.known.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some((_, oldest)) = self.order.pop_front() else { break };
            self.forget(&oldest);
        }
    }

    fn forget_old(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(at, _)| *at + KEPT <= now) {
            let Some((_, oldest)) = self.order.pop_front() else { break };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(known) = self.known.remove(key) {
            self.bytes -= known.bytes;
        }
    }
}

/// The approximate memory of a tree: nodes take more than their strings.
fn weight(value: &Value) -> usize {
    const NODE: usize = 48;
    NODE + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + NODE + weight(value)).sum(),
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(revision: usize) -> Value {
        json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"a": revision}})
    }

    fn convert(recent: &Recent, revision: usize) {
        match recent.lookup(&object(revision), "g/v2") {
            Lookup::Yours(in_flight) => in_flight.complete(&json!({"converted": revision})),
            Lookup::Known(_) | Lookup::UnderWay(_) => panic!("{revision} is new"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conversion_is_known_for_ten_seconds() {
        let recent = Recent::default();
        convert(&recent, 1);
        assert!(matches!(recent.lookup(&object(1), "g/v2"), Lookup::Known(value) if value["converted"] == 1));
        assert!(matches!(recent.lookup(&object(1), "g/v3"), Lookup::Yours(_)), "another version is another conversion");
        tokio::time::advance(KEPT).await;
        assert!(matches!(recent.lookup(&object(1), "g/v2"), Lookup::Yours(_)));
        assert_eq!(recent.0.lock().bytes, 0);
    }

    #[tokio::test]
    async fn who_comes_second_waits_for_the_first_and_begins_again_if_that_gives_up() {
        let recent = Recent::default();
        let first = recent.lookup(&object(1), "g/v2");
        let Lookup::UnderWay(mut second) = recent.lookup(&object(1), "g/v2") else { panic!("somebody is at it") };
        drop(first);
        assert!(second.wait_for(Option::is_some).await.is_err());
        convert(&recent, 1);
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let recent = Recent::default();
        (0..2 * KEPT_MAX).for_each(|revision| convert(&recent, revision));
        let state = recent.0.lock();
        assert_eq!(state.known.len(), KEPT_MAX);
        assert_eq!(state.order.len(), KEPT_MAX);
        assert!(state.under_way.is_empty());
    }
}
