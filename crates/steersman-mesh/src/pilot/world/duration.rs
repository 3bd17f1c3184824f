//! Durations as the Gateway API writes them (GEP-2257): up to four pairs of digits and a unit, such as `1m30s`.

use std::time::Duration;

/// The most digits before a unit, and the most pairs.
const DIGITS_MAX: usize = 5;
const PAIRS_MAX: usize = 4;

/// The duration that `text` is; `None` if it is none.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let (mut rest, mut sum, mut n_pairs) = (text, Duration::ZERO, 0);
    while !rest.is_empty() {
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=DIGITS_MAX).contains(&n_digits) || n_pairs == PAIRS_MAX {
            return None;
        }
        let (digits, after) = rest.split_at(n_digits);
        let number: u64 = digits.parse().ok()?;
        let n_letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at(n_letters);
        sum += match unit {
            "h" => Duration::from_secs(number * 3_600),
            "m" => Duration::from_secs(number * 60),
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            _ => return None,
        };
        (rest, n_pairs) = (after, n_pairs + 1);
    }
    (n_pairs > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::proptest;

    proptest! {
        #[test]
        fn what_is_written_is_read(hours in 0_u64..99_999, millis in 0_u64..99_999) {
            let written = format!("{hours}h{millis}ms");
            assert_eq!(parse(&written), Some(Duration::from_secs(hours * 3_600) + Duration::from_millis(millis)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9hms.\\-µ ]{0,24}|.{0,12}") {
            let is_written_so = text.bytes().all(|byte| byte.is_ascii_digit() || b"hms".contains(&byte));
            assert!(parse(&text).is_none() || is_written_so);
        }
    }

    #[test]
    fn durations_are_pairs_of_digits_and_units() {
        assert_eq!(parse("0s"), Some(Duration::ZERO));
        assert_eq!(parse("1h2m3s4ms"), Some(Duration::from_millis(3_723_004)));
        assert_eq!(parse("1m30s"), Some(Duration::from_secs(90)));
        for wrong in ["", "5", "s", "1.5s", "-1s", "1d", "123456s", "1s1s1s1s1s", "1 s", "1µs"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
