//! The header of a stored object: the data that stores, selectors and garbage collection need, encoded in front of the
//! JSON.
//!
//! ```text
//! version u8 = 1 | flags u8 (deletion, empty metadata, initializers) | length of the rest | position of the metadata's
//! first field in the JSON
//! labels, sorted by key: number, then key and value each | fields: number, then name and text each
//! apiVersion | uid | deletionTimestamp, if its flag is set | finalizers: number, then each
//! owners: number, then flags u8, apiVersion, kind, name and uid each
//! ```
//!
//! Lengths, numbers and positions are LEB128; a text is its length and its bytes. The first byte is never `{`, so a
//! stored value that begins with one is JSON without a header, from older releases. The data for selectors comes first.

use crate::object::{DecodeError, Fault};
use crate::value::{self, Value};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

const VERSION: u8 = 1;
const DELETING: u8 = 1;
const EMPTY_METADATA: u8 = 2;
/// Releases that do not know the flag ignore it, and show the object.
const UNINITIALIZED: u8 = 4;
/// The flags that describe the object.
const ASKED: u8 = DELETING | UNINITIALIZED;
const CONTROLLER: u8 = 1;
const BLOCKS_DELETION: u8 = 2;
/// The length of version and flags.
const FIXED: usize = 2;

/// A header that is about to be stored. The writer builds it from the tree that it already has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    flags: u8,
    /// The bytes from the labels on.
    body: Vec<u8>,
}

/// The header of a stored object, read in place without copying.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Meta<'a> {
    flags: u8,
    /// The bytes from the labels on; checked when the object was decoded.
    body: &'a [u8],
    /// The position of the fields in the body. An object may have a hundred thousand labels, which not every look may pass.
    fields_at: usize,
}

/// An owner reference, as garbage collection needs it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnerReference<'a> {
    /// The owner's `apiVersion`.
    pub api_version: &'a str,
    /// The owner's kind.
    pub kind: &'a str,
    /// The owner's name.
    pub name: &'a str,
    /// The owner's uid.
    pub uid: &'a str,
    /// Whether it is the controller.
    pub controller: bool,
    /// Whether the owner may not be removed before this object in a foreground deletion.
    pub block_owner_deletion: bool,
}

/// The parsed header at the beginning of stored bytes.
pub(super) struct Parsed {
    /// The position of the JSON.
    pub(super) json_at: usize,
    pub(super) metadata: MetadataPosition,
    /// The position of the fields behind the labels.
    pub(super) fields_at: usize,
}

/// The place in a JSON where a field can be inserted into its metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct MetadataPosition {
    /// The position of the first field.
    pub(super) at: usize,
    /// Whether there is no field, so that an inserted one needs no comma after it.
    pub(super) is_empty: bool,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "apiVersion", borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow)]
    owner_references: Option<Vec<Owner<'a>>>,
    #[serde(borrow)]
    finalizers: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    initializers: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

// === impl Header ===

impl Header {
    /// The header of an object in its tree form. `fields` are the texts of the kind's selectable fields; an absent
    /// field is given with the text that selectors compare.
    ///
    /// Values of invalid types count as absent: the caller has validated the object.
    pub fn of(object: &Value, fields: &[(&str, &str)]) -> Header {
        let metadata = value::at(object, &["metadata"]).unwrap_or(&Value::Null);
        let text =
            |object: &'_ Value, key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let labels = metadata.get("labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        let finalizers = metadata.get("finalizers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let owners = metadata.get("ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut labels: Vec<(&str, &str)> = labels.collect();
        labels.sort_unstable();
        let mut header = Header::begin(&labels, fields);
        header.text(value::str_at(object, &["apiVersion"]).unwrap_or_default());
        header.text(value::str_at(metadata, &["uid"]).unwrap_or_default());
        header.deletion(value::str_at(metadata, &["deletionTimestamp"]));
        header.initialization(metadata.get("initializers").is_some_and(|initializers| !initializers.is_null()));
        header.list(finalizers.iter().filter_map(Value::as_str).collect::<Vec<_>>().as_slice(), |header, one| {
            header.text(one);
        });
        header.list(owners, |header, owner| {
            let is = |key| owner.get(key).and_then(Value::as_bool).unwrap_or_default();
            header.owner(is("controller"), is("blockOwnerDeletion"));
            for key in ["apiVersion", "kind", "name", "uid"] {
                header.text(&text(owner, key));
            }
        });
        header
    }

