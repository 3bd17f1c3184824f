//! The kinds of resource.k8s.io: the devices of nodes, and the claims of pods to devices.

pub mod claim;
pub mod claim_template;
pub mod class;
pub mod slice;

mod capacity;
pub(in crate::builtin) mod request;
mod selector;

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::storage::csi::driver_name;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::{Value, name};

const GROUP: &str = "resource.k8s.io";

const CONFIG_MAX: usize = 32;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const POOL_LENGTH_MAX: usize = 253;
const IDENTIFIER_LENGTH_MAX: usize = 32;

/// A list must not be too long, and each item is validated. The items of a list that is too long are not.
fn each<'a>(
    list: &Field<'a>,
    most: usize,
    errors: &mut Vec<Error>,
    mut check: impl FnMut(&Field<'a>, &mut Vec<Error>),
) {
    let count = list.items().count();
    if count > most {
        return errors.push(Error::too_many(&list.path, count, most));
    }
    list.items().for_each(|item| check(&item, errors));
}

/// Like [`each`], where no two items may have the same key.
fn each_once<'a>(
    list: &Field<'a>,
    most: usize,
    key: fn(&Field<'a>) -> Value,
    errors: &mut Vec<Error>,
    check: impl FnMut(&Field<'a>, &mut Vec<Error>),
) {
    each(list, most, errors, check);
    if list.items().count() > most {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let key = key(&item);
        if !seen.insert(key.to_string()) {
            errors.push(Error::duplicate(&item.path, key));
        }
    }
}

/// The key of items that have unique names.
fn name_of(item: &Field<'_>) -> Value {
    item.field("name").text().into()
}

/// The key of items that are unique strings.
fn itself(item: &Field<'_>) -> Value {
    item.value.clone()
}

/// The rules of one configuration of a driver.
pub(in crate::builtin) const CONFIGURATION: &[Rule] = &[Rule::new(
    "opaque",
    Check::Rules(&[Rule::new("driver", Check::By(driver_name)), Rule::new("parameters", Check::By(json_object))]),
)
.and_present("")];

/// The value must be an object, and not too large.
fn json_object(field: &Field<'_>, errors: &mut Vec<Error>) {
    if field.is_absent() {
        errors.push(field.required(""));
    } else if field.value.to_string().len() > PARAMETERS_BYTES_MAX {
        errors.push(Error::too_long(&field.path, PARAMETERS_BYTES_MAX));
    } else if !field.value.is_object() {
        errors.push(Error::invalid(&field.path, "<value omitted>", "must be a valid JSON object"));
    }
}

/// The string must be the name of a pool, which may have several parts.
fn pool_name(pool: &Field<'_>, errors: &mut Vec<Error>) {
    if pool.is_empty() {
        return rules::required(pool, errors);
    }
    if pool.text().len() > POOL_LENGTH_MAX {
        errors.push(Error::too_long(&pool.path, POOL_LENGTH_MAX));
    }
    for part in pool.text().split('/') {
        let wrong = name::dns1123_subdomain(part).into_iter();
        errors.extend(wrong.map(|detail| Error::invalid(&pool.path, part, detail)));
    }
}

/// The errors of the name of an attribute or a capacity: an identifier, with or without the domain of a driver.
fn qualified(text: &str, field: &Field<'_>, errors: &mut Vec<Error>) {
    match text.split('/').collect::<Vec<&str>>().as_slice() {
        [identifier] => c_identifier(identifier, field, errors),
        [domain, identifier] => {
            let value = Value::from(*domain);
            match domain.is_empty() {
                true => errors.push(Error::invalid(&field.path, "", "the domain must not be empty")),
                false => driver_name(&Field { path: field.path.clone(), value: &value }, errors),
            }
            match identifier.is_empty() {
                true => errors.push(Error::invalid(&field.path, "", "the name must not be empty")),
                false => c_identifier(identifier, field, errors),
            }
        }
        // Upstream accepts these.
        _ => {}
    }
}

/// The string must be a name with a domain.
fn fully_qualified(field: &Field<'_>, errors: &mut Vec<Error>) {
    qualified(field.text(), field, errors);
    if !field.text().contains('/') {
        errors.push(field.invalid("a fully qualified name must be a domain and a name separated by a slash"));
    }
}

fn c_identifier(text: &str, field: &Field<'_>, errors: &mut Vec<Error>) {
    if text.len() > IDENTIFIER_LENGTH_MAX {
        errors.push(Error::too_long(&field.path, IDENTIFIER_LENGTH_MAX));
    }
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if text.is_empty() || !is_word || text.starts_with(|first: char| first.is_ascii_digit()) {
        let why = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
        errors.push(Error::invalid(&field.path, text, why));
    }
}

/// The rules of the conditions that a pod waits for before it is bound, in a device or in an allocation result.
fn binding_conditions(field: &Field<'_>, errors: &mut Vec<Error>) {
    const CONDITIONS_MAX: usize = 4;
    let (conditions, failures) = (field.field("bindingConditions"), field.field("bindingFailureConditions"));
    for list in [&conditions, &failures] {
        each_once(list, CONDITIONS_MAX, itself, errors, |item, errors| rules::named(item, name::qualified, errors));
    }
    let known: BTreeSet<&str> = conditions.items().map(|one| one.text()).collect();
    for failure in failures.items().filter(|failure| known.contains(failure.text())) {
        errors.push(failure.invalid("bindingFailureConditions must not overlap with bindingConditions"));
    }
    match (conditions.is_empty(), failures.is_empty()) {
        (true, false) => {
            errors.push(conditions.invalid("bindingConditions are required to use bindingFailureConditions"));
        }
        (false, true) => {
            errors.push(failures.invalid("bindingFailureConditions are required to use bindingConditions"));
        }
        _ => {}
    }
}
