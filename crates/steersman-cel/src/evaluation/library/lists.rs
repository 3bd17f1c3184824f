//! List functions, including sets.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::library::operators;
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{self, List, Value};
use std::cmp::Ordering;

/// The maximum size of the result of `lists.range`.
const RANGE_MAX: i64 = 10_000_000;
/// The work of a value in a new list.
const ITEM: usize = 8;

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "distinct" => |meter, args| one(args).map(|list| distinct(meter, list)),
        "first" => |_, args| one(args).map(|list| list.get(0).transpose().map(Value::optional)),
        "flatten" => |meter, args| {
            let depth = match args {
                [_] => 1,
                [_, Value::Int(depth)] => *depth,
                _ => return None,
            };
            let Some(Value::List(list)) = args.first() else { return None };
            if depth < 0 {
                return Some(Err(EvalError::new("level must be non-negative")));
            }
            let mut out = Vec::new();
            Some(flatten(meter, list, depth, &mut out).map(|()| Value::list(out)))
        },
        "isSorted" => |meter, args| one(args).map(|list| is_sorted(meter, list)),
        "last" => |_, args| {
            one(args).map(|list| list.len().checked_sub(1).and_then(|at| list.get(at)).transpose().map(Value::optional))
        },
        "lists.range" => range,
        "max" => |meter, args| one(args).map(|list| extreme(meter, list, "max", Ordering::is_gt)),
        "min" => |meter, args| one(args).map(|list| extreme(meter, list, "min", Ordering::is_lt)),
        "reverse" => |meter, args| {
            one(args).map(|list| {
                meter.work(list.len() * ITEM)?;
                let mut items = list.iter().collect::<Result<Vec<_>, _>>()?;
                items.reverse();
                Ok(Value::list(items))
            })
        },
        "sets.contains" => |meter, args| two(args).map(|(one, other)| contains_all(meter, one, other).map(Value::Bool)),
        "sets.equivalent" => |meter, args| {
            two(args).map(|(one, other)| {
                Ok(Value::Bool(contains_all(meter, one, other)? && contains_all(meter, other, one)?))
            })
        },
        "sets.intersects" => |meter, args| two(args).map(|(one, other)| intersects(meter, one, other)),
        "slice" => slice,
        "sort" => |meter, args| one(args).map(|list| sort_by(meter, list, list)),
        "sum" => |meter, args| one(args).map(|list| sum(meter, list)),
        _ => return None,
    })
}

fn one<'v, 'a>(args: &'v [Value<'a>]) -> Option<&'v List<'a>> {
    match args {
        [Value::List(list)] => Some(list),
        _ => None,
    }
}

fn two<'v, 'a>(args: &'v [Value<'a>]) -> Option<(&'v List<'a>, &'v List<'a>)> {
    match args {
        [Value::List(one), Value::List(other)] => Some((one, other)),
        _ => None,
    }
}

fn distinct<'a>(meter: &mut Meter, list: &List<'a>) -> Outcome<'a> {
    let mut out: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        if !is_among(meter, &out, &item)? {
            meter.work(ITEM)?;
            out.push(item);
        }
    }
    Ok(Value::list(out))
}

fn is_among<'a>(meter: &mut Meter, items: &[Value<'a>], value: &Value<'a>) -> Result<bool, EvalError> {
    for item in items {
        meter.visit()?;
        if value::equal(item, value, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn flatten<'a>(meter: &mut Meter, list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    meter.enter()?;
    for item in list.iter() {
        match item? {
            Value::List(inner) if depth > 0 => flatten(meter, &inner, depth - 1, out)?,
            item => {
                meter.work(ITEM)?;
                out.push(item);
            }
        }
    }
    meter.leave();
    Ok(())
}

fn incomparable(value: &Value<'_>) -> EvalError {
    EvalError::new(format!("no such overload: cannot compare values of type {}", value.type_name()))
}

fn is_sorted<'a>(meter: &mut Meter, list: &List<'a>) -> Outcome<'a> {
    let mut previous: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        meter.visit()?;
        if let Some(previous) = &previous {
            match value::compare(previous, &item) {
                Some(Ordering::Greater) => return Ok(Value::Bool(false)),
                Some(_) => {}
                None => return Err(incomparable(&item)),
            }
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn extreme<'a>(meter: &mut Meter, list: &List<'a>, name: &str, wanted: fn(Ordering) -> bool) -> Outcome<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        meter.visit()?;
        let is_better = match &best {
            None => true,
            Some(best) => wanted(value::compare(&item, best).ok_or_else(|| incomparable(&item))?),
        };
        if is_better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn sum<'a>(meter: &mut Meter, list: &List<'a>) -> Outcome<'a> {
    let mut items = list.iter();
    // Without an item the type of the sum is unknown; zero compares equal in every numeric type.
    let Some(first) = items.next() else { return Ok(Value::Int(0)) };
    let mut sum = first?;
    for item in items {
        meter.visit()?;
        let add = operators::add(meter, &[sum.clone(), item?]);
        sum = add.unwrap_or_else(|| Err(incomparable(&sum)))?;
    }
    Ok(sum)
}

