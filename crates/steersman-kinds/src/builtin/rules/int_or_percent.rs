//! Values that are a number or a percentage: `3`, `25%`.

use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use steersman_machinery::Value;
use steersman_machinery::field::Error;

/// The value must be a number that is not negative, or a percentage.
pub fn validate(place: &Place<'_>, faults: &mut Vec<Error>) {
    match place.value {
        Value::String(text) => faults.extend(rules::percentage(text).into_iter().map(|fault| place.invalid(fault))),
        _ => rules::not_negative(place, faults),
    }
}

/// A percentage must not be above 100%.
pub fn at_most_all(place: &Place<'_>, faults: &mut Vec<Error>) {
    if percent(place.value).is_some_and(|percent| percent > 100) {
        faults.push(place.invalid("must not be greater than 100%"));
    }
}

/// Whether the value is zero.
pub fn is_zero(value: &Value) -> bool {
    percent(value).or(value.as_i64()).unwrap_or(0) == 0
}

fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}
