//! The names of groups, versions, kinds and fields in generated code.

use std::collections::BTreeSet;

use crate::crd::{Definition, Scope, Version};
use crate::types::names::of_kind;
use crate::words;

/// A group and version, and the name of their module.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct GroupVersion {
    pub(super) group: String,
    pub(super) version: String,
    /// `samplecrd_v1`
    pub(super) module: String,
}

/// A version of a kind.
pub(super) struct Kind<'a> {
    /// `VirtualService`. If the kind is not a valid name in Rust, or the name of another type, the name that
    /// [`crate::types`] gives it.
    pub(super) name: String,
    /// `virtual_services`
    pub(super) method: String,
    pub(super) scope: Scope,
    pub(super) version: &'a Version,
}

// === impl GroupVersion ===

impl GroupVersion {
    /// `groups` are all generated groups: two that have the same first part get their whole names.
    pub(super) fn new(group: &str, version: &str, groups: &BTreeSet<&str>) -> GroupVersion {
        let first = |group: &str| group.split('.').next().unwrap_or_default().to_owned();
        let n_alike = groups.iter().filter(|other| first(other) == first(group)).count();
        let short = words::field(&if n_alike > 1 { group.to_owned() } else { first(group) });
        let module = words::identifier(words::snake(&words::words(&format!("{short}_{version}"))));
        GroupVersion { group: group.to_owned(), version: version.to_owned(), module }
    }

    /// `samplecrd.k8s.io/v1`
    pub(super) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

// === impl Kind ===

impl<'a> Kind<'a> {
    pub(super) fn new(definition: &'a Definition, version: &'a Version) -> Kind<'a> {
        let names = &definition.names;
        let method = words::identifier(plural(&names.kind, &names.plural));
        Kind { name: of_kind(&names.kind), method, scope: definition.scope, version }
    }
}

/// The plural with the kind's words separated: `VirtualService` and `virtualservices` make `virtual_services`.
fn plural(kind: &str, plural: &str) -> String {
    let (words, lower) = (snake(kind), kind.to_lowercase());
    let ending = |stem: &str, words: &str| Some(format!("{words}{}", plural.strip_prefix(stem)?));
    let changed = || {
        let (stem, words) = (lower.strip_suffix('y')?, words.strip_suffix('y')?);
        ending(stem, words)
    };
    ending(&lower, &words).or_else(changed).unwrap_or_else(|| snake(plural))
}

/// `HTTPRoute` as `http_route`.
fn snake(name: &str) -> String {
    words::snake(&words::words(name))
}

/// `name`, with underscores appended until it is not in `taken`, to which it is added.
pub(super) fn unique(name: String, taken: &mut BTreeSet<String>) -> String {
    let mut name = name;
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}
