//! The kinds of resource.k8s.io: the devices of nodes, and the claims of pods to devices. Expressions that select
//! devices are stored unchanged; whether they compile is not checked.

pub mod claim;
pub mod claim_template;
pub mod class;
pub mod slice;

mod capacity;
mod request;

use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use crate::builtin::storage::csi::driver_name;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::{Value, name};

const GROUP: &str = "resource.k8s.io";

const CONFIG_MAX: usize = 32;
const SELECTORS_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const POOL_LENGTH_MAX: usize = 253;
const IDENTIFIER_LENGTH_MAX: usize = 32;

/// A list must not be too long, and each item is validated. The items of a list that is too long are not.
fn each<'a>(
    list: &Place<'a>,
    most: usize,
    faults: &mut Vec<Error>,
    mut check: impl FnMut(&Place<'a>, &mut Vec<Error>),
) {
    let count = list.items().count();
    if count > most {
        return faults.push(Error::too_many(&list.path, count, most));
    }
    list.items().for_each(|item| check(&item, faults));
}

/// Like [`each`], where no two items may have the same key.
fn each_once<'a>(
    list: &Place<'a>,
    most: usize,
    key: fn(&Place<'a>) -> Value,
    faults: &mut Vec<Error>,
    check: impl FnMut(&Place<'a>, &mut Vec<Error>),
) {
    each(list, most, faults, check);
    if list.items().count() > most {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let key = key(&item);
        if !seen.insert(key.to_string()) {
            faults.push(Error::duplicate(&item.path, key));
        }
    }
}

/// The key of items that have unique names.
fn name_of(item: &Place<'_>) -> Value {
    item.field("name").text().into()
}

/// The key of items that are unique strings.
fn itself(item: &Place<'_>) -> Value {
    item.value.clone()
}

/// The string must be a DNS label. The error prints an absent field as empty.
fn label(place: &Place<'_>, faults: &mut Vec<Error>) {
    let wrong = name::dns1123_label(place.text()).into_iter();
    faults.extend(wrong.map(|fault| Error::invalid(&place.path, place.text(), fault)));
}

/// The rules of a list of device selectors.
fn selectors(list: &Place<'_>, faults: &mut Vec<Error>) {
    each(list, SELECTORS_MAX, faults, |selector, faults| {
        let cel = selector.field("cel");
        let expression = cel.field("expression");
        if cel.is_absent() {
            faults.push(cel.required(""));
        } else if expression.text().len() > EXPRESSION_BYTES_MAX {
            faults.push(Error::too_long(&expression.path, EXPRESSION_BYTES_MAX));
        }
    });
}

/// The rules of one configuration of a driver.
fn configuration(config: &Place<'_>, faults: &mut Vec<Error>) {
    let opaque = config.field("opaque");
    if opaque.is_absent() {
        return faults.push(opaque.required(""));
    }
    driver_name(&opaque.field("driver"), faults);
    json_object(&opaque.field("parameters"), faults);
}

/// The value must be an object, and not too large.
fn json_object(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.is_absent() {
        faults.push(place.required(""));
    } else if place.value.to_string().len() > PARAMETERS_BYTES_MAX {
        faults.push(Error::too_long(&place.path, PARAMETERS_BYTES_MAX));
    } else if !place.value.is_object() {
        faults.push(Error::invalid(&place.path, "<value omitted>", "must be a valid JSON object"));
    }
}

/// The string must be the name of a pool, which may have several parts.
fn pool_name(pool: &Place<'_>, faults: &mut Vec<Error>) {
    if pool.is_empty() {
        return rules::required(pool, faults);
    }
    if pool.text().len() > POOL_LENGTH_MAX {
        faults.push(Error::too_long(&pool.path, POOL_LENGTH_MAX));
    }
    for part in pool.text().split('/') {
        let wrong = name::dns1123_subdomain(part).into_iter();
        faults.extend(wrong.map(|fault| Error::invalid(&pool.path, part, fault)));
    }
}

/// The errors of the name of an attribute or a capacity: an identifier, with or without the domain of a driver.
fn qualified(text: &str, place: &Place<'_>, faults: &mut Vec<Error>) {
    match text.split('/').collect::<Vec<&str>>().as_slice() {
        [identifier] => c_identifier(identifier, place, faults),
        [domain, identifier] => {
            let value = Value::from(*domain);
            match domain.is_empty() {
                true => faults.push(Error::invalid(&place.path, "", "the domain must not be empty")),
                false => driver_name(&Place { path: place.path.clone(), value: &value }, faults),
            }
            match identifier.is_empty() {
                true => faults.push(Error::invalid(&place.path, "", "the name must not be empty")),
                false => c_identifier(identifier, place, faults),
            }
        }
        // Upstream accepts these.
        _ => {}
    }
}

/// The string must be a name with a domain.
fn fully_qualified(place: &Place<'_>, faults: &mut Vec<Error>) {
    qualified(place.text(), place, faults);
    if !place.text().contains('/') {
        faults.push(place.invalid("a fully qualified name must be a domain and a name separated by a slash"));
    }
}

fn c_identifier(text: &str, place: &Place<'_>, faults: &mut Vec<Error>) {
    if text.len() > IDENTIFIER_LENGTH_MAX {
        faults.push(Error::too_long(&place.path, IDENTIFIER_LENGTH_MAX));
    }
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if text.is_empty() || !is_word || text.starts_with(|first: char| first.is_ascii_digit()) {
        let why = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
        faults.push(Error::invalid(&place.path, text, why));
    }
}

/// The rules of the conditions that a pod waits for before it is bound, in a device or in an allocation result.
fn binding_conditions(place: &Place<'_>, faults: &mut Vec<Error>) {
    const CONDITIONS_MAX: usize = 4;
    let (conditions, failures) = (place.field("bindingConditions"), place.field("bindingFailureConditions"));
    for list in [&conditions, &failures] {
        each_once(list, CONDITIONS_MAX, itself, faults, |item, faults| rules::named(item, name::qualified, faults));
    }
    let known: BTreeSet<&str> = conditions.items().map(|one| one.text()).collect();
    for failure in failures.items().filter(|failure| known.contains(failure.text())) {
        faults.push(failure.invalid("bindingFailureConditions must not overlap with bindingConditions"));
    }
    match (conditions.is_empty(), failures.is_empty()) {
        (true, false) => {
            faults.push(conditions.invalid("bindingConditions are required to use bindingFailureConditions"));
        }
        (false, true) => {
            faults.push(failures.invalid("bindingFailureConditions are required to use bindingConditions"));
        }
        _ => {}
    }
}
