//! Reads objects out of texts: JSON or YAML, one object, a list of any kind, an array, or several documents behind each other.
//!
//! An object is kept as compact JSON, so that of a long list one object at a time is a tree. Whether it is complete is asked later; here it
//! counts as an object if it names its kind, or if the place of its file does.

use crate::error::DocumentError;
use crate::limits::Limits;
use crate::source::recognized::without_mark;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
use std::fmt;
use std::sync::Arc;
use steersman_machinery::Value;
use steersman_machinery::value::{Map, at, str_at};

/// The deepest nesting that is read: that of JSON's parser.
const DEPTH_MAX: usize = 127;
/// The most parts of values that aliases repeat in one document of YAML, the most bytes of what they repeat, and the most maps that are merged
/// by `<<`. So a document is at most 320 MiB larger than its text.
const REPLAYED_MAX: usize = 20_000;
const REPEATED_BYTES_MAX: usize = 16 * 1024;
const MERGES_MAX: usize = 1_000;
/// The end of the kind of every list.
const LIST: &str = "List";

/// Facts about the objects in a file that follow from its place.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hint {
    /// The plural, or something like it if there is no group.
    pub resource: Option<Arc<str>>,
    /// The group, empty for the core group; `None` if it is unknown.
    pub group: Option<Arc<str>>,
    /// Whether the objects are in a namespace; `None` if it is unknown.
    pub is_namespaced: Option<bool>,
}

/// An object as it was served.
#[derive(Debug)]
pub(crate) struct Raw {
    /// The object, with its `resourceVersion`.
    pub(crate) json: Box<[u8]>,
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    /// Zero if it has none that is a number.
    pub(crate) revision: u64,
    pub(crate) hint: Hint,
}

/// The objects that were read.
#[derive(Debug)]
pub(crate) struct Documents {
    pub(crate) objects: Vec<Raw>,
    /// The apiVersion and the kind of the last object, which the next one mostly has too.
    last: (Arc<str>, Arc<str>),
    limits: Limits,
    n_bytes: u64,
    /// The newest revision of a list.
    pub(crate) revision: u64,
}

impl Documents {
    pub(crate) fn new(limits: &Limits) -> Documents {
        Documents { objects: Vec::new(), last: ("".into(), "".into()), limits: *limits, n_bytes: 0, revision: 0 }
    }

    /// Reads a text. What is no object, such as the answers of other programs in a support bundle, is passed over.
    ///
    /// # Errors
    /// When it is damaged, or there is too much of it. What came before is kept.
    pub(crate) fn read(&mut self, text: &[u8], hint: &Hint) -> Result<(), DocumentError> {
        let text = without_mark(text);
        match text.trim_ascii_start().first() {
            None => Ok(()),
            Some(b'{' | b'[') => self.read_json(text, hint),
            Some(_) => self.read_yaml(std::str::from_utf8(text).map_err(|_| DocumentError::Text)?, hint),
        }
    }

    fn read_json(&mut self, text: &[u8], hint: &Hint) -> Result<(), DocumentError> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        loop {
            let mut fault = None;
            let read = Reading { into: self, hint, fault: &mut fault }.deserialize(&mut reader);
            match (read, fault) {
                (_, Some(fault)) => return Err(fault),
                (Err(error), None) => return Err(DocumentError::Json(error.to_string())),
                (Ok(()), None) => {}
            }
            if reader.end().is_ok() {
                return Ok(());
            }
        }
    }

    fn read_yaml(&mut self, text: &str, hint: &Hint) -> Result<(), DocumentError> {
        for document in yaml_documents(text) {
            let mut fault = None;
            let read = serde_saphyr::with_deserializer_from_str_with_options(document, options(), |deserializer| {
                Reading { into: self, hint, fault: &mut fault }.deserialize(deserializer)
            });
            match (read, fault) {
                (_, Some(fault)) => return Err(fault),
                (Err(error), None) => {
                    let error = error.to_string();
                    return Err(DocumentError::Yaml(error.lines().next().unwrap_or("not readable").to_owned()));
                }
                (Ok(()), None) => {}
            }
        }
        Ok(())
    }

    /// Adds an object, or the items of one that is a list itself. `of` is the apiVersion and kind of the list that it is in.
    fn add(&mut self, mut object: Map, of: (&str, &str), hint: &Hint) -> Result<(), DocumentError> {
        for (name, value) in [("apiVersion", of.0), ("kind", of.1)] {
            if !value.is_empty() && !object.contains_key(name) {
                object.insert(name.to_owned(), value.into());
            }
        }
        let object = Value::Object(object);
        let text = |path: &[&str]| str_at(&object, path).unwrap_or_default();
        let (api_version, kind) = (text(&["apiVersion"]), text(&["kind"]));
        let is_known = !kind.is_empty() && !api_version.is_empty() || hint.resource.is_some();
        if text(&["metadata", "name"]).is_empty() || !is_known {
            return Ok(());
        }
        let json = serde_json::to_vec(&object).map_err(|error| DocumentError::Json(error.to_string()))?;
        self.n_bytes += json.len() as u64;
        if self.limits.object_bytes < self.n_bytes {
            return Err(DocumentError::Limit { limit: self.limits.object_bytes, of: "bytes of objects" });
        }
        if self.limits.objects <= self.objects.len() {
            return Err(DocumentError::Limit { limit: self.limits.objects as u64, of: "objects" });
        }
        if (&*self.last.0, &*self.last.1) != (api_version, kind) {
            self.last = (api_version.into(), kind.into());
        }
        let raw = Raw {
            json: json.into(),
            api_version: self.last.0.clone(),
            kind: self.last.1.clone(),
            namespace: text(&["metadata", "namespace"]).into(),
            name: text(&["metadata", "name"]).into(),
            revision: text(&["metadata", "resourceVersion"]).parse().unwrap_or_default(),
            hint: hint.clone(),
        };
        self.objects.push(raw);
        Ok(())
    }
}

