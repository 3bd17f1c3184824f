//! Extracts the part of an object that a set of fields selects, in the form of `managedFields` (`FieldsV1`).
//!
//! A set is a tree: `f:name` is a field, `k:{..}` the entry of a list with these keys, `v:..` an entry with this value,
//! `i:0` an entry by its position, and `.` the place itself. A place without children is owned with its whole value.

use serde_json::{Map, Value};

/// The part of `object` that is in `set`. `atomic_maps` are the paths of maps that have one owner as a whole.
pub(crate) fn owned(object: &Value, set: &Value, atomic_maps: &[&str]) -> Value {
    let root = FieldNode { atomic_maps: atomic_maps.to_vec() };
    root.of_map(object, set).unwrap_or_else(|| Value::Object(Map::new()))
}

/// A place in an object.
struct FieldNode<'a> {
    /// The atomic maps at and below this place: the rest of their paths. The path of the place itself is empty here.
    atomic_maps: Vec<&'a str>,
}

/// The step of a path into the entries of a list.
const ENTRY: &str = "[]";

/// The step of a path into the values of a map, whatever their keys.
const ANY_KEY: &str = "*";

impl<'a> FieldNode<'a> {
    /// The place of a field, or of the value of a map.
    fn field(&self, name: &str) -> FieldNode<'a> {
        self.below(|path| {
            let path = path.strip_prefix('.').unwrap_or(path);
            let is_step = |rest: &&str| rest.is_empty() || rest.starts_with(['.', '[']);
            path.strip_prefix(name).filter(is_step).or_else(|| path.strip_prefix(ANY_KEY).filter(is_step))
        })
    }

    /// The place of every entry of a list.
    fn entry(&self) -> FieldNode<'a> {
        self.below(|path| path.strip_prefix(ENTRY))
    }

    fn below(&self, step: impl Fn(&'a str) -> Option<&'a str>) -> FieldNode<'a> {
        // The empty path is that of this place, so nothing is below it.
        let paths = self.atomic_maps.iter().copied().filter(|path| !path.is_empty());
        FieldNode { atomic_maps: paths.filter_map(step).collect() }
    }

    fn is_atomic_map(&self) -> bool {
        self.atomic_maps.contains(&"")
    }

    /// The owned part of this place, which is in the set. `below` is the set below it.
    fn of_value(&self, value: &Value, below: &Value) -> Option<Value> {
        let names_children = below.as_object().is_some_and(|below| below.keys().any(|key| key != "."));
        match value {
            Value::Object(_) if names_children => self.of_map(value, below),
            Value::Array(_) if names_children => self.of_list(value, below),
            // A manager that owns such a map without any of its entries has applied an empty one.
            Value::Object(_) if !self.is_atomic_map() => Some(Value::Object(Map::new())),
            _ => Some(value.clone()),
        }
    }

    fn of_map(&self, value: &Value, set: &Value) -> Option<Value> {
        let (value, set) = (value.as_object()?, set.as_object()?);
        let mut owned = Map::new();
        for (key, below) in set {
            let Some(name) = key.strip_prefix("f:") else { continue };
            let Some(field) = value.get(name) else { continue };
            if let Some(field) = self.field(name).of_value(field, below) {
                owned.insert(name.to_owned(), field);
            }
        }
        Some(Value::Object(owned))
    }

    fn of_list(&self, value: &Value, set: &Value) -> Option<Value> {
        let (entries, set) = (value.as_array()?, set.as_object()?);
        let place = self.entry();
        let mut owned = Vec::new();
        // Entries are taken in the order of the list, because the set has no order.
        for (position, entry) in entries.iter().enumerate() {
            for (key, below) in set {
                let Some(keys) = keys_of(key, entry, position) else { continue };
                let part = match below.as_object().is_some_and(|below| below.keys().any(|key| key != ".")) {
                    true => place.of_value(entry, below),
                    // An entry that is owned without its fields is owned as a whole if its map is atomic.
                    false => Some(entry.clone()),
                };
                let Some(mut part) = part else { continue };
                if let Value::Object(part) = &mut part {
                    // The keys identify the entry, so they are always included.
                    for (name, value) in keys {
                        part.entry(name).or_insert(value);
                    }
                }
                owned.push(part);
                break;
            }
        }
        Some(Value::Array(owned))
    }
}

