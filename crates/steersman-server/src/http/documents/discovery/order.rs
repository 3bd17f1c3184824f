//! The order of groups: clients take the first one that has a short name, so the order is part of the interface.
//!
//! As upstream, a group comes before those with a smaller priority, and groups with the same priority are in the order of
//! their names. A group has the highest priority of its versions, whoever serves them. Within a group the versions are in the
//! order of their priorities and, where these are the same, in that of versions.

use crate::shared::aggregation::discovered::{Discovered, RemoteVersion};
use crate::shared::aggregation::priority;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_kinds::catalog::{Group, GroupVersion, version_order};

/// A group, served by this server, by others, or both.
#[derive(Debug)]
pub(super) struct Entry<'a, T> {
    pub(super) name: &'a str,
    /// The group as this server serves it.
    pub(super) local: Option<(&'a Group, T)>,
    /// The versions that other servers serve and this one does not.
    pub(super) remote: Vec<&'a RemoteVersion>,
}

/// A version of a group.
pub(super) enum Version<'a> {
    Local(&'a Arc<GroupVersion>),
    Remote(&'a RemoteVersion),
}

/// The groups of this server and of others, in order.
pub(super) fn sorted<'a, T>(
    local: impl Iterator<Item = (&'a Group, T)>,
    discovered: &'a Discovered,
) -> Vec<Entry<'a, T>> {
    let entry = |(group, it): (&'a Group, T)| {
        (&*group.name, Entry { name: &group.name, local: Some((group, it)), remote: Vec::new() })
    };
    let mut entries: BTreeMap<&str, Entry<'a, T>> = local.map(entry).collect();
    for version in &discovered.versions {
        let name = version.group.as_str();
        let entry = entries.entry(name).or_insert(Entry { name, local: None, remote: Vec::new() });
        if entry.local.as_ref().is_none_or(|(group, _)| group.version(&version.version).is_none()) {
            entry.remote.push(version);
        }
    }
    let mut entries: Vec<Entry<'a, T>> = entries.into_values().collect();
    entries.sort_by_key(|entry| Reverse(entry.priority()));
    entries
}

impl<'a, T> Entry<'a, T> {
    fn priority(&self) -> i64 {
        let local = self.local.as_ref().map(|(group, _)| priority::of_group(group));
        let remote = self.remote.iter().map(|version| version.priority.0);
        remote.chain(local).max().unwrap_or(0)
    }

    /// The versions in order.
    pub(super) fn versions(&self) -> Vec<Version<'a>> {
        let local = self.local.as_ref().map(|(group, _)| *group);
        let own = local.into_iter().flat_map(|group| group.served().iter().map(move |version| (group, version)));
        let own = own.map(|(group, version)| (priority::of_version(group, &version.name), Version::Local(version)));
        let others = self.remote.iter().map(|version| (version.priority.1, Version::Remote(version)));
        let mut versions: Vec<(i64, Version<'a>)> = own.chain(others).collect();
        versions
            .sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| version_order::compare(one.name(), other.name())));
        versions.into_iter().map(|(_, version)| version).collect()
    }
}

impl<'a> Version<'a> {
    pub(super) fn name(&self) -> &'a str {
        match self {
            Version::Local(version) => &version.name,
            Version::Remote(version) => &version.version,
        }
    }
}
