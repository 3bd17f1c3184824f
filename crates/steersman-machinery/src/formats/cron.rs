//! The grammar of schedules: `*/5 9-17 * * mon-fri`, `@daily`, `@every 90m`. Callers that know time zones compute the
//! times.
//!
//! Follows `ParseStandard` of `github.com/robfig/cron/v3`, which Kubernetes uses: its five fields, names, descriptors
//! and error messages.

use crate::formats::duration;

/// The bounds of the fields, and the names of their values.
const BOUNDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds {
        least: 1,
        most: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// The times of a schedule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Times {
    /// This long after the last one, in seconds; at least one.
    Every(i64),
    /// When the clock matches all fields.
    On(Fields),
}

/// The values of each field: bit `n` is set if the field contains `n`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fields {
    /// Minutes, from 0 to 59.
    pub minutes: u64,
    /// Hours, from 0 to 23.
    pub hours: u64,
    /// Days of the month, from 1 to 31.
    pub days: u64,
    /// Months, from 1 to 12.
    pub months: u64,
    /// Days of the week, from 0, a Sunday, to 6.
    pub weekdays: u64,
    /// Whether a day must match both day fields, because one of them is a star. Otherwise one of them suffices.
    pub is_day_in_both: bool,
}

/// Why a text is not a schedule, in the words of `robfig/cron`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

struct Bounds {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

/// The name of the time zone at the beginning of a schedule, as in `TZ=Asia/Tokyo 0 6 * * *`, and the rest.
///
/// # Errors
/// When the text is empty, or nothing follows the name.
pub fn split_zone(text: &str) -> Result<(Option<&str>, &str), ParseError> {
    if text.is_empty() {
        return Err(error("empty spec string"));
    }
    let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return Ok((None, text));
    };
    match rest.split_once(' ') {
        Some((name, rest)) => Ok((Some(name), rest.trim())),
        None => Err(error(format!("expected timezone prefix to be followed by a cron spec: {text}"))),
    }
}

/// The error of a schedule with an unknown time zone.
pub fn bad_location(name: &str, cause: impl std::fmt::Display) -> ParseError {
    error(format!("provided bad location {name}: {cause}"))
}

/// Parses a schedule without a time zone.
///
/// # Errors
/// The first error of the text.
pub fn parse(text: &str) -> Result<Times, ParseError> {
    if text.starts_with('@') { descriptor(text) } else { fields(text).map(Times::On) }
}

impl Fields {
    const EVERY_DAY: Fields =
        Fields { minutes: 1, hours: 1, days: u64::MAX, months: u64::MAX, weekdays: u64::MAX, is_day_in_both: true };
}

fn error(text: impl Into<String>) -> ParseError {
    ParseError(text.into())
}

fn fields(text: &str) -> Result<Fields, ParseError> {
    let texts: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = texts[..] else {
        return Err(error(format!("expected exactly 5 fields, found {}: [{}]", texts.len(), texts.join(" "))));
    };
    let [of_minutes, of_hours, of_days, of_months, of_weekdays] = BOUNDS;
    let (minutes, _) = of_minutes.field(minutes)?;
    let (hours, _) = of_hours.field(hours)?;
    let (days, is_any_day) = of_days.field(days)?;
    let (months, _) = of_months.field(months)?;
    let (weekdays, is_any_weekday) = of_weekdays.field(weekdays)?;
    Ok(Fields { minutes, hours, days, months, weekdays, is_day_in_both: is_any_day || is_any_weekday })
}

