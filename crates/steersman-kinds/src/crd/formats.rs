//! The formats of strings and numbers in schemas. Unknown formats are accepted and ignored, with a warning.

use steersman_machinery::Value;

const KNOWN: [&str; 31] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hexcolor",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8s-long-name",
    "k8s-short-name",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// The unknown formats in some schemas, each once.
pub(super) fn unknown<'a>(schemas: impl Iterator<Item = &'a Value>) -> Vec<&'a str> {
    let mut found = Vec::new();
    schemas.for_each(|schema| collect(schema, &mut found));
    found
}

fn collect<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Array(schemas) => schemas.iter().for_each(|schema| collect(schema, found)),
        Value::Object(fields) => {
            let format = fields.get("format").and_then(Value::as_str).unwrap_or_default();
            if !format.is_empty() && !KNOWN.contains(&format) && !found.contains(&format) {
                found.push(format);
            }
            let properties = fields.get("properties").and_then(Value::as_object).into_iter().flatten();
            properties.for_each(|(_, schema)| collect(schema, found));
            for key in ["items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"] {
                if let Some(inner) = fields.get(key) {
                    collect(inner, found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
