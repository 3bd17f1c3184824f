//! The keys that the service has decrypted, by what it decrypted them from. There are about as many as servers have been started and
//! the service's key has changed.

use crate::kms::envelope::DataKey;
use crate::kms::proto::EncryptedObject;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};

/// The most keys that are kept. Beyond it the oldest is forgotten, and asked for again when it is needed.
const KEPT_MAX: usize = 65_536;

/// The digest of an encrypted key and all that belongs to it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct SourceId([u8; 32]);

#[derive(Default)]
pub(crate) struct Sources(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_id: HashMap<SourceId, DataKey>,
    oldest_first: VecDeque<SourceId>,
}

impl SourceId {
    pub(crate) fn of(envelope: &EncryptedObject) -> SourceId {
        // A map in the order of its keys, so that equal envelopes have equal bytes.
        let without_data = EncryptedObject { encrypted_data: Bytes::new(), ..envelope.clone() };
        SourceId(Sha256::digest(without_data.encode_to_vec()).into())
    }
}

impl Sources {
    pub(crate) fn get(&self, id: &SourceId) -> Option<DataKey> {
        self.0.lock().by_id.get(id).cloned()
    }

    pub(crate) fn insert(&self, id: SourceId, key: DataKey) {
        let mut kept = self.0.lock();
        if kept.by_id.insert(id, key).is_none() {
            kept.oldest_first.push_back(id);
        }
        if KEPT_MAX < kept.by_id.len()
            && let Some(oldest) = kept.oldest_first.pop_front()
        {
            kept.by_id.remove(&oldest);
        }
    }
}
