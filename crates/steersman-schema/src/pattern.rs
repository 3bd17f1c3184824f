//! Patterns of custom resource schemas: written for Go's RE2, matched by `regex`.
//!
//! Both are linear-time and nearly of one syntax. Where they differ a pattern is rewritten first: `\d`, `\w`, `\s` and `\b`
//! mean ASCII in Go, a class has no set operations or inner classes, a lone `{` is itself, `\Q..\E` quotes.

use regex::Regex;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

/// A pattern, compiled when it is first matched.
#[derive(Clone)]
pub struct Pattern(Arc<Inner>);

struct Inner {
    text: Box<str>,
    regex: OnceLock<Option<Regex>>,
}

/// A text that is no pattern.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ParseError {
    reason: String,
}

impl Pattern {
    /// A pattern taken on trust: one that does not compile matches nothing.
    pub fn new(text: &str) -> Pattern {
        Pattern(Arc::new(Inner { text: text.into(), regex: OnceLock::new() }))
    }

    /// Whether a text is a pattern.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn check(text: &str) -> Result<(), ParseError> {
        match compile(text) {
            Ok(_) => Ok(()),
            Err(regex::Error::CompiledTooBig(_)) => Err(ParseError { reason: "the pattern is too large".to_owned() }),
            // The last line says what is wrong; those before it draw where.
            Err(error) => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Err(ParseError { reason })
            }
        }
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether it is found anywhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.regex.get_or_init(|| compile(&self.0.text).ok()).as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({:?})", self.as_str())
    }
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translate(text))
}

/// The same pattern in `regex`'s syntax.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut class = Class::Outside;
    while let Some(char) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix(r"\Q") {
            let (inner, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            out.push_str(&regex::escape(inner));
            rest = after;
            continue;
        }
        rest = &rest[char.len_utf8()..];
        match (char, class) {
            ('\\', _) => {
                let escaped = rest.chars().next();
                rest = &rest[escaped.map_or(0, char::len_utf8)..];
                escape(&mut out, escaped, class != Class::Outside);
                class = class.after_item();
            }
            ('[', Class::Outside) => {
                out.push('[');
                if let Some(after) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = after;
                }
                class = Class::Start;
            }
            ('[', _) => {
                // A POSIX class such as [:alpha:], else an ordinary character.
                match rest.strip_prefix(':').and_then(|after| after.find(":]")) {
                    Some(length) => {
                        let end = length + 3;
                        let _ = write!(out, "[{}", &rest[..end]);
                        rest = &rest[end..];
                    }
                    None => out.push_str(r"\["),
                }
                class = Class::Inside;
            }
            (']', Class::Start) => {
                out.push_str(r"\]");
                class = Class::Inside;
            }
            (']', Class::Inside) => {
                out.push(']');
                class = Class::Outside;
            }
            ('&' | '~' | '#', Class::Start | Class::Inside) => {
                let _ = write!(out, "\\{char}");
                class = Class::Inside;
            }
            // `a--b` would be a difference; a dash that cannot be a range is escaped.
            ('-', Class::Start | Class::Inside) if rest.starts_with('-') || class == Class::Start => {
                out.push_str(r"\-");
                class = Class::Inside;
            }
            (_, Class::Start | Class::Inside) => {
                out.push(char);
                class = Class::Inside;
            }
            ('{', Class::Outside) if !is_counted(rest) => out.push_str(r"\{"),
            (_, Class::Outside) => out.push(char),
        }
    }
    out
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Class {
    Inside,
    Outside,
    /// Just behind `[` or `[^`.
    Start,
}

impl Class {
    fn after_item(self) -> Class {
        if self == Class::Outside { Class::Outside } else { Class::Inside }
    }
}

/// Whether what follows a `{` makes it a repetition: `3}`, `3,}`, `3,5}`.
fn is_counted(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once('}') else { return false };
    let (low, high) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

fn escape(out: &mut String, escaped: Option<char>, in_class: bool) {
    let wrap = |inside: &str| if in_class { inside.to_owned() } else { format!("[{inside}]") };
    match escaped {
        None => out.push('\\'),
        Some('d') => out.push_str(&wrap("0-9")),
        Some('w') => out.push_str(&wrap("0-9A-Za-z_")),
        Some('s') => out.push_str(&wrap(r"\t\n\x0C\r ")),
        Some('D') => out.push_str("[^0-9]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('S') => out.push_str(r"[^\t\n\x0C\r ]"),
        Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
        Some(char @ ('<' | '>')) => out.push(char),
        Some(char) => {
            out.push('\\');
            out.push(char);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        Pattern::check(pattern).unwrap();
        let compiled = Pattern::new(pattern);
        for text in yes {
            assert!(compiled.is_match(text), "{pattern} should match {text:?}");
        }
        for text in no {
            assert!(!compiled.is_match(text), "{pattern} should not match {text:?}");
        }
    }

    #[test]
    fn patterns_mean_what_go_takes_them_to_mean() {
        check(r"^\d+$", &["12"], &["٣", "a"]);
        check(r"^\w\W\s\S\D$", &["a- b/"], &["é- b/"]);
        check(r"^[\d\w.-]+$", &["a.1-_"], &["é", "+"]);
        check("^[a&&b]+$", &["a&b"], &["c"]);
        check("^[[a]+$", &["[a"], &["]"]);
        check("^[]a]+$", &["]a"], &["["]);
        check("^[^]a]+$", &["b"], &["]"]);
        check("^[a-c--]+$", &["-b"], &["d"]);
        check("^[[:alpha:]]+$", &["ab"], &["1"]);
        check("^a{2}b{,3}$", &["aab{,3}"], &["aab"]);
        check("^{x}$", &["{x}"], &["x"]);
        check(r"^\Qa.b\E$", &["a.b"], &["axb"]);
        check(r"^\<a\>\/\-\_$", &["<a>/-_"], &["a"]);
        check(r"\bcat\b", &["a cat."], &["concat"]);
        check("^(S|M|L)$", &["S"], &["XXL"]);
        check("b", &["abc"], &["acd"]);
        check("^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", &["a-b.c"], &["-a", "a."]);
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for (text, want) in [
            ("(", "unclosed group"),
            ("[a", "unclosed character class"),
            (r"(?!a)", "look-around, including look-ahead and look-behind, is not supported"),
        ] {
            assert_eq!(Pattern::check(text).unwrap_err().to_string(), want);
        }
        assert!(!Pattern::new("(").is_match(""));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "\\PC{0,24}", subject in "\\PC{0,8}") {
            let _ = Pattern::check(&text);
            let _ = Pattern::new(&text).is_match(&subject);
        }

        #[test]
        fn a_quoted_text_matches_itself(text in "\\PC{0,24}") {
            let found = Pattern::new(&format!("^{}$", regex::escape(&text))).is_match(&text);
            prop_assert!(found);
        }
    }
}
