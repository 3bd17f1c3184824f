//! Other keys for the entries of a store: an engine may keep them under keys that other programs expect.

use bytes::Bytes;
use std::fmt::Debug;

/// Translates between the keys of the contract and those under which entries are stored. The keys of one resource have the same order in
/// both, but the resources need not.
pub trait KeyMap: Debug + Send + Sync + 'static {
    /// The stored key for a key, or the prefix of stored keys for a prefix that names a resource ([`KeyMap::has_prefix`]).
    fn stored(&self, key: &[u8]) -> Bytes;

    /// Whether a prefix of keys names a resource, so that the stored keys have a prefix too.
    fn has_prefix(&self, prefix: &[u8]) -> bool;

    /// The key for a stored key; `None` if it is not that of an entry.
    fn key(&self, stored: &Bytes) -> Option<Bytes>;
}
