//! The fields of every message by number: the embedded table, unpacked on first use and read line by line.

use flate2::read::DeflateDecoder;
use std::io::Read;
use std::sync::LazyLock;

/// Every message of the built-in kinds.
pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(&TEXT));

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::with_capacity(192 * 1024);
    DeflateDecoder::new(include_bytes!("messages.deflate").as_slice())
        .read_to_string(&mut text)
        .expect("invariant: the embedded table unpacks, as the tests have seen it do");
    text
});

/// Messages by their names.
pub(crate) struct Table {
    /// Sorted by name.
    messages: Vec<Message>,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    name: &'static str,
    fields: &'static str,
}

/// A field that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    number: u32,
    /// Its name in JSON; empty if its fields are those of the object around.
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    List,
    Map,
    One,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Bytes,
    Double,
    Integer,
    Message(&'static str),
    Text,
    Truth,
}

/// What the names of the table have in place of the common lead of all definitions' names.
const LEAD: &str = "~";

impl Table {
    fn read(text: &'static str) -> Table {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let mut messages: Vec<Message> = lines.map(|(name, fields)| Message { name, fields }).collect();
        messages.sort_by_key(|message| message.name);
        Table { messages }
    }

    /// The message of a definition.
    pub(crate) fn of_definition(&self, name: &str) -> Option<Message> {
        self.message(&name.replacen("io.k8s.", LEAD, 1))
    }

    /// The message of a name of the table.
    pub(crate) fn message(&self, name: &str) -> Option<Message> {
        let index = self.messages.binary_search_by(|message| message.name.cmp(name)).ok()?;
        Some(self.messages[index])
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Message> {
        self.messages.iter().copied()
    }
}

impl Message {
    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// The field of a number.
    pub(crate) fn field(self, number: u32) -> Option<Known> {
        self.fields().find(|field| field.number == number)
    }

    /// Every field.
    pub(crate) fn fields(self) -> impl Iterator<Item = Known> {
        self.fields.split_ascii_whitespace().filter_map(Known::read)
    }
}

impl Known {
    /// `NUMBER:NAME:TYPE`.
    fn read(text: &'static str) -> Option<Known> {
        let (number, rest) = text.split_once(':')?;
        let (name, kind) = rest.split_once(':')?;
        let (form, kind) = match (kind.strip_prefix("[]"), kind.strip_prefix("{}")) {
            (Some(kind), _) => (Form::List, kind),
            (_, Some(kind)) => (Form::Map, kind),
            _ => (Form::One, kind),
        };
        let kind = match kind {
            "b" => Kind::Bytes,
            "d" => Kind::Double,
            "i" => Kind::Integer,
            "s" => Kind::Text,
            "t" => Kind::Truth,
            name => Kind::Message(name),
        };
        Some(Known { number: number.parse().ok()?, name, form, kind })
    }
}
