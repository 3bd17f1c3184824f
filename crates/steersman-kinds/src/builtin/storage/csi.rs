//! The kinds that configure and locate drivers of the Container Storage Interface.

use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use steersman_machinery::field::Error;
use steersman_machinery::name;

pub mod capacity;
pub mod driver;
pub mod node;

const NAME_LENGTH_MAX: usize = 63;

/// The string must be the name of a driver; its case is ignored.
pub fn driver_name(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.is_empty() {
        return rules::required(place, faults);
    }
    if place.text().len() > NAME_LENGTH_MAX {
        faults.push(Error::too_long(&place.path, NAME_LENGTH_MAX));
    }
    let lower = place.text().to_lowercase();
    faults.extend(name::dns1123_subdomain(&lower).into_iter().map(|fault| place.invalid(fault)));
}
