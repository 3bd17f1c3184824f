//! The request policy of a device capacity that several claims can share.

use crate::builtin::pods::device::each_once;
use crate::builtin::rules::place::Place;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;

const VALUES_MAX: usize = 10;

pub(super) fn validate(capacity: &Place<'_>, is_shared: bool, faults: &mut Vec<Error>) {
    let policy = capacity.field("requestPolicy");
    if policy.is_absent() {
        return;
    }
    if !is_shared {
        return faults.push(policy.forbidden("allowMultipleAllocations must be true"));
    }
    let (values, range, default) = (policy.field("validValues"), policy.field("validRange"), policy.field("default"));
    match (values.is_empty(), range.is_absent()) {
        (false, false) => {
            let why = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            faults.push(policy.forbidden(why));
        }
        (false, true) if default.is_absent() => faults.push(default.required("required when validValues is defined")),
        (true, false) if default.is_absent() => faults.push(default.required("required when validRange is defined")),
        (false, true) => validate_values(&values, &capacity.field("value"), &default, faults),
        (true, false) => validate_range(&range, &capacity.field("value"), &default, faults),
        (true, true) => {}
    }
}

fn quantity(place: &Place<'_>) -> Option<Quantity> {
    Quantity::parse(place.text()).ok()
}

/// Whether one quantity is greater than another; false if one is absent.
fn is_greater(a: &Place<'_>, b: &Place<'_>) -> bool {
    matches!((quantity(a), quantity(b)), (Some(a), Some(b)) if a > b)
}

fn validate_values(values: &Place<'_>, most: &Place<'_>, default: &Place<'_>, faults: &mut Vec<Error>) {
    let all: Vec<Place<'_>> = values.items().collect();
    for pair in all.windows(2).filter(|pair| is_greater(&pair[0], &pair[1])) {
        faults.push(pair[1].invalid("values must be sorted in ascending order"));
    }
    each_once(
        values,
        VALUES_MAX,
        |value| Value::from(value.text()),
        faults,
        |value, faults| {
            if is_greater(value, most) {
                faults.push(value.invalid(format!("option is larger than capacity value: {}", most.text())));
            }
        },
    );
    if all.iter().all(|value| quantity(value) != quantity(default)) {
        let why = "default value is not valid according to the requestPolicy";
        faults.push(Error::invalid(&values.path, default.text(), why));
    }
}

fn validate_range(range: &Place<'_>, most: &Place<'_>, default: &Place<'_>, faults: &mut Vec<Error>) {
    let (min, max) = (range.field("min"), range.field("max"));
    if min.is_absent() {
        return faults.push(min.required("required when validRange is defined"));
    }
    let mut compare = |a: &Place<'_>, b: &Place<'_>, place: &Place<'_>, shown: &Place<'_>, what: &str| {
        if is_greater(a, b) {
            let other = if shown.value == a.value { b } else { a };
            faults.push(Error::invalid(&place.path, shown.text(), format!("{what}: {}", other.text())));
        }
    };
    compare(&min, most, &min, &min, "min is larger than capacity value");
    compare(&min, default, &min, default, "default is less than min");
    compare(&min, &max, &max, &min, "min is larger than max");
    compare(&max, most, &max, &max, "max is larger than capacity value");
    compare(default, &max, &max, default, "default is more than max");
    validate_step(&range.field("step"), (&min, &max), most, default, faults);
}

/// The default and the maximum must be the minimum plus a multiple of the step.
fn validate_step(
    step: &Place<'_>,
    (min, max): (&Place<'_>, &Place<'_>),
    most: &Place<'_>,
    default: &Place<'_>,
    faults: &mut Vec<Error>,
) {
    let (Some(size), Some(least), Some(all)) = (quantity(step), quantity(min), quantity(most)) else { return };
    let first = least.plus(size);
    if first > all {
        let why = format!("one step {first} is larger than capacity value: {}", most.text());
        faults.push(step.invalid(why));
    }
    for place in [default, max] {
        let Some(value) = quantity(place) else { continue };
        let rest = value.to_whole().wrapping_sub(least.to_whole()).checked_rem(size.to_whole());
        if rest != Some(0) {
            let why = format!("value is not a multiple of a given step ({}) from ({})", step.text(), min.text());
            faults.push(Error::invalid(&step.path, place.text(), why));
        }
    }
}
