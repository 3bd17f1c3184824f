//! The keys that kube-apiserver gives to objects, without its prefix `/registry/`.
//!
//! ```text
//! ours            kube-apiserver's
//! /pods/NS/NAME   pods/NS/NAME            built-in kinds: the plural without the group
//! /nodes/NAME     minions/NAME            but for some, whose names are older (default_storage_factory_builder.go)
//! a.io/bs/NAME    a.io/bs/NAME            custom resources: the same
//! ```
//!
//! The keys of one resource have the same order in both.

use bytes::Bytes;
use std::collections::HashMap;
use steersman_machinery::GroupResource;
use steersman_storage::kv::key_map::KeyMap;

/// The built-in resources whose keys do not begin with their plural.
const UNUSUAL: [(&str, &str, &str); 7] = [
    ("", "endpoints", "services/endpoints"),
    ("", "nodes", "minions"),
    ("", "replicationcontrollers", "controllers"),
    ("", "services", "services/specs"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "apiextensions.k8s.io/customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices", "apiregistration.k8s.io/apiservices"),
    ("networking.k8s.io", "ingresses", "ingress"),
];
/// Resources that are stored, and no part of the API: the addresses of the servers, and the bitmap of node ports.
const STORED_ONLY: [&str; 2] = ["masterleases", "ranges"];
/// The group of entries that are no objects of the API, which kube-apiserver does not have.
const OWN_GROUP: &str = "steersman";

/// Translates between the keys of the store and those of kube-apiserver.
#[derive(Debug)]
pub struct RegistryKeys {
    /// The beginnings of kube-apiserver's keys, by `group/resource`.
    prefixes: HashMap<String, String>,
    /// `group/resource` by the beginnings of kube-apiserver's keys.
    resources: HashMap<String, String>,
}

impl RegistryKeys {
    /// The keys of these built-in resources, and of all custom ones.
    pub fn new(built_in: impl IntoIterator<Item = GroupResource>) -> RegistryKeys {
        let stored_only = STORED_ONLY.map(|resource| GroupResource::new("", resource));
        let (mut prefixes, mut resources) = (HashMap::new(), HashMap::new());
        for GroupResource { group, resource } in built_in.into_iter().chain(stored_only) {
            let unusual = UNUSUAL.iter().find(|(of, plural, _)| *of == group && *plural == resource);
            let prefix = unusual.map_or(&*resource, |(_, _, prefix)| prefix).to_owned();
            let own = format!("{group}/{resource}");
            prefixes.insert(own.clone(), prefix.clone());
            resources.insert(prefix, own);
        }
        RegistryKeys { prefixes, resources }
    }
}

impl KeyMap for RegistryKeys {
    fn stored(&self, key: &[u8]) -> Bytes {
        let own = segments(key, 2).and_then(|at| Some((std::str::from_utf8(&key[..at]).ok()?, &key[at..])));
        match own.and_then(|(own, rest)| Some((self.prefixes.get(own)?, rest))) {
            Some((prefix, rest)) => [prefix.as_bytes(), rest].concat().into(),
            None => Bytes::copy_from_slice(key),
        }
    }

    fn has_prefix(&self, prefix: &[u8]) -> bool {
        segments(prefix, 2).is_some()
    }

    fn key(&self, stored: &Bytes) -> Option<Bytes> {
        let first = std::str::from_utf8(&stored[..segments(stored, 1)?]).ok()?;
        let at = match self.resources.contains_key(first) {
            true => first.len(),
            false => segments(stored, 2)?,
        };
        let prefix = std::str::from_utf8(&stored[..at]).ok()?;
        match self.resources.get(prefix) {
            Some(own) => Some([own.as_bytes(), &stored[at..]].concat().into()),
            // The groups of definitions have a dot, which the plurals of built-in kinds do not.
            None if first.contains('.') || first == OWN_GROUP => Some(stored.clone()),
            None => None,
        }
    }
}

/// The length of a number of segments, behind which a slash follows.
fn segments(key: &[u8], n_segments: usize) -> Option<usize> {
    let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| at).nth(n_segments - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BUILT_IN: [(&str, &str); 9] = [
        ("", "endpoints"),
        ("", "nodes"),
        ("", "pods"),
        ("", "services"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("apps", "deployments"),
        ("coordination.k8s.io", "leases"),
        ("networking.k8s.io", "ingresses"),
    ];

    fn keys() -> RegistryKeys {
        RegistryKeys::new(BUILT_IN.map(|(group, resource)| GroupResource::new(group, resource)))
    }

    /// The right-hand side is of `etcdctl get --prefix /registry --keys-only` beside a kube-apiserver 1.36.
    #[test]
    fn objects_have_the_keys_of_kube_apiserver() {
        let keys = keys();
        for (own, upstream) in [
            ("/endpoints/default/kubernetes", "services/endpoints/default/kubernetes"),
            ("/masterleases/10.0.0.1", "masterleases/10.0.0.1"),
            ("/nodes/a", "minions/a"),
            ("/pods/default/web", "pods/default/web"),
            ("/ranges/servicenodeports", "ranges/servicenodeports"),
            ("/services/default/kubernetes", "services/specs/default/kubernetes"),
            (
                "apiextensions.k8s.io/customresourcedefinitions/a.b.c",
                "apiextensions.k8s.io/customresourcedefinitions/a.b.c",
            ),
            ("apiregistration.k8s.io/apiservices/v1.apps", "apiregistration.k8s.io/apiservices/v1.apps"),
            ("apps/deployments/default/web", "deployments/default/web"),
            ("example.io/widgets/default/a", "example.io/widgets/default/a"),
            ("networking.k8s.io/ingresses/default/a", "ingress/default/a"),
            ("steersman/serviceaccountkeys/a", "steersman/serviceaccountkeys/a"),
        ] {
            assert_eq!(keys.stored(own.as_bytes()), upstream);
            assert_eq!(keys.key(&Bytes::from(upstream)).as_deref(), Some(own.as_bytes()), "{upstream}");
        }
    }

    #[test]
    fn other_entries_of_kube_apiserver_are_no_objects() {
        for other in ["peerserverleases/a", "health", "services/ranges/a", "pods", "podtemplates/a/b", "a.io/b"] {
            assert_eq!(keys().key(&Bytes::from(other)), None, "{other}");
        }
    }

    #[test]
    fn a_prefix_has_the_keys_that_have_it() {
        let keys = keys();
        assert_eq!(keys.stored(b"/services/default/"), "services/specs/default/");
        assert_eq!(keys.stored(b"apps/deployments/"), "deployments/");
        assert!(keys.has_prefix(b"apps/deployments/") && keys.has_prefix(b"/pods/a/"));
        assert!(!keys.has_prefix(b"") && !keys.has_prefix(b"apps/") && !keys.has_prefix(b"apps/deploy"));
    }

    proptest! {
        #[test]
        fn every_key_comes_back(
            at in 0..BUILT_IN.len() + 1, custom in "[a-z]{1,3}\\.[a-z]{1,3}/[a-z]{1,5}",
            rest in "[a-z0-9.-]{1,8}(/[a-z0-9.:-]{1,8})?",
        ) {
            let resource = BUILT_IN.get(at).map_or(custom, |(group, resource)| format!("{group}/{resource}"));
            let (keys, key) = (keys(), format!("{resource}/{rest}"));
            let back = keys.key(&keys.stored(key.as_bytes()));
            prop_assert_eq!(back.as_deref(), Some(key.as_bytes()));
        }
    }
}
