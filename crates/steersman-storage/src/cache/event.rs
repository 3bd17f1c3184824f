//! One change of one object, shared by all watchers of its resource.

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use steersman_machinery::{Object, Revision};

/// The most frames that one event keeps. Further ones are encoded for each watcher.
const FRAMES_MAX: usize = 16;
/// The approximate size of an event without its objects, its place in the ring included.
const EVENT_BYTES: usize = 96;
/// The approximate size of an object besides its JSON: key, header, rounding of allocations.
const OBJECT_BYTES: usize = 256;

/// The type of a change, before any selector is applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The object was created.
    Added,
    /// The object was deleted.
    Deleted,
    /// The object's content has changed.
    Modified,
}

/// A committed change of one object. Immutable and shared.
#[derive(Debug)]
pub struct Event {
    /// The type of the change.
    pub kind: Kind,
    /// The object; for a deletion its last content, with the deletion's revision.
    pub object: Arc<Object>,
    /// The previous object; `None` for a created one.
    pub previous: Option<Arc<Object>>,
    /// The revision of the change, which is also the object's.
    pub revision: Revision,
    /// `None` before the first frame, and again when the event is no longer recent.
    frames: ArcSwapOption<Frames>,
    /// Whether it is a deletion that the engine's log does not have, because the object was lost to damage.
    is_loss: bool,
    is_recent: AtomicBool,
}

/// Encoded frames: a list that only grows, so that reads take no lock.
#[derive(Debug, Default)]
struct Frames {
    /// Held while a frame is encoded.
    making: Mutex<()>,
    first: OnceLock<Box<Frame>>,
}

#[derive(Debug)]
struct Frame {
    bytes: Bytes,
    key: u64,
    next: OnceLock<Box<Frame>>,
}

impl Event {
    pub(crate) fn new(kind: Kind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Event {
        let revision = object.revision;
        let (frames, is_recent) = (ArcSwapOption::empty(), AtomicBool::new(true));
        Event { kind, object, previous, revision, frames, is_loss: false, is_recent }
    }

    /// The deletion of an object.
    pub(crate) fn deleted(last: Arc<Object>, revision: Revision) -> Event {
        Event::new(Kind::Deleted, Arc::new(last.copy_at(revision)), Some(last))
    }

    /// The deletion of an object that is lost to damage. Its revision is the one that was applied when the loss was found: no transaction
    /// belongs to it, so lists from before the loss have the same revision.
    pub(crate) fn lost(last: Arc<Object>, revision: Revision) -> Event {
        Event { is_loss: true, ..Event::deleted(last, revision) }
    }

    pub(crate) fn is_loss(&self) -> bool {
        self.is_loss
    }

    /// Whether it is news for a watch that begins after a revision. A loss at that very revision is: the list from which the watch goes on
    /// may have the object.
    pub(crate) fn is_after(&self, revision: Revision) -> bool {
        revision < self.revision || self.is_loss && revision == self.revision
    }

    /// The frame that [`Event::frame`] has made for `key`, if it is still kept.
    pub fn made_frame(&self, key: u64) -> Option<Bytes> {
        self.frames.load().as_ref().and_then(|frames| frames.find(key).ok())
    }

    /// The event encoded in the form that `key` identifies. The first caller encodes it; others share the bytes for as
    /// long as the event is recent.
    ///
    /// `encode` runs under a lock of the event, so it runs once even if many watchers need the frame at the same time.
    /// It must not request a frame of this event.
    pub fn frame(&self, key: u64, encode: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(made) = self.made_frame(key) {
            return made;
        }
        if !self.is_recent.load(Ordering::Acquire) {
            return encode();
        }
        let empty: Option<Arc<Frames>> = None;
        self.frames.compare_and_swap(&empty, Some(Arc::default()));
        // `forget_frames` may have run after `is_recent` was read, and then it did not see these frames.
        if !self.is_recent.load(Ordering::Acquire) {
            self.frames.store(None);
        }
        match self.frames.load_full() {
            Some(frames) => frames.make(key, encode),
            None => encode(),
        }
    }

    /// Drops the frames: by now most watchers have sent the event.
    pub(crate) fn forget_frames(&self) {
        self.is_recent.store(false, Ordering::Release);
        self.frames.store(None);
    }

    /// The approximate number of bytes that only history keeps alive: the event itself, and content that is no longer
    /// current.
    pub(crate) fn history_bytes(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |object| OBJECT_BYTES + object.json().len());
        let deleted = if self.kind == Kind::Deleted { OBJECT_BYTES + self.object.json().len() } else { 0 };
        EVENT_BYTES + previous + deleted
    }
}

impl Frames {
    /// The frame, or the slot for it and the number of frames.
    fn find(&self, key: u64) -> Result<Bytes, (&OnceLock<Box<Frame>>, usize)> {
        let (mut slot, mut n_frames) = (&self.first, 0);
        while let Some(frame) = slot.get() {
            if frame.key == key {
                return Ok(frame.bytes.clone());
            }
            (slot, n_frames) = (&frame.next, n_frames + 1);
        }
        Err((slot, n_frames))
    }

    fn make(&self, key: u64, encode: impl FnOnce() -> Bytes) -> Bytes {
        let _making = self.making.lock();
        // Another watcher may have encoded it in the meantime.
        match self.find(key) {
            Ok(found) => found,
            Err((slot, n_frames)) => {
                let bytes = encode();
                if n_frames < FRAMES_MAX {
                    slot.get_or_init(|| Box::new(Frame { bytes: bytes.clone(), key, next: OnceLock::new() }));
                }
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use steersman_machinery::ObjectKey;

    fn event() -> Event {
        let object = Object::decode(ObjectKey::cluster("x"), Revision(1), br#"{"metadata":{}}"#).unwrap();
        Event::new(Kind::Added, Arc::new(object), None)
    }

    #[test]
    fn a_frame_is_encoded_once_per_form_while_the_event_is_recent() {
        let (event, encoded) = (event(), AtomicU64::new(0));
        let frame = |key: u64| {
            event.frame(key, || {
                encoded.fetch_add(1, Ordering::Relaxed);
                Bytes::from(key.to_string())
            })
        };
        let n_encoded = || encoded.load(Ordering::Relaxed);
        assert_eq!((frame(1), frame(u64::MAX), frame(1)), ("1".into(), u64::MAX.to_string().into(), "1".into()));
        assert_eq!(n_encoded(), 2);
        for key in 0..2 * FRAMES_MAX as u64 {
            assert_eq!((frame(key), frame(key)), (key.to_string().into(), key.to_string().into()));
        }
        event.forget_frames();
        let before = n_encoded();
        assert_eq!((frame(1), frame(1)), ("1".into(), "1".into()));
        assert_eq!(n_encoded(), before + 2, "what is old is not kept");
    }

    #[test]
    fn an_old_event_keeps_no_frames_however_it_grows_old() {
        for _ in 0..10_000 {
            let event = event();
            let both = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    event.forget_frames();
                });
                both.wait();
                event.frame(1, || Bytes::from("1"));
            });
            assert!(event.frames.load().is_none());
        }
    }

    #[test]
    fn many_at_once_share_one_encoding() {
        let (event, encoded) = (event(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for key in 0..FRAMES_MAX as u64 {
                        let made = event.frame(key, || {
                            encoded.fetch_add(1, Ordering::Relaxed);
                            Bytes::from(key.to_string())
                        });
                        assert_eq!(made, key.to_string());
                    }
                });
            }
        });
        assert_eq!(encoded.load(Ordering::Relaxed), FRAMES_MAX as u64);
    }
}
