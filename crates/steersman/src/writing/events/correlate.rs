//! Decides whether an event becomes a new event object, counts on a known one, or is dropped.
//!
//! The figures are those of client-go's `tools/record/events_cache.go`. A state machine: the caller has the clock.
//!
//! Events are remembered long after they are sent, thousands of them for each recorder. So the tables have hashes in place of texts, which
//! would be a dozen small allocations for an event, spread over the whole heap.

use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use crate::writing::events::recent::Recent;
use crate::writing::events::{Effect, RecordedEvent};

/// From this many different messages on, similar events are combined.
const SIMILAR_MAX: usize = 10;
/// Events further apart than this are not similar.
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// The budget for events of one type about one object: this many at once, then one each [`REFILL`].
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// The events sent so far.
#[derive(Debug)]
pub(crate) struct Correlator {
    component: String,
    /// The host on which the component runs, if that matters.
    host: Option<String>,
    hashers: [RandomState; 2],
    /// Events by their content: subject, part of the object (`fieldPath`), and message.
    known: Recent<Digest, Counted>,
    /// Messages of events that differ only in the message, by the object, type and reason.
    similar: Recent<Digest, Messages>,
    /// When the budget for an object's events of a type will be full again.
    budgets: Recent<Digest, Instant>,
}

/// A hash in place of a key: with 128 bits and random seeds, no two different keys have the same one.
type Digest = u128;

/// An event that was recorded, with its count so far.
#[derive(Debug)]
struct Counted {
    /// The name of the event object.
    name: Box<str>,
    count: i32,
    first: Timestamp,
    /// The event was sent to the server at least once. Until then the budget did not allow it.
    is_told: bool,
}

/// Hashes of different messages, of the first [`SIMILAR_MAX`] ones.
#[derive(Debug, Default)]
struct Messages {
    hashes: [u32; SIMILAR_MAX],
    len: u8,
}

impl Correlator {
    pub(crate) fn new(component: &str) -> Self {
        Self {
            component: component.to_owned(),
            host: None,
            hashers: [RandomState::new(), RandomState::new()],
            known: Recent::new(),
            similar: Recent::new(),
            budgets: Recent::new(),
        }
    }

    pub(crate) fn on_host(self, host: &str) -> Self {
        Self { host: Some(host.to_owned()), ..self }
    }

    pub(crate) fn step(&mut self, now: Instant, mut note: RecordedEvent) -> Option<Effect> {
        let reference = &note.object;
        let [kind, namespace, name, uid, part] =
            [&reference.kind, &reference.namespace, &reference.name, &reference.uid, &reference.field_path]
                .map(|field| field.as_deref().unwrap_or_default());
        let object = (kind, namespace, name, uid, note.event_type.as_str());
        let about = self.digest(&object);
        let subject = self.digest(&(object, &note.reason));
        let message = self.digest(&note.message);

        let (last, messages) = self.similar.entry(now, subject, Messages::default);
        if now.duration_since(last) > SIMILAR_WINDOW {
            *messages = Messages::default();
        }
        let is_combined = messages.add(message) >= SIMILAR_MAX;
        let identity = match is_combined {
            true => subject,
            false => self.digest(&(object, &note.reason, part, &note.message)),
        };
        if is_combined {
            note.message = format!("(combined from similar events): {}", note.message);
        }

        let (_, counted) = self.known.entry(now, identity, || Counted {
            name: note.name().into(),
            count: 0,
            first: note.at,
            is_told: false,
        });
        counted.count = counted.count.saturating_add(1);

        // Events that are cut are counted all the same: the next one that is sent has the whole count.
        let (_, full_at) = self.budgets.entry(now, about, || now);
        let new_full_at = (*full_at).max(now) + REFILL;
        if new_full_at.duration_since(now) > REFILL * BURST {
            return None;
        }
        *full_at = new_full_at;

        let is_told = std::mem::replace(&mut counted.is_told, true);
        let event = event(&self.component, self.host.as_deref(), note, counted);
        if !is_told {
            return Some(Effect::create(&event.metadata, &event));
        }
        let patch = json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
        Some(Effect::count(&event.metadata, &event, patch))
    }

    fn digest(&self, value: &impl Hash) -> Digest {
        let [high, low] = self.hashers.each_ref().map(|hasher| u128::from(hasher.hash_one(value)));
        high << 64 | low
    }
}

impl Messages {
    /// Adds a message, if there is room, and returns how many different ones there are.
    fn add(&mut self, message: Digest) -> usize {
        let (hash, len) = (message as u32, usize::from(self.len));
        if len < SIMILAR_MAX && !self.hashes[..len].contains(&hash) {
            self.hashes[len] = hash;
            self.len += 1;
        }
        usize::from(self.len)
    }
}

