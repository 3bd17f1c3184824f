//! The query of a request: names and values. Usually only the first value of a name is used.

use std::fmt::Write as _;

/// A parsed query string.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses a query string. Escapes that cannot be decoded stay unchanged.
    pub fn parse(raw: &str) -> Query {
        let pairs = raw.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decode(name), form_decode(value))
        });
        Query { pairs: pairs.collect() }
    }

    /// The first value of a name.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a name, unless it is empty.
    pub fn non_empty(&self, name: &str) -> Option<&str> {
        self.first(name).filter(|value| !value.is_empty())
    }

    /// Every value of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// A boolean as the API reads it: present, and neither `false` nor `0`.
    pub fn is_true(&self, name: &str) -> bool {
        self.first(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

/// Decodes percent escapes. Bytes that are not UTF-8 become replacement characters.
pub fn percent_decode(text: &str) -> String {
    decode(text, b'+')
}

/// Decodes percent escapes as in forms and queries, where a plus sign is a space.
fn form_decode(text: &str) -> String {
    decode(text, b' ')
}

/// Decodes percent escapes, and writes `plus` for each plus sign.
fn decode(text: &str, plus: u8) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', _, _) => out.push(plus),
            _ => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Encodes a value of a query as Go does: a space becomes a plus sign.
pub(crate) fn encode_value(value: &str) -> String {
    encode(value, b"-_.~").replace("%20", "+")
}

/// Encodes a path as Go does. Slashes stay.
pub(crate) fn encode_path(path: &str) -> String {
    encode(path, b"-_.~$&+,/:;=@")
}

/// Encodes all bytes but letters, digits and those of `stay`.
fn encode(text: &str, stay: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || stay.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writes to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_counts_and_escapes_are_resolved() {
        let query = Query::parse("a=1&a=2&b=x%3Dy+z&c&d=%zz&=");
        assert_eq!(
            (query.first("a"), query.first("b"), query.first("c"), query.first("d")),
            (Some("1"), Some("x=y z"), Some(""), Some("%zz"))
        );
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.non_empty("c"), None);
    }

    #[test]
    fn all_but_false_and_zero_is_true() {
        let query = Query::parse("a=maybe&b=0&c=false&d");
        assert!(query.is_true("a") && query.is_true("d"));
        assert!(!query.is_true("b") && !query.is_true("c") && !query.is_true("e"));
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        assert_eq!(encode_value("a b&c=%ä+"), "a+b%26c%3D%25%C3%A4%2B");
        assert_eq!(encode_path("/a b/c;d=%?#"), "/a%20b/c;d=%25%3F%23");
        for text in ["a b&c=%ä+", "/a b/c?d#e", "%41"] {
            assert_eq!(form_decode(&encode_value(text)), text);
            assert_eq!(percent_decode(&encode_path(text)), text);
        }
    }
}
