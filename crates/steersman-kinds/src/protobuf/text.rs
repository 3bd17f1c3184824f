//! Reads a JSON text in place, from front to back.
//!
//! The texts come from the server itself, so they are valid JSON. Invalid text ends the reading with `None`; it never
//! panics or loops, since every step consumes at least one byte.

use memchr::memchr2;
use std::borrow::Cow;

/// A position in a text.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    json: &'a [u8],
    at: usize,
}

/// A JSON string.
#[derive(Clone, Copy)]
pub(super) struct Quoted<'a> {
    /// The bytes, including the quotes.
    json: &'a [u8],
    is_escaped: bool,
}

impl<'a> Text<'a> {
    pub(super) fn new(json: &'a [u8]) -> Text<'a> {
        Text { json, at: 0 }
    }

    /// The first byte of the next value or sign.
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.json.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// Enters an array or an object.
    pub(super) fn enter(&mut self) -> Option<()> {
        matches!(self.peek()?, b'[' | b'{').then(|| self.at += 1)
    }

    /// Whether the array or object has another entry; leaves it if it has not.
    pub(super) fn has_more(&mut self) -> Option<bool> {
        match self.peek()? {
            b']' | b'}' => {
                self.at += 1;
                Some(false)
            }
            b',' => {
                self.at += 1;
                Some(true)
            }
            _ => Some(true),
        }
    }

    /// The key of an entry, up to its value.
    pub(super) fn key(&mut self) -> Option<Quoted<'a>> {
        let key = self.quoted()?;
        (self.peek()? == b':').then(|| self.at += 1)?;
        Some(key)
    }

    pub(super) fn quoted(&mut self) -> Option<Quoted<'a>> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        let mut is_escaped = false;
        self.at += 1;
        loop {
            let rest = self.json.get(self.at..)?;
            self.at += memchr2(b'"', b'\\', rest)?;
            if self.json[self.at] == b'"' {
                self.at += 1;
                return Some(Quoted { json: &self.json[start..self.at], is_escaped });
            }
            is_escaped = true;
            self.at += 2;
        }
    }

    /// The bytes of the next value, of any type.
    pub(super) fn raw(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => {
                self.quoted()?;
            }
            b'[' | b'{' => self.skip_nested()?,
            _ => {
                let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r' | b'\t');
                let length = self.json[start..].iter().position(is_end).unwrap_or(self.json.len() - start);
                if length == 0 {
                    return None;
                }
                self.at += length;
            }
        }
        Some(&self.json[start..self.at])
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.json.get(self.at)? {
                b'"' => {
                    self.quoted()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

impl<'a> Quoted<'a> {
    /// Whether the string is this key; a key with escapes never is one of the table.
    pub(super) fn is(&self, name: &str) -> bool {
        !self.is_escaped && self.json[1..self.json.len() - 1] == *name.as_bytes()
    }

    /// The unescaped bytes.
    pub(super) fn bytes(&self) -> Option<Cow<'a, [u8]>> {
        match self.is_escaped {
            false => Some(Cow::Borrowed(&self.json[1..self.json.len() - 1])),
            true => serde_json::from_slice::<String>(self.json).ok().map(|text| Cow::Owned(text.into_bytes())),
        }
    }

    pub(super) fn text(&self) -> Option<Cow<'a, str>> {
        match self.bytes()? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
    }
}
