//! Values and their types: whether a value matches, and the fields that it sets.

use crate::model::schema::Schema;
use crate::ownership::fields::element::{Element, Path};
use crate::ownership::fields::shape::{Form, ListForm, MapForm, Node, Scalar, Split};
use crate::ownership::fields::{Entry, FieldSet};
use crate::values::decode::scalar::found;
use std::collections::BTreeSet;
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// The maximum number of errors of one value: each has its path, and together they are one message.
const FAULTS_MAX: usize = 100;
/// Once the paths of the errors exceed this size, later errors are left out.
const PATH_BYTES_MAX: usize = 1 << 20;

/// Why a value does not match its type. Messages that clients match, such as `field not declared in schema`, are
/// upstream's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mismatch(Vec<Fault>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Fault {
    path: Path,
    message: String,
}

/// Whether a keyed list or a set may contain duplicates. Stored objects may, because older rules allowed it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Duplicates {
    Allow,
    Refuse,
}

// === impl FieldSet ===

impl FieldSet {
    /// The fields that a value sets, which its applier then owns.
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
}

fn name_items(list: ListForm<'_>, items: &[Value], here: &mut Entry) {
    let mut elements: Vec<(Element, &Value)> =
        items.iter().filter_map(|item| Some((list.element(item).ok()?, item))).collect();
    elements.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (element, item) in elements {
        if here.beneath.entries.last().is_some_and(|(last, _)| *last == element) {
            // Duplicates are owned as a whole.
            here.beneath.entries.last_mut().into_iter().for_each(|(_, entry)| entry.beneath = FieldSet::EMPTY);
            continue;
        }
        let mut entry = Entry::default();
        name_fields(list.item, item, &mut entry);
        here.beneath.entries.push((element, Entry { member: true, ..entry }));
    }
}

fn name_entries(map: MapForm<'_>, fields: &Map, here: &mut Entry) {
    // The fields of the object and the entries of the set are both sorted.
    for (name, value) in fields {
        let mut entry = Entry::default();
        if let Some(node) = map.field(name) {
            name_fields(node, value, &mut entry);
        }
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        entry.member |= is_empty || map.named(name).is_none();
        if entry.member || !entry.beneath.is_empty() {
            here.beneath.entries.push((Element::Field(name.clone()), entry));
        }
    }
}

// === validate ===

/// Checks that a value matches its type. Of the undeclared fields of one object only the first is reported.
///
/// # Errors
/// All errors, each with its path.
pub(crate) fn validate(schema: &Schema, value: &Value, duplicates: Duplicates) -> Result<(), Mismatch> {
    let mut check = Check { duplicates, faults: Vec::new(), n_path_bytes: 0 };
    check.value(Node::root(schema), value);
    if check.faults.is_empty() { Ok(()) } else { Err(Mismatch(check.faults)) }
}

/// A walk that collects errors. Their paths are built from the end while returning, so a valid value builds no path.
struct Check {
    duplicates: Duplicates,
    faults: Vec<Fault>,
    /// The total size of the paths.
    n_path_bytes: usize,
}

impl Check {
    fn value(&mut self, node: Node<'_>, value: &Value) {
        if value.is_null() {
            return;
        }
        match (node.form(Some(value)), value) {
            (Form::Scalar(scalar), _) => {
                if let Some(message) = scalar_fault(scalar, value) {
                    self.fault(message);
                }
            }
            (Form::List(list), Value::Array(items)) => self.items(list, items),
            (Form::List(_), _) => self.fault(format!("expected list, got {}", found(value))),
            (Form::Map(map), Value::Object(fields)) => self.fields(map, fields),
            (Form::Map(_), _) => self.fault(format!("expected map, got {}", found(value))),
        }
    }

    fn items(&mut self, list: ListForm<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if self.is_full() {
                return;
            }
            let before = self.faults.len();
            if matches!(list.split, Split::Atomic) {
                self.value(list.item, item);
                if self.faults.len() > before {
                    self.came_from(before, &Element::Index(i64::try_from(index).unwrap_or(i64::MAX)));
                }
                continue;
            }
            let element = match list.element(item) {
                Ok(element) => element,
                Err(message) => return self.fault(format!("element {index}: {message}")),
            };
            let is_refused = self.duplicates == Duplicates::Refuse && seen.contains(&element);
            if is_refused {
                self.fault(format!("duplicate entries for key {element}"));
            }
            let before = self.faults.len();
            self.value(list.item, item);
            self.came_from(before, &element);
            if self.duplicates == Duplicates::Refuse {
                seen.insert(element);
            }
        }
    }

    fn fields(&mut self, map: MapForm<'_>, fields: &Map) {
        for (name, value) in fields {
            if self.is_full() {
                return;
            }
            let before = self.faults.len();
            let node = map.field(name);
            match node {
                Some(node) => self.value(node, value),
                None => self.fault("field not declared in schema".to_owned()),
            }
            if self.faults.len() > before {
                self.came_from(before, &Element::Field(name.clone()));
            }
            if node.is_none() {
                return;
            }
        }
    }

    fn fault(&mut self, message: String) {
        if !self.is_full() {
            self.faults.push(Fault { path: Path::default(), message });
        }
    }

    fn is_full(&self) -> bool {
        FAULTS_MAX <= self.faults.len()
    }

    /// Prepends an element to the paths of the errors from `first` on.
    fn came_from(&mut self, first: usize, element: &Element) {
        if self.faults.len() <= first {
            return;
        }
        // A name may be as long as the value, and is repeated in the path of each error beneath it.
        self.n_path_bytes += (self.faults.len() - first) * element.to_string().len();
        if PATH_BYTES_MAX < self.n_path_bytes {
            self.faults.truncate(first.max(1));
        }
        for fault in self.faults.iter_mut().skip(first) {
            fault.path.0.insert(0, element.clone());
        }
    }
}

/// The mismatch between a scalar and its type, if any. Null fits every type.
pub(crate) fn scalar_fault(scalar: Scalar, value: &Value) -> Option<String> {
    let (fits, expected) = match scalar {
        Scalar::Any => (matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_)), "any scalar"),
        Scalar::Boolean => (value.is_boolean(), "boolean"),
        Scalar::Number => (value.is_number(), "number"),
        Scalar::String => (value.is_string(), "string"),
    };
    (!fits && !value.is_null()).then(|| format!("expected {expected}, got {}", found(value)))
}

// === impl Mismatch ===

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [fault] => fault.fmt(f),
            faults => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                f.write_str(&faults.join("; "))
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
