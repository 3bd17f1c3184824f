//! Whether a text is a schedule in the form of cron: `*/5 9-17 * * mon-fri`, `@daily`, `@every 90m`.

/// The fields of a schedule: their bounds, and the names that stand for numbers.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Checks a schedule.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let schedule = match text.strip_prefix("TZ=").or(text.strip_prefix("CRON_TZ=")) {
        Some(zoned) => zoned.split_once(' ').map_or("", |(_, schedule)| schedule).trim(),
        None => text,
    };
    if let Some(word) = schedule.strip_prefix('@') {
        return check_word(schedule, word);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, (least, most, names)) in fields.iter().zip(FIELDS) {
        for part in field.split(',') {
            check_part(part, least, most, names)?;
        }
    }
    Ok(())
}

fn check_word(schedule: &str, word: &str) -> Result<(), String> {
    let words = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];
    if words.contains(&word) {
        return Ok(());
    }
    let Some(span) = word.strip_prefix("every ") else {
        return Err(format!("unrecognized descriptor: {schedule}"));
    };
    let units = ["ns", "us", "ms", "s", "m", "h"];
    let number_end = span.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(span.len());
    let is_span = number_end > 0
        && span[number_end..]
            .split(|char: char| char.is_ascii_digit() || char == '.')
            .all(|unit| unit.is_empty() || units.contains(&unit));
    if is_span && number_end < span.len() { Ok(()) } else { Err(format!("failed to parse duration {schedule}")) }
}

/// `*`, `5`, `1-5`, each perhaps with a step behind a slash.
fn check_part(part: &str, least: u32, most: u32, names: &[&str]) -> Result<(), String> {
    let (range, step) = match part.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {part}")),
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    if let Some(step) = step
        && number(step, &[])? == 0
    {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    if matches!(range, "*" | "?") {
        return Ok(());
    }
    let (start, end) = match range.split_once('-') {
        Some((_, end)) if end.contains('-') => return Err(format!("too many hyphens: {part}")),
        Some((start, end)) => (number(start, names)?, number(end, names)?),
        None => (number(range, names)?, number(range, names)?),
    };
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {part}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {part}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    Ok(())
}

fn number(text: &str, names: &[&str]) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    if let Some(index) = names.iter().position(|name| *name == lower) {
        // The names of months begin at one.
        let first = u32::from(names.len() == 12);
        return u32::try_from(index).map(|index| index + first).map_err(|error| error.to_string());
    }
    text.parse().map_err(|_| format!("failed to parse int from {text}: it is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_told_from_other_texts() {
        for text in
            ["*/5 * * * *", "0 9-17 * * mon-fri", "0,30 1/2 1 JAN ?", "@daily", "@every 1h30m", "TZ=UTC 0 0 * * *"]
        {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, want) in [
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every day", "failed to parse duration @every day"),
        ] {
            assert_eq!(check(text), Err(want.to_owned()));
        }
    }
}
