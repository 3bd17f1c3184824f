//! A value and its type: whether they fit, and which fields the value names.

use crate::fields::element::{Element, Path};
use crate::fields::shape::{Form, ListForm, MapForm, Node, Scalar, Split};
use crate::fields::{Entry, FieldSet, go};
use crate::schema::Schema;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// Why a value does not fit its type, in the words of kube-apiserver.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mismatch(Vec<Fault>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Fault {
    path: Path,
    message: String,
}

/// Whether a keyed list or a set may hold the same item twice. Stored objects may, as older rules let them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Duplicates {
    Allow,
    Refuse,
}

// === impl FieldSet ===

impl FieldSet {
    /// The fields a value names: what its owner owns who applies it.
    pub fn of(schema: &Schema, value: &Value) -> FieldSet {
        let mut root = Entry::default();
        name_fields(Node::root(schema), value, &mut root);
        root.beneath
    }

    /// The set with every named field that has members beneath it, in structs but not in maps.
    pub(crate) fn with_named_fields(&self, schema: &Schema) -> FieldSet {
        add_named(self, Some(Node::root(schema)))
    }
}

fn add_named(set: &FieldSet, node: Option<Node<'_>>) -> FieldSet {
    let form = node.map(|node| node.form(None));
    set.each(|element, entry| {
        let (inner, is_named) = match (&form, element) {
            (Some(Form::Map(map)), Element::Field(name)) => (map.field(name), map.named(name).is_some()),
            (Some(Form::List(list)), Element::Key(_)) => (Some(list.item), false),
            _ => (None, false),
        };
        let member = entry.member || (is_named && !entry.beneath.is_empty());
        Some(Entry { member, beneath: add_named(&entry.beneath, inner) })
    })
}

fn name_fields(node: Node<'_>, value: &Value, here: &mut Entry) {
    match node.form(Some(value)) {
        Form::Scalar(_) => here.member = true,
        Form::List(list) => match (list.split, value) {
            (Split::Atomic, _) => here.member = true,
            (Split::Keys(_) | Split::Set, Value::Array(items)) => name_items(list, items, here),
            _ => {}
        },
        Form::Map(map) => match value {
            _ if map.is_atomic => here.member = true,
            Value::Object(fields) => name_entries(map, fields, here),
            _ => {}
        },
    }
    here.beneath.entries.retain(|_, entry| entry.member || !entry.beneath.is_empty());
}

fn name_items(list: ListForm<'_>, items: &[Value], here: &mut Entry) {
    let mut by_element: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = list.element(item) {
            by_element.entry(element).or_default().push(item);
        }
    }
    for (element, items) in by_element {
        let mut entry = Entry { member: true, ..Entry::default() };
        // What is there twice is owned as a whole.
        if let [item] = items.as_slice() {
            name_fields(list.item, item, &mut entry);
        }
        here.beneath.entries.insert(element, Entry { member: true, ..entry });
    }
}

fn name_entries(map: MapForm<'_>, fields: &Map, here: &mut Entry) {
    for (name, value) in fields {
        let mut entry = Entry::default();
        if let Some(node) = map.field(name) {
            name_fields(node, value, &mut entry);
        }
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        entry.member |= is_empty || map.named(name).is_none();
        here.beneath.entries.insert(Element::Field(name.clone()), entry);
    }
}

// === validate ===

/// Checks that a value fits its type. Of fields that are not in the schema the first is told.
///
/// # Errors
/// Every other fault, each with its path.
pub(crate) fn validate(schema: &Schema, value: &Value, duplicates: Duplicates) -> Result<(), Mismatch> {
    let mut faults = Vec::new();
    check(Node::root(schema), value, duplicates, &mut Vec::new(), &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(Mismatch(faults)) }
}

fn check(node: Node<'_>, value: &Value, duplicates: Duplicates, way: &mut Vec<Element>, faults: &mut Vec<Fault>) {
    if value.is_null() {
        return;
    }
    match node.form(Some(value)) {
        Form::Scalar(scalar) => {
            faults.extend(scalar_fault(scalar, value).map(|message| Fault { path: Path(way.clone()), message }));
        }
        Form::List(list) => match value.as_array() {
            Some(items) => check_items(list, items, duplicates, way, faults),
            None => {
                let message = format!("expected list, got &{{{}}}", go::plain(value));
                faults.push(Fault { path: Path(way.clone()), message });
            }
        },
        Form::Map(map) => match value.as_object() {
            Some(fields) => check_fields(map, fields, duplicates, way, faults),
            None => {
                let message = format!("expected map, got &{{{}}}", go::plain(value));
                faults.push(Fault { path: Path(way.clone()), message });
            }
        },
    }
}

fn check_items(
    list: ListForm<'_>,
    items: &[Value],
    duplicates: Duplicates,
    way: &mut Vec<Element>,
    faults: &mut Vec<Fault>,
) {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = match list.split {
            Split::Atomic => Element::Index(i64::try_from(index).unwrap_or(i64::MAX)),
            Split::Keys(_) | Split::Set => match list.element(item) {
                Ok(element) => {
                    let is_new = seen.insert(element.clone());
                    if !is_new && duplicates == Duplicates::Refuse {
                        let message = format!("duplicate entries for key {element}");
                        faults.push(Fault { path: Path(way.clone()), message });
                    }
                    element
                }
                Err(message) => {
                    let message = format!("element {index}: {message}");
                    faults.push(Fault { path: Path(way.clone()), message });
                    return;
                }
            },
        };
        way.push(element);
        check(list.item, item, duplicates, way, faults);
        way.pop();
    }
}

fn check_fields(
    map: MapForm<'_>,
    fields: &Map,
    duplicates: Duplicates,
    way: &mut Vec<Element>,
    faults: &mut Vec<Fault>,
) {
    for (name, value) in fields {
        way.push(Element::Field(name.clone()));
        let node = map.field(name);
        match node {
            Some(node) => check(node, value, duplicates, way, faults),
            None => {
                let message = "field not declared in schema".to_owned();
                faults.push(Fault { path: Path(way.clone()), message });
            }
        }
        way.pop();
        if node.is_none() {
            return;
        }
    }
}

/// What is wrong with a scalar. Null is none of them and fits all.
pub(crate) fn scalar_fault(scalar: Scalar, value: &Value) -> Option<String> {
    let (fits, message) = match scalar {
        Scalar::Any => {
            let fits = matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
            (fits, format!("expected any scalar, got &{{{}}}", go::plain(value)))
        }
        Scalar::Boolean => (value.is_boolean(), format!("expected boolean, got &{{{}}}", go::plain(value))),
        Scalar::Number => (value.is_number(), format!("expected numeric (int or float), got {}", go::type_name(value))),
        Scalar::String => {
            let got = format!("&value.valueUnstructured{{Value:{}}}", go::syntax(value));
            (value.is_string(), format!("expected string, got {got}"))
        }
    };
    (!fits && !value.is_null()).then_some(message)
}

// === impl Mismatch ===

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [fault] => fault.fmt(f),
            faults => {
                f.write_str("errors:")?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.0.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}
