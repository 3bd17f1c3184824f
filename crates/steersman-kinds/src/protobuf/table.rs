//! The fields of every message: the embedded table, decompressed on first use. A message is parsed from its line when
//! it is first needed.

use flate2::read::DeflateDecoder;
use std::io::Read;
use std::sync::{LazyLock, OnceLock};
use steersman_machinery::GroupVersionKind;
use steersman_schema::Definitions;

/// Every message of the built-in kinds.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(&TEXT));

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::with_capacity(192 * 1024);
    DeflateDecoder::new(include_bytes!("messages.deflate").as_slice())
        .read_to_string(&mut text)
        .expect("invariant: the embedded table unpacks, as the tests have seen it do");
    text
});

/// Messages by name.
pub(super) struct Table {
    /// Sorted by name.
    entries: Vec<Entry>,
}

/// A line of the table.
struct Entry {
    name: &'static str,
    fields: &'static str,
    message: OnceLock<Message>,
}

/// The fields of a message.
#[derive(Debug)]
pub(super) struct Message {
    /// The name in the table.
    pub name: &'static str,
    pub fields: Box<[Field]>,
    /// Embedded messages: in JSON, their fields are fields of this object.
    pub parts: Box<[Part]>,
}

/// A field of the message that is also a field in JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub number: u32,
    /// The name in JSON.
    pub name: &'static str,
    pub form: Form,
    pub kind: Kind,
}

/// A field of the message that is not a field in JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub number: u32,
    pub message: Reference,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    List,
    Map,
    One,
}

/// The type of a value. Some messages are not objects in JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Bytes,
    Double,
    /// A schema, or a simpler value in its place: a bool or a list.
    Either(Reference),
    Integer,
    IntOrString,
    /// Any JSON value, which the message holds as text.
    Json,
    Message(Reference),
    MicroTime,
    Quantity,
    Text,
    /// A list of strings.
    Texts,
    Time,
    Truth,
}

/// A message of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Reference(u16);

/// The prefix of names in the table, in place of the common prefix of all definition names.
const LEAD: &str = "~";
const DEFINITION_LEAD: &str = "io.k8s.";

impl Table {
    fn read(text: &'static str) -> Table {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let entry = |(name, fields)| Entry { name, fields, message: OnceLock::new() };
        let mut entries: Vec<Entry> = lines.map(entry).collect();
        entries.sort_by_key(|entry| entry.name);
        Table { entries }
    }

    pub(super) fn of_kind(&self, kind: &GroupVersionKind) -> Option<&Message> {
        let (version, name) = (&kind.version, &kind.kind);
        // The definitions are those of OpenAPI, which lacks some kinds of answers.
        match &*kind.group {
            "apidiscovery.k8s.io" => self.message(&format!("{LEAD}api.apidiscovery.{version}.{name}")),
            // It is stored, and no part of the API.
            "" if *name == *"RangeAllocation" => self.message(&format!("{LEAD}api.core.{version}.{name}")),
            // The two versions share their messages.
            "meta.k8s.io" if *version == *"v1beta1" => {
                self.message(&format!("{LEAD}apimachinery.pkg.apis.meta.v1.{name}"))
            }
            "meta.k8s.io" => self.message(&format!("{LEAD}apimachinery.pkg.apis.meta.{version}.{name}")),
            _ => self.of_definition(Definitions::builtin().definition_of(kind)?.name()),
        }
    }

    pub(super) fn of_definition(&self, name: &str) -> Option<&Message> {
        self.message(&format!("{LEAD}{}", name.strip_prefix(DEFINITION_LEAD)?))
    }

    pub(super) fn at(&self, reference: Reference) -> &Message {
        let entry = &self.entries[usize::from(reference.0)];
        entry.message.get_or_init(|| Message::read(self, entry))
    }

    fn message(&self, name: &str) -> Option<&Message> {
        self.reference(name).map(|reference| self.at(reference))
    }

    fn reference(&self, name: &str) -> Option<Reference> {
        let index = self.entries.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        u16::try_from(index).ok().map(Reference)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Message> {
        (0..self.entries.len()).map(|index| self.at(Reference(u16::try_from(index).unwrap())))
    }
}

impl Message {
    fn read(table: &Table, entry: &Entry) -> Message {
        let (mut fields, mut parts) = (Vec::new(), Vec::new());
        // `NUMBER:NAME:TYPE`, separated by blanks. A field whose message is not in the table, which no kind has, is
        // skipped.
        let texts = entry.fields.split_ascii_whitespace().filter_map(|text| text.split_once(':'));
        for (number, (name, kind)) in texts.filter_map(|(number, rest)| Some((number, rest.split_once(':')?))) {
            let Ok(number) = number.parse() else { continue };
            if name.is_empty() {
                parts.extend(table.reference(kind).map(|message| Part { number, message }));
                continue;
            }
            let (form, kind) = match (kind.strip_prefix("[]"), kind.strip_prefix("{}")) {
                (Some(kind), _) => (Form::List, kind),
                (_, Some(kind)) => (Form::Map, kind),
                _ => (Form::One, kind),
            };
            fields.extend(Kind::read(table, kind).map(|kind| Field { number, name, form, kind }));
        }
        fields.sort_by_key(|field: &Field| field.name);
        Message { name: entry.name, fields: fields.into(), parts: parts.into() }
    }

    pub(super) fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Kind {
    fn read(table: &Table, name: &str) -> Option<Kind> {
        Some(match name {
            "b" => Kind::Bytes,
            "d" => Kind::Double,
            "i" => Kind::Integer,
            "s" => Kind::Text,
            "t" => Kind::Truth,
            "~apimachinery.pkg.api.resource.Quantity" => Kind::Quantity,
            "~apimachinery.pkg.apis.meta.v1.FieldsV1" | "~apimachinery.pkg.runtime.RawExtension" => Kind::Json,
            "~apimachinery.pkg.apis.meta.v1.MicroTime" => Kind::MicroTime,
            "~apimachinery.pkg.apis.meta.v1.Time" => Kind::Time,
            "~apimachinery.pkg.util.intstr.IntOrString" => Kind::IntOrString,
            _ => match name.rsplit('.').next().unwrap_or(name) {
                "ExtraValue" | "Verbs" => Kind::Texts,
                "JSON" => Kind::Json,
                "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
                    Kind::Either(table.reference(name)?)
                }
                _ => Kind::Message(table.reference(name)?),
            },
        })
    }
}
