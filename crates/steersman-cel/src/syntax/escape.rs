//! Field names in expressions: names that are not identifiers are escaped.

use crate::syntax::parser::RESERVED;
use std::borrow::Cow;

/// The escaped form of a key; none if it has none.
///
/// `.` is `__dot__`, `-` is `__dash__`, `/` is `__slash__`, `__` is `__underscores__`, and a keyword is put between
/// double underscores.
pub fn escape(key: &str) -> Option<Cow<'_, str>> {
    if key.is_empty() || key.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if is_keyword(key) {
        return Some(Cow::Owned(format!("__{key}__")));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if key.bytes().all(is_plain) && !key.contains("__") {
        return Some(Cow::Borrowed(key));
    }
    let mut out = String::with_capacity(key.len() + 12);
    let mut rest = key;
    while let Some(first) = rest.chars().next() {
        let (escaped, length) = match first {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => (&rest[..1], 1),
            _ => return None,
        };
        out.push_str(escaped);
        rest = &rest[length..];
    }
    Some(Cow::Owned(out))
}

fn is_keyword(key: &str) -> bool {
    matches!(key, "true" | "false" | "null") || RESERVED.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn keys_are_written_so_that_they_can_be_named() {
        for (key, wanted) in [
            ("plain", Some("plain")),
            ("my_field", Some("my_field")),
            ("a__b", Some("a__underscores__b")),
            ("x-y", Some("x__dash__y")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("if", Some("__if__")),
            ("namespace", Some("__namespace__")),
            ("int", Some("int")),
            ("1a", None),
            ("", None),
            ("a b", None),
            ("ä", None),
        ] {
            assert_eq!(escape(key).as_deref(), wanted, "{key}");
        }
    }
}
