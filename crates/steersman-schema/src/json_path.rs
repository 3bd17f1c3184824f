//! The simple JSONPath of printer columns, scale paths and selectable fields: `.spec.a[0].b`, `.a['x.y']`, `.a\.b`.
//!
//! One place, no wildcards, no filters. What clients send for `-o jsonpath` is theirs to evaluate.

use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// A parsed path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JsonPath {
    text: Box<str>,
    steps: Box<[Step]>,
}

/// One step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    Field(Box<str>),
    /// From the end if negative.
    Index(i64),
}

/// A text that is no simple path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// A step that is none, with where it starts.
    #[error("must be a json path in the dot notation: {text:?} cannot be read from byte {offset}")]
    BadStep { text: String, offset: usize },
    #[error("must not be empty")]
    Empty,
    #[error("must be a simple json path starting with .")]
    NoDot,
}

impl JsonPath {
    /// Reads a path; `.` alone is the whole object.
    ///
    /// # Errors
    /// When it does not start with a dot, or a step is none.
    pub fn parse(text: &str) -> Result<JsonPath, ParseError> {
        match text.chars().next() {
            None => return Err(ParseError::Empty),
            Some('.') => {}
            Some(_) => return Err(ParseError::NoDot),
        }
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() && rest != "." {
            let bad = || ParseError::BadStep { text: text.to_owned(), offset: text.len() - rest.len() };
            let (step, behind) = match rest.strip_prefix('.') {
                // `.['x']` is `['x']`.
                Some(bracket) if bracket.starts_with('[') => bracketed(bracket),
                Some(field) => named(field),
                None => bracketed(rest),
            }
            .ok_or_else(bad)?;
            steps.push(step);
            rest = behind;
        }
        if rest == "." && !steps.is_empty() {
            return Err(ParseError::BadStep { text: text.to_owned(), offset: text.len() - 1 });
        }
        Ok(JsonPath { text: text.into(), steps: steps.into() })
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its steps from the object down.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What is there.
    pub fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.steps.iter().try_fold(value, |here, step| match step {
            Step::Field(name) => here.as_object()?.get(name.as_ref()),
            Step::Index(index) => {
                let items = here.as_array()?;
                items.get(place(*index, items.len())?)
            }
        })
    }

    /// Puts something there; objects on the way are made, lists are not. False if the way is barred.
    pub fn set(&self, value: &mut Value, new: Value) -> bool {
        let mut here = value;
        for step in &self.steps {
            let next = match step {
                Step::Field(name) => {
                    if here.is_null() {
                        *here = Value::Object(Map::new());
                    }
                    here.as_object_mut().map(|fields| fields.entry(name.as_ref()).or_insert(Value::Null))
                }
                Step::Index(index) => here.as_array_mut().and_then(|items| {
                    let place = place(*index, items.len())?;
                    items.get_mut(place)
                }),
            };
            let Some(next) = next else { return false };
            here = next;
        }
        *here = new;
        true
    }
}

fn place(index: i64, length: usize) -> Option<usize> {
    if index < 0 {
        length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
    } else {
        usize::try_from(index).ok()
    }
}

/// A name up to the next `.` or `[`; a backslash takes the next character as it is.
fn named(rest: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut chars = rest.char_indices();
    let mut end = rest.len();
    while let Some((at, char)) = chars.next() {
        match char {
            '.' | '[' => {
                end = at;
                break;
            }
            '\\' => name.push(chars.next()?.1),
            ']' | '*' | '\'' | '"' | ' ' => return None,
            _ => name.push(char),
        }
    }
    (!name.is_empty()).then(|| (Step::Field(name.into()), &rest[end..]))
}

/// `[3]`, `[-1]`, `['x']` or `["x"]`.
fn bracketed(rest: &str) -> Option<(Step, &str)> {
    let inner = rest.strip_prefix('[')?;
    let Some(quote) = inner.chars().next().filter(|char| matches!(char, '\'' | '"')) else {
        let (index, behind) = inner.split_once(']')?;
        return Some((Step::Index(index.parse().ok()?), behind));
    };
    let mut name = String::new();
    let mut chars = inner[1..].char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => name.push(chars.next()?.1),
            _ if char == quote => {
                let behind = inner[1 + at + 1..].strip_prefix(']')?;
                return Some((Step::Field(name.into()), behind));
            }
            _ => name.push(char),
        }
    }
    None
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn paths_reach_what_they_name() {
        let object = json!({"spec": {"a": [{"b": 1}, {"b": 2}], "x.y": {"q'": true}, "n": null}});
        for (path, want) in [
            (".spec.a[0].b", Some(json!(1))),
            (".spec.a[-1].b", Some(json!(2))),
            (".spec.a[2].b", None),
            (".spec.a[-3].b", None),
            (r".spec.x\.y", Some(json!({"q'": true}))),
            (".spec['x.y']", Some(json!({"q'": true}))),
            (r#".spec.["x.y"]['q\'']"#, Some(json!(true))),
            (".spec.n", Some(json!(null))),
            (".spec.n.m", None),
            (".", Some(object.clone())),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap().get(&object), want.as_ref(), "{path}");
        }
    }

    #[test]
    fn setting_makes_objects_on_the_way() {
        let set =
            |path: &str, mut object: Value| JsonPath::parse(path).unwrap().set(&mut object, json!(3)).then_some(object);
        assert_eq!(set(".spec.replicas", json!({})), Some(json!({"spec": {"replicas": 3}})));
        assert_eq!(
            set(".spec.replicas", json!({"spec": {"replicas": 1, "x": 2}})),
            Some(json!({"spec": {"replicas": 3, "x": 2}}))
        );
        assert_eq!(set(".a[0]", json!({"a": [1]})), Some(json!({"a": [3]})));
        assert_eq!(set(".a[1]", json!({"a": [1]})), None);
        assert_eq!(set(".a.b", json!({"a": "text"})), None);
    }

    #[test]
    fn what_is_no_simple_path_is_told() {
        for (text, want) in [("", "must not be empty"), ("spec.a", "must be a simple json path starting with .")] {
            assert_eq!(JsonPath::parse(text).unwrap_err().to_string(), want);
        }
        for text in ["..a", ".a..b", ".a[", ".a[x]", ".a['x]", ".a[*]", ".a.", ".a]b", "{.a}", r".a\"] {
            assert!(JsonPath::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\.?[a\\.\\[\\]'\"\\\\0-9*\\-é ]{0,12}") {
            if let Ok(path) = JsonPath::parse(&text) {
                let mut object = json!({"a": {"b": [1, {"c": 2}]}});
                let _ = path.get(&object);
                if path.set(&mut object, json!("new")) {
                    prop_assert_eq!(path.get(&object), Some(&json!("new")));
                }
            }
        }
    }
}
