//! Reads parts of an object: a tree with only the requested fields, without parsing the rest into a tree.
//!
//! The cells of a table and the fields of a selector need a handful of fields. Strategies name them
//! ([`Strategy::cells_read`](crate::strategy::Strategy::cells_read)); all others are skipped in the text.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// The parts of a value that are read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Projection {
    /// The whole value.
    All,
    /// The number of entries of a map or list: the values are read as `null`, and so is a scalar.
    Size,
    /// Some fields of a map, or of every map in a list. Scalars are read whole.
    Fields(BTreeMap<Box<str>, Projection>),
    /// All fields of a map, but only parts of some.
    Most(BTreeMap<Box<str>, Projection>),
}

impl Projection {
    /// The fields at some dotted paths, each read whole, or only counted if the path ends with `[]`. A path applies to
    /// all items of the lists that it passes.
    pub fn of(paths: &[&str]) -> Projection {
        let mut all = Projection::nothing();
        for path in paths {
            match path.strip_suffix("[]") {
                Some(path) => all.add(path.split('.'), Projection::Size),
                None => all.add(path.split('.'), Projection::All),
            }
        }
        all
    }

    /// Everything except `managedFields`, which are long and never shown.
    pub fn without_managers() -> Projection {
        let metadata = Projection::Most(BTreeMap::from([("managedFields".into(), Projection::Size)]));
        Projection::Most(BTreeMap::from([("metadata".into(), metadata)]))
    }

    /// No fields.
    pub fn nothing() -> Projection {
        Projection::Fields(BTreeMap::new())
    }

    /// Adds the value at a path.
    pub fn add<'a>(&mut self, mut path: impl Iterator<Item = &'a str>, what: Projection) {
        match (path.next(), self) {
            (None, here) => {
                let is_bare = matches!(here, Projection::Fields(fields) if fields.is_empty());
                *here = if is_bare || *here == what { what } else { Projection::All };
            }
            (Some(field), Projection::Fields(fields)) => {
                fields.entry(field.into()).or_insert_with(Projection::nothing).add(path, what);
            }
            (Some(_), Projection::All) => {}
            // A value that was only counted, or read for the most part, is read whole if any more of it is needed.
            (Some(_), here @ (Projection::Size | Projection::Most(_))) => *here = Projection::All,
        }
    }

    /// Reads these parts of a JSON text.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn read(&self, json: &[u8]) -> Result<Value, serde_json::Error> {
        if *self == Projection::All {
            return serde_json::from_slice(json);
        }
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let value = Seed(self).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }
}

struct Seed<'a>(&'a Projection);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            Projection::All => serde::Deserialize::deserialize(deserializer),
            Projection::Size | Projection::Fields(_) | Projection::Most(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(if *self.0 == Projection::Size { Value::Null } else { value.into() })
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        if *self.0 == Projection::Size {
            while items.next_element::<IgnoredAny>()?.is_some() {
                read.push(Value::Null);
            }
        } else {
            while let Some(item) = items.next_element_seed(Seed(self.0))? {
                read.push(item);
            }
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(key) = entries.next_key_seed(Key(self.0))? {
            match key {
                None => {
                    entries.next_value::<IgnoredAny>()?;
                }
                Some((key, None)) => {
                    entries.next_value::<IgnoredAny>()?;
                    read.insert(key, Value::Null);
                }
                Some((key, Some(inner))) => {
                    read.insert(key, entries.next_value_seed(Seed(inner))?);
                }
            }
        }
        Ok(Value::Object(read))
    }
}

/// A key of a map that is read, with the projection of its value; `None` if only the entry is counted.
struct Key<'a>(&'a Projection);

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Option<(String, Option<&'a Projection>)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Option<(String, Option<&'a Projection>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        const ALL: &Projection = &Projection::All;
        Ok(match self.0 {
            Projection::All => Some((key.to_owned(), Some(ALL))),
            Projection::Size => Some((key.to_owned(), None)),
            Projection::Fields(fields) => fields.get(key).map(|inner| (key.to_owned(), Some(inner))),
            Projection::Most(parts) => Some((key.to_owned(), Some(parts.get(key).unwrap_or(ALL)))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(paths: &[&str], want: Value) {
        let object = json!({
            "a": {"b": {"c": 1, "d": "x"}, "e": 2}, "f": [{"g": 1, "h": 2}, {"g": 3}, "text"], "i": {"j": "1", "k": "2"},
        });
        assert_eq!(Projection::of(paths).read(object.to_string().as_bytes()).unwrap(), want);
    }

    #[test]
    fn what_is_named_is_read_and_nothing_else() {
        check(&[], json!({}));
        check(&["a.b.c", "no.such"], json!({"a": {"b": {"c": 1}}}));
        check(&["a.b.c", "a.b"], json!({"a": {"b": {"c": 1, "d": "x"}}}));
        check(&["a.b", "a.b.c"], json!({"a": {"b": {"c": 1, "d": "x"}}}));
        check(&["f.g"], json!({"f": [{"g": 1}, {"g": 3}, "text"]}));
        check(&["i[]", "f[]"], json!({"f": [null, null, null], "i": {"j": null, "k": null}}));
        check(&["i[]", "i.j"], json!({"i": {"j": "1", "k": "2"}}));
        check(&["i.j", "i[]"], json!({"i": {"j": "1", "k": "2"}}));
    }

    #[test]
    fn what_is_left_out_is_not_read() {
        let most = Projection::without_managers();
        let json = br#"{"metadata":{"name":"a","managedFields":[{"x":1}]},"spec":{"y":1}}"#;
        let want = json!({"metadata": {"name": "a", "managedFields": [null]}, "spec": {"y": 1}});
        assert_eq!(most.read(json).unwrap(), want);
        assert!(most.read(b"{\"metadata\":").is_err());
    }
}