/// The event object for the newest of the events that it counts.
fn event(component: &str, host: Option<&str>, note: RecordedEvent, counted: &Counted) -> Event {
    Event {
        metadata: note.metadata(counted.name.to_string()),
        involved_object: note.object,
        type_: Some(note.event_type.as_str().to_owned()),
        reason: Some(note.reason),
        message: Some(note.message),
        count: Some(counted.count),
        first_timestamp: Some(Time(counted.first)),
        last_timestamp: Some(Time(note.at)),
        source: Some(EventSource { component: Some(component.to_owned()), host: host.map(str::to_owned) }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: host.map(str::to_owned),
        action: note.action,
        related: note.related,
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::writing::events::EventType;
    use crate::writing::events::recent::REMEMBERED_MAX;

    fn note(name: &str, message: &str) -> RecordedEvent {
        let object = ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
        RecordedEvent {
            object,
            related: None,
            action: None,
            event_type: EventType::Normal,
            reason: "Created".to_owned(),
            message: message.to_owned(),
            at: Timestamp::from_second(1).unwrap(),
        }
    }

    fn summary(effect: Option<Effect>) -> String {
        let text = |event: &serde_json::Value| event["message"].as_str().map(str::to_owned).unwrap_or_default();
        match effect {
            None => "nothing".to_owned(),
            Some(Effect { patch: Some(_), event, .. }) => format!("{}x {}", event["count"], text(&event)),
            Some(Effect { event, .. }) => format!("new {}", text(&event)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn equal_events_are_counted_and_different_ones_are_not() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        let mut step = |name: &str, message: &str| summary(correlator.step(now, note(name, message)));
        assert_eq!(step("a", "one"), "new one");
        assert_eq!(step("a", "one"), "2x one");
        assert_eq!(step("a", "two"), "new two");
        assert_eq!(step("b", "one"), "new one");
        assert_eq!(step("a", "one"), "3x one");
        let mut empty = note("a", "one");
        empty.object.namespace = Some(String::new());
        assert_eq!(summary(correlator.step(now, empty)), "4x one", "an empty namespace is an absent one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_counted_event_keeps_its_name_and_the_time_of_the_first() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        let first = correlator.step(now, note("a", "one")).unwrap();
        let later = RecordedEvent { at: Timestamp::from_second(60).unwrap(), ..note("a", "one") };
        let second = correlator.step(now, later).unwrap();
        assert_eq!((&second.name, &second.namespace), (&first.name, &first.namespace));
        assert_eq!(second.event["metadata"], first.event["metadata"]);
        assert_eq!(second.event["firstTimestamp"], first.event["firstTimestamp"]);
        assert_eq!(second.event["lastTimestamp"], json!("1970-01-01T00:01:00Z"));
    }

    #[tokio::test(start_paused = true)]
    async fn equal_events_of_two_parts_of_an_object_are_counted_each() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        let mut step = |part: &str| {
            let mut note = note("a", "Pulled");
            note.object.field_path = Some(format!("spec.containers{{{part}}}"));
            let effect = correlator.step(now, note).unwrap();
            (effect.event["involvedObject"]["fieldPath"].to_string(), effect.event["count"].clone())
        };
        let (first, second) = ("\"spec.containers{first}\"".to_owned(), "\"spec.containers{second}\"".to_owned());
        assert_eq!(step("first"), (first.clone(), json!(1)));
        assert_eq!(step("second"), (second, json!(1)));
        assert_eq!(step("first"), (first, json!(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_normal_events_cuts_no_warnings() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        let last = (0..100).map(|_| correlator.step(now, note("a", "m"))).last();
        assert_eq!(last, Some(None));
        let warning = RecordedEvent { event_type: EventType::Warning, ..note("a", "m") };
        assert!(correlator.step(now, warning).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn similar_events_are_combined_from_the_tenth_on() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        let steps: Vec<String> = (1..=11).map(|i| summary(correlator.step(now, note("a", &format!("m{i}"))))).collect();
        assert_eq!(
            steps[8..],
            ["new m9", "new (combined from similar events): m10", "2x (combined from similar events): m11"]
        );
        let later = now + SIMILAR_WINDOW + Duration::from_secs(1);
        assert_eq!(summary(correlator.step(later, note("a", "m12"))), "new m12");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_about_one_object_is_cut_and_others_are_heard() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        let n_sent = (0..100).filter(|_| correlator.step(now, note("a", "m")).is_some()).count();
        assert_eq!(n_sent, 25);
        assert!(correlator.step(now, note("b", "m")).is_some());
        assert!(correlator.step(now + REFILL, note("a", "m")).is_some());
        assert!(correlator.step(now + REFILL, note("a", "m")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_flood_cut_is_counted_by_the_next_that_is_sent() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        for _ in 0..100 {
            correlator.step(now, note("a", "m"));
        }
        assert_eq!(correlator.step(now, note("a", "other")), None);
        assert_eq!(summary(correlator.step(now + REFILL, note("a", "m"))), "101x m");
        let other = correlator.step(now + REFILL * 2, note("a", "other")).unwrap();
        assert_eq!((&other.event["count"], &other.patch), (&json!(2), &None), "the server does not have it yet");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let (mut correlator, now) = (Correlator::new("x"), Instant::now());
        for i in 0..3 * REMEMBERED_MAX {
            correlator.step(now, note(&i.to_string(), "m"));
        }
        assert!(correlator.known.entries.len() <= REMEMBERED_MAX);
        assert!(correlator.budgets.entries.len() <= REMEMBERED_MAX);
    }
}
