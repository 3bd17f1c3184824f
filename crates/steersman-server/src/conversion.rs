//! Converts objects between the stored, the internal and the requested form.
//!
//! Every conversion goes through here, for many objects at once; it is async and may fail. Today each one is a pure function
//! of the kind's strategy. Conversion webhooks will be called here.

use crate::catalog::Served;
use crate::status::Failure;
use steersman_machinery::{Object, Value};

/// Stored objects in the requested form.
///
/// # Errors
/// When they cannot be converted to that version now.
pub(crate) async fn to_requested(served: &Served, stored: Vec<Value>) -> Result<Vec<Value>, Failure> {
    check(served)?;
    let (resource, version, strategy) = (&served.resource, served.version(), &served.resource.strategy);
    Ok(stored.into_iter().map(|stored| strategy.present(version, strategy.load(resource, version, stored))).collect())
}

/// A stored object in the internal form.
///
/// # Errors
/// When it cannot be converted to that version now.
pub(crate) async fn to_internal(served: &Served, stored: Value) -> Result<Value, Failure> {
    check(served)?;
    Ok(served.resource.strategy.load(&served.resource, served.version(), stored))
}

/// An object of the internal form as it is to be stored.
///
/// # Errors
/// When it cannot be converted to the storage version now.
pub(crate) async fn to_stored(served: &Served, internal: Value) -> Result<Value, Failure> {
    check(served)?;
    Ok(served.resource.strategy.store(&served.resource, served.version(), internal))
}

/// An object of the internal form of one resource and version, in the requested form of another view of the same objects.
///
/// # Errors
/// When it cannot be converted to that version now.
pub(crate) async fn from_internal(from: &Served, to: &Served, internal: Value) -> Result<Value, Failure> {
    let stored = to_stored(from, internal).await?;
    let mut converted = to_requested(to, vec![stored]).await?;
    converted.pop().ok_or_else(|| Failure::internal("a conversion gave no object"))
}

/// The tree of a stored object.
///
/// # Errors
/// When its bytes are not JSON.
pub(crate) fn parse(object: &Object) -> Result<Value, Failure> {
    serde_json::from_slice(object.json()).map_err(|error| {
        tracing::error!(key = %object.key, %error, "a stored object is not readable");
        Failure::internal(format!("the stored object {} is not readable", object.key))
    })
}

fn check(served: &Served) -> Result<(), Failure> {
    match served.resource.strategy.obstacle(&served.resource, served.version()) {
        Some(obstacle) => Err(Failure::internal(obstacle)),
        None => Ok(()),
    }
}
