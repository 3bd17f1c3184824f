//! Turns the bytes of one object into its entry in the cache.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::cached::{self, Cached, Holding, Packed};
use crate::cache::indexer::Indexer;
use crate::list_watch::delta::Entry;
use crate::list_watch::reflector::ReflectorOptions;
use crate::list_watch::transform::Transform;
use crate::list_watch::wire::event::{self, RawEvent};
use crate::list_watch::wire::{meta, scan};
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Target};

/// Makes cache entries from objects.
pub(super) struct Decoding<K> {
    /// `plural.group`, for errors.
    resource: String,
    holding: Holding,
    prune: Vec<scan::Path>,
    pub(super) transform: Option<Arc<Transform<K>>>,
    /// The cache that gets the entries. Objects that it has need not be decoded again.
    known: Indexer<K>,
    /// Holds the pruned copy of the object being decoded.
    scratch: Vec<u8>,
    /// Holds the key of the object being looked up.
    key_text: String,
}

/// Whether an object may be taken from the cache instead of being decoded. Worth a lookup in a list, where most objects
/// are known; never in a watch, where every object is new.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reuse {
    Cached,
    Never,
}

pub(super) enum Decoded<K> {
    Entry(Entry<K>),
    Undecodable(Arc<DecodeError>),
}

impl<K: CachedResource> Decoding<K> {
    pub(super) fn new(target: &Target, options: &ReflectorOptions, known: Indexer<K>) -> Self {
        Self {
            resource: target.resource.clone(),
            holding: options.cache.holding::<K>(),
            prune: options.prune.clone(),
            transform: None,
            known,
            scratch: Vec::new(),
            key_text: String::new(),
        }
    }

    /// The cache that gets the entries.
    pub(super) fn known(&self) -> &Indexer<K> {
        &self.known
    }

    pub(super) fn event(&mut self, event: &RawEvent, reuse: Reuse) -> Decoded<K> {
        let mut decoded = self.object(&event.object, reuse);
        if matches!(decoded, Decoded::Undecodable(_))
            && let Some(event) = event.reread()
        {
            decoded = self.object(&event.object, reuse);
        }
        decoded
    }

    /// Decodes or packs one object, unless it may come from the cache and the cache has this version.
    pub(super) fn object(&mut self, bytes: &[u8], reuse: Reuse) -> Decoded<K> {
        if reuse == Reuse::Cached
            && let Some(entry) = self.cached(bytes)
        {
            return Decoded::Entry(entry);
        }
        let decoded = match self.holding {
            Holding::Bytes(_) => self.pack(bytes),
            Holding::Decoded => self.decode_typed(bytes),
        };
        decoded.map_or_else(
            |source| {
                let header = event::header(bytes);
                Decoded::Undecodable(Arc::new(DecodeError {
                    resource: self.resource.clone(),
                    key: header.key(),
                    resource_version: header.resource_version.into_owned(),
                    source,
                }))
            },
            Decoded::Entry,
        )
    }

    /// The entry of the object in the cache, if it has this version.
    fn cached(&mut self, bytes: &[u8]) -> Option<Entry<K>> {
        let spans = meta::spans(bytes)?;
        let text = |span: &Range<usize>| std::str::from_utf8(&bytes[span.clone()]).ok();
        let (namespace, name) = (text(&spans.namespace)?, text(&spans.name)?);
        self.key_text.clear();
        if !namespace.is_empty() {
            self.key_text.push_str(namespace);
            self.key_text.push('/');
        }
        self.key_text.push_str(name);
        self.known.at_version(&self.key_text, text(&spans.resource_version)?, text(&spans.uid)?)
    }

    fn decode_typed(&mut self, bytes: &[u8]) -> Result<Entry<K>, serde_json::Error> {
        let is_pruned = scan::prune(bytes, &self.prune, &mut self.scratch);
        let object = cached::decode::<K>(text(if is_pruned { &self.scratch } else { bytes })?)?;
        if object.meta().name.as_deref().is_none_or(str::is_empty) {
            return Err(nameless());
        }
        let object = match &self.transform {
            None => object,
            Some(transform) => transform.apply(object)?,
        };
        // Decoding grows lists by doubling, so a Pod with few containers has room for many. A copy has no spare room:
        // it takes a sixth less memory for an eighth more time.
        let object = object.clone();
        Ok(Entry { key: ObjectKey::of(&object), object: Arc::new(object).into() })
    }

    /// Keeps the bytes, if a scan finds that they are one JSON object with a name.
    fn pack(&mut self, bytes: &[u8]) -> Result<Entry<K>, serde_json::Error> {
        let is_pruned = scan::prune(bytes, &self.prune, &mut self.scratch);
        if let Some(transform) = &self.transform {
            let object = transform.apply(cached::decode(text(if is_pruned { &self.scratch } else { bytes })?)?)?;
            self.scratch.clear();
            transform.write(&object, &mut self.scratch)?;
        }
        let json = text(if is_pruned || self.transform.is_some() { &self.scratch } else { bytes })?;
        let Some(spans) = meta::spans(json.as_bytes()) else {
            let error = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).err();
            return Err(error.unwrap_or_else(|| serde::de::Error::custom("this is not an object")));
        };
        let member = |span: &Range<usize>| json.get(span.clone()).unwrap_or_default();
        let key = match member(&spans.name) {
            // Absent, or escaped so that only a parser can read it.
            "" => event::header(json.as_bytes()).key().ok_or_else(nameless)?,
            name => ObjectKey::namespaced(member(&spans.namespace), name),
        };
        Ok(Entry { key, object: Cached::packed(Packed::new(json, &spans)) })
    }
}

/// Rejects bytes that are not UTF-8, so that the decoder need not check that again.
fn text(bytes: &[u8]) -> Result<&str, serde_json::Error> {
    std::str::from_utf8(bytes).map_err(|error| serde::de::Error::custom(format_args!("it is no text: {error}")))
}

fn nameless() -> serde_json::Error {
    serde::de::Error::custom("metadata.name is missing")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::cache::cached::CacheMode;
    use crate::shared::selection::Scope;

    #[test]
    fn a_time_at_the_end_of_the_year_9999_wedges_no_object() {
        let json = br#"{"metadata": {"name": "a"}, "status": {"startTime": "9999-12-31T23:59:59Z"}}"#;
        for mode in [CacheMode::Typed, CacheMode::Compact { decoded_max: 1 }] {
            let target = Target::of::<Pod>(&(), Scope::All.into());
            let mut decoding = Decoding::<Pod>::new(&target, &ReflectorOptions::default().cache(mode), Indexer::new());
            let Decoded::Entry(entry) = decoding.object(json, Reuse::Never) else { panic!("this is a Pod") };
            let pod = decoding.known().decoder().decode(&entry.key, &entry.object).unwrap();
            let start =
                pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0.as_second());
            assert_eq!(start, Some(k8s_openapi::jiff::Timestamp::MAX.as_second()));
        }
    }

    #[test]
    fn what_is_held_has_no_room_to_spare() {
        let target = Target::of::<Pod>(&(), Scope::All.into());
        let mut decoding =
            Decoding::<Pod>::new(&target, &ReflectorOptions::default().cache(CacheMode::Typed), Indexer::new());
        let json = br#"{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "env": [{"name": "e"}]}]}}"#;
        let Decoded::Entry(entry) = decoding.object(json, Reuse::Never) else { panic!("this is a Pod") };
        let pod = entry.object.decoded().unwrap();
        let containers = &pod.spec.as_ref().unwrap().containers;
        assert_eq!((containers.capacity(), containers[0].env.as_ref().unwrap().capacity()), (1, 1));
    }
}
