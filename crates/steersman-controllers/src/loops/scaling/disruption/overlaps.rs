//! Finds the budgets that select a Pod, and reports Pods that several budgets select: the server does not evict them.
//!
//! The first of these budgets, by name, reports a Pod when it is reconciled.

use crate::shared::selectors::Selectors;
use hashbrown::{HashMap, HashSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use std::sync::Arc;
use steersman::cache::{Index, Informer};
use steersman::{LookupError, ObjectKey};

/// An index of budgets by the Pods that they select.
pub(super) struct Budgets {
    by_namespace: Index<PodDisruptionBudget, String>,
    selectors: Selectors<PodDisruptionBudget>,
}

/// The Pods that several budgets select, as far as they were reported.
pub(super) struct Overlaps {
    budgets: Arc<Budgets>,
    /// The uids of Pods, by the budget that reported them. Bounded by the Pods that budgets select.
    said: Mutex<HashMap<ObjectKey, HashSet<String>>>,
}

// === impl Budgets ===

impl Budgets {
    pub(super) fn of(budgets: &Informer<PodDisruptionBudget>) -> Budgets {
        let selector = |budget: &PodDisruptionBudget| {
            budget.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default()
        };
        Budgets {
            by_namespace: budgets.add_metadata_index(|metadata| metadata.namespace.clone()),
            selectors: Selectors::of(budgets, selector),
        }
    }

    /// Whether a namespace has budgets.
    pub(super) fn are_in(&self, namespace: &str) -> bool {
        self.by_namespace.count(namespace).is_ok_and(|n| n > 0)
    }

    /// The budgets that select a Pod, by name. A budget without a selector selects nothing, and one with an empty
    /// selector all Pods.
    ///
    /// # Errors
    /// When the cache is not filled.
    pub(super) fn of_pod(&self, pod: &ObjectMeta) -> Result<Vec<ObjectKey>, LookupError> {
        let found = self.selectors.matching_or_empty(pod)?;
        let has_selector =
            |budget: &&Arc<PodDisruptionBudget>| budget.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
        let mut keys: Vec<ObjectKey> =
            found.iter().filter(has_selector).map(|budget| ObjectKey::of(&**budget)).collect();
        keys.sort();
        Ok(keys)
    }
}

// === impl Overlaps ===

impl Overlaps {
    pub(super) fn new(budgets: Arc<Budgets>) -> Overlaps {
        Overlaps { budgets, said: Mutex::default() }
    }

    /// The Pods of a budget that are newly selected by several budgets and to be reported by this one, with the
    /// messages.
    ///
    /// # Errors
    /// When the cache is not filled.
    pub(super) fn new_ones(&self, key: &ObjectKey, pods: &[Arc<Pod>]) -> Result<Vec<(Arc<Pod>, String)>, LookupError> {
        let (mut now, mut notes) = (HashSet::new(), Vec::new());
        let before = self.said.lock().remove(key).unwrap_or_default();
        for pod in pods {
            let budgets = self.budgets.of_pod(&pod.metadata)?;
            let [first, _, ..] = &*budgets else { continue };
            let Some(uid) = pod.metadata.uid.clone().filter(|_| first == key) else { continue };
            if !before.contains(&uid) {
                let note = format!(
                    "Pod {:?}/{:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                    pod.metadata.namespace.as_deref().unwrap_or_default(),
                    pod.metadata.name.as_deref().unwrap_or_default(),
                    first.name(),
                );
                notes.push((Arc::clone(pod), note));
            }
            now.insert(uid);
        }
        if !now.is_empty() {
            self.said.lock().insert(key.clone(), now);
        }
        Ok(notes)
    }

    /// Forgets a budget that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.said.lock().remove(key);
    }
}
