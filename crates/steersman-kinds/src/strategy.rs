//! The [`Strategy`] of a kind: how its bodies are decoded, defaulted, validated, converted and printed.
//!
//! The registry takes every kind through the same stages and calls the strategy at each. An object passes through three
//! forms, which are identical for most kinds:
//!
//! ```text
//! body --decode--> requested form --default--> (patches, managedFields, admission act here)
//!      --internal--> internal form --prepare, validate--> --store--> stored form (bytes)
//! stored form --load--> internal form --present--> requested form --> answer
//! ```
//!
//! The requested form is that of the version in the path. The internal form is the one for which the kind's rules are
//! written: the storage version for built-in kinds, the requested version for custom ones, whose rules are per version.

use crate::catalog::{Handling, Resource, Version};
use crate::converter::Converter;
use crate::projection::Projection;
use crate::user::User;
use std::fmt;
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::{Value, field};
use steersman_schema::decode::{self, Body, Decoded};

/// How long the rules of a definition may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effort {
    /// A millisecond or two.
    Brief,
    /// As long as kube-apiserver lets them.
    Whole,
}

/// The behaviour that is particular to a kind.
///
/// Every method works on trees and does no IO (only the webhook that it may return does); the registry passes in times
/// and random parts.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// How requests on the kind are handled.
    fn handling(&self) -> Handling {
        Handling::Stored
    }

    /// Decodes a body as an object of this version, in one pass: types are checked; unknown and duplicate fields are
    /// dropped and reported. Whether `apiVersion` and `kind` match this version is checked afterwards.
    ///
    /// # Errors
    /// When it is not JSON, or too large, or a field has the wrong type.
    fn decode(&self, version: &Version, body: Body<'_>, budget: &Budget) -> Result<Decoded, DecodeError>;

    /// Sets defaults. Called on the requested form, after decoding and after every patch. The budget is the one with
    /// which the object was decoded.
    ///
    /// # Errors
    /// When the object becomes too large.
    fn default(&self, version: &Version, value: &mut Value, budget: &Budget) -> Result<(), budget::Error>;

    /// Sets defaults in the result of an apply, which upstream does not decode again: where a custom resource allows no
    /// null, an applied one is refused, not dropped.
    ///
    /// # Errors
    /// When the object becomes too large.
    fn default_applied(&self, version: &Version, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
        self.default(version, value, budget)
    }

    /// Whether the stored bytes can be sent unchanged to a client that requests this version.
    fn is_stored_form(&self, resource: &Resource, version: &Version) -> bool {
        resource.storage_version().name == version.name
    }

    /// Whether the internal form is identical to the requested one.
    fn is_internal_form(&self, version: &Version) -> bool {
        let _ = version;
        false
    }

    /// The webhook that converts between the versions, if there is one. Then [`Strategy::load`] and [`Strategy::store`]
    /// are only called for the version that the object already has.
    fn converter(&self) -> Option<&dyn Converter> {
        None
    }

    /// Brings an object that a webhook has converted to a version into the form that decoding gives.
    ///
    /// # Errors
    /// When its defaults make it too large.
    fn decode_converted(&self, version: &Version, converted: Value) -> Result<Value, budget::Error> {
        let _ = version;
        Ok(converted)
    }

    /// Stored form to internal form.
    ///
    /// # Errors
    /// When its defaults make it too large.
    fn load(&self, resource: &Resource, version: &Version, stored: Value) -> Result<Value, budget::Error> {
        let _ = (resource, version);
        Ok(stored)
    }

    /// Internal form to requested form.
    fn present(&self, version: &Version, internal: Value) -> Value {
        let _ = version;
        internal
    }

    /// Requested form to internal form.
    fn internal(&self, version: &Version, requested: Value) -> Value {
        let _ = version;
        requested
    }

    /// Internal form to stored form.
    ///
    /// # Errors
    /// When its defaults make it too large.
    fn store(&self, resource: &Resource, version: &Version, internal: Value) -> Result<Value, budget::Error> {
        let _ = (resource, version);
        Ok(internal)
    }

    /// Reads an object that another API server has stored in this version: unknown fields are dropped, defaults are set, and it gets the
    /// stored form.
    ///
    /// # Errors
    /// When it is not JSON, or too large, or a field has the wrong type.
    fn adopt(
        &self,
        resource: &Resource,
        version: &Version,
        body: Body<'_>,
        budget: &Budget,
    ) -> Result<Value, DecodeError> {
        let mut value = self.decode(version, body, budget)?.value;
        self.default(version, &mut value, budget)?;
        Ok(self.store(resource, version, self.internal(version, value))?)
    }

    /// The object with further fields that its writer owns besides those that were sent, where a kind takes defaults
    /// from elsewhere in the object; `None` if there are none.
    fn completed_for_owners(&self, value: &Value) -> Option<Value> {
        let _ = value;
        None
    }

    /// Resets the fields of a new object that the client does not decide: status, generation, assigned fields.
    /// System metadata (uid, creationTimestamp) is already set.
    fn prepare_create(&self, version: &Version, value: &mut Value);

    /// Records in a new object the user who creates it.
    fn set_creator(&self, value: &mut Value, user: &User) {
        let _ = (value, user);
    }

    /// Sets the times that the client left out. Called after the other preparations; `old` is null for a new object.
    fn set_times(&self, new: &mut Value, old: &Value, now: &str) {
        let _ = (new, old, now);
    }

    /// Prepares an update through an endpoint: keeps the fields that the endpoint must not change, and raises the
    /// generation.
    fn prepare_update(&self, version: &Version, endpoint: Endpoint, new: &mut Value, old: &Value);

    /// Changes an object that is about to be deleted, beyond its metadata: the phase of a namespace, a condition.
    fn prepare_delete(&self, version: &Version, value: &mut Value, now: &str) {
        let _ = (version, value, now);
    }

    /// The validation errors of a new object, including its metadata as far as the kind has its own rules for it (the
    /// form of the name is [`Strategy::name_faults`]; the registry checks the rest of the metadata). It ends early when
    /// the budget is exceeded, which [`Budget::check`] reports.
    fn validate_create(&self, version: &Version, value: &Value, budget: &Budget) -> Vec<field::Error>;

    /// The validation errors of a change. The registry has checked the metadata. It ends early like
    /// [`Strategy::validate_create`].
    fn validate_update(
        &self,
        version: &Version,
        endpoint: Endpoint,
        new: &Value,
        old: &Value,
        budget: &Budget,
    ) -> Vec<field::Error>;

    /// Tries the rules that a definition has in CEL, when all other errors of the object are known, since some of them keep
    /// rules from being tried. Adds the errors that the rules find, and returns warnings for the client. `None` if the effort was too
    /// little, which [`Effort::Whole`] never is: then no error was added.
    fn judge(
        &self,
        version: &Version,
        new: &Value,
        old: Option<&Value>,
        errors: &mut Vec<field::Error>,
        effort: Effort,
    ) -> Option<Vec<String>> {
        let _ = (version, new, old, errors, effort);
        Some(Vec::new())
    }

    /// Whether [`Strategy::judge`] can begin at once: it has no rules to compile.
    fn is_ready_to_judge(&self, version: &Version) -> bool {
        let _ = version;
        true
    }

    /// Warnings for the client about an object that is valid. `old` is null for a new one.
    fn warnings(&self, version: &Version, value: &Value, old: &Value) -> Vec<String> {
        let _ = (version, value, old);
        Vec::new()
    }

    /// The errors of a name.
    fn name_faults(&self, name: &str) -> Vec<String> {
        steersman_machinery::name::dns1123_subdomain(name)
    }

    /// Paths of fields that this endpoint ignores, so that its writers never own them, such as `status` on the main
    /// endpoint.
    fn reset_fields(&self, version: &Version, endpoint: Endpoint) -> &'static [&'static [&'static str]] {
        match endpoint {
            Endpoint::Main if version.has_status => &[&["status"]],
            Endpoint::Status => &[&["spec"]],
            Endpoint::Main | Endpoint::Other | Endpoint::Resize => &[],
        }
    }

    /// The annotations that a version has in place of fields of the internal form. Answers that have no more of an object than
    /// its metadata are made of the internal form, and so are without them.
    fn annotations_of_version(&self, version: &Version) -> &'static [&'static str] {
        let _ = version;
        &[]
    }

    /// The rules of the kind for updates and deletions.
    fn rules(&self) -> Rules {
        Rules::default()
    }

    /// The path of the number by which the rows of a table are sorted, and then by name. Usually they are sorted by name alone.
    fn rows_ordered_by(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// The fields from which the cells of a row are computed. Cells must not depend on other fields.
    fn cells_read(&self, version: &Version) -> Projection {
        let _ = version;
        Projection::without_managers()
    }

    /// The conditions of an object's row. They depend on the same fields as the cells.
    fn row_conditions(&self, version: &Version, value: &Value) -> Vec<Value> {
        let _ = (version, value);
        Vec::new()
    }

    /// The cells of an object's row, one for each of the version's columns; `null` where there is nothing to show.
    /// The object is in the requested form.
    fn cells(&self, version: &Version, value: &Value, now: jiff::Timestamp) -> Vec<Value>;
}

