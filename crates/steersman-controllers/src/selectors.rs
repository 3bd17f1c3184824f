//! Finds the objects of a kind whose selector matches given labels, without trying them all.
//!
//! An object without a controller (a Pod that somebody made by hand) may be wanted by any owner of its namespace. An owner is filed
//! under one label that it asks for, if it asks for an exact one, so that only those are decoded and tried that may match.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Resource, Selector};
use std::sync::Arc;
use steersman::cache::{CachedResource, Index, Informer};
use steersman::{LookupError, ObjectKey};

use crate::dependents;

/// Objects by what their selectors ask for.
pub(crate) struct Selectors<K> {
    index: Index<K, Asked>,
    selector_of: fn(&K) -> LabelSelector,
}

/// Where the index has an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Asked {
    namespace: String,
    /// A label that it must have, with its value. `None`: nothing that is asked for is as simple.
    label: Option<(String, String)>,
}

// === impl Selectors ===

impl<K: CachedResource + Resource<DynamicType = ()>> Selectors<K> {
    /// Adds the index to an informer.
    pub(crate) fn of(informer: &Informer<K>, selector_of: fn(&K) -> LabelSelector) -> Selectors<K> {
        let index = informer.add_index(move |object: &K| {
            let namespace = object.meta().namespace.clone().unwrap_or_default();
            let label = selector_of(object).match_labels.and_then(|labels| labels.into_iter().next());
            Some(Asked { namespace, label })
        });
        Selectors { index, selector_of }
    }

    /// Those whose selector matches an object of this metadata. An empty selector matches nothing.
    ///
    /// # Errors
    /// When the cache is not filled.
    pub(crate) fn matching(&self, metadata: &ObjectMeta) -> Result<Vec<Arc<K>>, LookupError> {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let labels = metadata.labels.iter().flatten().map(|(key, value)| Some((key.clone(), value.clone())));
        let mut found = Vec::new();
        for label in labels.chain([None]) {
            let asked = Asked { namespace: namespace.to_owned(), label };
            found.extend(self.index.get(&asked)?.into_iter().filter(|object| {
                let selector = Selector::try_from((self.selector_of)(object));
                selector.is_ok_and(|selector| dependents::selects(&selector, metadata))
            }));
        }
        Ok(found)
    }

    /// For a controller that watches what its objects may adopt: the keys of those that select it, if it can be adopted.
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
