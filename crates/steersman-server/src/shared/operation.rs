//! The types of a request on a resource, shared by authorization, admission, reviews and the registry.
//!
//! [`Attributes`] are what an authorizer decides on. An [`Operation`] is a request on a resource that has been authorized: its
//! attributes, its user, its options, and the warnings for the client. It contains nothing of HTTP, so the server's own writes
//! are operations too.

use crate::shared::compute::{self, LIGHT, Load};
use crate::shared::conversion::OnDemand;
use crate::shared::request::options::FieldValidation;
use crate::shared::status::Failure;
use jiff::Timestamp;
use jiff::tz::Offset;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, LazyLock};
use steersman_kinds::catalog::{Resource, ResourceScope, Served, Verb, Version};
use steersman_kinds::expressions::Allowance;
use steersman_kinds::strategy::{Endpoint, Strategy};
use steersman_kinds::user::User;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::{Budget, GroupResource, ObjectKey, field, selector};
use steersman_storage::Guard;
use tokio::time::Instant;

/// The most bytes of warnings in one answer.
pub(crate) const WARNINGS_BYTES_MAX: usize = 4096;

/// The attributes of a request, on which an authorizer decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attributes<'a> {
    /// A non-resource path.
    NonResource {
        /// The method in lower case.
        verb: &'a str,
        /// The path with escapes resolved.
        path: &'a str,
    },
    /// A resource.
    Resource(ResourceAttributes<'a>),
}

/// The attributes of a request on a resource.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ResourceAttributes<'a> {
    /// The verb, such as `get` or `deletecollection`.
    pub verb: &'a str,
    /// The group, empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: Option<&'a str>,
    /// The namespace; for a request on a Namespace its own name.
    pub namespace: Option<&'a str>,
    /// The object.
    pub name: Option<&'a str>,
    /// The field selector of a list, a watch or the deletion of a collection.
    pub field_selector: Option<&'a selector::Fields>,
    /// The label selector of a list, a watch or the deletion of a collection.
    pub label_selector: Option<&'a selector::Labels>,
}

/// A request on a resource.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) served: &'a Served,
    pub(crate) attributes: ResourceAttributes<'a>,
    pub(crate) user: &'a Arc<User>,
    /// The field manager: recorded as the owner of the fields that a write changes.
    pub(crate) manager: Cow<'a, str>,
    pub(crate) options: Options,
    /// The options that the client has sent.
    pub(crate) given: Given,
    /// Whether it deletes one object of a collection.
    pub(crate) is_of_collection: bool,
    /// Whether admission has already accepted it, or the operation that it is a part of.
    pub(crate) is_admitted: bool,
    pub(crate) now: Timestamp,
    /// When the request arrived: it is answered from a state at least as new.
    pub(crate) arrived: Instant,
    /// Other objects that a creation depends on: it fails if they have changed in the meantime.
    pub(crate) guards: Vec<Guard>,
    /// The amounts added to quotas for this write.
    pub(crate) charges: Vec<Charge>,
    /// Warnings for the client, without duplicates.
    pub(crate) warnings: Vec<String>,
    /// Conversions that `managedFields` need, if a webhook does them.
    pub(crate) conversions: Option<Arc<OnDemand>>,
    /// Its annotations for the audit log.
    pub(crate) audit_annotations: Vec<Annotation>,
    /// The time by which the request must be answered; `None` for the server's own.
    pub(crate) deadline: Option<Instant>,
    /// The budget of the request. Nothing is charged after the commit, when it is too late to refuse.
    pub(crate) budget: Budget,
    /// The estimate of the request's work.
    pub(crate) load: Load,
    /// The cost that is left for the expressions of policies and webhooks.
    pub(crate) expressions: Allowance,
}

/// Warnings and annotations of a request, kept whether or not it succeeds.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
    /// Annotations for the audit log.
    pub(crate) audit_annotations: Vec<Annotation>,
}

/// An annotation for the audit log.
#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub(crate) key: Cow<'static, str>,
    pub(crate) value: String,
    /// Whether the value comes from an object, so that it is logged only where objects are.
    pub(crate) is_of_body: bool,
}

