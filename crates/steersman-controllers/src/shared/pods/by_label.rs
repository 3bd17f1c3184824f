//! An index of objects by their labels, to find those that a selector matches without scanning the namespace.
//!
//! Each label of each object is in the index under a hash of the namespace and the label's key and value. The objects
//! found there are compared with the whole selector, so that hash collisions do no harm.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use steersman::cache::{CachedResource, Index, Indexer, Informer};
use steersman::{Lister, LookupError};

/// The labels of an object, or those that a selector requires.
pub(crate) type Labels = BTreeMap<String, String>;

/// Objects of one kind by their labels.
pub(crate) struct ByLabel<K> {
    index: Index<K, u64>,
    indexer: Indexer<K>,
    lister: Lister<K>,
}

impl<K: CachedResource> ByLabel<K> {
    /// Adds the index to an informer.
    pub(crate) fn of(informer: &Informer<K>) -> ByLabel<K> {
        let index = informer.add_metadata_index(|metadata| {
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let hashes = metadata.labels.iter().flatten().map(|(name, value)| hash(namespace, name, value));
            hashes.collect::<Vec<u64>>()
        });
        ByLabel { index, indexer: informer.indexer(), lister: informer.lister() }
    }

    /// The objects in a namespace that have all of `labels`, which must not be empty.
    pub(crate) fn with_all(&self, namespace: &str, labels: &Labels) -> Result<Vec<Arc<K>>, LookupError> {
        let Some((name, value)) = labels.first_key_value() else { return Ok(Vec::new()) };
        self.index.get_where(&hash(namespace, name, value), |metadata| {
            metadata.namespace.as_deref() == Some(namespace) && has_all(metadata.labels.as_ref(), labels)
        })
    }

    /// The objects in a namespace whose label has one of these values and whose metadata passes. Other objects are not
    /// decoded.
    pub(crate) fn with_any(
        &self,
        namespace: &str,
        (name, values): (&str, &[String]),
        passes: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<Arc<K>>, LookupError> {
        let mut found = Vec::new();
        for value in values.iter().collect::<BTreeSet<&String>>() {
            found.extend(self.index.get_where(&hash(namespace, name, value), |metadata| {
                let has_it = metadata.labels.as_ref().and_then(|labels| labels.get(name)) == Some(value);
                has_it && metadata.namespace.as_deref() == Some(namespace) && passes(metadata)
            })?);
        }
        Ok(found)
    }

    /// The objects in a namespace whose metadata passes.
    pub(crate) fn in_namespace(&self, namespace: &str, passes: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<K>> {
        self.indexer.list_in_where(namespace, passes)
    }

    /// The objects in a namespace that a selector matches. An empty selector matches all, an invalid one nothing.
    pub(crate) fn selected(&self, namespace: &str, selector: &LabelSelector) -> Result<Vec<Arc<K>>, LookupError> {
        let Ok(whole) = Selector::try_from(selector.clone()) else { return Ok(Vec::new()) };
        let Some((name, value)) = selector.match_labels.iter().flatten().next() else {
            return self.lister.select_in(namespace, &whole);
        };
        self.index.get_where(&hash(namespace, name, value), |metadata| {
            metadata.namespace.as_deref() == Some(namespace) && matches(&whole, metadata)
        })
    }
}

/// Whether a selector matches the labels of an object.
pub(crate) fn matches(selector: &Selector, metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().map_or_else(|| selector.matches(&Labels::new()), |labels| selector.matches(labels))
}

/// Whether all of `wanted` are among `labels`.
pub(crate) fn has_all(labels: Option<&Labels>, wanted: &Labels) -> bool {
    wanted.iter().all(|(name, value)| labels.is_some_and(|labels| labels.get(name) == Some(value)))
}

/// The index key of a label of an object in a namespace.
pub(crate) fn hash(namespace: &str, name: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (namespace, name, value).hash(&mut hasher);
    hasher.finish()
}

/// A selector in Go's syntax, as upstream's Events print it.
pub(crate) fn go_text(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let mut text = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (name, value) in selector.match_labels.iter().flatten() {
        let _ = write!(text, "{name}: {value},");
    }
    text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for one in selector.match_expressions.iter().flatten() {
        let values = one.values.as_deref().unwrap_or_default().join(" ");
        let _ =
            write!(text, "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator);
    }
    text.push_str("},}");
    text
}
