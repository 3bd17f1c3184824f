//! Apply configurations: objects of which every field may be absent, for server-side apply.
//!
//! They are types of their own, because every field in an apply request becomes owned: a zero or an empty list that the
//! kind's type has only because it must have a value would take the field from its other owner.

use kube::Resource;
use kube::core::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::shared::key::ObjectKey;
use crate::typed::fields;

/// The fields of an object that one field manager wants. `steersman codegen clients` writes a type for each kind.
pub trait ApplyConfiguration: DeserializeOwned + Serialize {
    /// The kind.
    type Object: Resource<DynamicType = ()> + Serialize;

    /// The paths of maps that have one owner as a whole (`x-kubernetes-map-type: atomic`): `spec.selector`,
    /// `spec.ports[].selector` in every entry of a list, `spec.zones.*` for every value of a map. In other maps each
    /// entry has its own owner.
    const ATOMIC_MAPS: &'static [&'static str] = &[];

    /// Name and namespace, and the other metadata to apply.
    fn metadata(&self) -> &ObjectMeta;

    /// The fields of `object` that `manager` has applied, to be changed and applied again. Other fields are absent; if
    /// it has applied nothing, only name and namespace are there.
    ///
    /// Fields that were created, updated or patched under the same name do not count: they have another entry.
    ///
    /// # Errors
    /// [`ExtractError`].
    fn extract(object: &Self::Object, manager: &str) -> Result<Self, ExtractError> {
        extract(object, manager, None)
    }

    /// As [`ApplyConfiguration::extract`], for the fields of the status that `manager` has applied.
    ///
    /// # Errors
    /// [`ExtractError`].
    fn extract_status(object: &Self::Object, manager: &str) -> Result<Self, ExtractError> {
        extract(object, manager, Some("status"))
    }
}

/// The applied fields of a manager cannot be read from an object.
#[derive(Debug, thiserror::Error)]
#[error("cannot extract what {manager:?} applied to {key:?}")]
pub struct ExtractError {
    /// The key of the object.
    pub key: ObjectKey,
    /// The field manager.
    pub manager: String,
    /// The error of decoding them.
    #[source]
    pub source: serde_json::Error,
}

fn extract<C: ApplyConfiguration>(
    object: &C::Object,
    manager: &str,
    subresource: Option<&str>,
) -> Result<C, ExtractError> {
    let failed = |source| ExtractError { key: ObjectKey::of(object), manager: manager.to_owned(), source };
    let meta = object.meta();
    let entry = meta.managed_fields.iter().flatten().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().filter(|name| !name.is_empty()) == subresource
    });
    let mut tree = match entry.and_then(|entry| entry.fields_v1.as_ref()) {
        None => Value::Object(serde_json::Map::new()),
        Some(owned) => {
            let whole = serde_json::to_value(object).map_err(failed)?;
            fields::owned(&whole, &owned.0, C::ATOMIC_MAPS)
        }
    };
    if !tree["metadata"].is_object() {
        tree["metadata"] = Value::Object(serde_json::Map::new());
    }
    for (field, value) in [("name", &meta.name), ("namespace", &meta.namespace)] {
        if let Some(value) = value {
            tree["metadata"][field] = value.as_str().into();
        }
    }
    serde_json::from_value(tree).map_err(failed)
}
