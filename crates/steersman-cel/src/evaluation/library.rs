//! The implementations of functions. One implementation per name serves all overloads, and checks the types of its
//! arguments.

pub(crate) mod authorizer;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod ip;
pub(crate) mod lists;
pub(crate) mod named_format;
pub(crate) mod operators;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::evaluation::outcome::Implementation;
use crate::evaluation::value::{Opaque, Value};

/// The implementation of a function; none for operators such as `&&`, which are not functions at run time.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    operators::implementation(name)
        .or_else(|| convert::implementation(name))
        .or_else(|| strings::implementation(name))
        .or_else(|| lists::implementation(name))
        .or_else(|| optional::implementation(name))
        .or_else(|| time::implementation(name))
        .or_else(|| url::implementation(name))
        .or_else(|| ip::implementation(name))
        .or_else(|| authorizer::implementation(name))
        .or_else(|| shared(name))
}

/// Functions that several libraries define with the same name.
fn shared(name: &str) -> Option<Implementation> {
    Some(match name {
        "quantity" | "isQuantity" | "sign" | "isInteger" | "asInteger" | "asApproximateFloat" | "add" | "sub" => {
            return quantity::implementation(name);
        }
        "semver" | "isSemver" | "major" | "minor" | "patch" => return semver::implementation(name),
        "isGreaterThan" => |_, args| Some(Ok(Value::Bool(order(args)?.is_gt()))),
        "isLessThan" => |_, args| Some(Ok(Value::Bool(order(args)?.is_lt()))),
        "compareTo" => |_, args| Some(Ok(Value::Int(order(args)? as i64))),
        _ => return named_format::implementation(name),
    })
}

fn order(args: &[Value<'_>]) -> Option<std::cmp::Ordering> {
    match args {
        [Value::Opaque(Opaque::Quantity(a)), Value::Opaque(Opaque::Quantity(b))] => Some(a.cmp(b)),
        [Value::Opaque(Opaque::Semver(a)), Value::Opaque(Opaque::Semver(b))] => Some(a.cmp(b)),
        _ => None,
    }
}
