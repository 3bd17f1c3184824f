//! Parses request bodies from JSON or YAML into trees. `representation` writes answers.
//!
//! Bodies are parsed without a schema here; [`steersman_schema::decode`] decodes JSON with one. Duplicate keys are
//! reported, for strict field validation. Numbers are normalized to Go's form.

mod yaml;

use steersman_machinery::budget::{self, Budget};
use steersman_machinery::{Value, value};
use steersman_schema::decode::{self, DEPTH_MAX};

/// A body that is not valid JSON or YAML.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Budget(#[from] budget::Error),
    #[error("json parse error: {message} ({excerpt})")]
    Json { message: String, excerpt: String },
    #[error("the body is nested more than {DEPTH_MAX} deep")]
    TooDeep,
    #[error("protobuf: {0}")]
    Protobuf(String),
    #[error("yaml: {0}")]
    Yaml(String),
}

/// A body parsed without a schema.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) value: Value,
    pub(crate) faults: Faults,
}

/// Errors of a body as a document, which strict validation reports: above all duplicate keys. The last value of a key
/// counts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Faults {
    /// Each error with its path, as `duplicate field "spec.a"`.
    Json(Vec<String>),
    #[default]
    None,
    /// Each error with its line, as `line 6: key "a" already set in map`.
    Yaml(Vec<String>),
}

pub(crate) fn decode_json(body: &[u8], budget: &Budget) -> Result<Parsed, Error> {
    let decoded = decode::document(body, budget).map_err(|error| match error {
        decode::Error::Budget(error) => Error::Budget(error),
        decode::Error::TooDeep => Error::TooDeep,
        error => Error::Json { message: error.to_string(), excerpt: excerpt(body) },
    })?;
    Ok(Parsed { value: decoded.value, faults: Faults::of_json(&decoded.faults) })
}

/// Parses a YAML body; of several documents the first.
///
/// JSON is YAML, and most clients send JSON as YAML: parsing it as JSON costs a tenth.
pub(crate) fn decode_yaml(body: &[u8], budget: &Budget) -> Result<Parsed, Error> {
    if let Some(value) = plain_json(body, budget)? {
        return Ok(Parsed { value, faults: Faults::None });
    }
    let text = std::str::from_utf8(body).map_err(|error| Error::Yaml(error.to_string()))?;
    let parsed = yaml::parse(first_document(text), budget);
    // The parser only reports its own errors.
    budget.check()?;
    let (mut value, lines) = parsed.map_err(Error::Yaml)?;
    value::normalize_numbers(&mut value);
    bound(&value)?;
    Ok(Parsed { value, faults: if lines.is_empty() { Faults::None } else { Faults::Yaml(lines) } })
}

