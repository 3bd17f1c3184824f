//! Which object is meant: its uid, its kind, and where it is.

use hashbrown::HashSet;
use ring::digest;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Where the hyphens of a UUID are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// Names that are shared are looked through for unused ones when their number has doubled, and this many are there.
const UNUSED_MIN: usize = 1_024;
/// The longest uid, API version and kind that is kept as it is. Those of what is served are shorter: a group has 253 bytes at most, a version
/// and a kind 63.
const TEXT_BYTES_MAX: usize = 320;

/// A `metadata.uid`. Those that servers make take 16 bytes; an owner reference may say anything, as long as a request, of which only a digest
/// is kept.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Uid {
    Digest([u8; 32]),
    Text(Arc<str>),
    Uuid([u8; 16]),
}

/// A kind in one version, as owner references say it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Kind {
    pub(super) api_version: Box<str>,
    pub(super) kind: Box<str>,
}

/// An object, or what an owner reference takes for one. Ordered by kind first, as upstream tries the possible identities of an owner.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Identity {
    pub(super) kind: Arc<Kind>,
    /// Empty for objects of the cluster.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
}

/// Kinds and namespaces that many objects share in memory.
#[derive(Debug, Default)]
pub(super) struct Names {
    kinds: Shared<Kind>,
    namespaces: Shared<str>,
}

#[derive(Debug)]
struct Shared<T: ?Sized> {
    all: HashSet<Arc<T>, std::hash::RandomState>,
    /// How many there were when unused ones were dropped last.
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
    /// Whether the text is longer than what is kept of it, so that it has to be read from the object again.
    pub(super) fn is_digest(&self) -> bool {
        matches!(self, Uid::Digest(_))
    }
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    bytes
}

/// A text as it is, or, if it is longer than that of anything served can be, its digest.
fn bounded(text: &str) -> Box<str> {
    if text.len() <= TEXT_BYTES_MAX { text.into() } else { Uid::Digest(sha256(text)).to_string().into() }
}

/// The bytes of a UUID that is written as [`Uid`] writes it again.
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
    /// Whether this is namespaced, as far as is known.
    pub(super) fn is_namespaced(&self) -> bool {
        !self.namespace.is_empty()
    }

    /// How many bytes its texts take, those that others share included.
    pub(super) fn n_bytes(&self) -> usize {
        let Identity { kind, namespace, name, uid } = self;
        let uid = match uid {
            Uid::Text(text) => text.len(),
            Uid::Digest(_) | Uid::Uuid(_) => 0,
        };
        size_of::<Identity>() + kind.api_version.len() + kind.kind.len() + namespace.len() + name.len() + uid
    }

    /// The same object in another namespace; none if empty.
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

/// As upstream's events say it.
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

    /// How many bytes the texts of all kinds take.
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
