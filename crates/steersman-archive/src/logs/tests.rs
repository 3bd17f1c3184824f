//! Logs in files, in a tar, and with marks between them.

use crate::logs::{Container, Lines, LogError, LogOptions, Logs, Run, Unpacked};
use std::fs;

const TIMED: &str = "2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02Z two\n2026-01-01T00:00:03Z three\n";

fn container(name: &str) -> Container {
    Container::new("default", "web-1", name, Run::Current)
}

/// A log with this text in a file, and in what was unpacked.
fn both(text: &str) -> (tempfile::TempDir, Vec<Logs>) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("web.log"), text).unwrap();
    let (mut file, mut unpacked) = (Logs::default(), Logs::default());
    file.add_file(container("web"), Lines::Timed, dir.path().join("web.log"));
    for (name, text) in [("other", "x\n"), ("web", text), ("web", "a second log of the same container\n")] {
        let written =
            unpacked.unpack((container(name), Lines::Timed), &mut text.as_bytes(), dir.path(), 1_000).unwrap();
        assert_eq!(written, Unpacked::Whole);
    }
    (dir, vec![file, unpacked])
}

#[track_caller]
fn check(text: &str, options: LogOptions, want: &str) {
    for logs in both(text).1 {
        assert_eq!(String::from_utf8(logs.read(&container("web"), &options).unwrap()).unwrap(), want);
    }
}

#[test]
fn a_log_is_read_whole_or_in_part() {
    let (none, text) = (LogOptions::new(), "a\nb\nc\n");
    check(text, none, text);
    check(text, LogOptions { tail_lines: Some(2), ..none }, "b\nc\n");
    check(text, LogOptions { limit_bytes: Some(3), ..none }, "a\nb");
    check(text, LogOptions { tail_lines: Some(0), ..none }, "");
    check("", LogOptions { timestamps: true, ..none }, "");
}

#[test]
fn times_of_lines_are_shown_when_they_are_asked_for() {
    let none = LogOptions::new();
    check(TIMED, none, "one\ntwo\nthree\n");
    check(TIMED, LogOptions { timestamps: true, ..none }, TIMED);
    let since = Some("2026-01-01T00:00:02Z".parse().unwrap());
    check(TIMED, LogOptions { since, ..none }, "two\nthree\n");
    check(TIMED, LogOptions { since, tail_lines: Some(1), ..none }, "three\n");
    for options in [LogOptions { since, ..none }, LogOptions { timestamps: true, ..none }] {
        let (_dir, logs) = both("no time\n");
        assert!(matches!(logs[0].read(&container("web"), &options), Err(LogError::NoTimes)));
    }
}

#[test]
fn one_that_is_missing_is_named() {
    let (_dir, logs) = both("a\n");
    let error = logs[0].read(&Container { run: Run::Previous, ..container("web") }, &LogOptions::new()).unwrap_err();
    assert_eq!(error.to_string(), "the dump has no previous log of container \"web\" of pod default/web-1");
}

#[test]
fn the_logs_of_several_containers_in_one_file_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mark = |word: &str, name: &str| format!("==== {word} logs for container {name} of pod default/web-1 ====\n");
    let text =
        [mark("START", "a"), "1\n".to_owned(), mark("END", "a"), mark("START", "b"), "2\n3\n".to_owned()].concat();
    let path = dir.path().join("logs.txt");
    fs::write(&path, text).unwrap();
    let mut logs = Logs::default();
    logs.add_file(Container::all_of("default", "web-1"), Lines::Plain, path);
    let read = |name: &str| logs.read(&container(name), &LogOptions::new()).map(|log| String::from_utf8(log).unwrap());
    assert_eq!((read("a").unwrap(), read("b").unwrap()), ("1\n".to_owned(), "2\n3\n".to_owned()));
    assert!(matches!(read("c"), Err(LogError::Missing { .. })));
}

#[test]
fn no_more_is_unpacked_than_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let mut logs = Logs::default();
    let unpacked = logs.unpack((container("web"), Lines::Plain), &mut &[b'x'; 100][..], dir.path(), 99).unwrap();
    assert_eq!(unpacked, Unpacked::TooMuch);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_log_that_became_a_link_is_not_followed() {
    let (dir, logs) = both("a\n");
    fs::write(dir.path().join("secret"), "s").unwrap();
    fs::remove_file(dir.path().join("web.log")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("web.log")).unwrap();
    assert!(matches!(logs[0].read(&container("web"), &LogOptions::new()), Err(LogError::Io(_))));
}
