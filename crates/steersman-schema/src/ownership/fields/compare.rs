//! Compares two values of one type.

use crate::model::schema::Schema;
use crate::ownership::fields::element::{Element, same};
use crate::ownership::fields::shape::{Form, ListForm, MapForm, Node, Split};
use crate::ownership::fields::{Entry, FieldSet};
use std::cmp::Ordering;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// The fields in which a new value differs from an old one. No field is in two of the sets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Comparison {
    /// Fields only in the new value.
    pub added: FieldSet,
    /// Fields in both, with different values.
    pub modified: FieldSet,
    /// Fields only in the old value.
    pub removed: FieldSet,
    /// Whether a set or a keyed list of the new value that differs from the old one has an item without a key. No set of
    /// fields has such an item.
    pub lacks_key: bool,
}

/// The differences at one position and beneath it. Built from the leaves up, so that equal values cost nothing.
#[derive(Default)]
struct Differences {
    added: Entry,
    modified: Entry,
    removed: Entry,
    lacks_key: bool,
}

/// Compares two values of one type.
pub fn compare(schema: &Schema, old: &Value, new: &Value) -> Comparison {
    let found = differences(Node::root(schema), Some(old), Some(new));
    let Differences { added, modified, removed, lacks_key } = found;
    Comparison { added: added.beneath, modified: modified.beneath, removed: removed.beneath, lacks_key }
}

// === impl Comparison ===

impl Comparison {
    /// Whether nothing changed.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The comparison without the fields of a set and the fields beneath them.
    #[must_use]
    pub fn without(mut self, fields: &FieldSet) -> Comparison {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_recursive(fields);
        }
        self
    }
}

// === comparing ===

fn differences(node: Node<'_>, old: Option<&Value>, new: Option<&Value>) -> Differences {
    let mut found = Differences::default();
    if let (Some(old), Some(new)) = (old, new)
        && same(old, new)
    {
        return found;
    }
    // Without a schema, the type may change with the value: then the old fields are removed and the new ones added.
    let old_form = node.form(old);
    let new_form = node.form(new);
    let is_whole = match (old, new) {
        (_, None) => found.by_form(old_form, old, new),
        (None, _) => found.by_form(new_form, old, new),
        _ if is_like(&old_form, &new_form) => found.by_form(new_form, old, new),
        _ => {
            found.by_form(old_form, old, new);
            let mut come = Differences::default();
            let is_whole = come.by_form(new_form, old, new);
            found.absorb(&come);
            is_whole
        }
    };
    if !is_whole {
        match (old, new) {
            (None, _) => found.added.member = true,
            (_, None) => found.removed.member = true,
            _ => {}
        }
    }
    found
}

// === impl Differences ===

impl Differences {
    /// Compares the values according to a form; true if it compared them as a whole.
    fn by_form(&mut self, form: Form<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        match form {
            Form::Scalar(_) => self.whole(old, new),
            Form::List(list) => {
                let is_atomic = matches!(list.split, Split::Atomic);
                let (old_items, new_items) = (items(old), items(new));
                if is_atomic || (old_items.is_empty() && new_items.is_empty()) {
                    return self.whole(old, new);
                }
                self.items(list, old_items, new_items);
                false
            }
            Form::Map(map) => {
                let (old_fields, new_fields) = (fields(old), fields(new));
                if map.is_atomic || (old_fields.is_none() && new_fields.is_none()) {
                    return self.whole(old, new);
                }
                self.fields(map, old_fields, new_fields);
                false
            }
        }
    }

