//! Values that users give as a number or as a percentage.
//!
//! Follows upstream's `intstr.GetScaledValueFromIntOrPercent`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How a percentage is rounded to a whole number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Round {
    Down,
    Up,
}

/// The number, or the percentage of `total`. `None` for a text that is not a percentage.
pub(crate) fn number(value: &IntOrString, total: i64, round: Round) -> Option<i64> {
    let percent: i64 = match value {
        IntOrString::Int(number) => return Some(i64::from(*number)),
        IntOrString::String(text) => text.strip_suffix('%')?.parse::<i32>().ok()?.into(),
    };
    let hundredfold = percent.saturating_mul(total);
    let is_exact = hundredfold % 100 == 0;
    let below = hundredfold.div_euclid(100);
    Some(match round {
        Round::Up if !is_exact => below.saturating_add(1),
        Round::Down | Round::Up => below,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked() {
        let percent = |text: &str, total, round| number(&IntOrString::String(text.to_owned()), total, round);
        assert_eq!(number(&IntOrString::Int(7), 3, Round::Up), Some(7));
        assert_eq!(percent("50%", 3, Round::Up), Some(2));
        assert_eq!(percent("50%", 3, Round::Down), Some(1));
        assert_eq!(percent("100%", 3, Round::Up), Some(3));
        assert_eq!(percent("10%", 0, Round::Up), Some(0));
        assert_eq!(percent("2147483647%", i64::MAX, Round::Up), Some(i64::MAX / 100 + 1));
        assert_eq!(percent("ten", 3, Round::Up), None);
        assert_eq!(percent("%", 3, Round::Up), None);
    }
}
