//! The pass over a document: a serde visitor that follows the schema as it descends.

use crate::model::definitions::Definitions;
use crate::model::schema::{Additional, List, Schema, Special, Type, Zero};
use crate::values::decode::zero::{Empties, drop_empty, is_zero, write_empty, zero};
use crate::values::decode::{DEPTH_MAX, Decoded, Error, FAULTS_MAX, Fault, Unknown, is_opaque, scalar};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::budget::{self, Budget, cost};
use steersman_machinery::value::{Map, normalize_numbers};

/// How a value is read.
#[derive(Clone, Copy)]
pub(crate) enum Shape<'s> {
    /// Any value, kept unchanged.
    Any,
    /// A custom resource, or a part of it: fields without a schema are dropped, and types are left to validation.
    Custom(Custom<'s>),
    /// A part of a built-in kind: types are checked, and empty values dropped or written.
    Typed(&'s Schema),
}

/// A position in a custom resource.
#[derive(Clone, Copy)]
pub(crate) struct Custom<'s> {
    /// The schema here; `None` if no field is defined here.
    schema: Option<&'s Schema>,
    /// Whether it has a `metadata` of its own, which is always an `ObjectMeta`.
    is_resource: bool,
    /// Whether fields without a schema are kept here.
    keeps_unknown: bool,
    /// Whether fields without a schema are kept everywhere.
    unknown: Unknown,
}

/// Reads one value.
pub(crate) fn read<'de, D: Deserializer<'de>>(
    shape: Shape<'_>,
    deserializer: D,
    budget: &Budget,
) -> Result<Decoded, Error> {
    let mut context = Context { budget, depth: 0, n_atomic: 0, n_lists: 0, faults: Vec::new(), error: None };
    match (Seed { shape, path: &Path::Root, context: &mut context }).deserialize(deserializer) {
        // A document that is null becomes an object without fields.
        Ok(Value::Null) => Ok(Decoded { value: shape.nothing(), faults: context.faults }),
        Ok(value) => Ok(Decoded { value, faults: context.faults }),
        Err(error) => Err(context.error.take().unwrap_or_else(|| Error::Syntax { detail: syntax(&error.to_string()) })),
    }
}

/// The parser's message in the words of Go's parser, where clients know them.
fn syntax(message: &str) -> String {
    if message.starts_with("EOF while parsing") {
        return "unexpected end of JSON input".to_owned();
    }
    message.to_owned()
}

struct Context<'b> {
    budget: &'b Budget,
    /// The number of open objects and lists.
    depth: usize,
    /// The number of those that have one owner as a whole.
    n_atomic: usize,
    /// The number of lists among those, and within them.
    n_lists: usize,
    faults: Vec<Fault>,
    error: Option<Error>,
}

/// The position of the reader: a chain through the frames of the recursion, so that descending allocates nothing.
enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

/// Reads one value.
struct Seed<'s, 'c, 'b> {
    shape: Shape<'s>,
    path: &'c Path<'c>,
    context: &'c mut Context<'b>,
}

// === impl Shape ===

impl<'s> Shape<'s> {
    /// A whole custom resource.
    pub(crate) fn resource(schema: &'s Schema, unknown: Unknown) -> Shape<'s> {
        let keeps_unknown = schema.preserve_unknown_fields || unknown == Unknown::Keep;
        Shape::Custom(Custom { schema: Some(schema), is_resource: true, keeps_unknown, unknown })
    }

    /// The value of null where null is not allowed.
    fn nothing(self) -> Value {
        match self {
            Shape::Any | Shape::Custom(_) => Value::Null,
            Shape::Typed(schema) => zero(schema),
        }
    }

    /// The shape of the items if a list is allowed here; otherwise the schema that it violates.
    fn item(self) -> Result<Shape<'s>, &'s Schema> {
        match self {
            Shape::Any => Ok(Shape::Any),
            Shape::Custom(custom) => Ok(custom.item()),
            Shape::Typed(schema) if schema.value_type != Type::Array => Err(schema),
            Shape::Typed(schema) => Ok(schema.item().map_or(Shape::Any, Shape::Typed)),
        }
    }
}

// === impl Custom ===

impl<'s> Custom<'s> {
    fn inside(self, schema: Option<&'s Schema>, keeps_unknown: bool) -> Shape<'s> {
        match schema {
            None if keeps_unknown => Shape::Any,
            _ => Shape::Custom(Custom {
                schema,
                is_resource: schema.is_some_and(|schema| schema.embedded_resource),
                keeps_unknown,
                unknown: self.unknown,
            }),
        }
    }

    fn item(self) -> Shape<'s> {
        let item = self.schema.and_then(Schema::item);
        // A value that keeps unknown fields keeps them in the items of a list, but not in its named fields.
        self.inside(item, self.keeps_unknown || item.is_some_and(|item| item.preserve_unknown_fields))
    }

