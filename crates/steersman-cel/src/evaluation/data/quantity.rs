//! Quantities such as `1Gi` and `500m`.
//!
//! The amount is that of apimachinery. It also records whether upstream represents it as an integer: upstream does not
//! check whether a number with a fraction (`1.0`, `1000m`) happens to be whole, and represents very large ones as
//! decimals.

use crate::error::EvalError;
use std::cmp::Ordering;
use steersman_machinery::quantity;

pub(crate) const UNIT: i128 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    pub(crate) nanos: i128,
    pub(crate) has_fraction: bool,
}

pub(crate) fn parse(text: &str) -> Result<Quantity, EvalError> {
    let amount = quantity::Quantity::parse(text).map_err(|error| EvalError::new(error.to_string()))?;
    let unsigned = text.trim_start_matches(['+', '-']);
    let end = unsigned.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let digits = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    // The number of digits by which the suffix moves the decimal point; suffixes of powers of two do not.
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
    let whole_digits = number.split('.').next().map_or(0, |whole| whole.trim_start_matches('0').len());
    // Numbers that exceed a 64-bit integer are represented as decimals.
    let is_large = 0 < whole_digits && 19 < shift.saturating_add(i64::try_from(whole_digits).unwrap_or(i64::MAX));
    let is_beyond = suffix.is_empty() && number.parse::<i128>().is_ok_and(|whole| i64::try_from(whole).is_err());
    let has_fraction = shift < i64::try_from(digits).unwrap_or(i64::MAX) || is_large || is_beyond;
    Ok(Quantity { nanos: amount.nanos(), has_fraction })
}

impl Quantity {
    pub(crate) fn whole(&self) -> Option<i64> {
        let is_whole = !self.has_fraction && self.nanos % UNIT == 0;
        i64::try_from(self.nanos / UNIT).ok().filter(|_| is_whole)
    }

    pub(crate) fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
