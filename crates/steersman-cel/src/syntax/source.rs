//! The text of an expression, and reports of errors in it.

use std::fmt::Write;

/// An error in an expression, with its position.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Issue {
    /// The position in characters from the start.
    pub(crate) position: u32,
    pub(crate) message: String,
}

impl Issue {
    pub(crate) fn new(position: u32, message: impl Into<String>) -> Issue {
        Issue { position, message: message.into() }
    }
}

/// The longest line in characters that a report repeats; of a longer one it repeats what is around the error.
const LINE_MAX: usize = 1_024;
/// The characters on each side of an error in a longer line.
const AROUND: usize = 80;

/// A report of the errors, each with its line and a mark below its position, as upstream shows them.
pub(crate) fn report(text: &str, issues: &mut [Issue]) -> String {
    issues.sort();
    let mut out = String::new();
    for (at, issue) in issues.iter().enumerate() {
        let position = issue.position as usize;
        let mut line = 1;
        let mut column: usize = 0;
        for char in text.chars().take(position) {
            if char == '\n' {
                line += 1;
                column = 0;
            } else {
                column += 1;
            }
        }
        let whole = text.split('\n').nth(line - 1).unwrap_or_default();
        let is_long = whole.chars().nth(LINE_MAX).is_some();
        let left_out = if is_long { column.saturating_sub(AROUND) } else { 0 };
        let length = if is_long { 2 * AROUND } else { LINE_MAX };
        let tab_to_space = |char| if char == '\t' { ' ' } else { char };
        let snippet: String = whole.chars().skip(left_out).take(length).map(tab_to_space).collect();
        let before = column - left_out;
        // Wide characters get wide marks, so that the mark is below its position.
        let mut chars = snippet.chars();
        let dots: String =
            chars.by_ref().take(before).map(|char| if char.len_utf8() > 1 { '．' } else { '.' }).collect();
        let mark = if chars.next().is_some_and(|char| char.len_utf8() > 1) { '＾' } else { '^' };
        let separator = if at == 0 { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "{separator}ERROR: <input>:{line}:{}: {}\n | {snippet}\n | {dots}{mark}",
            column + 1,
            issue.message
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_repeated_around_the_error_only() {
        let text = format!("{}x + y{}", " ".repeat(10_000), " ".repeat(10_000));
        let mut issues: Vec<Issue> = (0..100).map(|_| Issue::new(10_004, "undeclared reference")).collect();
        let report = report(&text, &mut issues);
        assert!(report.len() < 100 * 500, "{}", report.len());
        let lines: Vec<&str> = report.lines().take(3).collect();
        assert_eq!(lines[0], "ERROR: <input>:1:10005: undeclared reference");
        let marked = lines[2].find('^').unwrap();
        assert_eq!(&lines[1][marked..=marked], "y");
    }

    #[test]
    fn a_line_of_usual_length_is_repeated_whole() {
        // Wide characters have three bytes.
        for start in ["a + ", "'本' "] {
            let text = format!("{}x", start.repeat(200));
            let report = report(&text, &mut [Issue::new(800, "no")]);
            assert!(report.starts_with(&format!("ERROR: <input>:1:801: no\n | {text}\n | ")), "{report}");
            assert_eq!(report.lines().last().unwrap().chars().count(), " | ".len() + 801);
        }
    }
}
