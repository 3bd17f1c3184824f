//! The internal form of a quantity in Go: a number and a power of ten, or a big decimal, and sometimes the parsed text.
//!
//! Follows `ParseQuantity` of `k8s.io/apimachinery/pkg/api/resource`, for texts in the form that a server writes.

use std::fmt::{self, Write};

const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// The internal form of a quantity.
struct Inside<'a> {
    value: i64,
    scale: i32,
    /// The amount in billionths, if it does not fit into `value`.
    big: Option<u128>,
    is_negative: bool,
    text: &'a str,
    format: &'static str,
}

/// Prints the internal form of a quantity.
pub(crate) fn print(to: &mut impl Write, text: &str) -> fmt::Result {
    let Inside { value, scale, big, is_negative, text, format } = inside(text);
    write!(
        to,
        "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} d:(resource.infDecAmount)"
    )?;
    match big {
        None => to.write_str("{Dec:(*inf.Dec)<nil>}")?,
        Some(big) => {
            // Words of 64 bits, the lowest first.
            let (low, high) = (big & u128::from(u64::MAX), big >> 64);
            write!(to, "{{Dec:(*inf.Dec){{unscaled:(big.Int){{neg:(bool){is_negative} abs:(big.nat)[{low}")?;
            if high > 0 {
                write!(to, " {high}")?;
            }
            to.write_str("]} scale:(inf.Scale)9}}")?;
        }
    }
    write!(to, " s:(string){text} Format:(resource.Format){format}}}")
}

fn inside(text: &str) -> Inside<'_> {
    let none = Inside { value: 0, scale: 0, big: None, is_negative: false, text: "", format: "DecimalSI" };
    if text == "0" {
        return Inside { text, ..none };
    }
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end =
        unsigned.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let digits = format!("{whole}{part}");
    let Ok(value) = digits.parse::<u128>() else { return none };
    let signed = |value: i64| if is_negative { -value } else { value };

    if let Some(&(_, exponent)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        // Upstream's estimate of the number of digits of a power of two.
        let has_room =
            i64::try_from(whole.len()).is_ok_and(|n_digits| 15 - n_digits - i64::from(exponent * 3 / 10) > 0);
        let small = value.checked_shl(exponent).and_then(|value| i64::try_from(value).ok());
        return match small {
            Some(small) if has_room && part.is_empty() => {
                let text = if value & 7 == 0 { "" } else { text };
                Inside { value: signed(small), text, format: "BinarySI", ..none }
            }
            _ => {
                let most = u128::from(i64::MAX.cast_unsigned());
                let big = value.checked_shl(exponent).unwrap_or(most).min(most).saturating_mul(1_000_000_000);
                Inside { big: Some(big), is_negative, format: "BinarySI", ..none }
            }
        };
    }
    let (exponent, format) = match DECIMAL.iter().find(|(name, _)| *name == suffix) {
        Some(&(_, exponent)) => (exponent, "DecimalSI"),
        None if suffix.is_empty() => (0, "DecimalSI"),
        None => (suffix.trim_start_matches(['e', 'E']).parse().unwrap_or(0), "DecimalExponent"),
    };
    let scale = exponent.saturating_sub(i32::try_from(part.len()).unwrap_or(i32::MAX));
    match i64::try_from(value) {
        Ok(value) if digits.len() <= 18 && scale >= -9 => {
            let is_canonical = scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0');
            Inside { value: signed(value), scale, text: if is_canonical { text } else { "" }, format, ..none }
        }
        _ => Inside { big: Some(value.saturating_mul(1_000_000_000)), is_negative, format, ..none },
    }
}
