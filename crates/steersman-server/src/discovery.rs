//! Discovery: what groups, versions and resources there are, in the classic and in the aggregated form.
//!
//! A [`Discovery`] belongs to one [`Catalog`] and lives as long. Making one costs nothing: the documents that grow with the
//! number of groups are rendered when somebody first asks for them and kept; those of one group or one version are small
//! and rendered each time. Which of the forms a client gets, and `304 Not Modified`, are the handler's business.

mod aggregated;
mod classic;
mod order;

pub(crate) use crate::discovery::aggregated::upper_hex;

use crate::catalog::Catalog;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// The content type of the aggregated form.
pub const AGGREGATED_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The discovery documents of one catalog.
#[derive(Debug)]
pub struct Discovery {
    catalog: Arc<Catalog>,
    groups: OnceLock<Bytes>,
    aggregated_core: OnceLock<Aggregated>,
    aggregated_groups: OnceLock<Aggregated>,
}

/// An aggregated document with its identity.
#[derive(Clone, Debug)]
pub struct Aggregated {
    /// The JSON.
    pub bytes: Bytes,
    /// The entity tag, quotes included: the SHA-512 of the bytes in upper-case hexadecimal digits.
    pub etag: Box<str>,
}

/// Which of the two roots an aggregated document describes.
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
        Discovery {
            catalog,
            groups: OnceLock::new(),
            aggregated_core: OnceLock::new(),
            aggregated_groups: OnceLock::new(),
        }
    }

    /// `GET /api`: the versions of the core group, and at which address (`host:port`) clients reach this server.
    pub fn core_versions(&self, server_address: &str) -> Bytes {
        classic::core_versions(&self.catalog, server_address)
    }

    /// `GET /apis`: every group but the core group.
    pub fn groups(&self) -> Bytes {
        self.groups.get_or_init(|| classic::groups(&self.catalog)).clone()
    }

    /// `GET /apis/GROUP`; `None` if nobody serves it.
    pub fn group(&self, name: &str) -> Option<Bytes> {
        let group = self.catalog.group(name).filter(|group| !group.name.is_empty())?;
        Some(classic::group(group))
    }

    /// `GET /api/v1` (the core group is the empty string) and `GET /apis/GROUP/VERSION`; `None` if nobody serves it.
    pub fn resources(&self, group: &str, version: &str) -> Option<Bytes> {
        let is_served = self.catalog.group(group)?.versions.iter().any(|served| &**served == version);
        is_served.then(|| classic::resources(&self.catalog, group, version))
    }

    /// All of a root in one document.
    pub fn aggregated(&self, root: Root) -> &Aggregated {
        let (cell, is_core) = match root {
            Root::Core => (&self.aggregated_core, true),
            Root::Groups => (&self.aggregated_groups, false),
        };
        cell.get_or_init(|| {
            let groups = order::groups(&self.catalog);
            aggregated::document(&self.catalog, groups.into_iter().filter(|group| group.name.is_empty() == is_core))
        })
    }

    /// `GET /`: the paths that lead further, sorted: those of the groups and the given others.
    pub fn root_paths(&self, others: &[&str]) -> Bytes {
        classic::root_paths(&self.catalog, others)
    }
}

/// Compact JSON. Trees of strings, lists and numbers always serialise.
fn render(document: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(document).expect("invariant: discovery documents have string keys and finite numbers").into()
}

#[cfg(test)]
pub(crate) mod tests;
