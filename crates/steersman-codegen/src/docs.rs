//! Converts descriptions of a schema to doc comments that rustdoc and clippy accept without a warning.
//!
//! Descriptions are prose in Go's style: long lines, indented examples, `<names>` to fill in, bare addresses,
//! kubebuilder markers. None of that may become a doctest, a broken link or an HTML tag.

/// The longest line, including its indentation and `/// `.
const COLUMNS: usize = 100;

/// The lines, without `///`, of a comment that is indented by `indent`.
pub(crate) fn lines(description: &str, indent: usize) -> Vec<String> {
    let width = COLUMNS.saturating_sub(indent + "/// ".len());
    let mut out = Vec::new();
    let mut block = Block::default();
    let mut fence = false;
    for line in description.replace(['\r', '\t'], " ").lines() {
        let line: String = line.chars().filter(|character| !is_invisible(*character)).collect();
        let text = line.trim();
        if let Some(language) = text.strip_prefix("```") {
            block.finish(&mut out, width);
            out.push(if fence { "```".to_owned() } else { format!("```{}", fence_language(language)) });
            fence = !fence;
        } else if fence {
            out.push(line.trim_end().to_owned());
        } else if text.is_empty() || is_rule(text) {
            block.finish(&mut out, width);
            if out.last().is_some_and(|last| !last.is_empty()) {
                out.push(String::new());
            }
        } else if !is_marker(text) {
            let is_item = is_list_item(text);
            if is_item
                || (block.is_item
                    && line.starts_with(|first: char| !first.is_whitespace())
                    && ends_sentence(&block.text))
            {
                block.finish(&mut out, width);
                // Without an empty line between, a paragraph would belong to the item before it.
                if !is_item && out.last().is_some_and(|last| !last.is_empty()) {
                    out.push(String::new());
                }
            }
            block.is_item |= is_item;
            block.push(text);
        }
    }
    block.finish(&mut out, width);
    if fence {
        out.push("```".to_owned());
    }
    while out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    out
}

/// A name that a user may have chosen, as code in a comment.
pub(crate) fn code(name: &str) -> String {
    let plain = name.chars().filter(|character| !is_invisible(*character));
    let plain: String = plain.map(|character| if character == '`' { '\'' } else { character }).collect();
    format!("`{plain}`")
}

/// A paragraph or a list item that is being converted to lines.
#[derive(Default)]
struct Block {
    text: String,
    is_item: bool,
}

impl Block {
    fn push(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(text);
    }

    fn finish(&mut self, out: &mut Vec<String>, width: usize) {
        let Block { text, is_item } = std::mem::take(self);
        if text.is_empty() {
            return;
        }
        let (marker, text) = if is_item { split_item(&text) } else { (String::new(), text.as_str()) };
        let hanging = " ".repeat(marker.len());
        let mut line = marker;
        let mut is_first = true;
        for word in escape(text).split_whitespace() {
            let is_full = line.chars().count() + 1 + word.chars().count() > width;
            if !is_first && is_full && !changes_meaning_at_start(word) {
                out.push(std::mem::replace(&mut line, hanging.clone()));
                is_first = true;
            }
            if !is_first {
                line.push(' ');
            }
            line.push_str(word);
            is_first = false;
        }
        out.push(line);
    }
}

/// Characters that rustc refuses in comments because they reorder the displayed text, and invisible ones.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        || character.is_control()
}

/// A language that rustdoc does not take for Rust.
fn fence_language(language: &str) -> &str {
    match language.trim() {
        "json" => "json",
        "yaml" | "yml" => "yaml",
        "sh" | "bash" | "shell" => "sh",
        "go" => "go",
        _ => "text",
    }
}

/// Whether a line would be a rule in markdown, or would turn the line before into a heading.
fn is_rule(text: &str) -> bool {
    let mut characters = text.chars();
    let first = characters.next();
    matches!(first, Some('-' | '=' | '_' | '*'))
        && text.len() >= 3
        && characters.all(|character| Some(character) == first)
}

