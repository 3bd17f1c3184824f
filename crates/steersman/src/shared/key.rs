//! The key of queues, caches and reconcilers: namespace and name.
//!
//! A key is one shared string, so cloning it (a queue does so on every round) is one reference count.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use kube::Resource;

/// Names one object of one type: `namespace/name`, or `name` for a cluster-scoped object.
///
/// Cheap to clone. Ordered and hashed by its text. It does not contain the type, which its holder knows.
#[derive(Clone)]
pub struct ObjectKey {
    /// `namespace/name` or `name`.
    text: Arc<str>,
    /// Length of the namespace in `text`; 0 exactly for a cluster-scoped object.
    namespace_len: u32,
}

/// Why a string is not an [`ObjectKey`].
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an object key: write \"name\" or \"namespace/name\"")]
pub struct ParseKeyError {
    text: String,
}

// === impl ObjectKey ===

impl ObjectKey {
    /// The key of a namespaced object. An empty namespace means cluster scope.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self::cluster(name);
        }
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        // The server limits names far below this; a longer one only loses its split.
        let namespace_len = u32::try_from(namespace.len()).unwrap_or(0);
        Self { text: text.into(), namespace_len }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { text: name.into(), namespace_len: 0 }
    }

    /// The key of `object`, from its metadata. An object without a name has the empty name.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        match meta.namespace.as_deref() {
            None => Self::cluster(name),
            Some(namespace) => Self::namespaced(namespace, name),
        }
    }

    /// The namespace, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        match self.namespace_len {
            0 => None,
            len => self.text.get(..len as usize),
        }
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        match self.namespace_len {
            0 => &self.text,
            len => self.text.get(len as usize + 1..).unwrap_or_default(),
        }
    }

    /// The whole key as text, the way logs and `Display` show it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) || self.text == other.text
    }
}

impl Eq for ObjectKey {}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The hash must agree with that of `str`, because of `Borrow<str>`.
        self.text.hash(state);
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl FromStr for ObjectKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseKeyError { text: text.to_owned() };
        match text.split_once('/') {
            None if text.is_empty() => Err(invalid()),
            None => Ok(Self::cluster(text)),
            Some((namespace, name)) if namespace.is_empty() || name.is_empty() || name.contains('/') => Err(invalid()),
            Some((namespace, name)) => Ok(Self::namespaced(namespace, name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(Option<&str>, &str)>) {
        let parsed = text.parse::<ObjectKey>();
        assert_eq!(parsed.as_ref().ok().map(|key| (key.namespace(), key.name())), expected);
        if let Ok(key) = parsed {
            assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn a_key_reads_back_as_it_was_written() {
        check("default/a", Some((Some("default"), "a")));
        check("a", Some((None, "a")));
        check("", None);
        check("/a", None);
        check("a/", None);
        check("a/b/c", None);
    }

    #[test]
    fn a_key_is_found_in_a_map_by_its_text() {
        let map = std::collections::HashMap::from([(ObjectKey::namespaced("default", "a"), 1)]);
        assert_eq!(map.get("default/a"), Some(&1));
        assert_eq!(ObjectKey::namespaced("", "a"), ObjectKey::cluster("a"));
    }
}
