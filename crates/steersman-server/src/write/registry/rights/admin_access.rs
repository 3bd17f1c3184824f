//! Access to devices that others use: only in namespaces that carry a label for it.
//!
//! Follows kubernetes' `pkg/registry/resource/utils.go`: a claim, or a template of claims, is checked when it is created, since its spec
//! cannot be changed, and the status of a claim when devices are allocated.

use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::at;
use steersman_machinery::{GroupResource, ObjectKey, Value};

const GROUP: &str = "resource.k8s.io";
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Checks a write of an object in its internal form. Costs a comparison for objects of other kinds.
///
/// # Errors
/// When the namespace cannot be read.
pub(in crate::write::registry) async fn check(
    state: &State,
    operation: &Operation<'_>,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<Error>,
) -> Result<(), Failure> {
    let attributes = operation.attributes;
    if attributes.group != GROUP {
        return Ok(());
    }
    let asked = match (attributes.resource, attributes.subresource, old) {
        ("resourceclaims", None, None) => in_requests(new, &["spec", "devices", "requests"]),
        ("resourceclaimtemplates", None, None) => in_requests(new, &["spec", "spec", "devices", "requests"]),
        ("resourceclaims", Some("status"), Some(old)) if in_results(old).is_none() => in_results(new),
        _ => None,
    };
    let Some(asked) = asked else { return Ok(()) };
    let (namespaces, key) =
        (GroupResource::new("", "namespaces"), ObjectKey::cluster(operation.namespace().unwrap_or_default()));
    let namespace = state.find(&namespaces, &key).await?;
    let is_allowed = namespace.is_some_and(|namespace| namespace.meta().label(LABEL) == Some("true"));
    if !is_allowed {
        let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
        errors.insert(0, Error::forbidden(&asked, why));
    }
    Ok(())
}

/// The path of the first request for such access, which upstream gives as that in a claim for a template too.
fn in_requests(object: &Value, list: &[&str]) -> Option<Path> {
    let index = first(object, list, &["exactly", "adminAccess"])?;
    Some(Path::new("spec.devices.requests").index(index).child("adminAccess"))
}

/// The path of the first device that is allocated with such access.
fn in_results(object: &Value) -> Option<Path> {
    let index = first(object, &["status", "allocation", "devices", "results"], &["adminAccess"])?;
    Some(Path::new("status.allocation.devices.results").index(index).child("adminAccess"))
}

/// The first item of a list that has a flag.
fn first(object: &Value, list: &[&str], flag: &[&str]) -> Option<usize> {
    let mut items = at(object, list).and_then(Value::as_array)?.iter();
    items.position(|item| at(item, flag).and_then(Value::as_bool) == Some(true))
}