    /// The header of an object in its JSON form, which is parsed.
    ///
    /// # Errors
    /// When the bytes are not a JSON object with a `metadata` object.
    pub fn read(json: &[u8], fields: &[(&str, &str)]) -> Result<Header, DecodeError> {
        let envelope: Envelope<'_> = serde_json::from_slice(json)?;
        let metadata: Metadata<'_> = serde_json::from_str(envelope.metadata.get())?;
        let labels = metadata.labels.unwrap_or_default();
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        let mut header = Header::begin(&labels, fields);
        header.text(&envelope.api_version);
        header.text(&metadata.uid);
        header.deletion(metadata.deletion_timestamp.as_deref());
        header.initialization(metadata.initializers.is_some_and(|initializers| initializers.get() != "null"));
        header.list(&metadata.finalizers.unwrap_or_default(), |header, one| header.text(one));
        header.list(&metadata.owner_references.unwrap_or_default(), |header, owner| {
            header.owner(owner.controller.unwrap_or_default(), owner.block_owner_deletion.unwrap_or_default());
            for text in [&owner.api_version, &owner.kind, &owner.name, &owner.uid] {
                header.text(text);
            }
        });
        Ok(header)
    }

    /// The header in its readable form.
    pub fn meta(&self) -> Meta<'_> {
        let mut reader = Reader { rest: &self.body };
        reader.skip_pairs();
        Meta { flags: self.flags, body: &self.body, fields_at: self.body.len() - reader.rest.len() }
    }

    /// Writes the header in front of a JSON.
    pub(super) fn write(&self, metadata: MetadataPosition, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.push(self.flags | if metadata.is_empty { EMPTY_METADATA } else { 0 });
        let mut position = Vec::with_capacity(4);
        number(metadata.at, &mut position);
        number(position.len() + self.body.len(), out);
        out.extend_from_slice(&position);
        out.extend_from_slice(&self.body);
    }

    /// The approximate size in bytes.
    pub(super) fn weight(&self) -> usize {
        FIXED + 8 + self.body.len()
    }

    fn begin(labels: &[(&str, &str)], fields: &[(&str, &str)]) -> Header {
        let mut header = Header { flags: 0, body: Vec::with_capacity(128) };
        for pairs in [labels, fields] {
            header.list(pairs, |header, (name, text)| {
                header.text(name);
                header.text(text);
            });
        }
        header
    }

    fn deletion(&mut self, timestamp: Option<&str>) {
        if let Some(timestamp) = timestamp {
            self.flags |= DELETING;
            self.text(timestamp);
        }
    }

    fn initialization(&mut self, is_under_way: bool) {
        if is_under_way {
            self.flags |= UNINITIALIZED;
        }
    }

    fn owner(&mut self, controller: bool, block_owner_deletion: bool) {
        let flags = if controller { CONTROLLER } else { 0 } | if block_owner_deletion { BLOCKS_DELETION } else { 0 };
        self.body.push(flags);
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Header, &T)) {
        number(items.len(), &mut self.body);
        items.iter().for_each(|item| each(self, item));
    }

    fn text(&mut self, text: &str) {
        number(text.len(), &mut self.body);
        self.body.extend_from_slice(text.as_bytes());
    }
}

