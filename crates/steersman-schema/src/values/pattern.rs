//! Patterns of custom resource schemas: written for Go's RE2, matched by `regex`.
//!
//! Both take linear time and have nearly the same syntax. Where they differ a pattern is rewritten first: `\d`, `\w`,
//! `\s` and `\b` are ASCII in Go, a class has no set operations or nested classes, a lone `{` is literal, `\Q..\E`
//! quotes.

mod syntax;
mod weight;

use regex::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

/// Longer patterns are refused before they are parsed.
const BYTES_MAX: usize = 4096;

/// The maximum weight of one pattern: the request that first matches it compiles it, which takes some ten milliseconds
/// and ten megabytes. `[a-z0-9]{1,63}` weighs two hundred.
const WEIGHT_MAX: usize = 200_000;

/// The maximum weight of all patterns of a definition together: five of the heaviest, or ten thousand ordinary ones.
pub(crate) const DEFINITION_WEIGHT_MAX: usize = 1_000_000;

/// The maximum size of a compiled pattern. The heaviest pattern that passes the weight check takes less; this limit is
/// the second line of defense.
const COMPILED_BYTES_MAX: usize = 64 << 20;

/// The patterns in use, by text: equal patterns of properties, versions and definitions share one compiled form.
static SHARED: LazyLock<Mutex<HashMap<Box<str>, Weak<Inner>>>> = LazyLock::new(Mutex::default);

/// A pattern, compiled when it is first matched.
#[derive(Clone)]
pub struct Pattern(Arc<Inner>);

struct Inner {
    text: Box<str>,
    regex: OnceLock<Option<Regex>>,
}

/// Why a text is not a valid pattern.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    #[error("error parsing regexp: {reason}")]
    Syntax { reason: String },
    #[error(
        "it has {bytes} bytes, and {BYTES_MAX} are the most that a pattern may have: list many words in an enum instead"
    )]
    TooLong { bytes: usize },
    #[error(
        "compiled it would have about {weight} transitions, and {WEIGHT_MAX} are the most that a pattern may have: lower its repetitions, and limit lengths with maxLength"
    )]
    TooHeavy { weight: usize },
}

impl Pattern {
    /// A pattern that is not checked: one that [`Pattern::check`] refuses matches nothing.
    pub fn new(text: &str) -> Pattern {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = shared.get(text).and_then(Weak::upgrade) {
            return Pattern(inner);
        }
        let inner = Arc::new(Inner { text: text.into(), regex: OnceLock::new() });
        shared.insert(text.into(), Arc::downgrade(&inner));
        Pattern(inner)
    }

    /// Checks that a text is a pattern that can be compiled within bounds. It is only parsed for that. Returns its
    /// weight, for the sum of a definition.
    ///
    /// # Errors
    /// When it cannot be parsed, or would be too large.
    pub fn check(text: &str) -> Result<usize, ParseError> {
        if text.len() > BYTES_MAX {
            return Err(ParseError::TooLong { bytes: text.len() });
        }
        let reading = weight::of_text(text);
        if reading > WEIGHT_MAX {
            return Err(ParseError::TooHeavy { weight: reading });
        }
        if let Some(reason) = syntax::fault(text) {
            return Err(ParseError::Syntax { reason });
        }
        let hir = regex_syntax::parse(&translate(text)).map_err(|error| {
            // The last line has the reason; the lines before it mark the position.
            let shown = error.to_string();
            let reason = shown.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let reason = format!("{reason}: `{text}`");
            ParseError::Syntax { reason }
        })?;
        match weight::of(&hir).max(reading) {
            weight if weight > WEIGHT_MAX => Err(ParseError::TooHeavy { weight }),
            weight => Ok(weight),
        }
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether it matches anywhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex().is_some_and(|regex| regex.is_match(text))
    }

    /// The non-overlapping matches in a text, from the beginning.
    pub fn find_iter<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> + use<'_, 't> {
        self.regex().into_iter().flat_map(move |regex| regex.find_iter(text).map(|found| found.as_str()))
    }