    /// The shape of a field; none: it is dropped.
    fn field(self, name: &str) -> Option<Shape<'s>> {
        if self.is_resource {
            match name {
                "apiVersion" | "kind" => return Some(Shape::Any),
                "metadata" => {
                    let edition = self.schema.map(|schema| schema.edition).unwrap_or_default();
                    return Some(Shape::Typed(Definitions::object_meta(edition)));
                }
                _ => {}
            }
        }
        let known = self.schema.and_then(|schema| match schema.property(name) {
            Some(property) => Some(Some(property)),
            None => match &schema.additional {
                // The field is named, but no field in it is.
                Additional::Any | Additional::Never => Some(None),
                Additional::Of(values) => Some(Some(&**values)),
                Additional::Unsaid => None,
            },
        });
        match known {
            Some(schema) => {
                let keeps = schema.is_some_and(|schema| schema.preserve_unknown_fields);
                Some(self.inside(schema, keeps || self.unknown == Unknown::Keep))
            }
            None => self.keeps_unknown.then_some(Shape::Any),
        }
    }
}

// === impl Context ===

impl Context<'_> {
    /// Records the error, and stops the parser.
    fn fail<E: serde::de::Error>(&mut self, error: Error) -> E {
        self.error = Some(error);
        E::custom("stopped")
    }

    /// Opens an object or a list.
    fn open<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth <= DEPTH_MAX { Ok(()) } else { Err(self.fail(Error::TooDeep)) }
    }

    /// Records an error of the object, unless it is a duplicate or there are too many already. The error is only built
    /// if there is room for it.
    fn tell<E: serde::de::Error>(&mut self, fault: impl FnOnce() -> Fault) -> Result<(), E> {
        if FAULTS_MAX <= self.faults.len() {
            return Ok(());
        }
        let fault = fault();
        self.charge(|budget| budget.work_on_bytes(fault.path().len()))?;
        if !self.faults.contains(&fault) {
            self.charge(|budget| budget.build_all(0, fault.path().len()))?;
            self.faults.push(fault);
        }
        Ok(())
    }

    /// Charges the budget, and stops the parser if it is exceeded.
    fn charge<E: serde::de::Error>(
        &mut self,
        charge: impl FnOnce(&Budget) -> Result<(), budget::Error>,
    ) -> Result<(), E> {
        charge(self.budget).map_err(|error| self.fail(Error::Budget(error)))
    }

    /// The value of null at a position, charged.
    fn nothing<E: serde::de::Error>(&mut self, shape: Shape<'_>) -> Result<Value, E> {
        let value = shape.nothing();
        if !value.is_null() {
            self.charge(|budget| budget.copy(&value))?;
        }
        Ok(value)
    }
}

// === impl Path ===

