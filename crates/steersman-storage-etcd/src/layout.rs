//! The keys of etcd for the keys of the contract. No other module knows them.
//!
//! ```text
//! PREFIX/format                what is below the prefix
//! PREFIX/fences/ID             the fence of a process
//! PREFIX/objects/KEY           a key of the contract
//! ```
//! in the layout of Steersman, and in that of kube-apiserver, of whose keys none begins with `steersman-`:
//! ```text
//! PREFIX/steersman-restore     there while a restore goes on
//! PREFIX/steersman-fences/ID   the fence of a process
//! PREFIX/PODS/NS/NAME          a key of the contract as kube-apiserver writes it (`KeyMap`)
//! compact_rev_key              beside the prefix: the protocol by which servers agree on who removes history
//! ```
//!
//! The forms of values are not known here.

use crate::options::{Keys, Options};
use bytes::Bytes;
use std::sync::Arc;
use steersman_storage::kv::key_map::KeyMap;

/// The value of `PREFIX/format` for this layout.
pub(crate) const FORMAT: &str = "steersman 1";
/// The beginning of the value for a store that was restored; a number follows, which is added to etcd's revisions. The revision of the
/// key is that at which the restore was complete.
const FORMAT_SHIFTED: &str = "steersman 2 shift ";
/// The beginning of the value for a store that is being restored; the id of the restore follows.
const FORMAT_RESTORING: &str = "steersman restoring ";

/// The meaning of the value of `PREFIX/format`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// Another release wrote it.
    Other,
    /// A restore has not ended, or was interrupted.
    Restoring,
    /// A store whose revisions are etcd's and this number.
    Store {
        /// Zero for a store that was not restored.
        shift: u64,
    },
}

impl Format {
    pub(crate) fn parse(value: &[u8]) -> Format {
        let Ok(text) = std::str::from_utf8(value) else { return Format::Other };
        if text == FORMAT {
            return Format::Store { shift: 0 };
        }
        if text.starts_with(FORMAT_RESTORING) {
            return Format::Restoring;
        }
        let shift = text.strip_prefix(FORMAT_SHIFTED).and_then(|shift| shift.parse().ok());
        shift.map_or(Format::Other, |shift| Format::Store { shift })
    }

    /// The value for a restored store.
    pub(crate) fn shifted(shift: u64) -> Bytes {
        format!("{FORMAT_SHIFTED}{shift}").into()
    }

    /// The value while a restore goes on.
    pub(crate) fn restoring(id: &str) -> Bytes {
        format!("{FORMAT_RESTORING}{id}").into()
    }
}

/// The keys below a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Without a slash at its end.
    prefix: String,
    /// The prefix of the keys of objects.
    objects: Bytes,
    /// The keys of kube-apiserver behind that prefix; `None` for those of the contract.
    registry: Option<Arc<dyn KeyMap>>,
}

/// Keys of etcd from `start` up to but without `end`; only `start` itself if `end` is empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

impl Layout {
    pub(crate) fn of(options: &Options) -> Layout {
        Layout::new(&options.prefix, &options.keys)
    }

    pub(crate) fn new(prefix: &str, keys: &Keys) -> Layout {
        let prefix = prefix.trim_end_matches('/').to_owned();
        match keys {
            Keys::Registry(keys) => {
                Layout { objects: format!("{prefix}/").into(), registry: Some(keys.clone()), prefix }
            }
            Keys::Steersman => Layout { objects: format!("{prefix}/objects/").into(), registry: None, prefix },
        }
    }

    /// Whether the prefix may be used by a kube-apiserver too.
    pub(crate) fn is_registry(&self) -> bool {
        self.registry.is_some()
    }

    /// Everything below the prefix.
    pub(crate) fn all(&self) -> Span {
        Span::prefix(format!("{}/", self.prefix).as_bytes())
    }

    /// The key that says what is below the prefix. In the layout of kube-apiserver it is there only while a restore goes on.
    pub(crate) fn format_key(&self) -> Bytes {
        let name = if self.is_registry() { "steersman-restore" } else { "format" };
        format!("{}/{name}", self.prefix).into()
    }

    /// The key that says so in the layout of Steersman.
    pub(crate) fn format_key_of_steersman(&self) -> Bytes {
        Layout { registry: None, ..self.clone() }.format_key()
    }

    pub(crate) fn fence_key(&self, id: &str) -> Bytes {
        let name = if self.is_registry() { "steersman-fences" } else { "fences" };
        format!("{}/{name}/{id}", self.prefix).into()
    }

    /// Whether a key is one of the engine's own, and no entry of the contract.
    pub(crate) fn is_own(&self, stored: &[u8]) -> bool {
        *stored == *self.format_key() || stored.starts_with(&self.fence_key(""))
    }

