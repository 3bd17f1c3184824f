//! Decides how an event of `events.k8s.io` is sent: the first one is an event object, the second begins a series on it,
//! and later ones are counted here and written to the server now and then.
//!
//! The figures are those of client-go's `tools/events/event_broadcaster.go`. A state machine: the caller has the clock.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;
use tokio::time::Instant;

use crate::writing::events::recent::Recent;
use crate::writing::events::{Effect, RecordedEvent};

/// How often the count of a series is written to the server.
const REFRESH: Duration = Duration::from_secs(1_800);
/// How long after its last event a series is over.
const SILENCE: Duration = Duration::from_secs(360);
/// The longest note that the API allows, in bytes.
const NOTE_BYTES_MAX: usize = 1_024;

/// The events sent so far, and their series.
#[derive(Debug)]
pub(crate) struct Series {
    controller: String,
    instance: String,
    known: Recent<Identity, SentEvent>,
}

/// All fields of an event but its note.
type Identity = (String, String, String, [String; 6], [String; 6]);

#[derive(Debug)]
struct SentEvent {
    event: Event,
    /// When the count was last sent.
    told: Instant,
    /// The last count was not sent.
    is_behind: bool,
}

impl Series {
    pub(crate) fn new(controller: &str, instance: &str) -> Self {
        Self { controller: controller.to_owned(), instance: instance.to_owned(), known: Recent::new() }
    }

    pub(crate) fn step(&mut self, now: Instant, note: RecordedEvent) -> Option<Effect> {
        let action = note.action.clone().unwrap_or_else(|| note.reason.clone());
        let identity = (
            note.event_type.as_str().to_owned(),
            action.clone(),
            note.reason.clone(),
            identity_of(&note.object),
            note.related.as_ref().map(identity_of).unwrap_or_default(),
        );
        let is_known = self.known.entries.get(&identity).is_some_and(|(used, _)| now.duration_since(*used) < SILENCE);
        let at = MicroTime(note.at);
        let (_, known) =
            self.known.entry(now, identity, || SentEvent { event: Event::default(), told: now, is_behind: false });
        if !is_known {
            *known =
                SentEvent { event: first(&self.controller, &self.instance, action, note), told: now, is_behind: false };
            return Some(Effect::create(&known.event.metadata, &known.event));
        }
        match &mut known.event.series {
            Some(series) => {
                series.count = series.count.saturating_add(1);
                series.last_observed_time = at;
                known.is_behind = true;
                None
            }
            series => {
                *series = Some(EventSeries { count: 2, last_observed_time: at });
                Some(known.tell(now))
            }
        }
    }

    /// When the next count is due, if no event comes before.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.known.entries.values().map(|(used, known)| known.due(*used)).min()
    }

    /// Returns the counts that are due, and drops series that are over.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.known.entries.retain(|_, (used, known)| {
            if known.due(*used) <= now && known.is_behind {
                effects.push(known.tell(now));
            }
            now.duration_since(*used) < SILENCE
        });
        effects
    }

    /// Returns all counts that were not sent.
    pub(crate) fn flush(&mut self, now: Instant) -> Vec<Effect> {
        let behind = self.known.entries.values_mut().filter(|(_, known)| known.is_behind);
        behind.map(|(_, known)| known.tell(now)).collect()
    }
}

impl SentEvent {
    fn due(&self, used: Instant) -> Instant {
        let over = used + SILENCE;
        if self.is_behind { over.min(self.told + REFRESH) } else { over }
    }

    fn tell(&mut self, now: Instant) -> Effect {
        self.told = now;
        self.is_behind = false;
        Effect::count(&self.event.metadata, &self.event, json!({ "series": self.event.series }))
    }
}

fn first(controller: &str, instance: &str, action: String, note: RecordedEvent) -> Event {
    let mut text = note.message.clone();
    text.truncate(text.floor_char_boundary(NOTE_BYTES_MAX));
    Event {
        metadata: note.metadata(note.name()),
        event_time: Some(MicroTime(note.at)),
        reporting_controller: Some(controller.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        action: Some(action),
        reason: Some(note.reason),
        regarding: Some(note.object),
        related: note.related,
        note: Some(text),
        type_: Some(note.event_type.as_str().to_owned()),
        ..Event::default()
    }
}

fn identity_of(reference: &ObjectReference) -> [String; 6] {
    let ObjectReference { api_version, field_path, kind, name, namespace, uid, .. } = reference;
    let members = [api_version, kind, namespace, name, uid, field_path];
    members.map(|member| member.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::writing::events::EventType;

    fn note(name: &str, reason: &str, message: &str) -> RecordedEvent {
        RecordedEvent {
            object: ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() },
            related: None,
            action: None,
            event_type: EventType::Normal,
            reason: reason.to_owned(),
            message: message.to_owned(),
            at: Timestamp::from_second(1).unwrap(),
        }
    }

    fn summary(effect: &Effect) -> String {
        match &effect.patch {
            None => format!("new {}", effect.event["note"]),
            Some(patch) => format!("{}x", patch["series"]["count"]),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_is_told_when_it_begins_now_and_then_and_when_it_is_over() {
        let (mut series, start) = (Series::new("x", "x-1"), Instant::now());
        let seconds = |seconds: u64| start + Duration::from_secs(seconds);
        let mut told = Vec::new();
        // One event a minute for an hour.
        for minute in 0..60_u64 {
            while let Some(due) = series.next_due().filter(|due| *due <= seconds(minute * 60)) {
                told.extend(
                    series.tick(due).iter().map(|effect| (due.duration_since(start).as_secs(), summary(effect))),
                );
            }
            let effect = series.step(seconds(minute * 60), note("a", "r", "m"));
            told.extend(effect.iter().map(|effect| (minute * 60, summary(effect))));
        }
        while let Some(due) = series.next_due() {
            told.extend(series.tick(due).iter().map(|effect| (due.duration_since(start).as_secs(), summary(effect))));
        }
        let expected = [(0, "new \"m\""), (60, "2x"), (1_860, "31x"), (3_660, "60x")];
        assert_eq!(told, expected.map(|(at, what)| (at, what.to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn the_note_makes_no_difference_and_all_else_does() {
        let (mut series, now) = (Series::new("x", "x-1"), Instant::now());
        let mut step = |note| series.step(now, note).as_ref().map(summary);
        assert_eq!(step(note("a", "r", "one")).as_deref(), Some("new \"one\""));
        assert_eq!(step(note("a", "r", "two")).as_deref(), Some("2x"));
        assert_eq!(step(note("a", "r", "three")), None);
        assert_eq!(step(note("b", "r", "one")).as_deref(), Some("new \"one\""));
        assert_eq!(step(note("a", "s", "one")).as_deref(), Some("new \"one\""));
        let acted = RecordedEvent { action: Some("Binding".to_owned()), ..note("a", "r", "one") };
        assert_eq!(step(acted).as_deref(), Some("new \"one\""));
        assert_eq!(series.flush(now).iter().map(summary).collect::<Vec<_>>(), ["3x"]);
        assert_eq!(series.flush(now), []);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_silence_an_event_is_new_and_a_long_note_is_cut() {
        let (mut series, now) = (Series::new("x", "x-1"), Instant::now());
        series.step(now, note("a", "r", "one"));
        let long = "ä".repeat(1_000);
        let effect = series.step(now + SILENCE, note("a", "r", &long)).unwrap();
        assert_eq!((effect.patch, effect.event["note"].as_str().unwrap().len()), (None, NOTE_BYTES_MAX));
    }
}
