//! What changed between two values of one type.

use crate::fields::FieldSet;
use crate::fields::element::{Element, same};
use crate::fields::shape::{Form, ListForm, MapForm, Node, Split};
use crate::schema::Schema;
use std::collections::BTreeMap;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// The fields in which a new value differs from an old one. No field is in two of the sets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Comparison {
    /// In the new value only.
    pub added: FieldSet,
    /// In both, with different values.
    pub modified: FieldSet,
    /// In the old value only.
    pub removed: FieldSet,
}

/// One walk down two values side by side.
struct Walk {
    way: Vec<Element>,
    found: Comparison,
}

/// Compares two values of one type.
pub fn compare(schema: &Schema, old: &Value, new: &Value) -> Comparison {
    let mut walk = Walk { way: Vec::new(), found: Comparison::default() };
    walk.compare(Node::root(schema), Some(old), Some(new));
    walk.found
}

// === impl Comparison ===

impl Comparison {
    /// Nothing changed.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The same without the fields of a set and what is beneath them.
    #[must_use]
    pub fn without(mut self, fields: &FieldSet) -> Comparison {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_recursive(fields);
        }
        self
    }
}

// === impl Walk ===

impl Walk {
    fn compare(&mut self, node: Node<'_>, old: Option<&Value>, new: Option<&Value>) {
        if let (Some(old), Some(new)) = (old, new)
            && same(old, new)
        {
            return;
        }
        // Where nobody told the type it may have changed with the value; then what was is gone and what is has come.
        let old_form = node.form(old);
        let new_form = node.form(new);
        let is_whole = match (old, new) {
            (_, None) => self.by_form(old_form, old, new),
            (None, _) => self.by_form(new_form, old, new),
            _ if is_like(&old_form, &new_form) => self.by_form(new_form, old, new),
            _ => {
                self.by_form(old_form, old, new);
                self.by_form(new_form, old, new)
            }
        };
        if !is_whole {
            match (old, new) {
                (None, _) => self.found.added.insert(&self.way),
                (_, None) => self.found.removed.insert(&self.way),
                _ => {}
            }
        }
    }

    /// Compares what a form makes of the values; true if it made a whole of them.
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
        let found = &mut self.found;
        match (old, new) {
            (None, _) => found.added.insert(&self.way),
            (_, None) => found.removed.insert(&self.way),
            (Some(old), Some(new)) if !same(old, new) => found.modified.insert(&self.way),
            _ => {}
        }
        true
    }

    fn fields(&mut self, map: MapForm<'_>, old: Option<&Map>, new: Option<&Map>) {
        let empty = Map::new();
        let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
        let only_new = new.keys().filter(|name| !old.contains_key(*name));
        // In order, so that what is found is appended to the sets and not put in between.
        let mut names: Vec<&String> = old.keys().chain(only_new).collect();
        names.sort_unstable();
        for name in names {
            let node = map.field(name).unwrap_or(Node::Opaque);
            self.down(Element::Field(name.clone()), node, old.get(name), new.get(name));
        }
    }

    fn items(&mut self, list: ListForm<'_>, old: &[Value], new: &[Value]) {
        let mut pairs: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(element) = list.element(item) {
                pairs.entry(element).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(element) = list.element(item) {
                pairs.entry(element).or_default().1.push(item);
            }
        }
        for (element, (old, new)) in pairs {
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => self.down(element, list.item, old.first().copied(), new.first().copied()),
                // What is there twice is a whole, so becoming that or ceasing to be is coming or going.
                ([_, _, ..], [_, _, ..]) => {
                    let is_same = old.len() == new.len() && old.iter().zip(&new).all(|(old, new)| same(old, new));
                    if !is_same {
                        self.mark(element, |found| &mut found.modified);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(new) = new.first() {
                        self.down(element.clone(), list.item, None, Some(new));
                    }
                    self.mark(element, |found| &mut found.removed);
                }
                (_, [_, _, ..]) => {
                    if let Some(old) = old.first() {
                        self.down(element.clone(), list.item, Some(old), None);
                    }
                    self.mark(element, |found| &mut found.added);
                }
            }
        }
    }

    fn down(&mut self, element: Element, node: Node<'_>, old: Option<&Value>, new: Option<&Value>) {
        self.way.push(element);
        self.compare(node, old, new);
        self.way.pop();
    }

    fn mark(&mut self, element: Element, set: impl FnOnce(&mut Comparison) -> &mut FieldSet) {
        self.way.push(element);
        set(&mut self.found).insert(&self.way);
        self.way.pop();
    }
}

/// The same kind of form.
pub(crate) fn is_like(a: &Form<'_>, b: &Form<'_>) -> bool {
    matches!((a, b), (Form::List(_), Form::List(_)) | (Form::Map(_), Form::Map(_)) | (Form::Scalar(_), Form::Scalar(_)))
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The fields of an object that has some.
fn fields(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object).filter(|fields| !fields.is_empty())
}
