//! Equality and order of values.

use crate::checking::decl::ListKind;
use crate::checking::decl::{DeclType, Shape};
use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::value::{Fields, Items, List, Map, Object, Opaque, Value};
use std::cmp::Ordering;
use steersman_machinery::Value as Json;

/// Whether two values are equal. Numbers are compared across their types; values of different types differ.
pub(crate) fn equal<'a>(one: &Value<'a>, other: &Value<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    Ok(match (one, other) {
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::List(a), Value::List(b)) => equal_lists(a, b, meter)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(a, b, meter)?,
        (Value::Null, Value::Null) => true,
        (Value::Object(a), Value::Object(b)) => equal_objects(a, b, meter)?,
        (Value::Opaque(a), Value::Opaque(b)) => equal_opaque(a, b),
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => {
            meter.enter()?;
            let same = equal(a, b, meter);
            meter.leave();
            same?
        }
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare(one, other) == Some(Ordering::Equal)
        }
        _ => false,
    })
}

fn equal_lists<'a>(one: &List<'a>, other: &List<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    if one.len() != other.len() {
        return Ok(false);
    }
    let kind = match one.decl.or(other.decl).map(|decl| &decl.shape) {
        Some(Shape::List { kind, .. }) => kind,
        _ => &ListKind::Atomic,
    };
    meter.enter()?;
    let same = match kind {
        ListKind::Atomic => equal_in_order(one, other, meter),
        // The order of a set is ignored, and so is that of a list whose items have keys.
        ListKind::Map(_) | ListKind::Set => equal_in_any_order(one, other, meter),
    };
    meter.leave();
    same
}

fn equal_in_order<'a>(one: &List<'a>, other: &List<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    if let (Items::Json(a), Items::Json(b), None, None) = (&one.items, &other.items, one.decl, other.decl) {
        return equal_trees(a.iter().zip(b.iter()), meter);
    }
    for (a, b) in one.iter().zip(other.iter()) {
        meter.visit()?;
        if !equal(&a?, &b?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_in_any_order<'a>(one: &List<'a>, other: &List<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    let others: Vec<Value<'a>> = other.iter().collect::<Result<_, _>>()?;
    for a in one.iter() {
        let a = a?;
        let mut found = false;
        for b in &others {
            meter.visit()?;
            if equal(&a, b, meter)? {
                found = true;
                break;
            }
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_trees<'a>(pairs: impl Iterator<Item = (&'a Json, &'a Json)>, meter: &mut Meter) -> Result<bool, EvalError> {
    for (a, b) in pairs {
        meter.visit()?;
        if !equal(&Value::json(a), &Value::json(b), meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps<'a>(one: &Map<'a>, other: &Map<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    if one.len() != other.len() {
        return Ok(false);
    }
    meter.enter()?;
    let mut same = Ok(true);
    for (key, value) in one.iter() {
        same = meter.visit().and_then(|()| match other.get(&key) {
            Some(found) => equal(&value?, &found?, meter),
            None => Ok(false),
        });
        if !matches!(same, Ok(true)) {
            break;
        }
    }
    meter.leave();
    same
}

fn equal_objects<'a>(one: &Object<'a>, other: &Object<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    match (&one.0, &other.0) {
        (Fields::Json(a, decl), Fields::Json(b, _)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            meter.enter()?;
            let mut same = Ok(true);
            for (key, value) in a.iter() {
                same = meter.visit().and_then(|()| match b.get(key) {
                    Some(found) => equal_declared(value, found, decl.by_key(key).map(|field| &*field.value), meter),
                    None => Ok(false),
                });
                if !matches!(same, Ok(true)) {
                    break;
                }
            }
            meter.leave();
            same
        }
        (Fields::Values(decl, a), Fields::Values(other_decl, b)) => {
            if decl.name() != other_decl.name() || a.len() != b.len() {
                return Ok(false);
            }
            meter.enter()?;
            let mut same = Ok(true);
            for ((key, value), (other_key, other_value)) in a.iter().zip(b.iter()) {
                same = if key == other_key { equal(value, other_value, meter) } else { Ok(false) };
                if !matches!(same, Ok(true)) {
                    break;
                }
            }
            meter.leave();
            same
        }
        _ => Ok(false),
    }
}

fn equal_declared<'a>(
    one: &'a Json,
    other: &'a Json,
    decl: Option<&'a DeclType>,
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    match decl {
        Some(decl) => equal(&Value::declared(one, decl)?, &Value::declared(other, decl)?, meter),
        None => equal(&Value::json(one), &Value::json(other), meter),
    }
}

fn equal_opaque(one: &Opaque<'_>, other: &Opaque<'_>) -> bool {
    match (one, other) {
        (Opaque::Authorizer(a), Opaque::Authorizer(b)) => a.is_same(b),
        (Opaque::Cidr(a), Opaque::Cidr(b)) => a == b,
        (Opaque::Decision(a), Opaque::Decision(b)) => a == b,
        (Opaque::Format(a), Opaque::Format(b)) => std::ptr::eq(*a, *b),
        (Opaque::Ip(a), Opaque::Ip(b)) => a == b,
        (Opaque::Quantity(a), Opaque::Quantity(b)) => a.cmp(b).is_eq(),
        (Opaque::Semver(a), Opaque::Semver(b)) => a.cmp(b).is_eq(),
        (Opaque::Url(a), Opaque::Url(b)) => a == b,
        _ => false,
    }
}

/// The order of two values, if they can be compared.
pub(crate) fn compare(one: &Value<'_>, other: &Value<'_>) -> Option<Ordering> {
    match (one, other) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => compare_int(*b, *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => compare_uint(*b, *a).map(Ordering::reverse),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Double(b)) => compare_int(*a, *b),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::String(a), Value::String(b)) => Some((**a).cmp(&**b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Double(b)) => compare_uint(*a, *b),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Compares an integer with a double, as upstream does: as doubles, so that neighbors from 2^53 on may be equal.
fn compare_int(int: i64, double: f64) -> Option<Ordering> {
    (int as f64).partial_cmp(&double)
}

fn compare_uint(uint: u64, double: f64) -> Option<Ordering> {
    (uint as f64).partial_cmp(&double)
}
