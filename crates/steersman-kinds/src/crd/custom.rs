//! The resource of a definition: its compiled versions, and the strategy of its objects.

mod columns;
mod objects;
mod scale;

use crate::catalog::version_order;
use crate::catalog::{
    Origin, Resource, ResourceId, ResourceScope, Scale, ScaleSelector, SelectableField, Verb, Version,
};
use crate::converter::Converter;
use crate::crd::custom::columns::Columns;
use crate::crd::custom::objects::{Compiled, Objects};
use crate::crd::flag;
use crate::crd::list;
use crate::crd::names::Names;
use crate::crd::rules::Rules;
use crate::crd::status::condition;
use crate::crd::text;
use crate::crd::validate::has_subresource;
use crate::crd::versions;
use std::sync::Arc;
use steersman_machinery::value::at;
use steersman_machinery::{GroupResource, GroupVersionKind, Value};
use steersman_schema::json_path::JsonPath;
use steersman_schema::{Edition, Schema, openapi, structural};

/// Why a definition defines no resource. Valid definitions never cause it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidDefinition {
    /// Its group is one of those that no definition may have.
    #[error("definition {name:?} has the group {group:?}: only groups with a dot can be defined")]
    Group {
        /// The definition.
        name: String,
        /// The group.
        group: String,
    },
    /// No version is stored.
    #[error("definition {name:?} has no version that is stored")]
    NoStorageVersion {
        /// The definition.
        name: String,
    },
    /// A path that cannot be parsed.
    #[error("definition {name:?} has a path that cannot be read: {path:?}")]
    Path {
        /// The definition.
        name: String,
        /// The path.
        path: String,
    },
}

/// Whether the objects of a definition are served: from when it is established until it is removed.
pub fn is_served(definition: &Value) -> bool {
    condition::is_true(definition, "Established")
}

/// The resource of a definition in the internal form, under its accepted names.
///
/// # Errors
/// When the definition is invalid.
pub fn custom_resources(definition: &Value) -> Result<Arc<Resource>, InvalidDefinition> {
    custom_resources_with(definition, Edition::Kubernetes, &|_| None, None)
}

/// The same with metadata of an edition, and the schemas of versions that have been compiled already: `known` is called
/// with the name of each version. A conversion webhook is called with `caller`.
///
/// # Errors
/// When the definition is invalid.
pub fn custom_resources_with(
    definition: &Value,
    edition: Edition,
    known: &dyn Fn(&str) -> Option<Arc<Schema>>,
    converter: Option<Arc<dyn Converter>>,
) -> Result<Arc<Resource>, InvalidDefinition> {
    let name = text(definition, &["metadata", "name"]).to_owned();
    let group = text(definition, &["spec", "group"]);
    // Validation does not stop somebody who writes into etcd, and entries of groups without a dot are no objects.
    if !group.contains('.') {
        return Err(InvalidDefinition::Group { name, group: group.to_owned() });
    }
    let names = Names::accepted(definition);
    let mut defined: Vec<&Value> = versions(definition).iter().collect();
    defined.sort_by(|a, b| version_order::compare(text(a, &["name"]), text(b, &["name"])));
    let storage_version = defined
        .iter()
        .position(|version| flag(version, &["storage"]))
        .ok_or_else(|| InvalidDefinition::NoStorageVersion { name: name.clone() })?;

    let preserves = flag(definition, &["spec", "preserveUnknownFields"]);
    let mut made = Vec::with_capacity(defined.len());
    let mut compiled = Vec::with_capacity(defined.len());
    for version in &defined {
        let unreadable = |path: &str| InvalidDefinition::Path { name: name.clone(), path: path.to_owned() };
        let version_name = text(version, &["name"]);
        let schema = known(version_name).unwrap_or_else(|| schema(version, preserves, edition));
        let (columns, headers) = Columns::new(list(version, &["additionalPrinterColumns"]));
        let has_status = has_subresource(version, "status");
        compiled.push(Compiled {
            name: version_name.into(),
            schema: schema.clone(),
            rules: Rules::new(schema.clone()),
            scale: scale::Paths::of(version),
            columns,
        });
        let gvk = GroupVersionKind::new(group, version_name, &*names.kind);
        made.push(Version {
            name: version_name.into(),
            served: flag(version, &["served"]),
            deprecation: deprecation(definition, version, &names.kind).map(Into::into),
            schema,
            definition: openapi::custom_definition_name(&gvk).into(),
            has_status,
            scale: scale(version).map_err(|path| unreadable(&path))?,
            subresources: Vec::new(),
            columns: headers,
            selectable_fields: selectable_fields(version).map_err(|path| unreadable(&path))?,
        });
    }
    let is_terminating = crate::crd::is_terminating(definition);
    let strategy = Objects::new(definition, compiled, storage_version, converter);
    Ok(Arc::new(Resource {
        id: ResourceId::next(),
        group: group.into(),
        singular: names.singular.as_str().into(),
        kind: names.kind.as_str().into(),
        list_kind: names.list_kind.as_str().into(),
        short_names: names.short_names.iter().map(|name| name.as_str().into()).collect(),
        categories: names.categories.iter().map(|name| name.as_str().into()).collect(),
        scope: if text(definition, &["spec", "scope"]) == "Cluster" {
            ResourceScope::Cluster
        } else {
            ResourceScope::Namespaced
        },
        verbs: verbs(is_terminating),
        versions: made,
        storage_version,
        storage: GroupResource::new(group, &*names.plural),
        plural: names.plural.into(),
        strategy: Arc::new(strategy),
        origin: Origin::Custom {
            definition: name.into(),
            is_terminating,
            uid: text(definition, &["metadata", "uid"]).into(),
        },
    }))
}

