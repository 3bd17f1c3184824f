//! Queries on encoded FieldsV1 without decoding it into a set.
//!
//! Elements are compared as texts. That is exact only for names: a value can be written in several ways, such as `1`
//! and `1.0`, so a caller whose set has other elements decodes the FieldsV1 instead.

use crate::model::schema::Schema;
use crate::ownership::fields::reconcile::is_whole;
use crate::ownership::fields::shape::{Form, Node};
use crate::ownership::fields::{Element, FieldSet};
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// The key that marks an entry with members beneath it as a member itself.
const MEMBER: &str = ".";
/// Maps with more keys than this are searched by key.
const LARGE: usize = 32;

impl FieldSet {
    /// Whether all elements of the set are field names.
    pub(crate) fn has_names_only(&self) -> bool {
        self.entries
            .iter()
            .all(|(element, entry)| matches!(element, Element::Field(_)) && entry.beneath.has_names_only())
    }

    /// Whether any path of this set, which has names only, is in an encoded one.
    pub(crate) fn overlaps(&self, written: &Map) -> bool {
        self.entries.iter().any(|(element, entry)| {
            let Some(found) = find(written, element) else { return false };
            (entry.member && is_member(found)) || entry.beneath.overlaps(found)
        })
    }

    /// Whether every path of this set, which has names only, is in an encoded one.
    pub(crate) fn is_within(&self, written: &Map) -> bool {
        self.entries.iter().all(|(element, entry)| {
            let Some(found) = find(written, element) else { return false };
            (!entry.member || is_member(found)) && entry.beneath.is_within(found)
        })
    }
}

/// Whether an encoded set can be decoded, and reconciling it with a schema would not change it.
pub(crate) fn is_settled(schema: &Schema, written: &Map) -> bool {
    is_settled_at(Node::root(schema), written)
}

fn is_settled_at(node: Node<'_>, written: &Map) -> bool {
    let form = node.form(None);
    let is_deduced = matches!(&form, Form::Map(map) if map.is_deduced());
    written.iter().all(|(key, value)| {
        let Value::Object(found) = value else { return false };
        if key == MEMBER {
            return found.is_empty();
        }
        let inner = match (key.split_at_checked(2), &form) {
            (Some(("f:", name)), Form::Map(map)) => map.field(name),
            (Some(("f:" | "i:" | "k:" | "v:", _)), Form::List(list)) => Some(list.item),
            (Some(("f:" | "i:" | "k:" | "v:", _)), _) => None,
            _ => return false,
        };
        // Fields that the schema does not declare are not reconciled, and neither are those beneath them.
        let inner = inner.filter(|_| !is_deduced).unwrap_or(Node::Deduced);
        let has_beneath = found.keys().any(|key| key != MEMBER);
        !(has_beneath && is_whole(inner)) && is_settled_at(inner, found)
    })
}

/// The entry of a name.
fn find<'w>(written: &'w Map, element: &Element) -> Option<&'w Map> {
    let Element::Field(name) = element else { return None };
    // Most maps are small, and are searched linearly without building a key. In a large one each linear search would
    // take too long.
    if LARGE < written.len() {
        return written.get(&["f:", name].concat()).and_then(Value::as_object);
    }
    let found = written.iter().find(|(key, _)| key.strip_prefix("f:") == Some(name));
    found.and_then(|(_, value)| value.as_object())
}

/// Whether an entry is itself in the set: it is marked as a member, or has nothing beneath it.
fn is_member(found: &Map) -> bool {
    found.is_empty() || found.contains_key(MEMBER)
}
