//! Arithmetic, comparison, containment and indexing.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::data::time;
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{self, Items, List, Value};
use std::cmp::Ordering;

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "!_" => |_, args| match args {
            [Value::Bool(bool)] => Some(Ok(Value::Bool(!bool))),
            _ => None,
        },
        "-_" => |_, args| match args {
            [Value::Int(int)] => Some(int.checked_neg().map(Value::Int).ok_or_else(overflow)),
            [Value::Double(double)] => Some(Ok(Value::Double(-double))),
            _ => None,
        },
        "_<_" => |_, args| ordered(args, Ordering::is_lt),
        "_<=_" => |_, args| ordered(args, Ordering::is_le),
        "_>_" => |_, args| ordered(args, Ordering::is_gt),
        "_>=_" => |_, args| ordered(args, Ordering::is_ge),
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => |_, args| match args {
            [Value::Int(a), Value::Int(b)] => Some(a.checked_mul(*b).map(Value::Int).ok_or_else(overflow)),
            [Value::Uint(a), Value::Uint(b)] => Some(a.checked_mul(*b).map(Value::Uint).ok_or_else(uint_overflow)),
            [Value::Double(a), Value::Double(b)] => Some(Ok(Value::Double(a * b))),
            _ => None,
        },
        "_/_" => |_, args| match args {
            [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
                Some(Err(EvalError::new("division by zero")))
            }
            [Value::Int(a), Value::Int(b)] => Some(a.checked_div(*b).map(Value::Int).ok_or_else(overflow)),
            [Value::Uint(a), Value::Uint(b)] => Some(Ok(Value::Uint(a / b))),
            [Value::Double(a), Value::Double(b)] => Some(Ok(Value::Double(a / b))),
            _ => None,
        },
        "_%_" => |_, args| match args {
            [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
                Some(Err(EvalError::new("modulus by zero")))
            }
            [Value::Int(a), Value::Int(b)] => Some(a.checked_rem(*b).map(Value::Int).ok_or_else(overflow)),
            [Value::Uint(a), Value::Uint(b)] => Some(Ok(Value::Uint(a % b))),
            _ => None,
        },
        "@in" => contains,
        "_[_]" => index,
        "_[?_]" => optional_index,
        "size" => |_, args| match args {
            [Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::String(_)] => {
                Some(Ok(Value::Int(i64::try_from(args[0].size()).unwrap_or(i64::MAX))))
            }
            _ => None,
        },
        "dyn" => |_, args| args.first().cloned().map(Ok),
        "type" => |_, args| args.first().map(|value| Ok(Value::Type(value.dynamic_type_name().into()))),
        _ => return None,
    })
}

fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

fn uint_overflow() -> EvalError {
    EvalError::new("unsigned integer overflow")
}

fn ordered<'a>(args: &[Value<'a>], wanted: fn(Ordering) -> bool) -> Option<Outcome<'a>> {
    let [one, other] = args else { return None };
    match value::compare(one, other) {
        Some(order) => Some(Ok(Value::Bool(wanted(order)))),
        // NaN is neither less nor greater.
        None if is_number(one) && is_number(other) => Some(Ok(Value::Bool(false))),
        None => None,
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Double(_) | Value::Int(_) | Value::Uint(_))
}

pub(super) fn add<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(match args {
        [Value::Int(a), Value::Int(b)] => a.checked_add(*b).map(Value::Int).ok_or_else(overflow),
        [Value::Uint(a), Value::Uint(b)] => a.checked_add(*b).map(Value::Uint).ok_or_else(uint_overflow),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => meter.work(a.len() + b.len()).map(|()| {
            let mut sum = String::with_capacity(a.len() + b.len());
            sum.push_str(a);
            sum.push_str(b);
            Value::text(sum)
        }),
        [Value::Bytes(a), Value::Bytes(b)] => {
            meter.work(a.len() + b.len()).map(|()| Value::Bytes([&**a, &**b].concat().into()))
        }
        [Value::List(a), Value::List(b)] => return Some(concat(meter, a, b)),
        [Value::Duration(a), Value::Duration(b)] => {
            a.checked_add(*b).map(Value::Duration).ok_or_else(|| EvalError::new("duration overflow"))
        }
        [Value::Timestamp(at), Value::Duration(by)] | [Value::Duration(by), Value::Timestamp(at)] => {
            at.plus(i128::from(*by)).map(Value::Timestamp).ok_or_else(time::out_of_range)
        }
        _ => return None,
    })
}