/// An amount added to a quota for a write that is not stored yet.
#[derive(Debug)]
pub(crate) struct Charge {
    pub(crate) quota: ObjectKey,
    /// Amounts by resource.
    pub(crate) used: BTreeMap<String, Quantity>,
}

/// The options of a write that do not concern its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Whether it is a dry run: everything is done except the commit.
    pub(crate) is_dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Whether an apply takes conflicting fields from their owners.
    pub(crate) is_forced: bool,
}

/// The options that a client has sent. For the others the server chose a value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    pub(crate) field_validation: bool,
    pub(crate) manager: bool,
}

/// The user that the server's own operations run as.
static SYSTEM: LazyLock<Arc<User>> = LazyLock::new(|| Arc::new(User::master("system:apiserver")));
/// The field manager of the server's own writes.
const SYSTEM_MANAGER: &str = "steersman";

// === impl ResourceAttributes ===

impl<'a> ResourceAttributes<'a> {
    /// The attributes of a verb on all objects of a resource.
    pub(crate) fn of(served: &'a Served, verb: Verb) -> ResourceAttributes<'a> {
        ResourceAttributes {
            verb: verb.as_str(),
            group: &served.resource.group,
            version: &served.version().name,
            resource: &served.resource.plural,
            ..ResourceAttributes::default()
        }
    }

    /// Whether the request concerns a resource, in any version and with any subresource.
    pub(crate) fn is_about(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }
}

// === impl Notes ===

impl Notes {
    /// Adds an annotation for the audit log.
    pub(crate) fn annotate(&mut self, key: &'static str, value: String) {
        self.audit_annotations.push(Annotation { key: Cow::Borrowed(key), value, is_of_body: false });
    }

    /// Adds the notes of a later stage of the request.
    pub(crate) fn append(&mut self, later: Notes) {
        self.warnings.extend(later.warnings);
        self.audit_annotations.extend(later.audit_annotations);
    }
}

// === impl Operation ===

impl<'a> Operation<'a> {
    pub(crate) fn new(
        served: &'a Served,
        attributes: ResourceAttributes<'a>,
        user: &'a Arc<User>,
        now: Timestamp,
    ) -> Operation<'a> {
        Operation {
            served,
            attributes,
            user,
            manager: Cow::Borrowed(""),
            options: Options::default(),
            given: Given::default(),
            is_of_collection: false,
            is_admitted: false,
            now,
            arrived: Instant::now(),
            guards: Vec::new(),
            charges: Vec::new(),
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
            conversions: served.resource.strategy.converter().map(|_| Arc::default()),
            deadline: None,
            budget: Budget::default(),
            load: Load::default(),
            expressions: Allowance::default(),
        }
    }

    /// An operation of the server itself. It passes through the registry like any other.
    pub(crate) fn of_system(served: &'a Served, verb: Verb, now: Timestamp) -> Operation<'a> {
        let attributes = ResourceAttributes::of(served, verb);
        Operation {
            manager: Cow::Borrowed(SYSTEM_MANAGER),
            budget: Budget::unlimited(),
            ..Operation::new(served, attributes, &SYSTEM, now)
        }
    }

    /// Whether the server itself is the user.
    pub(crate) fn is_of_system(&self) -> bool {
        Arc::ptr_eq(self.user, &SYSTEM)
    }

    /// The same operation on one object.
    pub(crate) fn on<'b>(&'b self, verb: Verb, key: &'b ObjectKey) -> Operation<'b> {
        let namespace = key.namespace.as_deref();
        let attributes =
            ResourceAttributes { verb: verb.as_str(), namespace, name: Some(&key.name), ..self.attributes };
        Operation {
            manager: Cow::Borrowed(&self.manager),
            options: self.options,
            deadline: self.deadline,
            budget: self.budget.renewed(),
            load: self.load.clone(),
            ..Operation::new(self.served, attributes, self.user, self.now)
        }
    }

    pub(crate) fn resource(&self) -> &'a Resource {
        &self.served.resource
    }

