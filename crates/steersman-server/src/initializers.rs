//! Initializers, as Kubernetes 1.7 to 1.13 had them: programs that must have seen a new object before anybody else does.
//!
//! A server has them if it was started so; otherwise neither the kind InitializerConfiguration nor the field
//! `metadata.initializers` exists, and nothing here runs. The parts:
//!
//! - what InitializerConfigurations say ([`Configured`]), compiled, in force when their write is answered;
//! - the field of an object, and which changes of it are allowed ([`field`]);
//! - `admission/initializers` puts the names on new objects, and judges updates;
//! - `endpoint/stored/creation` lets a creation wait, and the storage crate hides what waits;
//! - `upkeep/initializers` ends the wait when its time is over.
//!
//! An initializer cares about an object if *any* of its rules matches, as the documentation of the API said. The code of Kubernetes
//! asked for all of them, so that an initializer with two rules for two resources never ran; nobody can depend on that.

pub(crate) mod field;
pub(crate) mod figures;

mod configured;

pub(crate) use self::configured::{Configured, OnTimeout, follow, resource};


/// The time of an initializer for which nothing else is said. It is shorter than the minute that a request may take, so that a
/// creation is told what became of it.
const TIMEOUT_SECONDS: i64 = 30;
/// An annotation of an object that asks for an initializer by its name, whatever its rules say: with `envoy` behind the slash, for
/// `envoy.initializer.kubernetes.io`.
const ASKS: &str = "initializer.kubernetes.io/";
/// What the rest of such an annotation is completed with to the name of the initializer.
const ASKED_DOMAIN: &str = ".initializer.kubernetes.io";
