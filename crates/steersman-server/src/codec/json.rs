//! JSON to a tree, with the paths of keys that occur twice.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use steersman_machinery::value::{Map, Value};

/// A body and what is odd about it.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) value: Value,
    /// The paths of keys that occur more than once; the last value counts.
    pub(crate) duplicates: Vec<String>,
}

pub(super) fn parse(body: &[u8]) -> Result<Parsed, serde_json::Error> {
    let (mut duplicates, mut seen) = (Vec::new(), HashSet::new());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let seed = Tree {
        path: &Path::Root,
        on_key: &mut |path: &Path<'_>, is_duplicate| {
            if is_duplicate {
                let path = path.to_string();
                if seen.insert(path.clone()) {
                    duplicates.push(path);
                }
            }
        },
    };
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Parsed { value, duplicates })
}

/// Puts paths into the order in which a JSON body has them. What is not found there goes last.
pub(crate) fn order_by_position(body: &[u8], paths: &mut [String]) {
    let mut seen = std::collections::HashMap::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let seed = Tree {
        path: &Path::Root,
        on_key: &mut |path: &Path<'_>, _| {
            let position = seen.len();
            seen.entry(path.to_string()).or_insert(position);
        },
    };
    let is_json = seed.deserialize(&mut deserializer).is_ok();
    if is_json {
        paths.sort_by_key(|path| seen.get(path).copied().unwrap_or(usize::MAX));
    }
}

enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Builds a tree and tells of every key, and whether it was there before.
struct Tree<'a> {
    path: &'a Path<'a>,
    on_key: &'a mut dyn FnMut(&Path<'_>, bool),
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
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = Path::Index(self.path, items.len());
            let Some(item) = sequence.next_element_seed(Tree { path: &path, on_key: self.on_key })? else { break };
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Path::Key(self.path, &key);
            (self.on_key)(&path, object.contains_key(&key));
            let value = entries.next_value_seed(Tree { path: &path, on_key: self.on_key })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_named_once_and_the_last_counts() {
        let parsed = parse(br#"{"a":1,"b":{"c":[{"d":1,"d":2}]},"a":3,"a":4}"#).unwrap();
        assert_eq!(parsed.duplicates, ["b.c[0].d", "a"]);
        assert_eq!(parsed.value, serde_json::json!({"a": 4, "b": {"c": [{"d": 2}]}}));
    }

    #[test]
    fn paths_take_the_order_of_the_body() {
        let mut paths = ["daata".to_owned(), "metadata.x".to_owned(), "gone".to_owned()];
        order_by_position(br#"{"metadata":{"x":1},"data":{},"daata":1}"#, &mut paths);
        assert_eq!(paths, ["metadata.x", "daata", "gone"]);
    }
}
