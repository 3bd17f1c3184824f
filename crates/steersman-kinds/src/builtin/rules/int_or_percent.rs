//! Values that are a number or a percentage: `3`, `25%`.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use steersman_machinery::Value;
use steersman_machinery::field::Error;

/// The value must be a number that is not negative, or a percentage.
pub fn validate(field: &Field<'_>, errors: &mut Vec<Error>) {
    match field.value {
        Value::String(text) => errors.extend(rules::percentage(text).into_iter().map(|detail| field.invalid(detail))),
        _ => rules::not_negative(field, errors),
    }
}

/// A percentage must not be above 100%.
pub fn at_most_all(field: &Field<'_>, errors: &mut Vec<Error>) {
    if percent(field.value).is_some_and(|percent| percent > 100) {
        errors.push(field.invalid("must not be greater than 100%"));
    }
}

/// Whether the value is zero.
pub fn is_zero(value: &Value) -> bool {
    percent(value).or(value.as_i64()).unwrap_or(0) == 0
}

fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}
