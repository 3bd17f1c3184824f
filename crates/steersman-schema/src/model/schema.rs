//! The one compiled schema type: which values are valid, how lists and maps merge, and what an absent value becomes.
//!
//! A schema is immutable and shared: built-in ones are `&'static`, those of custom resources live in an `Arc`. Children
//! are borrowed from their parent. A schema may refer to a built-in definition by name, which is how recursion is
//! expressed. The methods follow such references; the public fields hold only what this schema says itself.

mod enumeration;

use crate::model::definitions::{Definition, Definitions, Edition};
use crate::values::pattern::Pattern;
use steersman_machinery::Value;

pub use crate::model::schema::enumeration::Enumeration;

/// The type, constraints and merge behavior of a value.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The JSON type.
    pub value_type: Type,
    /// A well-known scalar or opaque type of the built-in kinds.
    pub special: Option<Special>,
    /// `format`, as written.
    pub format: Option<Box<str>>,
    /// Whether null is allowed.
    pub nullable: bool,
    /// The fields of an object, sorted by name.
    pub properties: Properties,
    /// The names of required fields.
    pub required: Box<[Box<str>]>,
    /// The schema of fields that `properties` does not name.
    pub additional: Additional,
    /// The schema of every item of a list.
    pub items: Option<Box<Schema>>,
    /// The only allowed values; empty: any value.
    pub enumeration: Enumeration,
    /// The default of an absent value.
    pub default: Option<Value>,
    /// `x-kubernetes-list-type` with its keys, where given.
    pub list: Option<List>,
    /// `x-kubernetes-map-type`, where given.
    pub map: Option<MapType>,
    /// `x-kubernetes-patch-strategy` and `-merge-key`, where given.
    pub patch: Option<Patch>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`: the value has its own `apiVersion`, `kind` and `metadata`.
    pub embedded_resource: bool,
    /// How the empty value is treated (built-in kinds only).
    pub zero: Zero,
    /// Bounds of numbers, strings, lists and maps.
    pub bounds: Option<Box<Bounds>>,
    /// `allOf`, `anyOf`, `oneOf`, `not`.
    pub logic: Option<Box<Logic>>,
    /// `x-kubernetes-validations`, as written.
    pub rules: Box<[Value]>,
    /// The documentation for readers (custom resources; the embedded table has none).
    pub docs: Option<Box<Docs>>,
    pub(crate) reference: Option<Definition>,
    /// The edition of the definitions that the schema refers to, and of the metadata of a custom resource.
    pub(crate) edition: Edition,
}

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Type {
    #[default]
    Any,
    Array,
    Boolean,
    Integer,
    IntOrString,
    Number,
    Object,
    String,
}

/// Types of the built-in kinds that JSON types do not distinguish.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Special {
    /// Base64 text.
    Bytes,
    /// A set of field paths, opaque here.
    FieldsV1,
    IntOrString,
    /// Any JSON value.
    Json,
    /// RFC 3339 with microseconds.
    MicroTime,
    Quantity,
    /// Any object, kept unchanged.
    RawExtension,
    /// RFC 3339, whole seconds.
    Time,
}

/// Fields by name, sorted.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    sorted: Box<[(Box<str>, Schema)]>,
    /// The indexes of the fields that are written even if they are not set; most kinds have few.
    written: Box<[usize]>,
    /// The indexes of the fields that have a default.
    defaulted: Box<[usize]>,
}

/// The schema of fields that `properties` does not name.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    /// Anything.
    Any,
    /// `additionalProperties: false`.
    Never,
    /// Each field has this schema: the object is a map.
    Of(Box<Schema>),
    #[default]
    Unsaid,
}

/// How a list merges.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum List {
    /// As a whole.
    Atomic,
    /// By these keys of its items.
    Map(Box<[Box<str>]>),
    /// By its items.
    Set,
}

/// How an object merges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MapType {
    Atomic,
    Granular,
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Patch {
    /// The strategy holds `merge`. Without it a list is replaced; an object is merged either way.
    pub merge: bool,
    /// The strategy holds `replace`: an object is replaced too.
    pub replace: bool,
    /// The strategy holds `retainKeys`.
    pub retain_keys: bool,
    /// The key of a merged list's items; none for lists of scalars.
    pub merge_key: Option<Box<str>>,
}

/// How an empty or absent value is treated when a built-in object is read: the effect of Go's `omitempty` and pointers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Zero {
    /// Kept if given, absent otherwise.
    #[default]
    Keep,
    /// Written as null if absent.
    Null,
    /// Dropped if given.
    Omit,
    /// Written if absent: `""`, `0`, `false`, or an object with the zero values of its fields.
    Write,
}

/// Bounds of a value; absent ones do not apply.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    pub minimum: Option<serde_json::Number>,
    pub exclusive_minimum: bool,
    pub maximum: Option<serde_json::Number>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<serde_json::Number>,
    /// In characters.
    pub length_min: Option<u64>,
    /// In characters.
    pub length_max: Option<u64>,
    pub pattern: Option<Pattern>,
    pub items_min: Option<u64>,
    pub items_max: Option<u64>,
    pub unique_items: bool,
    pub properties_min: Option<u64>,
    pub properties_max: Option<u64>,
}

/// Schemas combined.
#[derive(Clone, Debug, Default)]
pub struct Logic {
    pub all_of: Box<[Schema]>,
    pub any_of: Box<[Schema]>,
    pub one_of: Box<[Schema]>,
    pub not: Option<Box<Schema>>,
}

/// Documentation for readers.
#[derive(Clone, Debug, Default)]
pub struct Docs {
    pub title: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub example: Option<Value>,
    pub external_docs: Option<Value>,
}

/// The source of a schema: only the embedded table may use its own keywords.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Origin {
    Table(Edition),
    Written(Edition),
}

// === impl Schema ===

impl Schema {
    /// Reads a schema written in JSON with OpenAPI's keywords.
    ///
    /// Unknown keywords are ignored: [`crate::model::structural`] checks that a definition is well-formed. `$ref`s refer to
    /// built-in definitions.
    pub fn from_json(json: &Value) -> Schema {
        Schema::from_json_in(Edition::Kubernetes, json)
    }

    /// Like [`Schema::from_json`], with `$ref`s to the definitions of this edition.
    pub fn from_json_in(edition: Edition, json: &Value) -> Schema {
        Schema::read(json, Origin::Written(edition))
    }

    /// The schema of a custom resource whose metadata is defined by this edition.
    #[must_use]
    pub fn of_resource_in(self, edition: Edition) -> Schema {
        Schema { edition, ..self }
    }

    /// The edition of the definitions that the schema refers to.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    pub(crate) fn read(json: &Value, origin: Origin) -> Schema {
        let get = |key: &str| json.get(key);
        let flag = |key: &str| get(key).and_then(Value::as_bool).unwrap_or(false);
        let text = |key: &str| get(key).and_then(Value::as_str);
        let schemas = |key: &str| get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let inner = |json: &Value| Box::new(Schema::read(json, origin));
        let all = |key: &str| schemas(key).iter().map(|json| Schema::read(json, origin)).collect::<Box<[Schema]>>();
        let reference =
            text("$ref").and_then(|name| Definitions::of(origin.edition()).definition(name.rsplit('/').next()?));
        let int_or_string = flag("x-kubernetes-int-or-string");
        let logic =
            Logic { all_of: all("allOf"), any_of: all("anyOf"), one_of: all("oneOf"), not: get("not").map(inner) };
        Schema {
            value_type: if int_or_string {
                Type::IntOrString
            } else {
                Type::from_name(text("type").unwrap_or_default())
            },
            special: special(json).filter(|_| origin.is_table()),
            format: text("format").map(Box::from),
            nullable: flag("nullable"),
            properties: Properties::read(get("properties"), origin),
            required: texts(get("required")),
            additional: match get("additionalProperties") {
                None | Some(Value::Null) => Additional::Unsaid,
                Some(Value::Bool(true)) => Additional::Any,
                Some(Value::Bool(false)) => Additional::Never,
                Some(schema) => Additional::Of(inner(schema)),
            },
            items: get("items").filter(|items| items.is_object()).map(inner),
            enumeration: Enumeration::new(schemas("enum")),
            default: get("default").filter(|default| !default.is_null()).cloned(),
            list: match text("x-kubernetes-list-type") {
                Some("atomic") => Some(List::Atomic),
                Some("map") => Some(List::Map(texts(get("x-kubernetes-list-map-keys")))),
                Some("set") => Some(List::Set),
                _ => None,
            },
            map: match text("x-kubernetes-map-type") {
                Some("atomic") => Some(MapType::Atomic),
                Some("granular") => Some(MapType::Granular),
                _ => None,
            },
            patch: Patch::from_json(text("x-kubernetes-patch-strategy"), text("x-kubernetes-patch-merge-key")),
            preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            zero: match text("x-zero") {
                Some("null") if origin.is_table() => Zero::Null,
                Some("omit") if origin.is_table() => Zero::Omit,
                Some("write") if origin.is_table() => Zero::Write,
                _ => Zero::Keep,
            },
            bounds: Bounds::from_json(json),
            logic: (!logic.is_empty()).then(|| Box::new(logic)),
            rules: schemas("x-kubernetes-validations").into(),
            docs: Docs::from_json(json),
            reference,
            edition: origin.edition(),
        }
    }

    /// The definition that the schema refers to, or the schema itself.
    pub fn target(&self) -> &Schema {
        match self.reference {
            Some(definition) => definition.schema(),
            None => self,
        }
    }

    /// The definition that the schema refers to, if any.
    pub fn reference(&self) -> Option<Definition> {
        self.reference
    }

    /// The schema of a named field.
    pub fn property(&self, name: &str) -> Option<&Schema> {
        self.target().properties.get(name)
    }

    /// The schema of any field: the property of that name, or else the schema of a map's values.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.property(name).or_else(|| self.values())
    }

    /// The schema of a map's values.
    pub fn values(&self) -> Option<&Schema> {
        match &self.target().additional {
            Additional::Of(schema) => Some(schema),
            Additional::Any | Additional::Never | Additional::Unsaid => None,
        }
    }

    /// The schema of a list's items.
    pub fn item(&self) -> Option<&Schema> {
        self.target().items.as_deref()
    }

    /// The JSON type, from this schema or the definition that it refers to.
    pub fn value_type(&self) -> Type {
        self.target().value_type
    }

    /// The well-known type, from this schema or the definition that it refers to.
    pub fn special(&self) -> Option<Special> {
        self.target().special
    }

    /// How a list merges: atomic unless the schema says otherwise.
    pub fn list(&self) -> &List {
        self.list.as_ref().or(self.target().list.as_ref()).unwrap_or(&List::Atomic)
    }

    /// Whether an object is merged as a whole.
    pub fn is_atomic_map(&self) -> bool {
        self.map.or(self.target().map) == Some(MapType::Atomic)
    }

    /// How a strategic merge patch treats the value.
    pub fn patch(&self) -> Option<&Patch> {
        self.patch.as_ref().or(self.target().patch.as_ref())
    }
}

impl Origin {
    fn edition(self) -> Edition {
        match self {
            Origin::Table(edition) | Origin::Written(edition) => edition,
        }
    }

    fn is_table(self) -> bool {
        matches!(self, Origin::Table(_))
    }
}

fn texts(json: Option<&Value>) -> Box<[Box<str>]> {
    json.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()
}

fn special(json: &Value) -> Option<Special> {
    match json.get("x-special")?.as_str()? {
        "Bytes" => Some(Special::Bytes),
        "FieldsV1" => Some(Special::FieldsV1),
        "IntOrString" => Some(Special::IntOrString),
        "Json" => Some(Special::Json),
        "MicroTime" => Some(Special::MicroTime),
        "Quantity" => Some(Special::Quantity),
        "RawExtension" => Some(Special::RawExtension),
        "Time" => Some(Special::Time),
        _ => None,
    }
}

// === impl Type ===

impl Type {
    /// The type of a `type` keyword's value.
    pub fn from_name(name: &str) -> Type {
        match name {
            "array" => Type::Array,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "object" => Type::Object,
            "string" => Type::String,
            _ => Type::Any,
        }
    }

    /// The value of the `type` keyword; empty for `Any`.
    pub fn name(self) -> &'static str {
        match self {
            Type::Any => "",
            Type::Array => "array",
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::IntOrString => "integer,string",
            Type::Number => "number",
            Type::Object => "object",
            Type::String => "string",
        }
    }
}

// === impl Properties ===

impl Properties {
    fn read(json: Option<&Value>, origin: Origin) -> Properties {
        let fields = json.and_then(Value::as_object).into_iter().flatten();
        let mut sorted: Vec<(Box<str>, Schema)> =
            fields.map(|(name, schema)| (Box::from(name.as_str()), Schema::read(schema, origin))).collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let is_written = |(_, schema): &(Box<str>, Schema)| matches!(schema.zero, Zero::Null | Zero::Write);
        let written = (0..sorted.len()).filter(|place| is_written(&sorted[*place])).collect();
        let defaulted = (0..sorted.len()).filter(|place| sorted[*place].1.default.is_some()).collect();
        Properties { sorted: sorted.into(), written, defaulted }
    }

    /// The schema of a field.
    pub fn get(&self, name: &str) -> Option<&Schema> {
        let index = self.sorted.binary_search_by(|(have, _)| have.as_ref().cmp(name)).ok()?;
        Some(&self.sorted[index].1)
    }

    /// Every field, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Schema)> {
        self.sorted.iter().map(|(name, schema)| (name.as_ref(), schema))
    }

    /// The fields that are written even if they are not set.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.written.iter().map(|place| (self.sorted[*place].0.as_ref(), &self.sorted[*place].1))
    }

    /// The fields that have a default.
    pub(crate) fn defaulted(&self) -> impl ExactSizeIterator<Item = (&str, &Schema)> {
        self.defaulted.iter().map(|place| (self.sorted[*place].0.as_ref(), &self.sorted[*place].1))
    }

    /// Whether no field is named.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

// === impl Patch, Bounds, Logic, Docs ===

impl Patch {
    fn from_json(strategy: Option<&str>, merge_key: Option<&str>) -> Option<Patch> {
        if strategy.is_none() && merge_key.is_none() {
            return None;
        }
        let has = |word: &str| strategy.is_some_and(|strategy| strategy.split(',').any(|have| have == word));
        Some(Patch {
            merge: has("merge"),
            replace: has("replace"),
            retain_keys: has("retainKeys"),
            merge_key: merge_key.map(Box::from),
        })
    }
}

impl Bounds {
    fn from_json(json: &Value) -> Option<Box<Bounds>> {
        const KEYWORDS: [&str; 11] = [
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
        ];
        let json = json.as_object()?;
        if !KEYWORDS.iter().any(|keyword| json.contains_key(*keyword)) {
            return None;
        }
        let number = |key: &str| json.get(key).and_then(Value::as_number).cloned();
        let count = |key: &str| json.get(key).and_then(Value::as_u64);
        let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
        Some(Box::new(Bounds {
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            length_min: count("minLength"),
            length_max: count("maxLength"),
            pattern: json.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty()).map(Pattern::new),
            items_min: count("minItems"),
            items_max: count("maxItems"),
            unique_items: flag("uniqueItems"),
            properties_min: count("minProperties"),
            properties_max: count("maxProperties"),
        }))
    }
}

impl Logic {
    fn is_empty(&self) -> bool {
        self.all_of.is_empty() && self.any_of.is_empty() && self.one_of.is_empty() && self.not.is_none()
    }
}

impl Docs {
    fn from_json(json: &Value) -> Option<Box<Docs>> {
        let text = |key: &str| json.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(Box::from);
        let docs = Docs {
            title: text("title"),
            description: text("description"),
            example: json.get("example").filter(|example| !example.is_null()).cloned(),
            external_docs: json.get("externalDocs").filter(|docs| docs.is_object()).cloned(),
        };
        let said = docs.title.is_some()
            || docs.description.is_some()
            || docs.example.is_some()
            || docs.external_docs.is_some();
        said.then(|| Box::new(docs))
    }
}