fn number(mut number: usize, out: &mut Vec<u8>) {
    while 0x80 <= number {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

// === impl Meta ===

impl<'a> Meta<'a> {
    /// Parses the header at the beginning of stored bytes, and checks all of it.
    pub(super) fn parse(stored: &'a [u8]) -> Result<Parsed, Fault> {
        let [VERSION, flags, rest @ ..] = stored else { return Err(Fault::Version { found: stored.first().copied() }) };
        let mut reader = Reader { rest };
        let length = reader.number().ok_or(Fault::Cut)?;
        let json_at = stored.len() - reader.rest.len() + length;
        reader.rest = reader.rest.get(..length).ok_or(Fault::Cut)?;
        let at = reader.number().ok_or(Fault::Cut)?;
        let meta = Meta { flags: flags & ASKED, body: reader.rest, fields_at: 0 };
        let fields_at = meta.check().ok_or(Fault::Malformed)?;
        let metadata = MetadataPosition { at, is_empty: flags & EMPTY_METADATA != 0 };
        Ok(Parsed { json_at, metadata, fields_at })
    }

    /// The header of bytes that were already checked, with the position of its fields.
    pub(super) fn trusted(stored: &'a [u8], fields_at: usize) -> Meta<'a> {
        let mut reader = Reader { rest: stored.get(FIXED..).unwrap_or_default() };
        let length = reader.number().unwrap_or_default();
        reader.rest = reader.rest.get(..length).unwrap_or_default();
        reader.number();
        Meta { flags: stored.get(1).copied().unwrap_or_default() & ASKED, body: reader.rest, fields_at }
    }

    /// The number of labels.
    pub fn n_labels(self) -> usize {
        Reader { rest: self.body }.number().unwrap_or_default()
    }

    /// The labels, sorted by key.
    pub fn labels(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut reader = Reader { rest: self.body };
        let n_labels = reader.number().unwrap_or_default();
        reader.pairs(n_labels)
    }

    /// The value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        self.labels().find(|(label, _)| *label == key).map(|(_, value)| value)
    }

    /// The selectable fields that are in the header.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut reader = Reader { rest: self.body.get(self.fields_at..).unwrap_or_default() };
        let n_fields = reader.number().unwrap_or_default();
        reader.pairs(n_fields)
    }

    /// The text of a selectable field. `None`: it is not in the header, and the object must be read.
    pub fn field(self, name: &str) -> Option<&'a str> {
        self.fields().find(|(field, _)| *field == name).map(|(_, text)| text)
    }

    /// The `apiVersion` in which it was stored.
    pub fn api_version(self) -> &'a str {
        self.behind_fields().text().unwrap_or_default()
    }

    /// The uid.
    pub fn uid(self) -> &'a str {
        let mut reader = self.behind_fields();
        reader.text();
        reader.text().unwrap_or_default()
    }

    /// The time at which deletion was requested, RFC 3339.
    pub fn deletion_timestamp(self) -> Option<&'a str> {
        let mut reader = self.behind_fields();
        reader.text();
        reader.text();
        if self.is_deleting() { reader.text() } else { None }
    }

    /// Whether deletion was requested.
    pub fn is_deleting(self) -> bool {
        self.flags & DELETING != 0
    }

    /// Whether it has `metadata.initializers`: it is still being created, and hidden from requests that do not ask for
    /// such objects.
    pub fn is_uninitialized(self) -> bool {
        self.flags & UNINITIALIZED != 0
    }

    /// The finalizers.
    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        let mut reader = self.behind_deletion();
        let n_finalizers = reader.number().unwrap_or_default();
        (0..n_finalizers).map_while(move |_| reader.text())
    }

    /// Whether it has this finalizer.
    pub fn has_finalizer(self, finalizer: &str) -> bool {
        self.finalizers().any(|one| one == finalizer)
    }

    /// The owner references.
    pub fn owner_references(self) -> impl Iterator<Item = OwnerReference<'a>> {
        let mut reader = self.behind_deletion();
        for _ in 0..reader.number().unwrap_or_default() {
            reader.text();
        }
        let n_owners = reader.number().unwrap_or_default();
        (0..n_owners).map_while(move |_| reader.owner())
    }

    fn behind_fields(self) -> Reader<'a> {
        let mut reader = Reader { rest: self.body.get(self.fields_at..).unwrap_or_default() };
        reader.skip_pairs();
        reader
    }

    fn behind_deletion(self) -> Reader<'a> {
        let mut reader = self.behind_fields();
        for _ in 0..if self.is_deleting() { 3 } else { 2 } {
            reader.text();
        }
        reader
    }

    /// Parses everything, and returns the position of the fields: `None` where the bytes are cut off, not UTF-8, or too long.
    fn check(self) -> Option<usize> {
        let mut reader = Reader { rest: self.body };
        let mut fields_at = 0;
        for part in ["labels", "fields"] {
            for _ in 0..reader.number()? {
                reader.text()?;
                reader.text()?;
            }
            if part == "labels" {
                fields_at = self.body.len() - reader.rest.len();
            }
        }
        for _ in 0..if self.is_deleting() { 3 } else { 2 } {
            reader.text()?;
        }
        for _ in 0..reader.number()? {
            reader.text()?;
        }
        for _ in 0..reader.number()? {
            reader.owner()?;
        }
        reader.rest.is_empty().then_some(fields_at)
    }
}