/// An item of a list that contains several equal ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Occurrence {
    First,
    Last,
}

/// The index of the first or last item that equals the argument.
pub(super) fn index_of<'a>(meter: &mut Meter, args: &[Value<'a>], occurrence: Occurrence) -> Option<Outcome<'a>> {
    let [Value::List(list), wanted] = args else { return None };
    let mut found = -1;
    for (at, item) in list.iter().enumerate() {
        let same = meter.visit().and(item).and_then(|item| value::equal(&item, wanted, meter));
        match same {
            Ok(true) => {
                found = i64::try_from(at).unwrap_or(i64::MAX);
                if occurrence == Occurrence::First {
                    break;
                }
            }
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Value::Int(found)))
}

fn range<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let [Value::Int(count)] = args else { return None };
    // A negative count gives an empty list.
    let count = (*count).max(0);
    if count > RANGE_MAX {
        let message = format!("lists.range: size {count} exceeds maximum allowed ({RANGE_MAX})");
        return Some(Err(EvalError::new(message)));
    }
    let amount = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(ITEM);
    Some(meter.work(amount).map(|()| Value::list((0..count).map(Value::Int).collect())))
}

fn slice<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else { return None };
    let length = list.len();
    let bad = |why: String| Some(Err(EvalError::new(format!("cannot slice({start}, {end}), {why}"))));
    if *start < 0 || *end < 0 {
        return bad("negative indexes not supported".to_owned());
    }
    if start > end {
        return bad("start index must be less than or equal to end index".to_owned());
    }
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return bad(format!("list is length {length}"));
    };
    if length < to {
        return bad(format!("list is length {length}"));
    }
    if let Err(error) = meter.work((to - from) * ITEM) {
        return Some(Err(error));
    }
    Some((from..to).filter_map(|at| list.get(at)).collect::<Result<Vec<_>, _>>().map(Value::list))
}

/// A list sorted by its keys.
pub(crate) fn sort_by<'a>(meter: &mut Meter, list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    let length = list.len();
    // There are more comparisons than items, by a factor of the logarithm of their number.
    meter.work(length * (ITEM + length.checked_ilog2().unwrap_or(0) as usize))?;
    let mut items = Vec::with_capacity(length);
    for (item, key) in list.iter().zip(keys.iter()) {
        items.push((key?, item?));
    }
    if let Some((first, _)) = items.first() {
        if items.iter().any(|(key, _)| key.type_name() != first.type_name()) {
            return Err(EvalError::new("list elements must have the same type"));
        }
        if value::compare(first, first).is_none() && !matches!(first, Value::Double(_)) {
            return Err(EvalError::new("list elements must be comparable"));
        }
    }
    items.sort_by(|(one, _), (other, _)| value::compare(one, other).unwrap_or(Ordering::Equal));
    Ok(Value::list(items.into_iter().map(|(_, item)| item).collect()))
}

fn contains_all<'a>(meter: &mut Meter, one: &List<'a>, other: &List<'a>) -> Result<bool, EvalError> {
    let items = one.iter().collect::<Result<Vec<_>, _>>()?;
    for item in other.iter() {
        if !is_among(meter, &items, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'a>(meter: &mut Meter, one: &List<'a>, other: &List<'a>) -> Outcome<'a> {
    let items = one.iter().collect::<Result<Vec<_>, _>>()?;
    for item in other.iter() {
        if is_among(meter, &items, &item?)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
