//! Declared types: the part of a schema that the checker, the cost estimate and the evaluator need.
//!
//! A declaration has the type of a value and, for costs, the largest number of elements that fits into a request. The
//! evaluator reads JSON according to it: whether a string is a timestamp, a number a double, a list a set.

use crate::checking::types::Type;
use crate::evaluation::functions::QUANTITY;
use crate::syntax::escape::escape;
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_schema::Schema;
use steersman_schema::definitions::Definition;
use steersman_schema::schema;

/// The size of the largest request, which bounds everything that has no bound of its own.
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// The type of declared values.
#[derive(Clone, Debug)]
pub struct DeclType {
    pub(crate) shape: Shape,
    /// The largest number of characters, items or entries; zero for other types.
    pub(crate) elements_max: u64,
    /// The smallest size of such a value in a request, in bytes.
    pub(crate) bytes_min: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Bool,
    Bytes,
    /// A string with a date.
    Date,
    Double,
    Duration,
    Dyn,
    Int,
    List {
        item: Arc<DeclType>,
        kind: ListKind,
    },
    Map {
        value: Arc<DeclType>,
    },
    Object(Arc<ObjectDecl>),
    /// A type that JSON does not have: an optional, an authorizer.
    Other(Type),
    String,
    Timestamp,
}

/// The `x-kubernetes-list-type` of a list.
#[derive(Clone, Debug, Default)]
pub(crate) enum ListKind {
    #[default]
    Atomic,
    /// These keys identify the items.
    Map(Box<[Box<str>]>),
    /// Items are unique, and their order is ignored.
    Set,
}

/// An object with declared fields.
#[derive(Debug)]
pub struct ObjectDecl {
    name: Arc<str>,
    /// The fields, by the names that expressions use.
    fields: BTreeMap<Box<str>, FieldDecl>,
    /// Whether expressions may name any field, which is then `dyn`.
    open: bool,
}

/// A declared field.
#[derive(Debug)]
pub(crate) struct FieldDecl {
    /// The key in JSON.
    pub(crate) key: Box<str>,
    pub(crate) value: Arc<DeclType>,
}

impl ObjectDecl {
    /// The name that messages and `type(x)` show.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn field(&self, name: &str) -> Option<&FieldDecl> {
        self.fields.get(name)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// The declared field of a JSON key.
    pub(crate) fn by_key(&self, key: &str) -> Option<&FieldDecl> {
        escape(key).and_then(|name| self.fields.get(&*name))
    }
}

impl DeclType {
    const fn simple(shape: Shape, bytes_min: u64) -> DeclType {
        DeclType { shape, elements_max: 0, bytes_min }
    }

    /// A value of any type.
    pub fn dynamic() -> DeclType {
        DeclType::simple(Shape::Dyn, 1)
    }

    /// A bool.
    pub fn boolean() -> DeclType {
        DeclType::simple(Shape::Bool, 4)
    }

    /// An integer.
    pub fn integer() -> DeclType {
        DeclType::simple(Shape::Int, 1)
    }

    /// A string.
    pub fn string() -> DeclType {
        DeclType { shape: Shape::String, elements_max: 0, bytes_min: 2 }
    }

    /// A string that is a timestamp.
    pub fn timestamp() -> DeclType {
        DeclType { shape: Shape::Timestamp, elements_max: 32, bytes_min: 21 }
    }

    /// A list with at most this number of items.
    pub fn list(item: DeclType, items_max: u64) -> DeclType {
        let shape = Shape::List { item: Arc::new(item), kind: ListKind::Atomic };
        DeclType { shape, elements_max: items_max, bytes_min: 2 }
    }

    /// A map with string keys and at most this number of entries.
    pub fn map(value: DeclType, entries_max: u64) -> DeclType {
        DeclType { shape: Shape::Map { value: Arc::new(value) }, elements_max: entries_max, bytes_min: 2 }
    }