/// The concatenation of two lists. Lists with keys or unique items are merged as the server merges them.
fn concat<'a>(meter: &mut Meter, one: &List<'a>, other: &List<'a>) -> Outcome<'a> {
    use crate::checking::decl::{ListKind, Shape};
    // An item takes some tens of bytes.
    meter.work((one.len() + other.len()) * 8)?;
    let mut values: Vec<Value<'a>> = Vec::with_capacity(one.len() + other.len());
    for item in one.iter() {
        values.push(item?);
    }
    let decl = one.decl.or(other.decl);
    match decl.map(|decl| &decl.shape) {
        Some(Shape::List { kind: ListKind::Set, .. }) => {
            for item in other.iter() {
                let item = item?;
                if !is_among(meter, &values, &item)? {
                    values.push(item);
                }
            }
        }
        Some(Shape::List { kind: ListKind::Map(keys), .. }) => {
            for item in other.iter() {
                let item = item?;
                let mut place = None;
                for (at, known) in values.iter().enumerate() {
                    if same_keys(meter, keys, known, &item)? {
                        place = Some(at);
                        break;
                    }
                }
                match place {
                    Some(at) => values[at] = item,
                    None => values.push(item),
                }
            }
        }
        _ => {
            for item in other.iter() {
                values.push(item?);
            }
        }
    }
    Ok(Value::List(List { items: Items::Values(std::sync::Arc::new(values)), decl }))
}

fn same_keys<'a>(meter: &mut Meter, keys: &[Box<str>], one: &Value<'a>, other: &Value<'a>) -> Result<bool, EvalError> {
    for key in keys {
        meter.work(1)?;
        let name = crate::syntax::escape::escape(key).unwrap_or_default();
        let field = |value: &Value<'a>| match value {
            Value::Object(object) => object.get(&name).transpose(),
            Value::Map(map) => map.get_str(key).transpose(),
            _ => Ok(None),
        };
        let is_same = match (field(one)?, field(other)?) {
            (Some(one), Some(other)) => value::equal(&one, &other, meter)?,
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_among<'a>(meter: &mut Meter, values: &[Value<'a>], value: &Value<'a>) -> Result<bool, EvalError> {
    for known in values {
        meter.visit()?;
        if value::equal(known, value, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn subtract<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(match args {
        [Value::Int(a), Value::Int(b)] => a.checked_sub(*b).map(Value::Int).ok_or_else(overflow),
        [Value::Uint(a), Value::Uint(b)] => a.checked_sub(*b).map(Value::Uint).ok_or_else(uint_overflow),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => {
            a.checked_sub(*b).map(Value::Duration).ok_or_else(|| EvalError::new("duration overflow"))
        }
        [Value::Timestamp(at), Value::Duration(by)] => {
            at.plus(-i128::from(*by)).map(Value::Timestamp).ok_or_else(time::out_of_range)
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            i64::try_from(a.nanos_since(b)).map(Value::Duration).map_err(|_| overflow())
        }
        _ => return None,
    })
}

fn contains<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    match args {
        [value, Value::List(list)] => {
            for item in list.iter() {
                let same = meter.visit().and(item).and_then(|item| value::equal(value, &item, meter));
                match same {
                    Ok(false) => {}
                    found => return Some(found.map(Value::Bool)),
                }
            }
            Some(Ok(Value::Bool(false)))
        }
        [key, Value::Map(map)] => Some(Ok(Value::Bool(map.contains(key)))),
        _ => None,
    }
}

/// The list index that a value stands for, if it is one.
fn position(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Int(int) => Some(*int),
        Value::Uint(uint) => i64::try_from(*uint).ok(),
        Value::Double(double) if double.fract() == 0.0 && double.abs() < 9.2e18 => Some(*double as i64),
        _ => None,
    }
}

fn index<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Value::List(list), index] => {
            let Some(at) = position(index) else { return Some(Err(no_position(index))) };
            let found = usize::try_from(at).ok().and_then(|at| list.get(at));
            Some(found.unwrap_or_else(|| Err(EvalError::new(format!("index out of bounds: {at}")))))
        }
        [Value::Map(map), key] => Some(map.get(key).unwrap_or_else(|| Err(EvalError::no_key(&shown(key))))),
        [Value::Optional(None), _] => Some(Ok(Value::Optional(None))),
        [Value::Optional(Some(inner)), _] => found(inner, &args[1]),
        [_, key] => Some(Err(EvalError::no_key(&shown(key)))),
        _ => None,
    }
}

fn no_position(index: &Value<'_>) -> EvalError {
    match index {
        Value::Double(double) => EvalError::new(format!("unsupported index value {double} in list")),
        _ => EvalError::new(format!("unsupported index type '{}' in list", index.type_name())),
    }
}

fn optional_index<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Value::Optional(None), _] => Some(Ok(Value::Optional(None))),
        [Value::Optional(Some(inner)), key] => found(inner, key),
        [container, key] => found(container, key),
        _ => None,
    }
}

/// The value of a container at a key or an index, as an optional.
fn found<'a>(container: &Value<'a>, key: &Value<'a>) -> Option<Outcome<'a>> {
    let value = match container {
        Value::List(list) => match position(key) {
            Some(at) => usize::try_from(at).ok().and_then(|at| list.get(at)),
            None => return Some(Err(no_position(key))),
        },
        Value::Map(map) => map.get(key),
        _ => None,
    };
    Some(value.transpose().map(Value::optional))
}

/// A key as messages show it.
pub(crate) fn shown(key: &Value<'_>) -> String {
    match key {
        Value::String(text) => (**text).to_owned(),
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => uint.to_string(),
        _ => key.type_name().to_owned(),
    }
}
