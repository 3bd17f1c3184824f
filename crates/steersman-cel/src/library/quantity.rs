//! Quantities such as `1Gi` and `500m`.
//!
//! The amount is that of apimachinery. Beside it is kept whether upstream holds it as a whole number: it does not look
//! whether a number with a fraction (`1.0`, `1000m`) happens to be whole.

use crate::error::EvalError;
use crate::library::{Implementation, Outcome};
use crate::meter::Meter;
use crate::value::{Opaque, Value};
use std::cmp::Ordering;
use steersman_machinery::quantity;

const UNIT: i128 = 1_000_000_000;

/// An amount.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    has_fraction: bool,
}

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

fn parse(text: &str) -> Result<Quantity, EvalError> {
    let amount = quantity::Quantity::parse(text).map_err(|error| EvalError::new(error.to_string()))?;
    let unsigned = text.trim_start_matches(['+', '-']);
    let end = unsigned.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let digits = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    // By how many digits the suffix moves the point; one of powers of two does not.
    let shift = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse::<i64>().ok()).unwrap_or(0),
    };
    let has_fraction = shift < i64::try_from(digits).unwrap_or(i64::MAX);
    Ok(Quantity { nanos: amount.nanos(), has_fraction })
}

impl Quantity {
    fn whole(&self) -> Option<i64> {
        let is_whole = !self.has_fraction && self.nanos % UNIT == 0;
        i64::try_from(self.nanos / UNIT).ok().filter(|_| is_whole)
    }

    pub(crate) fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