    /// An object with these fields, named as in JSON.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (&'static str, DeclType)>) -> DeclType {
        let mut declared = BTreeMap::new();
        for (key, value) in fields {
            if let Some(name) = escape(key) {
                declared.insert(name.into(), FieldDecl { key: key.into(), value: Arc::new(value) });
            }
        }
        let object = ObjectDecl { name: name.into(), fields: declared, open: false };
        DeclType::simple(Shape::Object(Arc::new(object)), 2)
    }

    /// An object with these fields, by the names that expressions use.
    pub fn object_of(name: &str, fields: impl IntoIterator<Item = (String, DeclType)>) -> DeclType {
        let fields = fields
            .into_iter()
            .map(|(name, value)| (name.clone().into(), FieldDecl { key: name.into(), value: Arc::new(value) }))
            .collect();
        DeclType::simple(Shape::Object(Arc::new(ObjectDecl { name: name.into(), fields, open: false })), 2)
    }

    /// An object in which expressions may name any field, checked at run time.
    pub(crate) fn open_object(name: &str) -> Arc<ObjectDecl> {
        Arc::new(ObjectDecl { name: name.into(), fields: BTreeMap::new(), open: true })
    }

    /// The same type, whose value may be absent: `oldSelf` of a rule with `optionalOldSelf`.
    pub fn optional(self) -> DeclType {
        let elements_max = self.elements_max;
        DeclType { shape: Shape::Other(Type::optional(self.type_of())), elements_max, bytes_min: self.bytes_min }
    }

    /// The declaration of a value that is not read from JSON.
    pub fn of(value: Type) -> DeclType {
        DeclType::simple(Shape::Other(value), 2)
    }

    /// The declaration of a structural schema. None if it declares nothing: expressions cannot refer to such values.
    pub fn from_schema(schema: &Schema) -> Option<DeclType> {
        from_schema(schema, schema.embedded_resource, "object")
    }

    /// The declaration of the structural schema of a resource. Like an embedded one, it always has apiVersion, kind,
    /// metadata.name and metadata.generateName.
    pub fn from_resource_schema(schema: &Schema) -> Option<DeclType> {
        from_schema(schema, true, "object")
    }

    /// The declaration of the schema of a kind, for checking expressions that are evaluated without declarations.
    /// References are followed; a schema that contains itself, or is nested too deep, becomes `dyn`. Fields are
    /// declared by their names in JSON, and also by the escaped names of rules.
    pub fn of_kind(schema: &Schema) -> DeclType {
        of_kind(schema, "object", &mut Vec::new())
    }

    /// The object with one field added or replaced.
    #[must_use]
    pub fn with_field(self, key: &str, value: DeclType) -> DeclType {
        let Shape::Object(object) = &self.shape else { return self };
        let mut fields: BTreeMap<Box<str>, FieldDecl> = object
            .fields
            .iter()
            .map(|(name, field)| (name.clone(), FieldDecl { key: field.key.clone(), value: field.value.clone() }))
            .collect();
        fields.insert(key.into(), FieldDecl { key: key.into(), value: Arc::new(value) });
        let object = ObjectDecl { name: object.name.clone(), fields, open: object.open };
        DeclType { shape: Shape::Object(Arc::new(object)), ..self }
    }

    /// A quantity, as the functions of quantities take and return it.
    pub fn quantity() -> DeclType {
        DeclType::of(Type::opaque(QUANTITY))
    }

    /// The same type, with at most this number of characters, items or entries.
    #[must_use]
    pub fn up_to(self, elements_max: u64) -> DeclType {
        DeclType { elements_max, ..self }
    }

    /// The type for the checker.
    pub fn type_of(&self) -> Type {
        match &self.shape {
            Shape::Bool => Type::Bool,
            Shape::Bytes => Type::Bytes,
            Shape::Date | Shape::Timestamp => Type::Timestamp,
            Shape::Double => Type::Double,
            Shape::Duration => Type::Duration,
            Shape::Dyn => Type::Dyn,
            Shape::Int => Type::Int,
            Shape::List { item, .. } => Type::list(item.type_of()),
            Shape::Map { value } => Type::map(Type::String, value.type_of()),
            Shape::Object(object) => Type::Object(Arc::clone(object)),
            Shape::Other(other) => other.clone(),
            Shape::String => Type::String,
        }
    }

    pub(crate) fn item(&self) -> Option<&DeclType> {
        match &self.shape {
            Shape::List { item, .. } => Some(item),
            _ => None,
        }
    }

    pub(crate) fn entry(&self) -> Option<&DeclType> {
        match &self.shape {
            Shape::Map { value } => Some(value),
            _ => None,
        }
    }

    /// The declaration of the items of a list or the values of a map.
    pub fn element(&self) -> Option<&DeclType> {
        self.item().or_else(|| self.entry())
    }

    /// The declaration of a field, by its key in JSON.
    pub fn property(&self, key: &str) -> Option<&DeclType> {
        match &self.shape {
            Shape::Object(object) => Some(&*object.by_key(key)?.value),
            _ => None,
        }
    }

    /// The largest number of items or entries that a list or a map can have.
    pub fn elements_max(&self) -> u64 {
        self.elements_max
    }

    /// The largest number of values of this type that fit into a request, with a comma between two.
    pub fn occurrences_max(&self) -> u64 {
        REQUEST_BYTES_MAX / (self.bytes_min + 1)
    }
}

