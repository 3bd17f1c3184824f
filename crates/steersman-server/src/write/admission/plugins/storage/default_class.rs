//! `DefaultStorageClass` and `DefaultIngressClass`: set the default class of a claim or an ingress that names none. Of
//! several default classes the newest is used.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::classes;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review};
use futures::future::{self, BoxFuture};
use steersman_machinery::Value;
use steersman_machinery::value::{at, set_at};

/// A kind with classes.
#[derive(Debug)]
pub(crate) struct DefaultClass {
    group: &'static str,
    resource: &'static str,
    classes: classes::Kind,
    /// The field that names the class.
    field: &'static str,
    /// The annotation that can also name the class.
    annotation: &'static str,
}

pub(crate) static STORAGE: DefaultClass = DefaultClass {
    group: "",
    resource: "persistentvolumeclaims",
    classes: classes::Kind::Storage,
    field: "storageClassName",
    annotation: "volume.beta.kubernetes.io/storage-class",
};

pub(crate) static INGRESS: DefaultClass = DefaultClass {
    group: "networking.k8s.io",
    resource: "ingresses",
    classes: classes::Kind::Ingress,
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
        if let Some(object) = new.filter(|object| !self.has_class(object))
            && let Some(default) = review.state.classes.default_of(self.classes)
        {
            set_at(object, &["spec", self.field], String::from(default.name).into());
        }
        Box::pin(future::ready(Ok(())))
    }
}

impl DefaultClass {
    fn has_class(&self, object: &Value) -> bool {
        // An empty name means no class.
        at(object, &["spec", self.field]).is_some_and(|class| !class.is_null())
            || at(object, &["metadata", "annotations", self.annotation]).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_that_says_it_wants_no_class_keeps_none() {
        assert!(STORAGE.has_class(&json!({"spec": {"storageClassName": ""}})));
        assert!(
            STORAGE.has_class(&json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}}))
        );
        assert!(!STORAGE.has_class(&json!({"spec": {}})));
    }
}