/// Whether a line is a marker such as `+optional` or `+kubebuilder:validation:..`.
fn is_marker(text: &str) -> bool {
    text.strip_prefix('+')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()) && !rest.contains(' '))
}

fn is_list_item(text: &str) -> bool {
    !split_item(text).0.is_empty()
}

/// Splits the marker of a list item from its text.
fn split_item(text: &str) -> (String, &str) {
    for bullet in ["- ", "* ", "+ ", "• "] {
        if let Some(rest) = text.strip_prefix(bullet) {
            return ("- ".to_owned(), rest.trim_start());
        }
    }
    let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
    if (1..=2).contains(&digits) {
        for end in [". ", ") "] {
            if let Some(rest) = text[digits..].strip_prefix(end) {
                return (format!("{}. ", &text[..digits]), rest.trim_start());
            }
        }
    }
    (String::new(), text)
}

fn ends_sentence(text: &str) -> bool {
    text.ends_with(['.', '!', ':', ')'])
}

/// Whether a word would be markup at the start of a line.
fn changes_meaning_at_start(word: &str) -> bool {
    matches!(word, "-" | "+" | "*")
        || word.starts_with(['#', '>', '=', '|'])
        || word.ends_with(['.', ')']) && {
            let number = &word[..word.len() - 1];
            !number.is_empty() && number.chars().all(|character| character.is_ascii_digit())
        }
}

/// Escapes what markdown would take for a tag or a link, and marks addresses, outside of code spans.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    if rest.starts_with(['#', '>', '=', '|']) || matches!(rest.as_bytes(), [b'-' | b'+' | b'*', b' ', ..]) {
        out.push('\\');
    }
    while let Some(first) = rest.chars().next() {
        if first == '`' {
            // Any number of backticks opens a span, which the same number closes.
            let n = rest.len() - rest.trim_start_matches('`').len();
            let ticks = &rest[..n];
            // Three may open a code block, and one without a language would be run as a test by `cargo test`.
            if n < 3
                && let Some(end) = closing(&rest[n..], ticks)
            {
                let whole = n + end + n;
                out.push_str(&rest[..whole]);
                rest = &rest[whole..];
            } else {
                out.extend(std::iter::repeat_n("\\`", n));
                rest = &rest[n..];
            }
            continue;
        }
        if let Some(link) = rest.strip_prefix('<').and_then(address)
            && rest[1 + link.len()..].starts_with('>')
        {
            let whole = link.len() + 2;
            out.push_str(&rest[..whole]);
            rest = &rest[whole..];
            continue;
        }
        if let Some(link) = address(rest) {
            out.push_str(&format!("<{link}>"));
            rest = &rest[link.len()..];
            continue;
        }
        if let Some((shown, link, whole)) = markdown_link(rest) {
            out.push_str(&format!("[{}]({link})", escape(shown)));
            rest = &rest[whole..];
            continue;
        }
        let is_fence = rest.starts_with("~~~");
        if is_fence || matches!(first, '<' | '[' | ']' | '\\') {
            out.push('\\');
        }
        out.push(first);
        rest = &rest[first.len_utf8()..];
    }
    out
}

/// The position in `text` at which exactly `ticks` stand.
fn closing(text: &str, ticks: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text[from..].find('`') {
        let at = from + found;
        let n = text[at..].len() - text[at..].trim_start_matches('`').len();
        if n == ticks.len() {
            return Some(at);
        }
        from = at + n;
    }
    None
}

/// The address at the start of `text`, without trailing punctuation.
fn address(text: &str) -> Option<&str> {
    if !text.starts_with("https://") && !text.starts_with("http://") {
        return None;
    }
    let end = text.find(|character: char| {
        character.is_whitespace()
            || matches!(character, '<' | '>' | '"' | '\'' | '`' | '|' | '\\' | '[' | ']' | '{' | '}' | ')')
    });
    let link = text[..end.unwrap_or(text.len())].trim_end_matches(['.', ',', ';', ':', '!', '?', '*', '_']);
    let has_host = link.split_once("://").is_some_and(|(_, host)| !host.is_empty());
    has_host.then_some(link)
}

