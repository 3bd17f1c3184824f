//! Quantities: `100m`, `1Gi`, `2e3`, their order and their canonical form.
//!
//! Follows apimachinery's `api/resource`: a quantity keeps its family of suffixes, is rounded up to a billionth, and prints
//! with the largest suffix that needs no fraction. A text that is short enough and needs no such change stays as it was written, `+5` and
//! `1.500` too. Two things differ: amounts end at 10^29, which are unbounded upstream unless their suffix is binary; and an
//! amount beyond the suffix `E` (`1000E`) keeps it, where upstream prints the digits without any.

use std::fmt;

const NANO: i128 = 1_000_000_000;
/// The largest amount: 10^29 whole units.
const MAX: i128 = 10_i128.pow(38);
/// The largest amount that is written with a binary suffix, as upstream caps it: 2^63 - 1 whole units.
const BINARY_MAX: i128 = (i64::MAX as i128) * NANO;
/// Numbers with at most so many digits fit in an integer, which is fast; upstream keeps their texts.
const SHORT_DIGITS_MAX: usize = 18;

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
    /// It has no digits, where upstream needs one: before `Pi` and `Ei`, and before what is smaller than a billionth.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// It does, but for its suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Reads a quantity. A number without digits is zero, if its suffix is an ordinary one.
    ///
    /// # Errors
    /// When the number or its suffix is invalid.
    pub fn parse(text: &str) -> Result<Quantity, ParseError> {
        Written::read(text).map(|written| written.quantity())
    }

    /// The amount in whole units, rounded up; at most, and at least, what fits.
    pub fn to_whole(&self) -> i64 {
        let up = i128::from(0 < self.nanos.rem_euclid(NANO));
        let whole = self.nanos.div_euclid(NANO) + up;
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// The amount as upstream's `Value()` reads it, by which LimitRanges are compared: zero if 64 bits do not hold the
    /// whole units.
    #[must_use]
    pub fn within_64_bits(self) -> Quantity {
        if self.nanos.abs() <= BINARY_MAX { self } else { Quantity { nanos: 0, ..self } }
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
        Quantity { nanos: self.nanos.saturating_add(other.nanos).clamp(-MAX, MAX), format }
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
        let written = Written::read(text)?;
        Ok(if written.is_canonical() { text.to_owned() } else { written.quantity().to_string() })
    }
}

/// The parts of a text.
struct Written<'a> {
    is_negative: bool,
    /// The digits before the point, without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    scale: Scale,
}

/// The factor that a suffix stands for.
#[derive(Clone, Copy)]
enum Scale {
    /// A power of 1024.
    Binary(u32),
    /// A power of ten. Upstream wraps what is beyond 32 bits; here it is as large or small as it says.
    DecimalExponent(i64),
    DecimalSi(i64),
}

// === impl Written ===

