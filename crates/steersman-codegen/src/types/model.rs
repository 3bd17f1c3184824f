//! The types of one version of one kind, before they are printed.

use std::collections::BTreeSet;

use crate::types::kubernetes_type::KubernetesType;

/// All types of one version of a kind.
pub(crate) struct Model {
    pub(crate) root: Root,
    /// The types below the kind, in the order in which they are printed. A [`TypeId`] is an index.
    pub(crate) types: Vec<TypeDef>,
    /// The types of k8s-openapi that are used, to import them.
    pub(crate) known: BTreeSet<KubernetesType>,
    pub(crate) uses_quantity: bool,
}

/// The kind itself.
pub(crate) struct Root {
    /// `Network`
    pub(crate) name: String,
    /// The fields except `metadata`.
    pub(crate) fields: Vec<Field>,
    /// The name of the field for properties that the schema does not name, if they are preserved.
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
    pub(crate) uses: Vec<SchemaPath>,
    /// Whether the type can have a default. True until a field without one is found.
    pub(crate) can_default: bool,
}

/// A place in the schema that has a type.
#[derive(Clone, Debug)]
pub(crate) struct SchemaPath {
    /// The path in Kubernetes' notation: `spec.containers[].env`.
    pub(crate) path: String,
    /// For each step of the path, the words for a name.
    pub(crate) stems: Vec<Vec<String>>,
    /// The schema's description of the type at this place.
    pub(crate) description: Option<String>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Body {
    /// A string that has one of these values.
    Enum(Vec<Variant>),
    Struct {
        fields: Vec<Field>,
        /// The name of the field for properties that the schema does not name, if they are preserved.
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
    /// The Rust identifier.
    pub(crate) name: String,
    /// The name in JSON.
    pub(crate) json_name: String,
    pub(crate) description: Option<String>,
    /// Sentences for the docs on properties of the schema: the default, how items of a list differ.
    pub(crate) notes: Vec<String>,
    pub(crate) presence: Presence,
    pub(crate) ty: Type,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Presence {
    /// May be absent, and is not an `Option`: the type's default stands for absence.
    Defaulted,
    Optional,
    Required,
    /// Must be present, and may be null.
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
    KubernetesType(KubernetesType),
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

    /// The types that the version's module re-exports: the kind, and those of `spec` and `status`.
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
