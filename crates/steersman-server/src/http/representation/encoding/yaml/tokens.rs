//! A JSON text as a flat sequence of tokens in the order of the text. Nothing is copied: a token has its position in
//! the text.

use crate::http::representation::encoding::yaml::scalar::ByteSorts;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The value that a token begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Array,
    Object,
    /// A number, a truth value or null.
    Other,
    String,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    /// The start and end in the text; for a string without its quotes. An array or object has only the start.
    start: u32,
    end: u32,
    /// The index of the first token after the value that this one begins.
    next: u32,
    kind: Kind,
    /// For a string: the sorts of bytes in it, as it is written in JSON.
    sorts: ByteSorts,
}

/// The tokens of one text. A value is identified by the index of its first token.
pub(super) struct Tokens<'a> {
    text: &'a str,
    tokens: Vec<Token>,
}

impl<'a> Tokens<'a> {
    /// Reads a text that is known to be JSON. `None` if it is not, or is longer than 4 GiB.
    pub(super) fn read(json: &'a [u8]) -> Option<Tokens<'a>> {
        let text = std::str::from_utf8(json).ok()?;
        u32::try_from(json.len()).ok()?;
        let mut tokens: Vec<Token> = Vec::with_capacity(json.len() / 12 + 4);
        let mut open: Vec<usize> = Vec::new();
        let mut at = 0;
        while let Some(byte) = json.get(at) {
            let kind = match byte {
                b'{' => Kind::Object,
                b'[' => Kind::Array,
                b'"' => Kind::String,
                b'}' | b']' => {
                    let next = tokens.len() as u32;
                    tokens.get_mut(open.pop()?)?.next = next;
                    at += 1;
                    continue;
                }
                b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => {
                    at += 1;
                    continue;
                }
                _ => Kind::Other,
            };
            let next = tokens.len() as u32 + 1;
            let start = if kind == Kind::String { at + 1 } else { at };
            let (end, sorts) = match kind {
                Kind::Array | Kind::Object => {
                    open.push(tokens.len());
                    (at + 1, ByteSorts::NONE)
                }
                Kind::String => string_end(json, start)?,
                Kind::Other => (scalar_end(json, at), ByteSorts::NONE),
            };
            at = if kind == Kind::String { end + 1 } else { end };
            tokens.push(Token { start: start as u32, end: end as u32, next, kind, sorts });
        }
        (open.is_empty() && !tokens.is_empty()).then_some(Tokens { text, tokens })
    }

    pub(super) fn kind(&self, value: usize) -> Kind {
        self.tokens[value].kind
    }

    /// Whether an array or object is empty.
    pub(super) fn is_empty(&self, value: usize) -> bool {
        self.next(value) == value + 1
    }

    /// The bytes of a value that is no string, array or object.
    pub(super) fn raw(&self, value: usize) -> &'a [u8] {
        let token = self.tokens[value];
        &self.text.as_bytes()[token.start as usize..token.end as usize]
    }

    /// The sorts of bytes in a string.
    pub(super) fn sorts(&self, value: usize) -> ByteSorts {
        self.tokens[value].sorts
    }

    /// The text of a string.
    pub(super) fn text(&self, value: usize) -> Cow<'a, str> {
        let token = self.tokens[value];
        let (start, end) = (token.start as usize, token.end as usize);
        if !token.sorts.have(ByteSorts::ESCAPE) {
            return Cow::Borrowed(&self.text[start..end]);
        }
        // With its quotes the string is a JSON text of its own.
        Cow::Owned(serde_json::from_str(&self.text[start - 1..=end]).unwrap_or_default())
    }

    pub(super) fn each_item(&self, array: usize, visit: &mut impl FnMut(usize)) {
        let mut item = array + 1;
        while item < self.next(array) {
            visit(item);
            item = self.next(item);
        }
    }

    /// Visits key and value of every entry, sorted by key.
    pub(super) fn each_entry(&self, object: usize, visit: &mut impl FnMut(usize, usize)) {
        if self.is_sorted(object) {
            self.each_entry_as_written(object, visit);
            return;
        }
        let mut entries = Vec::new();
        self.each_entry_as_written(object, &mut |key, value| entries.push((key, value)));
        entries.sort_by(|(a, _), (b, _)| self.compare(*a, *b));
        entries.into_iter().for_each(|(key, value)| visit(key, value));
    }

    fn each_entry_as_written(&self, object: usize, visit: &mut impl FnMut(usize, usize)) {
        let mut key = object + 1;
        while key + 1 < self.next(object) {
            visit(key, key + 1);
            key = self.next(key + 1);
        }
    }

    fn is_sorted(&self, object: usize) -> bool {
        let (mut is_sorted, mut last) = (true, None);
        self.each_entry_as_written(object, &mut |key, _| {
            is_sorted &= last.is_none_or(|last| self.compare(last, key) == Ordering::Less);
            last = Some(key);
        });
        is_sorted
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        self.text(a).cmp(&self.text(b))
    }

    fn next(&self, value: usize) -> usize {
        self.tokens[value].next as usize
    }
}

/// The position of the last quote of a string whose text begins at `start`, and the sorts of bytes in it. The sorts are
/// collected here because this reads every byte anyway.
fn string_end(json: &[u8], start: usize) -> Option<(usize, ByteSorts)> {
    let (mut at, mut sorts) = (start, ByteSorts::NONE);
    loop {
        match *json.get(at)? {
            b'"' => return Some((at, sorts)),
            b'\\' => {
                sorts.add(b'\\');
                at += 2;
            }
            byte => {
                sorts.add(byte);
                at += 1;
            }
        }
    }
}

fn scalar_end(json: &[u8], start: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
    json[start..].iter().position(is_end).map_or(json.len(), |length| start + length)
}
