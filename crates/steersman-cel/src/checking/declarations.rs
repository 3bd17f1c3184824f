//! The variables and types that expressions may use.

use crate::checking::decl::{DeclType, ObjectDecl};
use crate::checking::types::Type;
use std::sync::Arc;

/// The variable whose fields are the earlier expressions of a policy.
pub(crate) const COMPOSED: &str = "variables";

/// The declarations of an environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declarations {
    pub(crate) variables: Vec<(Arc<str>, DeclType)>,
    /// Whether object literals of mutations are allowed.
    pub(crate) has_objects: bool,
    /// Whether `cel.bind` is there.
    pub(crate) has_bind: bool,
}

impl Declarations {
    pub(crate) fn variable(&self, name: &str) -> Option<(&Arc<str>, &DeclType)> {
        self.variables.iter().find(|(known, _)| **known == *name).map(|(name, decl)| (name, decl))
    }

    /// Whether a function of the table is available: mutations have one more.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.has_objects || name != "jsonpatch.escapeKey"
    }

    /// The type of an object literal.
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
