//! Checks the form of single files: module docs, length, trailing space, words, tests that sleep or are ignored.
//!
//! A pure function from a path and its text to findings. Rules that a lint can check are left to clippy.

use crate::tidy::Finding;

/// The directory of the fuzz targets' inputs.
const CORPORA: &str = "fuzz/corpus/";
/// The names of Kubernetes' own specs, which are kept as they are.
const SPECS: &str = "tests/clients/conformance/";
const LINES_MAX: usize = 1000;
const README_LINES_MAX: usize = 80;
/// The start of a line of module docs with the reason why the file is longer.
const LENGTH_MARK: &str = "//! Length: ";

/// Paths on somebody's machine, and hosts of packages: neither belongs into a project. Written in two halves, so that
/// this list does not find itself.
const WORDS_BANNED: &[(&str, &str)] = &[
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/tmp/ba", "sh_jobs"),
    ("registry.npm", "js.org"),
    ("index.crates", ".io"),
    ("static.crates", ".io"),
    ("pypi", ".org"),
    ("proxy.golang", ".org"),
];
/// The beginnings of sentences that name their object before their subject.
const BEGINNINGS_BANNED: [&str; 5] = ["What ", "Of ", "Who ", "Those ", "So many "];
const IGNORE: (&str, &str) = ("#[ign", "ore");
const THREAD_SLEEP: (&str, &str) = ("thread::sl", "eep(");
const ASYNC_SLEEP: (&str, &str) = ("sl", "eep(");
/// Marks of a paused clock, under which a sleep takes no time.
const PAUSED: [(&str, &str); 3] = [("start_pau", "sed = true"), ("start_pau", "sed(true)"), ("time::pa", "use()")];

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if path.ends_with(".rs") {
        check_rust(path, text, &mut findings);
    }
    // Recordings and inputs of fuzz targets stay as they were made; the lock file is cargo's.
    let is_recording = path.ends_with(".walk") || path.starts_with(CORPORA);
    let is_lock = path.ends_with(".lock");
    if path == "README.md" && text.lines().count() > README_LINES_MAX {
        findings.push(Finding::new(path, format!("has more than {README_LINES_MAX} lines")));
    }
    if !is_recording && !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::new(path, "does not end with a line break"));
    }
    for (index, line) in text.lines().enumerate() {
        let mut at = |message: String| findings.push(Finding::new(format!("{path}:{}", index + 1), message));
        if !is_recording && line.ends_with([' ', '\t']) {
            at("trailing space".to_owned());
        }
        if is_lock {
            continue;
        }
        for (first, second) in WORDS_BANNED {
            let word = format!("{first}{second}");
            if line.contains(&word) {
                at(format!("names {word}: the project does not depend on one machine or host"));
            }
        }
        let is_spec = path.starts_with(SPECS) && path.ends_with(".txt");
        if !is_spec && names_issue(line) {
            at("refers to a number of the tracker: say what is meant".to_owned());
        }
    }
    findings
}

fn check_rust(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if path.ends_with("/mod.rs") {
        findings.push(Finding::new(path, "is a mod.rs: name it after its module, beside the directory"));
    }
    if !text.starts_with("//!") {
        findings.push(Finding::new(path, "does not begin with module docs: `//!`, what it holds, who calls it"));
    }
    if text.lines().count() > LINES_MAX && !text.lines().any(|line| line.starts_with(LENGTH_MARK)) {
        let message = format!("has more than {LINES_MAX} lines: split it, or justify it with a line `{LENGTH_MARK}..`");
        findings.push(Finding::new(path, message));
    }
    let is_test_file = path.split('/').any(|part| part == "tests") || path.ends_with("/tests.rs");
    let clock_is_paused = PAUSED.iter().any(|halves| text.contains(&whole(*halves)));
    let mut in_tests = is_test_file;
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        // Tests are last in a file.
        in_tests |= line.trim() == "#[cfg(test)]";
        let begins_comment = comment(before).is_none_or(str::is_empty);
        before = line;
        if let Some(text) = comment(line) {
            let is_banned = |beginning: &&&str| begins_comment && text.starts_with(**beginning);
            if let Some(beginning) = BEGINNINGS_BANNED.iter().find(is_banned) {
                let message =
                    format!("a comment begins with `{}`: say who does what, or name the thing", beginning.trim());
                findings.push(Finding::new(format!("{path}:{}", index + 1), message));
            }
            continue;
        }
        let mut at = |message: &str| findings.push(Finding::new(format!("{path}:{}", index + 1), message));
        if line.contains(&whole(IGNORE)) {
            at("ignores a test: delete it, or make it pass");
        }
        if in_tests && line.contains(&whole(THREAD_SLEEP)) {
            at("sleeps in a test: wait for the event itself");
        } else if in_tests && !clock_is_paused && calls_sleep(line) {
            at("sleeps in a test whose clock runs: wait for the event itself, or pause the clock");
        }
    }
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

