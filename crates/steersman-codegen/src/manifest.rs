//! Manifests in the form that a person would write: of CustomResourceDefinitions from Rust types, and of any other
//! object.
//!
//! The definition of a type comes from kube's derives, `CustomResource` and `KubeSchema`: columns, subresources,
//! selectable fields, list types and CEL rules are attributes beside the fields. [`definition`] turns the derived value
//! into a manifest, and [`merge`] combines several versions. Empty values (nulls, empty lists) are left out, names that
//! an API server would fill in are filled in, and formats that such a server does not know (`format: uint32`) are
//! expressed in known ones. Keys have a stable order that suits readers.

mod normal;
mod order;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::Value;

use crate::manifest::order::Ordered;

/// Why a manifest could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object cannot be written as JSON, so not as YAML either.
    #[error("the object cannot be written as JSON")]
    Json(#[source] serde_json::Error),
    /// Two definitions to be merged are of different kinds.
    #[error("cannot merge {first} and {second}: versions of one definition have the same {property}")]
    Mismatch { first: String, second: String, property: &'static str },
    /// Two of the definitions have the same version.
    #[error("cannot merge two definitions of {name} with the same version {version}")]
    Repeated { name: String, version: String },
    /// No definition has the version that is to be stored.
    #[error("no definition has the version {wanted} that objects are to be stored in; there is {found}")]
    NoStorage { wanted: String, found: String },
    /// The object is not a definition of `apiextensions.k8s.io/v1`.
    #[error("{found} is no CustomResourceDefinition of apiextensions.k8s.io/v1")]
    NotADefinition { found: String },
    /// The object cannot be written as YAML.
    #[error("the object cannot be written as YAML: {message}")]
    Yaml { message: String },
}

/// The manifest of a definition, such as the result of `Network::crd()`.
///
/// # Errors
///
/// If it is not a definition of `apiextensions.k8s.io/v1`.
pub fn definition(definition: &impl Serialize) -> Result<String, Error> {
    yaml(&normal_definition(definition)?)
}

/// Merges definitions that differ in their version only, such as `v1::Network::crd()` and `v2::Network::crd()`. Objects
/// are stored in the version `storage`; everything else is taken from the first definition.
///
/// # Errors
///
/// If they are not of one kind, or none has the version `storage`.
pub fn merge<D: Serialize>(definitions: &[D], storage: &str) -> Result<Value, Error> {
    let mut all = definitions.iter().map(normal_definition).collect::<Result<Vec<Value>, Error>>()?.into_iter();
    let no_storage = |found: String| Error::NoStorage { wanted: storage.to_owned(), found };
    let mut merged = all.next().ok_or_else(|| no_storage("none".to_owned()))?;
    let name_of = |definition: &Value| definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut versions = merged["spec"]["versions"].as_array().cloned().unwrap_or_default();
    for other in all {
        for (property, pointer) in [("group", "/spec/group"), ("kind", "/spec/names/kind"), ("scope", "/spec/scope")] {
            if merged.pointer(pointer) != other.pointer(pointer) {
                return Err(Error::Mismatch { first: name_of(&merged), second: name_of(&other), property });
            }
        }
        versions.extend(other["spec"]["versions"].as_array().cloned().unwrap_or_default());
    }
    let name = |version: &Value| version["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = versions.iter().map(name).collect();
    if let Some((index, version)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(*name)) {
        debug_assert!(index > 0, "the first has none before it");
        return Err(Error::Repeated { name: name_of(&merged), version: version.clone() });
    }
    if !names.iter().any(|name| name == storage) {
        return Err(no_storage(names.join(", ")));
    }
    for version in &mut versions {
        version["storage"] = Value::Bool(version["name"] == storage);
    }
    merged["spec"]["versions"] = Value::Array(versions);
    normal::definition(&mut merged);
    Ok(merged)
}

/// The manifest of any object, without nulls.
///
/// # Errors
///
/// If it cannot be written.
pub fn object(object: &impl Serialize) -> Result<String, Error> {
    let mut object = serde_json::to_value(object).map_err(Error::Json)?;
    normal::remove_nulls(&mut object);
    yaml(&object)
}

fn normal_definition(definition: &impl Serialize) -> Result<Value, Error> {
    let mut definition = serde_json::to_value(definition).map_err(Error::Json)?;
    let text = |key: &str| definition[key].as_str().unwrap_or("nothing").to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version.as_str(), kind.as_str()) != ("apiextensions.k8s.io/v1", "CustomResourceDefinition") {
        return Err(Error::NotADefinition { found: format!("a {kind} of {api_version}") });
    }
    normal::definition(&mut definition);
    Ok(definition)
}

fn yaml(object: &Value) -> Result<String, Error> {
    // Folded lines are as wide as lines of code.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: 100 };
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, &Ordered::object(object), options)
        .map_err(|error| Error::Yaml { message: error.to_string() })?;
    Ok(text)
}