impl std::fmt::Debug for Meta<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meta")
            .field("api_version", &self.api_version())
            .field("uid", &self.uid())
            .field("labels", &self.labels().collect::<Vec<_>>())
            .field("fields", &self.fields().collect::<Vec<_>>())
            .field("deletion_timestamp", &self.deletion_timestamp())
            .field("is_uninitialized", &self.is_uninitialized())
            .field("finalizers", &self.finalizers().collect::<Vec<_>>())
            .field("owner_references", &self.owner_references().collect::<Vec<_>>())
            .finish()
    }
}

// === reading ===

/// Reads one value after the other from the front.
#[derive(Clone, Copy)]
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// A number below 2^35, which exceeds every length in a stored object.
    fn number(&mut self) -> Option<usize> {
        let mut number = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        std::str::from_utf8(text).ok()
    }

    fn owner(&mut self) -> Option<OwnerReference<'a>> {
        let flags = self.byte()?;
        Some(OwnerReference {
            api_version: self.text()?,
            kind: self.text()?,
            name: self.text()?,
            uid: self.text()?,
            controller: flags & CONTROLLER != 0,
            block_owner_deletion: flags & BLOCKS_DELETION != 0,
        })
    }

    fn pairs(mut self, n_pairs: usize) -> impl Iterator<Item = (&'a str, &'a str)> {
        (0..n_pairs).map_while(move |_| Some((self.text()?, self.text()?)))
    }

    fn skip_pairs(&mut self) {
        for _ in 0..2 * self.number().unwrap_or_default() {
            let length = self.number().unwrap_or_default();
            self.rest = self.rest.get(length..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_found_without_a_look_at_the_labels() {
        let header = Header::of(&json!({"metadata": {"uid": "u", "labels": {"a": "b"}}}), &[("spec.node", "n")]);
        let mut stored = Vec::new();
        header.write(MetadataPosition { at: 0, is_empty: false }, &mut stored);
        let parsed = Meta::parse(&stored).unwrap();
        let places: Vec<usize> = (0..stored.len() - 1).filter(|at| &stored[*at..][..2] == b"\x01a").collect();
        let [label_at] = places[..] else { panic!("{places:?}") };
        // A length beyond the end.
        stored[label_at] = 0x7f;
        let meta = Meta::trusted(&stored, parsed.fields_at);
        assert_eq!((meta.field("spec.node"), meta.uid(), meta.label("a")), (Some("n"), "u", None));
    }
}