impl Written<'_> {
    fn read(text: &str) -> Result<Written<'_>, ParseError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if text.is_empty() || fraction.contains('.') {
            return Err(ParseError::Form);
        }
        let scale = Scale::read(suffix)?;
        let needs_digit = match scale {
            Scale::Binary(power) => 5 <= power,
            Scale::DecimalExponent(exponent) | Scale::DecimalSi(exponent) => exponent < -9,
        };
        if needs_digit && whole.is_empty() && fraction.is_empty() {
            return Err(ParseError::Number);
        }
        let (is_negative, whole) = (text.starts_with('-'), whole.trim_start_matches('0'));
        Ok(Written { is_negative, whole, fraction, scale })
    }

    fn quantity(&self) -> Quantity {
        let amount =
            if self.whole.len() + self.fraction.len() <= SHORT_DIGITS_MAX { self.short() } else { self.long() };
        let (nanos, format) = match self.scale {
            // Less than one is never written with a binary suffix.
            Scale::Binary(_) if amount < NANO => (amount, Format::DecimalSi),
            Scale::Binary(_) => (amount.min(BINARY_MAX), Format::BinarySi),
            Scale::DecimalExponent(_) => (amount, Format::DecimalExponent),
            Scale::DecimalSi(_) => (amount, Format::DecimalSi),
        };
        Quantity { nanos: if self.is_negative { -nanos } else { nanos }, format }
    }

    /// Whether upstream takes the text as its canonical form: few digits, which end with no thousand and need no other suffix.
    fn is_canonical(&self) -> bool {
        let Written { whole, fraction, .. } = *self;
        // Upstream reads a number without digits as one zero.
        let n_digits = whole.len().max(1) + fraction.len();
        match self.scale {
            Scale::Binary(power) => {
                // The digits that powers of 1024 leave: 11, 8, 5, 2 and none.
                let n_digits_max = 14_usize.saturating_sub(3 * power as usize);
                let last_three_bits = whole.parse::<u64>().map_or(0, |value| value & 7);
                fraction.is_empty() && n_digits <= n_digits_max && last_three_bits != 0
            }
            Scale::DecimalExponent(exponent) | Scale::DecimalSi(exponent) => {
                let exponent = exponent.saturating_sub(fraction.len() as i64);
                let n_zeros =
                    fraction.bytes().rev().chain(whole.bytes().rev()).take_while(|digit| *digit == b'0').count();
                let is_short = n_digits <= SHORT_DIGITS_MAX && i32::try_from(exponent).is_ok();
                is_short && -9 <= exponent && exponent % 3 == 0 && n_zeros < 3 && !whole.is_empty()
            }
        }
    }

    /// The amount without its sign in billionths, of a number that fits in an integer.
    fn short(&self) -> i128 {
        let digits = self.whole.bytes().chain(self.fraction.bytes());
        let number = digits.fold(0, |number, digit| 10 * number + i128::from(digit - b'0'));
        times_power_of_ten(number * 1024_i128.pow(self.scale.binary()), self.exponent())
    }

    /// The same of any number, digit by digit.
    fn long(&self) -> i128 {
        let mut digits: Vec<u8> = self.whole.bytes().chain(self.fraction.bytes()).map(|digit| digit - b'0').collect();
        for _ in 0..self.scale.binary() {
            multiply_by_1024(&mut digits);
        }
        let digits = &digits[digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len())..];
        let exponent = self.exponent();
        // The digits that are cut off are less than a billionth: rounding up depends only on whether one of them is not zero.
        let n_cut = digits.len().saturating_sub(37).min(usize::try_from(exponent.saturating_neg()).unwrap_or(0));
        let (kept, cut) = digits.split_at(digits.len() - n_cut);
        if 38 < kept.len() {
            return MAX;
        }
        let number = kept.iter().fold(0, |number, digit| 10 * number + i128::from(*digit));
        let exponent = exponent.saturating_add(n_cut as i64);
        let is_rounded = cut.iter().any(|digit| *digit != 0);
        match exponent {
            // One more digit stands for all that were cut off.
            ..0 if is_rounded => times_power_of_ten(10 * number + 1, exponent.saturating_sub(1)),
            _ if is_rounded => number + 1,
            _ => times_power_of_ten(number, exponent),
        }
    }

    /// The power of ten by which the digits are multiplied to become billionths.
    fn exponent(&self) -> i64 {
        let exponent = match self.scale {
            Scale::Binary(_) => 0,
            Scale::DecimalExponent(exponent) | Scale::DecimalSi(exponent) => exponent,
        };
        exponent.saturating_add(9).saturating_sub(self.fraction.len() as i64)
    }
}

/// The product, rounded up and capped.
fn times_power_of_ten(number: i128, exponent: i64) -> i128 {
    let power = u32::try_from(exponent.unsigned_abs()).ok().and_then(|exponent| 10_i128.checked_pow(exponent));
    match power {
        _ if number == 0 => 0,
        Some(power) if exponent < 0 => number / power + i128::from(number % power != 0),
        Some(power) => number.saturating_mul(power).min(MAX),
        None if exponent < 0 => 1,
        None => MAX,
    }
}

fn multiply_by_1024(digits: &mut Vec<u8>) {
    let mut carry = 0_u32;
    for digit in digits.iter_mut().rev() {
        let product = u32::from(*digit) * 1024 + carry;
        (*digit, carry) = ((product % 10) as u8, product / 10);
    }
    let mut front = Vec::new();
    while 0 < carry {
        front.insert(0, (carry % 10) as u8);
        carry /= 10;
    }
    digits.splice(0..0, front);
}

// === impl Scale ===