/// The keys by which an element of a set selects `entry`; `None` if it selects another entry.
fn keys_of(element: &str, entry: &Value, position: usize) -> Option<Map<String, Value>> {
    let (kind, rest) = element.split_once(':')?;
    match kind {
        "k" => {
            let Ok(Value::Object(keys)) = serde_json::from_str(rest) else { return None };
            // A key with a default may be absent from an object that was stored before the default existed.
            keys.iter().all(|(name, value)| entry.get(name).is_none_or(|found| found == value)).then_some(keys)
        }
        "v" => (serde_json::from_str::<Value>(rest).ok()? == *entry).then(Map::new),
        "i" => (rest.parse() == Ok(position)).then(Map::new),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(object: Value, set: Value, expected: Value) {
        let atomic_maps = ["spec.selector", "spec.ports[].target", "spec.zones.*", "spec.rules.*[].pods"];
        assert_eq!(owned(&object, &set, &atomic_maps), expected);
    }

    #[test]
    fn only_what_is_owned_is_there() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"a": 1, "b": [1, 2]}});
        check(
            object.clone(),
            json!({"f:metadata": {"f:labels": {".": {}, "f:y": {}}}, "f:spec": {"f:b": {}}}),
            json!({"metadata": {"labels": {"y": "2"}}, "spec": {"b": [1, 2]}}),
        );
        check(object, json!({"f:spec": {"f:gone": {}}}), json!({"spec": {}}));
    }

    #[test]
    fn an_entry_of_a_list_comes_with_its_keys_and_in_the_order_of_the_list() {
        let object = json!({"spec": {"ports": [
            {"port": 80, "protocol": "TCP", "name": "http"},
            {"port": 53, "protocol": "UDP", "name": "dns"},
            {"port": 443, "protocol": "TCP", "name": "https"},
        ]}});
        check(
            object,
            json!({"f:spec": {"f:ports": {
                "k:{\"port\":443,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}},
                "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}},
            }}}),
            json!({"spec": {"ports": [
                {"port": 80, "protocol": "TCP", "name": "http"},
                {"port": 443, "protocol": "TCP", "name": "https"},
            ]}}),
        );
    }

    #[test]
    fn an_entry_of_a_set_is_its_value() {
        let object = json!({"metadata": {"finalizers": ["a/x", "b/y", "c/z"]}});
        let set = json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"b/y\"": {}}}});
        check(object, set, json!({"metadata": {"finalizers": ["b/y"]}}));
    }

    #[test]
    fn a_map_that_was_applied_empty_does_not_take_what_others_put_there() {
        let object = json!({"metadata": {"labels": {"theirs": "1"}}, "spec": {"selector": {"app": "a"}}});
        let set = json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:selector": {}}});
        check(object, set, json!({"metadata": {"labels": {}}, "spec": {"selector": {"app": "a"}}}));
    }

    #[test]
    fn an_atomic_map_that_is_the_value_of_a_map_is_whole() {
        let object = json!({"spec": {
            "zones": {"a": {"matchLabels": {"x": "1"}}, "b.example.com/c": {"matchLabels": {"y": "2"}}, "theirs": {}},
            "rules": {"in": [{"port": 80, "pods": {"x": "1"}, "labels": {"z": "3"}}]},
            "zonesOfOthers": {"a": {"x": "1"}},
        }});
        let set = json!({"f:spec": {
            "f:zones": {".": {}, "f:a": {}, "f:b.example.com/c": {}},
            "f:rules": {".": {}, "f:in": {"k:{\"port\":80}": {".": {}, "f:port": {}, "f:pods": {}, "f:labels": {}}}},
            "f:zonesOfOthers": {".": {}, "f:a": {}},
        }});
        check(
            object,
            set,
            json!({"spec": {
                "zones": {"a": {"matchLabels": {"x": "1"}}, "b.example.com/c": {"matchLabels": {"y": "2"}}},
                "rules": {"in": [{"port": 80, "pods": {"x": "1"}, "labels": {}}]},
                "zonesOfOthers": {"a": {}},
            }}),
        );
    }

    #[test]
    fn an_atomic_map_in_an_entry_of_a_list_is_whole() {
        let object = json!({"spec": {"ports": [{"port": 80, "target": {"name": "a"}, "labels": {"b": "c"}}]}});
        let set = json!({"f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:target": {}, "f:labels": {}}}}});
        check(object, set, json!({"spec": {"ports": [{"port": 80, "target": {"name": "a"}, "labels": {}}]}}));
    }
}
