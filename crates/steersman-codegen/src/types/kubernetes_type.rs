//! Recognizes schemas that match types of k8s-openapi.
//!
//! A schema matches only if it has exactly the fields of the type, with the same types and the same ones required: an
//! object that is valid by the schema must pass through the type unchanged. Types with a field that k8s-openapi writes
//! although it was absent (`LocalObjectReference.name`), or with a quantity (which it cannot read as a number), are not
//! in the table.

use crate::crd::{Additional, Schema, SchemaType};

/// A type of k8s-openapi.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum KubernetesType {
    Condition,
    LabelSelector,
    ObjectReference,
    Toleration,
}

enum Shape {
    DateTime,
    Integer,
    String,
    Strings,
    StringMap,
    Requirements,
}

const CONDITION: &[(&str, Shape)] = &[
    ("lastTransitionTime", Shape::DateTime),
    ("message", Shape::String),
    ("observedGeneration", Shape::Integer),
    ("reason", Shape::String),
    ("status", Shape::String),
    ("type", Shape::String),
];

const LABEL_SELECTOR: &[(&str, Shape)] =
    &[("matchExpressions", Shape::Requirements), ("matchLabels", Shape::StringMap)];

const LABEL_SELECTOR_REQUIREMENT: &[(&str, Shape)] =
    &[("key", Shape::String), ("operator", Shape::String), ("values", Shape::Strings)];

const OBJECT_REFERENCE: &[(&str, Shape)] = &[
    ("apiVersion", Shape::String),
    ("fieldPath", Shape::String),
    ("kind", Shape::String),
    ("name", Shape::String),
    ("namespace", Shape::String),
    ("resourceVersion", Shape::String),
    ("uid", Shape::String),
];

const TOLERATION: &[(&str, Shape)] = &[
    ("effect", Shape::String),
    ("key", Shape::String),
    ("operator", Shape::String),
    ("tolerationSeconds", Shape::Integer),
    ("value", Shape::String),
];

/// The type that matches `schema`, if one of the table does.
pub(crate) fn recognize(schema: &Schema) -> Option<KubernetesType> {
    KubernetesType::ALL.into_iter().find(|known| {
        let (fields, required) = known.fields();
        matches(schema, fields, required)
    })
}

fn matches(schema: &Schema, fields: &[(&str, Shape)], required: &[&str]) -> bool {
    schema.schema_type == Some(SchemaType::Object)
        && !schema.preserves_unknown
        && !schema.is_embedded_resource
        && schema.properties.len() == fields.len()
        && schema.required.iter().map(String::as_str).eq(required.iter().copied())
        && fields.iter().all(|(name, shape)| schema.properties.get(*name).is_some_and(|field| shape.is(field)))
}

// === impl KubernetesType ===

impl KubernetesType {
    const ALL: [KubernetesType; 4] = [
        KubernetesType::Condition,
        KubernetesType::LabelSelector,
        KubernetesType::ObjectReference,
        KubernetesType::Toleration,
    ];

    /// The name of the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KubernetesType::Condition => "Condition",
            KubernetesType::LabelSelector => "LabelSelector",
            KubernetesType::ObjectReference => "ObjectReference",
            KubernetesType::Toleration => "Toleration",
        }
    }

    /// The module that it is in.
    pub(crate) fn module(self) -> &'static str {
        match self {
            KubernetesType::Condition | KubernetesType::LabelSelector => {
                "k8s_openapi::apimachinery::pkg::apis::meta::v1"
            }
            KubernetesType::ObjectReference | KubernetesType::Toleration => "k8s_openapi::api::core::v1",
        }
    }

    pub(crate) fn can_default(self) -> bool {
        self != KubernetesType::Condition
    }

    fn fields(self) -> (&'static [(&'static str, Shape)], &'static [&'static str]) {
        match self {
            KubernetesType::Condition => (CONDITION, &["lastTransitionTime", "message", "reason", "status", "type"]),
            KubernetesType::LabelSelector => (LABEL_SELECTOR, &[]),
            KubernetesType::ObjectReference => (OBJECT_REFERENCE, &[]),
            KubernetesType::Toleration => (TOLERATION, &[]),
        }
    }
}

// === impl Shape ===

impl Shape {
    fn is(&self, schema: &Schema) -> bool {
        if schema.is_nullable || schema.is_int_or_string {
            return false;
        }
        let is = |wanted: SchemaType| schema.schema_type == Some(wanted);
        let is_string = |schema: &Schema| schema.schema_type == Some(SchemaType::String) && !schema.is_nullable;
        match self {
            Shape::DateTime => is(SchemaType::String) && schema.format.as_deref() == Some("date-time"),
            Shape::Integer => is(SchemaType::Integer) && matches!(schema.format.as_deref(), None | Some("int64")),
            Shape::String => is(SchemaType::String) && schema.format.is_none(),
            Shape::Strings => is(SchemaType::Array) && schema.items.as_deref().is_some_and(is_string),
            Shape::StringMap => {
                let values = match &schema.additional {
                    Some(Additional::Of(values)) => Some(values),
                    _ => None,
                };
                is(SchemaType::Object) && schema.properties.is_empty() && values.is_some_and(|values| is_string(values))
            }
            Shape::Requirements => {
                let items = schema.items.as_deref();
                is(SchemaType::Array)
                    && items.is_some_and(|items| matches(items, LABEL_SELECTOR_REQUIREMENT, &["key", "operator"]))
            }
        }
    }
}