/// The endpoint of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// The object itself.
    Main,
    /// A subresource that sets single fields itself.
    Other,
    /// `/resize` of a Pod.
    Resize,
    /// `/status`.
    Status,
}

/// Why a body is not an object of its kind.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The object would be too large, or the request was canceled.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    /// A field has the wrong type, so the whole body is refused. The text is for the client.
    #[error("{0}")]
    Malformed(String),
    /// Fields with invalid values.
    #[error("{}", field::join(_0))]
    Invalid(Vec<field::Error>),
}

impl From<decode::Error> for DecodeError {
    fn from(error: decode::Error) -> DecodeError {
        match error {
            decode::Error::Budget(error) => DecodeError::Budget(error),
            error => DecodeError::Malformed(error.to_string()),
        }
    }
}

/// The rules of a kind for updates and deletions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    /// Whether a PUT of an object that does not exist creates it.
    pub creates_on_update: bool,
    /// Whether a PUT may omit the resourceVersion.
    pub updates_unconditionally: bool,
    /// The propagation policy of deletions that do not name one.
    pub propagation: Propagation,
    /// Whether a deletion waits before the object is removed, besides its finalizers.
    pub grace: Grace,
    /// Whether a deletion returns the deleted object instead of a Status.
    pub returns_deleted: bool,
    /// Whether warnings given on create are given on update too.
    pub warns_on_update: bool,
    /// Whether a deletion without a propagation policy returns a warning that dependents are orphaned.
    pub warns_of_orphans: bool,
    /// Whether finalizers without a domain must be those that Kubernetes defines.
    pub requires_qualified_finalizers: bool,
    /// Whether creations check `generateName` like a name.
    pub validates_generate_name: bool,
    /// Whether updates check `generateName` like creations.
    pub validates_generate_name_on_update: bool,
}

/// The effect of a deletion on dependents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The condition that delays a deletion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grace {
    /// Until the instances are gone, for a CustomResourceDefinition.
    Instances,
    /// No delay.
    None,
    /// Until the finalizers of the spec are gone, for a Namespace.
    SpecFinalizers,
    /// For the grace period of the spec if the object is bound to a node, for a Pod.
    Node,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            creates_on_update: false,
            updates_unconditionally: true,
            propagation: Propagation::Background,
            grace: Grace::None,
            returns_deleted: false,
            warns_on_update: true,
            warns_of_orphans: false,
            requires_qualified_finalizers: false,
            validates_generate_name: true,
            validates_generate_name_on_update: false,
        }
    }
}
