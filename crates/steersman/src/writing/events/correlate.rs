//! Decides whether an event becomes a new event object, counts on a known one, or is dropped.
//!
//! The figures are those of client-go's `tools/record/events_cache.go`. A state machine: the caller has the clock.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
    /// Events by their content: subject, part of the object (`fieldPath`), and message.
    known: Recent<(EventKey, String, String), Counted>,
    /// Messages of events that differ only in the message.
    similar: Recent<EventKey, HashSet<String>>,
    /// When the budget for an object's events of a type will be full again.
    budgets: Recent<(Object, &'static str), Instant>,
}

/// An event with its count so far.
#[derive(Debug, Default)]
struct Counted {
    // In a box: a table has room for more entries than it holds.
    event: Box<Event>,
    /// The event was sent to the server at least once. Until then the budget did not allow it.
    is_told: bool,
}

/// The object that an event is about.
type Object = (String, String, String, String);
/// The object, type and reason of an event, without its message.
type EventKey = (Object, &'static str, String);

impl Correlator {
    pub(crate) fn new(component: &str) -> Self {
        Self {
            component: component.to_owned(),
            host: None,
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
        let object: Object = (
            reference.kind.clone().unwrap_or_default(),
            reference.namespace.clone().unwrap_or_default(),
            reference.name.clone().unwrap_or_default(),
            reference.uid.clone().unwrap_or_default(),
        );
        let event_type = note.event_type.as_str();
        let subject: EventKey = (object.clone(), event_type, note.reason.clone());

        let (last, messages) = self.similar.entry(now, subject.clone(), HashSet::new);
        if now.duration_since(last) > SIMILAR_WINDOW {
            messages.clear();
        }
        if messages.len() < SIMILAR_MAX {
            messages.insert(note.message.clone());
        }
        let is_combined = messages.len() >= SIMILAR_MAX;
        let part = reference.field_path.clone().unwrap_or_default();
        let identity =
            if is_combined { (subject, String::new(), String::new()) } else { (subject, part, note.message.clone()) };
        if is_combined {
            note.message = format!("(combined from similar events): {}", note.message);
        }

        let (_, counted) = self.known.entry(now, identity, Counted::default);
        let event = &mut counted.event;
        if event.metadata.name.is_none() {
            **event = first(&self.component, self.host.as_deref(), &note);
        } else {
            event.count = Some(event.count.unwrap_or(1).saturating_add(1));
            event.last_timestamp = Some(Time(note.at));
            event.message = Some(note.message);
        }

        // Events that are cut are counted all the same: the next one that is sent has the whole count.
        let (_, full_at) = self.budgets.entry(now, (object, event_type), || now);
        let new_full_at = (*full_at).max(now) + REFILL;
        if new_full_at.duration_since(now) > REFILL * BURST {
            return None;
        }
        *full_at = new_full_at;

        if !std::mem::replace(&mut counted.is_told, true) {
            return Some(Effect::create(&event.metadata, event));
        }
        let patch = json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
        Some(Effect::count(&event.metadata, event, patch))
    }
}

fn first(component: &str, host: Option<&str>, note: &RecordedEvent) -> Event {
    Event {
        metadata: note.metadata(),
        involved_object: note.object.clone(),
        type_: Some(note.event_type.as_str().to_owned()),
        reason: Some(note.reason.clone()),
        message: Some(note.message.clone()),
        count: Some(1),
        first_timestamp: Some(Time(note.at)),
        last_timestamp: Some(Time(note.at)),
        source: Some(EventSource { component: Some(component.to_owned()), host: host.map(str::to_owned) }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: host.map(str::to_owned),
        action: note.action.clone(),
        related: note.related.clone(),
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
