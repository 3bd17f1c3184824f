//! YAML as Kubernetes reads and writes it: numbers and truth values of YAML 1.1 on the way in, the layout of go-yaml on the
//! way out, so that what kubectl users diff stays equal.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;
use steersman_machinery::{Value, value};

const WIDTH: usize = 80;

pub(super) fn parse(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let text = end_cut_block(text);
    let tree: Result<Tree, _> = serde_saphyr::from_str_with_options(&text, options);
    tree.map(|Tree(value)| value).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or("not readable").to_owned()
    })
}

/// A value whose keys are read like values and then written as JSON has them: `on: 1` is `{"true": 1}`, as YAML 1.1 has
/// no texts among its keys that it would not have among its values. Quoted keys are texts.
struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = value::Map::new();
        while let Some(Key(key)) = entries.next_key()? {
            let Tree(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let Tree(mut key) = Tree::deserialize(deserializer)?;
        value::normalize_numbers(&mut key);
        match key {
            Value::String(text) => Ok(Key(text)),
            Value::Bool(_) | Value::Number(_) => Ok(Key(key.to_string())),
            Value::Null => Err(D::Error::custom("a key is null, want a text")),
            Value::Array(_) | Value::Object(_) => Err(D::Error::custom("a key is a list or a map, want a text")),
        }
    }
}

/// Gives a block scalar that ends with the document, and there without a line break, the sign for having none: the parser
/// would read one that is not there.
fn end_cut_block(text: &str) -> Cow<'_, str> {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let Some((before, last)) = text.rsplit_once('\n').filter(|(_, last)| !last.trim().is_empty()) else {
        return Cow::Borrowed(text);
    };
    let mut end = before.len();
    for line in before.rsplit('\n') {
        if !line.trim().is_empty() && indent(line) < indent(last) {
            let is_block = [": |", "- |", ": >", "- >"].iter().any(|header| line.trim_end().ends_with(header));
            return match is_block {
                true => Cow::Owned(format!("{}-{}", &text[..end - (line.len() - line.trim_end().len())], &text[end..])),
                false => Cow::Borrowed(text),
            };
        }
        end = end.saturating_sub(line.len() + 1);
    }
    Cow::Borrowed(text)
}

pub(super) fn print(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(object) if !object.is_empty() => print_object(&mut out, object, 0),
        Value::Array(items) if !items.is_empty() => print_items(&mut out, items, 0),
        _ => print_scalar(&mut out, value, 0),
    }
    out
}

fn print_object(out: &mut String, object: &serde_json::Map<String, Value>, indent: usize) {
    for (index, (key, value)) in object.iter().enumerate() {
        if index > 0 {
            push_indent(out, indent);
        }
        let start = out.rfind('\n').map_or(0, |at| at + 1);
        print_string(out, key, indent, usize::MAX);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                push_indent(out, indent + 2);
                print_object(out, inner, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                push_indent(out, indent);
                print_items(out, items, indent);
            }
            _ => {
                out.push(' ');
                let column = out.len() - start;
                print_scalar_at(out, value, indent, column);
            }
        }
    }
}

fn print_items(out: &mut String, items: &[Value], indent: usize) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            push_indent(out, indent);
        }
        out.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => print_object(out, inner, indent + 2),
            Value::Array(inner) if !inner.is_empty() => print_items(out, inner, indent + 2),
            _ => print_scalar_at(out, item, indent, indent + 2),
        }
    }
}

