//! `DefaultStorageClass` and `DefaultIngressClass`: set the default class of a claim or an ingress that names none. Of
//! several default classes the newest is used.

use crate::shared::conversion;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review};
use futures::future::{self, BoxFuture};
use std::cmp::Reverse;
use steersman_machinery::value::{at, set_at, str_at};
use steersman_machinery::{GroupResource, Value};
use steersman_storage::{At, Page, Scope};

/// A kind with classes.
#[derive(Debug)]
pub(crate) struct DefaultClass {
    group: &'static str,
    resource: &'static str,
    classes: (&'static str, &'static str),
    /// The annotations that mark a class as the default.
    marks: &'static [&'static str],
    /// The field that names the class.
    field: &'static str,
    /// The annotation that can also name the class.
    annotation: &'static str,
}

pub(crate) static STORAGE: DefaultClass = DefaultClass {
    group: "",
    resource: "persistentvolumeclaims",
    classes: ("storage.k8s.io", "storageclasses"),
    marks: &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
    field: "storageClassName",
    annotation: "volume.beta.kubernetes.io/storage-class",
};

pub(crate) static INGRESS: DefaultClass = DefaultClass {
    group: "networking.k8s.io",
    resource: "ingresses",
    classes: ("networking.k8s.io", "ingressclasses"),
    marks: &["ingressclass.kubernetes.io/is-default-class"],
    field: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
};

impl Plugin for DefaultClass {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_creation = phase == Phase::Mutate && action == Action::Create && attributes.subresource.is_none();
        is_creation && attributes.is_about(self.group, self.resource)
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let set = match new.filter(|object| !self.has_class(object)) {
            None => Ok(()),
            Some(object) => self.default(review.state).map(|default| {
                if let Some(name) = default {
                    set_at(object, &["spec", self.field], name.into());
                }
            }),
        };
        Box::pin(future::ready(set))
    }
}

impl DefaultClass {
    fn has_class(&self, object: &Value) -> bool {
        // An empty name means no class.
        at(object, &["spec", self.field]).is_some_and(|class| !class.is_null())
            || at(object, &["metadata", "annotations", self.annotation]).is_some()
    }

    /// The name of the default class.
    fn default(&self, state: &State) -> Result<Option<String>, Failure> {
        let classes = GroupResource::new(self.classes.0, self.classes.1);
        let found = state.store.list(&classes, &Scope::All, At::Latest, Page::ALL);
        let found = found.map_err(|error| Failure::of_read(&error))?.objects;
        let trees: Result<Vec<Value>, Failure> = found.iter().map(|class| conversion::parse(class)).collect();
        Ok(newest(&trees?, self.marks))
    }
}

/// The name of the newest class with one of the marks; of several from the same second the first by name.
fn newest(classes: &[Value], marks: &[&str]) -> Option<String> {
    let is_marked =
        |class: &&Value| marks.iter().any(|mark| str_at(class, &["metadata", "annotations", mark]) == Some("true"));
    let text = |class: &Value, key: &str| str_at(class, &["metadata", key]).unwrap_or_default().to_owned();
    let marked = classes.iter().filter(is_marked).map(|class| (text(class, "creationTimestamp"), text(class, "name")));
    marked.max_by_key(|(created, name)| (created.clone(), Reverse(name.clone()))).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_of_the_marked_classes_is_the_default() {
        let class = |name: &str, created: &str, is_default: &str| {
            json!({"metadata": {
                "name": name, "creationTimestamp": created, "annotations": {"storageclass.kubernetes.io/is-default-class": is_default},
            }})
        };
        let mut classes = vec![
            class("old", "2026-01-01T00:00:00Z", "true"),
            class("b", "2026-01-02T00:00:00Z", "true"),
            class("a", "2026-01-02T00:00:00Z", "true"),
            class("newest", "2026-01-03T00:00:00Z", "false"),
        ];
        assert_eq!(newest(&classes, STORAGE.marks).as_deref(), Some("a"));
        classes.truncate(1);
        assert_eq!(newest(&classes, INGRESS.marks), None);
    }

    #[test]
    fn a_claim_that_says_it_wants_no_class_keeps_none() {
        assert!(STORAGE.has_class(&json!({"spec": {"storageClassName": ""}})));
        assert!(
            STORAGE.has_class(&json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}}))
        );
        assert!(!STORAGE.has_class(&json!({"spec": {}})));
    }
}