/// The object of a body that is valid JSON; otherwise none, so that errors are reported in the words of the requested
/// format.
fn plain_json(body: &[u8], budget: &Budget) -> Result<Option<Value>, budget::Error> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Ok(None);
    }
    match decode::document(body, budget) {
        Ok(decoded) => Ok(decoded.faults.is_empty().then_some(decoded.value)),
        Err(decode::Error::Budget(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Refuses a body nested so deep that, with the fields that the server adds, it could not be parsed again.
fn bound(value: &Value) -> Result<(), Error> {
    if value::depth(value) > DEPTH_MAX { Err(Error::TooDeep) } else { Ok(()) }
}

// === impl Faults ===

impl Faults {
    pub(crate) fn of_json(faults: &[decode::Fault]) -> Faults {
        match faults {
            [] => Faults::None,
            faults => Faults::Json(faults.iter().map(ToString::to_string).collect()),
        }
    }

    /// The parts of the message under strict validation. Errors of YAML are one part of several lines, as go-yaml
    /// reports them.
    pub(crate) fn errors(&self) -> Vec<String> {
        match self {
            Faults::Json(faults) => faults.clone(),
            Faults::None => Vec::new(),
            Faults::Yaml(lines) => vec![format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))],
        }
    }

    /// The errors as warnings, one for each key.
    pub(crate) fn warnings(&self) -> &[String] {
        match self {
            Faults::Json(lines) | Faults::Yaml(lines) => lines,
            Faults::None => &[],
        }
    }
}

fn excerpt(body: &[u8]) -> String {
    const BYTES_MAX: usize = 60;
    match body {
        [] => "<empty>".to_owned(),
        _ if body.len() > BYTES_MAX => format!("{}...", String::from_utf8_lossy(&body[..BYTES_MAX])),
        _ => String::from_utf8_lossy(body).into_owned(),
    }
}

fn first_document(text: &str) -> &str {
    let text = text.strip_prefix("---\n").unwrap_or(text);
    match text.find("\n---\n") {
        Some(end) if !text[..end].trim().is_empty() => &text[..=end],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_several_documents_the_first_is_read() {
        assert_eq!(decode_yaml(b"---\na: 1\n---\na: 2\n", &Budget::unlimited()).unwrap().value, json!({"a": 1}));
        assert_eq!(decode_yaml(b"a: |\n  x\n  y\n", &Budget::unlimited()).unwrap().value, json!({"a": "x\ny\n"}));
    }

    #[test]
    fn numbers_come_out_as_go_prints_them() {
        assert_eq!(decode_json(b"[5.0,1e3,1.5]", &Budget::unlimited()).unwrap().value.to_string(), "[5,1000,1.5]");
        assert_eq!(decode_yaml(b"mode: 0644\n", &Budget::unlimited()).unwrap().value, json!({"mode": 420}));
    }

    #[test]
    fn of_a_repeated_key_the_last_counts_and_it_is_told_where() {
        let parsed = decode_json(br#"{"a":1,"b":{"c":[{"d":1,"d":2}]},"a":3,"a":4}"#, &Budget::unlimited()).unwrap();
        assert_eq!(parsed.value, json!({"a": 4, "b": {"c": [{"d": 2}]}}));
        let want = [r#"duplicate field "b.c[0].d""#, r#"duplicate field "a""#];
        assert_eq!(
            (parsed.faults.warnings(), parsed.faults.errors().as_slice()),
            (&want.map(String::from)[..], &want.map(String::from)[..])
        );
        let parsed =
            decode_yaml(b"kind: A\ndata:\n  k: first\n  k: last\n  k: 0644\nx: {z: 1, z: 2}\n", &Budget::unlimited())
                .unwrap();
        assert_eq!(parsed.value, json!({"kind": "A", "data": {"k": 420}, "x": {"z": 2}}));
        let want = [
            r#"line 4: key "k" already set in map"#,
            r#"line 5: key "k" already set in map"#,
            r#"line 6: key "z" already set in map"#,
        ];
        assert_eq!(parsed.faults.warnings(), want);
        assert_eq!(parsed.faults.errors(), [format!("yaml: unmarshal errors:\n  {}", want.join("\n  "))]);
    }

    #[test]
    fn json_is_read_the_same_under_the_name_of_yaml() {
        for body in [
            r#" {"a": {"on": "off", "n": [1, -2.50, 1e3, 9223372036854775807, null, true]}, "": ""}"#,
            r#"{"\u00fc": "\ud83d\ude00 \/ \\ \" \n"}"#,
            "{\n\t\"a\": \"\u{7f}\"\n}\n",
        ] {
            let (json, yaml) = (
                decode_json(body.as_bytes(), &Budget::unlimited()).unwrap(),
                decode_yaml(body.as_bytes(), &Budget::unlimited()).unwrap(),
            );
            assert_eq!((yaml.value, yaml.faults), (json.value, Faults::None), "{body}");
        }
        // Bodies that the JSON parser refuses are left to the YAML parser.
        assert_eq!(decode_yaml(b"{\"a\": 1}\n---\n{\"a\": 2}", &Budget::unlimited()).unwrap().value, json!({"a": 1}));
        assert_eq!(decode_yaml(b"{a: on}", &Budget::unlimited()).unwrap().value, json!({"a": true}));
        let parsed = decode_yaml(br#"{"a": 1, "a": 2}"#, &Budget::unlimited()).unwrap();
        assert_eq!(parsed.faults, Faults::Yaml(vec![r#"line 1: key "a" already set in map"#.to_owned()]));
    }

    #[test]
    fn what_could_not_be_read_back_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(decode_json(nested(DEPTH_MAX).as_bytes(), &Budget::unlimited()).is_ok());
        assert!(decode_json(nested(DEPTH_MAX + 1).as_bytes(), &Budget::unlimited()).is_err());
        assert!(decode_yaml(nested(DEPTH_MAX + 1).as_bytes(), &Budget::unlimited()).is_err());
    }

    #[test]
    fn a_cut_body_is_told_so() {
        let text = |body: &[u8]| decode_json(body, &Budget::unlimited()).err().unwrap().to_string();
        assert_eq!(text(b""), "json parse error: unexpected end of JSON input (<empty>)");
        assert_eq!(text(b"{\"kind\":"), "json parse error: unexpected end of JSON input ({\"kind\":)");
        assert!(decode_json(b"{} {}", &Budget::unlimited()).is_err());
        assert!(decode_json("[".repeat(20_000).as_bytes(), &Budget::unlimited()).is_err());
    }
}
