//! Durations in Go's format.

use std::fmt::Write as _;
use std::time::Duration;

/// A number of seconds from the API as a duration; negative ones count as zero.
pub(crate) fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Formats as `1m20s`, `1.5s` or `0s`, to the millisecond.
pub(crate) fn format(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    // Writing to a string cannot fail.
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{seconds}");
    if millis > 0 {
        let fraction = format!("{millis:03}");
        let _ = write!(text, ".{}", fraction.trim_end_matches('0'));
    }
    text.push('s');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steersman_machinery::duration::parse_unsigned;

    #[test]
    fn durations_are_written_as_go_does() {
        for (millis, want) in [(0, "0s"), (350, "350ms"), (1500, "1.5s"), (80_000, "1m20s"), (3_600_000, "1h0m0s")] {
            assert_eq!(format(Duration::from_millis(millis)), want);
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(millis in 0_u64..1 << 43) {
            let duration = Duration::from_millis(millis);
            let read = parse_unsigned(&format(duration)).unwrap();
            prop_assert!(read.abs_diff(duration) < Duration::from_millis(1), "{read:?}");
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = parse_unsigned(&text);
        }
    }
}