impl Path<'_> {
    /// The path as messages show it.
    fn name(&self) -> String {
        match self {
            Path::Root => "the object".to_owned(),
            Path::Field(..) | Path::Item(..) => self.to_string(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

// === reading ===

impl<'de> DeserializeSeed<'de> for Seed<'_, '_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let shape = match self.shape {
            Shape::Typed(schema) => match schema.target() {
                schema if is_opaque(schema) => Shape::Any,
                schema => Shape::Typed(schema),
            },
            shape => shape,
        };
        deserializer.deserialize_any(Seed { shape, ..self })
    }
}

impl Seed<'_, '_, '_> {
    fn scalar<E: serde::de::Error>(self, value: Value) -> Result<Value, E> {
        if let Value::String(text) = &value {
            self.context.charge(|budget| budget.build_all(0, cost::text(text.len())))?;
        }
        let Shape::Typed(schema) = self.shape else { return Ok(value) };
        match scalar::check(schema, value, || self.path.name()) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.context.fail(error)),
        }
    }

    fn mismatch<E: serde::de::Error>(self, schema: &Schema, found: &str) -> E {
        let (path, expected) = (self.path.name(), scalar::expected(schema));
        self.context.fail(Error::Type { path, expected, found: found.to_owned() })
    }

    /// Bytes that are written as a list of numbers, which Go reads too. Null is zero.
    fn bytes<'de, A: SeqAccess<'de>>(self, schema: &Schema, mut items: A) -> Result<Value, A::Error> {
        let mut bytes = Vec::new();
        loop {
            // Nothing else is built: an item may be a list of megabytes.
            match items.next_element::<Option<u8>>() {
                Ok(None) => break,
                Ok(Some(byte)) => {
                    self.context.charge(|budget| budget.build_all(0, 2))?;
                    bytes.push(byte.unwrap_or(0));
                }
                Err(_) => return Err(self.mismatch(schema, "a list")),
            }
        }
        Ok(Value::from(STANDARD.encode(bytes)))
    }

    /// The fields of any object, or of a custom resource.
    fn open_fields<'de, A: MapAccess<'de>>(self, mut entries: A) -> Result<Map, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let shape = match self.shape {
                Shape::Custom(custom) => custom.field(&name),
                Shape::Any | Shape::Typed(_) => Some(Shape::Any),
            };
            let Some(shape) = shape else {
                skip(&mut entries, &path, self.context)?;
                continue;
            };
            let mut value = entries.next_value_seed(Seed { shape, path: &path, context: &mut *self.context })?;
            if value.is_null() {
                value = self.context.nothing(shape)?;
            }
            put(&mut fields, name, value, self.path, self.context)?;
        }
        Ok(fields)
    }

    /// The entries of a map of a built-in kind.
    fn map<'de, A: MapAccess<'de>>(self, values: &Schema, mut entries: A) -> Result<Map, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let (shape, path) = (Shape::Typed(values), Path::Field(self.path, &name));
            let mut value = entries.next_value_seed(Seed { shape, path: &path, context: &mut *self.context })?;
            if value.is_null() {
                value = self.context.nothing(shape)?;
            }
            put(&mut fields, name, value, self.path, self.context)?;
        }
        Ok(fields)
    }

    /// The fields of a struct of a built-in kind.
    fn named_fields<'de, A: MapAccess<'de>>(self, schema: &Schema, mut entries: A) -> Result<Map, A::Error> {
        let mut fields = Map::new();
        let mut has_empty = false;
        while let Some(name) = entries.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let Some(field) = schema.properties.get(&name) else {
                skip(&mut entries, &path, self.context)?;
                continue;
            };
            let shape = Shape::Typed(field);
            let value = entries.next_value_seed(Seed { shape, path: &path, context: &mut *self.context })?;
            has_empty |= value.is_null() || (field.zero == Zero::Omit && is_zero(&value));
            put(&mut fields, name, value, self.path, self.context)?;
        }
        if has_empty {
            fields.retain(|_, value| !value.is_null());
            let empties = match self.path {
                Path::Field(Path::Root, "metadata") => Empties::DroppedExceptManagedFields,
                _ if self.context.n_lists > 0 => Empties::Kept,
                _ => Empties::Dropped,
            };
            drop_empty(schema, &mut fields, empties);
        }
        let written = write_empty(schema, &mut fields);
        self.context.charge(|budget| budget.build_all(0, written))?;
        Ok(fields)
    }
}

