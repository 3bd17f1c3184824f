//! Checks the name and namespace of a body against those of the path.

use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::write::registry::metadata;
use steersman_machinery::{Value, value};

/// Sets the namespace of an object to that of the path.
///
/// # Errors
/// 400 if the object has another namespace, or the path has none although the kind is namespaced.
pub(crate) fn set_namespace(operation: &Operation<'_>, object: &mut Value) -> Result<(), Failure> {
    let given = metadata::text(object, "namespace");
    match operation.namespace() {
        None => {
            value::remove_at(object, &["metadata", "namespace"]);
        }
        Some(namespace) if given.is_empty() => {
            value::set_at(object, &["metadata", "namespace"], namespace.into());
        }
        Some(namespace) if given == namespace => {}
        Some(_) => {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    if operation.is_namespaced() && operation.namespace().is_none() {
        return Err(Failure::bad_request(format!(
            "{} live in namespaces: the path must name one",
            operation.resource().plural
        )));
    }
    Ok(())
}

/// Checks that the body has the name of the path.
///
/// # Errors
/// 400 if it does not.
pub(crate) fn check_name(operation: &Operation<'_>, object: &Value) -> Result<(), Failure> {
    let given = metadata::text(object, "name");
    if given.is_empty() {
        return Err(Failure::bad_request("name must be provided"));
    }
    check_given_name(operation, object)
}

/// Checks that the body has the name of the path, or none.
///
/// # Errors
/// 400 if it has another name.
pub(crate) fn check_given_name(operation: &Operation<'_>, object: &Value) -> Result<(), Failure> {
    let (given, name) = (metadata::text(object, "name"), operation.name());
    if given.is_empty() || given == name {
        return Ok(());
    }
    Err(Failure::bad_request(format!("the name of the object ({given}) does not match the name on the URL ({name})")))
}
