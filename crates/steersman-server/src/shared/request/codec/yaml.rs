//! Parses YAML like Kubernetes: with the numbers and booleans of YAML 1.1.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;
use std::borrow::Cow;
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::budget::{Budget, cost};
use steersman_machinery::value::{self, Map};

/// The most parts of values that aliases repeat in one body, and the most maps that are merged by `<<`. Each part takes a few microseconds.
const REPLAYED_MAX: usize = 100_000;
const MERGES_MAX: usize = 1_000;
/// Further duplicate keys of one body are not reported.
const REPEATED_MAX: usize = 100;

/// Parses a document. Returns the tree, and the errors about duplicate keys.
pub(super) fn parse(text: &str, budget: &Budget) -> Result<(Value, Vec<String>), String> {
    budget.begin_tree();
    let text = end_cut_block(text);
    let strict = options(DuplicateKeyPolicy::Error);
    let read = serde_saphyr::with_deserializer_from_str_with_options(&text, strict, |deserializer| {
        Tree { repeated: None, budget }.deserialize(deserializer)
    });
    let error = match read {
        Ok(value) => return Ok((value, Vec::new())),
        Err(error) => error.to_string(),
    };
    // Duplicate keys are a rare error here: only a body that fails is parsed again, with the positions of all keys.
    let lenient = options(DuplicateKeyPolicy::LastWins);
    let mut repeated = Vec::new();
    budget.begin_tree();
    let read = serde_saphyr::with_deserializer_from_str_with_options(&text, lenient, |deserializer| {
        Tree { repeated: Some(&mut repeated), budget }.deserialize(deserializer)
    });
    match read {
        Ok(value) if !repeated.is_empty() => Ok((value, repeated)),
        _ => Err(error.lines().next().unwrap_or("not readable").to_owned()),
    }
}

/// The parser copies values of aliases and merged maps several times before the tree is charged for them, so it has bounds of its own.
fn options(duplicate_keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: duplicate_keys,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_MAX },
        budget: serde_saphyr::budget! { max_merge_keys: MERGES_MAX },
    }
}

/// Builds a tree, and records duplicate keys in go-yaml's words, if they are wanted.
struct Tree<'a> {
    budget: &'a Budget,
    repeated: Option<&'a mut Vec<String>>,
}

/// A key of a map: parsed like a value, then converted to a JSON key. `on: 1` is `{"true": 1}`, because in YAML 1.1 an
/// unquoted text means the same as a key and as a value.
struct Key(String);

impl Tree<'_> {
    fn child(&mut self) -> Tree<'_> {
        Tree { repeated: self.repeated.as_deref_mut(), budget: self.budget }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.budget.build_all(0, cost::text(value.len())).map_err(E::custom)?;
        Ok(Value::from(value))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.budget.build_all(0, cost::text(value.len())).map_err(E::custom)?;
        Ok(Value::from(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(self.child())? {
            self.budget.build(cost::VALUE).map_err(A::Error::custom)?;
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        loop {
            let key = match &mut self.repeated {
                None => entries.next_key::<Key>()?.map(|Key(key)| key),
                Some(repeated) => entries.next_key::<Spanned<Key>>()?.map(|key| {
                    let Key(text) = key.value;
                    if fields.contains_key(&text) && repeated.len() < REPEATED_MAX {
                        repeated.push(format!("line {}: key {text:?} already set in map", key.referenced.line()));
                    }
                    text
                }),
            };
            let Some(key) = key else { return Ok(Value::Object(fields)) };
            let value = entries.next_value_seed(self.child())?;
            self.budget.build(cost::field(&key, fields.len())).map_err(A::Error::custom)?;
            fields.insert(key, value);
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        // A key that is not a scalar is refused, but first it is parsed, within a separate budget.
        let mut key = Tree { repeated: None, budget: &Budget::default() }.deserialize(deserializer)?;
        value::normalize_numbers(&mut key);
        match key {
            Value::String(text) => Ok(Key(text)),
            Value::Bool(_) | Value::Number(_) => Ok(Key(key.to_string())),
            Value::Null => Err(D::Error::custom("a key is null, want a text")),
            Value::Array(_) | Value::Object(_) => Err(D::Error::custom("a key is a list or a map, want a text")),
        }
    }
}

/// Adds the indicator for no line break to a block scalar that ends with the document without one: otherwise the parser
/// would append a line break.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_block_that_is_cut_has_no_line_break() {
        let read = |text| parse(text, &Budget::default()).unwrap().0;
        assert_eq!(read("a:\n  b: |\n    x\n\n    y"), json!({"a": {"b": "x\n\ny"}}));
        assert_eq!(read("a: |\n  x\n"), json!({"a": "x\n"}));
        assert_eq!(read("a: |\n  x\nb: 1"), json!({"a": "x\n", "b": 1}));
        assert_eq!(read("a: 1"), json!({"a": 1}));
    }

    #[test]
    fn what_aliases_and_merges_repeat_is_bounded() {
        let keys: Vec<_> = (0..1_000).map(|n| format!("k{n}: 0")).collect();
        let repeated =
            |n: usize, how: &str| format!("a: &a {{{}}}\nb:\n{}", keys.join(", "), format!("- {how}\n").repeat(n));
        for how in ["*a", "{<<: *a}", "{<<: [*a, *a, *a, *a]}"] {
            let parsed = |n: usize| parse(&repeated(n, how), &Budget::unlimited());
            let (read, _) = parsed(5).unwrap();
            assert_eq!(read["b"][4]["k999"], 0);
            let refused = parsed(2_000).unwrap_err();
            assert!(refused.contains("limit exceeded") || refused.contains("budget"), "{how}: {refused}");
        }
        assert!(parse(&repeated(MERGES_MAX + 1, "{<<: {}}"), &Budget::unlimited()).is_err());
    }

    #[test]
    fn keys_are_read_like_values() {
        let read = |text| parse(text, &Budget::default()).unwrap().0;
        assert_eq!(read("on: yes\n'n': n\n\"off\": 'off'"), json!({"true": true, "n": false, "off": "off"}));
        assert_eq!(
            read("{y: 1, n: 2, 1: 3, 0x10: 4, 2.50: 5}"),
            json!({"true": 1, "false": 2, "1": 3, "16": 4, "2.5": 5})
        );
        assert_eq!(read("a: &x {on: 1}\nb: *x"), json!({"a": {"true": 1}, "b": {"true": 1}}));
        assert_eq!(read("a: &x {b: 1}\nc: {<<: *x, d: 2}"), json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}}));
        assert!(parse("? [a]\n: b", &Budget::default()).is_err() && parse("~: b", &Budget::default()).is_err());
    }
}
