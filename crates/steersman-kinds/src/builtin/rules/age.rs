//! Durations as tables print them: `5m`, `3h4m`, `2d`.
//!
//! At most two units, and the second only while it matters, as client-go's `duration` prints them.

use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::time as times;

/// The text for an absent time.
const UNKNOWN: &str = "<unknown>";

/// The time since an RFC 3339 timestamp, as kubectl prints ages; `<unknown>` without a timestamp.
pub fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(times::parse) {
        Some(time) => human(now.as_second() - time.as_second()),
        None => UNKNOWN.to_owned(),
    }
}

/// A number of seconds as tables print it.
pub fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    // A clock that is one second ahead is tolerated.
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds, MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, DAY, "d", HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds, YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// A duration in two units: the whole number of the larger one, then the rest in the smaller one unless it is zero.
fn two(seconds: i64, greater: i64, greater_name: &str, smaller: i64, smaller_name: &str) -> String {
    match seconds % greater / smaller {
        0 => format!("{}{greater_name}", seconds / greater),
        rest => format!("{}{greater_name}{rest}{smaller_name}", seconds / greater),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_units_at_most() {
        for (seconds, want) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (2 * 365 * 86_400 - 1, "729d"),
            (2 * 365 * 86_400, "2y"),
            (2 * 365 * 86_400 + 5 * 86_400, "2y5d"),
            (8 * 365 * 86_400, "8y"),
        ] {
            assert_eq!(human(seconds), want, "{seconds}");
        }
    }

    #[test]
    fn times_are_read_with_and_without_fractions() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(since(&json!("2026-01-01T00:00:00Z"), now), "10m");
        assert_eq!(since(&json!("2026-01-01T00:09:59.500000Z"), now), "1s");
        assert_eq!(since(&Value::Null, now), "<unknown>");
    }
}
