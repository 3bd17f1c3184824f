//! The JSON of one object, and the object decoded from it for as long as a reader holds it.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::list_watch::wire::meta::Spans;
use crate::shared::decode_error::DecodeError;

/// The result of decoding an object.
pub(crate) type Outcome<K> = Result<Arc<K>, Arc<DecodeError>>;

/// One state of one object as bytes. Cheap to clone.
pub(crate) struct Packed<K> {
    state: Arc<State<K>>,
}

/// The fields that a read of a decoded object needs come first: they share a cache line of the processor with the
/// counts of the `Arc`.
#[repr(C)]
struct State<K> {
    known: Mutex<DecodeState<K>>,
    /// Whether it was read since the last [`Packed::take_read_mark`].
    was_read: AtomicBool,
    json: Box<str>,
    metadata: Span,
    resource_version: Span,
    uid: Span,
}

/// A range within `json`, at character boundaries. Objects are far smaller than four billion bytes.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

/// The decoded object, if there is one. Readers keep it alive: this reference is weak.
enum DecodeState<K> {
    Decoded(Weak<K>),
    Failed(Arc<DecodeError>),
    Nothing,
}

// === impl Packed ===

impl<K> Packed<K> {
    /// The state with this JSON, with `spans` of its members.
    pub(crate) fn new(json: &str, spans: &Spans) -> Self {
        let state = State {
            json: json.into(),
            metadata: Span::of(&spans.metadata),
            resource_version: Span::of(&spans.resource_version),
            uid: Span::of(&spans.uid),
            known: Mutex::new(DecodeState::Nothing),
            was_read: AtomicBool::new(false),
        };
        Self { state: Arc::new(state) }
    }

    pub(crate) fn json(&self) -> &str {
        &self.state.json
    }

    /// The value of `metadata`.
    pub(crate) fn metadata(&self) -> &str {
        self.text(self.state.metadata)
    }

    pub(crate) fn resource_version(&self) -> &str {
        self.text(self.state.resource_version)
    }

    pub(crate) fn uid(&self) -> &str {
        self.text(self.state.uid)
    }

    pub(crate) fn ptr_eq(a: &Self, b: &Self) -> bool {
        Arc::ptr_eq(&a.state, &b.state)
    }

    /// The result of decoding, if it failed or the object is still held.
    pub(crate) fn known(&self) -> Option<Outcome<K>> {
        let known = match &*self.state.known.lock() {
            DecodeState::Decoded(object) => object.upgrade().map(Ok),
            DecodeState::Failed(error) => Some(Err(Arc::clone(error))),
            DecodeState::Nothing => None,
        };
        if known.is_some() && !self.was_read() {
            self.state.was_read.store(true, Ordering::Relaxed);
        }
        known
    }

    /// Stores the result of decoding, unless another reader has decoded it meanwhile: then returns that object, so that
    /// all readers share one.
    pub(crate) fn learn(&self, outcome: &Outcome<K>) -> Option<Arc<K>> {
        let mut known = self.state.known.lock();
        if let DecodeState::Decoded(object) = &*known
            && let Some(object) = object.upgrade()
        {
            return Some(object);
        }
        *known = match outcome {
            Ok(object) => DecodeState::Decoded(Arc::downgrade(object)),
            Err(error) => DecodeState::Failed(Arc::clone(error)),
        };
        None
    }

    /// Drops the reference to a decoded object that no reader holds: its memory is not freed before.
    pub(crate) fn forget_unheld(&self) {
        let mut known = self.state.known.lock();
        if matches!(&*known, DecodeState::Decoded(object) if object.strong_count() == 0) {
            *known = DecodeState::Nothing;
        }
    }

    /// Whether it was read since the mark was last taken.
    pub(crate) fn was_read(&self) -> bool {
        self.state.was_read.load(Ordering::Relaxed)
    }

    /// Whether it was read since the last call.
    pub(crate) fn take_read_mark(&self) -> bool {
        self.state.was_read.swap(false, Ordering::Relaxed)
    }

    /// Whether nothing else holds these bytes.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.state) == 1
    }

    fn text(&self, span: Span) -> &str {
        self.state.json.get(span.start as usize..span.end as usize).unwrap_or_default()
    }
}

impl<K> Clone for Packed<K> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<K> fmt::Debug for Packed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.json().len())
    }
}

// === impl Span ===

impl Span {
    fn of(range: &Range<usize>) -> Self {
        let position = |position: usize| u32::try_from(position).unwrap_or_default();
        Self { start: position(range.start), end: position(range.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_watch::wire::meta;

    #[test]
    fn the_spans_point_into_the_json() {
        let json = r#"{"metadata":{"name":"a","resourceVersion":"7","uid":"u"},"spec":1}"#;
        let packed = Packed::<u8>::new(json, &meta::spans(json.as_bytes()).unwrap());
        assert_eq!(packed.json(), json);
        assert_eq!(packed.metadata(), r#"{"name":"a","resourceVersion":"7","uid":"u"}"#);
        assert_eq!((packed.resource_version(), packed.uid()), ("7", "u"));
        assert!(!Packed::ptr_eq(&packed, &Packed::new(json, &Spans::default())));
        assert_eq!(Packed::<u8>::new(json, &Spans::default()).resource_version(), "");
    }

    #[test]
    fn a_decoded_object_is_known_as_long_as_it_is_held() {
        let packed = Packed::new("{}", &Spans::default());
        assert!(packed.known().is_none());
        let first = Arc::new(1);
        assert!(packed.learn(&Ok(Arc::clone(&first))).is_none());
        let other = packed.learn(&Ok(Arc::new(2))).unwrap();
        assert!(Arc::ptr_eq(&first, &other), "who decoded it at the same time gets the same object");
        packed.forget_unheld();
        assert!(packed.known().is_some());
        drop((first, other));
        assert!(packed.known().is_none());
        packed.forget_unheld();
        assert!(matches!(&*packed.state.known.lock(), DecodeState::Nothing));
    }
}
