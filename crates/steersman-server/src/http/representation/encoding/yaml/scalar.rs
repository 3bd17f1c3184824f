//! The YAML forms of a text: plain, quoted, folded, or a block of lines.

use std::borrow::Cow;

/// A text is folded after this column.
const WIDTH: usize = 80;
/// The longest of the words that a reader does not take for a text.
const WORD_BYTES_MAX: usize = 5;

/// The sorts of bytes in a text, as far as its form depends on them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ByteSorts(u8);

/// The sort of each byte, as bits of [`ByteSorts`].
static SORTS: [u8; 256] = sorts();

// === impl ByteSorts ===

impl ByteSorts {
    /// No bytes.
    pub(super) const NONE: ByteSorts = ByteSorts(0);
    /// The backslash of an escape in JSON.
    pub(super) const ESCAPE: ByteSorts = ByteSorts(1);
    const BLANK: ByteSorts = ByteSorts(2);
    /// Control characters, DEL and non-ASCII bytes.
    const UNUSUAL: ByteSorts = ByteSorts(4);
    const NOT_IN_A_NAME: ByteSorts = ByteSorts(ByteSorts::ESCAPE.0 | ByteSorts::BLANK.0 | ByteSorts::UNUSUAL.0);

    /// Adds the sort of a byte.
    pub(super) fn add(&mut self, byte: u8) {
        self.0 |= SORTS[usize::from(byte)];
    }

    /// Whether there is a byte of any of these sorts.
    pub(super) fn have(self, sorts: ByteSorts) -> bool {
        self.0 & sorts.0 != 0
    }
}

const fn sorts() -> [u8; 256] {
    let mut sorts = [ByteSorts::UNUSUAL.0; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        sorts[byte as usize] = match byte {
            b' ' => ByteSorts::BLANK.0,
            b'\\' => ByteSorts::ESCAPE.0,
            _ => 0,
        };
        byte += 1;
    }
    sorts
}

/// Whether a text can be written plain, judged by its sorts of bytes and its ends: most keys and values are names that
/// begin with a letter. `false` decides nothing: the whole text must be examined.
pub(super) fn is_name(text: &str, sorts: ByteSorts) -> bool {
    let [first, .., last] = text.as_bytes() else { return false };
    // A `#` begins a comment only after a space, and a colon ends a key only before a space or at the end.
    let may_be = first.is_ascii_alphabetic() && *last != b':' && !sorts.have(ByteSorts::NOT_IN_A_NAME);
    may_be && !is_word(text)
}

/// Whether a text is written as a block of lines. A blank at the end of a line would not be seen there, so that it has the text
/// written in quotes.
pub(super) fn is_block(text: &str) -> bool {
    let has_blank_end = text.ends_with(' ') || text.contains(" \n");
    text.contains('\n') && !has_blank_end && !text.trim().is_empty() && is_printable(text)
}

/// The most lines, each of them indented, over which a text is distributed: those that it has, or those that folding makes of it.
pub(super) fn breaks_max(text: &str, indent: usize) -> usize {
    // A fold comes after the width, at a blank.
    let folds = match text.len() / WIDTH.saturating_sub(indent + 2).max(1) {
        0 => 0,
        folds => folds.min(memchr::memchr_iter(b' ', text.as_bytes()).count()),
    };
    folds + memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

/// A text of several lines: `|`, with an indicator for its end, and an indentation indicator if it begins with a space.
pub(super) fn block(text: &str, indent: usize, out: &mut Vec<u8>) {
    out.push(b'|');
    if text.starts_with([' ', '\n']) {
        out.push(b'2');
    }
    let body = match text.strip_suffix('\n') {
        None => {
            out.push(b'-');
            text
        }
        Some(body) if body.ends_with('\n') || body.is_empty() => {
            out.push(b'+');
            body
        }
        Some(body) => body,
    };
    out.push(b'\n');
    for line in body.split('\n') {
        if !line.is_empty() {
            out.resize(out.len() + indent + 2, b' ');
            out.extend_from_slice(line.as_bytes());
        }
        out.push(b'\n');
    }
}

/// A text of one line, plain or quoted; folded at spaces after the width unless it is a key, whose column is
/// `usize::MAX`.
pub(super) fn string(text: &str, indent: usize, column: usize, out: &mut Vec<u8>) {
    if !is_printable(text) || text.contains('\n') || means_something_else(text) {
        double_quoted(text, indent, column, out);
        return;
    }
    let is_quoted = !is_plain(text);
    let may_fold = column != usize::MAX && column.saturating_add(text.len()) > WIDTH && text.contains(' ');
    if !may_fold && !is_quoted {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    folded(text, is_quoted, indent, column, out);
}

fn folded(text: &str, is_quoted: bool, indent: usize, mut column: usize, out: &mut Vec<u8>) {
    if is_quoted {
        out.push(b'\'');
        column = column.saturating_add(1);
    }
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let is_inner_blank =
            char == ' ' && at > 0 && chars.peek().is_some_and(|(_, next)| *next != ' ') && !text[..at].ends_with(' ');
        if is_inner_blank && column > WIDTH && column != usize::MAX {
            out.push(b'\n');
            out.resize(out.len() + indent + 2, b' ');
            column = indent + 2;
            continue;
        }
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        if char == '\'' && is_quoted {
            out.push(b'\'');
        }
        column = column.saturating_add(1);
    }
    if is_quoted {
        out.push(b'\'');
    }
}

/// A text in quotes, in which every character can be written; folded as a text without quotes is.
pub(super) fn double_quoted(text: &str, indent: usize, mut column: usize, out: &mut Vec<u8>) {
    out.push(b'"');
    column = column.saturating_add(1);
    let mut follows_blank = false;
    for (at, char) in text.char_indices() {
        let is_inner = 0 < at && at + 1 < text.len();
        if char == ' ' && is_inner && !follows_blank && WIDTH < column && column != usize::MAX {
            out.push(b'\n');
            out.resize(out.len() + indent + 2, b' ');
            column = indent + 2;
            // A line that goes on with a blank says so.
            if text.as_bytes()[at + 1] == b' ' {
                out.push(b'\\');
                column += 1;
            }
        } else {
            let before = out.len();
            let n_columns = if matches!(char, '"' | '\\' | '\n') || !is_printable_char(char) {
                escape(char, out);
                out.len() - before
            } else {
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                1
            };
            column = column.saturating_add(n_columns);
        }
        follows_blank = char == ' ';
    }
    out.push(b'"');
}

/// The shortest escape there is.
fn escape(char: char, out: &mut Vec<u8>) {
    let short = match char {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => char,
        '\u{85}' => 'N',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let code = u32::from(char);
            let text = match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            };
            return out.extend_from_slice(text.as_bytes());
        }
    };
    out.extend_from_slice(&[b'\\', short as u8]);
}