fn from_schema(schema: &Schema, is_resource: bool, name: &str) -> Option<DeclType> {
    if schema.reference().is_some() {
        // Definitions of built-in kinds may contain themselves.
        return Some(DeclType::dynamic());
    }
    let bounds = schema.bounds.as_deref();
    let length_max = bounds.and_then(|bounds| bounds.length_max);
    let is_int_or_string = schema.value_type() == schema::Type::IntOrString;
    if is_int_or_string || schema.special() == Some(schema::Special::IntOrString) {
        let elements_max = length_max.map_or(REQUEST_BYTES_MAX - 2, |length| length.saturating_mul(4));
        return Some(DeclType { shape: Shape::Dyn, elements_max, bytes_min: 1 });
    }
    if is_resource {
        return Some(resource(schema, name));
    }
    match schema.value_type() {
        schema::Type::Array => {
            let item_schema = schema.item()?;
            let item = from_schema(item_schema, item_schema.embedded_resource, &format!("{name}.@idx"))?;
            let items_max = bounds.and_then(|bounds| bounds.items_max);
            let elements_max = items_max.unwrap_or((REQUEST_BYTES_MAX - 2) / (item.bytes_min + 1));
            let kind = match schema.list() {
                schema::List::Map(keys) => ListKind::Map(keys.iter().map(|key| key.as_ref().into()).collect()),
                schema::List::Set => ListKind::Set,
                schema::List::Atomic => ListKind::Atomic,
            };
            Some(DeclType { shape: Shape::List { item: Arc::new(item), kind }, elements_max, bytes_min: 2 })
        }
        schema::Type::Object => {
            if let Some(values) = schema.values() {
                let value = from_schema(values, values.embedded_resource, &format!("{name}.@elem"))?;
                let entries_max = bounds.and_then(|bounds| bounds.properties_max);
                let elements_max = entries_max.unwrap_or((REQUEST_BYTES_MAX - 2) / (value.bytes_min + 6));
                let shape = Shape::Map { value: Arc::new(value) };
                return Some(DeclType { shape, elements_max, bytes_min: 2 });
            }
            let (fields, bytes_min) = fields(schema, name);
            let object = ObjectDecl { name: name.into(), fields, open: false };
            Some(DeclType { shape: Shape::Object(Arc::new(object)), elements_max: 0, bytes_min })
        }
        schema::Type::String => Some(text(schema, length_max)),
        schema::Type::Boolean => Some(DeclType::boolean()),
        schema::Type::Number => Some(DeclType::simple(Shape::Double, 1)),
        schema::Type::Integer => Some(DeclType::integer()),
        _ => None,
    }
}

/// The maximum number of nested references that are followed.
const REFERENCES_MAX: usize = 24;

