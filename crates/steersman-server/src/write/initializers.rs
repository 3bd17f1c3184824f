//! Initializers, as in Kubernetes 1.7 to 1.13: programs that process a new object before other clients can see it.
//!
//! They are on only if the server was started with them; otherwise neither the kind InitializerConfiguration nor the
//! field `metadata.initializers` exists, and nothing here runs. The parts:
//!
//! - the compiled InitializerConfigurations ([`Configured`]), in force when their write is answered;
//! - the field of an object, and its allowed changes ([`field`]);
//! - `admission/initializers` puts the names on new objects, and judges updates;
//! - `endpoint/stored/creation` lets a creation wait, and the storage crate hides waiting objects;
//! - `upkeep/initializers` ends the wait when its time has passed.
//!
//! An initializer applies to an object if *any* of its rules matches, as the documentation of the API said. The code of
//! Kubernetes required all of them, so that an initializer with two rules for two resources never ran; nobody can
//! depend on that.

pub(crate) mod field;
pub(crate) mod figures;

mod configured;

pub(crate) use self::configured::{Configured, OnTimeout, follow, resource};

/// The default timeout of an initializer. It is shorter than the minute that a request may take, so that the answer to
/// a creation has its outcome.
const TIMEOUT_SECONDS: i64 = 30;
/// The prefix of annotations with which an object requests an initializer by its name, whatever its rules are: with
/// `envoy` after the slash, `envoy.initializer.kubernetes.io`.
const ASKS: &str = "initializer.kubernetes.io/";
/// The suffix that completes the rest of such an annotation to the name of the initializer.
const ASKED_DOMAIN: &str = ".initializer.kubernetes.io";