fn push_indent(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn print_scalar(out: &mut String, value: &Value, indent: usize) {
    print_scalar_at(out, value, indent, 0);
}

fn print_scalar_at(out: &mut String, value: &Value, indent: usize, column: usize) {
    match value {
        Value::String(text) if text.contains('\n') && !text.trim().is_empty() && is_printable(text) => {
            print_block(out, text, indent);
            return;
        }
        Value::String(text) => print_string(out, text, indent, column),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::Bool(_) | Value::Null | Value::Number(_) => out.push_str(&value.to_string()),
    }
    out.push('\n');
}

/// A text of several lines: `|`, with a sign for how it ends and an indentation mark if it begins with a blank.
fn print_block(out: &mut String, text: &str, indent: usize) {
    out.push('|');
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    let body = match text.strip_suffix('\n') {
        None => {
            out.push('-');
            text
        }
        Some(body) if body.ends_with('\n') || body.is_empty() => {
            out.push('+');
            body
        }
        Some(body) => body,
    };
    out.push('\n');
    for line in body.split('\n') {
        if !line.is_empty() {
            push_indent(out, indent + 2);
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// A text of one line, plain or quoted; folded at blanks behind the width unless it is a key.
fn print_string(out: &mut String, text: &str, indent: usize, column: usize) {
    if !is_printable(text) || text.contains('\n') {
        let _ = write!(out, "{}", Value::from(text));
        return;
    }
    if means_something_else(text) {
        let _ = write!(out, "\"{text}\"");
        return;
    }
    let quote = !is_plain(text);
    let mut column = column;
    if quote {
        out.push('\'');
        column = column.saturating_add(1);
    }
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let is_inner_blank =
            char == ' ' && at > 0 && chars.peek().is_some_and(|(_, next)| *next != ' ') && !text[..at].ends_with(' ');
        if is_inner_blank && column > WIDTH && column != usize::MAX {
            out.push('\n');
            push_indent(out, indent + 2);
            column = indent + 2;
            continue;
        }
        out.push(char);
        if char == '\'' && quote {
            out.push(char);
        }
        column = column.saturating_add(1);
    }
    if quote {
        out.push('\'');
    }
}

fn is_printable(text: &str) -> bool {
    text.chars().all(|char| char == '\n' || !char.is_control())
}

/// Whether a plain text would be read as something other than a text.
fn means_something_else(text: &str) -> bool {
    const WORDS: [&str; 14] = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "<<", "=", ".nan"];
    if WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return true;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = unsigned.replace('_', "");
    let is_radix = |prefix: &str, radix| {
        number.strip_prefix(prefix).is_some_and(|digits| i128::from_str_radix(digits, radix).is_ok())
    };
    let is_decimal =
        number.starts_with(|first: char| first.is_ascii_digit() || first == '.') && number.parse::<f64>().is_ok();
    let is_infinite = unsigned.eq_ignore_ascii_case(".inf");
    is_decimal
        || is_infinite
        || is_radix("0x", 16)
        || is_radix("0b", 2)
        || is_radix("0o", 8)
        || is_time(text)
        || is_base_60(unsigned)
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

/// `1:30`: a number to base 60 for readers of YAML 1.1.
fn is_base_60(text: &str) -> bool {
    let mut parts = text.split(':');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next().is_some_and(is_number) && text.contains(':') && parts.all(|part| is_number(part) && part.len() <= 2)
}

fn is_plain(text: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_layout_is_that_of_go_yaml() {
        let value = json!({
            "data": {"colon": "a: b", "empty": "", "lines": "a\nb\n", "n": "1", "t": "true", "list": [{"a": 1, "b": [2]}, []], "none": {}},
            "name": "y", "time": "2026-01-01T00:00:00Z", "null": null, "tail": "a\nb", "more": "a\n\n"
        });
        expect_test::expect![[r#"
            data:
              colon: 'a: b'
              empty: ""
              lines: |
                a
                b
              list:
              - a: 1
                b:
                - 2
              - []
              "n": "1"
              none: {}
              t: "true"
            more: |+
              a

            name: "y"
            "null": null
            tail: |-
              a
              b
            time: "2026-01-01T00:00:00Z"
        "#]]
        .assert_eq(&print(&value));
    }

    #[test]
    fn a_block_that_is_cut_has_no_line_break() {
        let read = |text| parse(text).unwrap();
        assert_eq!(read("a:\n  b: |\n    x\n\n    y"), json!({"a": {"b": "x\n\ny"}}));
        assert_eq!(read("a: |\n  x\n"), json!({"a": "x\n"}));
        assert_eq!(read("a: |\n  x\nb: 1"), json!({"a": "x\n", "b": 1}));
        assert_eq!(read("a: 1"), json!({"a": 1}));
    }

    #[test]
    fn keys_are_read_like_values() {
        let read = |text| parse(text).unwrap();
        assert_eq!(read("on: yes\n'n': n\n\"off\": 'off'"), json!({"true": true, "n": false, "off": "off"}));
        assert_eq!(
            read("{y: 1, n: 2, 1: 3, 0x10: 4, 2.50: 5}"),
            json!({"true": 1, "false": 2, "1": 3, "16": 4, "2.5": 5})
        );
        assert_eq!(read("a: &x {on: 1}\nb: *x"), json!({"a": {"true": 1}, "b": {"true": 1}}));
        assert_eq!(read("a: &x {b: 1}\nc: {<<: *x, d: 2}"), json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}}));
        assert!(parse("? [a]\n: b").is_err() && parse("~: b").is_err());
    }

    #[test]
    fn a_text_that_looks_like_the_end_of_a_document_is_quoted() {
        let value = json!({"... a": "---", "b": "...", "c": "a ..."});
        assert_eq!(print(&value), "'... a': '---'\nb: '...'\nc: a ...\n");
        assert_eq!(parse(&print(&value)).unwrap(), value);
    }

    #[test]
    fn long_texts_fold_at_blanks() {
        let value = json!({"message": "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"});
        expect_test::expect![[r#"
            message: 'only the following media types are accepted: application/json;stream=watch,
              application/vnd.kubernetes.protobuf;stream=watch'
        "#]]
        .assert_eq(&print(&value));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(text in "[ -~]{0,12}|[a-z:#' \n-]{0,100}|\\PC{0,8}", key in "[a-z0-9:. -]{1,6}") {
            let value = json!({ key: [text.clone(), {"k": text}] });
            prop_assert_eq!(parse(&print(&value)).unwrap(), value);
        }
    }
}
