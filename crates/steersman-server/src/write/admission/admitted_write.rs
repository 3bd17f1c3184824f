//! A write for webhooks and policies: the attributes that they match, the request that they get, and the objects in the
//! version that they expect.

use crate::shared::conversion;
use crate::shared::operation::{Operation, ResourceAttributes};
use crate::shared::request::options::Delete;
use crate::shared::status::Failure;
use crate::write::admission::action::{Action, Phase};
use serde_json::json;
use std::borrow::Cow;
use std::sync::Arc;
use steersman_kinds::catalog::scale;
use steersman_kinds::catalog::{Catalog, Handling, Served};
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, GroupVersionKind, Object, Value, value};

/// A write that webhooks and policies may match.
#[derive(Debug)]
pub(crate) struct AdmittedWrite<'a> {
    pub(crate) action: Action,
    pub(crate) phase: Phase,
    pub(crate) served: &'a Served,
    pub(crate) attributes: ResourceAttributes<'a>,
    pub(crate) operation: &'a Operation<'a>,
    /// The name in the path, or else that of the new object; empty while the server has not generated it, and in the
    /// deletion of a collection.
    pub(crate) name: &'a str,
    /// The new object: in the requested form while it is mutated, in the internal form while it is validated. For a
    /// subresource that takes another kind, an object of that kind.
    pub(crate) new: Option<&'a Value>,
    pub(crate) old: Option<&'a Value>,
    deletion: Option<&'a Delete>,
    namespace: Option<Arc<Object>>,
    catalog: Arc<Catalog>,
}

/// The data that accompanies a write.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) deletion: Option<&'a Delete>,
    /// The namespace of the write, if it has one that exists.
    pub(crate) namespace: Option<Arc<Object>>,
    pub(crate) catalog: Arc<Catalog>,
}

/// The objects of a write in one version.
#[derive(Debug)]
pub(crate) struct Objects<'a> {
    pub(crate) new: Option<Cow<'a, Value>>,
    pub(crate) old: Option<Cow<'a, Value>>,
}