/// The documents of YAML, which a line that begins with `---` divides, wherever it stands.
fn yaml_documents(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let is_mark = |at: usize| {
            let behind = text.as_bytes().get(at + 3);
            behind.is_none_or(u8::is_ascii_whitespace)
        };
        let end = text.match_indices("\n---").map(|(at, _)| at + 1).find(|at| is_mark(*at));
        rest = end.map(|end| &text[end..]);
        Some(end.map_or(text, |end| &text[..end]))
    })
    .map(|document| {
        document
            .strip_prefix("---")
            .filter(|rest| rest.starts_with(char::is_whitespace) || rest.is_empty())
            .unwrap_or(document)
    })
    .filter(|document| document.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')))
}

/// The bounds of the parser are those of the file, whose size is limited, but for what repeats parts of it.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_MAX },
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_documents: 2,
            max_events: usize::MAX,
            max_merge_keys: MERGES_MAX,
            max_nodes: usize::MAX,
            max_reader_input_bytes: None,
            max_recorded_anchor_bytes: REPEATED_BYTES_MAX,
            max_total_scalar_bytes: usize::MAX,
        },
    }
}

/// Reads a document.
struct Reading<'a> {
    into: &'a mut Documents,
    hint: &'a Hint,
    /// Why no more is read.
    fault: &'a mut Option<DocumentError>,
}

/// Reads the items of a list. One that says what it is becomes an object at once; the others are returned, as compact JSON, since what they are
/// may stand behind them.
struct Items<'a, 'b>(&'b mut Reading<'a>);

impl Reading<'_> {
    fn add<E: serde::de::Error>(&mut self, object: Map, of: (&str, &str)) -> Result<(), E> {
        self.into.add(object, of, self.hint).map_err(|fault| self.fail(fault))
    }

    fn fail<E: serde::de::Error>(&mut self, fault: DocumentError) -> E {
        let error = E::custom(&fault);
        *self.fault = Some(fault);
        error
    }

    /// Ends a document that has items.
    fn finish<E: serde::de::Error>(&mut self, mut fields: Map, items: Vec<Box<[u8]>>) -> Result<(), E> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let items = items.iter().filter_map(|item| serde_json::from_slice::<Value>(item).ok());
        match kind.strip_suffix(LIST) {
            None if !kind.is_empty() => {
                fields.insert("items".to_owned(), items.collect());
                self.add(fields, ("", ""))
            }
            of => {
                let of = of.unwrap_or_default();
                // The list of kubectl says nothing of its items.
                let of = if of.is_empty() { ("", "") } else { (&*api_version, of) };
                for item in items {
                    if let Value::Object(item) = item {
                        self.add(item, of)?;
                    }
                }
                let list = Value::Object(fields);
                let revision = str_at(&list, &["metadata", "resourceVersion"]).and_then(|text| text.parse().ok());
                self.into.revision = self.into.revision.max(revision.unwrap_or_default());
                Ok(())
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of Kubernetes, or a list of them")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let (mut fields, mut items) = (Map::new(), None);
        while let Some(name) = map.next_key::<String>()? {
            if name == "items" && items.is_none() {
                items = map.next_value_seed(Items(&mut self))?;
            } else {
                fields.insert(name, map.next_value()?);
            }
        }
        match items {
            Some(items) => self.finish(fields, items),
            None => self.add(fields, ("", "")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element::<Value>()? {
            if let Value::Object(item) = item {
                self.add(item, ("", ""))?;
            }
        }
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = Option<Vec<Box<[u8]>>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = Option<Vec<Box<[u8]>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut items, mut n_bytes) = (Vec::new(), 0);
        while let Some(item) = list.next_element::<Value>()? {
            let names_itself = |name: &str| item.get(name).is_some_and(Value::is_string);
            if names_itself("kind") && names_itself("apiVersion") && at(&item, &["metadata", "name"]).is_some() {
                if let Value::Object(item) = item {
                    self.0.add(item, ("", ""))?;
                }
                continue;
            }
            let json = serde_json::to_vec(&item).map_err(A::Error::custom)?;
            n_bytes += json.len() as u64;
            let Limits { object_bytes, objects, .. } = self.0.into.limits;
            if object_bytes < n_bytes {
                return Err(self.0.fail(DocumentError::Limit { limit: object_bytes, of: "bytes of objects" }));
            }
            if objects <= items.len() {
                return Err(self.0.fail(DocumentError::Limit { limit: objects as u64, of: "objects" }));
            }
            items.push(json.into_boxed_slice());
        }
        Ok(Some(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Reads a text, for the fuzz target. Returns the number of objects.
#[cfg(feature = "fuzzing")]
pub fn fuzz_documents(text: &[u8]) -> usize {
    let limits = Limits { objects: 1_000, object_bytes: 1 << 20, ..Limits::default() };
    let mut documents = Documents::new(&limits);
    let _read = documents.read(text, &Hint::default());
    for raw in &documents.objects {
        let value: Value = serde_json::from_slice(&raw.json).expect("invariant: it was written by the same library");
        assert_eq!(str_at(&value, &["metadata", "name"]), Some(&*raw.name));
    }
    documents.objects.len()
}

#[cfg(test)]
mod tests;
