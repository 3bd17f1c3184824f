//! Bodies of requests: bytes to trees, from JSON or YAML. What goes out is written by `representation`.
//!
//! JSON is read with an eye on duplicate keys, which strict field validation reports; numbers come out as Go prints them.

mod json;
mod yaml;

pub(crate) use self::json::{Parsed, order_by_position};

use steersman_machinery::{Value, value};
use steersman_schema::decode::DEPTH_MAX;

/// A body that is no JSON or YAML.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("json parse error: {message} ({excerpt})")]
    Json { message: String, excerpt: String },
    #[error("the body is nested more than {DEPTH_MAX} deep")]
    TooDeep,
    #[error("protobuf: {0}")]
    Protobuf(String),
    #[error("yaml: {0}")]
    Yaml(String),
}

/// Reads a JSON body.
pub(crate) fn decode_json(body: &[u8]) -> Result<Parsed, Error> {
    let mut parsed = json::parse(body).map_err(|error| {
        let message = if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
        Error::Json { message, excerpt: excerpt(body) }
    })?;
    value::normalize_numbers(&mut parsed.value);
    bound(&parsed.value)?;
    Ok(parsed)
}

/// Reads a YAML body; of several documents the first.
pub(crate) fn decode_yaml(body: &[u8]) -> Result<Value, Error> {
    let text = std::str::from_utf8(body).map_err(|error| Error::Yaml(error.to_string()))?;
    let mut value = yaml::parse(first_document(text)).map_err(Error::Yaml)?;
    value::normalize_numbers(&mut value);
    bound(&value)?;
    Ok(value)
}

/// Refuses what is nested so deep that, with what the server adds to it, it could not be read back.
fn bound(value: &Value) -> Result<(), Error> {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    if depth(value) > DEPTH_MAX { Err(Error::TooDeep) } else { Ok(()) }
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
        assert_eq!(decode_yaml(b"---\na: 1\n---\na: 2\n").unwrap(), json!({"a": 1}));
        assert_eq!(decode_yaml(b"a: |\n  x\n  y\n").unwrap(), json!({"a": "x\ny\n"}));
    }

    #[test]
    fn numbers_come_out_as_go_prints_them() {
        assert_eq!(decode_json(b"[5.0,1e3,1.5]").unwrap().value.to_string(), "[5,1000,1.5]");
        assert_eq!(decode_yaml(b"mode: 0644\n").unwrap(), json!({"mode": 420}));
    }

    #[test]
    fn what_could_not_be_read_back_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(decode_json(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert!(decode_json(nested(DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(decode_yaml(nested(DEPTH_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn a_cut_body_is_told_so() {
        let text = |body: &[u8]| decode_json(body).err().unwrap().to_string();
        assert_eq!(text(b""), "json parse error: unexpected end of JSON input (<empty>)");
        assert_eq!(text(b"{\"kind\":"), "json parse error: unexpected end of JSON input ({\"kind\":)");
        assert!(decode_json(b"{} {}").is_err());
        assert!(decode_json("[".repeat(20_000).as_bytes()).is_err());
    }
}
