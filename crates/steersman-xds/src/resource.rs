//! An encoded resource with its version, made once and shared by all proxies that have it.

use crate::field;
use crate::kind::Kind;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// A version: a hash of the content, so that equal resources have equal versions in every process.
///
/// In the protocol it is 32 hexadecimal digits.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version([u8; 16]);

/// Another resource that a resource refers to.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Need {
    pub kind: Kind,
    pub name: Arc<str>,
}

/// An encoded resource.
#[derive(Clone, Debug)]
pub struct Resource {
    kind: Kind,
    name: Arc<str>,
    /// The resource as a field of a delta response.
    field: Bytes,
    /// Where in `field` the field of a state-of-the-world response begins.
    any: usize,
    /// Where in `field` the content begins.
    content: usize,
    version: Version,
    needs: Arc<[Need]>,
    source: Option<Arc<str>>,
}

// === impl Version ===

impl Version {
    /// The version of this content.
    #[must_use]
    pub fn of(content: &[u8]) -> Version {
        let mut version = [0; 16];
        version.copy_from_slice(&Sha256::digest(content)[..16]);
        Version(version)
    }

    /// Reads the hexadecimal form. `None` for the versions of other control planes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Version> {
        let text: &[u8; 32] = text.as_bytes().try_into().ok()?;
        let mut version = [0; 16];
        for (byte, digits) in version.iter_mut().zip(text.chunks_exact(2)) {
            let [high, low] = [digits[0], digits[1]].map(|digit| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            });
            *byte = high? << 4 | low?;
        }
        Some(Version(version))
    }

    pub(crate) fn number(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

// === impl Resource ===

impl Resource {
    /// A resource of its message. `name` must be the name that the message has too.
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<Arc<str>>, message: &impl prost::Message) -> Resource {
        Resource::from_bytes(kind, name, message.encode_to_vec().into())
    }

    /// A resource of its encoded message. Messages with maps must be encoded in one order of their keys, or the version changes
    /// although nothing else does.
    #[must_use]
    pub fn from_bytes(kind: Kind, name: impl Into<Arc<str>>, bytes: Bytes) -> Resource {
        let version = Version::of(&bytes);
        let name = name.into();
        let (field, any, content) = field::encode_resource(kind, &name, &version.to_string(), &bytes);
        Resource { kind, name, field, any, content, version, needs: Arc::default(), source: None }
    }

    /// Adds resources that this one refers to: the endpoints of a cluster, the clusters of a route or listener, the routes of a
    /// listener.
    ///
    /// A route or listener is sent when its clusters can serve, and a cluster is removed when nothing refers to it any more.
    #[must_use]
    pub fn needing<N: Into<Arc<str>>>(mut self, kind: Kind, names: impl IntoIterator<Item = N>) -> Resource {
        let more = names.into_iter().map(|name| Need { kind, name: name.into() });
        let mut needs: Vec<Need> = self.needs.iter().cloned().chain(more).collect();
        needs.sort_unstable();
        needs.dedup();
        self.needs = needs.into();
        self
    }

    /// Sets the object that the resource was made from, which a report of a rejection names.
    #[must_use]
    pub fn made_from(mut self, source: impl Into<Arc<str>>) -> Resource {
        self.source = Some(source.into());
        self
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The encoded message.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.field.slice(self.content..)
    }

    /// The number of bytes in a response.
    pub(crate) fn size(&self) -> usize {
        self.field.len()
    }

    /// The field of a delta response.
    pub(crate) fn delta_field(&self) -> Bytes {
        self.field.clone()
    }

    /// The field of a state-of-the-world response.
    pub(crate) fn any_field(&self) -> Bytes {
        self.field.slice(self.any..)
    }

    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The resources that this one refers to, sorted.
    #[must_use]
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    #[must_use]
    pub fn source(&self) -> Option<&Arc<str>> {
        self.source.as_ref()
    }

    /// The names of the resources of `kind` that this one refers to.
    pub fn needed(&self, kind: Kind) -> impl Iterator<Item = &Arc<str>> {
        self.needs.iter().filter(move |need| need.kind == kind).map(|need| &need.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_written() {
        let version = Version::of(b"content");
        assert_eq!(Version::parse(&version.to_string()), Some(version));
        assert_eq!(version.to_string().len(), 32);
        for other in ["", "1", "v1", &"g".repeat(32), &"A".repeat(32), &"ä".repeat(16)] {
            assert_eq!(Version::parse(other), None, "{other}");
        }
    }

    #[test]
    fn needs_are_sorted_and_named_once() {
        let resource = Resource::from_bytes(Kind::Route, "r", Bytes::new());
        let resource = resource.needing(Kind::Cluster, ["b", "a", "b"]).needing(Kind::Cluster, ["a"]);
        let names: Vec<_> = resource.needed(Kind::Cluster).map(|name| &**name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(resource.needed(Kind::Route).count(), 0);
    }
}