impl Scale {
    fn read(suffix: &str) -> Result<Scale, ParseError> {
        Ok(match suffix {
            "n" => Scale::DecimalSi(-9),
            "u" => Scale::DecimalSi(-6),
            "m" => Scale::DecimalSi(-3),
            "" => Scale::DecimalSi(0),
            "k" => Scale::DecimalSi(3),
            "M" => Scale::DecimalSi(6),
            "G" => Scale::DecimalSi(9),
            "T" => Scale::DecimalSi(12),
            "P" => Scale::DecimalSi(15),
            "E" => Scale::DecimalSi(18),
            "Ki" => Scale::Binary(1),
            "Mi" => Scale::Binary(2),
            "Gi" => Scale::Binary(3),
            "Ti" => Scale::Binary(4),
            "Pi" => Scale::Binary(5),
            "Ei" => Scale::Binary(6),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E']).and_then(|text| text.parse().ok());
                Scale::DecimalExponent(exponent.ok_or_else(|| fault(suffix))?)
            }
        })
    }

    fn binary(self) -> u32 {
        match self {
            Scale::Binary(power) => power,
            Scale::DecimalExponent(_) | Scale::DecimalSi(_) => 0,
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
                let is_exponent = self.format == Format::DecimalExponent;
                let (mut units, mut power) = (self.nanos, 0);
                while units % 1000 == 0 && (is_exponent || power < SUFFIXES.len() - 1) {
                    units /= 1000;
                    power += 1;
                }
                if !is_exponent || power == 3 {
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
        for (text, want) in [
            ("0", 0),
            ("1500m", 2),
            ("1Gi", 1 << 30),
            ("-1500m", -1),
            ("1E", 10_i64.pow(18)),
            ("99E", i64::MAX),
            ("-99E", i64::MIN),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_whole(), want, "{text}");
        }
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
            (".5", "500m"),
            ("2000k", "2M"),
            ("0.0001Ki", "102400u"),
            ("1000e18", "1e21"),
            ("99999999999999999999", "99999999999999999999"),
            ("100000000000000000000", "100E"),
            ("1000E", "1000E"),
            ("100Ei", "9223372036854775807"),
            ("-100Ei", "-9223372036854775807"),
            // Nothing is lost but what is less than a billionth, however many digits there are.
            ("1.23456789012345678901234567Ei", "1423359869420436337655244264n"),
            ("12345678901234567890.12345678901", "12345678901234567890123456790n"),
            ("1.0000000000000000000000000000000000000000000001", "1000000001n"),
            ("+0600390700000332560096.009043032123024652M", "600390700000332560096009043032123025n"),
            (".455E20", "45500e15"),
            ("0.00000000000000000000000000000000000000000012e42", "120e-3"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(want), "{text}");
        }
    }

    /// Upstream prints larger ones as they are written; whoever means them means more than there is.
    #[test]
    fn what_is_beyond_all_measure_is_the_largest_amount() {
        for text in [
            "455E50",
            ".455E50",
            "1e99999",
            "1E4294967296",
            "100000000000E",
            "9999999999999999999999999999999999999999",
        ] {
            assert_eq!(Quantity::parse(text).unwrap().nanos(), MAX, "{text}");
            assert_eq!(Quantity::parse(&format!("-{text}")).unwrap().nanos(), -MAX, "-{text}");
        }
        assert_eq!(Quantity::canonical(".455E50").as_deref(), Ok("100e27"));
        assert_eq!(Quantity::canonical("455e-50").as_deref(), Ok("1e-9"));
        assert_eq!(Quantity::canonical("455e-9999999999").as_deref(), Ok("1e-9"));
    }

    #[test]
    fn a_short_text_that_needs_no_other_suffix_stays_as_it_was_written() {
        for text in
            ["+5", "007", "5.", "1.500", "1E3", "1e+3", "+1Gi", "01025Ki", "1234567890.123456", "999999999999999999E"]
        {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(text));
        }
        for (text, want) in
            [("1.000", "1"), ("+1000", "1k"), ("0.500", "500m"), ("+8Gi", "8Gi"), ("+1Pi", "1Pi"), ("+0", "0")]
        {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(want));
        }
    }

    #[test]
    fn a_number_without_digits_is_zero_as_upstream_reads_it() {
        for text in [".", "+", "-.", "m", "Ki", ".Ti", "e3"] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok("0"), "{text}");
        }
        for text in ["Pi", "+Ei", ".e-10"] {
            assert_eq!(Quantity::canonical(text), Err(ParseError::Number), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "lots", "1.2.3", "1 Gi", "1ex", "0x1", "10Mo"] {
            assert_eq!(Quantity::canonical(text), Err(ParseError::Form), "{text}");
        }
        for text in ["1mm", "1e", "1K", "10Mm", "--1"] {
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
        assert_eq!(most.plus(most).to_string(), "18E");
        let most = quantity("1e29");
        assert_eq!(most.plus(most).nanos(), MAX);
        assert_eq!((quantity("2500m").to_f64(), Quantity::units(3).to_string()), (2.5, "3".to_owned()));
        assert!(Quantity::ZERO.is_zero() && quantity("-1m").is_negative() && !quantity("1n").is_zero());
    }

    proptest! {
        #[test]
        fn canonical_text_is_stable(number in "[+-]?[0-9]{0,24}(\\.[0-9]{0,22})?", suffix in "(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,3})") {
            if let Ok(first) = Quantity::canonical(&format!("{number}{suffix}")) {
                // A text that is kept as it was written, as `001`, is printed without its zeros.
                let printed = Quantity::parse(&first).unwrap().to_string();
                prop_assert_eq!(Quantity::canonical(&printed).unwrap(), printed);
                prop_assert_eq!(Quantity::canonical(&first).unwrap(), first);
            }
        }
    }
}
