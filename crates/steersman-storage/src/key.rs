//! The key of an object in the key-value store: `group/resource/key`.
//!
//! The core group is the empty first segment (`/pods/default/web`). Groups and resources contain no slash, so the first
//! two slashes always delimit, every resource has a prefix of its own, and within it the bytes have the order of
//! [`ObjectKey`].

use crate::cache::resource::Scope;
use bytes::Bytes;
use steersman_machinery::{GroupResource, ObjectKey};

/// A name that cannot be stored.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{part} {text:?} cannot be stored: {fault}")]
pub struct KeyError {
    /// The part of the key.
    pub part: &'static str,
    /// The given text.
    pub text: String,
    /// The fault of the text.
    pub fault: &'static str,
}

/// The stored key of an object.
///
/// # Errors
/// When a part of it is empty or has a slash.
pub fn encode(resource: &GroupResource, key: &ObjectKey) -> Result<Bytes, KeyError> {
    let (group, resource) = (resource.group.as_str(), resource.resource.as_str());
    segment("group", group)?;
    segment("resource", non_empty("resource", resource)?)?;
    segment("name", non_empty("name", &key.name)?)?;
    let namespace = key.namespace.as_deref();
    if let Some(namespace) = namespace {
        segment("namespace", non_empty("namespace", namespace)?)?;
    }
    let length = group.len() + resource.len() + namespace.map_or(0, |text| text.len() + 1) + key.name.len() + 2;
    let mut bytes = Vec::with_capacity(length);
    for part in [Some(group), Some(resource), namespace].into_iter().flatten() {
        bytes.extend_from_slice(part.as_bytes());
        bytes.push(b'/');
    }
    bytes.extend_from_slice(key.name.as_bytes());
    Ok(bytes.into())
}

/// The prefix of the keys of a resource's objects, in all namespaces or in one.
pub(crate) fn prefix(resource: &GroupResource, scope: &Scope) -> Bytes {
    let GroupResource { group, resource } = resource;
    match scope {
        Scope::All => format!("{group}/{resource}/").into(),
        Scope::Namespace(namespace) => format!("{group}/{resource}/{namespace}/").into(),
    }
}

/// The group, the resource and the printed key of a stored key; `None` if it does not have that form.
pub(crate) fn split(bytes: &[u8]) -> Option<(&str, &str, &str)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (group, rest) = text.split_once('/')?;
    let (resource, key) = rest.split_once('/')?;
    Some((group, resource, key))
}

fn non_empty<'a>(part: &'static str, text: &'a str) -> Result<&'a str, KeyError> {
    if text.is_empty() { Err(KeyError { part, text: String::new(), fault: "it is empty" }) } else { Ok(text) }
}

fn segment(part: &'static str, text: &str) -> Result<(), KeyError> {
    if text.contains('/') {
        Err(KeyError { part, text: text.to_owned(), fault: "it contains a slash" })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_come_back_and_order_as_objects_do(
            group in "[a-z.-]{0,3}", resource in "[a-z]{1,3}",
            a in "[a-c.-]{1,4}(/[a-c.-]{1,4})?", b in "[a-c.-]{1,4}(/[a-c.-]{1,4})?",
        ) {
            let resource = GroupResource::new(group, resource);
            let (a, b) = (ObjectKey::parse(&a), ObjectKey::parse(&b));
            let (left, right) = (encode(&resource, &a).unwrap(), encode(&resource, &b).unwrap());
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
            let (group, name, printed) = split(&left).unwrap();
            prop_assert_eq!(GroupResource::new(group, name), resource);
            prop_assert_eq!(ObjectKey::parse(printed), a);
        }
    }

    #[test]
    fn names_that_would_be_ambiguous_are_refused() {
        let pods = GroupResource::new("", "pods");
        for key in [
            ObjectKey::cluster(""),
            ObjectKey::cluster("a/b"),
            ObjectKey::namespaced("", "a"),
            ObjectKey::namespaced("a/b", "c"),
        ] {
            assert!(encode(&pods, &key).is_err(), "{key}");
        }
        assert!(encode(&GroupResource::new("a/b", "c"), &ObjectKey::cluster("x")).is_err());
        assert!(encode(&GroupResource::new("a", ""), &ObjectKey::cluster("x")).is_err());
    }
}
