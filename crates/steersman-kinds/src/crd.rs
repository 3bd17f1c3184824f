//! CustomResourceDefinitions: the definitions themselves as a built-in kind, and the resources that they define.
//!
//! [`resource`] is the kind `CustomResourceDefinition`, served as `v1` and, for manifests older than Kubernetes 1.22,
//! as `v1beta1`; its internal form is `v1`. [`custom_resources`] makes the [`Resource`] of one definition.
//! [`reconcile`], [`begin_deletion`], [`set_deletion`] and [`set_rewriting`] are the pure part of a definition's life:
//! they compute its status.
//!
//! Deliberately not here: storing, deleting or rewriting the objects, and swapping the catalog. That is in
//! `definitions`.

pub mod ca_bundle;
mod custom;
mod definition;
mod deletion;
mod formats;
mod names;
mod rules;
mod shared;
mod status;
mod v1beta1;
mod validate;

pub use crate::crd::custom::{InvalidDefinition, custom_resources, is_served};
pub use crate::crd::deletion::{Deletion, FINALIZER, begin_deletion, set_deletion};
pub use crate::crd::names::{NameIndex, Names};
pub use crate::crd::status::reconcile;
pub use crate::crd::status::stored::{Rewriting, set_rewriting};

pub use crate::crd::custom::custom_resources_with;
pub use crate::crd::status::stored::{are_current, generation};
pub use crate::crd::status::{is_of_built_in, lacks_names, not_servable};

use crate::catalog::{Column, Origin, Resource, ResourceId, ResourceScope, Verb, Version};
use crate::crd::status::condition;
use std::sync::Arc;
use steersman_machinery::{GroupResource, Value};
use steersman_schema::{Definitions, Schema};

/// The group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// The plural of definitions.
pub const PLURAL: &str = "customresourcedefinitions";
const KIND: &str = "CustomResourceDefinition";
const DEFINITION_V1: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
const DEFINITION_V1BETA1: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinition";

/// The kind `CustomResourceDefinition`.
pub fn resource() -> Arc<Resource> {
    let v1 = Definitions::builtin().schema(DEFINITION_V1).cloned().map(Arc::new);
    Arc::new(Resource {
        id: ResourceId::next(),
        group: GROUP.into(),
        plural: PLURAL.into(),
        singular: "customresourcedefinition".into(),
        kind: KIND.into(),
        list_kind: "CustomResourceDefinitionList".into(),
        short_names: ["crd", "crds"].map(Box::from).into(),
        categories: [Box::from("api-extensions")].into(),
        scope: ResourceScope::Cluster,
        verbs: Verb::ALL.into(),
        versions: vec![
            version("v1", v1.unwrap_or_default(), DEFINITION_V1, None),
            version(v1beta1::NAME, v1beta1::schema(), DEFINITION_V1BETA1, Some(v1beta1::DEPRECATION)),
        ],
        storage_version: 0,
        storage: GroupResource::new(GROUP, PLURAL),
        strategy: Arc::new(definition::Definition),
        origin: Origin::BuiltIn,
    })
}

/// Whether the objects of a definition (in the internal form) are being deleted.
pub fn is_terminating(definition: &Value) -> bool {
    condition::is_true(definition, "Terminating")
}

/// Whether a definition waits until its objects are deleted.
pub fn has_finalizer(definition: &Value) -> bool {
    texts(definition, &["metadata", "finalizers"]).contains(&FINALIZER)
}

/// The definition of `v1beta1` for OpenAPI documents, with this prefix of references; none for other names.
pub fn definition_json(name: &str, prefix: &str) -> Option<Value> {
    (name == DEFINITION_V1BETA1).then(|| v1beta1::open_api(prefix))
}

fn version(name: &str, schema: Arc<Schema>, definition: &str, deprecation: Option<&str>) -> Version {
    Version {
        name: name.into(),
        served: true,
        deprecation: deprecation.map(Box::from),
        schema,
        definition: definition.into(),
        has_status: true,
        scale: None,
        subresources: Vec::new(),
        columns: vec![
            Column {
                name: "Name".into(),
                kind: "string".into(),
                format: "name".into(),
                description: "The name, unique among definitions: the plural, a dot, the group.".into(),
                priority: 0,
            },
            Column {
                name: "Created At".into(),
                kind: "date".into(),
                format: "".into(),
                description: "When the definition was created.".into(),
                priority: 0,
            },
        ],
        selectable_fields: Vec::new(),
    }
}

/// The text at a path, empty if there is none.
fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    steersman_machinery::value::str_at(value, path).unwrap_or_default()
}

/// Whether the flag at a path is set.
fn flag(value: &Value, path: &[&str]) -> bool {
    steersman_machinery::value::at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The list at a path, empty if there is none.
fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    steersman_machinery::value::at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The list of texts at a path, empty if there is none.
fn texts<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a str> {
    list(value, path).iter().filter_map(Value::as_str).collect()
}

/// The versions of a definition in the internal form.
fn versions(definition: &Value) -> &[Value] {
    list(definition, &["spec", "versions"])
}

#[cfg(test)]
mod tests;
