//! All bytes that are served while a clock runs, prepared before.
//!
//! Streams are stored with the framing of HTTP's chunks, so that serving them is only a write.

use std::io::Write;
use std::ops::Range;

use crate::objects::{CHANGED_ONE_IN, Objects, VERSION_LISTED, VERSION_RELISTED, VERSION_REPLACED, Workload};

/// The size of a chunk. Few and large ones, so that framing costs nothing.
const CHUNK_BYTES: usize = 64 * 1024;
/// The version of the first object; each other object has a version of its own.
const VERSION_FIRST: usize = 1_000_000;

pub(crate) struct Recording {
    pub(crate) workload: Workload,
    /// The initial state; the state after the watch has expired, with one object in [`CHANGED_ONE_IN`] at a new
    /// version; the state after it has expired again, with all objects at a new version.
    pub(crate) states: [State; 3],
    /// The MODIFIED events, framed.
    pub(crate) updates: Vec<u8>,
    /// The facts that tell a program when it has received everything, as JSON.
    pub(crate) facts: String,
}

/// All objects at one time, as a list and as the beginning of a watch.
pub(crate) struct State {
    pub(crate) version: usize,
    /// The items of a list, each followed by a comma.
    items: Vec<u8>,
    /// The positions of these commas in `items`.
    ends: Vec<usize>,
    /// ADDED events and the final bookmark, framed.
    pub(crate) initial_events: Vec<u8>,
}

/// Collects bytes and frames them.
#[derive(Default)]
struct Chunks {
    framed: Vec<u8>,
    open: Vec<u8>,
}

impl Recording {
    pub(crate) fn make(workload: Workload) -> Recording {
        let objects = Objects::new(workload);
        let n_objects = workload.n_objects();
        let listed = |number: usize| VERSION_FIRST + number;
        let relisted = |number: usize| {
            let is_changed = number % CHANGED_ONE_IN == CHANGED_ONE_IN - 1;
            if is_changed { VERSION_LISTED + 1 + number } else { listed(number) }
        };
        let replaced = |number: usize| VERSION_RELISTED + 1 + number;
        let states = [
            State::make(workload, &objects, VERSION_LISTED, listed),
            State::make(workload, &objects, VERSION_RELISTED, relisted),
            State::make(workload, &objects, VERSION_REPLACED, replaced),
        ];
        let mut updates = Chunks::default();
        let updated = |number: usize| (workload.updated(number), VERSION_REPLACED + 1 + number);
        for (number, version) in (0..workload.n_updates()).map(updated) {
            updates.event("MODIFIED", |out| objects.write(number, version, false, out));
        }
        let (last_updated, last_version) = updated(workload.n_updates() - 1);
        let facts = serde_json::json!({
            "objects": n_objects,
            "updates": workload.n_updates(),
            "listed_version": VERSION_LISTED,
            "last_changed": reference(&objects, n_objects - 1, relisted(n_objects - 1)),
            "last_replaced": reference(&objects, n_objects - 1, replaced(n_objects - 1)),
            "last_updated": reference(&objects, last_updated, last_version),
        });
        Recording { workload, states, updates: updates.finish(), facts: facts.to_string() }
    }
}

/// The reference to the state of one object.
fn reference(objects: &Objects, number: usize, version: usize) -> serde_json::Value {
    let mut bytes = Vec::new();
    objects.write(number, version, false, &mut bytes);
    let object: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let metadata = &object["metadata"];
    serde_json::json!({"namespace": metadata["namespace"], "name": metadata["name"], "version": version})
}

// === impl State ===

impl State {
    fn make(workload: Workload, objects: &Objects, version: usize, version_of: impl Fn(usize) -> usize) -> State {
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        let mut events = Chunks::default();
        for number in 0..workload.n_objects() {
            objects.write(number, version_of(number), workload.are_items_bare(), &mut items);
            ends.push(items.len());
            items.push(b',');
            events.event("ADDED", |out| objects.write(number, version_of(number), false, out));
        }
        let (kind, api_version) = (workload.kind(), workload.api_version());
        events.event("BOOKMARK", |out| {
            let bookmark = serde_json::json!({
                "kind": kind, "apiVersion": api_version,
                "metadata": {
                    "resourceVersion": version.to_string(), "creationTimestamp": null,
                    "annotations": {"k8s.io/initial-events-end": "true"},
                },
            });
            out.extend_from_slice(bookmark.to_string().as_bytes());
        });
        State { version, items, ends, initial_events: events.finish() }
    }

    /// The items with these numbers, in the form of a list's content.
    pub(crate) fn items(&self, numbers: Range<usize>) -> &[u8] {
        let start = numbers.start.checked_sub(1).map_or(0, |before| self.ends[before] + 1);
        let end = numbers.end.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.items.get(start..end).unwrap_or_default()
    }
}

// === impl Chunks ===

impl Chunks {
    fn event(&mut self, event_type: &str, object: impl FnOnce(&mut Vec<u8>)) {
        self.open.extend_from_slice(format!(r#"{{"type":"{event_type}","object":"#).as_bytes());
        object(&mut self.open);
        self.open.extend_from_slice(b"}\n");
        if self.open.len() >= CHUNK_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            frame(&self.open, &mut self.framed);
            self.open.clear();
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.close();
        self.framed
    }
}

/// Appends `bytes` to `out` as one chunk.
pub(crate) fn frame(bytes: &[u8], out: &mut Vec<u8>) {
    // Writes to a Vec do not fail.
    let _ = write!(out, "{:x}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_cut_at_their_commas() {
        let state =
            State { version: 1, items: b"{1},{22},{3},".to_vec(), ends: vec![3, 8, 12], initial_events: Vec::new() };
        assert_eq!(state.items(0..3), b"{1},{22},{3}");
        assert_eq!(state.items(1..2), b"{22}");
        assert_eq!(state.items(0..0), b"");
    }

    #[test]
    fn events_are_framed_as_chunks() {
        let mut chunks = Chunks::default();
        chunks.event("ADDED", |out| out.extend_from_slice(b"{}"));
        assert_eq!(chunks.finish(), b"1d\r\n{\"type\":\"ADDED\",\"object\":{}}\n\r\n");
    }
}
