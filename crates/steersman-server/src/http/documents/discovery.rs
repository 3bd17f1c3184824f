//! Discovery: the served groups, versions and resources, in the classic and in the aggregated form.
//!
//! A [`Discovery`] belongs to one [`Catalog`]. Documents are rendered at the first request. The entry of a group in the two
//! lists of groups is reused until the group changes, so that a list after a change costs the groups that changed; the lists
//! are kept as long as their catalog. Documents of one group or version are small and rendered for each request. What the
//! servers behind APIServices serve is listed beside it, as far as this server does not serve it itself. Choosing the form, and `304 Not Modified`, are up to the handler.

mod aggregated;
mod classic;
mod order;

pub(crate) use crate::http::documents::discovery::aggregated::upper_hex;

use crate::shared::aggregation::discovered::Discovered;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use steersman_kinds::catalog::{Catalog, Group, PerGroup};

/// The content type of the aggregated form.
pub const AGGREGATED_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The discovery documents of one catalog.
#[derive(Debug)]
pub struct Discovery {
    catalog: Arc<Catalog>,
    entries: PerGroup<Entries>,
    /// The kinds that other servers serve.
    discovered: Arc<Discovered>,
    groups: OnceLock<Bytes>,
    aggregated_core: OnceLock<Aggregated>,
    aggregated_groups: OnceLock<Aggregated>,
}

/// Other servers serve nothing of the core group.
static NOTHING: Discovered = Discovered { versions: Vec::new() };

/// A group's entries in the lists of groups.
#[derive(Debug, Default)]
struct Entries {
    classic: OnceLock<Bytes>,
    aggregated: OnceLock<Bytes>,
}

/// An aggregated document with its identity.
#[derive(Clone, Debug)]
pub struct Aggregated {
    /// The JSON.
    pub bytes: Bytes,
    /// The entity tag, quotes included: the SHA-512 of the bytes in upper-case hexadecimal digits.
    pub etag: Box<str>,
}

/// The root that an aggregated document describes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Root {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all others.
    Groups,
}

impl Discovery {
    /// The documents of a catalog.
    pub fn new(catalog: Arc<Catalog>) -> Discovery {
        let entries = PerGroup::new(&catalog, |_| Entries::default());
        Discovery::with(catalog, entries, Arc::default())
    }

    /// The documents of the next catalog, which reuse the entries of groups that have not changed.
    #[must_use]
    pub fn after(&self, catalog: Arc<Catalog>) -> Discovery {
        let entries = self.entries.after(&catalog, |_, _| Entries::default());
        Discovery::with(catalog, entries, self.discovered.clone())
    }

    /// The same with what other servers serve.
    #[must_use]
    pub(crate) fn beside(self, discovered: Arc<Discovered>) -> Discovery {
        Discovery::with(self.catalog, self.entries, discovered)
    }

    fn with(catalog: Arc<Catalog>, entries: PerGroup<Entries>, discovered: Arc<Discovered>) -> Discovery {
        Discovery {
            catalog,
            entries,
            discovered,
            groups: OnceLock::new(),
            aggregated_core: OnceLock::new(),
            aggregated_groups: OnceLock::new(),
        }
    }

    /// The groups in order, the core group alone or all others.
    fn ordered(&self, root: Root) -> Vec<order::Entry<'_, &Entries>> {
        let is_wanted = |group: &Group| group.name.is_empty() == (root == Root::Core);
        let groups = self.entries.iter().filter(|(group, _)| is_wanted(group));
        match root {
            Root::Core => order::sorted(groups, &NOTHING),
            Root::Groups => order::sorted(groups, &self.discovered),
        }
    }

    /// `GET /api`: the versions of the core group, and the address (`host:port`) at which clients reach this server.
    pub fn core_versions(&self, server_address: &str) -> Bytes {
        classic::core_versions(&self.catalog, server_address)
    }

    /// `GET /apis`: every group but the core group.
    pub fn groups(&self) -> Bytes {
        let render = || {
            let items: Vec<Bytes> = self.ordered(Root::Groups).iter().map(classic_item).collect();
            classic::groups(items.iter())
        };
        self.groups.get_or_init(render).clone()
    }

    /// `GET /apis/GROUP`; `None` if nobody serves it.
    pub fn group(&self, name: &str) -> Option<Bytes> {
        let entry = self.ordered(Root::Groups).into_iter().find(|entry| entry.name == name)?;
        Some(classic::group(entry.name, &entry.versions()))
    }

    /// `GET /api/v1` (the core group is the empty string) and `GET /apis/GROUP/VERSION`; `None` if it is not served.
    pub fn resources(&self, group: &str, version: &str) -> Option<Bytes> {
        self.catalog.group(group)?.version(version).map(|version| classic::resources(version))
    }

    /// All groups of a root in one document.
    pub fn aggregated(&self, root: Root) -> &Aggregated {
        let cell = match root {
            Root::Core => &self.aggregated_core,
            Root::Groups => &self.aggregated_groups,
        };
        cell.get_or_init(|| {
            let items: Vec<Bytes> = self.ordered(root).iter().map(aggregated_item).collect();
            aggregated::document(items.iter())
        })
    }

    /// `GET /`: the paths below it, sorted: those of the groups and the given others.
    pub fn root_paths(&self, others: &[&str]) -> Bytes {
        classic::root_paths(&self.catalog, &self.discovered, others)
    }
}

/// A group as an item of the classic list. It is kept while this server alone serves the group.
fn classic_item(entry: &order::Entry<'_, &Entries>) -> Bytes {
    let render = || classic::group_item(entry.name, &entry.versions());
    match &entry.local {
        Some((_, kept)) if entry.remote.is_empty() => kept.classic.get_or_init(render).clone(),
        Some(_) | None => render(),
    }
}

/// A group as an item of the aggregated list. It is kept while this server alone serves the group.
fn aggregated_item(entry: &order::Entry<'_, &Entries>) -> Bytes {
    let render = || aggregated::group(entry.name, &entry.versions());
    match &entry.local {
        Some((_, kept)) if entry.remote.is_empty() => kept.aggregated.get_or_init(render).clone(),
        Some(_) | None => render(),
    }
}

/// Compact JSON. Trees of strings, lists and numbers always serialise.
fn render(document: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(document).expect("invariant: discovery documents have string keys and finite numbers").into()
}

/// A document that is a list of rendered items.
fn list<'a>(head: &str, items: impl Iterator<Item = &'a Bytes>, tail: &str) -> Bytes {
    let mut out = head.as_bytes().to_vec();
    for (index, item) in items.enumerate() {
        if 0 < index {
            out.push(b',');
        }
        out.extend_from_slice(item);
    }
    out.extend_from_slice(tail.as_bytes());
    out.into()
}

#[cfg(test)]
pub(crate) mod tests;
