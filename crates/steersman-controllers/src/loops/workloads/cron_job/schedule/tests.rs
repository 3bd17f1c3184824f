//! Parsed schedules, and their times.

use super::*;
use proptest::prelude::*;

fn schedule(text: &str, in_zone: &str) -> Schedule {
    Schedule::parse(text, zone(in_zone).unwrap()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Checks the times after `from`, in local time of the zone.
#[track_caller]
fn check(text: &str, in_zone: &str, from: &str, want: &[&str]) {
    let (schedule, mut time) = (schedule(text, in_zone), from.parse::<Timestamp>().unwrap());
    let zone = zone(in_zone).unwrap();
    for want in want {
        time = schedule.next(time).unwrap_or_else(|| panic!("no time of {text} after {time}"));
        assert_eq!(time.to_zoned(zone.clone()).strftime("%FT%T%:z").to_string(), *want, "{text} from {from}");
    }
}

#[test]
fn times_come_when_all_fields_fit() {
    let from = "2026-01-30T23:59:30.5Z";
    check("* * * * *", "", from, &["2026-01-31T00:00:00+00:00", "2026-01-31T00:01:00+00:00"]);
    check("*/20 3 * * *", "", from, &["2026-01-31T03:00:00+00:00", "2026-01-31T03:20:00+00:00"]);
    check("30 6-16/4 * * 1-5", "", from, &["2026-02-02T06:30:00+00:00", "2026-02-02T10:30:00+00:00"]);
    check("0 0 31 * *", "", from, &["2026-01-31T00:00:00+00:00", "2026-03-31T00:00:00+00:00"]);
    check("0 0 29 2 *", "", from, &["2028-02-29T00:00:00+00:00"]);
    check("0 0 1 JAN ?", "", from, &["2027-01-01T00:00:00+00:00"]);
    check(
        "15/20 1,2 * * *",
        "",
        from,
        &["2026-01-31T01:15:00+00:00", "2026-01-31T01:35:00+00:00", "2026-01-31T01:55:00+00:00"],
    );
}

#[test]
fn one_of_two_fields_of_days_is_enough_unless_one_is_a_star() {
    // The 13th, or a Friday.
    check("0 0 13 * 5", "", "2026-03-09T00:00:00Z", &["2026-03-13T00:00:00+00:00", "2026-03-20T00:00:00+00:00"]);
    check("0 0 15 * fri", "", "2026-03-13T00:00:00Z", &["2026-03-15T00:00:00+00:00", "2026-03-20T00:00:00+00:00"]);
    // A star with a step does not count as a star.
    check("0 0 */16 * fri", "", "2026-03-13T00:00:00Z", &["2026-03-17T00:00:00+00:00", "2026-03-20T00:00:00+00:00"]);
}

#[test]
fn descriptors_stand_for_schedules() {
    let from = "2026-05-30T22:10:00Z";
    check("@hourly", "", from, &["2026-05-30T23:00:00+00:00", "2026-05-31T00:00:00+00:00"]);
    check("@daily", "", from, &["2026-05-31T00:00:00+00:00"]);
    check("@midnight", "", from, &["2026-05-31T00:00:00+00:00"]);
    check("@weekly", "", from, &["2026-05-31T00:00:00+00:00", "2026-06-07T00:00:00+00:00"]);
    check("@monthly", "", from, &["2026-06-01T00:00:00+00:00"]);
    check("@yearly", "", from, &["2027-01-01T00:00:00+00:00"]);
    check("@every 90m", "", from, &["2026-05-30T23:40:00+00:00", "2026-05-31T01:10:00+00:00"]);
    check("@every 1.5s", "", "2026-05-30T22:10:00.7Z", &["2026-05-30T22:10:01+00:00"]);
    check("@every -5h", "", from, &["2026-05-30T22:10:01+00:00"]);
}

#[test]
fn where_clocks_are_put_forward_an_hour_that_is_left_out_has_no_time() {
    let from = "2026-03-28T12:00:00Z";
    check("30 2 * * *", "Europe/Berlin", from, &["2026-03-30T02:30:00+02:00"]);
    check(
        "0 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"],
    );
    check("0 3 * * *", "Europe/Berlin", from, &["2026-03-29T03:00:00+02:00", "2026-03-30T03:00:00+02:00"]);
}

#[test]
fn where_clocks_are_put_back_an_hour_that_comes_twice_has_two_times() {
    let from = "2026-10-24T12:00:00Z";
    check(
        "30 2 * * *",
        "Europe/Berlin",
        from,
        &["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"],
    );
    check("0 3 * * *", "Europe/Berlin", from, &["2026-10-25T03:00:00+01:00"]);
}

#[test]
fn a_day_that_begins_at_one_in_the_morning_is_found() {
    // Clocks were put forward at midnight on the 4th of November 2018.
    check("0 5 4 * *", "America/Sao_Paulo", "2018-11-01T12:00:00Z", &["2018-11-04T05:00:00-02:00"]);
}

/// The expected times were computed with `robfig/cron` itself.
#[test]
fn near_changes_of_clocks_times_are_those_of_the_go_library() {
    for (in_zone, text, from, want) in [
        ("America/Asuncion", "7/1,*/2 15/16 */9 3 1-4", 1_698_393_834, 1_709_575_200),
        ("Australia/Lord_Howe", "33-46,* 10-10,23/3 27-30,6 11/7 1-6,*/17", 1_506_784_997, 1_509_490_800),
        ("America/Havana", "5 * 13/9 */12 5", 1_390_991_455, 1_391_144_700),
        ("Asia/Beirut", "* 3/17 8 8/16 2-4", 1_497_801_855, 1_501_545_600),
        ("Africa/Cairo", "30-46 14,8-14 7 10 2/15", 1_286_298_372, 1_286_433_000),
        ("America/Sao_Paulo", "10-10,*/19 */9 *,23/5 *,* */12", 1_382_911_895, 1_383_444_000),
        ("Asia/Tehran", "* * 5-11 5-7,3-10 2,*", 1_426_904_292, 1_428_175_800),
        ("America/New_York", "40-51,* 7-9 *,* *,1/19 */9", 1_351_938_663, 1_352_030_400),
        ("Europe/London", "55/17 */15,* */10 3/17 *", 1_262_221_586, 1_267_404_900),
    ] {
        let next = schedule(text, in_zone).next(Timestamp::from_second(from).unwrap());
        assert_eq!(next.map(Timestamp::as_second), Some(want), "{text} in {in_zone}");
    }
}

#[test]
fn a_day_that_a_zone_leaves_out_holds_nothing_up() {
    // There was no 30th of December 2011.
    check("0 12 31 * *", "Pacific/Apia", "2011-12-29T12:00:00Z", &["2011-12-31T12:00:00+14:00"]);
}

#[test]
fn a_zone_in_the_schedule_goes_before_the_other() {
    check("TZ=Asia/Tokyo 0 3 * * *", "", "2026-01-01T00:00:00Z", &["2026-01-01T18:00:00+00:00"]);
    check("CRON_TZ=Asia/Tokyo @daily", "", "2026-01-01T00:00:00Z", &["2026-01-01T15:00:00+00:00"]);
}

/// The gap of half an hour ends within an hour that the schedule does not name: `robfig/cron` goes on through its
/// minutes.
#[test]
fn after_a_gap_of_half_an_hour_the_minute_counts_alone() {
    let times = ["2015-10-04T01:30:00+10:30", "2015-10-04T02:30:00+11:00", "2015-10-11T01:30:00+11:00"];
    check("30 1 * * 0", "Australia/Lord_Howe", "2015-10-01T00:00:00Z", &times);
}

#[test]
fn days_that_never_come_have_no_time() {
    for text in ["59 23 31 2 *", "0 0 30 feb *", ", * * * *", "* , * * *"] {
        assert_eq!(schedule(text, "Europe/Berlin").next(Timestamp::UNIX_EPOCH), None, "{text}");
    }
    assert_eq!(schedule("@every 2562047h", "").next(Timestamp::MAX), None);
    assert_eq!(schedule("* * * * *", "").next(Timestamp::MAX), None);
}

#[test]
fn what_is_no_schedule_is_refused_with_the_reason() {
    for (text, want) in [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ("@never", "unrecognized descriptor: @never"),
        ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ("@every 5x", "failed to parse duration @every 5x: time: unknown unit \"x\" in duration \"5x\""),
        ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
        ("TZ=0", "expected timezone prefix to be followed by a cron spec: TZ=0"),
        ("TZ=Mars/Base * * * * *", "provided bad location Mars/Base: unknown time zone Mars/Base"),
    ] {
        let error = Schedule::parse(text, TimeZone::UTC).expect_err(text);
        assert_eq!(error.to_string(), want, "{text}");
    }
}

/// A field of a schedule with numbers in this range.
fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
    let number = move || least..=most;
    let part = prop_oneof![
        3 => Just("*".to_owned()),
        2 => number().prop_map(|number| number.to_string()),
        1 => (number(), number()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (number(), 1u32..70).prop_map(|(from, step)| format!("{from}/{step}")),
        1 => (1u32..70).prop_map(|step| format!("*/{step}")),
    ];
    prop::collection::vec(part, 1..3).prop_map(|parts| parts.join(","))
}

fn any_schedule() -> impl Strategy<Value = String> {
    (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6))
        .prop_map(|(minutes, hours, days, months, weekdays)| format!("{minutes} {hours} {days} {months} {weekdays}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_is_read_or_refused_and_has_a_later_time_or_none(text in "\\PC{0,40}", second in any::<i64>()) {
        if let (Ok(schedule), Ok(from)) = (Schedule::parse(&text, TimeZone::UTC), Timestamp::from_second(second % 400_000_000_000)) {
            prop_assert!(schedule.next(from).is_none_or(|next| next > from));
        }
    }

    #[test]
    fn texts_like_schedules_are_read_or_refused(text in "(TZ=[A-Z/a-z]{0,9} )?(@every )?[-*/?,0-9a-z. ]{0,30}") {
        let _ = Schedule::parse(&text, TimeZone::UTC).map(|schedule| schedule.next(Timestamp::UNIX_EPOCH));
    }

    /// In UTC every minute can be tried.
    #[test]
    fn the_next_time_is_the_first_minute_that_fits(text in any_schedule(), from in 1_700_000_000i64..1_800_000_000) {
        let schedule = schedule(&text, "");
        let Times::On(fields) = schedule.times else { unreachable!() };
        let fits = |second: i64| {
            let time = civil(second, &TimeZone::UTC).unwrap();
            has(fields.minutes, time.minute()) && has(fields.hours, time.hour())
                && has(fields.months, time.month()) && has_day(&fields, time.date())
        };
        let first = (from.div_euclid(60) + 1..).take(20 * 24 * 60).map(|minute| minute * 60).find(|&second| fits(second));
        let next = schedule.next(Timestamp::from_second(from).unwrap()).map(Timestamp::as_second);
        match first {
            Some(first) => prop_assert_eq!(next, Some(first)),
            None => prop_assert!(next.is_none_or(|next| next > from && fits(next))),
        }
    }

    /// In zones whose clocks change, at different hours.
    #[test]
    fn in_any_zone_times_go_forward_and_fit(
        text in any_schedule(),
        in_zone in prop::sample::select(vec!["Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu"]),
        from in 1_300_000_000i64..1_800_000_000,
    ) {
        let (schedule, zone) = (schedule(&text, in_zone), zone(in_zone).unwrap());
        let Times::On(fields) = schedule.times else { unreachable!() };
        let mut time = Timestamp::from_second(from).unwrap();
        for _ in 0..5 {
            let Some(next) = schedule.next(time) else { break };
            prop_assert!(next > time);
            let (shown, hour_before) = (zone.to_datetime(next), next.checked_sub(1.hour()).unwrap());
            let is_after_gap = zone.to_offset(hour_before) < zone.to_offset(next);
            prop_assert!(has(fields.minutes, shown.minute()), "{}", shown);
            prop_assert!(has(fields.hours, shown.hour()) || is_after_gap, "{}", shown);
            time = next;
        }
    }
}
