//! Definitions for kinds of which the dump has objects and no definition.
//!
//! All fields are preserved. The plural is that of the paths in the dump, or guessed as kubectl guesses it.

use crate::limits::Limits;
use crate::objects::LeftOut;
use crate::objects::kinds::Defined;
use bytes::Bytes;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steersman_kinds::catalog::version_order;
use steersman_kinds::{at_rest, crd};
use steersman_machinery::{GroupResource, ObjectKey, Revision, Value, name};
use steersman_storage::encode_key;
use steersman_storage::kv::Entry;

/// The annotation by which a made-up definition is known.
const MADE_UP: &str = "open.steersman.dev/made-up";
/// The most versions of a kind.
const VERSIONS_MAX: usize = 16;

/// The kinds for which definitions are made up.
#[derive(Debug)]
pub(super) struct MadeUp {
    kinds: BTreeMap<(String, String), Kind>,
    /// The plurals that are taken, as `PLURAL.GROUP`.
    taken: BTreeSet<String>,
    kinds_max: usize,
}

#[derive(Debug)]
struct Kind {
    plural: String,
    is_namespaced: bool,
    versions: BTreeSet<String>,
}

/// An object whose kind has no definition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    /// The plural, if something says it.
    pub(super) plural: Option<&'a str>,
    pub(super) is_namespaced: bool,
}

impl MadeUp {
    pub(super) fn new(limits: &Limits) -> MadeUp {
        MadeUp { kinds: BTreeMap::new(), taken: BTreeSet::new(), kinds_max: limits.made_up }
    }

    /// Takes note of an object.
    ///
    /// # Errors
    /// With the reason why its kind cannot have a definition.
    pub(super) fn add(&mut self, object: Unknown<'_>) -> Result<(), String> {
        let Unknown { group, version, kind, plural, is_namespaced } = object;
        let of = || format!("of the kind {kind} in {group}/{version}");
        if !group.contains('.') {
            return Err(format!("{}, which this release does not serve", of()));
        }
        let at = (group.to_owned(), kind.to_owned());
        if let Some(known) = self.kinds.get_mut(&at) {
            known.is_namespaced |= is_namespaced;
            if known.versions.len() < VERSIONS_MAX && name::dns1035_label(version).is_empty() {
                known.versions.insert(version.to_owned());
            }
            return if known.versions.contains(version) {
                Ok(())
            } else {
                Err(format!("{}, a version that cannot be", of()))
            };
        }
        let plural = plural.map_or_else(|| guessed(kind), str::to_owned);
        let is_valid = name::dns1123_subdomain(group).is_empty()
            && name::dns1035_label(&plural).is_empty()
            && name::dns1035_label(version).is_empty()
            && name::dns1035_label(&kind.to_lowercase()).is_empty();
        if !is_valid {
            return Err("of kinds with names that cannot be".to_owned());
        }
        if self.kinds_max <= self.kinds.len() {
            return Err(format!("of kinds beyond the first {} without a definition", self.kinds_max));
        }
        if !self.taken.insert(format!("{plural}.{group}")) {
            return Err(format!("{}, whose plural {plural} another kind has", of()));
        }
        self.kinds.insert(at, Kind { plural, is_namespaced, versions: [version.to_owned()].into() });
        Ok(())
    }

    /// The resource of a kind that has a made-up definition.
    pub(super) fn of(&self, group: &str, kind: &str) -> Option<Defined> {
        let found = self.kinds.get(&(group.to_owned(), kind.to_owned()))?;
        let (group, plural, is_namespaced) = (group.to_owned(), found.plural.clone(), found.is_namespaced);
        let stored_as = Some(format!("{group}/{}", found.storage()));
        Some(Defined { group, plural, is_namespaced, stored_as, resource: None })
    }

    /// The names of the definitions.
    pub(super) fn names(&self) -> Vec<String> {
        self.kinds.iter().map(|((group, _), kind)| format!("{}.{group}", kind.plural)).collect()
    }

    /// The definitions, without revisions.
    pub(super) fn into_entries(self, left_out: &mut LeftOut) -> Vec<Entry> {
        let resource = crd::resource();
        let mut entries = Vec::with_capacity(self.kinds.len());
        for ((group, kind), found) in self.kinds {
            match entry(&resource, &group, &kind, &found) {
                Ok(entry) => entries.push(entry),
                Err(why) => left_out.count(why),
            }
        }
        entries
    }
}

