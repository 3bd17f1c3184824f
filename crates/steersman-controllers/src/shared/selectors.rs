//! An index to find the objects whose selector matches given labels, without trying all of them.
//!
//! An object without a controller (such as a Pod that was created by hand) may be adopted by any owner in its
//! namespace. An owner is indexed by one label that it requires with an exact value, if there is one, so that only
//! possible owners are decoded and tried.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Resource, Selector};
use std::sync::Arc;
use steersman::cache::{CachedResource, Index, Informer};
use steersman::{LookupError, ObjectKey};

use crate::shared::dependents;
use crate::shared::pods::by_label;

/// An index of objects by the requirements of their selectors.
pub(crate) struct Selectors<K> {
    index: Index<K, SelectorKey>,
    selector_of: fn(&K) -> LabelSelector,
}

/// The index key of an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct SelectorKey {
    namespace: String,
    /// A required label with its value; `None` if the selector requires no exact value.
    label: Option<(String, String)>,
}

// === impl Selectors ===

impl<K: CachedResource + Resource<DynamicType = ()>> Selectors<K> {
    /// Adds the index to an informer.
    pub(crate) fn of(informer: &Informer<K>, selector_of: fn(&K) -> LabelSelector) -> Selectors<K> {
        let index = informer.add_index(move |object: &K| {
            let namespace = object.meta().namespace.clone().unwrap_or_default();
            let label = selector_of(object).match_labels.and_then(|labels| labels.into_iter().next());
            Some(SelectorKey { namespace, label })
        });
        Selectors { index, selector_of }
    }

    /// The objects whose selector matches an object with this metadata. An empty selector matches nothing.
    ///
    /// # Errors
    /// When the cache is not filled.
    pub(crate) fn matching(&self, metadata: &ObjectMeta) -> Result<Vec<Arc<K>>, LookupError> {
        self.matching_by(metadata, dependents::selects)
    }

    /// Like [`Selectors::matching`], but an empty selector matches everything.
    ///
    /// # Errors
    /// When the cache is not filled.
    pub(crate) fn matching_or_empty(&self, metadata: &ObjectMeta) -> Result<Vec<Arc<K>>, LookupError> {
        self.matching_by(metadata, by_label::matches)
    }

    fn matching_by(
        &self,
        metadata: &ObjectMeta,
        matches: fn(&Selector, &ObjectMeta) -> bool,
    ) -> Result<Vec<Arc<K>>, LookupError> {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let labels = metadata.labels.iter().flatten().map(|(key, value)| Some((key.clone(), value.clone())));
        let mut found = Vec::new();
        for label in labels.chain([None]) {
            let asked = SelectorKey { namespace: namespace.to_owned(), label };
            found.extend(self.index.get(&asked)?.into_iter().filter(|object| {
                let selector = Selector::try_from((self.selector_of)(object));
                selector.is_ok_and(|selector| matches(&selector, metadata))
            }));
        }
        Ok(found)
    }

    /// For a controller that watches objects to adopt: the keys of the owners that select an object, if it can be
    /// adopted.
    pub(crate) fn into_adopters(self) -> impl Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + Sync + 'static {
        move |metadata| {
            if !dependents::is_adoptable(metadata) {
                return Vec::new();
            }
            let found = self.matching(metadata).unwrap_or_default();
            found.iter().map(|object| ObjectKey::of(&**object)).collect()
        }
    }
}
