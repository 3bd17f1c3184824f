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

/// Splits the key of an object into group, resource and name.
pub fn split_key(key: &[u8]) -> Option<(&str, &str, &str)> {
    key::split(key)
}