impl Bounds {
    /// The bits of a list of ranges, and whether a star is among them.
    fn field(&self, text: &str) -> Result<(u64, bool), ParseError> {
        let mut all = (0, false);
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (bits, is_star) = self.range(range)?;
            all = (all.0 | bits, all.1 || is_star);
        }
        Ok(all)
    }

    /// `*`, `5`, `1-5`, each with an optional step after a slash.
    fn range(&self, text: &str) -> Result<(u64, bool), ParseError> {
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, step)) => (range, Some(step)),
        };
        let (first, last) = match range.split_once('-') {
            None => (range, None),
            Some((first, last)) => (first, Some(last)),
        };
        let is_star = matches!(first, "*" | "?");
        let (start, mut end) = if is_star {
            (self.least, self.most)
        } else {
            let start = self.number(first)?;
            match last {
                None => (start, start),
                Some(last) if last.contains('-') => return Err(error(format!("too many hyphens: {text}"))),
                Some(last) => (start, self.number(last)?),
            }
        };
        let step = match step {
            None => 1,
            Some(step) if step.contains('/') => return Err(error(format!("too many slashes: {text}"))),
            Some(step) => {
                if last.is_none() {
                    end = self.most;
                }
                number(step)?
            }
        };
        if start < self.least {
            return Err(error(format!("beginning of range ({start}) below minimum ({}): {text}", self.least)));
        }
        if end > self.most {
            return Err(error(format!("end of range ({end}) above maximum ({}): {text}", self.most)));
        }
        if start > end {
            return Err(error(format!("beginning of range ({start}) beyond end of range ({end}): {text}")));
        }
        let Ok(stride @ 1..) = usize::try_from(step) else {
            return Err(error(format!("step of range should be a positive number: {text}")));
        };
        let bits = (start..=end).step_by(stride).fold(0, |bits, number| bits | 1 << number);
        Ok((bits, is_star && step == 1))
    }

    fn number(&self, text: &str) -> Result<u32, ParseError> {
        let lower = text.to_ascii_lowercase();
        match self.names.iter().zip(self.least..).find(|(name, _)| **name == lower) {
            Some((_, number)) => Ok(number),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, ParseError> {
    let number: i64 = text.parse().map_err(|_| {
        error(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
    })?;
    if number < 0 {
        return Err(error(format!("negative number ({number}) not allowed: {text}")));
    }
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

fn descriptor(text: &str) -> Result<Times, ParseError> {
    let daily = Fields::EVERY_DAY;
    Ok(Times::On(match text {
        "@yearly" | "@annually" => Fields { days: 1 << 1, months: 1 << 1, ..daily },
        "@monthly" => Fields { days: 1 << 1, ..daily },
        "@weekly" => Fields { weekdays: 1, ..daily },
        "@daily" | "@midnight" => daily,
        "@hourly" => Fields { hours: u64::MAX, ..daily },
        _ => {
            let Some(span) = text.strip_prefix("@every ") else {
                return Err(error(format!("unrecognized descriptor: {text}")));
            };
            let nanos =
                duration::parse(span).map_err(|why| error(format!("failed to parse duration {text}: {why}")))?;
            return Ok(Times::Every((nanos / 1_000_000_000).max(1)));
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn schedules_are_told_from_other_texts() {
        for text in ["*/5 * * * *", "0 9-17 * * mon-fri", "0,30 1/2 1 JAN ?", "@daily", "@every 1h30m", "@every 0"] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for (text, want) in [
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every day", r#"failed to parse duration @every day: time: invalid duration "day""#),
            ("@every 1h30", r#"failed to parse duration @every 1h30: time: missing unit in duration "1h30""#),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(want.to_owned()));
        }
    }

    #[test]
    fn a_zone_comes_before_the_schedule() {
        assert_eq!(split_zone("TZ=UTC  0 0 * * *"), Ok((Some("UTC"), "0 0 * * *")));
        assert_eq!(split_zone("CRON_TZ=Asia/Tokyo @daily"), Ok((Some("Asia/Tokyo"), "@daily")));
        assert_eq!(split_zone("@daily"), Ok((None, "@daily")));
        assert!(split_zone("TZ=UTC").is_err() && split_zone("").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in r"[-0-9a-zA-Z*?/,@ .=]{0,40}") {
            let _ = split_zone(&text).and_then(|(_, rest)| parse(rest));
        }

        #[test]
        fn numbers_within_the_bounds_set_their_bits(minute in 0_u32..60, hour in 0_u32..24, day in 1_u32..32) {
            let Ok(Times::On(fields)) = parse(&format!("{minute} {hour} {day} * *")) else { panic!("it is a schedule") };
            prop_assert_eq!((fields.minutes, fields.hours, fields.days), (1 << minute, 1 << hour, 1 << day));
        }
    }
}