impl Kind {
    /// The version in which objects are stored: the one that clients prefer.
    fn storage(&self) -> &str {
        self.versions.iter().min_by(|a, b| version_order::compare(a, b)).map_or("v1", String::as_str)
    }
}

fn entry(
    resource: &Arc<steersman_kinds::catalog::Resource>,
    group: &str,
    kind: &str,
    found: &Kind,
) -> Result<Entry, String> {
    let name = format!("{}.{group}", found.plural);
    let key = encode_key(&GroupResource::new(crd::GROUP, crd::PLURAL), &ObjectKey::cluster(&*name));
    let key = key.map_err(|error| format!("of kinds with names that cannot be: {error}"))?;
    let draft = at_rest::draft(resource, definition(&name, group, kind, found));
    let value: Bytes = draft.map_err(|error| format!("of the kind {kind}: {error}"))?.encode();
    Ok(Entry { key, revision: Revision::ZERO, value })
}

fn definition(name: &str, group: &str, kind: &str, found: &Kind) -> Value {
    let storage = found.storage();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions: Vec<Value> = found
        .versions
        .iter()
        .map(|version| json!({"name": version, "served": true, "storage": version == storage, "schema": schema}))
        .collect();
    let names = json!({
        "plural": found.plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
    });
    let condition = |of: &str, reason: &str| {
        json!({
            "type": of, "status": "True", "reason": reason, "lastTransitionTime": EPOCH,
            "message": "the definition is made up: the dump has none",
        })
    };
    json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {
            "name": name, "uid": uid(name), "generation": 1, "creationTimestamp": EPOCH,
            "annotations": {MADE_UP: "the dump has no definition of this kind"},
        },
        "spec": {
            "group": group, "names": names, "scope": if found.is_namespaced { "Namespaced" } else { "Cluster" },
            "conversion": {"strategy": "None"}, "versions": versions,
        },
        "status": {
            "acceptedNames": names, "storedVersions": [storage],
            "conditions": [condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")],
        },
    })
}

/// The time at which made-up definitions were created, since nobody knows.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// A uid that is always the same for a name.
fn uid(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    // A UUID of version 8, which are those of one's own making.
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// The plural of a kind, as apimachinery guesses it.
fn guessed(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.as_bytes().last() {
        Some(b's') => format!("{kind}es"),
        Some(b'y') => format!("{}ies", &kind[..kind.len() - 1]),
        _ => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown<'a>(kind: &'a str, version: &'a str) -> Unknown<'a> {
        Unknown { group: "example.com", version, kind, plural: None, is_namespaced: false }
    }

    #[test]
    fn plurals_are_guessed_as_kubectl_does() {
        assert_eq!(["Widget", "Policy", "Gas"].map(guessed), ["widgets", "policies", "gases"]);
    }

    #[test]
    fn a_kind_has_all_of_its_versions_and_is_stored_in_the_best() {
        let mut made_up = MadeUp::new(&Limits::default());
        made_up.add(unknown("Widget", "v1beta1")).unwrap();
        made_up.add(Unknown { is_namespaced: true, ..unknown("Widget", "v1") }).unwrap();
        let of = made_up.of("example.com", "Widget").unwrap();
        assert_eq!((&*of.plural, of.is_namespaced, of.stored_as.as_deref()), ("widgets", true, Some("example.com/v1")));
        assert_eq!(made_up.names(), ["widgets.example.com"]);
        assert_eq!(made_up.into_entries(&mut LeftOut::default()).len(), 1);
    }

    #[test]
    fn names_that_cannot_be_and_too_many_kinds_are_left_out() {
        let mut made_up = MadeUp::new(&Limits { made_up: 2, ..Limits::default() });
        for object in [
            Unknown { group: "policy", ..unknown("PodSecurityPolicy", "v1beta1") },
            Unknown { plural: Some("../x"), ..unknown("A", "v1") },
            unknown("A/B", "v1"),
            unknown("A", "v1/x"),
        ] {
            assert!(made_up.add(object).is_err(), "{object:?}");
        }
        made_up.add(unknown("A", "v1")).unwrap();
        assert!(made_up.add(Unknown { plural: Some("as"), ..unknown("B", "v1") }).is_err());
        made_up.add(unknown("B", "v1")).unwrap();
        assert!(made_up.add(unknown("C", "v1")).is_err());
    }
}
