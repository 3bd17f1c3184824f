//! The order of keys: first the keys that identify an object, then the most important ones.
//!
//! Keys below `properties`, `labels` and the like are names that users chose: they keep their order.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

/// The order in objects in general. Other keys follow in alphabetical order.
const OBJECT: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "group",
    "scope",
    "names",
    "listKind",
    "plural",
    "singular",
    "shortNames",
    "categories",
    "type",
    "format",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "subresources",
    "selectableFields",
    "additionalPrinterColumns",
    "schema",
    "description",
    "jsonPath",
    "priority",
    "rule",
    "apiGroups",
    "resources",
    "resourceNames",
    "nonResourceURLs",
    "verbs",
    "apiGroup",
    "roleRef",
    "subjects",
    "rules",
    "spec",
    "status",
];

/// The order in schemas.
const SCHEMA: &[&str] = &[
    "description",
    "type",
    "format",
    "nullable",
    "default",
    "enum",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
    "required",
    "properties",
    "additionalProperties",
    "items",
];

/// The meaning of a map's keys.
#[derive(Clone, Copy)]
enum Kind {
    /// Names that users chose.
    Data,
    Object,
    /// Names of fields, each with a schema.
    Properties,
    Schema,
}

/// A value whose keys are serialized in the order of its kind.
pub(super) struct Ordered<'a> {
    value: &'a Value,
    kind: Kind,
}

impl<'a> Ordered<'a> {
    pub(super) fn object(value: &'a Value) -> Ordered<'a> {
        Ordered { value, kind: Kind::Object }
    }
}

impl Kind {
    /// The kind of the value at `key`.
    fn below(self, key: &str) -> Kind {
        match (self, key) {
            (Kind::Data, _) | (Kind::Object, "labels" | "annotations" | "matchLabels" | "data") => Kind::Data,
            (Kind::Object, "openAPIV3Schema") | (Kind::Properties, _) => Kind::Schema,
            (Kind::Object, _) => Kind::Object,
            (Kind::Schema, "properties" | "patternProperties" | "definitions") => Kind::Properties,
            (Kind::Schema, "items" | "additionalProperties" | "not" | "allOf" | "anyOf" | "oneOf") => Kind::Schema,
            (Kind::Schema, "x-kubernetes-validations") => Kind::Object,
            (Kind::Schema, _) => Kind::Data,
        }
    }

    fn order(self) -> &'static [&'static str] {
        match self {
            Kind::Data | Kind::Properties => &[],
            Kind::Object => OBJECT,
            Kind::Schema => SCHEMA,
        }
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Object(map) => {
                let order = self.kind.order();
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                let place = |key: &str| order.iter().position(|known| *known == key).unwrap_or(order.len());
                entries.sort_by(|(a, _), (b, _)| (place(a), a).cmp(&(place(b), b)));
                let mut serialized = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    serialized.serialize_entry(key, &Ordered { value, kind: self.kind.below(key) })?;
                }
                serialized.end()
            }
            Value::Array(items) => {
                let mut serialized = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    serialized.serialize_element(&Ordered { value, kind: self.kind })?;
                }
                serialized.end()
            }
            scalar => scalar.serialize(serializer),
        }
    }
}
