//! A cache of facts about texts, such as tokens and requests to webhooks, by the digest of the text.
//!
//! Bounded by number and bytes: there are two halves, new entries go into the younger, and when that is full it becomes the
//! older, whose entries are dropped. An entry that is read moves to the younger half, so what is in use stays.

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::mem;

/// The digest of a text: the text itself, which may be long or secret, is not kept.
pub(crate) type Digest = [u8; 32];

/// Values by digest.
#[derive(Debug)]
pub(crate) struct DigestCache<T> {
    halves: Mutex<Halves<T>>,
    entries_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Halves<T> {
    younger: HashMap<Digest, Entry<T>>,
    younger_bytes: usize,
    older: HashMap<Digest, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    bytes: usize,
}

impl<T: Clone> DigestCache<T> {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> DigestCache<T> {
        let halves = Halves { younger: HashMap::new(), younger_bytes: 0, older: HashMap::new() };
        DigestCache { halves: Mutex::new(halves), entries_max, bytes_max }
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<T> {
        let mut halves = self.halves.lock();
        if let Some(entry) = halves.younger.get(digest) {
            return Some(entry.value.clone());
        }
        let entry = halves.older.remove(digest)?;
        let value = entry.value.clone();
        self.put(&mut halves, *digest, entry);
        Some(value)
    }

    /// Caches a value that takes this many bytes, unless it takes more than half of all.
    pub(crate) fn insert(&self, digest: Digest, value: T, bytes: usize) {
        if bytes <= self.bytes_max / 2 {
            self.put(&mut self.halves.lock(), digest, Entry { value, bytes });
        }
    }

    pub(crate) fn remove(&self, digest: &Digest) {
        let mut halves = self.halves.lock();
        halves.older.remove(digest);
        if let Some(entry) = halves.younger.remove(digest) {
            halves.younger_bytes -= entry.bytes;
        }
    }

    fn put(&self, halves: &mut Halves<T>, digest: Digest, entry: Entry<T>) {
        let is_full =
            halves.younger.len() >= self.entries_max / 2 || halves.younger_bytes + entry.bytes > self.bytes_max / 2;
        if is_full && !halves.younger.contains_key(&digest) {
            halves.older = mem::take(&mut halves.younger);
            halves.younger_bytes = 0;
        }
        halves.younger_bytes += entry.bytes;
        if let Some(before) = halves.younger.insert(digest, entry) {
            halves.younger_bytes -= before.bytes;
        }
    }
}

pub(crate) fn digest(text: impl AsRef<[u8]>) -> Digest {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u16) -> Digest {
        digest(number.to_string())
    }

    #[test]
    fn what_is_in_use_stays_and_there_is_never_more_than_allowed() {
        let cache = DigestCache::new(16, 1000);
        for number in 0..1000 {
            cache.insert(key(number), number, 10);
            assert_eq!(cache.get(&key(0)), Some(0), "{number}");
            let halves = cache.halves.lock();
            assert!(halves.younger.len() + halves.older.len() <= 16);
        }
        assert_eq!(cache.get(&key(500)), None);
        cache.remove(&key(0));
        assert_eq!(cache.get(&key(0)), None);
    }

    #[test]
    fn bytes_count_too() {
        let cache = DigestCache::new(1000, 100);
        cache.insert(key(1), 1, 51);
        assert_eq!(cache.get(&key(1)), None);
        for number in 0..100 {
            cache.insert(key(number), number, 20);
            cache.insert(key(number), number, 20);
            let halves = cache.halves.lock();
            let bytes: usize = halves.younger.values().chain(halves.older.values()).map(|entry| entry.bytes).sum();
            assert!(bytes <= 100 && halves.younger_bytes <= 50);
        }
    }
}
