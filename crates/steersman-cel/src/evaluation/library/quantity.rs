//! Functions of quantities.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::data::quantity::{Quantity, UNIT, parse};
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{Opaque, Value};

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "add" => |_, args| sum(args, 1),
        "asApproximateFloat" => |_, args| of(args, |quantity| Ok(Value::Double(quantity.nanos as f64 / UNIT as f64))),
        "asInteger" => |_, args| {
            of(args, |quantity| {
                let whole = quantity.whole().map(Value::Int);
                whole.ok_or_else(|| EvalError::new("cannot convert value to integer"))
            })
        },
        "isInteger" => |_, args| of(args, |quantity| Ok(Value::Bool(quantity.whole().is_some()))),
        "isQuantity" => |_, args| Some(Ok(Value::Bool(parse(args.first()?.as_str()?).is_ok()))),
        "quantity" => |_: &mut Meter, args| {
            Some(parse(args.first()?.as_str()?).map(|amount| Value::Opaque(Opaque::Quantity(amount))))
        },
        "sign" => |_, args| of(args, |quantity| Ok(Value::Int(quantity.nanos.signum() as i64))),
        "sub" => |_, args| sum(args, -1),
        _ => return None,
    })
}

fn of<'a>(args: &[Value<'a>], what: fn(&Quantity) -> Outcome<'a>) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Quantity(quantity))] => Some(what(quantity)),
        _ => None,
    }
}

fn sum<'a>(args: &[Value<'a>], sign: i128) -> Option<Outcome<'a>> {
    let [Value::Opaque(Opaque::Quantity(one)), other] = args else { return None };
    let other = match other {
        Value::Opaque(Opaque::Quantity(other)) => *other,
        Value::Int(int) => Quantity { nanos: i128::from(*int) * UNIT, has_fraction: false },
        _ => return None,
    };
    Some(Ok(Value::Opaque(Opaque::Quantity(Quantity {
        nanos: one.nanos.saturating_add(sign * other.nanos),
        has_fraction: one.has_fraction || other.has_fraction,
    }))))
}
