//! The pass over a document: a serde visitor that walks the schema along.

use crate::decode::zero::{finish, zero};
use crate::decode::{DEPTH_MAX, Decoded, Error, Fault, is_opaque, scalar};
use crate::schema::{Schema, Type};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::fmt::Write;
use steersman_machinery::Value;
use steersman_machinery::value::{Map, normalize_numbers};

/// Reads one value, against a schema or as it is.
pub(crate) fn read<'de, D: Deserializer<'de>>(schema: Option<&Schema>, deserializer: D) -> Result<Decoded, Error> {
    let mut context = Context::default();
    match (Seed { schema, context: &mut context }).deserialize(deserializer) {
        // A document that says null says nothing: an object without fields.
        Ok(Value::Null) if schema.is_some() => {
            Ok(Decoded { value: schema.map_or(Value::Null, zero), faults: context.faults })
        }
        Ok(value) => Ok(Decoded { value, faults: context.faults }),
        Err(error) => Err(context.error.unwrap_or_else(|| Error::Syntax { detail: syntax(&error.to_string()) })),
    }
}

/// The parser's message in the words that clients know, where they have some.
fn syntax(message: &str) -> String {
    if message.starts_with("EOF while parsing") {
        return "unexpected end of JSON input".to_owned();
    }
    message.to_owned()
}

#[derive(Default)]
struct Context {
    path: String,
    /// Objects and lists that are open.
    depth: usize,
    faults: Vec<Fault>,
    error: Option<Error>,
}

/// Reads one value against its schema, or any value.
struct Seed<'s, 'c> {
    schema: Option<&'s Schema>,
    context: &'c mut Context,
}

impl Context {
    /// Remembers why, and stops the parser.
    fn fail<E: serde::de::Error>(&mut self, error: Error) -> E {
        self.error = Some(error);
        E::custom("stopped")
    }

    /// Opens an object or a list.
    fn open<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth <= DEPTH_MAX { Ok(()) } else { Err(self.fail(Error::TooDeep)) }
    }

    fn path(&self) -> String {
        if self.path.is_empty() { "the object".to_owned() } else { self.path.clone() }
    }

    fn enter_field(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        length
    }

    fn enter_item(&mut self, index: usize) -> usize {
        let length = self.path.len();
        let _ = write!(self.path, "[{index}]");
        length
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let schema = self.schema.map(Schema::target).filter(|schema| !is_opaque(schema));
        deserializer.deserialize_any(Reader { schema, context: self.context })
    }
}

struct Reader<'s, 'c> {
    /// None: any value.
    schema: Option<&'s Schema>,
    context: &'c mut Context,
}

impl Reader<'_, '_> {
    fn scalar<E: serde::de::Error>(self, value: Value) -> Result<Value, E> {
        let Some(schema) = self.schema else { return Ok(value) };
        match scalar::check(schema, value, || self.context.path()) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.context.fail(error)),
        }
    }

    fn mismatch<E: serde::de::Error>(self, found: &str) -> E {
        let expected = self.schema.map_or("any value", scalar::expected);
        let path = self.context.path();
        self.context.fail(Error::Type { path, expected, found: found.to_owned() })
    }
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.schema.map_or("any value", scalar::expected))
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
        // Go prints 5.0 as 5; but where an integer belongs 5.0 is none.
        if self.schema.is_none_or(|schema| schema.value_type == Type::Number) {
            normalize_numbers(&mut number);
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
        let item = match self.schema {
            Some(schema) if schema.value_type != Type::Array => return Err(self.mismatch("a list")),
            Some(schema) => schema.item(),
            None => None,
        };
        self.context.open()?;
        let mut read = Vec::with_capacity(items.size_hint().unwrap_or(0).min(1024));
        loop {
            let length = self.context.enter_item(read.len());
            let Some(mut value) = items.next_element_seed(Seed { schema: item, context: &mut *self.context })? else {
                self.context.path.truncate(length);
                self.context.depth -= 1;
                return Ok(Value::Array(read));
            };
            if let (Value::Null, Some(item)) = (&value, item) {
                value = zero(item);
            }
            read.push(value);
            self.context.path.truncate(length);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if self.schema.is_some_and(|schema| schema.value_type != Type::Object) {
            return Err(self.mismatch("an object"));
        }
        self.context.open()?;
        let values = self.schema.and_then(Schema::values);
        let is_struct = self.schema.is_some() && values.is_none();
        let mut fields = Map::new();
        while let Some(Key(name)) = entries.next_key()? {
            let length = self.context.enter_field(&name);
            let schema = match self.schema {
                Some(schema) => schema.field(&name),
                None => None,
            };
            if is_struct && schema.is_none() {
                entries.next_value::<Skipped>()?;
                self.context.faults.push(Fault::Unknown(self.context.path.clone()));
                self.context.path.truncate(length);
                continue;
            }
            let mut value = entries.next_value_seed(Seed { schema, context: &mut *self.context })?;
            if let (Value::Null, Some(values)) = (&value, values) {
                value = zero(values);
            }
            if fields.insert(name, value).is_some() {
                self.context.faults.push(Fault::Duplicate(self.context.path.clone()));
            }
            self.context.path.truncate(length);
        }
        if let Some(schema) = self.schema.filter(|_| is_struct) {
            fields.retain(|_, value| !value.is_null());
            finish(schema, &mut fields);
        }
        self.context.depth -= 1;
        Ok(Value::Object(fields))
    }
}

/// A value that nobody wants. Read and dropped level by level, so that the parser's bound on nesting holds here too
/// (`IgnoredAny` is skipped over without it).
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Skipped, D::Error> {
        let mut context = Context::default();
        deserializer.deserialize_any(Reader { schema: None, context: &mut context })?;
        Ok(Skipped)
    }
}

/// A key of an object; YAML's may be numbers and booleans too.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Key, E> {
                Ok(Key(value.to_owned()))
            }

            fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Key, E> {
                Ok(Key(value))
            }

            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }
        }
        deserializer.deserialize_any(KeyVisitor)
    }
}
