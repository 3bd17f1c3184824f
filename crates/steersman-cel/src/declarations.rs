//! The variables and types that expressions may name.

use crate::decl::{DeclType, ObjectDecl};
use crate::types::Type;
use std::sync::Arc;

/// The name under which earlier expressions of a policy are known.
pub(crate) const COMPOSED: &str = "variables";

/// What is declared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declarations {
    pub(crate) variables: Vec<(Arc<str>, DeclType)>,
    /// Whether objects of mutations may be written out.
    pub(crate) has_objects: bool,
}

impl Declarations {
    pub(crate) fn variable(&self, name: &str) -> Option<(&Arc<str>, &DeclType)> {
        self.variables.iter().find(|(known, _)| **known == *name).map(|(name, decl)| (name, decl))
    }

    /// Whether a function of the table is known here: mutations have one more.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.has_objects || name != "jsonpatch.escapeKey"
    }

    /// The type of objects that an expression may write out.
    pub(crate) fn object_type(&self, name: &str) -> Option<Arc<ObjectDecl>> {
        if !self.has_objects {
            return None;
        }
        match name {
            "JSONPatch" => {
                let fields = ["op", "path", "from"].map(|name| (name.to_owned(), DeclType::string()));
                let patch =
                    DeclType::object_of(name, fields.into_iter().chain([("value".to_owned(), DeclType::dynamic())]));
                match patch.type_of() {
                    Type::Object(object) => Some(object),
                    _ => None,
                }
            }
            _ if name == "Object" || name.starts_with("Object.") => Some(DeclType::open_object(name)),
            _ => None,
        }
    }
}