/// The schema of a version. Without one, and where the definition preserves unknown fields, all fields are kept.
fn schema(version: &Value, preserves: bool, edition: Edition) -> Arc<Schema> {
    let written = at(version, &["schema", "openAPIV3Schema"]).filter(|schema| schema.is_object());
    let compiled = written.map(structural::compile);
    match compiled {
        Some(schema) if !preserves && edition == schema.edition() => schema,
        Some(schema) if !preserves => Arc::new(Schema::clone(&schema).of_resource_in(edition)),
        unpruned => {
            let mut schema = unpruned.map(|schema| Schema::clone(&schema)).unwrap_or_default();
            schema.preserve_unknown_fields = true;
            Arc::new(schema.of_resource_in(edition))
        }
    }
}

/// The verbs, in the order in which discovery lists them for custom resources. While the definition is being deleted,
/// no object can be created.
fn verbs(is_terminating: bool) -> Vec<Verb> {
    let all = [
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Create,
        Verb::Update,
        Verb::Watch,
    ];
    let writes = [Verb::Patch, Verb::Create, Verb::Update];
    all.into_iter().filter(|verb| !is_terminating || !writes.contains(verb)).collect()
}

/// The warning for users of a version: the definition's own, or the version to use instead.
fn deprecation(definition: &Value, version: &Value, kind: &str) -> Option<String> {
    if !flag(version, &["deprecated"]) {
        return None;
    }
    if let Some(words) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(words.to_owned());
    }
    let (group, name) = (text(definition, &["spec", "group"]), text(version, &["name"]));
    let mut better: Vec<&str> = versions(definition)
        .iter()
        .filter(|other| flag(other, &["served"]) && !flag(other, &["deprecated"]))
        .map(|other| text(other, &["name"]))
        .filter(|other| version_order::compare(other, name).is_lt())
        .collect();
    better.sort_by(|a, b| version_order::compare(a, b));
    let warning = format!("{group}/{name} {kind} is deprecated");
    Some(match better.first() {
        Some(better) => format!("{warning}; use {group}/{better} {kind}"),
        None => warning,
    })
}

/// The paths of `/scale`; the error is the path that cannot be parsed.
fn scale(version: &Value) -> Result<Option<Scale>, String> {
    let Some(scale) = at(version, &["subresources", "scale"]).filter(|scale| scale.is_object()) else {
        return Ok(None);
    };
    let path = |key: &str| parse(text(scale, &[key]));
    let selector = match text(scale, &["labelSelectorPath"]) {
        "" => None,
        written => Some(ScaleSelector::Text(parse(written)?)),
    };
    Ok(Some(Scale { spec: path("specReplicasPath")?, status: path("statusReplicasPath")?, selector }))
}

fn selectable_fields(version: &Value) -> Result<Vec<SelectableField>, String> {
    let paths = list(version, &["selectableFields"]).iter().map(|field| text(field, &["jsonPath"]));
    let field = |path: &str| {
        let name = path.trim_start_matches('.').into();
        Ok(SelectableField { name, path: parse(path)?, otherwise: None, absent: "".into() })
    };
    paths.map(field).collect()
}

fn parse(path: &str) -> Result<JsonPath, String> {
    JsonPath::parse(path).map_err(|_| path.to_owned())
}
