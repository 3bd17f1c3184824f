//! One change of one object, as every watcher of its resource shares it.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use steersman_machinery::{Object, Revision};

/// Most encoded forms one event keeps. Further formats are encoded for each who asks.
const FRAMES_MAX: usize = 8;

/// What happened to the object, before any selector has looked at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// It has other content.
    Modified,
}

/// A committed change of one object. Immutable and shared.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The object; of a deleted one its last content, stamped with the deletion's revision.
    pub object: Arc<Object>,
    /// What was there before; `None` for an added object.
    pub previous: Option<Arc<Object>>,
    /// The revision of the change, also the object's.
    pub revision: Revision,
    frames: Mutex<Vec<(u32, Bytes)>>,
}

impl Event {
    pub(crate) fn new(kind: Kind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Event {
        Event { kind, revision: object.revision, object, previous, frames: Mutex::default() }
    }

    /// The event encoded in a format, which the caller numbers: encoded by the first who asks, shared by the others for as
    /// long as the event is recent.
    ///
    /// `encode` runs under the event's lock, so it runs once however many watchers ask at the same moment; it must not ask
    /// this event for a frame.
    pub fn frame(&self, format: u32, encode: impl FnOnce() -> Bytes) -> Bytes {
        let mut frames = self.frames.lock();
        if let Some((_, bytes)) = frames.iter().find(|(known, _)| *known == format) {
            return bytes.clone();
        }
        let bytes = encode();
        if frames.len() < FRAMES_MAX {
            frames.push((format, bytes.clone()));
        }
        bytes
    }

    /// Lets go of the encoded forms: the event is no longer one that many watchers are about to send.
    pub(crate) fn forget_frames(&self) {
        *self.frames.lock() = Vec::new();
    }

    /// Bytes of content that only history keeps alive.
    pub(crate) fn superseded_bytes(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |object| object.json().len());
        let deleted = if self.kind == Kind::Deleted { self.object.json().len() } else { 0 };
        previous + deleted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use steersman_machinery::ObjectKey;

    #[test]
    fn a_frame_is_encoded_once_per_format() {
        let object = Object::decode(ObjectKey::cluster("x"), Revision(1), br#"{"metadata":{}}"#).unwrap();
        let event = Event::new(Kind::Added, Arc::new(object), None);
        let encoded = Cell::new(0);
        let frame = |format: u32| {
            event.frame(format, || {
                encoded.set(encoded.get() + 1);
                Bytes::from(format.to_string())
            })
        };
        assert_eq!((frame(1), frame(2), frame(1)), (Bytes::from("1"), Bytes::from("2"), Bytes::from("1")));
        assert_eq!(encoded.get(), 2);
        event.forget_frames();
        assert_eq!((frame(1), encoded.get()), (Bytes::from("1"), 3));
    }
}
