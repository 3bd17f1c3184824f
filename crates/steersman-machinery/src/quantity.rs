//! Quantities: `100m`, `1Gi`, `2e3`, their order and their canonical form.
//!
//! Follows apimachinery's `api/resource`: a quantity keeps its family of suffixes, is rounded up to a billionth, and
//! prints with the largest suffix that needs no fraction.

use std::fmt;

const NANO: i128 = 1_000_000_000;
/// The largest quantity, as upstream caps it: 2^63 - 1 whole units.
const MAX: i128 = (i64::MAX as i128) * NANO;

/// A quantity with the family of suffixes in which it was written. Ordered and compared by amount only.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// The amount in billionths.
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    BinarySi,
    DecimalExponent,
    DecimalSi,
}

/// Why a text is not a quantity, in upstream's words.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The text does not match the grammar.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Form,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// When the number or its suffix is invalid.
    pub fn parse(text: &str) -> Result<Quantity, ParseError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(ParseError::Form);
        }
        let (scale, format) = scale(suffix)?;
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
        // Digits after the 18th decimal only matter for rounding up; whole numbers of more than 29 digits are above the
        // cap with every suffix.
        let kept = &fraction[..fraction.len().min(18)];
        let lost = fraction[kept.len()..].bytes().any(|byte| byte != b'0');
        let whole = if whole.trim_start_matches('0').len() > 29 {
            10_i128.pow(29)
        } else {
            digits(whole).ok_or(ParseError::Form)?
        };
        let part = digits(kept).ok_or(ParseError::Form)?;
        let unit = 10_i128.pow(u32::try_from(kept.len()).map_err(|_| ParseError::Form)?);
        let mut nanos = scaled(whole, 1, scale, false).saturating_add(scaled(part, unit, scale, lost)).min(MAX);
        if text.starts_with('-') {
            nanos = -nanos;
        }
        Ok(Quantity { nanos, format })
    }

    /// The amount in whole units, rounded up.
    pub fn to_whole(&self) -> i64 {
        let up = i128::from(0 < self.nanos.rem_euclid(NANO));
        // The amount is capped, so it fits.
        i64::try_from(self.nanos.div_euclid(NANO) + up).unwrap_or(i64::MAX)
    }

    /// Whether it is a whole number of units, once rounded up to thousandths.
    pub fn is_whole(&self) -> bool {
        const MILLI: i128 = 1_000_000;
        let thousandths = self.nanos.div_euclid(MILLI) + i128::from(self.nanos.rem_euclid(MILLI) > 0);
        thousandths % 1_000 == 0
    }

    /// Zero; a sum with it has the suffixes of the other quantity.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    /// This number of whole units.
    pub fn units(number: i64) -> Quantity {
        Quantity { nanos: i128::from(number) * NANO, format: Format::DecimalSi }
    }

    /// The sum, with the suffixes of this quantity unless it is zero; capped like every quantity.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Quantity { nanos: (self.nanos + other.nanos).clamp(-MAX, MAX), format }
    }

    /// The difference, with the suffixes of this quantity unless it is zero.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        self.plus(Quantity { nanos: -other.nanos, ..other })
    }

    /// The amount in billionths of a unit.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// The amount in units, rounded to a float.
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Whether it is negative.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The canonical form of a quantity.
    ///
    /// # Errors
    /// When the text is not a quantity.
    pub fn canonical(text: &str) -> Result<String, ParseError> {
        Quantity::parse(text).map(|quantity| quantity.to_string())
    }
}

/// `value / unit * scale` in nanos, rounded up.
fn scaled(value: i128, unit: i128, scale: Scale, round_up: bool) -> i128 {
    let (multiply, divide) = match scale {
        Scale::Times(factor) => (factor.saturating_mul(NANO), unit),
        Scale::Per(divisor) => (NANO, unit.saturating_mul(divisor)),
    };
    match value.checked_mul(multiply) {
        Some(product) => {
            let up = round_up || product % divide != 0;
            product / divide + i128::from(up && product / divide < MAX)
        }
        // Too large to be exact: far above the cap unless the divisor is as large.
        None => (value / divide).saturating_mul(multiply).min(MAX),
    }
}

#[derive(Clone, Copy)]
enum Scale {
    Per(i128),
    Times(i128),
}

fn scale(suffix: &str) -> Result<(Scale, Format), ParseError> {
    let decimal = |scale| Ok((scale, Format::DecimalSi));
    let binary = |power: u32| Ok((Scale::Times(1024_i128.pow(power)), Format::BinarySi));
    let thousand = |power: u32| 1000_i128.pow(power);
    match suffix {
        "n" => decimal(Scale::Per(thousand(3))),
        "u" => decimal(Scale::Per(thousand(2))),
        "m" => decimal(Scale::Per(1000)),
        "" => decimal(Scale::Times(1)),
        "k" => decimal(Scale::Times(1000)),
        "M" => decimal(Scale::Times(thousand(2))),
        "G" => decimal(Scale::Times(thousand(3))),
        "T" => decimal(Scale::Times(thousand(4))),
        "P" => decimal(Scale::Times(thousand(5))),
        "E" => decimal(Scale::Times(thousand(6))),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).and_then(|text| text.parse().ok());
            let exponent: i32 = exponent.ok_or_else(|| fault(suffix))?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs()).unwrap_or(i128::MAX);
            Ok((if exponent < 0 { Scale::Per(power) } else { Scale::Times(power) }, Format::DecimalExponent))
        }
    }
}

