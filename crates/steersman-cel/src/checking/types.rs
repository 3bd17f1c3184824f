//! Types of expressions, for the checker, and their names in messages.

use crate::checking::decl::ObjectDecl;
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Clone, Debug)]
pub enum Type {
    Bool,
    Bytes,
    Double,
    Duration,
    /// Known only at run time; operations on it are checked then.
    Dyn,
    /// The type of an expression that did not check, so that it is reported only once.
    Error,
    Int,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Null,
    /// An object with declared fields.
    Object(Arc<ObjectDecl>),
    /// A type of a library, such as `net.IP` or `optional_type(T)`.
    Opaque(&'static str, Arc<[Type]>),
    /// A type variable of the checker or of an overload.
    Param(u32),
    String,
    Timestamp,
    Type(Arc<Type>),
    Uint,
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list of values of this type.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// A map with these types of keys and values.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    /// A value that may be absent.
    pub fn optional(value: Type) -> Type {
        Type::Opaque(OPTIONAL, Arc::new([value]))
    }

    /// A library type without parameters.
    pub(crate) fn opaque(name: &'static str) -> Type {
        Type::Opaque(name, Arc::new([]))
    }

    /// The value type of an optional type.
    pub(crate) fn as_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(OPTIONAL, parameters) => parameters.first(),
            _ => None,
        }
    }

    /// Whether it has more parts than `parts`, counting each occurrence.
    pub(crate) fn is_larger_than(&self, parts: usize) -> bool {
        self.parts_left(parts).is_none()
    }

    /// The remainder of a number of parts after subtracting those of the type.
    fn parts_left(&self, parts: usize) -> Option<usize> {
        let left = parts.checked_sub(1)?;
        match self {
            Type::List(of) | Type::Type(of) => of.parts_left(left),
            Type::Map(key, value) => value.parts_left(key.parts_left(left)?),
            Type::Opaque(_, parameters) => parameters.iter().try_fold(left, |left, of| of.parts_left(left)),
            _ => Some(left),
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// Whether values of the type always have a size of one.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Type(_) | Type::Uint => {
                true
            }
            Type::Opaque(OPTIONAL, parameters) => parameters.first().is_some_and(Type::is_scalar),
            _ => false,
        }
    }

    /// The name that `type(x)` has at run time.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Type::Bool => "bool",
            Type::Bytes => "bytes",
            Type::Double => "double",
            Type::Duration => "google.protobuf.Duration",
            Type::Dyn | Type::Error | Type::Param(_) => "dyn",
            Type::Int => "int",
            Type::List(_) => "list",
            Type::Map(..) => "map",
            Type::Null => "null_type",
            Type::Object(object) => object.name(),
            Type::Opaque(name, _) => name,
            Type::String => "string",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Type(_) => "type",
            Type::Uint => "uint",
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Type(a), Type::Type(b)) => a == b,
            (Type::Map(key, value), Type::Map(other_key, other_value)) => key == other_key && value == other_value,
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b) || a.name() == b.name(),
            (Type::Opaque(name, parameters), Type::Opaque(other_name, others)) => {
                name == other_name && parameters == others
            }
            (Type::Param(a), Type::Param(b)) => a == b,
            (
                Type::List(_) | Type::Map(..) | Type::Object(_) | Type::Opaque(..) | Type::Param(_) | Type::Type(_),
                _,
            ) => false,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Duration => f.write_str("duration"),
            Type::Error => f.write_str("!error!"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Null => f.write_str("null"),
            Type::Opaque(name, parameters) => {
                f.write_str(name)?;
                for (at, parameter) in parameters.iter().enumerate() {
                    write!(f, "{}{parameter}", if at == 0 { "(" } else { ", " })?;
                }
                f.write_str(if parameters.is_empty() { "" } else { ")" })
            }
            Type::Param(number) => write!(f, "_var{number}"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Type(of) => write!(f, "type({of})"),
            _ => f.write_str(self.runtime_name()),
        }
    }
}
