//! Timestamps and durations: parsing, formatting and components.

use crate::error::EvalError;
use std::cmp::Ordering;
use std::fmt;

const SECOND: i64 = 1_000_000_000;
/// The first and the last second of a valid timestamp: years 1 to 9999.
const SECONDS_MIN: i64 = -62_135_596_800;
const SECONDS_MAX: i64 = 253_402_300_799;

/// A timestamp. Compared by the instant; its text keeps the offset with which it was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timestamp {
    pub(crate) seconds: i64,
    nanos: u32,
    /// The offset in seconds east of UTC.
    offset: i32,
}

impl Timestamp {
    fn new(seconds: i64, nanos: u32, offset: i32) -> Option<Timestamp> {
        (SECONDS_MIN..=SECONDS_MAX).contains(&seconds).then_some(Timestamp { seconds, nanos, offset })
    }

    /// A timestamp in UTC.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Timestamp> {
        Timestamp::new(seconds, 0, 0)
    }

    /// Whether it is the beginning of the year 1, Go's zero time.
    pub(crate) fn is_zero(&self) -> bool {
        (self.seconds, self.nanos) == (SECONDS_MIN, 0)
    }

    fn total_nanos(&self) -> i128 {
        i128::from(self.seconds) * i128::from(SECOND) + i128::from(self.nanos)
    }

    pub(crate) fn nanos_since(&self, other: &Timestamp) -> i128 {
        self.total_nanos() - other.total_nanos()
    }

    /// This many nanoseconds later, if that is a valid timestamp.
    pub(crate) fn plus(&self, nanos: i128) -> Option<Timestamp> {
        let total = self.total_nanos().checked_add(nanos)?;
        let seconds = i64::try_from(total.div_euclid(i128::from(SECOND))).ok()?;
        Timestamp::new(seconds, u32::try_from(total.rem_euclid(i128::from(SECOND))).ok()?, self.offset)
    }

    pub(crate) fn civil(&self, offset: i32) -> Result<jiff::civil::DateTime, EvalError> {
        let seconds = self.seconds + i64::from(offset);
        let days = seconds.div_euclid(86_400);
        let second = seconds.rem_euclid(86_400);
        let nanos = i32::try_from(self.nanos).unwrap_or_default();
        let epoch = jiff::civil::date(1970, 1, 1);
        let date = epoch.checked_add(jiff::Span::new().try_days(days).map_err(|_| out_of_range())?);
        let date = date.map_err(|_| out_of_range())?;
        // A day has 86400 seconds, so each of these fits.
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        Ok(date.at(hour as i8, minute as i8, second as i8, nanos))
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Timestamp) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Timestamp) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Timestamp) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil(self.offset).map_err(|_| fmt::Error)?;
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second()
        )?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        match self.offset {
            0 => f.write_str("Z"),
            offset => {
                let sign = if offset < 0 { '-' } else { '+' };
                let minutes = offset.abs() / 60;
                write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        }
    }
}

pub(crate) fn out_of_range() -> EvalError {
    EvalError::new("timestamp overflow")
}

/// Parses an RFC 3339 timestamp.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| {
        let digits = bytes.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then(|| text[from..to].parse::<i64>().ok()).flatten()
    };
    let punctuation = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !text.is_ascii() || punctuation.iter().any(|(at, mark)| bytes.get(*at) != Some(mark)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = &text[19..];
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction.find(|char: char| !char.is_ascii_digit()).unwrap_or(fraction.len());
        if end == 0 {
            return None;
        }
        nanos = format!("{:0<9}", &fraction[..end.min(9)]).parse().ok()?;
        rest = &fraction[end..];
    }
    let offset = if rest == "Z" {
        0
    } else {
        let sign = match rest.as_bytes().first()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let at = text.len() - rest.len() + 1;
        if rest.len() != 6 || rest.as_bytes()[3] != b':' {
            return None;
        }
        let (hours, minutes) = (number(at, at + 2)?, number(at + 3, at + 5)?);
        if hours > 24 || minutes > 59 {
            return None;
        }
        sign * (hours * 60 + minutes) * 60
    };
    let date =
        jiff::civil::Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let days = i64::from(date.since(jiff::civil::date(1970, 1, 1)).ok()?.get_days());
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Timestamp::new(seconds, nanos, i32::try_from(offset).ok()?)
}

/// Parses a timestamp as schemas accept it: `t` and `z` may be lower case, and a space may replace the T.
pub(crate) fn parse_lenient_timestamp(text: &str) -> Option<Timestamp> {
    parse_timestamp(text).or_else(|| parse_timestamp(&text.to_ascii_uppercase()))
}

/// Parses a date, as its first instant.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    parse_timestamp(&format!("{text}T00:00:00Z"))
}

/// A duration in seconds: `5400s`, `0.1s`.
pub(crate) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let (seconds, part) = (size / SECOND.unsigned_abs(), size % SECOND.unsigned_abs());
    if part == 0 {
        return format!("{sign}{seconds}s");
    }
    format!("{sign}{seconds}.{}s", format!("{part:09}").trim_end_matches('0'))
}
