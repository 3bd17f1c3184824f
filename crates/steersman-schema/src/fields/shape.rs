//! What a schema says about ownership: where a value is a whole, where it is split, and into what.
//!
//! The types are those that `structured-merge-diff` derives from OpenAPI: scalars, lists (atomic, by item, by key) and maps
//! (atomic or split, with named fields, further ones, or both). Where a schema says nothing, the value decides: maps are
//! split key by key, everything else is a whole.

use crate::definitions::Definitions;
use crate::fields::element::{Element, Literal};
use crate::openapi;
use crate::schema::{Additional, List, Schema, Special, Type, Zero};
use steersman_machinery::Value;

/// The type of one place in a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node<'s> {
    /// Told by a schema.
    Known(Known<'s>),
    /// Told by the value: maps are split, lists are wholes.
    Deduced,
    /// Inside an atomic value without a schema.
    Opaque,
}

/// A schema and what it has from where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'s> {
    schema: &'s Schema,
    /// This or something around it keeps unknown fields.
    preserve: bool,
    /// `apiVersion`, `kind` and `metadata` are there even where the schema does not name them.
    is_resource: bool,
}

/// What a place is, a value given where the schema leaves it open.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'s> {
    List(ListForm<'s>),
    Map(MapForm<'s>),
    Scalar(Scalar),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scalar {
    Any,
    Boolean,
    Number,
    String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ListForm<'s> {
    pub(crate) split: Split<'s>,
    pub(crate) item: Node<'s>,
}

/// How a list comes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Split<'s> {
    /// Not at all.
    Atomic,
    Keys(&'s [Box<str>]),
    Set,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MapForm<'s> {
    pub(crate) is_atomic: bool,
    /// Names fields.
    known: Option<Known<'s>>,
    /// The type of fields that are not named; none: there may be none.
    further: Option<Node<'s>>,
}

// === impl Node ===

impl<'s> Node<'s> {
    /// The type of whole objects of a kind.
    pub(crate) fn root(schema: &'s Schema) -> Node<'s> {
        // A custom resource without a schema says nothing, not even about its metadata.
        let target = schema.target();
        let says_nothing = target.properties.is_empty() && target.special.is_none();
        Node::known(schema, false, !says_nothing)
    }

    fn known(schema: &'s Schema, preserve: bool, is_resource: bool) -> Node<'s> {
        let target = schema.target();
        let is_open = target.value_type == Type::Any && target.properties.is_empty();
        let is_opaque_json = matches!(target.special, Some(Special::Json));
        if is_opaque_json || (is_open && target.special.is_none()) || target.value_type == Type::IntOrString {
            return match target.special {
                Some(Special::IntOrString) => Node::scalar(schema),
                _ => Node::Deduced,
            };
        }
        let preserve = preserve || target.preserve_unknown_fields;
        let is_resource = is_resource || target.embedded_resource;
        Node::Known(Known { schema, preserve, is_resource })
    }

    fn scalar(schema: &'s Schema) -> Node<'s> {
        Node::Known(Known { schema, preserve: false, is_resource: false })
    }

    /// What the place is. Null and nothing are whatever they need to be.
    pub(crate) fn form(self, value: Option<&Value>) -> Form<'s> {
        let inner = match self {
            Node::Known(known) => return known.form(),
            Node::Deduced => Node::Deduced,
            Node::Opaque => Node::Opaque,
        };
        let is_atomic = matches!(inner, Node::Opaque);
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Form::Scalar(Scalar::Any),
            Some(Value::Array(_)) => Form::List(ListForm { split: Split::Atomic, item: Node::Opaque }),
            None | Some(Value::Null | Value::Object(_)) => {
                Form::Map(MapForm { is_atomic, known: None, further: Some(inner) })
            }
        }
    }
}

// === impl Known ===

impl<'s> Known<'s> {
    fn form(self) -> Form<'s> {
        let target = self.schema.target();
        match (target.special, target.value_type) {
            (Some(Special::Bytes), _) => Form::Scalar(Scalar::String),
            (Some(Special::IntOrString | Special::MicroTime | Special::Quantity | Special::Time), _) => {
                Form::Scalar(Scalar::Any)
            }
            (_, Type::Array) => Form::List(self.list()),
            (_, Type::Boolean) => Form::Scalar(Scalar::Boolean),
            (_, Type::Integer | Type::Number) => Form::Scalar(Scalar::Number),
            (_, Type::String) => match target.format.as_deref() {
                None | Some("" | "byte") => Form::Scalar(Scalar::String),
                Some(_) => Form::Scalar(Scalar::Any),
            },
            (_, Type::Any | Type::IntOrString | Type::Object) => Form::Map(self.map()),
        }
    }

    fn list(self) -> ListForm<'s> {
        let split = match (self.schema.list.as_ref().or(self.schema.target().list.as_ref()), self.schema.patch()) {
            (Some(List::Atomic), _) => Split::Atomic,
            (Some(List::Map(keys)), _) => Split::Keys(keys),
            (Some(List::Set), _) => Split::Set,
            (None, Some(patch)) if patch.merge => match &patch.merge_key {
                Some(key) => Split::Keys(std::slice::from_ref(key)),
                None => Split::Set,
            },
            (None, _) => Split::Atomic,
        };
        let item = match self.schema.item() {
            Some(item) => Node::known(item, self.preserve, false),
            None => Node::Deduced,
        };
        ListForm { split, item }
    }

    fn map(self) -> MapForm<'s> {
        let target = self.schema.target();
        let further = match &target.additional {
            Additional::Of(values) => Some(Node::known(values, self.preserve, false)),
            Additional::Any => Some(Node::Deduced),
            Additional::Never => None,
            Additional::Unsaid => (self.preserve || target.properties.is_empty()).then_some(Node::Deduced),
        };
        // Whatever an extension holds has one owner.
        let is_extension = target.special == Some(Special::RawExtension);
        MapForm { is_atomic: is_extension || self.schema.is_atomic_map(), known: Some(self), further }
    }

    /// The type of a named field.
    fn named(self, name: &str) -> Option<Node<'s>> {
        let property = self.schema.property(name);
        if self.is_resource && name == "metadata" {
            // A custom resource's schema may restrict the name; what metadata is, it cannot change.
            let own = property.filter(|property| property.reference().is_some());
            let metadata = own.unwrap_or_else(|| Definitions::object_meta(self.schema.edition));
            return Some(Node::known(metadata, false, false));
        }
        match property {
            Some(property) => Some(Node::known(property, self.preserve, false)),
            None if self.is_resource && matches!(name, "apiVersion" | "kind") => Some(Node::Opaque),
            None => None,
        }
    }
}

