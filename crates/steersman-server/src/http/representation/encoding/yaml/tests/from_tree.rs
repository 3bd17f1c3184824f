//! The same layout printed from a tree, as a reference for the printer of texts. It uses that printer's own functions
//! to decide which texts need quotes; another test checks that they are read back unchanged.

use crate::http::representation::encoding::yaml::scalar::{
    self, is_block, is_plain, is_printable, means_something_else,
};
use serde_json::Value;

const WIDTH: usize = 80;

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
        Value::String(text) if is_block(text) => {
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

/// A text of several lines: `|`, with an indicator for its end, and an indentation indicator if it begins with a space.
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

/// A text of one line, plain or quoted; folded at spaces after the width unless it is a key.
fn print_string(out: &mut String, text: &str, indent: usize, column: usize) {
    if !is_printable(text) || text.contains('\n') || means_something_else(text) {
        let mut quoted = Vec::new();
        scalar::double_quoted(text, indent, column, &mut quoted);
        out.push_str(&String::from_utf8_lossy(&quoted));
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
