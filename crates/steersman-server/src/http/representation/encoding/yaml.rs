//! YAML in the layout of go-yaml, with sorted keys, so that the output stays stable for users who diff it.
//!
//! The text is read into a flat sequence of tokens, whose strings are not copied; the output is printed from those.

mod scalar;
mod tokens;

use self::tokens::{Kind, Tokens};
use crate::http::representation::encoding::indentation::Allowance;
use crate::http::representation::encoding::{Encoder, Envelope};
use steersman_kinds::protobuf::NotJson;

#[derive(Debug)]
pub(super) struct Yaml;

impl Encoder for Yaml {
    fn document(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
        print(json, out.len(), out, |printer| match printer.tokens.kind(0) {
            Kind::Object if !printer.tokens.is_empty(0) => printer.object(0, 0),
            Kind::Array if !printer.tokens.is_empty(0) => printer.items(0, 0),
            _ => printer.scalar(0, 0, 0),
        })
    }

    fn open(&self, envelope: &Envelope, _items_bytes: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        fields(envelope, |name| name < envelope.items, out);
        out.extend_from_slice(envelope.items.as_bytes());
        out.push(b':');
        Ok(())
    }

    fn item(&self, json: &[u8], index: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        if index == 0 {
            out.push(b'\n');
        }
        let line = out.len();
        out.extend_from_slice(b"- ");
        print(json, line, out, |printer| printer.item_value(0, 0))
    }

    fn close(&self, envelope: &Envelope, items: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        if items == 0 {
            out.extend([b" ", envelope.nothing.as_bytes(), b"\n"].concat());
        }
        fields(envelope, |name| envelope.items < name, out);
        Ok(())
    }
}

/// The fields of an envelope on one side of its items, sorted.
fn fields(envelope: &Envelope, is_here: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
    let mut fields: Vec<_> = envelope.fields.iter().filter(|(name, _)| is_here(name)).collect();
    fields.sort_by_key(|(name, _)| *name);
    for (name, json) in fields {
        let Some(tokens) = Tokens::read(json) else { continue };
        let line = out.len();
        out.extend_from_slice(name.as_bytes());
        Printer::new(json, &tokens, line, out).value(0, 0);
    }
}

/// Prints a JSON text behind what is in the line that begins at `line`; in one line if its indentation would be too much.
fn print(json: &[u8], line: usize, out: &mut Vec<u8>, print: impl FnOnce(&mut Printer<'_, '_>)) -> Result<(), NotJson> {
    let Some(tokens) = Tokens::read(json) else { return Err(NotJson) };
    let start = out.len();
    let mut printer = Printer::new(json, &tokens, line, out);
    print(&mut printer);
    if printer.is_over {
        out.truncate(start);
        out.extend_from_slice(json);
        out.push(b'\n');
    }
    Ok(())
}

/// Prints tokens. A value is identified by the index of its first token.
struct Printer<'a, 'o> {
    tokens: &'a Tokens<'a>,
    /// The position in `out` at which the current line begins.
    line: usize,
    out: &'o mut Vec<u8>,
    allowance: Allowance,
    /// Whether the indentation would be more than is allowed. Then what follows is not indented, and will be thrown away.
    is_over: bool,
}

impl<'a, 'o> Printer<'a, 'o> {
    fn new(json: &[u8], tokens: &'a Tokens<'a>, line: usize, out: &'o mut Vec<u8>) -> Printer<'a, 'o> {
        Printer { tokens, line, out, allowance: Allowance::of(json), is_over: false }
    }

    fn object(&mut self, object: usize, indent: usize) {
        let tokens = self.tokens;
        let mut is_first = true;
        tokens.each_entry(object, &mut |key, value| {
            if !is_first {
                self.indent(indent);
            }
            is_first = false;
            let text = tokens.text(key);
            match scalar::is_name(&text, tokens.sorts(key)) {
                true => self.out.extend_from_slice(text.as_bytes()),
                false => scalar::string(&text, indent, usize::MAX, self.out),
            }
            self.value(value, indent);
        });
    }

    /// Prints the value after a key.
    fn value(&mut self, value: usize, indent: usize) {
        self.out.push(b':');
        match self.tokens.kind(value) {
            Kind::Object if !self.tokens.is_empty(value) => {
                self.break_line(indent + 2);
                self.object(value, indent + 2);
            }
            Kind::Array if !self.tokens.is_empty(value) => {
                self.break_line(indent);
                self.items(value, indent);
            }
            _ => {
                self.out.push(b' ');
                let column = self.column();
                self.scalar(value, indent, column);
            }
        }
    }

    fn items(&mut self, array: usize, indent: usize) {
        let tokens = self.tokens;
        let mut is_first = true;
        tokens.each_item(array, &mut |item| {
            if !is_first {
                self.indent(indent);
            }
            is_first = false;
            self.item(item, indent);
        });
    }

    fn item(&mut self, item: usize, indent: usize) {
        self.out.extend_from_slice(b"- ");
        self.item_value(item, indent);
    }

    /// Prints the value of an item after its dash.
    fn item_value(&mut self, item: usize, indent: usize) {
        match self.tokens.kind(item) {
            Kind::Object if !self.tokens.is_empty(item) => self.object(item, indent + 2),
            Kind::Array if !self.tokens.is_empty(item) => self.items(item, indent + 2),
            _ => self.scalar(item, indent, indent + 2),
        }
    }

    fn scalar(&mut self, value: usize, indent: usize, column: usize) {
        match self.tokens.kind(value) {
            Kind::String => {
                let text = self.tokens.text(value);
                if scalar::is_name(&text, self.tokens.sorts(value)) {
                    self.out.extend_from_slice(text.as_bytes());
                } else if !self.allows(scalar::breaks_max(&text, indent) * (indent + 2)) {
                    return;
                } else if scalar::is_block(&text) {
                    scalar::block(&text, indent, self.out);
                    self.line = self.out.len();
                    return;
                } else {
                    scalar::string(&text, indent, column, self.out);
                }
            }
            Kind::Array => self.out.extend_from_slice(b"[]"),
            Kind::Object => self.out.extend_from_slice(b"{}"),
            Kind::Other => self.out.extend_from_slice(self.tokens.raw(value)),
        }
        self.out.push(b'\n');
        self.line = self.out.len();
    }

    /// The number of bytes in the current line.
    fn column(&self) -> usize {
        self.out.len() - self.line
    }

    fn break_line(&mut self, indent: usize) {
        self.out.push(b'\n');
        self.line = self.out.len();
        self.indent(indent);
    }

    fn indent(&mut self, indent: usize) {
        if self.allows(indent) {
            self.out.resize(self.out.len() + indent, b' ');
        }
    }

    /// Whether so many more bytes of indentation are allowed.
    fn allows(&mut self, bytes: usize) -> bool {
        self.is_over |= self.allowance.take(bytes).is_none();
        !self.is_over
    }
}

#[cfg(test)]
mod tests;