// === impl MapForm ===

impl<'s> MapForm<'s> {
    /// The type of a field by name; `None` if there is no such field.
    pub(crate) fn field(&self, name: &str) -> Option<Node<'s>> {
        self.named(name).or(self.further)
    }

    /// The type of a field that the schema names.
    pub(crate) fn named(&self, name: &str) -> Option<Node<'s>> {
        self.known.and_then(|known| known.named(name))
    }

    /// The schema says nothing about any field.
    pub(crate) fn is_deduced(&self) -> bool {
        let names_none = self.known.is_none_or(|known| known.schema.target().properties.is_empty());
        names_none && matches!(self.further, Some(Node::Deduced | Node::Opaque))
    }
}

// === impl ListForm ===

impl ListForm<'_> {
    /// The path element of an item of a set or keyed list.
    ///
    /// # Errors
    /// In the words of kube-apiserver, when the item cannot be told from the others.
    pub(crate) fn element(&self, item: &Value) -> Result<Element, String> {
        match self.split {
            Split::Keys(keys) => self.key(keys, item),
            Split::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Element::Value(Literal(item.clone()))),
            },
            Split::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        }
    }

    fn key(&self, keys: &[Box<str>], item: &Value) -> Result<Element, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        // A key that is left out is left out of the path too; one that is there has to be.
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(value) = fields.get(key.as_ref()).cloned().or_else(|| self.key_default(key)) {
                values.push((key.to_string(), Literal(value)));
            }
        }
        if values.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        values.sort();
        Ok(Element::Key(values))
    }

    /// The key of an item that does not say it: its default. A field of a built-in kind that is always written has its empty value as
    /// default.
    fn key_default(&self, key: &str) -> Option<Value> {
        let Node::Known(known) = self.item else { return None };
        let key = known.schema.property(key)?;
        let empty = || if key.zero == Zero::Write { openapi::empty(key) } else { None };
        key.default.clone().or_else(empty)
    }
}
