//! What is particular about a kind: how its bodies are read, filled in, checked, converted and printed.
//!
//! The registry drives every kind through the same stages and asks a [`Strategy`] at each. An object passes through
//! three forms, which are one and the same for most kinds:
//!
//! ```text
//! body --decode--> requested form --default--> (patches, managedFields, admission act here)
//!      --internal--> internal form --prepare, validate--> --store--> stored form (bytes)
//! stored form --load--> internal form --present--> requested form --> answer
//! ```
//!
//! The requested form is that of the version in the path. The internal form is the one in which the kind's rules are
//! written: the storage version for built-in kinds, the requested version for custom ones, whose rules are per version.

use crate::catalog::{Handling, Resource, Version};
use crate::projection::Projection;
use std::fmt;
use steersman_machinery::{Value, field};
use steersman_schema::decode::{Body, Decoded};

/// What is particular about a kind.
///
/// Every method works on trees and is free of IO; `now` and random parts come in from the registry.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// How requests on the kind are handled.
    fn handling(&self) -> Handling {
        Handling::Stored
    }

    /// Reads a body as an object of this version, in one pass: types are checked, fields that do not exist or are there twice
    /// are dropped and named. Whether `apiVersion` and `kind` are those of this version is checked afterwards.
    ///
    /// # Errors
    /// When it is no JSON, or a field has another type than the kind gives it.
    fn decode(&self, version: &Version, body: Body<'_>) -> Result<Decoded, DecodeError>;

    /// Fills in what the client left out. Called on the requested form, after decoding and after every patch.
    fn default(&self, version: &Version, value: &mut Value);

    /// Whether the stored bytes can be sent as they are to a client that asks for this version.
    fn is_stored_form(&self, resource: &Resource, version: &Version) -> bool {
        resource.storage_version().name == version.name
    }

    /// Whether the internal form is the requested one.
    fn is_internal_form(&self, version: &Version) -> bool {
        let _ = version;
        false
    }

    /// Why objects cannot be read or written in this version now; the registry answers 500 with it.
    fn obstacle(&self, resource: &Resource, version: &Version) -> Option<String> {
        let _ = (resource, version);
        None
    }

    /// Stored form to internal form.
    fn load(&self, resource: &Resource, version: &Version, stored: Value) -> Value {
        let _ = (resource, version);
        stored
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
    fn store(&self, resource: &Resource, version: &Version, internal: Value) -> Value {
        let _ = (resource, version);
        internal
    }

    /// Clears and sets what is not the client's to say in a new object: status, generation, assigned fields.
    /// System metadata (uid, creationTimestamp) is already set.
    fn prepare_create(&self, version: &Version, value: &mut Value);

    /// The same for a change through an endpoint: carries over what the endpoint must not touch and counts the generation.
    fn prepare_update(&self, version: &Version, endpoint: Endpoint, new: &mut Value, old: &Value);

    /// Marks an object whose deletion is asked for in the kind's own way, beyond the marks in its metadata.
    fn prepare_delete(&self, version: &Version, value: &mut Value, now: &str) {
        let _ = (version, value, now);
    }

    /// The faults of a new object, its metadata included as far as the kind has rules of its own for it
    /// (the name's form is [`Strategy::name_faults`]; the rest of the metadata is checked by the registry).
    fn validate_create(&self, version: &Version, value: &Value) -> Vec<field::Error>;

    /// The faults of a change. The registry has checked the metadata.
    fn validate_update(&self, version: &Version, endpoint: Endpoint, new: &Value, old: &Value) -> Vec<field::Error>;

    /// What the client should know, though nothing is refused.
    fn warnings(&self, version: &Version, value: &Value) -> Vec<String> {
        let _ = (version, value);
        Vec::new()
    }

    /// The faults of a name.
    fn name_faults(&self, name: &str) -> Vec<String> {
        steersman_machinery::name::dns1123_subdomain(name)
    }

    /// Paths of fields that a writer through this endpoint never comes to own, such as `status` on the main endpoint.
    fn reset_fields(&self, version: &Version, endpoint: Endpoint) -> &'static [&'static [&'static str]] {
        match endpoint {
            Endpoint::Main if version.has_status => &[&["status"]],
            Endpoint::Status => &[&["spec"]],
            Endpoint::Main | Endpoint::Other => &[],
        }
    }

    /// What the kind allows.
    fn rules(&self) -> Rules {
        Rules::default()
    }

    /// What of an object its cells are made of. An object of which more is read has the same cells.
    fn cells_read(&self, version: &Version) -> Projection {
        let _ = version;
        Projection::without_managers()
    }

    /// The cells of an object's row, one for each of the version's columns; `null` where there is nothing to show.
    /// The object is in the requested form.
    fn cells(&self, version: &Version, value: &Value, now: jiff::Timestamp) -> Vec<Value>;
}

/// Where a change comes in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// The object itself.
    Main,
    /// Another subresource, which sets single fields by itself.
    Other,
    /// `/status`.
    Status,
}

/// A body that is no object of its kind.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DecodeError {
    /// A field that cannot be read: the whole body is refused. The text is for the client.
    #[error("{0}")]
    Malformed(String),
    /// Fields that are wrong as values.
    #[error("{}", field::join(_0))]
    Invalid(Vec<field::Error>),
}

/// What a kind allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    /// A PUT of an object that does not exist creates it.
    pub creates_on_update: bool,
    /// A PUT may come without a resourceVersion.
    pub updates_unconditionally: bool,
    /// What a deletion does with dependents if the client does not say.
    pub propagation: Propagation,
    /// Whether a deletion waits for somebody else's word before the object goes.
    pub grace: Grace,
    /// The answer to a deletion is the object as it was, not a Status.
    pub returns_deleted: bool,
}

/// What a deletion does with dependents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Whether and how long a deletion waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grace {
    /// Until the instances are gone, as a CustomResourceDefinition does.
    Instances,
    /// It does not.
    None,
    /// Until the finalizers of the spec are gone, as a Namespace does.
    SpecFinalizers,
    /// For the grace period of the spec if the object is bound to a node, as a Pod does.
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
        }
    }
}
