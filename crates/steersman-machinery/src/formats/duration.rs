//! Durations as texts: Go's form, and that of the format `duration` in schemas.

use std::time::Duration;

/// Why a text is not a duration, in the words of Go's `time.ParseDuration`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The text is empty, does not consist of numbers with units, or exceeds 64 bits of nanoseconds.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A number has an unknown unit.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// The nanoseconds of a duration in Go's form: `1h30m`, `-1.5s`, `0`. Follows `time.ParseDuration`.
///
/// # Errors
/// The first error of the text.
pub fn parse(text: &str) -> Result<i64, ParseError> {
    let invalid = || ParseError::Invalid(text.to_owned());
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1_i128, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut sum = 0_i128;
    while !rest.is_empty() {
        let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return Err(invalid());
        }
        let end = behind.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let unit: i128 = match unit {
            "" => return Err(ParseError::MissingUnit(text.to_owned())),
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            unit => return Err(ParseError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() }),
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        // Further digits are below a nanosecond, whatever the unit.
        let fraction = &fraction[..fraction.len().min(15)];
        let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| invalid())? };
        let scale = 10_i128.pow(u32::try_from(fraction.len()).map_err(|_| invalid())?);
        sum += whole * unit + part * unit / scale;
        rest = behind;
        if sum > i128::from(i64::MAX) + 1 {
            return Err(invalid());
        }
    }
    i64::try_from(sign * sum).map_err(|_| invalid())
}

/// A duration in Go's form that is not negative.
pub fn parse_unsigned(text: &str) -> Option<Duration> {
    parse(text).ok().and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

/// The nanoseconds of a duration in the format `duration`: Go's form, or numbers with names of units anywhere in the
/// text, such as `2 days`. A sum that is too large wraps to its lowest 64 bits, as in go-openapi's `strfmt`.
pub fn parse_lenient(text: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], SECOND),
        (&["m", "min"], 60 * SECOND),
        (&["h", "hr", "hour"], 3_600 * SECOND),
        (&["d", "day"], 86_400 * SECOND),
        (&["w", "wk", "week"], 604_800 * SECOND),
    ];
    if let Ok(nanos) = parse(text) {
        return Some(nanos);
    }
    let mut sum = None;
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| char.is_ascii_digit()) {
        let digits = &rest[start..];
        let end = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
        let (number, behind) = digits.split_at(end);
        let behind = behind.trim_start();
        let end = behind.find(|char: char| !char.is_ascii_alphabetic() && char != 'µ').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        rest = behind;
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        let unit = unit.to_lowercase();
        let found = UNITS
            .iter()
            .find(|(names, _)| names.contains(&&*unit) || names.last().is_some_and(|long| unit.starts_with(long)));
        if let Some((_, nanos)) = found {
            sum = Some(sum.unwrap_or(0_i64).wrapping_add(number.wrapping_mul(*nanos)));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_add_up() {
        assert_eq!(parse_unsigned("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_unsigned("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_unsigned("+0"), Some(Duration::ZERO));
        assert_eq!(parse("-1h1.000000001s"), Ok(-3_601_000_000_001));
        assert_eq!(parse("-9223372036854775808ns"), Ok(i64::MIN));
        for text in ["", "-", "abc", "5", "1x", "s", ".s", "1.2.3s", "1e300h", "9223372037s", "2 days", "1h30"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse_unsigned("-1s"), None);
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_go() {
        for (text, want) in [
            ("", r#"time: invalid duration """#),
            ("1h30", r#"time: missing unit in duration "1h30""#),
            ("2 days", r#"time: unknown unit " days" in duration "2 days""#),
            ("300000h1h9999999999h", r#"time: invalid duration "300000h1h9999999999h""#),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(want.to_owned()));
        }
    }

    #[test]
    fn schemas_take_names_of_units_wherever_they_stand() {
        for (text, seconds) in [("2 days", 172_800), ("about 3Hours, 1 min", 10_860), ("0.12345678901234567890s", 0)] {
            assert_eq!(parse_lenient(text).map(|nanos| nanos / 1_000_000_000), Some(seconds), "{text}");
        }
        for text in ["", "5", "days", "1 fortnight", "99999999999999999999 days"] {
            assert_eq!(parse_lenient(text), None, "{text}");
        }
        assert!(parse_lenient("9999999999 weeks").is_some());
    }
}