    fn regex(&self) -> Option<&Regex> {
        self.0.regex.get_or_init(|| compile(&self.0.text)).as_ref()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        // Another pattern with this text may have been added since the last one was dropped.
        if shared.get(&self.text).is_some_and(|inner| inner.strong_count() == 0) {
            shared.remove(&self.text);
        }
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({:?})", self.as_str())
    }
}

fn compile(text: &str) -> Option<Regex> {
    Pattern::check(text).ok()?;
    RegexBuilder::new(&translate(text)).size_limit(COMPILED_BYTES_MAX).build().ok()
}

/// The pattern in the syntax of `regex`.
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
                // The braces of `\p{Greek}` and `\x{10FFFF}` belong to the escape.
                if matches!(escaped, Some('p' | 'P' | 'x'))
                    && rest.starts_with('{')
                    && let Some(end) = rest.find('}')
                {
                    out.push_str(&rest[..=end]);
                    rest = &rest[end + 1..];
                }
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
                // A POSIX class such as [:alpha:]; otherwise an ordinary character.
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
            // `a--b` would be a set difference, so a dash that cannot be a range is escaped.
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
    /// Right after `[` or `[^`.
    Start,
}

impl Class {
    fn after_item(self) -> Class {
        if self == Class::Outside { Class::Outside } else { Class::Inside }
    }
}

/// Whether the text after a `{` makes it a repetition: `3}`, `3,}`, `3,5}`.
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
    fn places_are_found_from_the_beginning_and_do_not_overlap() {
        let found = |pattern: &str, text| Pattern::new(pattern).find_iter(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found("[0-9]+", "a 12 b 3"), ["12", "3"]);
        assert_eq!(found("aa", "aaaaa"), ["aa", "aa"]);
        assert!(found("[", "a").is_empty());
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
        check(r"^\p{Greek}\x{e9}[\p{L}\x{31}]$", &["αé1", "αéb"], &["aé1", "αe1"]);
        check("^(S|M|L)$", &["S"], &["XXL"]);
        check("b", &["abc"], &["acd"]);
        check("^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", &["a-b.c"], &["-a", "a."]);
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for (text, want) in [
            ("(", "error parsing regexp: missing closing ): `(`"),
            ("[a", "error parsing regexp: missing closing ]: `[a`"),
            (r"(?!a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?!`"),
        ] {
            assert_eq!(Pattern::check(text).unwrap_err().to_string(), want);
        }
        assert!(!Pattern::new("(").is_match(""));
    }

    #[test]
    fn what_weighs_too_much_is_refused_unread_or_uncompiled() {
        let refused = |text: &str| Pattern::check(text).unwrap_err().to_string();
        let said = refused(r"[\p{L}\p{N}]{1,200}[a-z]{1,100}");
        assert!(said.ends_with(
            "are the most that a pattern may have: lower its repetitions, and limit lengths with maxLength"
        ));
        assert!(refused(r"\p{L}{1,1000}").starts_with("compiled it would have about"));
        assert!(refused(&r"\p{L}".repeat(800)).starts_with("compiled it would have about"));
        assert!(refused(&"a".repeat(4097)).starts_with("it has 4097 bytes"));
    }

    #[test]
    fn the_heaviest_that_is_let_in_compiles() {
        let heavy = [("[^a]{1,1000}", 6), ("(a|b){1,1000}", 30), ("((a?){10}){100}", 25), ("(x*){1000}", 25)];
        let heavy = heavy.map(|(part, count)| part.repeat(count));
        for pattern in heavy.iter().map(String::as_str).chain([r"\p{L}{1,40}"]) {
            Pattern::check(pattern).unwrap();
            assert!(compile(pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn patterns_of_one_text_are_shared_while_there_are_any() {
        let text = "^shared-by-this-test-alone$";
        let (one, other) = (Pattern::new(text), Pattern::new(text));
        assert!(Arc::ptr_eq(&one.0, &other.0));
        drop((one, other));
        assert!(!SHARED.lock().unwrap().contains_key(text));
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
