//! Durations on the command line, in the notation of people and of Kubernetes: `90s`, `1h30m`, `3d`.

use jiff::{Span, SpanRelativeTo};
use std::time::Duration;

/// With less, lists in pages and resumed watches would fail for clients that do nothing wrong.
const HISTORY_MIN: Duration = Duration::from_secs(60);
/// All changes within this time stay in the store, so a longer one is most likely a typing error.
const HISTORY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The age to which history is kept.
pub(crate) fn history(text: &str) -> Result<Duration, String> {
    match parse(text) {
        Some(duration) if (HISTORY_MIN..=HISTORY_MAX).contains(&duration) => Ok(duration),
        Some(_) | None => Err("want a duration from 1m to 30d, such as 90s, 5m or 1h30m".to_owned()),
    }
}

/// The longest lifetime of a token. An hour is the lifetime of tokens whose clients request none.
pub(crate) fn token(text: &str) -> Result<Duration, String> {
    const HOUR: Duration = Duration::from_secs(3600);
    match parse(text) {
        Some(duration) if duration >= HOUR => Ok(duration),
        Some(_) | None => Err("want a duration of 1h or more, such as 24h or 30d".to_owned()),
    }
}

/// Any duration, including zero.
pub(crate) fn any(text: &str) -> Result<Duration, String> {
    let zero = Some(Duration::ZERO).filter(|_| text == "0");
    zero.or_else(|| parse(text)).ok_or_else(|| "want a duration such as 30s, 5m or 1h30m".to_owned())
}

/// A duration above zero.
pub(crate) fn more_than_none(text: &str) -> Result<Duration, String> {
    let duration = parse(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "want a duration of more than nothing, such as 30s, 5m or 1h30m".to_owned())
}

/// The lifetime of a leader's lease.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_secs(3)..=Duration::from_secs(3600);
    let duration = parse(text).filter(|duration| bounds.contains(duration));
    duration.ok_or_else(|| "want a duration from 3s to 1h, such as 15s".to_owned())
}

fn parse(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    // Months and years have no fixed length.
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(duration).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want_seconds: Option<u64>) {
        assert_eq!(history(text).ok(), want_seconds.map(Duration::from_secs), "{text}");
    }

    #[test]
    fn history_is_between_a_minute_and_thirty_days() {
        check("90s", Some(90));
        check("5m", Some(300));
        check("1h", Some(3600));
        check("1h30m", Some(5400));
        check("3d", Some(3 * 86_400));
        check("1m", Some(60));
        check("30d", Some(30 * 86_400));
        check("59s", None);
        check("30d1s", None);
        check("-5m", None);
        check("0", None);
        check("300", None);
        check("1mo", None);
        check("99999999999999999999d", None);
        check("forever", None);
        check("", None);
    }
}