    fn whole(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.added.member = true,
            (_, None) => self.removed.member = true,
            (Some(old), Some(new)) if !same(old, new) => self.modified.member = true,
            _ => {}
        }
        true
    }

    fn fields(&mut self, map: MapForm<'_>, old: Option<&Map>, new: Option<&Map>) {
        let empty = Map::new();
        // Both are sorted, so one pass over the two visits every name once, in the order of sets.
        let mut old = old.unwrap_or(&empty).iter().peekable();
        let mut new = new.unwrap_or(&empty).iter().peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let before = if order.is_le() { old.next() } else { None };
            let after = if order.is_ge() { new.next() } else { None };
            let Some((name, _)) = before.or(after) else { return };
            let (before, after) = (before.map(|(_, value)| value), after.map(|(_, value)| value));
            if let (Some(before), Some(after)) = (before, after)
                && same(before, after)
            {
                continue;
            }
            let node = map.field(name).unwrap_or(Node::Opaque);
            self.put(differences(node, before, after), || Element::Field(name.clone()));
        }
    }

    fn items(&mut self, list: ListForm<'_>, old: &[Value], new: &[Value]) {
        let of = |items: &'_ [Value], is_new: bool| -> Vec<(Element, bool, usize)> {
            let elements = items.iter().enumerate();
            elements.filter_map(|(place, item)| Some((list.element(item).ok()?, is_new, place))).collect()
        };
        let mut elements = of(old, false);
        let of_new = of(new, true);
        self.lacks_key |= of_new.len() < new.len();
        elements.extend(of_new);
        // The sort is stable: for one element the old items stay before the new ones, each in the order of its list.
        elements.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        for group in elements.chunk_by(|(a, ..), (b, ..)| a == b) {
            let n_old = group.iter().take_while(|(_, is_new, _)| !is_new).count();
            let (before, after) = group.split_at(n_old);
            let element = || group[0].0.clone();
            let old_item = before.first().map(|(.., place)| &old[*place]);
            let new_item = after.first().map(|(.., place)| &new[*place]);
            match (before, after) {
                ([] | [_], [] | [_]) => self.put(differences(list.item, old_item, new_item), element),
                // Duplicates are compared as a whole, so becoming duplicate or ceasing to be counts as added or
                // removed.
                ([_, _, ..], [_, _, ..]) => {
                    let mut pairs = before.iter().zip(after);
                    let is_same = before.len() == after.len()
                        && pairs.all(|((.., before), (.., after))| same(&old[*before], &new[*after]));
                    if !is_same {
                        let modified = Entry { member: true, ..Entry::default() };
                        self.put(Differences { modified, ..Differences::default() }, element);
                    }
                }
                ([_, _, ..], _) => {
                    let mut found =
                        new_item.map_or_else(Differences::default, |_| differences(list.item, None, new_item));
                    found.removed.member = true;
                    self.put(found, element);
                }
                (_, [_, _, ..]) => {
                    let mut found =
                        old_item.map_or_else(Differences::default, |_| differences(list.item, old_item, None));
                    found.added.member = true;
                    self.put(found, element);
                }
            }
        }
    }

    /// Adds the differences at an element, which comes after all earlier elements.
    fn put(&mut self, found: Differences, element: impl Fn() -> Element) {
        self.lacks_key |= found.lacks_key;
        let pairs =
            [(&mut self.added, found.added), (&mut self.modified, found.modified), (&mut self.removed, found.removed)];
        for (into, entry) in pairs {
            if entry.member || !entry.beneath.is_empty() {
                into.beneath.entries.push((element(), entry));
            }
        }
    }

    /// Adds other differences at the same position.
    fn absorb(&mut self, other: &Differences) {
        self.lacks_key |= other.lacks_key;
        let pairs = [
            (&mut self.added, &other.added),
            (&mut self.modified, &other.modified),
            (&mut self.removed, &other.removed),
        ];
        for (into, entry) in pairs {
            into.member |= entry.member;
            into.beneath.add(&entry.beneath);
        }
    }
}

/// Whether both forms are of the same kind.
pub(crate) fn is_like(a: &Form<'_>, b: &Form<'_>) -> bool {
    matches!((a, b), (Form::List(_), Form::List(_)) | (Form::Map(_), Form::Map(_)) | (Form::Scalar(_), Form::Scalar(_)))
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The fields of an object, if it has any.
fn fields(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object).filter(|fields| !fields.is_empty())
}
