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

/// A report of the errors, each with its line and a mark below its position, as upstream shows them.
pub(crate) fn report(text: &str, issues: &mut [Issue]) -> String {
    issues.sort();
    let mut out = String::new();
    for (at, issue) in issues.iter().enumerate() {
        let position = issue.position as usize;
        let mut line = 1;
        let mut column = 0;
        for char in text.chars().take(position) {
            if char == '\n' {
                line += 1;
                column = 0;
            } else {
                column += 1;
            }
        }
        let snippet = text.split('\n').nth(line - 1).unwrap_or_default().replace('\t', " ");
        // Wide characters get wide marks, so that the mark is below its position.
        let mut chars = snippet.chars();
        let dots: String =
            chars.by_ref().take(column).map(|char| if char.len_utf8() > 1 { '．' } else { '.' }).collect();
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