impl<'a> AdmittedWrite<'a> {
    pub(crate) fn new(
        action: Action,
        phase: Phase,
        operation: &'a Operation<'a>,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
        surroundings: Surroundings<'a>,
    ) -> AdmittedWrite<'a> {
        let name = match (operation.is_of_collection, operation.name(), new) {
            (true, ..) => "",
            (false, "", Some(new)) => str_at(new, &["metadata", "name"]).unwrap_or_default(),
            (false, name, _) => name,
        };
        let Surroundings { deletion, namespace, catalog } = surroundings;
        let (served, attributes) = (operation.served, operation.attributes);
        AdmittedWrite { action, phase, served, attributes, operation, name, new, old, deletion, namespace, catalog }
    }

    /// The namespace of the write; for a write of a Namespace, the stored Namespace itself.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub(crate) fn namespace(&self) -> Result<&Object, Failure> {
        self.namespace.as_deref().ok_or_else(|| {
            let name = self.attributes.namespace.unwrap_or(self.name);
            Failure::not_found(&GroupResource::new("", "namespaces"), name)
        })
    }

    /// The value of `namespaceObject`: the namespace of the object.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub(crate) fn namespace_object(&self) -> Result<Option<&Object>, Failure> {
        if self.attributes.namespace.is_none() || self.attributes.is_about("", "namespaces") {
            return Ok(None);
        }
        self.namespace().map(Some)
    }

    /// The resource of the request in its other versions, and the resources of other groups with the same objects.
    pub(super) fn equivalents(&self) -> Vec<&Served> {
        let resource = &self.served.resource;
        let versions = self.catalog.groups().iter().flat_map(|group| group.served());
        let same = versions.filter_map(|version| version.find(&resource.plural));
        let same = same.filter(|served| served.resource.storage == resource.storage);
        let is_other = |served: &&Served| {
            served.resource.group != resource.group || served.version().name != self.served.version().name
        };
        let has_subresource = |served: &&Served| match self.attributes.subresource {
            None => true,
            Some(_) => kind(served, self.attributes.subresource).is_some(),
        };
        same.filter(is_other).filter(has_subresource).collect()
    }

    /// Whether a request on the subresource sends an object of another kind.
    pub(crate) fn is_of_other_kind(&self) -> bool {
        let Some(name) = self.attributes.subresource else { return false };
        let mut subresources = self.served.version().subresources.iter();
        subresources.any(|one| *one.name == *name && one.handling != Handling::Stored)
    }

    /// The objects in a version that [`Criteria::find`](crate::write::admission::dynamic::matching::Criteria::find) returned.
    ///
    /// # Errors
    /// When they cannot be converted to it now.
    pub(crate) async fn objects(&self, target: &Served) -> Result<Objects<'a>, Failure> {
        Ok(Objects { new: self.converted(self.new, target).await?, old: self.converted(self.old, target).await? })
    }

    async fn converted(&self, object: Option<&'a Value>, target: &Served) -> Result<Option<Cow<'a, Value>>, Failure> {
        match object {
            Some(object) => self.other(object, target).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether a version is the requested one.
    pub(crate) fn is_requested(&self, target: &Served) -> bool {
        Arc::ptr_eq(&self.served.resource, &target.resource) && self.served.index() == target.index()
    }

    /// Whether it is a write of `/scale`. Webhooks and policies get a Scale; the object is written.
    pub(crate) fn is_of_scale(&self) -> bool {
        self.attributes.subresource == Some("scale")
    }

    /// Converts an object, in the form of [`AdmittedWrite::new`], to another version, as webhooks and policies see it.
    ///
    /// # Errors
    /// When it cannot be converted to it now.
    pub(crate) async fn other<'v>(&self, object: &'v Value, target: &Served) -> Result<Cow<'v, Value>, Failure> {
        let converted = self.in_version(object, target).await?;
        Ok(match target.version().scale.as_ref().filter(|_| self.is_of_scale()) {
            Some(scale) => Cow::Owned(scale::read(scale, &converted)),
            None => converted,
        })
    }

    /// Converts an object that a webhook or a policy has changed in its version to the requested form.
    ///
    /// # Errors
    /// When it cannot be converted now, or the desired number of replicas cannot be set.
    pub(crate) async fn returned(&self, object: &Value, target: &Served, changed: Value) -> Result<Value, Failure> {
        if self.is_of_other_kind() {
            return Ok(changed);
        }
        if self.is_of_scale() {
            let replicas = value::at(&changed, &["spec", "replicas"]).cloned().unwrap_or_else(|| Value::from(0));
            let mut object = object.clone();
            let is_set =
                self.served.version().scale.as_ref().is_some_and(|scale| scale.spec.set(&mut object, replicas));
            return match is_set {
                true => Ok(object),
                false => Err(Failure::internal("the number of replicas of the Scale cannot be set in its object")),
            };
        }
        if self.is_requested(target) {
            return Ok(changed);
        }
        let internal = target.resource.strategy.internal(target.version(), changed);
        conversion::from_internal(target, self.served, internal).await
    }

    async fn in_version<'v>(&self, object: &'v Value, target: &Served) -> Result<Cow<'v, Value>, Failure> {
        let (strategy, version) = (&self.served.resource.strategy, self.served.version());
        let is_in_requested_form = !self.phase.is_internal() || strategy.is_internal_form(version);
        if (self.is_requested(target) && is_in_requested_form) || self.is_of_other_kind() {
            return Ok(Cow::Borrowed(object));
        }
        let internal = match self.phase.is_internal() {
            true => object.clone(),
            false => strategy.internal(version, object.clone()),
        };
        conversion::from_internal(self.served, target, internal).await.map(Cow::Owned)
    }

    /// The request that is sent to a webhook and that expressions see as `request`: an AdmissionRequest without uid and
    /// objects.
    pub(crate) fn request(&self, target: &Served) -> Value {
        let operation = self.operation;
        let subresource = self.attributes.subresource;
        let resource = |served: &Served| json!({"group": served.resource.group, "version": served.version().name, "resource": served.resource.plural});
        let kind = |served: &Served| {
            let kind = kind(served, subresource).unwrap_or_else(|| served.kind());
            json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
        };
        let mut request = json!({
            "kind": kind(target),
            "resource": resource(target),
            "requestKind": kind(self.served),
            "requestResource": resource(self.served),
            "operation": self.action.as_str(),
            "userInfo": operation.user,
            "dryRun": operation.options.is_dry_run,
            "options": self.options(),
        });
        if let Some(subresource) = subresource {
            request["subResource"] = subresource.into();
            request["requestSubResource"] = subresource.into();
        }
        if !self.name.is_empty() {
            request["name"] = self.name.into();
        }
        if let Some(namespace) = self.attributes.namespace {
            request["namespace"] = namespace.into();
        }
        request
    }

    /// The options of the request, as sent by the client.
    fn options(&self) -> Value {
        let operation = self.operation;
        let kind = match self.action {
            Action::Connect => return Value::Null,
            Action::Create => "CreateOptions",
            Action::Delete => "DeleteOptions",
            Action::Update => "UpdateOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if operation.options.is_dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if let Some(deletion) = self.deletion {
            deletion.describe(&mut options);
            return options;
        }
        if operation.given.manager {
            options["fieldManager"] = (*operation.manager).into();
        }
        if operation.given.field_validation {
            options["fieldValidation"] = operation.options.field_validation.as_str().into();
        }
        options
    }
}

/// The kind of the objects of a resource or a subresource; `None` if there is no such subresource.
pub(crate) fn kind(served: &Served, subresource: Option<&str>) -> Option<GroupVersionKind> {
    let version = served.version();
    match subresource {
        None => Some(served.kind()),
        Some("status") => version.has_status.then(|| served.kind()),
        Some("scale") => version.scale.as_ref().map(|_| GroupVersionKind::new("autoscaling", "v1", "Scale")),
        Some(name) => version.subresources.iter().find(|one| *one.name == *name).map(|one| one.kind.clone()),
    }
}
