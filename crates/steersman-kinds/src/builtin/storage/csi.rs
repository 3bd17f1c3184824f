//! The kinds that configure and locate drivers of the Container Storage Interface.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use steersman_machinery::field::Error;
use steersman_machinery::name;

pub mod capacity;
pub mod driver;
pub mod node;

const NAME_LENGTH_MAX: usize = 63;

/// The string must be the name of a driver; its case is ignored.
pub fn driver_name(field: &Field<'_>, errors: &mut Vec<Error>) {
    if field.is_empty() {
        return rules::required(field, errors);
    }
    if field.text().len() > NAME_LENGTH_MAX {
        errors.push(Error::too_long(&field.path, NAME_LENGTH_MAX));
    }
    let lower = field.text().to_lowercase();
    errors.extend(name::dns1123_subdomain(&lower).into_iter().map(|detail| field.invalid(detail)));
}