fn of_kind(schema: &Schema, name: &str, above: &mut Vec<Definition>) -> DeclType {
    if let Some(definition) = schema.reference() {
        if above.contains(&definition) || above.len() >= REFERENCES_MAX {
            return DeclType::dynamic();
        }
        above.push(definition);
        let decl = of_kind(definition.schema(), name, above);
        above.pop();
        return decl;
    }
    match schema.special() {
        Some(schema::Special::Bytes) => return DeclType::simple(Shape::Bytes, 2),
        Some(schema::Special::MicroTime | schema::Special::Time) => return DeclType::timestamp(),
        Some(schema::Special::Quantity) => return DeclType::string(),
        Some(_) => return DeclType::dynamic(),
        None => {}
    }
    match schema.value_type() {
        schema::Type::Array => match schema.item() {
            Some(item) => DeclType::list(of_kind(item, &format!("{name}.@idx"), above), 0),
            None => DeclType::dynamic(),
        },
        schema::Type::Object => {
            if let Some(values) = schema.values() {
                return DeclType::map(of_kind(values, &format!("{name}.@elem"), above), 0);
            }
            if schema.properties.is_empty() {
                return DeclType::dynamic();
            }
            let mut fields = BTreeMap::new();
            for (key, property) in schema.properties.iter() {
                let value = Arc::new(of_kind(property, &format!("{name}.{key}"), above));
                let names = [Some(key.into()), escape(key)];
                for name in names.into_iter().flatten() {
                    fields.insert(name.into(), FieldDecl { key: key.into(), value: value.clone() });
                }
            }
            DeclType::simple(Shape::Object(Arc::new(ObjectDecl { name: name.into(), fields, open: false })), 2)
        }
        schema::Type::String => text(schema, None),
        schema::Type::Boolean => DeclType::boolean(),
        schema::Type::Number => DeclType::simple(Shape::Double, 1),
        schema::Type::Integer => DeclType::integer(),
        _ => DeclType::dynamic(),
    }
}

fn text(schema: &Schema, length_max: Option<u64>) -> DeclType {
    let decl = |shape, elements_max, bytes_min| DeclType { shape, elements_max, bytes_min };
    match schema.format.as_deref() {
        Some("byte") => decl(Shape::Bytes, length_max.unwrap_or(REQUEST_BYTES_MAX - 2), 2),
        Some("duration") => decl(Shape::Duration, 32, 3),
        Some("date") => decl(Shape::Date, 12, 12),
        Some("date-time") => decl(Shape::Timestamp, 32, 21),
        _ => {
            let longest = schema.enumeration.iter().filter_map(|value| value.as_str()).map(str::len).max();
            // A character may take four bytes.
            let elements_max = match (length_max, longest) {
                (Some(length), _) => length.saturating_mul(4),
                (None, Some(longest)) => longest as u64,
                (None, None) => REQUEST_BYTES_MAX - 2,
            };
            decl(Shape::String, elements_max, 2)
        }
    }
}

fn fields(schema: &Schema, name: &str) -> (BTreeMap<Box<str>, FieldDecl>, u64) {
    let mut fields = BTreeMap::new();
    // An object is at least {}; only required fields add to that.
    let mut bytes_min = 2;
    for (key, property) in schema.properties.iter() {
        let Some(value) = from_schema(property, property.embedded_resource, &format!("{name}.{key}")) else { continue };
        let is_required = schema.required.iter().any(|required| **required == *key);
        if is_required && property.default.is_none() {
            bytes_min += key.len() as u64 + value.bytes_min + 4;
        }
        if let Some(name) = escape(key) {
            fields.insert(name.into(), FieldDecl { key: key.into(), value: Arc::new(value) });
        }
    }
    (fields, bytes_min)
}

/// An object that is a resource, with the fields that every resource has.
fn resource(schema: &Schema, name: &str) -> DeclType {
    let (mut declared, bytes_min) = fields(schema, name);
    let text = || DeclType { shape: Shape::String, elements_max: REQUEST_BYTES_MAX - 2, bytes_min: 2 };
    for key in ["apiVersion", "kind"] {
        declared.insert(key.into(), FieldDecl { key: key.into(), value: Arc::new(text()) });
    }
    let metadata = DeclType::object(&format!("{name}.metadata"), [("name", text()), ("generateName", text())]);
    declared.insert("metadata".into(), FieldDecl { key: "metadata".into(), value: Arc::new(metadata) });
    let object = ObjectDecl { name: name.into(), fields: declared, open: false };
    DeclType { shape: Shape::Object(Arc::new(object)), elements_max: 0, bytes_min }
}
