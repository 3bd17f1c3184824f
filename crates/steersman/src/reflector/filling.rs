//! The initial state while it streams in.

use hashbrown::HashMap;

use crate::delta::Replacement;
use crate::key::ObjectKey;
use crate::reflector::decoding::Decoded;

/// Collects the initial state while it streams in, in the order in which it does.
pub(super) struct Filling<K> {
    replacement: Replacement<K>,
    /// Where in the replacement each object is. Made when the first object is not merely added: until then, no object
    /// has come twice.
    places: Option<HashMap<ObjectKey, Place>>,
}

/// Where in a replacement an object is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Entry(usize),
    Undecodable(usize),
}

// === impl Filling ===

impl<K> Filling<K> {
    pub(super) fn new() -> Self {
        let (entries, undecodable) = (Vec::new(), Vec::new());
        Self { replacement: Replacement { entries, undecodable, resource_version: String::new() }, places: None }
    }

    /// An object that has not come before, or, once another change has come, that may have.
    pub(super) fn add(&mut self, item: Decoded<K>) {
        if self.places.is_some() {
            return self.upsert(item);
        }
        match item {
            Decoded::Entry(entry) => self.replacement.entries.push(entry),
            Decoded::Undecodable(error) => self.replacement.undecodable.push(error),
        }
    }

    pub(super) fn upsert(&mut self, item: Decoded<K>) {
        let key = match &item {
            Decoded::Entry(entry) => Some(entry.key.clone()),
            Decoded::Undecodable(error) => error.key.clone(),
        };
        if let Some(key) = &key {
            self.remove(key);
        }
        let Replacement { entries, undecodable, .. } = &mut self.replacement;
        let place = match item {
            Decoded::Entry(entry) => {
                entries.push(entry);
                Place::Entry(entries.len() - 1)
            }
            Decoded::Undecodable(error) => {
                undecodable.push(error);
                Place::Undecodable(undecodable.len() - 1)
            }
        };
        if let Some(key) = key {
            self.places().insert(key, place);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let Some(place) = self.places().remove(key) else { return };
        let Replacement { entries, undecodable, .. } = &mut self.replacement;
        // The last one moves to where the removed one was.
        let moved = match place {
            Place::Entry(index) => {
                entries.swap_remove(index);
                entries.get(index).map(|entry| entry.key.clone())
            }
            Place::Undecodable(index) => {
                undecodable.swap_remove(index);
                undecodable.get(index).and_then(|error| error.key.clone())
            }
        };
        if let Some(moved) = moved {
            self.places().insert(moved, place);
        }
    }

    fn places(&mut self) -> &mut HashMap<ObjectKey, Place> {
        let Replacement { entries, undecodable, .. } = &self.replacement;
        self.places.get_or_insert_with(|| {
            let entries = entries.iter().enumerate().map(|(index, entry)| (entry.key.clone(), Place::Entry(index)));
            let errors = undecodable.iter().enumerate();
            let errors = errors.filter_map(|(index, error)| Some((error.key.clone()?, Place::Undecodable(index))));
            entries.chain(errors).collect()
        })
    }

    pub(super) fn finish(self, resource_version: String) -> Replacement<K> {
        Replacement { resource_version, ..self.replacement }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::proptest;
    use serde::de::Error;

    use super::*;
    use crate::delta::{DecodeError, Entry};

    fn entry(key: &ObjectKey, version: usize) -> Decoded<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.resource_version = Some(version.to_string());
        Decoded::Entry(Entry { key: key.clone(), object: Arc::new(object).into() })
    }

    fn broken(key: &ObjectKey, version: usize) -> Decoded<ConfigMap> {
        Decoded::Undecodable(Arc::new(DecodeError {
            resource: "configmaps".to_owned(),
            key: Some(key.clone()),
            resource_version: version.to_string(),
            source: serde_json::Error::custom("broken"),
        }))
    }

    proptest! {
        #[test]
        fn the_last_state_of_every_object_is_collected_once(steps in proptest::collection::vec((0..4_u8, 0..4_u8), 0..40)) {
            let mut filling = Filling::new();
            let mut expected = BTreeMap::new();
            for (version, (what, number)) in steps.into_iter().enumerate() {
                let key = ObjectKey::cluster(&number.to_string());
                // What a server sends: an object is added only if it is not there.
                match (what, expected.contains_key(&key)) {
                    (0, false) => filling.add(entry(&key, version)),
                    (1, false) => filling.add(broken(&key, version)),
                    (0, true) => filling.upsert(entry(&key, version)),
                    (1, true) => filling.upsert(broken(&key, version)),
                    _ => {
                        filling.remove(&key);
                        expected.remove(&key);
                        continue;
                    }
                }
                expected.insert(key, version.to_string());
            }
            let replacement = filling.finish("99".to_owned());
            let entries = replacement.entries.iter().map(|entry| (entry.key.clone(), entry.object.resource_version().to_owned()));
            let errors = replacement.undecodable.iter().map(|error| (error.key.clone().unwrap(), error.resource_version.clone()));
            let mut found: Vec<_> = entries.chain(errors).collect();
            found.sort();
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
