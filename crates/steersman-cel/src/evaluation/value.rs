//! Values at run time. JSON trees and strings of the expression are borrowed; values made by an evaluation are shared.

mod compare;
mod convert;

use crate::checking::decl::{DeclType, ObjectDecl, Shape};
use crate::checking::types::OPTIONAL;
use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::data::authorizer::{Caller, Decision, GroupCheck, PathCheck, ResourceCheck};
use crate::evaluation::data::cidr::Cidr;
use crate::evaluation::data::named_format::NamedFormat;
use crate::evaluation::data::quantity::Quantity;
use crate::evaluation::data::semver::Semver;
use crate::evaluation::data::time::{self, Timestamp};
use crate::evaluation::data::url::Url;
use crate::evaluation::functions;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use steersman_machinery::value::Map as JsonMap;
use steersman_machinery::{Value as Json, duration};

pub(crate) use crate::evaluation::value::compare::{compare, equal};

#[derive(Clone)]
pub enum Value<'a> {
    Bool(bool),
    Bytes(Arc<[u8]>),
    Double(f64),
    /// In nanoseconds.
    Duration(i64),
    Int(i64),
    List(List<'a>),
    Map(Map<'a>),
    Null,
    Object(Object<'a>),
    Opaque(Opaque<'a>),
    Optional(Option<Arc<Value<'a>>>),
    String(Text<'a>),
    Timestamp(Timestamp),
    /// The name of a type.
    Type(Arc<str>),
    Uint(u64),
}

/// A string.
#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

#[derive(Clone)]
pub struct List<'a> {
    pub(crate) items: Items<'a>,
    /// The declaration of the list, where it has one.
    pub(crate) decl: Option<&'a DeclType>,
}

#[derive(Clone)]
pub(crate) enum Items<'a> {
    Json(&'a [Json]),
    Values(Arc<Vec<Value<'a>>>),
}

#[derive(Clone)]
pub struct Map<'a>(pub(crate) Entries<'a>);

#[derive(Clone)]
pub(crate) enum Entries<'a> {
    /// The values may have a declaration.
    Json(&'a JsonMap, Option<&'a DeclType>),
    Values(Arc<BTreeMap<Key<'a>, Value<'a>>>),
}

/// The key of a map made by an expression.
#[derive(Clone)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    String(Text<'a>),
    Uint(u64),
}

/// An object with declared fields.
#[derive(Clone)]
pub struct Object<'a>(pub(crate) Fields<'a>);

#[derive(Clone)]
pub(crate) enum Fields<'a> {
    Json(&'a JsonMap, &'a Arc<ObjectDecl>),
    Values(Arc<ObjectDecl>, Arc<BTreeMap<Arc<str>, Value<'a>>>),
}

/// A value of a library type.
#[derive(Clone)]
pub enum Opaque<'a> {
    Authorizer(Caller<'a>),
    Cidr(Cidr),
    Decision(Arc<Decision>),
    Format(&'static NamedFormat),
    Group(Arc<GroupCheck<'a>>),
    Ip(IpAddr),
    Path(Arc<PathCheck<'a>>),
    Quantity(Quantity),
    Resource(Arc<ResourceCheck<'a>>),
    Semver(Arc<Semver>),
    Url(Arc<Url>),
}

impl<'a> Value<'a> {
    /// A JSON tree without a declaration: strings are strings, integers int, other numbers double.
    pub fn json(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(bool) => Value::Bool(*bool),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Value::Int(int),
                None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::String(Text::Borrowed(text)),
            Json::Array(items) => Value::List(List { items: Items::Json(items), decl: None }),
            Json::Object(map) => Value::Map(Map(Entries::Json(map, None))),
        }
    }

    /// A JSON tree with a declaration.
    ///
    /// # Errors
    /// When a value does not match its declaration, such as a string that is not a timestamp.
    pub fn declared(json: &'a Json, decl: &'a DeclType) -> Result<Value<'a>, EvalError> {
        let mismatch = || {
            let found = steersman_machinery::value::type_name(json);
            EvalError::new(format!("expected a value of type {}, found {found}", decl.type_of()))
        };
        Ok(match (&decl.shape, json) {
            (Shape::Dyn | Shape::Other(_), _) | (_, Json::Null) => Value::json(json),
            (Shape::Bool, Json::Bool(bool)) => Value::Bool(*bool),
            (Shape::Int, Json::Number(number)) => match number.as_i64() {
                Some(int) => Value::Int(int),
                // 5.0 is an integer too.
                None => Value::Int(number.as_f64().filter(|number| number.fract() == 0.0).ok_or_else(mismatch)? as i64),
            },
            (Shape::Double, Json::Number(number)) => Value::Double(number.as_f64().ok_or_else(mismatch)?),
            (Shape::String, Json::String(text)) => Value::String(Text::Borrowed(text)),
            (Shape::Bytes, Json::String(text)) => {
                use base64::Engine as _;
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                Value::Bytes(bytes.map_err(|_| EvalError::new("invalid base64 in a field of format byte"))?.into())
            }
            (Shape::Date, Json::String(text)) => Value::Timestamp(time::parse_date(text).ok_or_else(mismatch)?),
            (Shape::Timestamp, Json::String(text)) => {
                Value::Timestamp(time::parse_lenient_timestamp(text).ok_or_else(mismatch)?)
            }
            (Shape::Duration, Json::String(text)) => {
                Value::Duration(duration::parse_lenient(text).ok_or_else(mismatch)?)
            }
            (Shape::List { .. }, Json::Array(items)) => {
                Value::List(List { items: Items::Json(items), decl: Some(decl) })
            }
            (Shape::Map { value }, Json::Object(map)) => Value::Map(Map(Entries::Json(map, Some(value)))),
            (Shape::Object(object), Json::Object(map)) => Value::Object(Object(Fields::Json(map, object))),
            _ => return Err(mismatch()),
        })
    }

    pub fn optional(value: Option<Value<'a>>) -> Value<'a> {
        Value::Optional(value.map(Arc::new))
    }

    /// A string that is not borrowed.
    pub fn text(text: impl Into<Arc<str>>) -> Value<'a> {
        Value::String(Text::Shared(text.into()))
    }

    pub(crate) fn list(values: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List { items: Items::Values(Arc::new(values)), decl: None })
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The bool, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The name of its type, as `type(x)` gives it: upstream represents JSON objects as maps, whatever was declared.
    pub(crate) fn dynamic_type_name(&self) -> &str {
        match self {
            Value::Object(Object(Fields::Json(..))) => "map",
            _ => self.type_name(),
        }
    }

    /// The name of its type, as errors show it.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Value::Bool(_) => "bool",
            Value::Bytes(_) => "bytes",
            Value::Double(_) => "double",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Int(_) => "int",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Null => "null_type",
            Value::Object(object) => object.type_name(),
            Value::Opaque(opaque) => match opaque {
                Opaque::Authorizer(_) => functions::AUTHORIZER,
                Opaque::Cidr(_) => functions::CIDR,
                Opaque::Decision(_) => functions::DECISION,
                Opaque::Format(_) => functions::FORMAT,
                Opaque::Group(_) => functions::GROUP_CHECK,
                Opaque::Ip(_) => functions::IP,
                Opaque::Path(_) => functions::PATH_CHECK,
                Opaque::Quantity(_) => functions::QUANTITY,
                Opaque::Resource(_) => functions::RESOURCE_CHECK,
                Opaque::Semver(_) => functions::SEMVER,
                Opaque::Url(_) => functions::URL,
            },
            Value::Optional(_) => OPTIONAL,
            Value::String(_) => "string",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Type(_) => "type",
            Value::Uint(_) => "uint",
        }
    }

    /// Whether values of its type have this operator with any other value; also true for a name that is not an
    /// operator.
    pub(crate) fn has_operator(&self, name: &str) -> bool {
        let is_number = matches!(self, Value::Double(_) | Value::Int(_) | Value::Uint(_));
        let is_time = matches!(self, Value::Duration(_) | Value::Timestamp(_));
        match name {
            "_<_" | "_<=_" | "_>_" | "_>=_" => {
                is_number || is_time || matches!(self, Value::Bool(_) | Value::Bytes(_) | Value::String(_))
            }
            "_+_" => is_number || is_time || matches!(self, Value::Bytes(_) | Value::List(_) | Value::String(_)),
            "_-_" => is_number || is_time,
            "_*_" | "_/_" => is_number,
            "_%_" => matches!(self, Value::Int(_) | Value::Uint(_)),
            "-_" => matches!(self, Value::Bool(_) | Value::Double(_) | Value::Duration(_) | Value::Int(_)),
            _ => true,
        }
    }

    /// The name of the Go type that upstream uses for it.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Value::Bool(_) => "types.Bool",
            Value::Bytes(_) => "types.Bytes",
            Value::Double(_) => "types.Double",
            Value::Duration(_) => "types.Duration",
            Value::Int(_) => "types.Int",
            Value::Null => "types.Null",
            Value::Optional(_) => "*types.Optional",
            Value::String(_) => "types.String",
            Value::Timestamp(_) => "types.Timestamp",
            Value::Uint(_) => "types.Uint",
            _ => "ref.Val",
        }
    }

    /// The result of `size()`; one for values without a size.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Object(Object(Fields::Json(map, _))) => map.len() as u64,
            Value::Opaque(Opaque::Ip(ip)) => {
                if ip.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Value::Opaque(Opaque::Cidr(cidr)) => u64::from(cidr.prefix.div_ceil(8)),
            _ => 1,
        }
    }

    /// The number of bytes of its strings.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Opaque(Opaque::Url(url)) => url.bytes(),
            _ => 0,
        }
    }

    /// Whether it is a bool, a number or a string.
    pub(crate) fn is_scalar(&self) -> bool {
        matches!(self, Value::Bool(_) | Value::Double(_) | Value::Int(_) | Value::String(_) | Value::Uint(_))
    }

    /// Whether `optional.ofNonZeroValue` treats it as zero.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Bool(bool) => !bool,
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Double(double) => *double == 0.0,
            Value::Duration(nanos) => *nanos == 0,
            Value::Int(int) => *int == 0,
            Value::List(list) => list.len() == 0,
            Value::Map(map) => map.len() == 0,
            Value::Null => true,
            Value::Object(Object(Fields::Json(map, _))) => map.is_empty(),
            Value::Object(Object(Fields::Values(_, map))) => map.is_empty(),
            Value::Opaque(_) | Value::Type(_) => false,
            Value::Optional(optional) => optional.is_none(),
            Value::String(text) => text.is_empty(),
            Value::Timestamp(timestamp) => timestamp.is_zero(),
            Value::Uint(uint) => *uint == 0,
        }
    }
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match &self.items {
            Items::Json(items) => items.len(),
            Items::Values(values) => values.len(),
        }
    }

    /// An item; none if the index is out of range.
    pub(crate) fn get(&self, index: usize) -> Option<Result<Value<'a>, EvalError>> {
        match &self.items {
            Items::Values(values) => values.get(index).cloned().map(Ok),
            Items::Json(items) => {
                let item = items.get(index)?;
                Some(match self.decl.and_then(DeclType::item) {
                    Some(decl) => Value::declared(item, decl),
                    None => Ok(Value::json(item)),
                })
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, EvalError>> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Entries::Json(map, _) => map.len(),
            Entries::Values(map) => map.len(),
        }
    }

    /// The value of a string key.
    pub(crate) fn get_str(&self, key: &str) -> Option<Result<Value<'a>, EvalError>> {
        match &self.0 {
            Entries::Json(map, decl) => {
                let value = map.get(key)?;
                Some(match decl {
                    Some(decl) => Value::declared(value, decl),
                    None => Ok(Value::json(value)),
                })
            }
            Entries::Values(map) => map.get(&Key::String(Text::Shared(key.into()))).cloned().map(Ok),
        }
    }

    pub(crate) fn get(&self, key: &Value<'a>) -> Option<Result<Value<'a>, EvalError>> {
        match (key, &self.0) {
            (Value::String(text), Entries::Json(..)) => self.get_str(text),
            (_, Entries::Json(..)) => None,
            (_, Entries::Values(map)) => map.get(&Key::find(key)?).cloned().map(Ok),
        }
    }

    pub(crate) fn contains(&self, key: &Value<'a>) -> bool {
        match (key, &self.0) {
            (Value::String(text), Entries::Json(map, _)) => map.contains_key(&**text),
            (_, Entries::Json(..)) => false,
            (_, Entries::Values(map)) => Key::find(key).is_some_and(|key| map.contains_key(&key)),
        }
    }

    /// Keys and values, sorted by key.
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = (Value<'a>, Result<Value<'a>, EvalError>)> + '_> {
        match &self.0 {
            Entries::Json(map, decl) => Box::new(map.iter().map(move |(key, value)| {
                let value = match decl {
                    Some(decl) => Value::declared(value, decl),
                    None => Ok(Value::json(value)),
                };
                (Value::String(Text::Borrowed(key)), value)
            })),
            Entries::Values(map) => Box::new(map.iter().map(|(key, value)| (key.to_value(), Ok(value.clone())))),
        }
    }
}

