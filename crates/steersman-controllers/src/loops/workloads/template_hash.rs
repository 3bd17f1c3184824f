//! The hash of a Pod template, by which the ReplicaSets of a Deployment are named.
//!
//! Exactly the hash of upstream's `ComputeHash`: FNV-1a over Go's print of the structure, field by field, with the
//! types. A cluster that moves here keeps its ReplicaSets, and tools that know the hash find them. The types are in
//! `types.txt`: a line for each type, and one for each of its fields with its name in Go, its name in JSON (`.` for an
//! inlined field) and its type, followed after an `=` by the underlying type. The program in `template-hash` generates
//! it from the types of Kubernetes 1.36.

mod quantity;

use crate::loops::workloads::history;
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;
use std::fmt::{self, Write};
use std::sync::LazyLock;

static TYPES: LazyLock<HashMap<&'static str, Vec<Field>>> =
    LazyLock::new(|| read(include_str!("template_hash/types.txt")));

/// A field of a structure in Go.
struct Field {
    name: &'static str,
    json: &'static str,
    type_: &'static str,
}

/// The 32-bit FNV-1a hash of all that is written to it.
struct Fnv(u32);

/// Whether a value is printed with its type in front.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Types {
    Hidden,
    Shown,
}

/// The hash of a template. It differs for each number of collisions.
pub(crate) fn compute(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut hash = Fnv(0x811c_9dc5);
    let value = serde_json::to_value(template).unwrap_or_default();
    // Writing to the hash does not fail.
    let _ = print(&mut hash, "v1.PodTemplateSpec", Some(&value), Types::Shown);
    if let Some(collisions) = collisions {
        hash.add(&u64::from(collisions.cast_unsigned()).to_le_bytes());
    }
    history::encoded(&hash.0.to_string())
}

fn read(text: &'static str) -> HashMap<&'static str, Vec<Field>> {
    let mut types = HashMap::new();
    let mut of = "";
    for line in text.lines() {
        let Some(field) = line.strip_prefix(' ') else {
            of = line;
            types.insert(of, Vec::new());
            continue;
        };
        let mut words = field.splitn(3, ' ');
        if let (Some(name), Some(json), Some(type_)) = (words.next(), words.next(), words.next())
            && let Some(fields) = types.get_mut(of)
        {
            fields.push(Field { name, json, type_ });
        }
    }
    types
}

/// Prints a value as Go's spew does.
fn print(to: &mut impl Write, type_: &str, value: Option<&Value>, types: Types) -> fmt::Result {
    let value = value.filter(|value| !value.is_null());
    if let Some(inner) = type_.strip_prefix('*') {
        if types == Types::Shown {
            write!(to, "(*{})", shown(inner))?;
        }
        return match value {
            None => to.write_str("<nil>"),
            Some(value) => print(to, inner, Some(value), Types::Hidden),
        };
    }
    let (name, structure) = type_.split_once('=').unwrap_or((type_, type_));
    if types == Types::Shown {
        write!(to, "({name})")?;
    }
    if let Some(inner) = structure.strip_prefix("[]") {
        return print_list(to, inner, value);
    }
    if let Some(inner) = structure.strip_prefix("map ") {
        return print_map(to, inner, value);
    }
    match structure {
        "bool" => write!(to, "{}", value.and_then(Value::as_bool).unwrap_or(false)),
        "int32" | "int64" => write!(to, "{}", value.and_then(Value::as_i64).unwrap_or(0)),
        "string" => to.write_str(value.and_then(Value::as_str).unwrap_or_default()),
        "intstr.IntOrString" => print_int_or_string(to, value),
        "resource.Quantity" => quantity::print(to, value.and_then(Value::as_str).unwrap_or_default()),
        // Templates have no creation time.
        "v1.Time" => to.write_str("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"),
        _ => print_structure(to, structure, value),
    }
}

/// The name of a type, without its underlying type.
fn shown(type_: &str) -> &str {
    type_.split_once('=').map_or(type_, |(name, _)| name)
}

fn print_list(to: &mut impl Write, inner: &str, value: Option<&Value>) -> fmt::Result {
    let Some(items) = value.and_then(Value::as_array).filter(|items| !items.is_empty()) else {
        return to.write_str("<nil>");
    };
    to.write_char('[')?;
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            to.write_char(' ')?;
        }
        print(to, inner, Some(item), Types::Hidden)?;
    }
    to.write_char(']')
}

fn print_map(to: &mut impl Write, inner: &str, value: Option<&Value>) -> fmt::Result {
    let Some(entries) = value.and_then(Value::as_object).filter(|entries| !entries.is_empty()) else {
        return to.write_str("<nil>");
    };
    let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    to.write_str("map[")?;
    for (number, (key, item)) in entries.into_iter().enumerate() {
        if number > 0 {
            to.write_char(' ')?;
        }
        write!(to, "{key}:")?;
        print(to, inner, Some(item), Types::Hidden)?;
    }
    to.write_char(']')
}

fn print_structure(to: &mut impl Write, type_: &str, value: Option<&Value>) -> fmt::Result {
    to.write_char('{')?;
    for (number, field) in TYPES.get(type_).into_iter().flatten().enumerate() {
        if number > 0 {
            to.write_char(' ')?;
        }
        write!(to, "{}:", field.name)?;
        let value = if field.json == "." { value } else { value.and_then(|value| value.get(field.json)) };
        print(to, field.type_, value, Types::Shown)?;
    }
    to.write_char('}')
}

fn print_int_or_string(to: &mut impl Write, value: Option<&Value>) -> fmt::Result {
    let (type_, number, text) = match value {
        Some(Value::String(text)) => (1, 0, text.as_str()),
        value => (0, value.and_then(Value::as_i64).unwrap_or(0), ""),
    };
    write!(to, "{{Type:(intstr.Type){type_} IntVal:(int32){number} StrVal:(string){text}}}")
}

// === impl Fnv ===

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Templates with every kind of field, each with the hashes that upstream computes without collisions and with one.
    #[test]
    fn hashes_are_those_of_upstream() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("template_hash/cases.json")).expect("cases");
        for case in &cases {
            let template: PodTemplateSpec = serde_json::from_value(case["template"].clone()).expect("a template");
            let mut text = String::new();
            print(
                &mut text,
                "v1.PodTemplateSpec",
                Some(&serde_json::to_value(&template).expect("a value")),
                Types::Shown,
            )
            .expect("a text");
            let hashes = serde_json::json!([compute(&template, None), compute(&template, Some(1))]);
            assert_eq!(hashes, serde_json::json!([case["hash"], case["collided"]]), "{text}");
        }
        assert!(cases.len() > 3);
    }
}
