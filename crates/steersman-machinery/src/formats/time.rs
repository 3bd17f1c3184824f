//! Timestamps of objects: RFC 3339 texts of the years 0 to 9999.
//!
//! The range of [`Timestamp`] ends a day before the end of the year 9999, so that it has a civil time in every time
//! zone. Objects may contain later times: as upstream, "never" is often written as the last second of that year.

use jiff::civil::{DateTime, date};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
const NANOS: i32 = 1_000_000_000;

/// The instant of a text; one outside the range of [`Timestamp`] becomes the nearest inside.
///
/// For comparisons with the clock and other times, not for writing back.
///
/// ```
/// use steersman_machinery::time;
///
/// let never = time::parse("9999-12-31T23:59:59Z");
/// assert_eq!(never, Some(jiff::Timestamp::MAX));
/// assert_eq!(time::parse("0001-01-01T00:00:00Z").map(|time| time.as_second()), Some(-62_135_596_800));
/// assert_eq!(time::parse("yesterday"), None);
/// ```
pub fn parse(text: &str) -> Option<Timestamp> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp);
    }
    let utc = to_utc(text)?;
    Some(Offset::UTC.to_timestamp(utc).unwrap_or(if utc.year() > 0 { Timestamp::MAX } else { Timestamp::MIN }))
}

/// The date and time of a text in UTC; none outside of the years 0 to 9999.
pub fn to_utc(text: &str) -> Option<DateTime> {
    let (local, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => {
            let (local, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
            (local, offset_seconds(offset)?)
        }
    };
    let local: DateTime = local.parse().ok()?;
    let utc = local.checked_sub(SignedDuration::from_secs(offset)).ok()?;
    (0..=9999).contains(&utc.year()).then_some(utc)
}

/// The seconds since 1970, and the remaining nanoseconds.
pub fn since_1970(utc: DateTime) -> (i64, u32) {
    let since = utc.duration_since(EPOCH);
    let (seconds, nanos) = (since.as_secs(), since.subsec_nanos());
    match u32::try_from(nanos) {
        Ok(nanos) => (seconds, nanos),
        // Before 1970, jiff counts fractions backwards, while the result counts them forwards.
        Err(_) => (seconds - 1, (nanos + NANOS).unsigned_abs()),
    }
}

/// The date and time in UTC at an interval after 1970; none outside of the years 0 to 9999.
pub fn after_1970(seconds: i64, nanos: u32) -> Option<DateTime> {
    let since = SignedDuration::from_secs(seconds).checked_add(SignedDuration::from_nanos(i64::from(nanos)))?;
    let utc = EPOCH.checked_add(since).ok()?;
    (0..=9999).contains(&utc.year()).then_some(utc)
}

/// The seconds of an offset such as `+01:30`.
fn offset_seconds(text: &str) -> Option<i64> {
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let number = |text: &str, max: i64| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| is_number && *number <= max)
    };
    let seconds = number(hours, 23)? * 3600 + number(minutes, 59)? * 60;
    match text.as_bytes().first()? {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_the_range_of_a_timestamp_count_as_its_ends() {
        for never in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T12:00:00+01:00"] {
            assert_eq!(parse(never), Some(Timestamp::MAX), "{never}");
        }
        assert_eq!(
            parse("2026-01-01T01:30:00+01:30").map(|time| time.to_string()).as_deref(),
            Some("2026-01-01T00:00:00Z")
        );
        assert!(parse("0000-01-01T00:00:00Z") < parse("0001-01-01T00:00:00Z"));
    }

    #[test]
    fn seconds_since_1970_lead_back_to_the_same_time() {
        for text in [
            "9999-12-31T23:59:59.999999999Z",
            "1969-12-31T23:59:59.25Z",
            "1970-01-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
        ] {
            let utc = to_utc(text).unwrap();
            let (seconds, nanos) = since_1970(utc);
            assert_eq!(after_1970(seconds, nanos), Some(utc), "{text}");
        }
        assert_eq!(since_1970(to_utc("1969-12-31T23:59:59.25Z").unwrap()), (-1, 250_000_000));
        assert_eq!(after_1970(253_402_300_800, 0), None);
        assert_eq!(after_1970(i64::MAX, 0), None);
    }

    #[test]
    fn years_before_0_and_after_9999_are_none() {
        for wrong in [
            "9999-12-31T23:59:59-01:00",
            "0000-01-01T00:00:00+01:00",
            "10000-01-01T00:00:00Z",
            "9999-12-32T00:00:00Z",
            "9999-12-31T23:59:59",
            "9999-12-31T23:59:59+24:00",
            "9999-12-31T23:59:59+1:000",
            "",
            "Z",
            "é:00",
        ] {
            assert_eq!(to_utc(wrong), None, "{wrong}");
        }
        assert_eq!(to_utc("9999-12-31T23:59:59Z").map(|time| time.to_string()).as_deref(), Some("9999-12-31T23:59:59"));
    }
}