impl<'a> Object<'a> {
    pub(crate) fn type_name(&self) -> &str {
        match &self.0 {
            Fields::Json(_, decl) => decl.name(),
            Fields::Values(decl, _) => decl.name(),
        }
    }

    /// The value of a field, if it is set.
    pub(crate) fn get(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        match &self.0 {
            Fields::Json(map, decl) => {
                let field = decl.field(name)?;
                Some(Value::declared(map.get(&*field.key)?, &field.value))
            }
            Fields::Values(_, map) => map.get(name).cloned().map(Ok),
        }
    }
}

impl<'a> Key<'a> {
    /// The value as a key, if it can be one.
    pub(crate) fn of(value: Value<'a>) -> Option<Key<'a>> {
        Some(match value {
            Value::Bool(bool) => Key::Bool(bool),
            Value::Int(int) => Key::Int(int),
            Value::String(text) => Key::String(text),
            Value::Uint(uint) => Key::Uint(uint),
            _ => return None,
        })
    }

    /// The key for looking up a value: numbers match whatever their type.
    fn find(value: &Value<'a>) -> Option<Key<'a>> {
        match value {
            Value::Double(double) if double.fract() == 0.0 && double.abs() < 9.2e18 => Some(Key::Int(*double as i64)),
            _ => Key::of(value.clone()),
        }
    }

    pub(crate) fn to_value(&self) -> Value<'a> {
        match self {
            Key::Bool(bool) => Value::Bool(*bool),
            Key::Int(int) => Value::Int(*int),
            Key::String(text) => Value::String(text.clone()),
            Key::Uint(uint) => Value::Uint(*uint),
        }
    }

    /// The number as an integer to which all integer types convert.
    fn number(&self) -> Option<i128> {
        match self {
            Key::Int(int) => Some(i128::from(*int)),
            Key::Uint(uint) => Some(i128::from(*uint)),
            Key::Bool(_) | Key::String(_) => None,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::Bool(a), Key::Bool(b)) => a.cmp(b),
            (Key::String(a), Key::String(b)) => (**a).cmp(&**b),
            (Key::Bool(_), _) => Ordering::Less,
            (_, Key::Bool(_)) => Ordering::Greater,
            _ => self.number().cmp(&other.number()),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_json(&mut Meter::new(0)) {
            Ok(json) => write!(f, "{}({json})", self.type_name()),
            Err(_) => f.write_str(self.type_name()),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Value<'a> {
        Value::String(Text::Borrowed(text))
    }
}

impl<'a> From<Cow<'a, str>> for Value<'a> {
    fn from(text: Cow<'a, str>) -> Value<'a> {
        match text {
            Cow::Borrowed(text) => Value::String(Text::Borrowed(text)),
            Cow::Owned(text) => Value::text(text),
        }
    }
}