/// Parses `[shown](https://link)` at the start of `text`: the text, the link, and the length of the whole.
fn markdown_link(text: &str) -> Option<(&str, &str, usize)> {
    let inner = text.strip_prefix('[')?;
    let (shown, after) = inner.split_once(']')?;
    let link = after.strip_prefix('(')?.split_once(')')?.0;
    let is_plain = address(link) == Some(link) && !shown.is_empty() && !shown.contains(['[', '`']);
    is_plain.then_some((shown, link, shown.len() + link.len() + 4))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(description: &str, expected: Expect) {
        expected.assert_eq(&lines(description, 4).join("\n"));
    }

    #[test]
    fn long_lines_are_wrapped() {
        check(
            "Foo is a long description that does not fit on a line of one hundred columns and goes on and on until it has ended.\nSecond line.",
            expect![[r#"
                Foo is a long description that does not fit on a line of one hundred columns and goes on and
                on until it has ended. Second line."#]],
        );
    }

    #[test]
    fn what_is_markup_by_accident_is_escaped() {
        check(
            "See <name> and [x] at https://example.com/a, or `<b>`.",
            expect![[r#"See \<name> and \[x\] at <https://example.com/a>, or `<b>`."#]],
        );
        check(
            "Read [the docs](https://example.com/docs) and <https://example.com>.",
            expect!["Read [the docs](https://example.com/docs) and <https://example.com>."],
        );
        check("a ` that is never closed <x>", expect![[r#"a \` that is never closed \<x>"#]]);
        check("# not a heading", expect![[r#"\# not a heading"#]]);
        check(
            "text\n---\nmore",
            expect![[r#"
            text

            more"#]],
        );
    }

    #[test]
    fn lists_stay_lists_and_their_lines_hang() {
        check(
            "One of:\n- first, which has a text that is so long that it has to be continued on the next line of the comment\n* second\nto be continued\n1. third.\nA paragraph.",
            expect![[r#"
                One of:
                - first, which has a text that is so long that it has to be continued on the next line of
                  the comment
                - second to be continued
                1. third.

                A paragraph."#]],
        );
    }

    #[test]
    fn examples_are_no_doctests_and_markers_are_left_out() {
        check(
            "Example:\n\n    let x = 1;\n\n```\nkind: Foo\n```\n+optional\n```rust\npanic!()",
            expect![[r#"
            Example:

            let x = 1;

            ```text
            kind: Foo
            ```
            ```text
            panic!()
            ```"#]],
        );
    }

    /// A code block in Rust or without a language would be compiled and run by `cargo test` of the generated crate.
    #[test]
    fn no_description_is_run_as_a_test() {
        check(
            "~~~\n\nstd::process::exit(1);\n\n~~~",
            expect![[r#"
            \~~~

            std::process::exit(1);

            \~~~"#]],
        );
        check(
            "- ~~~rust\n\nstd::process::exit(1);",
            expect![[r#"
            - \~~~rust

            std::process::exit(1);"#]],
        );
        check("- ```rust a ```", expect![[r#"- \`\`\`rust a \`\`\`"#]]);
        let long = format!("{}```rust fn main() {{ panic!() }} ```", "word ".repeat(19));
        for line in lines(&long, 0) {
            assert!(!line.trim_start().starts_with("```"), "{line}");
        }
        assert_eq!(code("a\n\n`b\r\u{202e}"), "`a'b`");
    }

    #[test]
    fn characters_that_the_compiler_refuses_are_left_out() {
        check("a\r\nb\u{202e}c\td", expect!["a bc d"]);
    }
}
