//! The request policy of a device capacity that several claims can share.

use crate::builtin::pods::device::each_once;
use crate::builtin::rules::field::Field;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;

const VALUES_MAX: usize = 10;

/// Validates a capacity of a device that only one claim can have.
pub(super) fn validate_unshared(capacity: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = capacity.field("requestPolicy");
    if !policy.is_absent() {
        errors.push(policy.forbidden("allowMultipleAllocations must be true"));
    }
}

/// Validates a capacity of a device that several claims can share.
pub(super) fn validate_shared(capacity: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = capacity.field("requestPolicy");
    if policy.is_absent() {
        return;
    }
    let (values, range, default) = (policy.field("validValues"), policy.field("validRange"), policy.field("default"));
    match (values.is_empty(), range.is_absent()) {
        (false, false) => {
            let why = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            errors.push(policy.forbidden(why));
        }
        (false, true) if default.is_absent() => errors.push(default.required("required when validValues is defined")),
        (true, false) if default.is_absent() => errors.push(default.required("required when validRange is defined")),
        (false, true) => validate_values(&values, &capacity.field("value"), &default, errors),
        (true, false) => validate_range(&range, &capacity.field("value"), &default, errors),
        (true, true) => {}
    }
}

fn quantity(field: &Field<'_>) -> Option<Quantity> {
    Quantity::parse(field.text()).ok()
}

/// Whether one quantity is greater than another; false if one is absent.
fn is_greater(a: &Field<'_>, b: &Field<'_>) -> bool {
    matches!((quantity(a), quantity(b)), (Some(a), Some(b)) if a > b)
}

fn validate_values(values: &Field<'_>, most: &Field<'_>, default: &Field<'_>, errors: &mut Vec<Error>) {
    let all: Vec<Field<'_>> = values.items().collect();
    for pair in all.windows(2).filter(|pair| is_greater(&pair[0], &pair[1])) {
        errors.push(pair[1].invalid("values must be sorted in ascending order"));
    }
    each_once(
        values,
        VALUES_MAX,
        |value| Value::from(value.text()),
        errors,
        |value, errors| {
            if is_greater(value, most) {
                errors.push(value.invalid(format!("option is larger than capacity value: {}", most.text())));
            }
        },
    );
    if all.iter().all(|value| quantity(value) != quantity(default)) {
        let why = "default value is not valid according to the requestPolicy";
        errors.push(Error::invalid(&values.path, default.text(), why));
    }
}

fn validate_range(range: &Field<'_>, most: &Field<'_>, default: &Field<'_>, errors: &mut Vec<Error>) {
    let (min, max) = (range.field("min"), range.field("max"));
    if min.is_absent() {
        return errors.push(min.required("required when validRange is defined"));
    }
    let mut compare = |a: &Field<'_>, b: &Field<'_>, field: &Field<'_>, shown: &Field<'_>, what: &str| {
        if is_greater(a, b) {
            let other = if shown.value == a.value { b } else { a };
            errors.push(Error::invalid(&field.path, shown.text(), format!("{what}: {}", other.text())));
        }
    };
    compare(&min, most, &min, &min, "min is larger than capacity value");
    compare(&min, default, &min, default, "default is less than min");
    compare(&min, &max, &max, &min, "min is larger than max");
    compare(&max, most, &max, &max, "max is larger than capacity value");
    compare(default, &max, &max, default, "default is more than max");
    validate_step(&range.field("step"), (&min, &max), most, default, errors);
}

/// The default and the maximum must be the minimum plus a multiple of the step.
fn validate_step(
    step: &Field<'_>,
    (min, max): (&Field<'_>, &Field<'_>),
    most: &Field<'_>,
    default: &Field<'_>,
    errors: &mut Vec<Error>,
) {
    let (Some(size), Some(least), Some(all)) = (quantity(step), quantity(min), quantity(most)) else { return };
    let first = least.plus(size);
    if first > all {
        let why = format!("one step {first} is larger than capacity value: {}", most.text());
        errors.push(step.invalid(why));
    }
    for field in [default, max] {
        let Some(value) = quantity(field) else { continue };
        let rest = value.to_whole().wrapping_sub(least.to_whole()).checked_rem(size.to_whole());
        if rest != Some(0) {
            let why = format!("value is not a multiple of a given step ({}) from ({})", step.text(), min.text());
            errors.push(Error::invalid(&step.path, field.text(), why));
        }
    }
}
