//! The key of an object within its resource: namespace and name.

use std::fmt;

/// Names one object among those of its resource. Cluster-scoped objects have no namespace.
///
/// Keys order as their printed form does, byte by byte: the order in which a list returns objects.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ObjectKey {
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<Box<str>>,
    /// The name.
    pub name: Box<str>,
}

impl ObjectKey {
    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<Box<str>>) -> ObjectKey {
        ObjectKey { namespace: None, name: name.into() }
    }

    /// The key of an object in a namespace.
    pub fn namespaced(namespace: impl Into<Box<str>>, name: impl Into<Box<str>>) -> ObjectKey {
        ObjectKey { namespace: Some(namespace.into()), name: name.into() }
    }

    /// Reads the printed form back: `namespace/name`, or `name`.
    pub fn parse(text: &str) -> ObjectKey {
        match text.split_once('/') {
            Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(text),
        }
    }

    fn parts(&self) -> (&[u8], &[u8], &[u8]) {
        match &self.namespace {
            Some(namespace) => (namespace.as_bytes(), b"/", self.name.as_bytes()),
            None => (b"", b"", self.name.as_bytes()),
        }
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &ObjectKey) -> std::cmp::Ordering {
        let (a, b) = (self.parts(), other.parts());
        a.0.iter().chain(a.1).chain(a.2).cmp(b.0.iter().chain(b.1).chain(b.2))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &ObjectKey) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectKey {
    /// `namespace/name`, or `name` for a cluster-scoped object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_order_as_they_print(a in "[a-c.-]{1,4}(/[a-c.-]{1,4})?", b in "[a-c.-]{1,4}(/[a-c.-]{1,4})?") {
            prop_assert_eq!(ObjectKey::parse(&a).cmp(&ObjectKey::parse(&b)), a.as_bytes().cmp(b.as_bytes()));
            prop_assert_eq!(ObjectKey::parse(&a).to_string(), a);
        }
    }
}
