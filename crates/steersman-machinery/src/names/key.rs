//! The key of an object within its resource: namespace and name.

use std::cmp::Ordering;
use std::fmt;

/// Identifies one object among those of its resource. Cluster-scoped objects have no namespace.
///
/// Keys are ordered by their printed form, byte by byte: the order in which a list returns objects.
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

    /// Parses the printed form: `namespace/name`, or `name`.
    pub fn parse(text: &str) -> ObjectKey {
        match text.split_once('/') {
            Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(text),
        }
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &ObjectKey) -> Ordering {
        match (&self.namespace, &other.namespace) {
            (Some(a), Some(b)) if a == b => self.name.cmp(&other.name),
            (Some(a), Some(b)) => joined_cmp(a, &self.name, b, &other.name),
            (Some(a), None) => split_cmp(a, &self.name, &other.name),
            (None, Some(b)) => split_cmp(b, &other.name, &self.name).reverse(),
            (None, None) => self.name.cmp(&other.name),
        }
    }
}

/// Compares `a/a_name` and `b/b_name`.
fn joined_cmp(a: &str, a_name: &str, b: &str, b_name: &str) -> Ordering {
    let common = a.len().min(b.len());
    let (head, other) = (&a.as_bytes()[..common], &b.as_bytes()[..common]);
    head.cmp(other).then_with(|| {
        // One is a prefix of the other: the slash after the shorter one is compared with a byte of the longer.
        match (a.as_bytes().get(common), b.as_bytes().get(common)) {
            (None, None) => a_name.cmp(b_name),
            (None, Some(byte)) if *byte != b'/' => b'/'.cmp(byte),
            (Some(byte), None) if *byte != b'/' => byte.cmp(&b'/'),
            // A namespace that contains a slash, which no object has.
            _ => format!("{a}/{a_name}").cmp(&format!("{b}/{b_name}")),
        }
    })
}

/// Compares `namespace/name` and `text`.
fn split_cmp(namespace: &str, name: &str, text: &str) -> Ordering {
    let (namespace, text) = (namespace.as_bytes(), text.as_bytes());
    let common = namespace.len().min(text.len());
    let (head, tail) = text.split_at(common);
    namespace[..common].cmp(head).then_with(|| match tail.split_first() {
        // The text is a prefix of the namespace, or equals it.
        None => Ordering::Greater,
        Some((byte, rest)) => b'/'.cmp(byte).then_with(|| name.as_bytes().cmp(rest)),
    })
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &ObjectKey) -> Option<Ordering> {
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
