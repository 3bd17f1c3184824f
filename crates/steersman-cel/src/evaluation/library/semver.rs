//! Functions of semantic versions.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::data::semver::{Semver, normalized, parse};
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{Opaque, Value};
use std::sync::Arc;

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "isSemver" => |_, args| read(args).map(|version| Ok(Value::Bool(version.is_ok()))),
        "major" => |_, args| number(args, 0),
        "minor" => |_, args| number(args, 1),
        "patch" => |_, args| number(args, 2),
        "semver" => |_: &mut Meter, args| {
            read(args).map(|version| version.map(|version| Value::Opaque(Opaque::Semver(Arc::new(version)))))
        },
        _ => return None,
    })
}

fn number<'a>(args: &[Value<'a>], at: usize) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Semver(version))] => {
            let number = i64::try_from(version.numbers[at]);
            Some(number.map(Value::Int).map_err(|_| EvalError::new("integer overflow")))
        }
        _ => None,
    }
}

fn read(args: &[Value<'_>]) -> Option<Result<Semver, EvalError>> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Some(parse(text)),
        [Value::String(text), Value::Bool(true)] => Some(normalized(text).and_then(|text| parse(&text))),
        _ => None,
    }
}