fn whole((first, second): (&str, &str)) -> String {
    format!("{first}{second}")
}

/// Whether `line` calls a function of exactly that name, with or without a path before it.
fn calls_sleep(line: &str) -> bool {
    line.match_indices(&whole(ASYNC_SLEEP)).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != '.')
    })
}

/// Whether `line` contains `issue` followed by a number.
fn names_issue(line: &str) -> bool {
    let lower = line.to_lowercase();
    lower.match_indices("issue").any(|(at, word)| {
        let rest = lower[at + word.len()..].trim_start_matches([' ', '#']);
        rest.len() < lower.len() - at - word.len() && rest.starts_with(|first: char| first.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = "//! Docs.\n";

    #[track_caller]
    fn check_file(path: &str, text: &str, expected: &[&str]) {
        let findings: Vec<String> = check(path, text).iter().map(ToString::to_string).collect();
        let starts: Vec<bool> = findings.iter().zip(expected).map(|(found, start)| found.starts_with(start)).collect();
        assert!(findings.len() == expected.len() && starts.iter().all(|same| *same), "{findings:#?} not {expected:#?}");
    }

    #[test]
    fn clean_files_pass() {
        check_file("a/src/lib.rs", DOCS, &[]);
        check_file("README.md", "# Name\n", &[]);
        check_file("a.walk", "no line break, and space \nthere", &[]);
        check_file("fuzz/corpus/yaml/a", "no line break, and space \nthere", &[]);
    }

    #[test]
    fn comments_that_begin_with_their_object_are_named() {
        let found = "a/src/lib.rs:3: a comment begins with `What`";
        check_file("a/src/lib.rs", "//! Docs.\n\n    /// What it does.\n    /// Of course.\n", &[found]);
        check_file("a/src/lib.rs", "//! Docs.\n//!\n//! Those of others.\n", &["a/src/lib.rs:3: a comment begins"]);
        check_file("a/src/lib.rs", "//! Docs\n//! What follows is the second line.\n// Whatever.\n", &[]);
    }

    #[test]
    fn module_docs_come_first() {
        check_file("a/src/lib.rs", "use std::fs;\n", &["a/src/lib.rs: does not begin with module docs"]);
        check_file("a/src/mod.rs", DOCS, &["a/src/mod.rs: is a mod.rs"]);
    }

    #[test]
    fn long_file_needs_its_reason() {
        let long = format!("{DOCS}{}", "x\n".repeat(LINES_MAX));
        check_file("a.rs", &long, &["a.rs: has more than 1000 lines"]);
        check_file("a.rs", &format!("//! Docs.\n{LENGTH_MARK}one table.\n{long}"), &[]);
        check_file("README.md", &"x\n".repeat(README_LINES_MAX + 1), &["README.md: has more than 80 lines"]);
    }

    #[test]
    fn space_and_line_break_at_the_end() {
        check_file("a.toml", "a = 1 \nb = 2", &["a.toml: does not end", "a.toml:1: trailing space"]);
    }

    #[test]
    fn machine_paths_hosts_and_tracker_numbers_are_banned() {
        for (first, second) in WORDS_BANNED {
            check_file("a.md", &format!("see {first}{second}x\n"), &["a.md:1: names "]);
        }
        check_file("a.md", &format!("fixes iss{}\n", "ue #12"), &["a.md:1: refers to"]);
        check_file("a.md", "an issue of 12 pages, issued 12 times, issue12s\n", &[]);
        check_file("tests/clients/conformance/specs.txt", &format!("generates 500, iss{}\n", "ue 500"), &[]);
    }

    #[test]
    fn tests_neither_sleep_nor_are_ignored() {
        let sleeps = format!("{DOCS}tokio::time::{}d).await;\n", whole(ASYNC_SLEEP));
        check_file("a/src/a.rs", &sleeps, &[]);
        check_file("a/tests/it/a.rs", &sleeps, &["a/tests/it/a.rs:2: sleeps in a test whose clock runs"]);
        check_file(
            "a/src/a.rs",
            &format!("{DOCS}#[cfg(test)]\n{}d);\n", whole(ASYNC_SLEEP)),
            &["a/src/a.rs:3: sleeps"],
        );
        check_file("a/src/a/tests.rs", &format!("{sleeps}{}\n", whole(PAUSED[0])), &[]);
        let blocks = format!("{DOCS}std::{}d);\n{}\n", whole(THREAD_SLEEP), whole(PAUSED[0]));
        check_file("a/src/a/tests.rs", &blocks, &["a/src/a/tests.rs:2: sleeps in a test: wait"]);
        check_file("a/src/a.rs", &format!("{DOCS}{}]\n", whole(IGNORE)), &["a/src/a.rs:2: ignores a test"]);
        check_file("a/tests/a.rs", &format!("{DOCS}let_me_{}1);\n", whole(ASYNC_SLEEP)), &[]);
    }
}