    /// The key of etcd for a key of the contract.
    pub(crate) fn stored(&self, key: &[u8]) -> Bytes {
        match &self.registry {
            Some(registry) => [&*self.objects, &registry.stored(key)].concat().into(),
            None => [&self.objects, key].concat().into(),
        }
    }

    /// The key of the contract for a key of etcd; `None` if it is not one for such a key.
    pub(crate) fn key(&self, stored: &Bytes) -> Option<Bytes> {
        let behind = stored.starts_with(&self.objects).then(|| stored.slice(self.objects.len()..))?;
        match &self.registry {
            Some(registry) => registry.key(&behind),
            None => Some(behind),
        }
    }

    /// The keys of etcd for all keys of the contract with a prefix, and possibly others ([`Layout::is_exact`]).
    pub(crate) fn span(&self, prefix: &[u8]) -> Span {
        if self.is_exact(prefix) { Span::prefix(&self.stored(prefix)) } else { Span::prefix(&self.objects) }
    }

    /// Whether [`Layout::span`] has the keys with a prefix alone, and in the order of the contract. In the layout of kube-apiserver the
    /// prefix must name a resource for that.
    pub(crate) fn is_exact(&self, prefix: &[u8]) -> bool {
        self.registry.as_ref().is_none_or(|registry| registry.has_prefix(prefix))
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
    use steersman_machinery::GroupResource;
    use steersman_storage_kubernetes::RegistryKeys;

    fn contains(span: &Span, key: &[u8]) -> bool {
        *span.start <= *key && *key < *span.end
    }

    #[test]
    fn what_was_written_about_a_prefix_is_read() {
        for shift in [1, 1_000_000_123] {
            assert_eq!(Format::parse(&Format::shifted(shift)), Format::Store { shift });
        }
        assert_eq!(Format::parse(FORMAT.as_bytes()), Format::Store { shift: 0 });
        assert_eq!(Format::parse(&Format::restoring("a")), Format::Restoring);
        for other in ["steersman 2", "steersman 2 shift x", "steersman 3", ""] {
            assert_eq!(Format::parse(other.as_bytes()), Format::Other, "{other}");
        }
    }

    #[test]
    fn a_span_has_exactly_the_keys_with_its_prefix() {
        let layout = Layout::new("/steersman/", &Keys::Steersman);
        for prefix in [&b""[..], b"a", b"a/", b"\xff", b"a\xff\xff"] {
            let span = layout.span(prefix);
            for key in
                [&b""[..], b"a", b"a/", b"a/b", b"a0", b"b", b"\xff", b"\xff\xff", b"a\xff\xff", b"a\xff\xff\xff"]
            {
                let stored = layout.stored(key);
                assert_eq!(contains(&span, &stored), key.starts_with(prefix), "{key:?} {prefix:?}");
                assert_eq!(layout.key(&stored).as_deref(), Some(key));
            }
            assert!(!contains(&span, &layout.format_key()) && !contains(&span, &layout.fence_key("x")));
        }
        assert!(contains(&layout.all(), &layout.fence_key("x")) && contains(&layout.all(), &layout.stored(b"\xff")));
        assert!(!contains(&layout.all(), b"/steersman-2/format"));
    }

    #[test]
    fn in_the_layout_of_kube_apiserver_only_objects_have_keys_of_the_contract() {
        let keys = RegistryKeys::new(["pods", "nodes"].map(|plural| GroupResource::new("", plural)));
        let layout = Layout::new("/registry", &Keys::Registry(Arc::new(keys)));
        for (key, stored) in [("/pods/a/b", "/registry/pods/a/b"), ("a.io/bs/c", "/registry/a.io/bs/c")] {
            assert_eq!(layout.stored(key.as_bytes()), stored);
            assert_eq!(layout.key(&Bytes::from(stored)).as_deref(), Some(key.as_bytes()));
        }
        for other in [
            layout.format_key(),
            layout.fence_key("x"),
            "/registry/peerserverleases/a".into(),
            "/other/pods/a/b".into(),
        ] {
            assert_eq!(layout.key(&other), None);
        }
        let nodes = layout.span(b"/nodes/");
        assert!(
            layout.is_exact(b"/nodes/")
                && contains(&nodes, b"/registry/minions/a")
                && !contains(&nodes, b"/registry/pods/a/b")
        );
        assert!(!layout.is_exact(b"") && contains(&layout.span(b""), b"/registry/pods/a/b"));
    }

    #[test]
    fn a_span_after_a_key_begins_with_the_next() {
        let span = Layout::new("/p", &Keys::Steersman).span(b"a");
        let next = span.after(b"/p/objects/a/b");
        assert!(!contains(&next, b"/p/objects/a/b") && contains(&next, b"/p/objects/a/b\0"));
        assert_eq!(span.after(b"/a"), span, "a key before the span leaves it whole");
    }
}
