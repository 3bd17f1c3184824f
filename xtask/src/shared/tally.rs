//! Counts the results of test programs: the `test result:` lines of `cargo test`, and the `ok` and `not ok` lines of
//! the Test Anything Protocol.

use std::ops::AddAssign;

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Tally {
    /// Reads one line such as `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out`, or `ok 1 -
    /// a name` at the beginning of a line: an indented line is part of a subtest, whose result follows.
    pub(crate) fn from_line(line: &str) -> Option<Tally> {
        if line.starts_with("ok ") {
            return Some(Tally { passed: 1, failed: 0 });
        }
        if line.starts_with("not ok ") {
            return Some(Tally { passed: 0, failed: 1 });
        }
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |word: &str| {
            counts.split(';').find_map(|part| part.trim().strip_suffix(word)?.trim().parse::<usize>().ok())
        };
        Some(Tally { passed: count("passed")?, failed: count("failed")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(usize, usize)>) {
        assert_eq!(Tally::from_line(line).map(|tally| (tally.passed, tally.failed)), expected, "{line}");
    }

    #[test]
    fn result_lines_are_counted_and_others_are_not() {
        check(
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s",
            Some((3, 0)),
        );
        check("test result: FAILED. 12 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", Some((12, 2)));
        check("ok 1 - a ConfigMap is made", Some((1, 0)));
        check("not ok 2 - a ConfigMap is read", Some((0, 1)));
        check("    ok 1 - a part", None);
        check("okay", None);
        check("test tally::tests::x ... ok", None);
        check("test result: ok.", None);
        check("", None);
    }
}
