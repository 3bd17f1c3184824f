//! The ownership types of a schema: which values are owned as a whole, which by their parts, and what those parts are.
//!
//! The types are those that `structured-merge-diff` derives from OpenAPI: scalars, lists (atomic, by item, by key) and
//! maps (atomic or granular, with named fields, further ones, or both). Without a schema the value decides: maps are
//! granular, everything else is atomic.

use crate::model::definitions::Definitions;
use crate::model::openapi;
use crate::model::schema::{Additional, List, Schema, Special, Type, Zero};
use crate::ownership::fields::element::{Element, Literal};
use steersman_machinery::Value;

/// The type of one position in a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node<'s> {
    /// Defined by a schema.
    InheritedSchema(InheritedSchema<'s>),
    /// Deduced from the value: maps are granular, lists are atomic.
    Deduced,
    /// Inside an atomic value without a schema.
    Opaque,
}

/// A schema with the properties that it inherits from its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InheritedSchema<'s> {
    schema: &'s Schema,
    /// Whether this schema or one around it keeps unknown fields.
    preserve: bool,
    /// Whether `apiVersion`, `kind` and `metadata` exist even where the schema does not name them.
    is_resource: bool,
}

/// The kind of ownership of a position; the value decides where the schema leaves it open.
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

/// How the items of a list are owned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Split<'s> {
    /// Not separately.
    Atomic,
    Keys(&'s [Box<str>]),
    Set,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MapForm<'s> {
    pub(crate) is_atomic: bool,
    /// The schema of the named fields.
    known: Option<InheritedSchema<'s>>,
    /// The type of further fields; none: no others are allowed.
    further: Option<Node<'s>>,
}

// === impl Node ===

impl<'s> Node<'s> {
    /// The type of whole objects of a kind.
    pub(crate) fn root(schema: &'s Schema) -> Node<'s> {
        // A custom resource without a schema does not define even its metadata.
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
        Node::InheritedSchema(InheritedSchema { schema, preserve, is_resource })
    }

    fn scalar(schema: &'s Schema) -> Node<'s> {
        Node::InheritedSchema(InheritedSchema { schema, preserve: false, is_resource: false })
    }

    /// The form of the position. Null and absent values take the form that the type demands.
    pub(crate) fn form(self, value: Option<&Value>) -> Form<'s> {
        let inner = match self {
            Node::InheritedSchema(known) => return known.form(),
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

// === impl InheritedSchema ===

impl<'s> InheritedSchema<'s> {
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
        // The content of an extension has one owner.
        let is_extension = target.special == Some(Special::RawExtension);
        MapForm { is_atomic: is_extension || self.schema.is_atomic_map(), known: Some(self), further }
    }

    /// The type of a named field.
    fn named(self, name: &str) -> Option<Node<'s>> {
        let property = self.schema.property(name);
        if self.is_resource && name == "metadata" {
            // A custom resource's schema may restrict the name, but cannot change the type of the metadata.
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

    /// Whether the schema does not define any field.
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
    /// In the words of kube-apiserver, when the item has no valid key.
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
        // A key that is absent and has no default is left out of the path; at least one must be present.
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

    /// The value of a key that an item does not have: its default, or its empty value if it is a field of a built-in
    /// kind that is always written.
    fn key_default(&self, key: &str) -> Option<Value> {
        let Node::InheritedSchema(known) = self.item else { return None };
        let key = known.schema.property(key)?;
        let empty = || if key.zero == Zero::Write { openapi::empty(key) } else { None };
        key.default.clone().or_else(empty)
    }
}