/// Whether a list has one owner as a whole.
fn is_atomic_list(schema: &Schema) -> bool {
    matches!(schema.list(), List::Atomic) && !schema.patch().is_some_and(|patch| patch.merge)
}

/// Adds a field to an object; the last of several with one name counts.
fn put<E: serde::de::Error>(
    fields: &mut Map,
    name: String,
    value: Value,
    parent: &Path<'_>,
    context: &mut Context<'_>,
) -> Result<(), E> {
    let cost = cost::field(&name, fields.len());
    context.charge(|budget| budget.build(cost))?;
    match fields.entry(name) {
        Entry::Occupied(mut entry) => {
            context.tell(|| Fault::Duplicate(Path::Field(parent, entry.key()).to_string()))?;
            entry.insert(value);
        }
        Entry::Vacant(entry) => {
            entry.insert(value);
        }
    }
    Ok(())
}

/// Skips an unknown field, within the bound on nesting. Errors inside it are not reported.
fn skip<'de, A: MapAccess<'de>>(entries: &mut A, path: &Path<'_>, context: &mut Context<'_>) -> Result<(), A::Error> {
    let n_faults = context.faults.len();
    entries.next_value_seed(Seed { shape: Shape::Any, path, context: &mut *context })?;
    context.faults.truncate(n_faults);
    context.tell(|| Fault::Unknown(path.to_string()))
}

impl<'de> Visitor<'de> for Seed<'_, '_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.shape {
            Shape::Any | Shape::Custom(_) => "any value",
            Shape::Typed(schema) => scalar::expected(schema),
        })
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let mut number = Value::from(value);
        // Go prints 5.0 as 5, but does not accept 5.0 as an integer.
        match self.shape {
            Shape::Typed(schema) if schema.value_type != Type::Number => {}
            Shape::Any | Shape::Custom(_) | Shape::Typed(_) => normalize_numbers(&mut number),
        }
        self.scalar(number)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if let Shape::Typed(schema) = self.shape
            && schema.special == Some(Special::Bytes)
        {
            return self.bytes(schema, items);
        }
        let shape = match self.shape.item() {
            Ok(shape) => shape,
            Err(schema) => return Err(self.mismatch(schema, "a list")),
        };
        self.context.open()?;
        let n_atomic = usize::from(matches!(self.shape, Shape::Typed(schema) if is_atomic_list(schema)));
        self.context.n_atomic += n_atomic;
        let n_lists = usize::from(self.context.n_atomic > 0);
        self.context.n_lists += n_lists;
        let mut read = Vec::with_capacity(items.size_hint().unwrap_or(0).min(1024));
        loop {
            let path = Path::Item(self.path, read.len());
            let Some(value) = items.next_element_seed(Seed { shape, path: &path, context: &mut *self.context })? else {
                self.context.depth -= 1;
                self.context.n_atomic -= n_atomic;
                self.context.n_lists -= n_lists;
                return Ok(Value::Array(read));
            };
            self.context.charge(|budget| budget.build(cost::VALUE))?;
            read.push(if value.is_null() { self.context.nothing(shape)? } else { value });
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        self.context.open()?;
        let Seed { shape, path, context } = self;
        let n_atomic = usize::from(matches!(shape, Shape::Typed(schema) if schema.is_atomic_map()));
        context.n_atomic += n_atomic;
        let inside = Seed { shape, path, context: &mut *context };
        let fields = match shape {
            Shape::Any | Shape::Custom(_) => inside.open_fields(entries)?,
            Shape::Typed(schema) if schema.value_type != Type::Object => {
                return Err(inside.mismatch(schema, "an object"));
            }
            Shape::Typed(schema) => match schema.values() {
                Some(values) => inside.map(values, entries)?,
                None => inside.named_fields(schema, entries)?,
            },
        };
        context.depth -= 1;
        context.n_atomic -= n_atomic;
        Ok(Value::Object(fields))
    }
}