    pub(crate) fn version(&self) -> &'a Version {
        self.served.version()
    }

    pub(crate) fn strategy(&self) -> &'a dyn Strategy {
        &*self.served.resource.strategy
    }

    /// The resource in the form in which errors name it.
    pub(crate) fn group_resource(&self) -> GroupResource {
        self.resource().group_resource()
    }

    /// The resource under which its objects are stored.
    pub(crate) fn storage(&self) -> &'a GroupResource {
        &self.resource().storage
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.resource().scope == ResourceScope::Namespaced
    }

    pub(crate) fn allows(&self, verb: Verb) -> bool {
        self.resource().verbs.contains(&verb)
    }

    /// The endpoint of a write.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self.attributes.subresource {
            // A write of the scale changes the object itself.
            None | Some("scale") => Endpoint::Main,
            Some("resize") => Endpoint::Resize,
            Some("status") => Endpoint::Status,
            Some(_) => Endpoint::Other,
        }
    }

    /// The name in the path; empty for a collection.
    pub(crate) fn name(&self) -> &'a str {
        self.attributes.name.unwrap_or("")
    }

    /// The namespace in the path, where the resource has namespaces.
    pub(crate) fn namespace(&self) -> Option<&'a str> {
        self.attributes.namespace.filter(|_| self.is_namespaced())
    }

    /// The key of an object of this resource in the namespace of the path.
    pub(crate) fn key(&self, name: &str) -> ObjectKey {
        match self.namespace() {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        }
    }

    /// The scope of a list or watch.
    pub(crate) fn list_scope(&self) -> steersman_storage::Scope {
        self.namespace()
            .map_or(steersman_storage::Scope::All, |namespace| steersman_storage::Scope::Namespace(namespace.into()))
    }

    /// The time of the request in the form of object metadata: UTC, to the second.
    pub(crate) fn now_text(&self) -> String {
        seconds(self.now)
    }

    /// Called where long work begins or begins again.
    ///
    /// # Errors
    /// 504 when the time of the request is over, or when nobody waits for its answer any more.
    pub(crate) fn check_time(&self) -> Result<(), Failure> {
        let is_over = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        if is_over || self.load.is_interrupted() { Err(compute::too_late()) } else { Ok(()) }
    }

    /// Computes within a small part of the budget where the request is polled, and once more, within all of it, on a thread for heavy requests if
    /// that was too little. So `compute` may be called twice: the first call may leave nothing behind but its
    /// charges, warnings and annotations.
    pub(crate) async fn computed<T>(&mut self, compute: impl Fn(&mut Operation<'a>) -> T) -> T {
        if !self.load.is_light() {
            return compute(self);
        }
        let (n_warnings, n_annotations) = (self.warnings.len(), self.audit_annotations.len());
        let part = self.budget.part(LIGHT);
        let whole = mem::replace(&mut self.budget, part);
        let outcome = compute(self);
        let part = mem::replace(&mut self.budget, whole);
        if !part.is_exceeded() {
            self.budget.take_over(part);
            return outcome;
        }
        drop(outcome);
        self.warnings.truncate(n_warnings);
        self.audit_annotations.truncate(n_annotations);
        self.load.expect_more().await;
        compute(self)
    }

    /// Fails with 422 and all faults of an object, if there are any.
    pub(crate) fn refuse(&self, name: &str, faults: &[field::Error]) -> Result<(), Failure> {
        if faults.is_empty() { Ok(()) } else { Err(Failure::invalid(&self.resource().group_kind(), name, faults)) }
    }

    pub(crate) fn warn(&mut self, text: String) {
        // Warnings beyond the limit would not be sent, and comparing each with all others would be quadratic for a body
        // with many invalid fields.
        let bytes: usize = self.warnings.iter().map(String::len).sum();
        if bytes <= WARNINGS_BYTES_MAX && !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Adds an annotation for the audit log.
    pub(crate) fn annotate(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        self.audit_annotations.push(Annotation { key, value, is_of_body: false });
    }

    /// Adds an annotation that is logged only where the policy logs the bodies of requests.
    pub(crate) fn annotate_body(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        self.audit_annotations.push(Annotation { key, value, is_of_body: true });
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { is_dry_run: false, field_validation: FieldValidation::Warn, is_forced: false }
    }
}

/// A time to the second, in the form of object metadata.
pub(crate) fn seconds(time: Timestamp) -> String {
    let time = Offset::UTC.to_datetime(time);
    let (date, time) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year(),
        date.month(),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}
