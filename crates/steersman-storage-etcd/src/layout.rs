//! The keys of etcd for the keys of the contract. No other module knows them.
//!
//! ```text
//! PREFIX/format         what is below the prefix
//! PREFIX/fences/ID      the fence of a process
//! PREFIX/holder         the process that works, where only one may
//! PREFIX/heartbeat      a sign that it still does
//! PREFIX/objects/KEY    a key of the contract, with its value as it is
//! ```
//!
//! Another layout, such as that of kube-apiserver, would be another implementation of these functions and of the forms of
//! values.

use bytes::Bytes;

/// The value of `PREFIX/format` for this layout.
pub(crate) const FORMAT: &str = "steersman 1";

/// The keys below a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Without a slash at its end.
    prefix: String,
    /// The prefix of the keys of objects.
    objects: Bytes,
}

/// Keys of etcd from `start` up to but without `end`; only `start` itself if `end` is empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

impl Layout {
    pub(crate) fn new(prefix: &str) -> Layout {
        let prefix = prefix.trim_end_matches('/').to_owned();
        Layout { objects: format!("{prefix}/objects/").into(), prefix }
    }

    /// Everything below the prefix.
    pub(crate) fn all(&self) -> Span {
        Span::prefix(format!("{}/", self.prefix).as_bytes())
    }

    pub(crate) fn format_key(&self) -> Bytes {
        format!("{}/format", self.prefix).into()
    }

    pub(crate) fn holder_key(&self) -> Bytes {
        format!("{}/holder", self.prefix).into()
    }

    pub(crate) fn heartbeat_key(&self) -> Bytes {
        format!("{}/heartbeat", self.prefix).into()
    }

    /// The fences of all processes.
    pub(crate) fn fences(&self) -> Span {
        Span::prefix(&self.fence_key(""))
    }

    pub(crate) fn fence_key(&self, id: &str) -> Bytes {
        format!("{}/fences/{id}", self.prefix).into()
    }

    /// The key of etcd for a key of the contract.
    pub(crate) fn stored(&self, key: &[u8]) -> Bytes {
        [&self.objects, key].concat().into()
    }

    /// The key of the contract for a key of etcd that [`Layout::span`] contains.
    pub(crate) fn key(&self, stored: &Bytes) -> Bytes {
        stored.slice(self.objects.len().min(stored.len())..)
    }

    /// The keys of etcd for all keys of the contract with a prefix.
    pub(crate) fn span(&self, prefix: &[u8]) -> Span {
        Span::prefix(&self.stored(prefix))
    }
}

impl Span {
    /// One key.
    pub(crate) fn key(key: Bytes) -> Span {
        Span { start: key, end: Bytes::new() }
    }

    /// All keys that begin with `prefix`, which has a byte other than 255.
    fn prefix(prefix: &[u8]) -> Span {
        let mut end = prefix.to_vec();
        while end.pop_if(|last| *last == u8::MAX).is_some() {}
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Span { start: Bytes::copy_from_slice(prefix), end: end.into() }
    }

    /// The keys of it after `last`.
    pub(crate) fn after(&self, last: &[u8]) -> Span {
        let next: Bytes = [last, &[0]].concat().into();
        Span { start: next.max(self.start.clone()), end: self.end.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(span: &Span, key: &[u8]) -> bool {
        *span.start <= *key && *key < *span.end
    }

    #[test]
    fn a_span_has_exactly_the_keys_with_its_prefix() {
        let layout = Layout::new("/steersman/");
        for prefix in [&b""[..], b"a", b"a/", b"\xff", b"a\xff\xff"] {
            let span = layout.span(prefix);
            for key in
                [&b""[..], b"a", b"a/", b"a/b", b"a0", b"b", b"\xff", b"\xff\xff", b"a\xff\xff", b"a\xff\xff\xff"]
            {
                let stored = layout.stored(key);
                assert_eq!(contains(&span, &stored), key.starts_with(prefix), "{key:?} {prefix:?}");
                assert_eq!(layout.key(&stored), key);
            }
            assert!(!contains(&span, &layout.format_key()) && !contains(&span, &layout.fence_key("x")));
        }
        assert!(contains(&layout.all(), &layout.fence_key("x")) && contains(&layout.all(), &layout.stored(b"\xff")));
        assert!(!contains(&layout.all(), b"/steersman-2/format"));
    }

    #[test]
    fn a_span_after_a_key_begins_with_the_next() {
        let span = Layout::new("/p").span(b"a");
        let next = span.after(b"/p/objects/a/b");
        assert!(!contains(&next, b"/p/objects/a/b") && contains(&next, b"/p/objects/a/b\0"));
        assert_eq!(span.after(b"/a"), span, "a key before the span leaves it whole");
    }
}