pub(super) fn is_printable(text: &str) -> bool {
    // Printable ASCII, the common case, is recognized by its bytes.
    text.bytes().all(|byte| matches!(byte, b'\n' | b' '..=b'~')) || text.chars().all(is_printable_char)
}

/// Whether a character is written as it is. Readers refuse a control character and DEL; go-yaml escapes what is beyond 16 bits;
/// and what readers of YAML 1.1 take for a line break is none for those of YAML 1.2.
fn is_printable_char(char: char) -> bool {
    let is_break = matches!(char, '\u{2028}' | '\u{2029}');
    let is_written = matches!(char, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}');
    is_written && !is_break && char != '\u{feff}'
}

/// Whether a plain text would be read as something other than a text.
pub(super) fn means_something_else(text: &str) -> bool {
    if is_word(text) {
        return true;
    }
    // Numbers and times begin with one of these.
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.' | '_')) {
        return false;
    }
    // A fast path for versions and times, which every object has.
    if text.bytes().all(|byte| byte.is_ascii_digit()) || is_time(text) {
        return true;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = match unsigned.contains('_') {
        true => Cow::Owned(unsigned.replace('_', "")),
        false => Cow::Borrowed(unsigned),
    };
    let is_radix = |prefix: &str, radix| {
        number.strip_prefix(prefix).is_some_and(|digits| i128::from_str_radix(digits, radix).is_ok())
    };
    let is_decimal =
        number.starts_with(|first: char| first.is_ascii_digit() || first == '.') && number.parse::<f64>().is_ok();
    let is_infinite = unsigned.eq_ignore_ascii_case(".inf");
    is_decimal || is_infinite || is_radix("0x", 16) || is_radix("0b", 2) || is_radix("0o", 8) || is_base_60(unsigned)
}

/// Whether a text is a word that readers take for null, a boolean, a number or a part of the syntax.
fn is_word(text: &str) -> bool {
    const WORDS: [&str; 14] = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "<<", "=", ".nan"];
    text.len() <= WORD_BYTES_MAX && WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// `2006-01-02`, alone or followed by a time.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    digits(0, 4)
        && bytes.get(4) == Some(&b'-')
        && digits(5, 7)
        && bytes.get(7) == Some(&b'-')
        && digits(8, 10)
        && matches!(bytes.get(10), None | Some(b'T' | b't' | b' '))
}

/// `1:30`, which is a base-60 number for readers of YAML 1.1.
fn is_base_60(text: &str) -> bool {
    let mut parts = text.split(':');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next().is_some_and(is_number) && text.contains(':') && parts.all(|part| is_number(part) && part.len() <= 2)
}

pub(super) fn is_plain(text: &str) -> bool {
    const LEADING: &str = "-?:,[]{}#&*!|>'\"%@`";
    let first_is_fine = match text.chars().next() {
        None => false,
        Some('-' | '?' | ':') => text.chars().nth(1).is_some_and(|next| next != ' '),
        Some(first) => !LEADING.contains(first),
    };
    let edges_are_fine = !text.starts_with(' ') && !text.ends_with([' ', ':']);
    let is_marker = text.starts_with("---") || text.starts_with("...");
    first_is_fine && edges_are_fine && !text.contains(": ") && !text.contains(" #") && !is_marker
}
