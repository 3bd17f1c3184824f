//! Adapts old records to a newer schema.
//!
//! A map or list that was granular when a managedFields entry was written may be atomic now: the owner of a part then
//! becomes the owner of the whole. In the reverse case nothing is done; such a record is read as if the field had
//! always been granular.

use crate::model::schema::Schema;
use crate::ownership::fields::shape::{Form, Node, Split};
use crate::ownership::fields::{Element, FieldSet};

/// Adapts the set to this schema; returns whether it changed.
pub(crate) fn reconcile(schema: &Schema, set: &mut FieldSet) -> bool {
    reconcile_at(Node::root(schema), set)
}

fn reconcile_at(node: Node<'_>, set: &mut FieldSet) -> bool {
    let form = node.form(None);
    if matches!(&form, Form::Map(map) if map.is_deduced()) {
        return false;
    }
    let mut is_changed = false;
    for (element, entry) in set.entries.iter_mut().filter(|(_, entry)| !entry.beneath.is_empty()) {
        let inner = match (&form, element) {
            (Form::Map(map), Element::Field(name)) => map.field(name),
            (Form::List(list), _) => Some(list.item),
            _ => None,
        };
        let Some(inner) = inner else {
            continue;
        };
        if is_whole(inner) {
            entry.member = true;
            entry.beneath = FieldSet::EMPTY;
            is_changed = true;
        } else {
            is_changed |= reconcile_at(inner, &mut entry.beneath);
        }
    }
    is_changed
}

/// Whether a list or map is owned as a whole.
pub(crate) fn is_whole(node: Node<'_>) -> bool {
    match node.form(None) {
        Form::List(list) => matches!(list.split, Split::Atomic),
        Form::Map(map) => map.is_atomic && !map.is_deduced(),
        Form::Scalar(_) => false,
    }
}
