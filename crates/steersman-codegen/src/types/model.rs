//! The types of one version of one kind, before they are text.

use std::collections::BTreeSet;

use crate::types::known::Known;

/// All types of one version of a kind.
pub(crate) struct Model {
    pub(crate) root: Root,
    /// The types below the kind, in the order in which they are printed. A [`TypeId`] is an index.
    pub(crate) types: Vec<TypeDef>,
    /// Types of k8s-openapi that are used, for their names.
    pub(crate) known: BTreeSet<Known>,
    pub(crate) uses_quantity: bool,
}

/// The kind itself.
pub(crate) struct Root {
    /// `Network`
    pub(crate) name: String,
    /// All but `metadata`.
    pub(crate) fields: Vec<Field>,
    /// The name of the field with what the schema does not name, where that is preserved.
    pub(crate) others: Option<String>,
    pub(crate) can_default: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct TypeId(pub(crate) usize);

/// A struct or an enum below a kind.
pub(crate) struct TypeDef {
    pub(crate) name: String,
    pub(crate) body: Body,
    /// Every place that has this type.
    pub(crate) uses: Vec<Place>,
    /// Set unless it is found that a field cannot have a default.
    pub(crate) can_default: bool,
}

/// A place in the schema that a type was found at.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// As Kubernetes writes it: `spec.containers[].env`.
    pub(crate) path: String,
    /// For each step of the path the words that a name can be made of.
    pub(crate) stems: Vec<Vec<String>>,
    /// What the schema says of the type at this place.
    pub(crate) description: Option<String>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Body {
    /// A string that has one of these values.
    Enum(Vec<Variant>),
    Struct {
        fields: Vec<Field>,
        /// The name of the field with what the schema does not name, where that is preserved.
        others: Option<String>,
    },
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Field {
    /// The identifier.
    pub(crate) name: String,
    /// The name in JSON.
    pub(crate) json_name: String,
    pub(crate) description: Option<String>,
    /// Sentences that the schema says without words, for the docs: the default, how items of a list differ.
    pub(crate) notes: Vec<String>,
    pub(crate) presence: Presence,
    pub(crate) ty: Type,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Presence {
    /// May be absent, and is not `Option`: the default of the type stands for it.
    Defaulted,
    Optional,
    Required,
    /// Must be there, and may be null.
    RequiredNullable,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Type {
    Any,
    Bool,
    Bytes,
    EmbeddedObject,
    F32,
    F64,
    I32,
    I64,
    IntOrString,
    Known(Known),
    List(Box<Type>),
    Map(Box<Type>),
    Named(TypeId),
    Nullable(Box<Type>),
    Quantity,
    String,
    Time,
    U8,
    U16,
    U32,
    U64,
}

// === impl Model ===

impl Model {
    pub(crate) fn get(&self, id: TypeId) -> &TypeDef {
        &self.types[id.0]
    }

    /// The types that are to be reached without naming the kind's module: the kind, and those of `spec` and `status`.
    pub(crate) fn exports(&self) -> Vec<String> {
        let mut names = vec![self.root.name.clone()];
        for field in &self.root.fields {
            if let (Type::Named(id), "spec" | "status") = (&field.ty, field.json_name.as_str()) {
                names.push(self.get(*id).name.clone());
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

// === impl Type ===

impl Type {
    /// Calls `seen` with this type and each inside it.
    pub(crate) fn walk(&self, seen: &mut impl FnMut(&Type)) {
        seen(self);
        if let Type::List(inner) | Type::Map(inner) | Type::Nullable(inner) = self {
            inner.walk(seen);
        }
    }
}
