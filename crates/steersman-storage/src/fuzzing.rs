//! Entries for the fuzz targets in `fuzz/`, which read entries of the log and keys through items that are otherwise
//! private.
//!
//! Only with the feature `fuzzing`, and no part of the interface.

use crate::kv::Event;
use crate::{disk, key};

/// Encodes a change for the log.
pub fn encode_entry(key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    disk::format::encode_sealed(key, value)
}

/// Reads a change of the log.
pub fn decode_entry(stored: &[u8]) -> Result<Event, String> {
    disk::format::decode_sealed(stored)
}

/// Splits a stored key into the group, the resource and the printed key of the object.
pub fn split_key(key: &[u8]) -> Option<(&str, &str, &str)> {
    key::split(key)
}