/// The error of an unknown suffix, which depends on whether its letters may occur in suffixes.
fn fault(suffix: &str) -> ParseError {
    let behind = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
    let digits = behind.strip_prefix(['+', '-']).unwrap_or(behind);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { ParseError::Suffix } else { ParseError::Form }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANO == 0;
        let small = self.nanos.abs() < 1024 * NANO;
        match self.format {
            Format::BinarySi if whole && !small => {
                const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
                let (mut units, mut power) = (self.nanos / NANO, 0);
                while units % 1024 == 0 && power < SUFFIXES.len() - 1 {
                    units /= 1024;
                    power += 1;
                }
                write!(f, "{units}{}", SUFFIXES[power])
            }
            Format::BinarySi | Format::DecimalExponent | Format::DecimalSi => {
                const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                let (mut units, mut power) = (self.nanos, 0);
                while units % 1000 == 0 && power < SUFFIXES.len() - 1 {
                    units /= 1000;
                    power += 1;
                }
                if self.format != Format::DecimalExponent || power == 3 {
                    return write!(f, "{units}{}", SUFFIXES[power]);
                }
                write!(f, "{units}e{}", (power as i32 - 3) * 3)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_amount_is_known_in_billionths() {
        let nanos = |text| Quantity::parse(text).map(Quantity::nanos);
        assert_eq!(nanos("500m"), Ok(500_000_000));
        assert_eq!(nanos("-1Ki"), Ok(-1_024_000_000_000));
    }

    #[test]
    fn whole_units_are_rounded_up() {
        for (text, want) in [("0", 0), ("1500m", 2), ("1Gi", 1 << 30), ("-1500m", -1), ("1E", 10_i64.pow(18))] {
            assert_eq!(Quantity::parse(text).unwrap().to_whole(), want, "{text}");
        }
        assert_eq!(Quantity::parse("99E").unwrap().to_whole(), i64::MAX);
    }

    #[test]
    fn the_canonical_form_needs_no_fraction() {
        for (text, want) in [
            ("1000m", "1"),
            ("0.1", "100m"),
            ("100m", "100m"),
            ("512Mi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1Gi", "1Gi"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E", "1E"),
            ("-1500m", "-1500m"),
            ("0", "0"),
            ("0Gi", "0"),
            ("1.0000000001", "1000000001n"),
            ("+5", "5"),
            (".5", "500m"),
            ("5.", "5"),
            ("2000k", "2M"),
            ("99999999999999999999", "9223372036854775807"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "lots", "1.2.3", "1 Gi", "m", "--1", "1ex", "0x1", "10Mo"] {
            assert_eq!(Quantity::canonical(text), Err(ParseError::Form), "{text}");
        }
        for text in ["1mm", "1e", "1K", "10Mm"] {
            assert_eq!(Quantity::canonical(text), Err(ParseError::Suffix), "{text}");
        }
    }

    #[test]
    fn amounts_compare_across_suffixes() {
        let quantity = |text| Quantity::parse(text).unwrap();
        assert!(
            quantity("1Gi") > quantity("1G") && quantity("1000m") == quantity("1") && quantity("1n") < quantity("1u")
        );
    }

    #[test]
    fn a_sum_keeps_its_suffixes_and_takes_those_of_the_other_only_for_zero() {
        let quantity = |text| Quantity::parse(text).unwrap();
        for (a, b, sum, difference) in [
            ("600m", "400m", "1", "200m"),
            ("256Mi", "256Mi", "512Mi", "0"),
            ("0", "128Mi", "128Mi", "-128Mi"),
            ("1Gi", "1", "1073741825", "1073741823"),
            ("1", "2k", "2001", "-1999"),
        ] {
            assert_eq!(quantity(a).plus(quantity(b)).to_string(), sum, "{a} + {b}");
            assert_eq!(quantity(a).minus(quantity(b)).to_string(), difference, "{a} - {b}");
        }
        let most = quantity("9E");
        assert_eq!(most.plus(most).to_string(), "9223372036854775807");
        assert_eq!((quantity("2500m").to_f64(), Quantity::units(3).to_string()), (2.5, "3".to_owned()));
        assert!(Quantity::ZERO.is_zero() && quantity("-1m").is_negative() && !quantity("1n").is_zero());
    }

    proptest! {
        #[test]
        fn canonical_text_is_stable(number in "[+-]?[0-9]{0,24}(\\.[0-9]{0,22})?", suffix in "(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,3})") {
            if let Ok(first) = Quantity::canonical(&format!("{number}{suffix}")) {
                let again = Quantity::parse(&first).unwrap();
                prop_assert_eq!(again.to_string(), first);
            }
        }
    }
}
