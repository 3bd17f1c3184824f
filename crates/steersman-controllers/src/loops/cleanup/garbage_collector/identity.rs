//! The identity of an object: its uid, its kind, its namespace and its name.

use hashbrown::HashSet;
use ring::digest;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The positions of the hyphens in a UUID.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// The number of shared names from which unused ones are dropped. They are dropped whenever the number has doubled.
const UNUSED_MIN: usize = 1_024;
/// The longest uid, API version and kind that is kept as it is. Those of served kinds are shorter: a group has at most
/// 253 bytes, a version and a kind 63.
const TEXT_BYTES_MAX: usize = 320;

/// A `metadata.uid`. UUIDs, which servers generate, take 16 bytes. An owner reference may have a uid as long as a
/// request, so a long one is kept as a digest only.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Uid {
    Digest([u8; 32]),
    Text(Arc<str>),
    Uuid([u8; 16]),
}

/// A kind in one version, as in owner references.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Kind {
    pub(super) api_version: Box<str>,
    pub(super) kind: Box<str>,
}

/// The identity of an object, or that which an owner reference assumes. Ordered by kind first, as upstream tries the
/// possible identities of an owner.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Identity {
    pub(super) kind: Arc<Kind>,
    /// Empty for cluster-scoped objects.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
}

/// Kinds and namespaces, shared in memory by many objects.
#[derive(Debug, Default)]
pub(super) struct Names {
    kinds: Shared<Kind>,
    namespaces: Shared<str>,
}

#[derive(Debug)]
struct Shared<T: ?Sized> {
    all: HashSet<Arc<T>, std::hash::RandomState>,
    /// The number of entries when unused ones were dropped last.
    kept: usize,
}

// === impl Uid ===

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        match uuid(text) {
            Some(bytes) => Uid::Uuid(bytes),
            None if text.len() > TEXT_BYTES_MAX => Uid::Digest(sha256(text)),
            None => Uid::Text(text.into()),
        }
    }
}

impl Uid {
    /// Whether only a digest is kept, so that the uid has to be read from the object again.
    pub(super) fn is_digest(&self) -> bool {
        matches!(self, Uid::Digest(_))
    }
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    bytes
}

/// A text unchanged, or its digest if it is longer than any text of a served kind.
fn bounded(text: &str) -> Box<str> {
    if text.len() <= TEXT_BYTES_MAX { text.into() } else { Uid::Digest(sha256(text)).to_string().into() }
}

/// The bytes of a UUID, if [`Uid`] would format it in the same way.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut n_digits = 0_usize;
    for (position, &byte) in text.iter().enumerate() {
        if HYPHENS.contains(&position) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        let slot = bytes.get_mut(n_digits / 2)?;
        *slot = *slot << 4 | digit;
        n_digits += 1;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Digest(bytes) => {
                f.write_str("sha256:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Uid::Text(text) => f.write_str(text),
            Uid::Uuid(bytes) => {
                for (position, byte) in bytes.iter().enumerate() {
                    let hyphen = if matches!(position, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{hyphen}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

// === impl Identity ===

impl Identity {
    /// Whether the object is namespaced, as far as is known.
    pub(super) fn is_namespaced(&self) -> bool {
        !self.namespace.is_empty()
    }

    /// The bytes of its texts, including those shared with others.
    pub(super) fn n_bytes(&self) -> usize {
        let Identity { kind, namespace, name, uid } = self;
        let uid = match uid {
            Uid::Text(text) => text.len(),
            Uid::Digest(_) | Uid::Uuid(_) => 0,
        };
        size_of::<Identity>() + kind.api_version.len() + kind.kind.len() + namespace.len() + name.len() + uid
    }

    /// The same object in another namespace; an empty one stands for cluster scope.
    pub(super) fn within(&self, namespace: &Arc<str>) -> Identity {
        Identity { namespace: Arc::clone(namespace), ..self.clone() }
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Identity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Identity {
    fn cmp(&self, other: &Identity) -> Ordering {
        let key = |one: &Identity| {
            (
                one.kind.kind.clone(),
                one.kind.api_version.clone(),
                one.namespace.clone(),
                one.name.clone(),
                one.uid.clone(),
            )
        };
        key(self).cmp(&key(other))
    }
}

/// In the format of upstream's events.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { kind, namespace, name, uid } = self;
        write!(f, "[{}/{}, namespace: {namespace}, name: {name}, uid: {uid}]", kind.api_version, kind.kind)
    }
}

// === impl Names ===

impl Names {
    pub(super) fn kind(&mut self, api_version: &str, kind: &str) -> Arc<Kind> {
        self.kinds.get(Kind { api_version: bounded(api_version), kind: bounded(kind) })
    }

    /// The bytes of the texts of all kinds.
    #[cfg(test)]
    pub(super) fn n_bytes_of_kinds(&self) -> usize {
        self.kinds.all.iter().map(|kind| kind.api_version.len() + kind.kind.len()).sum()
    }

    pub(super) fn namespace(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.all.get(namespace) {
            return Arc::clone(known);
        }
        self.namespaces.add(namespace.into())
    }
}

impl Shared<Kind> {
    fn get(&mut self, value: Kind) -> Arc<Kind> {
        match self.all.get(&value) {
            Some(known) => Arc::clone(known),
            None => self.add(Arc::new(value)),
        }
    }
}

impl<T: ?Sized + Eq + std::hash::Hash> Shared<T> {
    fn add(&mut self, value: Arc<T>) -> Arc<T> {
        if self.all.len() >= UNUSED_MIN.max(self.kept.saturating_mul(2)) {
            self.all.retain(|known| Arc::strong_count(known) > 1);
            self.kept = self.all.len();
        }
        self.all.insert(Arc::clone(&value));
        value
    }
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared { all: HashSet::default(), kept: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_written_as_it_was_read() {
        for text in ["11111111-2222-3333-4444-5555555555ff", "11111111-2222-3333-4444-5555555555FF", "", "mine"] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(matches!(Uid::from("11111111-2222-3333-4444-5555555555ff"), Uid::Uuid(_)));
        assert!(matches!(Uid::from("11111111-2222-3333-4444-5555555555FF"), Uid::Text(_)));
    }

    #[test]
    fn names_that_nobody_uses_are_dropped() {
        let mut names = Names::default();
        let kept = names.namespace("kept");
        for n in 0..10 * UNUSED_MIN {
            names.namespace(&n.to_string());
        }
        assert!(names.namespaces.all.len() <= 2 * UNUSED_MIN);
        assert!(Arc::ptr_eq(&kept, &names.namespace("kept")));
    }
}
